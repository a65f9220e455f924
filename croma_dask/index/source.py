"""Where the rows of a search come from: one small protocol, and what implements it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from croma_dask.kernels.typing import I32, I64

__all__ = ["ArraySource", "Codes", "NpySource", "RowSource", "TakenRows", "spool"]


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


@dataclass(frozen=True)
class ArraySource:
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
class NpySource:
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
class StoreSource:
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


@dataclass(frozen=True)
class TakenRows:
    """Rows of another source in an order of their own, a row possibly several times."""

    source: RowSource
    rows: I64

    @property
    def n_rows(self) -> int:
        return int(self.rows.shape[0])

    @property
    def n_features(self) -> int:
        return self.source.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def step(self) -> int:
        return self.source.step

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        wanted = self.rows[lo:hi]
        out = np.empty((wanted.shape[0], self.n_features), self.dtype)
        step = self.source.step
        block = wanted // step
        for number in np.unique(block):
            mine = np.flatnonzero(block == number)
            first, last = int(wanted[mine].min()), int(wanted[mine].max()) + 1
            out[mine] = self.source.read(first, last)[wanted[mine] - first]
        return out


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
