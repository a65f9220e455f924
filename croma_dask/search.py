"""Neighbours of every row of a cohort: which engine finds them, and the Dask graph that runs it."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from croma_dask import fingerprint, memory
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.design import Scope
from croma_dask.errors import InputWarning, MemoryLimitError, name_rows
from croma_dask.index.neighbors import Neighbors, ResidentLists, ScratchLists
from croma_dask.index.profile import Profile, check_profile, combine_profiles, profile_rows
from croma_dask.index.scratch import Scratch, private_root
from croma_dask.index.source import (
    ArraySource,
    Codes,
    NpySource,
    RowSource,
    StoreSource,
    TakenRows,
    spool,
)
from croma_dask.index.spec import ListSpec
from croma_dask.options import Options
from croma_dask.progress import Progress

__all__ = [
    "Found",
    "Layout",
    "for_client",
    "lay_out",
    "pair_graph",
    "search",
    "tasks_a_process",
    "workers_of",
]

log = logging.getLogger("croma_dask")

DIRECT_ROWS = 20_000
"""Rows up to which a scope is searched in memory without a scheduler."""

MOST_TASKS = 4_000
"""Pair tasks of a graph; with more ranges a task takes several pairs."""

LARGEST_RANGE = 1 << 17
"""A range longer than this would leave too long between checkpoints."""

_SMALL_PAIRS = 20_000_000
_SMALL_PAIRS_COMPILED = 200_000
_PROFILE_ROWS = 32 * fingerprint.BLOCK_ROWS
_ALARMING_SHARE = 0.05


@dataclass(frozen=True)
class Layout:
    """How a scope is searched within a memory.

    Attributes
    ----------
    engine
        ``small`` (numpy), ``direct`` (compiled, all rows in memory) or ``streamed`` (Dask).
    n_rows, edges, per_block, n_tasks
        Rows of the scope; edges of the ranges; ranges a task takes on each side; pair tasks.
    peak
        Bytes above the bare process at the worst moment.
    bytes_read
        Bytes of embedding read over the whole search.
    terms
        The terms of the peak.
    """

    engine: str
    n_rows: int
    edges: tuple[int, ...]
    per_block: int
    n_tasks: int
    peak: int
    bytes_read: int
    terms: dict[str, int]


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
    """

    neighbors: list[Neighbors]
    profile: Profile
    fingerprint: str


def range_cost(embedding: Embedding, spec: ListSpec) -> memory.RangeCost:
    """Bytes of a row of the search."""
    small = embedding.dtype.newbyteorder("=") in (np.dtype(np.float16), np.dtype(np.float32))
    step = embedding.data.chunk_rows if embedding.stored else 4096
    return memory.RangeCost(
        n_features=embedding.n_features,
        itemsize=4 if small else 8,
        screened=spec.screened,
        chunk=min(step, embedding.n_tiles) * embedding.n_features * _read_bytes(embedding.dtype),
    )


def _read_bytes(dtype: np.dtype[Any]) -> int:
    """Bytes a value while it is read: as stored, and once or twice as converted."""
    if dtype == np.float32 and dtype.isnative:
        return 4
    small = dtype.newbyteorder("=") in (np.dtype(np.float16), np.dtype(np.float32))
    return dtype.itemsize + (4 if small else 16)


def lay_out(
    embedding: Embedding, n_rows: int, spec: ListSpec, options: Options, *, n_tasks: int,
    fixed: int, compiled: bool | None = None, streamed: bool = False,
) -> Layout:  # fmt: skip
    """Choose the engine for a scope, and the ranges of a streamed one.

    Parameters
    ----------
    embedding, n_rows, spec
        What is searched for what.
    options
        Allowed memory.
    n_tasks
        Tasks that run side by side in one process.
    fixed
        Bytes that the process holds besides.
    compiled
        Whether the kernels are compiled already; found out when None.
    streamed
        Stream whatever the size.

    Raises
    ------
    MemoryLimitError
        The memory does not allow even the smallest ranges.
    """
    allowed = memory.allowed_bytes(options.memory)
    spec = spec.clipped(n_rows)
    cost = range_cost(embedding, spec)
    if compiled is None:
        compiled = "croma_dask.kernels.select" in sys.modules
    row_bytes = embedding.n_features * embedding.dtype.itemsize
    resident = memory.direct_bytes(cost, n_rows, n_tasks, fixed)
    if not streamed and n_rows <= DIRECT_ROWS and resident <= allowed:
        pairs = n_rows * n_rows
        small = pairs <= (_SMALL_PAIRS_COMPILED if compiled else _SMALL_PAIRS)
        return Layout(
            "small" if small else "direct", n_rows, (0, n_rows), 1, 1, resident,
            2 * n_rows * row_bytes, {"resident rows and lists": resident - fixed, "fixed": fixed},
        )  # fmt: skip
    rows = min(memory.largest_range(cost, allowed, n_tasks, fixed), LARGEST_RANGE)
    # Enough ranges that every task finds a pair of its own in each round.
    n_ranges = max(-(-n_rows // rows), min(2 * n_tasks, max(1, n_rows // 1024)))
    edges = np.linspace(0, n_rows, n_ranges + 1).astype(int)
    longest = int(np.diff(edges).max())
    per_block = 1
    while _n_pairs(-(-n_ranges // per_block)) > MOST_TASKS:
        per_block += 1
    n_blocks = -(-n_ranges // per_block)
    terms = {k: v * n_tasks for k, v in memory.task_bytes(cost, longest).items()}
    terms["manifest and results"] = fixed
    # A range is read once as the first of its pairs in each task, and once as every second.
    loads = n_ranges * n_blocks + n_ranges * n_ranges // 2
    return Layout(
        "streamed", n_rows, tuple(int(e) for e in edges), per_block, _n_pairs(n_blocks),
        memory.streamed_bytes(cost, longest, n_tasks, fixed),
        int((loads / n_ranges + 2) * n_rows * row_bytes), terms,
    )  # fmt: skip


def _n_pairs(n: int) -> int:
    return n * (n + 1) // 2


def search(
    embedding: Embedding,
    scopes: Sequence[Scope],
    spec: ListSpec,
    options: Options,
    *,
    client: Any = None,
    fixed: int = 0,
    keep: contextlib.ExitStack,
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
    largest = max(len(scope) for scope in scopes)
    layout = lay_out(embedding, largest, spec, options, n_tasks=n_tasks, fixed=fixed)
    source = _open_source(embedding, options, keep, spooled=layout.engine == "streamed",
                          for_workers=client is not None)  # fmt: skip
    profile, digest = _profile(source, embedding, options, client)
    check_profile(profile)
    if profile.n_zero:
        warnings.warn(
            f"{profile.n_zero} of {profile.n_rows} embedding rows are zero "
            f"({name_rows(profile.first_zero, total=profile.n_zero)}): a zero row is at distance 1 "
            "from every other one",
            InputWarning,
            stacklevel=4,
        )
    if len(scopes) == 1 or layout.engine == "streamed":
        found = [
            _search_scope(
                embedding, source, scope, spec, options, profile, client, fixed, keep, digest,
                n_tasks,
            )
            for scope in scopes
        ]  # fmt: skip
    else:
        found = _search_many(embedding, source, scopes, spec, options, profile, fixed)
    total = sum(len(scope) for scope in scopes)
    again = sum(f.n_second_look for f in found)
    if again > _ALARMING_SHARE * total:
        log.warning(
            "%d of %d rows needed a second, exact look because float32 cannot order their "
            "neighbours (many equal distances, or tight clusters); the run takes longer for it",
            again, total,
        )  # fmt: skip
    return Found(found, profile, digest)


def for_client(options: Options, client: Any) -> Options:
    """Take the memory of a cluster's smallest worker where none is named."""
    if client is None or options.memory is not None:
        return options
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [int(w["memory_limit"]) for w in workers if w.get("memory_limit")]
    return replace(options, memory=int(0.6 * min(limits))) if limits else options


def tasks_a_process(client: Any, options: Options) -> int:
    """Tasks that run side by side in one process."""
    if client is None:
        return options.n_threads
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return max((int(w["nthreads"]) for w in workers.values()), default=1)


def workers_of(client: Any) -> int:
    """Count the processes that work."""
    if client is None:
        return 1
    return max(1, len(client.scheduler_info(n_workers=-1)["workers"]))


def _open_source(
    embedding: Embedding, options: Options, keep: contextlib.ExitStack, *, spooled: bool,
    for_workers: bool,
) -> RowSource:  # fmt: skip
    """Rows by reference; what cannot be opened again elsewhere is written to scratch first."""
    data = embedding.data
    if embedding.stored:
        return StoreSource(data)
    lazy = hasattr(data, "dask")
    if spooled and (lazy or (for_workers and isinstance(data, np.ndarray))):
        folder = Path(options.scratch or private_root())
        folder.mkdir(parents=True, exist_ok=True)
        import tempfile

        path = keep.enter_context(tempfile.TemporaryDirectory(prefix="rows-", dir=folder))
        source: NpySource = spool(data, str(Path(path) / "rows.npy"), step=4096)
        return source
    if lazy:
        return ArraySource(np.asarray(data))
    return ArraySource(data)


def _profile(
    source: RowSource, embedding: Embedding, options: Options, client: Any
) -> tuple[Profile, str]:
    """Look at every row once; hash them on the way where their fingerprint is not known."""
    known = embedding.fingerprint
    spans = [
        (lo, min(source.n_rows, lo + _PROFILE_ROWS))
        for lo in range(0, source.n_rows, _PROFILE_ROWS)
    ]

    def look(span: tuple[int, int]) -> Profile:
        return profile_rows(source, *span, digest=not known)

    if client is not None and len(spans) > 1 and not isinstance(source, ArraySource):
        futures = client.map(look, spans, pure=False)
        parts = client.gather(futures)
    elif len(spans) > 1 and options.n_threads > 1:
        with ThreadPoolExecutor(options.n_threads) as pool:
            parts = list(pool.map(look, spans))
    else:
        parts = [look(span) for span in spans]
    profile = combine_profiles(parts)
    if not known:
        known = fingerprint.combine(
            profile.digests, (source.n_rows, source.n_features), source.dtype
        )
    return profile, known


def _rows_of(embedding: Embedding, scope: Scope) -> Any:
    """Tiles of the rows of a scope; None where they are all tiles in order."""
    tiles = embedding.tile_of_row
    if scope.rows is None:
        return tiles
    return scope.rows if tiles is None else tiles[scope.rows]


def _codes_of(scope: Scope) -> Codes:
    return Codes(scope.label, scope.confounder, scope.group)


def _search_scope(
    embedding: Embedding, source: RowSource, scope: Scope, spec: ListSpec, options: Options,
    profile: Profile, client: Any, fixed: int, keep: contextlib.ExitStack, digest: str,
    n_tasks: int,
) -> Neighbors:  # fmt: skip
    layout = lay_out(embedding, len(scope), spec, options, n_tasks=n_tasks, fixed=fixed)
    if layout.engine != "streamed":
        rows = _rows_of(embedding, scope)
        mine = source if rows is None else TakenRows(source, np.asarray(rows, np.int64))
        return _in_memory(mine, scope, spec, profile, layout.engine, options.n_threads)
    return _streamed(
        embedding, source, scope, spec, options, profile, client, layout, keep, digest, n_tasks
    )


def _in_memory(
    source: RowSource, scope: Scope, spec: ListSpec, profile: Profile, engine: str, n_threads: int
) -> Neighbors:
    if engine == "small":
        from croma_dask.index.small import search_small

        found, failing = search_small(source, _codes_of(scope), spec)
    else:
        from croma_dask.index.direct import search_resident

        found, failing = search_resident(
            source, _codes_of(scope), spec, profile.mean, n_threads=n_threads
        )
    return Neighbors(len(scope), spec.clipped(len(scope)), ResidentLists(found), failing, engine)


def _search_many(
    embedding: Embedding, source: RowSource, scopes: Sequence[Scope], spec: ListSpec,
    options: Options, profile: Profile, fixed: int,
) -> list[Neighbors]:  # fmt: skip
    """Scopes that each fit memory, side by side, in batches whose tiles fit memory together."""
    pairs = sum(len(scope) ** 2 for scope in scopes)
    compiled = "croma_dask.kernels.select" in sys.modules or pairs > _SMALL_PAIRS
    row = range_cost(embedding, spec).row
    n_threads = options.n_threads
    budget = max(memory.allowed_bytes(options.memory) // 2 - fixed, 1)

    def one(job: tuple[Scope, RowSource]) -> Neighbors:
        scope, mine = job
        small = len(scope) ** 2 <= (_SMALL_PAIRS_COMPILED if compiled else _SMALL_PAIRS)
        return _in_memory(mine, scope, spec, profile, "small" if small else "direct", 1)

    found: list[Neighbors] = []
    with (
        Progress("search", len(scopes), "subsets", options.quiet) as progress,
        ThreadPoolExecutor(n_threads) as pool,
    ):
        for batch in _batches(embedding, scopes, budget // row):
            tiles = [_rows_of(embedding, scope) for scope in batch]
            distinct, place = np.unique(np.concatenate(tiles), return_inverse=True)
            rows = ArraySource(TakenRows(source, distinct).read(0, distinct.shape[0]))
            edges = np.cumsum([0, *(len(scope) for scope in batch)])
            jobs = [
                (scope, TakenRows(rows, place[a:b].astype(np.int64)))
                for scope, a, b in zip(batch, edges[:-1], edges[1:], strict=True)
            ]
            for neighbors in pool.map(one, jobs):
                found.append(neighbors)
                progress.advance(1)
    return found


def _batches(embedding: Embedding, scopes: Sequence[Scope], most: int) -> Iterator[list[Scope]]:
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


def _streamed(
    embedding: Embedding, source: RowSource, scope: Scope, spec: ListSpec, options: Options,
    profile: Profile, client: Any, layout: Layout, keep: contextlib.ExitStack, digest: str,
    n_tasks: int,
) -> Neighbors:  # fmt: skip
    """Search a scope as a Dask graph over blocks of ranges, with its lists in scratch."""
    from croma_dask.index.streamed import Job

    spec = spec.clipped(len(scope))
    tiles = _rows_of(embedding, scope)
    scratch = _take_scratch(options, _job_key(scope, tiles, spec, layout, digest), keep)
    job = Job(source, scratch, layout.edges, layout.per_block, spec, profile.mean)
    codes = _codes_of(scope)
    for number in range(job.n_ranges):
        part = slice(job.edges[number], job.edges[number + 1])
        scratch.write_codes(number, codes.take(part), None if tiles is None else tiles[part])
    graph, last, work = pair_graph(job)
    with Progress("search", sum(work.values()), "row pairs", options.quiet) as progress:
        _run(graph, last, work, client, n_tasks, progress)
    again = sum(scratch.n_failing(number) or 0 for number in range(job.n_ranges))
    lists = ScratchLists(scratch, job.edges, spec.delivered)
    return Neighbors(len(scope), spec, lists, again, "streamed")


def pair_graph(job: Any) -> tuple[dict[str, Any], list[str], dict[str, int]]:
    """Graph of a streamed search: a task a pair of blocks, then one a range.

    Returns
    -------
    graph, last, work
        The job is one node; a task names two blocks and the tasks that must be over. `last` are
        the final keys; `work` says how many pairs of rows each task stands for.
    """
    from croma_dask.index.streamed import finish_range, meet_blocks
    from croma_dask.index.tournament import rounds

    prefix = f"croma-{Path(job.scratch.path).name[:12]}"
    graph: dict[str, Any] = {f"{prefix}-job": job}
    latest: dict[int, str] = {}
    work: dict[str, int] = {}
    sizes = [
        job.edges[job.members(b).stop] - job.edges[job.members(b).start]
        for b in range(job.n_blocks)
    ]
    for players in rounds(job.n_blocks):
        for i, j in players:
            key = f"{prefix}-pairs-{i}-{j}"
            after = sorted({latest[b] for b in (i, j) if b in latest})
            graph[key] = (meet_blocks, f"{prefix}-job", i, j, *after)
            latest[i] = latest[j] = key
            work[key] = sizes[i] * sizes[j] // (2 if i == j else 1)
    last = []
    everything = sorted(set(latest.values()))
    for number in range(job.n_ranges):
        key = f"{prefix}-finish-{number}"
        graph[key] = (finish_range, f"{prefix}-job", number, *everything)
        last.append(key)
    return graph, last, work


def _run(
    graph: dict[str, Any], last: list[str], work: dict[str, int], client: Any, n_tasks: int,
    progress: Progress,
) -> None:  # fmt: skip
    """Run the graph on threads of this process or on a cluster, telling how far it is."""
    if client is None:
        import dask.threaded
        from dask.callbacks import Callback

        def over(key: str, *_: Any) -> None:
            progress.advance(work.get(key, 0))

        posttask: Callable[..., None] = over
        with Callback(posttask=posttask):
            dask.threaded.get(graph, last, num_workers=n_tasks)
        return
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    wanted = [*work, *last]
    futures = client.get(graph, wanted, sync=False)
    try:
        for future in as_completed(futures):
            future.result()
            progress.advance(work.get(future.key, 0))
    except KilledWorker as err:
        raise MemoryLimitError(
            f"a worker died several times in a row on one task ({err}): most often its memory "
            "limit is below what a task takes. The largest terms are the rows and lists of two "
            "ranges: lower memory= (--memory) below the workers' limit so that ranges get shorter, "
            "or give the workers more; what is done is kept and a new run resumes from it"
        ) from err
    finally:
        client.cancel(futures)


def _job_key(scope: Scope, tiles: Any, spec: ListSpec, layout: Layout, digest: str) -> str:
    """Name of a run: the same input cut the same way resumes, anything else starts anew."""
    parts = [digest, scope.name, repr((spec, layout.edges, layout.per_block)), "lists-1"]
    arrays = [scope.label, scope.confounder, scope.group] + ([] if tiles is None else [tiles])
    return fingerprint.text_digest(*parts, *(np.ascontiguousarray(a).tobytes() for a in arrays))


def _take_scratch(options: Options, key: str, keep: contextlib.ExitStack) -> Scratch:
    root = Path(options.scratch or private_root())
    root.mkdir(parents=True, exist_ok=True)
    scratch = Scratch(str(root / key[:32]))
    if not scratch.open():
        # The same run goes on in another process: leave it alone and work beside it.
        import tempfile

        scratch = Scratch(tempfile.mkdtemp(prefix=key[:16], dir=root))
        scratch.open()
    elif any(Path(scratch.path).glob("range-*/lists-*.npz")):
        log.warning("resuming a run that was interrupted (%s)", scratch.path)

    def leave(exc_type: Any, *_: Any) -> None:
        # Interrupted or failed: what was found stays for the next try.
        if exc_type is None:
            scratch.remove()
        else:
            scratch.release()

    keep.push(leave)
    return scratch
