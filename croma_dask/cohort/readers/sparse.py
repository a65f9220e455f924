"""Rows of compressed sparse matrices as h5ad files hold them, dense, a block at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import BlockSource
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
    return text, (int(shape[0]), int(shape[1]))


def sparse_rows(group: Any, kind: str, shape: tuple[int, int]) -> BlockSource:
    """Return dense rows of a sparse matrix.

    Notes
    -----
    Memory: one dense block of at most 64 MiB and its entries. A matrix compressed by columns
    (csc) is read once for every block: rows are spread over all of its columns.
    """
    dtype = group["data"].dtype
    rows = max(1, BLOCK_BYTES // (max(1, shape[1]) * dtype.itemsize))
    if kind == "csr":
        rows = min(rows, 4096)
    edges = [*range(0, shape[0], rows), shape[0]]
    indptr = np.asarray(group["indptr"][...]).astype(np.int64)
    expected = shape[0] + 1 if kind == "csr" else shape[1] + 1
    if len(indptr) != expected or indptr[-1] > group["data"].shape[0]:
        raise SchemaError(f"the sparse matrix {group.name!r} is damaged: indptr does not fit")
    load = _csr_block if kind == "csr" else _csc_block
    return BlockSource(
        edges, lambda i: load(group, indptr, (edges[i], edges[i + 1]), shape[1], dtype)
    )


def _csr_block(
    group: Any,
    indptr: NDArray[np.int64],
    rows: tuple[int, int],
    n_columns: int,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    lo, hi = rows
    start, stop = int(indptr[lo]), int(indptr[hi])
    out = np.zeros((hi - lo, n_columns), dtype=dtype)
    row = np.repeat(np.arange(hi - lo), np.diff(indptr[lo : hi + 1]))
    # entries that name one cell twice add up, as scipy defines it
    np.add.at(out, (row, group["indices"][start:stop]), group["data"][start:stop])
    return out


def _csc_block(
    group: Any,
    indptr: NDArray[np.int64],
    rows: tuple[int, int],
    n_columns: int,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    lo, hi = rows
    out = np.zeros((hi - lo, n_columns), dtype=dtype)
    for start in range(0, int(indptr[-1]), SLAB):
        stop = min(start + SLAB, int(indptr[-1]))
        row = np.asarray(group["indices"][start:stop])
        inside = np.flatnonzero((row >= lo) & (row < hi))
        column = np.searchsorted(indptr, inside + start, side="right") - 1
        np.add.at(out, (row[inside] - lo, column), np.asarray(group["data"][start:stop])[inside])
    return out
