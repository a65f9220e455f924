"""BRAS by moments: unit vectors added up by cell, and scores of rows from means and spreads.

The cosine distance of two rows is half the squared distance of their unit vectors, so its mean over
a set of mean m and spread v (the mean squared distance from m) is `(|u - m|^2 + v) / 2`.
"""

from __future__ import annotations

import math

import numpy as np

from croma_dask.kernels.constants import LANES
from croma_dask.kernels.dots import dot, euclidean
from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F64, I32, I64, Floats, Scalar

__all__ = ["GOOD", "NOT_FINITE", "TOO_SHORT", "add_units", "merge_others", "score_rows"]

GOOD, NOT_FINITE, TOO_SHORT = 0, 1, 2
"""What is wrong with a row."""

_LARGE = 1e150
"""Beyond this a row is made shorter before it is squared."""

_SHORTEST = 1e-12
"""Rows that are not longer have no direction."""

_ZERO_BELOW = 1e-12
"""Mean distances below this are 0: what is left of them between equal directions."""


@inlined
def _clear(out: F64) -> None:
    # A loop: `out[:] = 0.0` takes numba half a second to compile.
    for f in range(out.shape[0]):
        out[f] = 0.0


@inlined
def _unit(x: Floats, lanes: F64, out: F64) -> Scalar:
    """Write `x / |x|`, or zeros; return what is wrong with the row, if anything is."""
    largest = 0.0
    for f in range(x.shape[0]):
        value = np.float64(x[f])
        if not math.isfinite(value):
            _clear(out)
            return NOT_FINITE
        largest = max(largest, abs(value))
        out[f] = value
    shrink = largest if largest > _LARGE else 1.0
    if shrink != 1.0:
        for f in range(out.shape[0]):
            out[f] /= shrink
    length = math.sqrt(dot(out, out, lanes))
    if length * shrink <= _SHORTEST:
        _clear(out)
        return TOO_SHORT
    for f in range(out.shape[0]):
        out[f] /= length
    return GOOD


@kernel
def add_units(
    x: Floats, origins: F64, origin_of: I32, cell: I32, total: F64, square: F64, fault: I32
) -> None:
    """Add rows, in their order, to the moments of their cells.

    Parameters
    ----------
    x
        (n, D) rows.
    origins
        (K, D) what is taken off their unit vectors, so that the digits that tell the rows of a
        narrow cone apart are not lost.
    origin_of
        (C,) which of them is taken off the rows of each cell.
    cell
        (n,) cell (label and batch) of each row.
    total, square
        (C, D) sums of the vectors v that are left, (C,) sums of their squared lengths.
    fault
        (n,) result: `GOOD`, or what is wrong with a row, which is then left out.
    """
    lanes, v = np.empty(LANES), np.empty(x.shape[1])
    for i in range(x.shape[0]):
        fault[i] = _unit(x[i], lanes, v)
        if fault[i] != GOOD:
            continue
        into, origin = total[cell[i]], origins[origin_of[cell[i]]]
        for f in range(v.shape[0]):
            v[f] -= origin[f]
            into[f] += v[f]
        square[cell[i]] += dot(v, v, lanes)


@inlined
def _merge(
    weight: Scalar, mean: F64, spread: Scalar, by: Scalar, other: F64, other_spread: Scalar
) -> Scalar:
    """Put a set of weight `by` to another one: its mean becomes that of both; returns the spread.

    Nothing is subtracted but the means from one another, so no digits are lost.
    """
    a, b = weight / (weight + by), by / (weight + by)
    apart = 0.0
    for f in range(mean.shape[0]):
        step = other[f] - mean[f]
        mean[f] += b * step
        apart += step * step
    return a * spread + b * other_spread + a * b * apart


@kernel
def merge_others(
    label: I64, weight: F64, mean: F64, spread: F64, out_mean: F64, out_spread: F64
) -> None:
    """Means and spreads of what lies around each cell within its label, from before and behind.

    (Taking a cell off the whole label would leave little of the digits of a small rest.)

    Parameters
    ----------
    label
        (C,) label of each cell, sorted.
    weight
        (C,) what a cell counts.
    mean, spread
        (C, D) and (C,) of each cell.
    out_mean, out_spread
        (C, D) and (C,) result; zeros for the only cell of a label.
    """
    n, d = mean.shape
    before = np.zeros(n)
    so_far = np.empty(d)
    held = v = 0.0
    for k in range(n):
        if k == 0 or label[k] != label[k - 1]:
            _clear(so_far)
            held = v = 0.0
        for f in range(d):
            out_mean[k, f] = so_far[f]
        before[k], out_spread[k] = held, v
        v = _merge(held, so_far, v, weight[k], mean[k], spread[k])
        held += weight[k]
    for k in range(n - 1, -1, -1):
        if k == n - 1 or label[k] != label[k + 1]:
            _clear(so_far)
            held = v = 0.0
        if held > 0.0:
            out_spread[k] = _merge(before[k], out_mean[k], out_spread[k], held, so_far, v)
        v = _merge(held, so_far, v, weight[k], mean[k], spread[k])
        held += weight[k]


@kernel
def score_rows(
    x: Floats, cell: I32, size: I64, own_mean: F64, own_spread: F64, other_mean: F64,
    other_spread: F64, out: F64,
) -> None:  # fmt: skip
    """Scores `1 - |s|` of rows.

    Parameters
    ----------
    x, cell
        As of :func:`add_units`.
    size
        (C,) rows of each cell.
    own_mean, own_spread
        (C, D) mean of the unit vectors of each cell, (C,) and their spread.
    other_mean, other_spread
        The same of the other batches of the cell's label.
    out
        (n,) result.
    """
    lanes, u = np.empty(LANES), np.empty(x.shape[1])
    for i in range(x.shape[0]):
        c = cell[i]
        if size[c] == 1:
            out[i] = 1.0
            continue
        _unit(x[i], lanes, u)
        apart = euclidean(u, own_mean[c], lanes)
        # The row itself is at distance 0: to the others of its cell the mean is n / (n - 1) times.
        own = 0.5 * (apart * apart + own_spread[c]) * (size[c] / (size[c] - 1.0))
        apart = euclidean(u, other_mean[c], lanes)
        other = 0.5 * (apart * apart + other_spread[c])
        own = own if own >= _ZERO_BELOW else 0.0
        other = other if other >= _ZERO_BELOW else 0.0
        larger = max(own, other)
        out[i] = 1.0 - abs(other - own) / larger if larger > 0.0 else 1.0
