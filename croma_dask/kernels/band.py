"""Second look at rows whose list could not be certified: every candidate in the error band.

Float32 screening cannot order candidates that lie closer together than its error. For such a row
all candidates whose screened distance reaches into the band are measured exactly, and the least
(distance, row) are kept; nothing outside the band can belong to the list.
"""

from __future__ import annotations

import numpy as np

from croma_dask.kernels.constants import GLOBAL, LANES, OS, SO
from croma_dask.kernels.dots import dot, euclidean, to_distance
from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F32, F64, I32, Floats


@inlined
def insert(distance: F64, row: I32, n: int, d: float, candidate: int) -> int:
    """Insert into a list sorted by (distance, row) with room for `distance.shape[0]`."""
    room = distance.shape[0]
    if n == room:
        last = room - 1
        if d > distance[last] or (d == distance[last] and candidate > row[last]):
            return n
    else:
        n += 1
    e = n - 1
    while e > 0 and (distance[e - 1] > d or (distance[e - 1] == d and row[e - 1] > candidate)):
        distance[e] = distance[e - 1]
        row[e] = row[e - 1]
        e -= 1
    distance[e] = d
    row[e] = candidate
    return n


@kernel
def scan_band(
    dots: F32, i0: int, j0: int,
    x_i: Floats, norm_i: F64, half_i: F32, label_i: I32, confounder_i: I32, group_i: I32,
    x_j: Floats, norm_j: F64, half_j: F32, label_j: I32, confounder_j: I32, group_j: I32,
    position_j: I32, reach: F64, offset: I32, deliver: I32,
    index_out: I32, distance_out: F64, count_out: I32, is_euclidean: bool,
) -> int:  # fmt: skip
    """Measure the candidates of one tile that lie in the band; return how many were measured.

    `reach[q, i]` is the screened distance up to which list q of query i has to look, minus
    infinity where the list needs nothing. `offset[q]` is where list q starts in the outputs.
    `is_euclidean` tells the distance.
    """
    lanes = np.empty(LANES, np.float64)
    measured = 0
    for r in range(dots.shape[0]):
        i = i0 + r
        near = reach[GLOBAL, i]
        same_label_reach = max(near, reach[SO, i])
        same_confounder_reach = max(near, reach[OS, i])
        widest = max(same_label_reach, same_confounder_reach)
        for c in range(dots.shape[1]):
            j = j0 + c
            s = np.float64(half_i[i] + half_j[j] - dots[r, c])
            if s > widest or group_j[j] == group_i[i]:
                continue
            same_label = label_i[i] == label_j[j]
            same_confounder = confounder_i[i] == confounder_j[j]
            kind = GLOBAL
            limit = near
            if same_label and not same_confounder:
                kind = SO
                limit = same_label_reach
            elif same_confounder and not same_label:
                kind = OS
                limit = same_confounder_reach
            if s > limit:
                continue
            if is_euclidean:
                d = euclidean(x_i[i], x_j[j], lanes)
            else:
                d = to_distance(dot(x_i[i], x_j[j], lanes), norm_i[i], norm_j[j])
            measured += 1
            for turn in range(2):
                q = GLOBAL if turn == 0 else kind
                if turn == 1 and kind == GLOBAL:
                    continue
                if s <= reach[q, i]:
                    lo, hi = offset[q], offset[q] + deliver[q]
                    count_out[q, i] = insert(
                        distance_out[i, lo:hi], index_out[i, lo:hi], count_out[q, i], d,
                        position_j[j],
                    )  # fmt: skip
    return measured
