"""Delivered lists of a scope, read in blocks of a fixed grid wherever they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from croma_dask.index.finish import Delivered
from croma_dask.index.scratch import Scratch
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.typing import F64, I32

__all__ = ["GRID", "Block", "Neighbors", "ResidentLists", "ScratchLists"]

GRID = 4096
"""Rows of a block. Float sums over blocks are part of the result, so the grid never changes."""


@dataclass(frozen=True)
class Block:
    """Lists of rows lo..hi of a scope.

    Attributes
    ----------
    index, distance
        (n, k) nearest eligible rows by (distance, row), positions in the scope; -1 and NaN behind
        the last.
    so, os
        (n, m) distances of the nearest SO and OS rows, NaN behind the last.
    """

    lo: int
    hi: int
    index: I32
    distance: F64
    so: F64
    os: F64


class Lists(Protocol):
    """Lists of a scope, rows lo..hi at a time."""

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        """(n, delivered) positions and distances, the three lists side by side."""
        ...


@dataclass(frozen=True)
class ResidentLists:
    """Lists held in memory."""

    found: Delivered

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        return self.found.index[lo:hi], self.found.distance[lo:hi]


@dataclass(frozen=True)
class ScratchLists:
    """Lists in the scratch folder of a streamed run."""

    scratch: Scratch
    edges: tuple[int, ...]
    width: int

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        parts = []
        for number, (a, b) in enumerate(zip(self.edges[:-1], self.edges[1:], strict=True)):
            if b > lo and a < hi:
                first, last = max(lo, a) - a, min(hi, b) - a
                parts.append(self.scratch.read_final(number, first, last, self.width))
        return (
            np.concatenate([index for index, _ in parts]),
            np.concatenate([distance for _, distance in parts]),
        )


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
        ``small``, ``direct`` or ``streamed``: how they were found. The lists are the same.
    """

    n_rows: int
    spec: ListSpec
    lists: Lists
    n_second_look: int
    engine: str

    def blocks(self) -> Iterator[Block]:
        """All rows in order, a block of the fixed grid at a time."""
        for lo in range(0, self.n_rows, GRID):
            yield self.block(lo, min(self.n_rows, lo + GRID))

    def block(self, lo: int, hi: int) -> Block:
        """Rows lo..hi."""
        index, distance = self.lists.read(lo, hi)
        parts = [
            np.ascontiguousarray(distance[:, int(o) : int(o + n)])
            for o, n in zip(self.spec.offset, self.spec.deliver, strict=True)
        ]
        return Block(
            lo, hi, np.ascontiguousarray(index[:, : self.spec.n_global]), parts[0], parts[1],
            parts[2],
        )  # fmt: skip
