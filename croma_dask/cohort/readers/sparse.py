"""Rows of compressed sparse matrices as h5ad files hold them, dense, a block at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import BlockSource, RowEdges
from croma_dask.cohort.readers.hdf5_chunks import read_rows
from croma_dask.cohort.readers.hdf5_objects import find, read_whole
from croma_dask.cohort.readers.trust import check_expansion
from croma_dask.errors import SchemaError

__all__ = ["sparse_layout", "sparse_rows"]

BLOCK_BYTES = 64 * 2**20
SLAB = 2**22


def sparse_layout(group: Any) -> tuple[str, tuple[int, int]] | None:
    """Return ``"csr"`` or ``"csc"`` and the shape of a group that holds a sparse matrix.

    None for a group that holds something else.
    """
    attrs = group.attrs
    kind = attrs.get("encoding-type", attrs.get("h5sparse_format"))
    shape = attrs.get("shape", attrs.get("h5sparse_shape"))
    if kind is None or shape is None or not {"data", "indices", "indptr"} <= set(group):
        return None
    text = kind.decode() if isinstance(kind, bytes) else str(kind)
    text = text.removesuffix("_matrix")
    if text not in {"csr", "csc"}:
        return None
    height, width = (int(size) for size in shape)
    return text, (height, width)


def sparse_rows(group: Any, kind: str, shape: tuple[int, int]) -> BlockSource:
    """Return dense rows of a sparse matrix.

    Notes
    -----
    Memory: one dense block of at most 64 MiB and its entries. A matrix compressed by columns
    (csc) is read once for every block: rows are spread over all of its columns.
    """
    data, indices = (_vector(group, part) for part in ("data", "indices"))
    what = f"the sparse matrix {group.name!r}"
    dtype = data.dtype
    rows = max(1, BLOCK_BYTES // (max(1, shape[1]) * dtype.itemsize))
    if kind == "csr":
        rows = min(rows, 4096)
    indptr = read_whole(_vector(group, "indptr"), f"indptr of {what}").astype(np.int64)
    expected = shape[0] + 1 if kind == "csr" else shape[1] + 1
    if (
        len(indptr) != expected
        or indptr[0] != 0
        or (np.diff(indptr) < 0).any()
        or indptr[-1] > min(data.shape[0], indices.shape[0])
    ):
        raise SchemaError(f"{what} is damaged: indptr does not fit")
    for vector in (data, indices):
        plain = int(indptr[-1]) * vector.dtype.itemsize
        check_expansion(vector.id.get_storage_size(), plain, f"{vector.name} of {what}")
    edges = RowEdges(shape[0], rows)
    matrix = _Matrix(what, data, indices, indptr, *shape, dtype)
    load = _csr_block if kind == "csr" else _csc_block
    return BlockSource(edges, lambda i: load(matrix, (edges[i], edges[i + 1])))


class _Matrix(NamedTuple):
    """The three vectors of a compressed matrix, of which `data` and `indices` are in the file."""

    what: str
    data: Any
    indices: Any
    indptr: NDArray[np.int64]
    n_rows: int
    n_columns: int
    dtype: np.dtype[Any]

    def check(self, positions: NDArray[Any], size: int) -> NDArray[np.int64]:
        """Return positions along an axis of some size; negative ones would count from its end."""
        if positions.dtype.kind not in "iu":
            raise SchemaError(f"{self.what} is damaged: its indices are no whole numbers")
        if len(positions) and not (0 <= positions.min() and positions.max() < size):
            raise SchemaError(f"{self.what} is damaged: an index is outside of 0 to {size - 1}")
        return positions.astype(np.int64, copy=False)


def _vector(group: Any, part: str) -> Any:
    found = find(group, part)
    if getattr(found, "ndim", None) != 1:
        raise SchemaError(f"the sparse matrix {group.name!r} is damaged: {part} is no vector")
    return found


def _csr_block(matrix: _Matrix, rows: tuple[int, int]) -> NDArray[Any]:
    lo, hi = rows
    start, stop = int(matrix.indptr[lo]), int(matrix.indptr[hi])
    out = np.zeros((hi - lo, matrix.n_columns), dtype=matrix.dtype)
    for first in range(start, stop, SLAB):
        last = min(first + SLAB, stop)
        row = np.searchsorted(matrix.indptr[lo : hi + 1], np.arange(first, last), "right") - 1
        column = matrix.check(read_rows(matrix.indices, first, last), matrix.n_columns)
        # entries that name one cell twice add up, as scipy defines it
        np.add.at(out, (row, column), read_rows(matrix.data, first, last))
    return out


def _csc_block(matrix: _Matrix, rows: tuple[int, int]) -> NDArray[Any]:
    lo, hi = rows
    out = np.zeros((hi - lo, matrix.n_columns), dtype=matrix.dtype)
    for start in range(0, int(matrix.indptr[-1]), SLAB):
        stop = min(start + SLAB, int(matrix.indptr[-1]))
        row = matrix.check(read_rows(matrix.indices, start, stop), matrix.n_rows)
        inside = np.flatnonzero((row >= lo) & (row < hi))
        column = np.searchsorted(matrix.indptr, inside + start, side="right") - 1
        np.add.at(out, (row[inside] - lo, column), read_rows(matrix.data, start, stop)[inside])
    return out
