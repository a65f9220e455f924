"""How a search is cut up within a memory: the engine, the ranges of rows, the tasks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from croma_dask import memory
from croma_dask.cohort.align import Embedding
from croma_dask.errors import MemoryLimitError
from croma_dask.index.descent import held_bytes
from croma_dask.index.sketch import SHORTEST
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.screen import native_dtype
from croma_dask.kernels.typing import I64
from croma_dask.options import Options

__all__ = [
    "BatchLayout",
    "Layout",
    "is_compiled",
    "is_small",
    "lay_out",
    "lay_out_batches",
    "lay_out_probed",
    "sketched",
    "range_cost",
]

DIRECT_ROWS = 20_000
"""Rows up to which a scope is searched in memory without a scheduler."""

MOST_TASKS = 4_000
"""Pair tasks of a graph; with more ranges a task takes several pairs."""

_MOST_RANGES = 88
"""Ranges that this many tasks can pair one by one: more would not run more at once."""

LARGEST_RANGE = 1 << 17
"""A range longer than this would leave too long between checkpoints."""

SMALL_PAIRS = 20_000_000
SMALL_PAIRS_COMPILED = 200_000
"""Pairs of rows up to which numpy is faster than compiled kernels that have to be compiled first,
and than those that already are."""


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
    scratch
        Bytes that the lists take in the scratch folder.
    terms
        The terms of the peak.
    most_rows
        Rows of the longest range that the memory allows; 0 where that is not asked.
    """

    engine: str
    n_rows: int
    edges: tuple[int, ...]
    per_block: int
    n_tasks: int
    peak: int
    bytes_read: int
    scratch: int
    terms: dict[str, int]
    most_rows: int = 0


def range_cost(embedding: Embedding, spec: ListSpec, *, probed: bool = False) -> memory.RangeCost:
    """Bytes of a row of the search."""
    step = embedding.data.chunk_rows if embedding.stored else 4096
    return memory.RangeCost(
        n_features=embedding.n_features,
        itemsize=native_dtype(embedding.dtype).itemsize,
        screened=spec.screened,
        chunk=min(step, embedding.n_tiles) * embedding.n_features * _read_bytes(embedding.dtype),
        probed=probed,
    )


def _read_bytes(dtype: np.dtype[Any]) -> int:
    """Bytes a value while it is read: as stored, and once or twice as converted."""
    if dtype == np.float32 and dtype.isnative:
        return 4
    # float64 and integers: one chunk, and one more converted in the native order.
    return dtype.itemsize + native_dtype(dtype).itemsize


def lay_out(
    embedding: Embedding, n_rows: int, spec: ListSpec, options: Options, *, n_tasks: int,
    fixed: int, n_workers: int = 1, streamed: bool = False,
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
    n_workers
        Processes that share the tasks.
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
    row_bytes = embedding.n_features * embedding.dtype.itemsize
    resident = memory.direct_bytes(cost, n_rows, n_tasks, fixed)
    if not streamed and n_rows <= DIRECT_ROWS and resident <= allowed:
        small = is_small([n_rows], spec, embedding.n_features, compiled=is_compiled())
        return Layout(
            "small" if small else "direct", n_rows, (0, n_rows), 1, 1, resident,
            2 * n_rows * row_bytes, 0,
            {"resident rows and lists": resident - fixed - memory.LIBRARIES,
             "manifest and results": fixed, "libraries": memory.LIBRARIES},
        )  # fmt: skip
    rows = min(memory.largest_range(cost, allowed, n_tasks, fixed), LARGEST_RANGE)
    # More ranges than two a task, so that tasks that end early find a pair that is free (measured:
    # with three 14 % faster than with two, with four no more).
    shared = min(3 * n_tasks * n_workers, _MOST_RANGES, n_rows // 1024)
    n_ranges = max(-(-n_rows // rows), shared, 1)
    edges = np.linspace(0, n_rows, n_ranges + 1).astype(int)
    longest = int(np.diff(edges).max())
    per_block = 1
    while _n_pairs(-(-n_ranges // per_block)) > MOST_TASKS:
        per_block += 1
    n_blocks = -(-n_ranges // per_block)
    terms = {k: v * n_tasks for k, v in memory.task_bytes(cost, longest).items()}
    terms["manifest and results"] = fixed
    terms["libraries"] = memory.LIBRARIES
    # A range is read once as the first of its pairs in each task, and once as every second.
    loads = n_ranges * (n_blocks + 1) // 2 + n_ranges * (n_ranges - 1) // 2
    return Layout(
        "streamed", n_rows, tuple(int(e) for e in edges), per_block, _n_pairs(n_blocks),
        memory.streamed_bytes(cost, longest, n_tasks, fixed),
        int((loads / n_ranges + 2) * n_rows * row_bytes),
        memory.scratch_bytes(n_rows, spec.screened, spec.delivered), terms, rows,
    )  # fmt: skip


def lay_out_probed(
    embedding: Embedding, kind: str, cluster_edges: I64, spec: ListSpec, options: Options, *,
    n_tasks: int, fixed: int, n_workers: int = 1, shard_edges: I64 | None = None,
) -> Layout:  # fmt: skip
    """Cut the rows of an index into ranges of whole clusters.

    Parameters
    ----------
    embedding, spec, options, n_tasks, fixed, n_workers
        As in `lay_out`.
    kind
        Of the index.
    cluster_edges
        (C + 1,) where clusters start.
    shard_edges
        Where the ranges have to start; None leaves that to the memory.

    Raises
    ------
    MemoryLimitError
        The memory does not allow even the smallest ranges, or not the shards.
    """
    allowed = memory.allowed_bytes(options.memory)
    n_rows = int(cluster_edges[-1])
    spec = spec.clipped(n_rows)
    cost = range_cost(embedding, spec, probed=True)
    fixed += memory.INDEX_ROW * n_rows + memory.INDEX_LIBRARIES
    if shard_edges is not None:
        longest = int(np.diff(shard_edges).max())
        fixed += held_bytes(longest, embedding.n_features, max(60, spec.n_global))
    most = memory.largest_range(cost, allowed, n_tasks, fixed)
    if shard_edges is None:
        # Ranges end with clusters: one may be longer by as much as a cluster.
        rows = max(memory.SMALLEST_RANGE, most - int(np.diff(cluster_edges).max()))
        rows = min(rows, LARGEST_RANGE)
        shared = min(3 * n_tasks * n_workers, _MOST_RANGES, n_rows // 1024)
        n_ranges = max(-(-n_rows // rows), shared, 1)
        targets = np.linspace(0, n_rows, n_ranges + 1)[1:-1]
        inner = cluster_edges[np.searchsorted(cluster_edges, targets, side="right") - 1]
        edges = np.unique(np.concatenate([[0], inner, [n_rows]]))
        if int(np.diff(edges).max()) > most:
            edges = _packed(cluster_edges, most)
    else:
        edges = shard_edges
    longest = int(np.diff(edges).max())
    if longest > most:
        what, smaller = (
            ("largest cluster", "smaller cluster_rows= (--cluster-rows)")
            if shard_edges is None
            else ("longest shard", f"shard_rows={most} (--shard-rows)")
        )
        raise MemoryLimitError(
            f"the {what} of the index has {longest} rows, and with {n_tasks} "
            f"task{'s' * (n_tasks != 1)} at once in {memory.format_bytes(allowed)} no more than "
            f"{most} can be searched: raise memory= (--memory), lower threads= (--threads), or "
            f"build the index again with {smaller}"
        )
    n_ranges = len(edges) - 1
    per_block = 1
    while _n_pairs(-(-n_ranges // per_block)) > MOST_TASKS:
        per_block += 1
    n_blocks = -(-n_ranges // per_block)
    terms = {k: v * n_tasks for k, v in memory.task_bytes(cost, longest).items()}
    terms["manifest, index and results"] = fixed
    terms["libraries"] = memory.LIBRARIES
    row_bytes = embedding.n_features * embedding.dtype.itemsize
    loads = n_ranges * (n_blocks + 1) // 2 + n_ranges * (n_ranges - 1) // 2
    return Layout(
        kind, n_rows, tuple(int(e) for e in edges), per_block, _n_pairs(n_blocks),
        memory.streamed_bytes(cost, longest, n_tasks, fixed),
        int((loads / n_ranges + 4) * n_rows * row_bytes),
        memory.scratch_bytes(n_rows, spec.screened, spec.delivered) + 2048 * n_rows, terms,
        most_rows=longest if shard_edges is not None else most,
    )  # fmt: skip


def sketched(spec: ListSpec, n_features: int) -> ListSpec:
    """Make lists as an index screens them, as far as is known before it is built."""
    return replace(spec, sketched=2 * SHORTEST <= n_features)


def _packed(cluster_edges: I64, most: int) -> I64:
    """Put whole clusters together to ranges of at most so many rows; a larger one stays alone."""
    at, edges = 0, [0]
    while at < cluster_edges.shape[0] - 1:
        full = int(np.searchsorted(cluster_edges, cluster_edges[at] + most, side="right")) - 1
        at = max(at + 1, full)
        edges.append(int(cluster_edges[at]))
    return np.array(edges, np.int64)


@dataclass(frozen=True)
class BatchLayout:
    """How many scopes that each fit memory are searched side by side.

    Attributes
    ----------
    rows
        Stored rows that are held at once.
    spill
        Whether lists go to disk.
    layout
        Peak, bytes and tasks, as of one scope.
    """

    rows: int
    spill: bool
    layout: Layout


def lay_out_batches(
    embedding: Embedding, sizes: Sequence[int], spec: ListSpec, options: Options, *,
    n_threads: int, fixed: int,
) -> BatchLayout:  # fmt: skip
    """Cut many scopes, none of which is streamed, into batches that fit memory.

    Raises
    ------
    MemoryLimitError
        Not even one scope a thread fits: names the largest term.
    """
    allowed = memory.allowed_bytes(options.memory)
    largest = max(sizes)
    cost = range_cost(embedding, spec.clipped(largest))
    listed = sum(n * 12 * spec.clipped(n).delivered for n in sizes)
    # Lists of a quarter of what is allowed stay in memory, larger ones go to disk.
    spill = listed > (allowed - memory.LIBRARIES - fixed) // 4
    kept = 0 if spill else listed
    least = memory.batch_bytes(cost, largest, n_threads, largest, kept, fixed)
    room = allowed - sum(least.values())
    if room < 0:
        worst = max(least, key=lambda name: least[name])
        raise MemoryLimitError(
            f"the subsets need at least {memory.format_bytes(sum(least.values()))} ("
            + ", ".join(f"{name} {memory.format_bytes(size)}" for name, size in least.items())
            + f"), over the allowed {memory.format_bytes(allowed)}; the largest term is {worst!r}: "
            "raise memory= (--memory), or lower threads= to search fewer subsets at once"
        )
    rows = largest + room // (cost.n_features * cost.itemsize)
    rows = min(rows, max(sum(sizes), largest))
    terms = memory.batch_bytes(cost, largest, n_threads, rows, kept, fixed)
    features = embedding.n_features
    compiled = is_compiled() or not is_small(sizes, spec, features, compiled=False)
    small = is_small([largest], spec, features, compiled=compiled)
    row_bytes = embedding.n_features * embedding.dtype.itemsize
    layout = Layout(
        "small" if small else "direct", largest, (0, largest), 1, len(sizes),
        sum(terms.values()), (embedding.n_tiles + sum(sizes)) * row_bytes,
        listed if spill else 0, terms,
    )  # fmt: skip
    return BatchLayout(rows, spill, layout)


def is_compiled() -> bool:
    """Tell whether this process has compiled the kernels (or is about to)."""
    return "croma_dask.kernels.select" in sys.modules


def is_small(sizes: Sequence[int], spec: ListSpec, n_features: int, *, compiled: bool) -> bool:
    """Tell whether numpy is done with scopes of these sizes before compiled kernels would be.

    An entry of a list costs numpy as much as four pairs of rows, and a pair more for every
    hundred features.
    """
    work = 0.0
    for n in sizes:
        work += n * (n + spec.clipped(n).screened * (4.0 + n_features / 100.0))
    return work <= (SMALL_PAIRS_COMPILED if compiled else SMALL_PAIRS)


def _n_pairs(n: int) -> int:
    return n * (n + 1) // 2
