"""Tasks that build an index, and the folder that they fill."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.cohort.layout import chunk_rows_for
from croma_dask.cohort.location import Location
from croma_dask.errors import StoreError
from croma_dask.index.graphs import graph_rows
from croma_dask.index.partition import assign
from croma_dask.index.recipe import Recipe
from croma_dask.index.scratch import Scratch
from croma_dask.index.source import RowSource, TakenRows
from croma_dask.index.stored import (
    COMPLETE,
    DESCENT,
    FORMAT,
    FORMAT_VERSION,
    ROWS,
    WRITING,
    read_attrs,
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


@contextlib.contextmanager
def building(location: Location) -> Iterator[None]:
    """Keep others from building at the same place meanwhile.

    The lock is the kernel's, on a file beside the index, and goes with the process. At a URL there
    is none: let one process build there.

    Raises
    ------
    StoreError
        Another process is at it.
    """
    if not location.is_local:
        yield
        return
    target = Path(location.url)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.with_name(f".{target.name}.building")
    lock = Scratch(str(folder)).lock()
    if lock is None:
        raise StoreError(
            f"{location.url} is being built by another process; wait for it, or name another place"
        )
    with lock:
        try:
            yield
        finally:
            # While it is held: deleted afterwards it could be somebody else's.
            shutil.rmtree(folder, ignore_errors=True)


def prepare(
    location: Location, key: dict[str, Any], source: RowSource, *, overwrite: bool, resume: bool
) -> zarr.Group | None:
    """Root of the index to write; None where the very one is there already."""
    import zarr

    if location.is_file():
        raise StoreError(f"{location.url} is a file; name another place for the index")
    if location.names():
        attrs = read_attrs(location)
        if attrs.get("format") != FORMAT:
            raise StoreError(
                f"{location.url} exists and is no index, so it is left alone; name another place"
            )
        # One that is older than the choice of a distance is of cosine ones.
        attrs = {"distance": "cosine", **attrs}
        same = all(attrs.get(name) == value for name, value in key.items())
        if same and attrs.get("format_version") == FORMAT_VERSION:
            if attrs.get("status") == COMPLETE and not overwrite:
                return None
            if attrs.get("status") == WRITING and resume and not overwrite:
                log.warning("going on with %s, which was started and not finished", location.url)
                return zarr.open_group(location.zarr_store(read_only=False), mode="r+")
        elif not overwrite:
            differ = [name for name, value in key.items() if attrs.get(name) != value]
            raise StoreError(
                f"{location.url} is another index ({', '.join(differ)} differ"
                f"{'s' * (len(differ) == 1)}: {attrs.get(differ[0])!r} there, {key[differ[0]]!r} "
                "asked for); pass overwrite=True (--overwrite) to replace it"
                if differ
                else f"{location.url} is an index of another layout version; pass overwrite=True "
                "(--overwrite) to replace it"
            )
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


def finish(root: zarr.Group, location: Location) -> None:
    """Mark the index as whole, last of all."""
    import zarr

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        zarr.consolidate_metadata(root.store)
    found = zarr.open_group(location.zarr_store(read_only=False), mode="r+", use_consolidated=True)
    found.attrs.put({**dict(root.attrs), "status": COMPLETE})


def write_array(group: zarr.Group, name: str, value: np.ndarray, rows: int = 1 << 20) -> None:
    """Write an array in chunks of so many rows."""
    chunks = tuple(max(1, size) for size in (min(rows, value.shape[0]), *value.shape[1:]))
    array = group.create_array(
        name, shape=value.shape, dtype=value.dtype, chunks=chunks, compressors=None,
        overwrite=True, fill_value=np.nan if value.dtype.kind == "f" else -1,
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

    A shard that is there whole is left as it is.
    """
    root = work.open()
    edges = np.asarray(root["shard_edges"][...])  # type: ignore[index]
    lo, hi = int(edges[number]), int(edges[number + 1])
    name = shard_name(number)
    mine = str(root.attrs["build_id"])
    there = dict(root[name].attrs) if name in root else {}
    if there.get("status") == COMPLETE and there.get("build_id") == mine:
        return hi - lo
    group = root.create_group(name, overwrite=True)
    order = np.asarray(root["order"][lo:hi])  # type: ignore[index]
    rows = TakenRows(work.source, order).read(0, hi - lo)
    step = min(hi - lo, chunk_rows_for(rows.shape[1], rows.dtype.itemsize))
    array = group.create_array(
        ROWS, shape=rows.shape, dtype=rows.dtype, chunks=(step, rows.shape[1]), compressors=None,
        filters=None, fill_value=np.nan if rows.dtype.kind == "f" else 0,
    )  # fmt: skip
    array[...] = rows
    if work.recipe.kind == "pynndescent":
        _write_graph(group, rows, work, read_frame(root, work.location.url))
    group.attrs.put({"status": COMPLETE, "build_id": mine})
    return hi - lo


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
