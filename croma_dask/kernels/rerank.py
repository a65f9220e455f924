"""From screened lists to exact ones: which pairs still need a float64 distance.

A settled list is `keys[r, start[q] : start[q] + fill[q, r]]`; the arrays here run over the
delivered entries of a row, list after list, `sum(length)` of them.
"""

from __future__ import annotations

import numpy as np

from croma_dask.kernels.constants import GLOBAL, N_LISTS
from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F64, I32, I64, Scalar

_LOW = np.int64(0xFFFFFFFF)


@inlined
def find(sorted_rows: I32, n: int, row: Scalar) -> int:
    """Position of `row` among the first n of `sorted_rows`, or -1."""
    lo, hi = 0, n
    while lo < hi:
        mid = (lo + hi) // 2
        if sorted_rows[mid] < row:
            lo = mid + 1
        else:
            hi = mid
    if lo < n and sorted_rows[lo] == row:
        return lo
    return -1


@kernel
def collect_pairs(
    keys: I64,
    fill: I32,
    start: I32,
    length: I32,
    r0: int,
    r1: int,
    known_row: I32,
    known_distance: F64,
    known_count: I32,
    distance: F64,
    where: I32,
    query: I32,
    candidate: I32,
) -> int:
    """List the pairs of rows r0..r1 whose exact distance is not known yet; return how many.

    A known distance (`known_row` ascending within a row) goes into `distance` and -1 into
    `where`; for the others `where` is the number of the pair in (`query`, `candidate`). A row
    that stands in the global and in a typed list is one pair.
    """
    n_pairs = 0
    for r in range(r0, r1):
        base = 0
        n_global = fill[GLOBAL, r]
        nearest = keys[r, start[GLOBAL] : start[GLOBAL] + n_global]
        for q in range(N_LISTS):
            for e in range(fill[q, r]):
                key = keys[r, start[q] + e]
                row = np.int32(key & _LOW)
                at = find(known_row[r], known_count[r], row)
                if at >= 0:
                    distance[r, base + e] = known_distance[r, at]
                    where[r, base + e] = -1
                    continue
                twin = -1
                if q != GLOBAL:
                    for g in range(n_global):
                        if nearest[g] == key:
                            twin = g
                            break
                if twin >= 0:
                    where[r, base + e] = where[r, twin]
                    continue
                query[n_pairs] = r
                candidate[n_pairs] = row
                where[r, base + e] = n_pairs
                n_pairs += 1
            base += length[q]
    return n_pairs


@kernel
def spread(
    where: I32, fill: I32, length: I32, r0: int, r1: int, pair_distance: F64, distance: F64
) -> None:
    """Put the distances of the collected pairs where they belong."""
    for r in range(r0, r1):
        base = 0
        for q in range(N_LISTS):
            for e in range(fill[q, r]):
                if where[r, base + e] >= 0:
                    distance[r, base + e] = pair_distance[where[r, base + e]]
            base += length[q]
