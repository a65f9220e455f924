"""Sums of rows and of their squared lengths by group: one pass that holds few of them at a time.

A task adds up a stretch of the fixed grid of rows for the groups that occur in it, and the parts
are added in the order of the rows, a few tasks at a time: so the sums have the same bits whatever
the chunks, the threads, the workers and the memory, and no more parts are held than fit.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from croma_dask import memory
from croma_dask.cohort.layout import chunk_rows_for
from croma_dask.embedding.spans import SPAN_ROWS, Column, blocks, over_spans, rows_at_once
from croma_dask.errors import MemoryLimitError
from croma_dask.fingerprint import BLOCK_ROWS
from croma_dask.index.source import RowSource
from croma_dask.kernels.screen_euclidean import native
from croma_dask.kernels.typing import F64, I32, I64
from croma_dask.options import Options

__all__ = ["Adding", "Bad", "add_up", "moment_bytes", "span_rows", "tasks_that_fit"]

_FIRST = 5

_PART = 32 << 20
"""Bytes of the sums of a task beyond which it is given fewer rows."""

_WAITING = 64 << 20
"""Bytes of parts up to which tasks do not wait for one another."""


@dataclass(frozen=True)
class Adding:
    """What a pass adds up; what is special about it stands in the class that is derived from it.

    Attributes
    ----------
    rows, groups
        Rows, and the group of each.
    """

    rows: RowSource
    groups: Column

    @abstractmethod
    def add(
        self, x: np.ndarray[Any, Any], groups: I32, place: I32, total: F64, square: F64
    ) -> Mapping[int, I64]:
        """Add the rows of a block to the sums of their groups.

        Parameters
        ----------
        x, place
            (n, D) rows, and (n,) position of the group of each in `groups`.
        groups
            (G,) groups that are added up.
        total, square
            (G, D) and (G,) sums.

        Returns
        -------
        Mapping
            Rows of the block that cannot be added, by what is wrong with them.
        """


@dataclass
class Bad:
    """Rows of one fault: how many, and the first few."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, count: int, rows: Iterable[int]) -> None:
        """Append rows that come behind."""
        self.count += count
        self.first += itertools.islice(rows, _FIRST - len(self.first))


@dataclass(eq=False)
class _Part:
    """Sums over some rows of each group that occurs in them."""

    groups: I32
    total: F64
    square: F64
    bad: dict[int, Bad] = field(default_factory=dict)


def add_up(
    adding: Adding, n_groups: int, *, name: str, n_tasks: int, n_workers: int = 1, options: Options,
    client: Any = None,
) -> tuple[F64, F64, dict[int, Bad]]:  # fmt: skip
    """Add all rows up.

    Parameters
    ----------
    adding
        Rows and groups.
    n_groups
        Number of groups, C.
    name, n_tasks, options, client
        As of :func:`croma_dask.embedding.spans.over_spans`.
    n_workers
        Processes that run so many tasks each.

    Returns
    -------
    total, square, bad
        (C, D) and (C,) sums; rows that were left out, by what is wrong with them.
    """
    n, d = adding.rows.n_rows, adding.rows.n_features
    total, square, bad = np.zeros((n_groups, d)), np.zeros(n_groups), dict[int, Bad]()
    parts = over_spans(
        _add_span, adding, n, name=name, rows=span_rows(n_groups, d), options=options,
        at_once=_at_once(n_groups, d, n_tasks * n_workers), client=client, n_tasks=n_tasks,
    )  # fmt: skip
    for part in parts:
        total[part.groups] += part.total
        square[part.groups] += part.square
        for kind, rows in part.bad.items():
            bad.setdefault(kind, Bad()).add(rows.count, rows.first)
    return total, square, bad


def _add_span(adding: Adding, lo: int, hi: int) -> _Part:
    groups = np.unique(adding.groups.read(lo, hi))
    part = _Part(groups, np.zeros((groups.size, adding.rows.n_features)), np.zeros(groups.size))
    # Rows are added one after the other: the same bits in blocks of any length.
    for a, b in blocks(lo, hi, rows_at_once(adding.rows)):
        place = np.searchsorted(groups, adding.groups.read(a, b)).astype(np.int32)
        found = adding.add(adding.rows.read(a, b), groups, place, part.total, part.square)
        for kind, rows in found.items():
            part.bad.setdefault(kind, Bad()).add(rows.size, (a + int(row) for row in rows))
    return part


def span_rows(n_groups: int, n_features: int) -> int:
    """Rows of a task: fewer where it may meet so many groups that their sums are large."""
    rows = SPAN_ROWS
    while rows > BLOCK_ROWS and _part_bytes(n_groups, n_features, rows) > _PART:
        rows //= 2
    return rows


def _part_bytes(n_groups: int, n_features: int, rows: int) -> int:
    return min(n_groups, rows) * (8 * n_features + 16)


def _at_once(n_groups: int, n_features: int, slots: int) -> int:
    """Tasks whose parts may wait to be added: eight times as many as run, if those are small."""
    one = _part_bytes(n_groups, n_features, span_rows(n_groups, n_features))
    return max(slots, min(8 * slots, _WAITING // one))


def moment_bytes(
    n_rows: int, n_features: int, n_groups: int, dtype: Any, *, step: int, n_tasks: int,
    n_workers: int = 1,
) -> dict[str, int]:  # fmt: skip
    """Bytes that a process takes for :func:`add_up`, beside the sums that it returns.

    Parameters
    ----------
    n_rows, n_features, dtype, step
        Of the rows; `step` of them are read together.
    n_groups
        Number of groups.
    n_tasks, n_workers
        Tasks at once in a process, and processes: one of them adds the parts of all.
    """
    size, converted = np.dtype(dtype).itemsize, native(np.empty(0, dtype)).itemsize
    rows = span_rows(n_groups, n_features)
    part = _part_bytes(n_groups, n_features, min(rows, n_rows))
    waiting = min(-(-n_rows // rows), _at_once(n_groups, n_features, n_tasks * n_workers))
    at_once = min(chunk_rows_for(n_features, size), BLOCK_ROWS, n_rows)
    block = at_once * (2 * size + converted) + min(step, n_rows) * size
    return {
        "rows of the tasks": n_tasks * n_features * block,
        # One more is taken out of the sums while a part is added to it.
        "sums of the tasks": (max(n_tasks, waiting) + 1) * part,
    }


def tasks_that_fit(
    what: str, bytes_of: Callable[[int], Mapping[str, int]], options: Options, wanted: int, *,
    least: int = 1, fixed: int = 0,
) -> int:  # fmt: skip
    """How many tasks may run at once in a process within the allowed memory.

    Parameters
    ----------
    what
        What errors call the step.
    bytes_of
        Gives bytes of a process by name, for a number of tasks.
    options
        Allowed memory.
    wanted, least
        At most and at least so many.
    fixed
        Bytes that the process holds besides.

    Raises
    ------
    MemoryLimitError
        The least do not fit: names the largest term.
    """
    allowed = memory.allowed_bytes(options.memory)
    for n_tasks in range(wanted, least - 1, -1):
        terms = {**bytes_of(n_tasks), "libraries": memory.LIBRARIES, "values held besides": fixed}
        if sum(terms.values()) <= allowed:
            return n_tasks
    told = ", ".join(f"{name} {memory.format_bytes(size)}" for name, size in terms.items() if size)
    worst = max(terms, key=lambda name: terms[name])
    raise MemoryLimitError(
        f"{what} needs at least {memory.format_bytes(sum(terms.values()))} with {least} "
        f"task{'s' * (least != 1)} at once ({told}), over the allowed "
        f"{memory.format_bytes(allowed)}; the largest term is {worst!r}: raise memory= (--memory), "
        f"or leave {what} out"
    )
