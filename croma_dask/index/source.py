"""Where the rows of a search come from: one small protocol, and what implements it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from croma_dask.kernels.typing import I32, I64

__all__ = ["ArraySource", "Codes", "NpySource", "OfAnother", "RowSource", "TakenRows", "spool"]


class RowSource(Protocol):
    """(n_rows, n_features) rows that can be read in blocks, and sent to a worker by reference."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def n_features(self) -> int:
        """Length of a row."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Stored dtype."""
        ...

    @property
    def step(self) -> int:
        """Rows that are read best together (a chunk of the store)."""
        ...

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        """Rows lo..hi as an array; needs no more memory than the result and one chunk."""
        ...

    def pieces(self, lo: int, hi: int) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
        """Rows lo..hi chunk by chunk, each chunk read once: where they belong, and the rows."""
        ...


class _InOrder:
    """Pieces of a source whose rows lie as they are asked for."""

    def pieces(self: RowSource, lo: int, hi: int) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
        at = lo
        while at < hi:
            stop = min(hi, (at // self.step + 1) * self.step)
            yield slice(at - lo, stop - lo), self.read(at, stop)
            at = stop


@dataclass(frozen=True)
class ArraySource(_InOrder):
    """Rows of anything that slices like an array: numpy, memmap, a zarr array.

    It travels with its array, so it is for threads of this process only unless the array is a
    handle (zarr) itself.
    """

    array: Any
    step: int = 4096

    @property
    def n_rows(self) -> int:
        return int(self.array.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.array.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.array.dtype)
        return dtype

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        return np.asarray(self.array[lo:hi])


@dataclass(frozen=True)
class NpySource(_InOrder):
    """Rows of a `.npy` file, opened anew by whoever reads it."""

    path: str
    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    step: int = 4096

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        # A fresh map for each read: pages of a map that is kept count as resident memory.
        rows = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return np.array(rows[lo:hi])


@dataclass(frozen=True)
class StoreSource(_InOrder):
    """Tiles of a cohort store, read by URL."""

    store: Any

    @property
    def n_rows(self) -> int:
        return int(self.store.n_tiles)

    @property
    def n_features(self) -> int:
        return int(self.store.n_features)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.store.dtype)
        return dtype

    @property
    def step(self) -> int:
        return int(self.store.chunk_rows)

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        return np.asarray(self.store.read_tiles(lo, hi))


class OfAnother:
    """What a source whose rows are those of another one has of that."""

    source: RowSource

    @property
    def n_features(self) -> int:
        return self.source.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def step(self) -> int:
        return self.source.step


@dataclass(frozen=True)
class TakenRows(OfAnother):
    """Rows of another source in an order of their own, a row possibly several times."""

    source: RowSource
    rows: I64

    @property
    def n_rows(self) -> int:
        return int(self.rows.shape[0])

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        out = np.empty((min(hi, self.n_rows) - lo, self.n_features), self.dtype)
        for where, rows in self.pieces(lo, hi):
            out[where] = rows
        return out

    def pieces(self, lo: int, hi: int) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
        wanted = self.rows[lo:hi]
        # Sorted by chunk: rows that are scattered over the store cost each chunk one read, not one
        # for every few thousand positions.
        order = np.argsort(wanted, kind="stable")
        chunk = wanted[order] // self.source.step
        edges = np.flatnonzero(np.diff(chunk)) + 1
        for where in np.split(order, edges):
            if where.size:
                first, last = int(wanted[where[0]]), int(wanted[where[-1]]) + 1
                yield where, self.source.read(first, last)[wanted[where] - first]


@dataclass(frozen=True)
class Codes:
    """What the masks need to know of every row: int32 codes, never missing.

    Attributes
    ----------
    label, confounder, group
        (n,) int32.
    """

    label: I32
    confounder: I32
    group: I32

    def __len__(self) -> int:
        return int(self.label.shape[0])

    def take(self, rows: Any) -> Codes:
        """Codes of some rows."""
        return Codes(self.label[rows], self.confounder[rows], self.group[rows])


def spool(array: Any, path: str, *, step: int) -> NpySource:
    """Write any sliceable array to a `.npy` file, block by block, and read it from there.

    For arrays that workers cannot open themselves, and for lazy ones whose chain would otherwise
    be computed again for every pair of ranges.
    """
    n, d = (int(s) for s in array.shape)
    dtype = np.dtype(array.dtype)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(n, d))
    for lo in range(0, n, step):
        out[lo : lo + step] = np.asarray(array[lo : lo + step])
    out.flush()
    del out
    return NpySource(path, n, d, dtype, step)
