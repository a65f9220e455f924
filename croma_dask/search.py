"""Neighbours of every row of a cohort: the first pass, and which engine finds them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.approximate import Approximation, Sample, is_served, search_index
from croma_dask.build import find_built, find_index
from croma_dask.cluster import for_client, tasks_a_process, workers_of
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.design import Scope
from croma_dask.cost import choose, estimate_exact
from croma_dask.errors import SchemaError
from croma_dask.first_pass import look_over, open_source
from croma_dask.index.neighbors import Neighbors, ResidentLists
from croma_dask.index.profile import (
    Profile,
    check_profile,
    profile_rows,
    warn_zero_rows,
)
from croma_dask.index.source import ArraySource, Codes, RowSource, TakenRows
from croma_dask.index.spec import ListSpec
from croma_dask.index.spill import Spill
from croma_dask.index.stored import StoredIndex
from croma_dask.index.threads import one_blas_thread
from croma_dask.kernels.frame import Distance
from croma_dask.kernels.typing import F64, I32
from croma_dask.layout import (
    is_compiled,
    is_small,
    lay_out,
    lay_out_batches,
    range_cost,
    sketched,
)
from croma_dask.memory import INDEX_LIBRARIES, INDEX_ROW, allowed_bytes, largest_range
from croma_dask.options import Options
from croma_dask.progress import Progress
from croma_dask.resume import own_folder

__all__ = ["Found", "check_scopes", "nearest_rows", "search"]

log = logging.getLogger("croma_dask")

_ALARMING_SHARE = 0.05


@dataclass(frozen=True)
class Found:
    """Neighbours of every scope, and what the passes have learned of the embedding.

    Attributes
    ----------
    neighbors
        One a scope, in their order.
    profile
        First pass over all rows.
    fingerprint
        Content fingerprint of the embedding.
    reused
        Which lists came from an earlier search: empty, ``global``, ``typed`` or ``global,typed``.
    index, sample
        Of an approximate search: its index, and queries that were searched exactly as well.
    """

    neighbors: list[Neighbors]
    profile: Profile
    fingerprint: str
    reused: str = ""
    index: StoredIndex | None = None
    sample: Sample | None = None


@dataclass(frozen=True)
class _Run:
    """What the steps of one search share."""

    embedding: Embedding
    source: RowSource
    spec: ListSpec
    options: Options
    client: Any
    n_tasks: int
    fixed: int
    profile: Profile
    distance: Distance
    digest: str
    keep: contextlib.ExitStack

    def tiles_of(self, scope: Scope) -> Any:
        """Tiles of the rows of a scope; None where they are all tiles in order."""
        tiles = self.embedding.tile_of_row
        if scope.rows is None:
            return tiles
        return scope.rows if tiles is None else tiles[scope.rows]


def search(
    embedding: Embedding,
    scopes: Sequence[Scope],
    spec: ListSpec,
    options: Options,
    *,
    client: Any = None,
    fixed: int = 0,
    keep: contextlib.ExitStack,
    seen: Profile | None = None,
    how: Approximation | None = None,
    distance: Distance = "cosine",
) -> Found:
    """Find the neighbours of all rows of all scopes.

    Parameters
    ----------
    embedding
        Rows that the manifest refers to.
    scopes
        Rows that are searched among one another; each scope by itself.
    spec
        Lists to deliver.
    options
        Memory, threads, scratch, progress.
    client
        `distributed.Client` to run on, or None for threads of this process.
    fixed
        Bytes that the process holds besides the search.
    keep
        Closes what the result still reads from (scratch folders) when the caller is done.
    seen
        What an earlier first pass over these rows has seen, where their fingerprint is known.
    how
        Which index to search through, and how far; None for the exact search.
    distance
        ``cosine`` or ``euclidean``.

    Raises
    ------
    SchemaError
        Rows that are no finite numbers, or are all the same.
    MemoryLimitError
        The search does not fit the allowed memory.

    Warns
    -----
    InputWarning
        Zero rows.

    Notes
    -----
    Memory: as `plan` says; the embedding is never held unless it fits easily. Results do not
    depend on the engine, the ranges, the threads or the cluster.
    """
    options = for_client(options, client)
    n_tasks = tasks_a_process(client, options)
    if how is not None and how.index == "auto":
        how = _settle(embedding, scopes, spec, options, how, client, n_tasks, fixed, distance)
    if how is not None:
        check_scopes(scopes)
        if spec.same_label and spec.n_typed:
            raise ValueError("an index serves no lists of the same label: search them exactly")
    largest = max(len(scope) for scope in scopes)
    spec = spec.clipped(largest)
    n_workers = workers_of(client)
    streamed = True
    if how is not None:
        # Refused here, and not when an index has been built for nothing.
        wide = sketched(spec, embedding.n_features)
        cost = range_cost(embedding, wide, probed=True)
        held = fixed + INDEX_ROW * embedding.n_tiles + INDEX_LIBRARIES
        largest_range(cost, allowed_bytes(options.memory), n_tasks, held)
    else:
        layout = lay_out(
            embedding, largest, spec, options, n_tasks=n_tasks, fixed=fixed, n_workers=n_workers
        )
        streamed = layout.engine == "streamed"
    source = open_source(embedding, options, keep, streamed=streamed, workers=client is not None)
    if seen is not None and embedding.fingerprint:
        profile, digest = seen, embedding.fingerprint
    else:
        profile, digest = look_over(source, embedding, options, client, distance)
    check_profile(profile, distance)
    if distance == "cosine":
        warn_zero_rows(profile)
    if how is not None:
        index = find_index(
            how.index, embedding, source, digest, profile.frame(distance), options, client=client,
            n_tasks=n_tasks, keep=keep, k=spec.n_global,
        )  # fmt: skip
        neighbors, sample = search_index(
            index, embedding, scopes[0], spec, how, options, client=client, n_tasks=n_tasks,
            fixed=fixed, keep=keep,
        )  # fmt: skip
        return Found([neighbors], profile, digest, index=index, sample=sample)
    run = _Run(
        embedding, source, spec, options, client, n_tasks, fixed, profile, distance, digest, keep
    )
    if len(scopes) == 1 or streamed:
        found = [_search_scope(run, scope) for scope in scopes]
    else:
        found = _search_many(run, scopes)
    again = sum(f.n_second_look for f in found)
    n_units = sum(len(scope) for scope in scopes)
    if again > _ALARMING_SHARE * n_units:
        log.warning(
            "%d of %d rows needed a second, exact look because float32 cannot order their "
            "neighbours (many equal distances, or tight clusters); the run takes longer for it",
            again,
            n_units,
        )
    return Found(found, profile, digest)


def _settle(
    embedding: Embedding, scopes: Sequence[Scope], spec: ListSpec, options: Options,
    how: Approximation, client: Any, n_tasks: int, fixed: int, distance: Distance,
) -> Approximation | None:  # fmt: skip
    """Choose the index for ``auto``, and say which and why; None for the exact search."""
    sizes = [len(scope) for scope in scopes]
    exact = estimate_exact(
        embedding, sizes, spec, options, n_tasks=n_tasks, n_workers=workers_of(client), fixed=fixed
    )
    choice = choose(
        exact, sum(sizes), embedding.n_features, spec, served=is_served(embedding, scopes),
        built=find_built(embedding, distance=distance) is not None,
    )  # fmt: skip
    log.info("index='auto' takes %s: %s", choice.kind, choice.why)
    return None if choice.kind == "exact" else replace(how, index=choice.kind)


def check_scopes(scopes: Sequence[Scope]) -> None:
    """Refuse what an approximate index does not serve.

    Raises
    ------
    SchemaError
        Several scopes, or one of a part of the rows.
    """
    if len(scopes) > 1 or scopes[0].rows is not None:
        raise SchemaError(
            "an approximate index serves the design 'all'; under 'paired_2x2' subsets are small "
            "and searched exactly: use index='exact' (--index exact)"
        )


def _named(run: _Run) -> str:
    """Name what the lists of a run depend on beside codes and lengths."""
    return run.digest if run.distance == "cosine" else f"{run.digest} {run.distance}"


def _codes_of(scope: Scope) -> Codes:
    return Codes(scope.label, scope.confounder, scope.group)


def _search_scope(run: _Run, scope: Scope) -> Neighbors:
    layout = lay_out(
        run.embedding,
        len(scope),
        run.spec,
        run.options,
        n_tasks=run.n_tasks,
        fixed=run.fixed,
        n_workers=workers_of(run.client),
    )
    tiles = run.tiles_of(scope)
    if layout.engine == "streamed":
        from croma_dask.graph import search_streamed

        return search_streamed(
            run.source,
            _codes_of(scope),
            tiles,
            run.spec,
            layout,
            run.options,
            frame=run.profile.frame(run.distance),
            identity=(_named(run), scope.name),
            client=run.client,
            n_tasks=run.n_tasks,
            keep=run.keep,
        )
    mine = run.source if tiles is None else TakenRows(run.source, np.asarray(tiles, np.int64))
    return _in_memory(run, mine, scope, layout.engine, run.options.n_threads)


def _in_memory(
    run: _Run, source: RowSource, scope: Scope, engine: str, n_threads: int
) -> Neighbors:
    if engine == "small":
        from croma_dask.index.small import search_small

        found, failing = search_small(source, _codes_of(scope), run.spec, run.distance)
    else:
        from croma_dask.index.direct import search_resident

        found, failing = search_resident(
            source, _codes_of(scope), run.spec, run.profile.frame(run.distance),
            n_threads=n_threads,
        )  # fmt: skip
    n = len(scope)
    spec = run.spec.clipped(n)
    return Neighbors(n, spec, ResidentLists(found, spec.indexed), failing, engine)


def _search_many(run: _Run, scopes: Sequence[Scope]) -> list[Neighbors]:
    """Scopes that each fit memory, side by side, in batches whose tiles fit memory together."""
    compiled = is_compiled() or not is_small(
        [len(scope) for scope in scopes], run.spec, run.embedding.n_features, compiled=False
    )
    features, n_threads = run.embedding.n_features, run.options.n_threads
    cut = lay_out_batches(
        run.embedding, [len(scope) for scope in scopes], run.spec, run.options,
        n_threads=n_threads, fixed=run.fixed,
    )  # fmt: skip
    spill = None
    if cut.spill:
        spill = Spill(own_folder(run.options, "lists-", run.keep))

    def one(job: tuple[Scope, RowSource]) -> Neighbors:
        scope, mine = job
        engine = (
            "small" if is_small([len(scope)], run.spec, features, compiled=compiled) else "direct"
        )
        return _in_memory(run, mine, scope, engine, 1)

    found: list[Neighbors] = []
    with (
        Progress("search", len(scopes), "subsets", run.options.quiet) as progress,
        one_blas_thread(),
        ThreadPoolExecutor(n_threads) as pool,
    ):
        for batch in _batches(scopes, cut.rows):
            tiles = [run.tiles_of(scope) for scope in batch]
            distinct, place = np.unique(np.concatenate(tiles), return_inverse=True)
            rows = ArraySource(TakenRows(run.source, distinct).read(0, distinct.shape[0]))
            edges = np.cumsum([0, *(len(scope) for scope in batch)])
            jobs = [
                (scope, TakenRows(rows, place[a:b].astype(np.int64)))
                for scope, a, b in zip(batch, edges[:-1], edges[1:], strict=True)
            ]
            for neighbors in pool.map(one, jobs):
                if spill is not None and isinstance(neighbors.lists, ResidentLists):
                    lists = spill.put(neighbors.lists.found, neighbors.spec)
                    neighbors = replace(neighbors, lists=lists)
                found.append(neighbors)
                progress.advance(1)
    return found


def _batches(scopes: Sequence[Scope], most: int) -> Iterator[list[Scope]]:
    """Consecutive scopes of at most `most` rows together (a larger one alone)."""
    batch: list[Scope] = []
    rows = 0
    for scope in scopes:
        if batch and rows + len(scope) > most:
            yield batch
            batch, rows = [], 0
        batch.append(scope)
        rows += len(scope)
    if batch:
        yield batch


def nearest_rows(
    x: NDArray[Any], k: int, *, distance: Distance = "euclidean", n_threads: int = 1
) -> tuple[I32, F64]:
    """Find the nearest other rows of each row of an array in memory, exactly.

    Parameters
    ----------
    x
        (n, D) finite rows.
    k
        How many to find; at most n - 1.
    distance
        ``cosine`` or ``euclidean``.
    n_threads
        Threads that share the work.

    Returns
    -------
    index, distance
        (n, k) int32 and float64 by (distance, row).
    """
    n = x.shape[0]
    spec = ListSpec(k, 0).clipped(n)
    nothing = np.zeros(n, np.int32)
    codes = Codes(nothing, nothing, np.arange(n, dtype=np.int32))
    source = ArraySource(x)
    if is_small([n], spec, x.shape[1], compiled=is_compiled()):
        from croma_dask.index.small import search_small

        found, _ = search_small(source, codes, spec, distance)
    else:
        from croma_dask.index.direct import search_resident

        seen = profile_rows(source, 0, n, digest=False, distance=distance)
        found, _ = search_resident(source, codes, spec, seen.frame(distance), n_threads=n_threads)
    return found.index, found.distance
