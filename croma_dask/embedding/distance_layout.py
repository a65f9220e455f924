"""How the sums of distances are cut up within a memory: in memory, or by ranges of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from croma_dask import memory
from croma_dask.errors import MemoryLimitError
from croma_dask.index.source import RowSource
from croma_dask.kernels.pairwise import COLUMNS
from croma_dask.kernels.screen_euclidean import native
from croma_dask.layout import LARGEST_RANGE, MOST_TASKS, Layout
from croma_dask.options import Options

__all__ = ["SumsCost", "lay_out_sums", "largest_range", "task_bytes"]

RESIDENT_ROWS = 32_768
"""Rows up to which nothing is written down on the way: half a minute at 512 features."""

MOST_RANGES = 88
"""Ranges that a few thousand tasks can pair one by one."""

PAIR_WORK = 2e12
"""Pairs of rows times features that a pair of ranges may have: some three minutes of one core."""

_ROW = 32
"""Label and position of a row, and its place while it is read."""

_TRANSIENT = 16 << 20
"""A block of rows being converted, a file being written."""


@dataclass(frozen=True)
class SumsCost:
    """What a row costs while a task holds it.

    Attributes
    ----------
    n_features, itemsize
        Length of a row, and bytes of a native value (4 or 8).
    n_labels
        Labels: a row has a sum of 8 bytes for each.
    chunk
        Bytes of one chunk as it is read.
    """

    n_features: int
    itemsize: int
    n_labels: int
    chunk: int

    @classmethod
    def of(cls, source: RowSource, n_labels: int) -> SumsCost:
        """Cost of the rows of a source."""
        dtype = np.dtype(source.dtype)
        itemsize = native(np.empty(0, dtype)).itemsize
        rows = min(source.step, source.n_rows)
        return cls(
            source.n_features, itemsize, n_labels,
            rows * source.n_features * (dtype.itemsize + itemsize),
        )  # fmt: skip

    @property
    def row(self) -> int:
        """Bytes of a row itself."""
        return self.n_features * self.itemsize + _ROW

    @property
    def sums(self) -> int:
        """Bytes of the sums of a row."""
        return 8 * self.n_labels

    @property
    def transient(self) -> int:
        """Bytes of what a task needs besides: a panel of columns, and what is converted."""
        return _TRANSIENT + 8 * COLUMNS * (self.n_features + 8)


def task_bytes(cost: SumsCost, rows: int) -> dict[str, int]:
    """Bytes of a task on two ranges of `rows` rows, term by term."""
    return {
        "rows": 2 * rows * cost.row,
        "sums by label": 2 * rows * cost.sums,
        "chunk": cost.chunk,
        "transient": cost.transient,
    }


def largest_range(cost: SumsCost, allowed: int, n_tasks: int, fixed: int) -> int:
    """Rows of the largest range with which `n_tasks` tasks at once stay in the allowed memory.

    Parameters
    ----------
    cost
        Cost of a row.
    allowed
        Bytes for the whole process.
    n_tasks
        Tasks that run side by side in it.
    fixed
        Bytes that the driver holds besides.

    Raises
    ------
    MemoryLimitError
        Not even ranges of a few hundred rows fit.
    """
    tasks = max(n_tasks, 1)
    budget = (allowed - fixed - memory.LIBRARIES) // tasks
    rows = (budget - cost.chunk - cost.transient) // (2 * (cost.row + cost.sums))
    if rows >= memory.SMALLEST_RANGE:
        return int(rows)
    terms = _terms(cost, memory.SMALLEST_RANGE, tasks, fixed)
    worst = max(terms, key=lambda name: terms[name])
    told = ", ".join(f"{name} {memory.format_bytes(size)}" for name, size in terms.items())
    advice = ", or merge labels" if worst == "sums by label" else ""
    raise MemoryLimitError(
        f"ASW needs at least {memory.format_bytes(sum(terms.values()))} with {tasks} "
        f"task{'s' * (tasks != 1)} at once ({told}), over the allowed "
        f"{memory.format_bytes(allowed)}; the largest term is {worst!r}: raise memory= (--memory), "
        f"or lower threads= to run fewer tasks at once{advice}"
    )


def _terms(cost: SumsCost, rows: int, tasks: int, fixed: int) -> dict[str, int]:
    terms = {name: size * tasks for name, size in task_bytes(cost, rows).items()}
    return terms | {"labels and results": fixed, "libraries": memory.LIBRARIES}


def lay_out_sums(
    cost: SumsCost, n_rows: int, options: Options, *, n_tasks: int, n_workers: int = 1,
    fixed: int = 0,
) -> Layout:  # fmt: skip
    """Choose how the distances of `n_rows` rows are summed.

    Parameters
    ----------
    cost
        Cost of a row.
    n_rows
        Rows of the scope.
    options
        Allowed memory, threads.
    n_tasks
        Tasks that run side by side in one process.
    n_workers
        Processes that share the tasks.
    fixed
        Bytes that the process holds besides.

    Returns
    -------
    Layout
        Engine ``direct``: in this process, nothing is written; ``streamed``: tasks on pairs of
        ranges, whose sums lie in scratch. The numbers are the same.

    Raises
    ------
    MemoryLimitError
        As :func:`largest_range`.
    """
    allowed = memory.allowed_bytes(options.memory)
    fixed += 16 * n_rows
    threads = options.n_threads
    terms = {
        "rows": n_rows * cost.row, "sums by label": n_rows * cost.sums,
        "chunk": threads * cost.chunk, "transient": threads * cost.transient,
        "labels and results": fixed, "libraries": memory.LIBRARIES,
    }  # fmt: skip
    bytes_once = n_rows * cost.n_features * cost.itemsize
    if n_rows <= RESIDENT_ROWS and sum(terms.values()) <= allowed:
        n_ranges = max(1, min(3 * threads, n_rows // 256)) if threads > 1 else 1
        edges = _edges(n_rows, n_ranges)
        return Layout("direct", n_rows, edges, 1, _n_pairs(n_ranges), sum(terms.values()),
                      2 * bytes_once, 0, terms)  # fmt: skip
    most = min(
        largest_range(cost, allowed, n_tasks, fixed), LARGEST_RANGE,
        max(memory.SMALLEST_RANGE, int((PAIR_WORK / cost.n_features) ** 0.5)),
    )  # fmt: skip
    shared = min(3 * n_tasks * n_workers, MOST_RANGES, n_rows // 1024)
    n_ranges = max(-(-n_rows // most), shared, 1)
    edges = _edges(n_rows, n_ranges)
    longest = int(np.diff(edges).max())
    per_block = 1
    while _n_pairs(-(-n_ranges // per_block)) > MOST_TASKS:
        per_block += 1
    n_blocks = -(-n_ranges // per_block)
    loads = n_ranges * (n_blocks + 1) // 2 + n_ranges * (n_ranges - 1) // 2
    terms = _terms(cost, longest, max(n_tasks, 1), fixed)
    return Layout(
        "streamed", n_rows, edges, per_block, _n_pairs(n_blocks), sum(terms.values()),
        int((loads / n_ranges + 1) * bytes_once), 2 * n_rows * cost.sums + 4 * n_rows, terms, most,
    )  # fmt: skip


def _edges(n_rows: int, n_ranges: int) -> tuple[int, ...]:
    return tuple(int(e) for e in np.linspace(0, n_rows, n_ranges + 1).astype(int))


def _n_pairs(n: int) -> int:
    return n * (n + 1) // 2
