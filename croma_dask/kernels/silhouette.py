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
    x: Floats, origin: F64, group: I32, centres: F64, spread: F64, doubt: F64, size: I64,
    label_of: I32, count: I64, relative: float, low: F64, high: F64,
) -> None:  # fmt: skip
    """Bounds of the silhouettes of rows, see :mod:`croma_dask.embedding.silhouette_bounds`.

    Parameters
    ----------
    x, origin, group
        As of :func:`add_moments`.
    centres, spread
        (D, G) centres of the groups less `origin`; (G,) mean squared distance of a group's rows
        from its centre, or a little more.
    doubt
        (G,) how far from its centre what is given for it may lie.
    size, label_of
        (G,) rows and label of each group; the groups of a label lie one behind the other.
    count
        (L,) rows of each label.
    relative
        What a computed distance may be off, relative to itself and to how far x is from `origin`.
    low, high
        (n,) result.
    """
    d, n_groups = centres.shape
    n_labels = count.shape[0]
    v, squares = np.empty(d), np.empty(n_groups)
    least, most = np.empty(n_labels), np.empty(n_labels)
    for i in range(x.shape[0]):
        length = 0.0
        for f in range(d):
            v[f] = np.float64(x[i, f]) - origin[f]
            length += v[f] * v[f]
        mine = group[i]
        own = label_of[mine]
        if count[own] == 1:
            low[i] = high[i] = 0.0
            continue
        least[:] = 0.0
        most[:] = 0.0
        off = relative * math.sqrt(length)
        squares[:] = 0.0
        for f in range(d):
            across = centres[f]
            for g in range(n_groups):
                t = v[f] - across[g]
                squares[g] += t * t
        for g in range(n_groups):
            apart = math.sqrt(squares[g])
            slack = relative * apart + off + doubt[g]
            near, far = max(0.0, apart - slack), apart + slack
            n = np.float64(size[g])
            c = label_of[g]
            least[c] += n * near
            # The row is one of its own group: of the others the mean square is n / (n - 1) as much.
            others = n - 1.0 if g == mine else n
            most[c] += math.sqrt(n * others * (far * far + spread[g]))
        low_b, high_b = np.inf, np.inf
        for c in range(n_labels):
            if c != own and count[c] > 0:
                low_b = min(low_b, least[c] / count[c])
                high_b = min(high_b, most[c] / count[c])
        low[i] = _width(most[own] / (count[own] - 1), low_b)
        high[i] = _width(least[own] / (count[own] - 1), high_b)
