"""Silhouettes: exactly, from sums of distances; and between bounds, from the centres of groups."""

from __future__ import annotations

import math

import numpy as np

from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F64, I32, I64, Floats, Scalar

__all__ = ["add_moments", "bound_rows", "silhouettes"]


@inlined
def _width(a: Scalar, b: Scalar) -> Scalar:
    """Silhouette of a mean distance `a` within the own label and `b` to the nearest other one."""
    larger = max(a, b)
    if larger <= 0.0:
        return 0.0
    return (b - a) / larger


@kernel
def silhouettes(sums: I64, label: I32, count: I64, out: F64) -> None:
    """Silhouettes of rows whose sums of distances are known.

    Parameters
    ----------
    sums
        (L, n) sums over all rows of each label, in any unit.
    label
        (n,) own label.
    count
        (L,) rows of each label; a label without any is passed over.
    out
        (n,) result.
    """
    n = label.shape[0]
    own = np.zeros(n)
    nearest = np.full(n, np.inf)
    for c in range(sums.shape[0]):
        if count[c] == 0:
            continue
        for i in range(n):
            if label[i] == c:
                own[i] = np.float64(sums[c, i]) / max(count[c] - 1, 1)
            else:
                nearest[i] = min(nearest[i], np.float64(sums[c, i]) / count[c])
    for i in range(n):
        out[i] = 0.0 if count[label[i]] == 1 else _width(own[i], nearest[i])


@kernel
def add_moments(x: Floats, origin: F64, group: I32, total: F64, square: F64) -> None:
    """Add rows, in their order, to the moments of their groups.

    Parameters
    ----------
    x
        (n, D) rows.
    origin
        (D,) point that is taken off each of them.
    group
        (n,) group of each row.
    total, square
        (G, D) sums of `x - origin`, (G,) sums of their squared lengths.
    """
    for i in range(x.shape[0]):
        into = total[group[i]]
        length = 0.0
        for f in range(x.shape[1]):
            v = np.float64(x[i, f]) - origin[f]
            into[f] += v
            length += v * v
        square[group[i]] += length


@kernel
def bound_rows(
    x: Floats, origin: F64, label: I32, centres: F64, spread: F64, doubt: F64, count: I64,
    relative: float, low: F64, high: F64,
) -> None:  # fmt: skip
    """Bounds of the silhouettes of rows, see :mod:`croma_dask.embedding.silhouette_bounds`.

    Parameters
    ----------
    x, origin, label
        As of :func:`add_moments`, whose groups are the labels.
    centres, spread
        (D, L) centres of the labels less `origin`; (L,) mean squared distance of a label's rows
        from its centre, or a little more.
    doubt
        (L,) how far from its centre what is given for it may lie.
    count
        (L,) rows of each label; a label without any is passed over.
    relative
        What a computed distance may be off, relative to itself and to how far x is from `origin`.
    low, high
        (n,) result.
    """
    d, n_labels = centres.shape
    v, squares = np.empty(d), np.empty(n_labels)
    for i in range(x.shape[0]):
        length = 0.0
        for f in range(d):
            v[f] = np.float64(x[i, f]) - origin[f]
            length += v[f] * v[f]
        own = label[i]
        if count[own] == 1:
            low[i] = high[i] = 0.0
            continue
        off = relative * math.sqrt(length)
        squares[:] = 0.0
        for f in range(d):
            across = centres[f]
            for c in range(n_labels):
                t = v[f] - across[c]
                squares[c] += t * t
        low_a, high_a, low_b, high_b = 0.0, 0.0, np.inf, np.inf
        for c in range(n_labels):
            if count[c] == 0:
                continue
            apart = math.sqrt(squares[c])
            slack = relative * apart + off + doubt[c]
            near, far = max(0.0, apart - slack), apart + slack
            far = math.sqrt(far * far + spread[c])
            if c == own:
                # The row is one of them: of the others the mean square is n / (n - 1) as much.
                more = np.float64(count[c]) / (count[c] - 1)
                low_a, high_a = more * near, math.sqrt(more) * far
            else:
                low_b, high_b = min(low_b, near), min(high_b, far)
        low[i] = _width(high_a, low_b)
        high[i] = _width(low_a, high_b)
