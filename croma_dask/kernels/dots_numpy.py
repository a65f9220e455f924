"""The same distances as :mod:`croma_dask.kernels.dots`, bit for bit, without a compiler.

Small cohorts are scored in less time than numba takes to start, so they go this way; it is also
the oracle that the compiled kernels are tested against.
"""

from __future__ import annotations

import numpy as np

from croma_dask.kernels.constants import LANES, ZERO_BELOW
from croma_dask.kernels.typing import F64, I32, Floats

_PAIRS_AT_ONCE = 1 << 21
"""Products held at once: 16 MiB of float64."""


def _halve(lanes: F64) -> F64:
    half = lanes.shape[1]
    while half > 1:
        half //= 2
        lanes[:, :half] += lanes[:, half : 2 * half]
    return lanes[:, 0].copy()


def row_dots(x: Floats, y: Floats) -> F64:
    """`<x[p], y[p]>` of every row p, in the fixed order.

    Parameters
    ----------
    x, y
        (P, D) rows, float32 or float64.
    """
    lanes = np.zeros((x.shape[0], LANES))
    for t in range(0, x.shape[1], LANES):
        a = x[:, t : t + LANES].astype(np.float64, copy=False)
        b = y[:, t : t + LANES].astype(np.float64, copy=False)
        lanes[:, : a.shape[1]] += a * b
    return _halve(lanes)


def squared_norms(x: Floats) -> F64:
    """`<x, x>` of every row."""
    out = np.empty(x.shape[0])
    step = max(1, _PAIRS_AT_ONCE // max(x.shape[1], LANES))
    for lo in range(0, x.shape[0], step):
        out[lo : lo + step] = row_dots(x[lo : lo + step], x[lo : lo + step])
    return out


def pair_distances(
    xq: Floats, qq: F64, xc: Floats, cc: F64, query: I32, candidate: I32, out: F64
) -> None:
    """Distance of row `query[p]` of `xq` to row `candidate[p]` of `xc`, for every p."""
    step = max(1, _PAIRS_AT_ONCE // max(xq.shape[1], LANES))
    for lo in range(0, query.shape[0], step):
        i, j = query[lo : lo + step], candidate[lo : lo + step]
        xx, yy = qq[i], cc[j]
        zero = (xx == 0.0) | (yy == 0.0)
        scale = np.sqrt(xx * yy)
        scale[zero] = 1.0
        d = 1.0 - row_dots(xq[i], xc[j]) / scale
        d[d < ZERO_BELOW] = 0.0
        d[zero] = 1.0
        out[lo : lo + step] = np.minimum(d, 2.0)


def pair_euclidean(xq: Floats, xc: Floats, query: I32, candidate: I32, out: F64) -> None:
    """Euclidean distance of row `query[p]` of `xq` to row `candidate[p]` of `xc`, for every p."""
    step = max(1, _PAIRS_AT_ONCE // max(xq.shape[1], LANES))
    for lo in range(0, query.shape[0], step):
        x = xq[query[lo : lo + step]].astype(np.float64, copy=False)
        apart = x - xc[candidate[lo : lo + step]].astype(np.float64, copy=False)
        out[lo : lo + step] = np.sqrt(row_dots(apart, apart))
