"""Delivered lists of a scope, read in blocks of a fixed grid wherever they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from croma_dask.index.finish import Delivered
from croma_dask.index.scratch import Scratch
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.typing import F64, I32, I64

__all__ = [
    "Block",
    "Cover",
    "IndexedLists",
    "Neighbors",
    "ResidentLists",
    "ScratchLists",
    "TypedBlock",
    "grid_rows",
]

_GRID = 4096
_ENTRIES = 1 << 18


def grid_rows(width: int) -> int:
    """Rows of a block for lists of a length.

    4,096 up to 64 neighbours, fewer beyond, so that a block stays at 2 MiB an array. Sums over
    rows do not depend on it (robustness/statistics.py).
    """
    return max(32, min(_GRID, _ENTRIES // max(width, 1)))


@dataclass(frozen=True)
class Block:
    """Nearest neighbours of rows lo..hi of a scope.

    Attributes
    ----------
    index, distance
        (n, k) nearest eligible rows by (distance, row), positions in the scope; -1 and NaN behind
        the last.
    """

    lo: int
    hi: int
    index: I32
    distance: F64


@dataclass(frozen=True)
class TypedBlock:
    """Nearest typed neighbours of rows lo..hi of a scope.

    Attributes
    ----------
    so, os
        (n, m) distances of the nearest SO and OS rows, NaN behind the last.
    """

    lo: int
    hi: int
    so: F64
    os: F64


class Lists(Protocol):
    """Lists of a scope, rows lo..hi at a time."""

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        """(n, k) positions and distances of the nearest neighbours of any type."""
        ...

    def read_typed(self, lo: int, hi: int) -> F64:
        """(n, 2 m) distances of the nearest SO and OS rows, side by side."""
        ...


@dataclass(frozen=True)
class ResidentLists:
    """Lists held in memory."""

    found: Delivered
    n_global: int

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        k = self.n_global
        return self.found.index[lo:hi, :k], self.found.distance[lo:hi, :k]

    def read_typed(self, lo: int, hi: int) -> F64:
        return self.found.distance[lo:hi, self.n_global :]


@dataclass(frozen=True)
class ScratchLists:
    """Lists in the scratch folder of a streamed run."""

    scratch: Scratch
    edges: tuple[int, ...]
    spec: ListSpec

    def _parts(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        for number, (a, b) in enumerate(zip(self.edges[:-1], self.edges[1:], strict=True)):
            if b > lo and a < hi:
                yield number, max(lo, a) - a, min(hi, b) - a

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        k = self.spec.indexed
        parts = [self.scratch.read_final(*part, k) for part in self._parts(lo, hi)]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def read_typed(self, lo: int, hi: int) -> F64:
        width = self.spec.delivered - self.spec.indexed
        return np.concatenate(
            [self.scratch.read_typed(*part, width) for part in self._parts(lo, hi)]
        )


class Cover:
    """Better lists of some rows, over those of all rows.

    Attributes
    ----------
    rows
        (c,) int64 ascending.
    lists
        Their lists.
    """

    def __init__(self, spec: ListSpec) -> None:
        self.rows: I64 = np.empty(0, np.int64)
        width = spec.delivered
        self.lists = Delivered(np.empty((0, width), np.int32), np.empty((0, width)))

    def add(self, rows: I64, lists: Delivered) -> None:
        """Take lists of some more rows, or of the same ones again."""
        new = ~np.isin(rows, self.rows)
        rows = np.concatenate([self.rows, rows[new]])
        order = np.argsort(rows)
        self.rows = rows[order]
        self.lists = Delivered(
            np.concatenate([self.lists.index, lists.index[new]])[order],
            np.concatenate([self.lists.distance, lists.distance[new]])[order],
        )

    def within(self, lo: int, hi: int) -> tuple[I64, slice]:
        """Rows lo..hi that are covered, counted from lo, and where their lists are."""
        a, b = (int(at) for at in np.searchsorted(self.rows, [lo, hi]))
        return self.rows[a:b] - lo, slice(a, b)


@dataclass(frozen=True)
class IndexedLists:
    """Lists in scratch whose ranges are runs of an index, not of the scope.

    Attributes
    ----------
    scratch, spec
        Where the lists are, and their lengths.
    rows
        For each range its rows of the scope, ascending: the order of its lists.
    over
        Exact lists of some rows. The files stay what the tasks have written: one that was given up
        may yet write them again.
    """

    scratch: Scratch
    spec: ListSpec
    rows: tuple[I32, ...]
    over: Cover

    def _parts(self, lo: int, hi: int) -> Iterator[tuple[int, int, int, I32]]:
        for number, rows in enumerate(self.rows):
            a, b = np.searchsorted(rows, [lo, hi])
            if b > a:
                yield number, int(a), int(b), rows[a:b] - lo

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        index, distance = self._read(lo, hi)
        covered, at = self.over.within(lo, hi)
        k = self.spec.n_global
        index[covered] = self.over.lists.index[at, :k]
        distance[covered] = self.over.lists.distance[at, :k]
        return index, distance

    def _read(self, lo: int, hi: int) -> tuple[I32, F64]:
        k = self.spec.n_global
        index, distance = np.empty((hi - lo, k), np.int32), np.empty((hi - lo, k))
        for number, a, b, where in self._parts(lo, hi):
            index[where], distance[where] = self.scratch.read_final(number, a, b, k)
        return index, distance

    def read_typed(self, lo: int, hi: int) -> F64:
        typed = self._read_typed(lo, hi)
        covered, at = self.over.within(lo, hi)
        typed[covered] = self.over.lists.distance[at, self.spec.n_global :]
        return typed

    def _read_typed(self, lo: int, hi: int) -> F64:
        width = 2 * self.spec.n_typed
        typed = np.empty((hi - lo, width))
        for number, a, b, where in self._parts(lo, hi):
            typed[where] = self.scratch.read_typed(number, a, b, width)
        return typed

    def found(self, wanted: I64) -> Delivered:
        """Read what the search has found for some rows, in the order asked for; nothing covers it.

        Positions of typed rows are not kept: -1.
        """
        k, width = self.spec.n_global, 2 * self.spec.n_typed
        index = np.full((wanted.shape[0], k + width), -1, np.int32)
        distance = np.empty((wanted.shape[0], k + width))
        order = np.argsort(wanted)
        # A block of the grid at a time: most hold a few of the rows, or none.
        for some in np.split(order, np.flatnonzero(np.diff(wanted[order] // _GRID)) + 1):
            if some.size:
                lo, hi = int(wanted[some[0]]), int(wanted[some[-1]]) + 1
                at = wanted[some] - lo
                if k:
                    near, far = self._read(lo, hi)
                    index[some, :k], distance[some, :k] = near[at], far[at]
                if width:
                    distance[some, k:] = self._read_typed(lo, hi)[at]
        return Delivered(index, distance)

    def cover(self, rows: I64, exact: Delivered) -> None:
        """Give some rows their exact lists."""
        self.over.add(rows, exact)


@dataclass(frozen=True)
class Neighbors:
    """Neighbours of all rows of a scope.

    Attributes
    ----------
    n_rows
        Rows of the scope.
    spec
        Lengths of the lists (not above n_rows - 1).
    lists
        Where they lie.
    n_second_look
        Rows whose lists were searched again because rounding could have decided them.
    engine
        ``small``, ``direct`` or ``streamed``: how they were found, the lists are the same; or the
        kind of the approximate index.
    """

    n_rows: int
    spec: ListSpec
    lists: Lists
    n_second_look: int
    engine: str

    def blocks(self) -> Iterator[Block]:
        """All rows in order, a block of the fixed grid at a time.

        The list of the same label, where there is one, stands behind that of any.
        """
        step = grid_rows(self.spec.indexed)
        for lo in range(0, self.n_rows, step):
            hi = min(self.n_rows, lo + step)
            index, distance = self.lists.read(lo, hi)
            yield Block(lo, hi, np.ascontiguousarray(index), np.ascontiguousarray(distance))

    def typed_blocks(self) -> Iterator[TypedBlock]:
        """Typed neighbours of all rows in order, a block at a time."""
        m = self.spec.n_typed
        step = grid_rows(2 * m)
        for lo in range(0, self.n_rows, step):
            hi = min(self.n_rows, lo + step)
            typed = self.lists.read_typed(lo, hi)
            yield TypedBlock(
                lo, hi, np.ascontiguousarray(typed[:, :m]), np.ascontiguousarray(typed[:, m:])
            )
