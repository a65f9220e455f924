"""Products of rows with rows whose rounding error does not grow with their length."""

from __future__ import annotations

import numpy as np

from croma_dask.kernels.typing import F32, F64

__all__ = ["product_terms", "products"]

_FEATURES = 1024
"""Features that are multiplied at once. BLAS may add their products in any order."""

_ROWS = 256
"""Rows whose products of further features are held beside those of the first."""


def products(a: F32 | F64, b: F32 | F64, out: F32 | F64) -> None:
    """Write `a @ b.T` into `out`, features in blocks whose sums are added one after the other.

    Parameters
    ----------
    a, b
        (n, D) and (m, D) rows.
    out
        (n, m), of the same dtype.

    Notes
    -----
    The error of a sum in any order grows with the number of its terms, and so would the band around
    a list in which everything has to be measured: of 16,384 features all rows were searched twice.
    Memory: 256 rows of `out`, of more than 1,024 features.
    """
    d = a.shape[1]
    np.matmul(a[:, :_FEATURES], b[:, :_FEATURES].T, out=out)
    if d <= _FEATURES:
        return
    spare = np.empty((min(_ROWS, out.shape[0]), out.shape[1]), out.dtype)
    for r0 in range(0, out.shape[0], _ROWS):
        rows = slice(r0, min(out.shape[0], r0 + _ROWS))
        part = spare[: rows.stop - r0]
        for lo in range(_FEATURES, d, _FEATURES):
            np.matmul(a[rows, lo : lo + _FEATURES], b[:, lo : lo + _FEATURES].T, out=part)
            out[rows] += part


def product_terms(n_features: int) -> int:
    """How many additions an entry of `products` is rounded by at most, one after the other.

    So its error is at most `gamma |a| |b|` with this number in gamma, in whatever order BLAS adds
    the terms of a block.
    """
    return min(n_features, _FEATURES) + max(0, -(-n_features // _FEATURES) - 1)
