"""Tasks that build an index, and the folder that they fill."""

from __future__ import annotations

import json
import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.cohort.checked_store import CheckedStore
from croma_dask.cohort.checksums import codecs, seal
from croma_dask.cohort.layout import chunk_rows_for
from croma_dask.cohort.location import Location
from croma_dask.fingerprint import text_digest
from croma_dask.index.build_place import look
from croma_dask.index.graphs import graph_rows
from croma_dask.index.partition import assign
from croma_dask.index.recipe import Recipe
from croma_dask.index.source import RowSource, TakenRows
from croma_dask.index.stored import (
    COMPLETE,
    DESCENT,
    FORMAT,
    FORMAT_VERSION,
    ROWS,
    WRITING,
    read_frame,
    shard_name,
)
from croma_dask.index.threads import one_blas_thread
from croma_dask.kernels.frame import Frame
from croma_dask.kernels.typing import I32

if TYPE_CHECKING:
    import zarr

__all__ = ["Work", "assign_span", "finish", "prepare", "write_array", "write_shard"]

log = logging.getLogger("croma_dask")


@dataclass(frozen=True)
class Work:
    """What the tasks of a build share: places, no arrays."""

    source: RowSource
    location: Location
    recipe: Recipe
    n_jobs: int = 1

    def open(self) -> zarr.Group:
        """Open the index that is being built."""
        import zarr

        return zarr.open_group(self.location.zarr_store(read_only=False), mode="r+")


def prepare(
    location: Location, key: dict[str, Any], source: RowSource, *, overwrite: bool, resume: bool
) -> zarr.Group | None:
    """Root of the index to write; None where the very one is there already.

    Raises
    ------
    StoreError
        Something is there that may not be replaced.
    """
    import zarr

    found = look(location, key, overwrite=overwrite)
    if found == "whole":
        return None
    if found == "begun" and resume:
        root = zarr.open_group(location.zarr_store(read_only=False), mode="r+")
        problem = _unreadable(root)
        if problem is None:
            log.warning("going on with %s, which was started and not finished", location.url)
            return root
        log.warning(
            "%s was started and not finished, and is damaged (%s): starting afresh",
            location.url, problem,
        )  # fmt: skip
    if found != "nothing":
        location.remove(last="zarr.json")
    # With its attributes in one write: a group without them would be taken for a foreign one.
    return zarr.open_group(
        location.zarr_store(read_only=False),
        mode="w",
        zarr_format=3,
        attributes={
            "format": FORMAT, "format_version": FORMAT_VERSION, "status": WRITING, **key,
            "n_rows": source.n_rows, "n_features": source.n_features,
            "dtype": str(np.dtype(source.dtype).newbyteorder("=")),
        },
    )  # fmt: skip


def _unreadable(root: zarr.Group) -> str | None:
    """Say what is wrong with the metadata below a group; None where all of it can be read."""
    try:
        # Arrays whose metadata are gone are warned of; shards are compared with their digest later.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in root.members(max_depth=None):
                pass
    except (ValueError, TypeError, KeyError, AttributeError) as err:
        return f"metadata in it cannot be read: {err}"
    return None


def finish(root: zarr.Group, location: Location) -> None:
    """Mark the index as whole, last of all."""
    seal(location, {**dict(root.attrs), "status": COMPLETE})


def write_array(group: zarr.Group, name: str, value: np.ndarray, rows: int = 1 << 20) -> None:
    """Write an array in chunks of so many rows."""
    chunks = tuple(max(1, size) for size in (min(rows, value.shape[0]), *value.shape[1:]))
    array = group.create_array(
        name, shape=value.shape, dtype=value.dtype, chunks=chunks,
        compressors=codecs(compress=False), overwrite=True,
        fill_value=np.nan if value.dtype.kind == "f" else -1,
    )  # fmt: skip
    array[...] = value


def assign_span(work: Work, lo: int, hi: int) -> I32:
    """Nearest centre of rows lo..hi."""
    root = work.open()
    centres, basis = (np.asarray(root[name][...]) for name in ("trained", "basis"))  # type: ignore[index]
    with one_blas_thread():
        return assign(work.source, lo, hi, read_frame(root, work.location.url), centres, basis)


def write_shard(work: Work, number: int) -> int:
    """Write the rows of a shard and what its kind of search needs; return how many rows.

    A shard that is there whole is left as it is, once all of it was read: what lay there since a
    run was interrupted may be damaged, and would be part of an index that says it is whole.
    """
    root = work.open()
    edges = np.asarray(root["shard_edges"][...])  # type: ignore[index]
    lo, hi = int(edges[number]), int(edges[number + 1])
    name = shard_name(number)
    mine = str(root.attrs["build_id"])
    there = dict(root[name].attrs) if name in root else {}
    if there.get("status") == COMPLETE and there.get("build_id") == mine:
        problem = _damage(work.location, name, there.get("metadata"))
        if problem is None:
            return hi - lo
        log.warning("%s: making it again", problem)
    group = root.create_group(name, overwrite=True)
    order = np.asarray(root["order"][lo:hi])  # type: ignore[index]
    rows = TakenRows(work.source, order).read(0, hi - lo)
    step = min(hi - lo, chunk_rows_for(rows.shape[1], rows.dtype.itemsize))
    array = group.create_array(
        ROWS, shape=rows.shape, dtype=rows.dtype, chunks=(step, rows.shape[1]),
        compressors=codecs(compress=False), filters=None,
        fill_value=np.nan if rows.dtype.kind == "f" else 0,
        # Integers have no value that says "missing": a chunk of zeros is written like any other.
        config={"write_empty_chunks": True},
    )  # fmt: skip
    array[...] = rows
    if work.recipe.kind == "pynndescent":
        _write_graph(group, rows, work, read_frame(root, work.location.url))
    metadata = _metadata_digest(work.location, name)
    group.attrs.put({"status": COMPLETE, "build_id": mine, "metadata": metadata})
    return hi - lo


def _metadata_digest(location: Location, name: str) -> str:
    """Digest what the files of metadata inside a shard say, by their places."""
    folder = Path(location.url) / name
    files = sorted(path for path in folder.glob("*/**/zarr.json"))
    return text_digest(
        *(part for path in files for part in (str(path.relative_to(folder)), path.read_bytes()))
    )


def _damage(location: Location, name: str, metadata: Any) -> str | None:
    """Say what is wrong with a shard; None where every chunk is there and as it was written."""
    import zarr

    if _metadata_digest(location, name) != metadata:
        return f"{location.url} is damaged: metadata in {name} are not what was written"
    # A chunk of fill values, which zarr leaves out, counts as missing: that costs a shard.
    store = CheckedStore(location.url, mend="", complete=True)
    try:
        group = zarr.open_group(store, mode="r", path=name, zarr_format=3)
        for _, array in group.members(max_depth=None):
            if isinstance(array, zarr.Array):
                for lo in range(0, array.shape[0], array.chunks[0]):
                    array[lo : lo + array.chunks[0]]
    # There is no telling what zarr raises on metadata that its authors did not foresee.
    except Exception as err:  # noqa: BLE001
        return str(err).rstrip("; ")
    return None


def _write_graph(group: zarr.Group, rows: np.ndarray, work: Work, frame: Frame) -> None:
    """Build the pynndescent graph of a shard and write its arrays."""
    from croma_dask.index.descent import build_descent

    built = build_descent(
        graph_rows(rows, frame), n_neighbors=work.recipe.n_neighbors, seed=work.recipe.seed,
        n_jobs=work.n_jobs,
    )  # fmt: skip
    inside = group.create_group(DESCENT)
    for name, value in built.arrays.items():
        # The graph is read by blocks of rows, the rest whole.
        write_array(inside, name, value, 4096 if name.startswith("graph") else 1 << 20)
    inside.attrs.put({"parameters": json.dumps(built.params)})
