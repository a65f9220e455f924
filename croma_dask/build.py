"""Building an index: clusters from a sample, every row assigned, shards written one by one."""

from __future__ import annotations

import json
import logging
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import __version__, memory
from croma_dask.cohort.layout import chunk_rows_for
from croma_dask.cohort.location import Location
from croma_dask.errors import SchemaError, StoreError
from croma_dask.index.partition import Clusters, assign, cluster_edges, count_clusters, train
from croma_dask.index.source import RowSource, TakenRows
from croma_dask.index.stored import (
    COMPLETE,
    FORMAT,
    FORMAT_VERSION,
    ROWS,
    WRITING,
    Partition,
    StoredIndex,
    read_partition,
    shard_name,
    write_partition,
)
from croma_dask.index.threads import one_blas_thread
from croma_dask.kernels.typing import F64, I32, I64
from croma_dask.progress import Progress
from croma_dask.tasks import run_graph

if TYPE_CHECKING:
    import zarr

__all__ = ["KINDS", "Recipe", "build"]

log = logging.getLogger("croma_dask")

KINDS = ("ivf", "pynndescent")

_SPAN = 1 << 17
"""Rows that one task assigns to clusters."""


@dataclass(frozen=True)
class Recipe:
    """With what an index is built.

    Attributes
    ----------
    kind
        ``ivf`` or ``pynndescent``.
    cluster_rows, shard_rows
        Rows of a cluster on average, and of a shard at most; None for what suits size and memory.
    n_neighbors
        Neighbours a row in the graph of a pynndescent index.
    seed
        Of everything random.
    """

    kind: str
    cluster_rows: int | None = None
    shard_rows: int | None = None
    n_neighbors: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values."""
        if self.kind not in KINDS:
            raise SchemaError(
                f"there is no index of the kind {self.kind!r}; there are {', '.join(KINDS)}"
            )
        for name in ("cluster_rows", "shard_rows", "n_neighbors"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SchemaError(f"{name} must be at least 1, found {value}")

    def key(self, fingerprint: str) -> dict[str, Any]:
        """Return what tells this index from another one."""
        return {
            "kind": self.kind,
            "embedding_fingerprint": fingerprint,
            "croma_dask_version": __version__,
            "library": self.library,
            "parameters": json.dumps(self.parameters, sort_keys=True),
        }

    @property
    def parameters(self) -> dict[str, Any]:
        """What was asked for."""
        found: dict[str, Any] = {"cluster_rows": self.cluster_rows, "seed": self.seed}
        if self.kind == "pynndescent":
            found |= {"n_neighbors": self.n_neighbors, "shard_rows": self.shard_rows}
        return found

    @property
    def library(self) -> str:
        """Library whose arrays the shards hold, with its version; empty where there is none."""
        if self.kind != "pynndescent":
            return ""
        from croma_dask.index.descent import library_version

        return f"pynndescent {library_version()}"


def build(
    source: RowSource, fingerprint: str, mean: F64, location: Location, recipe: Recipe, *,
    allowed: int, n_tasks: int, client: Any, overwrite: bool, resume: bool, quiet: bool,
) -> StoredIndex:  # fmt: skip
    """Build an index, or go on with one that was started.

    Parameters
    ----------
    source
        Rows by reference.
    fingerprint, mean
        Of all rows: fingerprint, and (D,) mean of the unit vectors.
    location
        Where it goes.
    recipe
        What to build.
    allowed, n_tasks, client
        Bytes a process may take, tasks at once in it, and the cluster (None: threads).
    overwrite, resume
        Whether a finished index that differs is replaced, and whether one that was started is
        gone on with.
    quiet
        No progress.

    Raises
    ------
    StoreError
        Something else lies at the place.
    """
    key = recipe.key(fingerprint)
    root = _prepare(location, key, source, overwrite=overwrite, resume=resume)
    if root is None:
        return StoredIndex(location)
    partition = _partition(root, source, mean, recipe, location, allowed, n_tasks, client, quiet)
    token = uuid.uuid4().hex
    shared = f"croma-work-{token}"
    graph: dict[str, Any] = {shared: _Work(source, location, recipe)}
    last = [f"croma-shard-{token}-{number}" for number in range(partition.n_shards)]
    graph |= {task: (write_shard, shared, number) for number, task in enumerate(last)}
    with Progress("index", source.n_rows, "rows", quiet) as progress:
        run_graph(
            graph, last, client=client, n_threads=n_tasks, on_done=_advance(progress),
        )  # fmt: skip
    _finish(root, location)
    return StoredIndex(location)


def _advance(progress: Progress) -> Callable[[str, Any], None]:
    return lambda key, rows: progress.advance(int(rows))


def _prepare(
    location: Location, key: dict[str, Any], source: RowSource, *, overwrite: bool, resume: bool
) -> zarr.Group | None:
    """Root of the index to write; None where the very one is there already."""
    import zarr

    if location.is_file():
        raise StoreError(f"{location.url} is a file; name another place for the index")
    if location.names():
        raw = location.read_bytes("zarr.json")
        attrs = json.loads(raw).get("attributes", {}) if raw else {}
        if attrs.get("format") != FORMAT:
            raise StoreError(
                f"{location.url} exists and is no index, so it is left alone; name another place"
            )
        same = all(attrs.get(name) == value for name, value in key.items())
        if same and attrs.get("format_version") == FORMAT_VERSION:
            if attrs.get("status") == COMPLETE and not overwrite:
                return None
            if attrs.get("status") == WRITING and resume and not overwrite:
                log.warning("going on with %s, which was started and not finished", location.url)
                return zarr.open_group(location.zarr_store(read_only=False), mode="r+")
        elif attrs.get("status") == COMPLETE and not overwrite:
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
    root = zarr.open_group(location.zarr_store(read_only=False), mode="w", zarr_format=3)
    root.attrs.put(
        {
            "format": FORMAT, "format_version": FORMAT_VERSION, "status": WRITING, **key,
            "n_rows": source.n_rows, "n_features": source.n_features,
            "dtype": str(np.dtype(source.dtype).newbyteorder("=")),
        }
    )  # fmt: skip
    return root


def _finish(root: zarr.Group, location: Location) -> None:
    """Mark the index as whole, last of all."""
    import zarr

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        zarr.consolidate_metadata(root.store)
    found = zarr.open_group(location.zarr_store(read_only=False), mode="r+", use_consolidated=True)
    found.attrs.put({**dict(root.attrs), "status": COMPLETE})


def _partition(
    root: zarr.Group, source: RowSource, mean: F64, recipe: Recipe, location: Location,
    allowed: int, n_tasks: int, client: Any, quiet: bool,
) -> Partition:  # fmt: skip
    """Cluster the rows; take the partition up where an earlier run has written it."""
    if root.attrs.get("partition"):
        found = read_partition(root, location.url)
        if not found.check(source.n_rows, source.n_features):
            return found
    n_clusters = count_clusters(source.n_rows, recipe.cluster_rows)
    centres = train(
        source, n_clusters, mean, seed=recipe.seed, most_bytes=allowed // 8, n_threads=n_tasks
    )
    # By way of the disk: the graph carries no arrays.
    _write_array(root, "trained", centres)
    _write_array(root, "mean", mean)
    cluster = _assign_all(_Work(source, location, recipe), n_tasks, client, quiet)
    clusters = cluster_edges(cluster, centres)
    del root["trained"]
    rows = recipe.shard_rows or _shard_rows(source, recipe, allowed, n_tasks)
    partition = Partition(
        clusters.order, clusters.edges, clusters.centres, mean, _shard_edges(clusters, rows)
    )
    write_partition(root, partition)
    root.attrs.update({"partition": True})
    return partition


def _assign_all(work: _Work, n_tasks: int, client: Any, quiet: bool) -> I32:
    source = work.source
    token = uuid.uuid4().hex
    spans = [(lo, min(source.n_rows, lo + _SPAN)) for lo in range(0, source.n_rows, _SPAN)]
    shared = f"croma-work-{token}"
    graph: dict[str, Any] = {shared: work}
    last = [f"croma-assign-{token}-{number}" for number in range(len(spans))]
    graph |= {task: (assign_span, shared, *span) for task, span in zip(last, spans, strict=True)}
    with Progress("clusters", source.n_rows, "rows", quiet) as progress:
        parts = run_graph(
            graph, last, client=client, n_threads=n_tasks,
            on_done=lambda key, found: progress.advance(len(found)),
        )  # fmt: skip
    return np.concatenate(parts)


def assign_span(work: _Work, lo: int, hi: int) -> I32:
    """Nearest centre of rows lo..hi."""
    root = work.open()
    mean, centres = np.asarray(root["mean"][...]), np.asarray(root["trained"][...])  # type: ignore[index]
    with one_blas_thread():
        return assign(work.source, lo, hi, mean, centres)


def _shard_rows(source: RowSource, recipe: Recipe, allowed: int, n_tasks: int) -> int:
    """Rows of a shard that a process can hold with all that its building takes."""
    row = source.n_features * (np.dtype(source.dtype).itemsize + 8) + 64
    if recipe.kind == "pynndescent":
        # Searching holds two shards with their lists, and the graph.
        row = 2 * row + 4000 + 16 * recipe.n_neighbors
    room = max(allowed - memory.LIBRARIES, allowed // 4) // max(1, n_tasks)
    return int(np.clip(room // row, 4096, 1 << 17))


def _shard_edges(clusters: Clusters, rows: int) -> I64:
    """Cut the clusters into shards of at most so many rows (a larger cluster alone)."""
    edges = [0]
    for start, stop in zip(clusters.edges[:-1], clusters.edges[1:], strict=True):
        if stop - edges[-1] > rows and start > edges[-1]:
            edges.append(int(start))
    return np.array([*edges, int(clusters.edges[-1])], np.int64)


@dataclass(frozen=True)
class _Work:
    """What the tasks of a build share: places, no arrays."""

    source: RowSource
    location: Location
    recipe: Recipe

    def open(self) -> zarr.Group:
        """Open the index that is being built."""
        import zarr

        return zarr.open_group(self.location.zarr_store(read_only=False), mode="r+")


def _write_array(group: zarr.Group, name: str, value: np.ndarray) -> None:
    """Write a small array whole."""
    array = group.create_array(
        name, shape=value.shape, dtype=value.dtype, chunks=value.shape, compressors=None,
        overwrite=True,
    )  # fmt: skip
    array[...] = value


def write_shard(work: _Work, number: int) -> int:
    """Write the rows of a shard and what its kind of search needs; return how many rows.

    A shard that is there whole is left as it is.
    """
    root = work.open()
    edges = np.asarray(root["shard_edges"][...])  # type: ignore[index]
    lo, hi = int(edges[number]), int(edges[number + 1])
    name = shard_name(number)
    if name in root and root[name].attrs.get("status") == COMPLETE:
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
    group.attrs.put({"status": COMPLETE})
    return hi - lo
