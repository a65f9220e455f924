"""BRAS by moments: unit vectors added up by cell, and scores of rows from those sums."""

from __future__ import annotations

import math

import numpy as np

from croma_dask.kernels.constants import LANES
from croma_dask.kernels.dots import dot
from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F64, I32, I64, Floats, Scalar

__all__ = ["GOOD", "NOT_FINITE", "TOO_SHORT", "add_units", "score_rows"]

GOOD, NOT_FINITE, TOO_SHORT = 0, 1, 2
"""What is wrong with a row."""

_LARGE = 1e150
"""Beyond this a row is made shorter before it is squared."""

_SHORTEST = 1e-12
"""Rows that are not longer have no direction."""

_ZERO_BELOW = 1e-12
"""Mean distances below this are 0: what is left of them between equal directions."""


@inlined
def _unit(x: Floats, origin: F64, lanes: F64, out: F64) -> Scalar:
    """Write `x / |x| - origin`; return what is wrong with the row, if anything is."""
    largest = 0.0
    for f in range(x.shape[0]):
        value = np.float64(x[f])
        if not math.isfinite(value):
            return NOT_FINITE
        largest = max(largest, abs(value))
        out[f] = value
    shrink = largest if largest > _LARGE else 1.0
    if shrink != 1.0:
        for f in range(out.shape[0]):
            out[f] /= shrink
    length = math.sqrt(dot(out, out, lanes))
    if length * shrink <= _SHORTEST:
        return TOO_SHORT
    for f in range(out.shape[0]):
        out[f] = out[f] / length - origin[f]
    return GOOD


@kernel
def add_units(x: Floats, origin: F64, cell: I32, total: F64, square: F64, fault: I32) -> None:
    """Add rows, in their order, to the moments of their cells.

    Parameters
    ----------
    x
        (n, D) rows.
    origin
        (D,) what is taken off their unit vectors, so that the digits that tell the rows of a
        narrow cone apart are not lost.
    cell
        (n,) cell (label and batch) of each row.
    total, square
        (C, D) sums of the vectors v that are left, (C,) sums of their squared lengths.
    fault
        (n,) result: `GOOD`, or what is wrong with a row, which is then left out.
    """
    lanes, v = np.empty(LANES), np.empty(x.shape[1])
    for i in range(x.shape[0]):
        fault[i] = _unit(x[i], origin, lanes, v)
        if fault[i] != GOOD:
            continue
        into = total[cell[i]]
        for f in range(v.shape[0]):
            into[f] += v[f]
        square[cell[i]] += dot(v, v, lanes)


@kernel
def score_rows(
    x: Floats, origin: F64, cell: I32, size: I64, own_mean: F64, own_square: F64, other_mean: F64,
    other_square: F64, out: F64,
) -> None:  # fmt: skip
    """Scores `1 - |s|` of rows.

    The cosine distance of two rows is half the squared distance of their unit vectors, so its mean
    over a set is `(|v|^2 + mean |w|^2) / 2 - <v, mean w>`, wherever the origin of v and w lies.

    Parameters
    ----------
    x, origin, cell
        As of :func:`add_units`.
    size
        (C,) rows of each cell.
    own_mean, own_square
        (C, D) mean of the v of each cell, and (C,) of their squared lengths.
    other_mean, other_square
        The same of the other batches of the cell's label.
    out
        (n,) result.
    """
    lanes, v = np.empty(LANES), np.empty(x.shape[1])
    for i in range(x.shape[0]):
        c = cell[i]
        if size[c] == 1:
            out[i] = 1.0
            continue
        _unit(x[i], origin, lanes, v)
        square = dot(v, v, lanes)
        # The row itself is at distance 0: to the others of its cell the mean is n / (n - 1) times.
        own = 0.5 * (square + own_square[c]) - dot(v, own_mean[c], lanes)
        own *= size[c] / (size[c] - 1.0)
        other = 0.5 * (square + other_square[c]) - dot(v, other_mean[c], lanes)
        own = own if own >= _ZERO_BELOW else 0.0
        other = other if other >= _ZERO_BELOW else 0.0
        larger = max(own, other)
        out[i] = 1.0 - abs(other - own) / larger if larger > 0.0 else 1.0
