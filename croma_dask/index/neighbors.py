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
        k = self.spec.n_global
        parts = [self.scratch.read_final(*part, k) for part in self._parts(lo, hi)]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def read_typed(self, lo: int, hi: int) -> F64:
        width = 2 * self.spec.n_typed
        return np.concatenate(
            [self.scratch.read_typed(*part, width) for part in self._parts(lo, hi)]
        )


@dataclass(frozen=True)
class IndexedLists:
    """Lists in scratch whose ranges are runs of an index, not of the scope.

    Attributes
    ----------
    scratch, spec
        Where the lists are, and their lengths.
    rows
        For each range its rows of the scope, ascending: the order of its lists.
    """

    scratch: Scratch
    spec: ListSpec
    rows: tuple[I32, ...]

    def _parts(self, lo: int, hi: int) -> Iterator[tuple[int, int, int, I32]]:
        for number, rows in enumerate(self.rows):
            a, b = np.searchsorted(rows, [lo, hi])
            if b > a:
                yield number, int(a), int(b), rows[a:b] - lo

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        k = self.spec.n_global
        index, distance = np.empty((hi - lo, k), np.int32), np.empty((hi - lo, k))
        for number, a, b, where in self._parts(lo, hi):
            index[where], distance[where] = self.scratch.read_final(number, a, b, k)
        return index, distance

    def read_typed(self, lo: int, hi: int) -> F64:
        width = 2 * self.spec.n_typed
        typed = np.empty((hi - lo, width))
        for number, a, b, where in self._parts(lo, hi):
            typed[where] = self.scratch.read_typed(number, a, b, width)
        return typed

    def take(self, wanted: I64) -> Delivered:
        """Read the lists of some rows of the scope, in the order asked for."""
        k, width = self.spec.n_global, 2 * self.spec.n_typed
        index = np.full((wanted.shape[0], k + width), -1, np.int32)
        distance = np.empty((wanted.shape[0], k + width))
        for number, where, at in self._scattered(wanted):
            near, far, typed = self.scratch.open_final(number, k, width, "r")
            if k:
                index[where, :k], distance[where, :k] = near[at], far[at]
            if width:
                distance[where, k:] = typed[at]
        return Delivered(index, distance)

    def put(self, rows: I64, exact: Delivered) -> None:
        """Replace the lists of some rows by better ones; to do it twice changes nothing."""
        k, width = self.spec.n_global, 2 * self.spec.n_typed
        for number, where, at in self._scattered(rows):
            near, far, typed = self.scratch.open_final(number, k, width, "r+")
            if k:
                near[at], far[at] = exact.index[where, :k], exact.distance[where, :k]
            if width:
                typed[at] = exact.distance[where, k:]

    def _scattered(self, wanted: I64) -> Iterator[tuple[int, I64, I64]]:
        """Range by range: which of the wanted rows are in it, and where in its lists."""
        for number, rows in enumerate(self.rows):
            at = np.minimum(np.searchsorted(rows, wanted), max(rows.shape[0] - 1, 0))
            where = np.flatnonzero(rows[at] == wanted) if rows.shape[0] else at[:0]
            if where.size:
                yield number, where, at[where]


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
        """All rows in order, a block of the fixed grid at a time."""
        step = grid_rows(self.spec.n_global)
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
