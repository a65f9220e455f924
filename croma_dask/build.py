"""Building an index: clusters from a sample, every row assigned, shards written one by one."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import memory as mem
from croma_dask.cluster import active_client, for_client, tasks_a_process
from croma_dask.cohort.align import Embedding, check_embedding, resolve
from croma_dask.cohort.layout import chunk_rows_for
from croma_dask.cohort.location import Location
from croma_dask.cohort.open import cohort_of
from croma_dask.cohort.store import StoredCohort
from croma_dask.errors import SchemaError, StoreError
from croma_dask.fingerprint import text_digest
from croma_dask.first_pass import look_over, open_source
from croma_dask.index.build_place import build_place
from croma_dask.index.descent import build_bytes, held_bytes
from croma_dask.index.making import (
    Work,
    assign_span,
    finish,
    prepare,
    write_array,
    write_shard,
)
from croma_dask.index.partition import Clusters, cluster_edges, count_clusters, train
from croma_dask.index.profile import check_profile
from croma_dask.index.recipe import KINDS, Recipe
from croma_dask.index.source import RowSource
from croma_dask.index.spec import ListSpec
from croma_dask.index.stored import (
    Partition,
    StoredIndex,
    beside,
    check_frame,
    read_partition,
    write_partition,
)
from croma_dask.kernels.frame import Distance, Frame
from croma_dask.kernels.screen import native_dtype
from croma_dask.kernels.typing import I32, I64
from croma_dask.layout import sketched
from croma_dask.options import Options, merged
from croma_dask.progress import Progress
from croma_dask.resume import own_folder
from croma_dask.tasks import run_graph

if TYPE_CHECKING:
    import zarr

__all__ = ["build", "build_index", "find_built", "find_index", "index_at", "open_index"]

log = logging.getLogger("croma_dask")

_USUAL_K, _USUAL_M = 51, 5
"""Lists for which shards are cut; longer ones may want shorter shards."""

_USUAL_N = 60
"""Neighbours of a row in a graph, where nobody asks for more."""

_LARGEST_SHARD = 1 << 17

_SPAN = 1 << 17
"""Rows that one task assigns to clusters."""


def build_index(
    cohort: Any,
    kind: str = "pynndescent",
    *,
    path: str | os.PathLike[str] | None = None,
    cluster_rows: int | None = None,
    shard_rows: int | None = None,
    n_neighbors: int = _USUAL_N,
    seed: int = 0,
    distance: Distance = "cosine",
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    scratch: str | None = None,
    resume: bool | None = None,
    quiet: bool | None = None,
    client: Any = None,
) -> StoredIndex:
    """Build an approximate index over the rows of a cohort, and keep it as plain Zarr.

    Rows are clustered by k-means on their centred unit vectors (on centred rows, for Euclidean
    distances) and stored in the order of the clusters, in shards that fit a process. The index
    knows nothing of labels and confounders: one serves every column. It belongs to these very rows
    (by fingerprint) and to this version.

    Parameters
    ----------
    cohort
        Path or URL of a store, a cohort as :func:`croma_dask.open_cohort` returns it, or an array
        (N, D) with a `path`.
    kind
        ``ivf`` (an inverted file: rows look into the nearest clusters), or ``pynndescent`` (a
        nearest-neighbour graph a shard for the neighbours of any type, the inverted file for the
        typed ones).
    path
        Path or URL where it goes; by default beside the store, ``cohort.zarr`` ->
        ``cohort.KIND.zarr``, or ``cohort.euclidean.KIND.zarr``.
    cluster_rows
        Rows of a cluster on average; by default 256, more beyond two million rows.
    shard_rows
        Rows of a shard at most; by default what fits the memory.
    n_neighbors
        Neighbours of a row in the graph of ``pynndescent``.
    seed
        Of k-means and of the graphs.
    distance
        ``cosine``, for :func:`croma_dask.score`; ``euclidean``, for
        :func:`croma_dask.embedding_benchmark`.
    overwrite
        Replace an index that is there and differs.
    storage_options
        Options of the fsspec file systems of `path` and `cohort`, where they are URLs.
    memory, threads, scratch, resume, quiet, client
        As in :func:`croma_dask.score`. With ``resume=False`` shards of an interrupted build are
        made again.

    Returns
    -------
    StoredIndex
        Give it to ``score(..., index=...)``; the same call returns the one that is there.

    Raises
    ------
    SchemaError
        An argument is out of range, or rows hold NaN or inf.
    StoreError
        Something else lies at the place, or another index (without `overwrite`).

    Notes
    -----
    Disk: a copy of the rows, and for ``pynndescent`` some 8 bytes a neighbour. An index at a URL is
    built in `scratch`, which all workers have to see, and uploaded when it is whole; a build that
    was interrupted, or whose upload has failed, goes on from there. Memory: a shard a task, as the
    cost of the search; k-means takes a sample of an eighth of the allowed memory at most. The rows
    are read once for each shard.
    """
    recipe = Recipe(kind, cluster_rows, shard_rows, n_neighbors, seed, distance)
    options = merged(memory=memory, threads=threads, scratch=scratch, resume=resume, quiet=quiet)
    client = client if client is not None else active_client()
    options = for_client(options, client)
    embedding = _embedding_of(cohort, storage_options)
    if not embedding.n_tiles:
        raise SchemaError("the embedding has no rows")
    place = _place(embedding, recipe, path, storage_options)
    with contextlib.ExitStack() as keep:
        source = open_source(embedding, options, keep, streamed=True, workers=client is not None)
        profile, digest = look_over(source, embedding, options, client, distance)
        check_profile(profile, distance)
        return build(
            source, digest, profile.frame(distance), place, recipe,
            allowed=mem.allowed_bytes(options.memory), n_tasks=tasks_a_process(client, options),
            client=client, scratch=options.scratch, overwrite=overwrite, resume=options.resume,
            quiet=options.quiet,
        )  # fmt: skip


def open_index(
    path: str | os.PathLike[str] | Location, *, storage_options: Mapping[str, Any] | None = None
) -> StoredIndex:
    """Open an index, checking that it is whole.

    Parameters
    ----------
    path
        Path or URL.
    storage_options
        Options of the fsspec file system.

    Raises
    ------
    StoreError
        There is none, or it is unfinished, of another version, or damaged.
    """
    index = StoredIndex(Location.of(path, storage_options))
    _ = index.partition
    return index


def index_at(index: Any, storage_options: Mapping[str, Any] | None) -> Any:
    """Open an index that is given by its URL, lazily; pass everything else through."""
    if isinstance(index, str | os.PathLike):
        place = Location.of(index, storage_options)
        if not place.is_local:
            return StoredIndex(place)
    return index


def find_index(
    wanted: Any, embedding: Embedding, source: RowSource, fingerprint: str, frame: Frame,
    options: Options, *, client: Any, n_tasks: int, keep: contextlib.ExitStack, k: int = 0,
) -> StoredIndex:  # fmt: skip
    """Open the index that a search shall use; build it where there is none yet.

    Parameters
    ----------
    wanted
        A kind, the path of an index, or an index.
    embedding, source, fingerprint, frame
        The rows: how they lie, by reference, and what is known of them; which distance.
    options, client, n_tasks
        As in `build`.
    keep
        Deletes an index that can lie nowhere (that of an array) when the caller is done.
    k
        Neighbours of a row that are asked for: an index that is built now has as many.

    Raises
    ------
    StoreError
        The index is of other rows or of another version, unfinished or damaged.
    """
    if isinstance(wanted, StoredIndex) or str(wanted) not in KINDS:
        # Opened anew: a handle may be older than what lies there now.
        place = wanted.location if isinstance(wanted, StoredIndex) else Location.of(wanted)
        index = StoredIndex(place)
        index.matches(fingerprint, frame.distance)
        return index
    recipe = Recipe(str(wanted), n_neighbors=max(_USUAL_N, k + 9), distance=frame.distance)
    if embedding.stored:
        place = _beside(embedding, recipe.kind, recipe.distance)
        index = StoredIndex(place)
        if index.is_finished():
            # However it was built: whoever did may have had reasons.
            index.matches(fingerprint, frame.distance)
            return index
        log.warning("building an index of the kind %r in %s", recipe.kind, place.url)
    else:
        place = Location.of(os.path.join(own_folder(options, "index-", keep), "index.zarr"))
    return build(
        source, fingerprint, frame, place, recipe, allowed=mem.allowed_bytes(options.memory),
        n_tasks=n_tasks, client=client, scratch=options.scratch, resume=options.resume,
        quiet=options.quiet,
    )  # fmt: skip


def find_built(
    embedding: Embedding, kind: str = "ivf", distance: Distance = "cosine"
) -> StoredIndex | None:
    """Find the index of a kind beside the store; None without one, or where it is stale."""
    if not embedding.stored:
        return None
    index = StoredIndex(_beside(embedding, kind, distance))
    if not index.is_finished():
        return None
    try:
        index.matches(embedding.fingerprint, distance)
    except StoreError:
        return None
    return index


def _embedding_of(cohort: Any, storage_options: Mapping[str, Any] | None) -> Embedding:
    cohort = cohort_of(cohort, storage_options)
    if isinstance(cohort, StoredCohort) or hasattr(cohort, "data_vars"):
        return resolve(cohort, None, ())[0]
    return Embedding(check_embedding(cohort), None)


def _place(
    embedding: Embedding, recipe: Recipe, path: Any, storage_options: Mapping[str, Any] | None
) -> Location:
    if path is not None:
        return Location.of(path, storage_options)
    if not embedding.stored:
        raise SchemaError("an array has no place beside which its index could lie: name a path=")
    return _beside(embedding, recipe.kind, recipe.distance)


def _beside(embedding: Embedding, kind: str, distance: Distance) -> Location:
    """Place of an index beside its store, opened by whatever opens that."""
    store: Location = embedding.data.location
    return store.renamed(beside(store.url, kind, distance))


def build(
    source: RowSource, fingerprint: str, frame: Frame, location: Location, recipe: Recipe, *,
    allowed: int, n_tasks: int, client: Any, scratch: str | None = None,
    overwrite: bool = False, resume: bool = True, quiet: bool = True,
) -> StoredIndex:  # fmt: skip
    """Build an index, or go on with one that was started.

    Parameters
    ----------
    source
        Rows by reference.
    fingerprint, frame
        Of all rows: fingerprint, distance, and origin of the screening.
    location
        Where it goes.
    recipe
        What to build.
    allowed, n_tasks, client
        Bytes a process may take, tasks at once in it, and the cluster (None: threads).
    scratch
        Folder in which an index for a URL is built before it is uploaded.
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
    with build_place(
        location, key, source, recipe, scratch=scratch, overwrite=overwrite, resume=resume
    ) as place:
        if place is not None:
            # For a URL it is a folder of this very build, of which all may be used.
            again = overwrite and place == location
            root = prepare(place, key, source, overwrite=again, resume=resume)
            if root is not None:
                partition = _partition(
                    root, source, frame, recipe, place, allowed, n_tasks, client, quiet
                )
                _write_shards(Work(source, place, recipe, n_tasks), partition, client, quiet)
                finish(root, place)
    return open_index(location)


def _write_shards(work: Work, partition: Partition, client: Any, quiet: bool) -> None:
    """Write all shards that are not there yet."""
    token = uuid.uuid4().hex
    shared = f"croma-work-{token}"
    graph: dict[str, Any] = {shared: work}
    last = [f"croma-shard-{token}-{number}" for number in range(partition.n_shards)]
    graph |= {task: (write_shard, shared, number) for number, task in enumerate(last)}
    with Progress("index", work.source.n_rows, "rows", quiet) as progress:
        run_graph(
            graph, last, client=client, n_threads=work.n_jobs, on_done=_advance(progress),
        )  # fmt: skip


def _advance(progress: Progress) -> Callable[[str, Any], None]:
    return lambda key, rows: progress.advance(int(rows))


def _partition(
    root: zarr.Group, source: RowSource, frame: Frame, recipe: Recipe, location: Location,
    allowed: int, n_tasks: int, client: Any, quiet: bool,
) -> Partition:  # fmt: skip
    """Cluster the rows; take the partition up where an earlier run has written it."""
    if root.attrs.get("partition"):
        with contextlib.suppress(StoreError):
            check_frame(dict(root.attrs), location.url)
            found = read_partition(root, location.url)
            if not found.check(source.n_rows, source.n_features):
                return found
        # Damaged: shards may have been cut along another one than that which comes now.
        root.attrs.update({"partition": False})
        for name in list(root.group_keys()):
            del root[name]
    n_clusters = count_clusters(source.n_rows, recipe.cluster_rows)
    centres, basis = train(
        source, n_clusters, frame, seed=recipe.seed, most_bytes=allowed // 8, n_threads=n_tasks
    )
    # By way of the disk: the graph carries no arrays.
    write_array(root, "trained", centres)
    write_array(root, "basis", basis)
    write_array(root, "mean", frame.mean)
    root.attrs.update({"scale": frame.scale})
    cluster = _assign_all(Work(source, location, recipe, n_tasks), n_tasks, client, quiet)
    clusters = cluster_edges(cluster, centres)
    del root["trained"]
    rows = recipe.shard_rows or _shard_rows(source, recipe, allowed, n_tasks)
    partition = Partition(
        clusters.order,
        clusters.edges,
        clusters.centres,
        frame.mean,
        _shard_edges(clusters, rows),
        basis,
    )
    write_partition(root, partition)
    # Shards are of this partition, and of no other with the same parameters.
    content = (getattr(partition, name).tobytes() for name in partition.__dataclass_fields__)
    build_id = text_digest(*(str(v) for v in recipe.key("").values()), *content)
    root.attrs.update({"partition": True, "build_id": build_id})
    return partition


def _assign_all(work: Work, n_tasks: int, client: Any, quiet: bool) -> I32:
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


def _shard_rows(source: RowSource, recipe: Recipe, allowed: int, n_tasks: int) -> int:
    """Rows of a shard that can be built, and searched two at a time with lists as they usually are.

    Raises
    ------
    MemoryLimitError
        Not even a few hundred fit.
    """
    n, d = source.n_rows, source.n_features
    itemsize = native_dtype(np.dtype(source.dtype)).itemsize
    cost = mem.RangeCost(
        d, itemsize, sketched(ListSpec(_USUAL_K, _USUAL_M), d).screened,
        chunk_rows_for(d, itemsize) * d * itemsize, probed=True,
    )  # fmt: skip
    fixed = mem.manifest_bytes(n, n_scores=4) + mem.INDEX_ROW * n + mem.INDEX_LIBRARIES
    rows = min(mem.largest_range(cost, allowed, n_tasks, fixed), _LARGEST_SHARD)
    if recipe.kind == "pynndescent":
        room = allowed - mem.LIBRARIES - fixed
        while rows > mem.SMALLEST_RANGE and _graph_bytes(rows, d, recipe, cost, n_tasks) > room:
            rows = rows * 9 // 10
    return rows


def _graph_bytes(rows: int, d: int, recipe: Recipe, cost: mem.RangeCost, n_tasks: int) -> int:
    """Bytes of the worst moment of a shard with a graph: built, or held while it is searched."""
    built = build_bytes(rows, d, recipe.n_neighbors) + 3 * n_tasks * rows * d * 4
    searched = n_tasks * mem.task_total(cost, rows) + held_bytes(rows, d, recipe.n_neighbors)
    return max(built, searched)


def _shard_edges(clusters: Clusters, rows: int) -> I64:
    """Cut the clusters into shards of at most so many rows (a larger cluster alone)."""
    edges = [0]
    for start, stop in zip(clusters.edges[:-1], clusters.edges[1:], strict=True):
        if stop - edges[-1] > rows and start > edges[-1]:
            edges.append(int(start))
    return np.array([*edges, int(clusters.edges[-1])], np.int64)
