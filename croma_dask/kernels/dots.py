"""Distances in one fixed order of summation: the numbers that every result rests on.

`<x, y>` is summed in `LANES` interleaved lanes in the order of the features, and the lanes are
then added by halving. Tiles, ranges, threads, BLAS and the width of the vector unit cannot change
it. :mod:`croma_dask.kernels.dots_numpy` does the same steps in numpy, with the same bits. Euclidean
distances sum squared differences in the same lanes.
"""

from __future__ import annotations

import math

import numpy as np

from croma_dask.kernels.constants import LANES, ZERO_BELOW
from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F64, I32, Floats, Scalar


@inlined
def halve(lanes: F64) -> Scalar:
    """Add the lanes pairwise, the upper half onto the lower one, until one is left."""
    half = lanes.shape[0]
    while half > 1:
        half //= 2
        for i in range(half):
            lanes[i] += lanes[i + half]
    return lanes[0]


@inlined
def dot(x: Floats, y: Floats, lanes: F64) -> Scalar:
    """`<x, y>` in the fixed order; `lanes` is scratch of length `LANES`."""
    d = x.shape[0]
    width = lanes.shape[0]
    for i in range(width):
        lanes[i] = 0.0
    for t in range(0, d, width):
        w = min(width, d - t)
        xt = x[t : t + w]
        yt = y[t : t + w]
        for i in range(w):
            lanes[i] += np.float64(xt[i]) * np.float64(yt[i])
    return halve(lanes)


@inlined
def to_distance(xy: Scalar, xx: Scalar, yy: Scalar) -> Scalar:
    """Cosine distance from three dot products; a zero row is at 1 from everything."""
    if xx == 0.0 or yy == 0.0:
        return 1.0
    d = 1.0 - xy / math.sqrt(xx * yy)
    if d < ZERO_BELOW:
        return 0.0
    return min(d, 2.0)


@kernel
def squared_norms(x: Floats, out: F64) -> None:
    """`<x, x>` of every row of `x` into `out`."""
    lanes = np.empty(LANES, np.float64)
    for i in range(x.shape[0]):
        out[i] = dot(x[i], x[i], lanes)


@kernel
def pair_distances(
    xq: Floats, qq: F64, xc: Floats, cc: F64, query: I32, candidate: I32, out: F64
) -> None:
    """Distance of row `query[p]` of `xq` to row `candidate[p]` of `xc`, for every p.

    Four pairs go side by side: their rows come from all over memory, and four streams hide
    the latency that one would wait for (measured: 2.7 against 1.7 million a second at
    D = 1,024).
    """
    d = xq.shape[1]
    lanes = np.empty((4, LANES), np.float64)
    l0, l1, l2, l3 = lanes[0], lanes[1], lanes[2], lanes[3]
    n = query.shape[0]
    p = 0
    while p + 4 <= n:
        x0, x1, x2, x3 = xq[query[p]], xq[query[p + 1]], xq[query[p + 2]], xq[query[p + 3]]
        y0, y1 = xc[candidate[p]], xc[candidate[p + 1]]
        y2, y3 = xc[candidate[p + 2]], xc[candidate[p + 3]]
        for i in range(LANES):
            l0[i] = 0.0
            l1[i] = 0.0
            l2[i] = 0.0
            l3[i] = 0.0
        for t in range(0, d, LANES):
            w = min(LANES, d - t)
            u0, u1, u2, u3 = x0[t : t + w], x1[t : t + w], x2[t : t + w], x3[t : t + w]
            v0, v1, v2, v3 = y0[t : t + w], y1[t : t + w], y2[t : t + w], y3[t : t + w]
            for i in range(w):
                l0[i] += np.float64(u0[i]) * np.float64(v0[i])
            for i in range(w):
                l1[i] += np.float64(u1[i]) * np.float64(v1[i])
            for i in range(w):
                l2[i] += np.float64(u2[i]) * np.float64(v2[i])
            for i in range(w):
                l3[i] += np.float64(u3[i]) * np.float64(v3[i])
        for k in range(4):
            out[p + k] = to_distance(halve(lanes[k]), qq[query[p + k]], cc[candidate[p + k]])
        p += 4
    while p < n:
        i, j = query[p], candidate[p]
        out[p] = to_distance(dot(xq[i], xc[j], l0), qq[i], cc[j])
        p += 1


@inlined
def euclidean(x: Floats, y: Floats, lanes: F64) -> Scalar:
    """`||x - y||` in the fixed order; `lanes` is scratch of length `LANES`."""
    d = x.shape[0]
    width = lanes.shape[0]
    for i in range(width):
        lanes[i] = 0.0
    for t in range(0, d, width):
        w = min(width, d - t)
        xt = x[t : t + w]
        yt = y[t : t + w]
        for i in range(w):
            apart = np.float64(xt[i]) - np.float64(yt[i])
            lanes[i] += apart * apart
    return math.sqrt(halve(lanes))


@kernel
def pair_euclidean(xq: Floats, xc: Floats, query: I32, candidate: I32, out: F64) -> None:
    """Euclidean distance of row `query[p]` of `xq` to row `candidate[p]` of `xc`, for every p."""
    lanes = np.empty(LANES, np.float64)
    for p in range(query.shape[0]):
        out[p] = euclidean(xq[query[p]], xc[candidate[p]], lanes)
