"""Tasks of the sums of distances: what one worker does with pairs of ranges of rows.

The sums of a range are whole numbers, so they do not depend on the order in which it meets the
others; with them it is kept whom they have met, and a pair that a resumed run finds half done is
met again for the half that lacks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from croma_dask.embedding.spans import Column
from croma_dask.index.range_blocks import RangeBlocks
from croma_dask.index.scratch import Scratch
from croma_dask.index.source import RowSource
from croma_dask.kernels.pairwise import COLUMNS, add_columns
from croma_dask.kernels.screen_euclidean import native
from croma_dask.kernels.typing import I32, I64, Bool, Floats

__all__ = ["Held", "InMemory", "InScratch", "SumsJob", "allow", "meet_blocks", "stop"]


@dataclass(frozen=True)
class Held:
    """Rows lo..hi of a scope as a task holds them: sorted by label, then by row.

    Attributes
    ----------
    rows
        (n,) position in the scope of each row.
    x, label
        (n, D) float32 or float64; (n,) int32.
    """

    rows: I64
    x: Floats
    label: I32


class Kept(Protocol):
    """Where sums lie between the tasks."""

    def met(self, number: int) -> Bool:
        """(n_ranges,) ranges that the sums of a range have met."""
        ...

    def read(self, number: int) -> tuple[I64, Bool] | None:
        """(L, n) sums of a range and whom they have met; None before its first task."""
        ...

    def write(self, number: int, sums: I64, met: Bool) -> None:
        """Keep the sums of a range."""
        ...


@dataclass(frozen=True)
class InMemory:
    """Sums, and the ranges themselves, in this process."""

    n_ranges: int
    found: dict[int, tuple[I64, Bool]] = field(default_factory=dict)
    held: dict[int, Held] = field(default_factory=dict)

    def met(self, number: int) -> Bool:
        """(n_ranges,) ranges that the sums of a range have met."""
        return self.found[number][1] if number in self.found else np.zeros(self.n_ranges, bool)

    def read(self, number: int) -> tuple[I64, Bool] | None:
        """(L, n) sums of a range and whom they have met; None before its first task."""
        return self.found.get(number)

    def write(self, number: int, sums: I64, met: Bool) -> None:
        """Keep the sums of a range."""
        self.found[number] = sums, met


@dataclass(frozen=True)
class InScratch:
    """Sums in files of a run, two generations of each range."""

    n_ranges: int
    scratch: Scratch

    def met(self, number: int) -> Bool:
        """(n_ranges,) ranges that the sums of a range have met."""
        met: Bool = self.scratch.met(number, self.n_ranges)
        return met

    def read(self, number: int) -> tuple[I64, Bool] | None:
        """(L, n) sums of a range and whom they have met; None before its first task."""
        packed = self.scratch.read_lists(number)
        return None if packed is None else (packed["sums"], packed["met"])

    def write(self, number: int, sums: I64, met: Bool) -> None:
        """Keep the sums of a range."""
        self.scratch.write_lists(number, {"sums": sums, "met": met})


@dataclass(frozen=True)
class SumsJob(RangeBlocks):
    """All that the tasks share; small where `kept` is in scratch.

    Attributes
    ----------
    rows, labels
        Rows and their labels (codes) by reference.
    n_labels
        Number of labels.
    kept
        Where sums are kept.
    edges, per_block
        Edges of the ranges; ranges that a task takes on each side.
    scale, magic
        As in :mod:`croma_dask.kernels.pairwise`.
    token
        Name of the run.
    """

    rows: RowSource
    labels: Column
    n_labels: int
    kept: InMemory | InScratch
    edges: tuple[int, ...]
    per_block: int
    scale: float
    magic: float
    token: str

    def rows_of(self, block: int) -> int:
        """Rows of a block."""
        return self.edges[self.members(block).stop] - self.edges[self.members(block).start]

    def order(self, number: int) -> tuple[I64, I32]:
        """Rows of a range sorted by label, counted from its first one; and their labels."""
        label = self.labels.read(self.edges[number], self.edges[number + 1])
        order = np.argsort(label, kind="stable")
        return order, np.ascontiguousarray(label[order], np.int32)

    def load(self, number: int) -> Held:
        """Read a range."""
        if isinstance(self.kept, InMemory) and number in self.kept.held:
            return self.kept.held[number]
        lo, hi = self.edges[number], self.edges[number + 1]
        order, label = self.order(number)
        place = np.empty(hi - lo, np.int64)
        place[order] = np.arange(hi - lo)
        x = np.empty((hi - lo, self.rows.n_features), native(np.empty(0, self.rows.dtype)).dtype)
        for where, rows in self.rows.pieces(lo, hi):
            x[place[where]] = native(rows)
        held = Held(lo + order, x, label)
        if isinstance(self.kept, InMemory):
            self.kept.held[number] = held
        return held


_stopped: set[str] = set()
"""Runs that were interrupted in this process; their tasks end at the next columns."""


class Stopped(Exception):
    """The run that a task belongs to was interrupted."""


def stop(job: SumsJob) -> None:
    """Let the tasks of a run that are under way in this process end soon."""
    _stopped.add(job.token)


def allow(job: SumsJob) -> None:
    """Forget that a run was interrupted."""
    _stopped.discard(job.token)


def meet_blocks(job: SumsJob, block_i: int, block_j: int, *_after: Any) -> int:
    """Let all ranges of two blocks meet; return the number of pairs of rows that were new.

    `_after` are the results of the tasks that have to be over before this one.
    """
    pairs = 0
    for i in job.members(block_i):
        partners = list(_partners(job, i, job.members(block_j)))
        if not partners:
            continue
        # The sums of i stay in memory while its partners come and go.
        side_i = _Side(job, i)
        for j in partners:
            side_j = side_i if j == i else _Side(job, j)
            pairs += _meet(job, side_i, side_j)
            if j != i:
                side_j.put_down(job)
        side_i.put_down(job)
    return pairs


def _partners(job: SumsJob, i: int, others: range) -> Iterator[int]:
    met = job.kept.met(i)
    for j in others:
        if j >= i and not (met[j] and job.kept.met(j)[i]):
            yield j


class _Side:
    """A range in a task: its rows, its sums, and whom they have met."""

    def __init__(self, job: SumsJob, number: int) -> None:
        self.number = number
        self.held = job.load(number)
        found = job.kept.read(number)
        if found is None:
            found = np.zeros((job.n_labels, self.held.rows.size), np.int64), job.kept.met(number)
        self.sums, self.met = found

    def put_down(self, job: SumsJob) -> None:
        """Keep what was found."""
        job.kept.write(self.number, self.sums, self.met)


def _meet(job: SumsJob, side_i: _Side, side_j: _Side) -> int:
    take_i, take_j = not side_i.met[side_j.number], not side_j.met[side_i.number]
    one, two = side_i.held, side_j.held
    for c0 in range(0, two.rows.size, COLUMNS):
        if job.token in _stopped:
            raise Stopped(job.token)
        add_columns(
            one.x, one.label, side_i.sums, two.x, two.label, side_j.sums, c0, job.scale, job.magic,
            side_i is side_j, take_i, take_j,
        )  # fmt: skip
    side_i.met[side_j.number] = side_j.met[side_i.number] = True
    n = one.rows.size
    return n * n // 2 if side_i is side_j else n * two.rows.size
