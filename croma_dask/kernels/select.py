"""One walk over a tile of the distance matrix that serves its rows and its columns.

A range of rows carries three lists a row (global, SO, OS), each a buffer of twice the length that
it must deliver. A candidate nearer than the list's threshold is appended; a full buffer is cut to
its nearer half, whose farthest entry becomes the threshold. So nothing nearer than the threshold
was ever dropped, which is what the certificate of exactness needs.

An entry is one int64 key: the bits of its (non-negative) float32 distance above its row position.
Keys order as (distance, row) does, and one store appends one, which is what the column side needs,
whose lists lie all over the cache.

The rows of a range are sorted by cell (label and confounder), so that a row meets runs of columns
of one type: the threshold that counts is known for the whole run, and stretches that hold
nothing near enough are skipped many entries at a time.
"""

from __future__ import annotations

import numpy as np

from croma_dask.kernels.constants import GLOBAL, N_LISTS, OS, SO
from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F32, I32, I64, Scalar

_STRETCH = 64
"""Columns that are tested together before any is looked at alone."""


@inlined
def keep_least(a: I64, n: int, keep: int) -> None:
    """Bring the `keep` least of the first `n` keys to the front, in place.

    Quickselect whose inner loop has no branch to mispredict.
    """
    lo, hi = 0, n
    while hi - lo > 1:
        x, y, z = a[lo], a[(lo + hi) // 2], a[hi - 1]
        pivot = max(min(x, y), min(max(x, y), z))
        k = lo
        for i in range(lo, hi):
            v = a[i]
            a[i] = a[k]
            a[k] = v
            k += v < pivot
        if k >= keep:
            if k == keep:
                return
            hi = k
            continue
        # Everything from k on is >= pivot and holds it: bring the pivots (one, as keys are
        # distinct, but never rely on it to terminate) next, then go on behind them.
        m = k
        for i in range(k, hi):
            v = a[i]
            a[i] = a[m]
            a[m] = v
            m += v <= pivot
        if m >= keep:
            return
        lo = m


@inlined
def distance_of(key: Scalar) -> Scalar:
    """Return the float32 screening distance of a key."""
    return np.int32(key >> np.int64(32)).view(np.float32)


@inlined
def cut(
    keys: I64, fill: I32, threshold: F32, limit: F32, length: I32, start: I32, r: int, q: int
) -> None:
    """Cut list q of row r to its nearest entries, lower its threshold and what follows from it."""
    lo, keep = start[q], length[q]
    entries = keys[r, lo : lo + 2 * keep]
    keep_least(entries, fill[q, r], keep)
    worst = entries[0]
    for i in range(1, keep):
        worst = max(worst, entries[i])
    fill[q, r] = keep
    threshold[q, r] = distance_of(worst)
    near = threshold[GLOBAL, r]
    limit[GLOBAL, r] = near
    limit[SO, r] = max(near, threshold[SO, r])
    limit[OS, r] = max(near, threshold[OS, r])


@inlined
def append(
    keys: I64, fill: I32, threshold: F32, limit: F32, length: I32, start: I32,
    r: int, q: int, key: Scalar,
) -> None:  # fmt: skip
    """Append an entry to list q of row r; cut the list where it is full."""
    n = fill[q, r]
    keys[r, start[q] + n] = key
    fill[q, r] = n + 1
    if n + 1 == 2 * length[q]:
        cut(keys, fill, threshold, limit, length, start, r, q)


@inlined
def offer(
    keys: I64, fill: I32, threshold: F32, limit: F32, length: I32, start: I32,
    r: int, kind: int, d: Scalar, key: Scalar,
) -> None:  # fmt: skip
    """Append a candidate of type `kind` (GLOBAL stands for SS and OO) to the lists it enters."""
    if d < threshold[GLOBAL, r]:
        append(keys, fill, threshold, limit, length, start, r, GLOBAL, key)
    if kind != GLOBAL and d < threshold[kind, r]:
        append(keys, fill, threshold, limit, length, start, r, kind, key)


@kernel
def scan_tile(
    dots: F32, diagonal: bool, i0: int, j0: int, length: I32, start: I32,
    half_i: F32, label_i: I32, confounder_i: I32, group_i: I32, position_i: I32,
    half_j: F32, label_j: I32, confounder_j: I32, group_j: I32, position_j: I32, run_end_j: I32,
    take_i: bool, keys_i: I64, fill_i: I32, threshold_i: F32, limit_i: F32,
    take_j: bool, keys_j: I64, fill_j: I32, threshold_j: F32, limit_j: F32,
) -> None:  # fmt: skip
    """Offer every pair of the tile to the list of its row and to the list of its column.

    `dots[r, c]` is the product of centred row `i0 + r` of range I and `j0 + c` of range J; their
    screening distance is `half_i + half_j - dots`. On a diagonal tile only columns behind the row
    are walked. A side whose `take` is false has already met this pair.
    """
    n_rows, n_columns = dots.shape
    hits = np.empty(_STRETCH, np.int32)
    zero = np.float32(0.0)
    for r in range(n_rows):
        i = i0 + r
        h = half_i[i]
        g = group_i[i]
        own = np.int64(position_i[i])
        line = dots[r]
        c = max(0, i + 1 - j0) if diagonal else 0
        while c < n_columns:
            end = min(n_columns, run_end_j[j0 + c] - j0)
            same_label = label_i[i] == label_j[j0 + c]
            same_confounder = confounder_i[i] == confounder_j[j0 + c]
            kind = GLOBAL
            if same_label and not same_confounder:
                kind = SO
            elif same_confounder and not same_label:
                kind = OS
            if kind == GLOBAL and length[GLOBAL] == 0:
                c = end
                continue
            column_limit = limit_j[kind]
            while c < end:
                stop = min(end, c + _STRETCH)
                mine = limit_i[kind, i]
                w = stop - c
                ln = line[c:stop]
                hs = half_j[j0 + c : j0 + stop]
                cl = column_limit[j0 + c : j0 + stop]
                near = np.int32(0)
                for x in range(w):
                    near += np.int32(h + hs[x] - ln[x] < max(mine, cl[x]))
                if near > 0:
                    n = 0
                    for x in range(w):
                        hits[n] = x
                        n += h + hs[x] - ln[x] < max(mine, cl[x])
                    for at in range(n):
                        x = hits[at]
                        j = j0 + c + x
                        if group_j[j] == g:
                            continue
                        d = np.float32(max(zero, h + hs[x] - ln[x]))
                        high = np.int64(np.float32(d).view(np.int32)) << np.int64(32)
                        if take_i and d < limit_i[kind, i]:
                            offer(
                                keys_i, fill_i, threshold_i, limit_i, length, start,
                                i, kind, d, high | np.int64(position_j[j]),
                            )  # fmt: skip
                        if take_j and d < column_limit[j]:
                            offer(
                                keys_j, fill_j, threshold_j, limit_j, length, start,
                                j, kind, d, high | own,
                            )  # fmt: skip
                c = stop


@kernel
def settle(keys: I64, fill: I32, threshold: F32, limit: F32, length: I32, start: I32) -> None:
    """Cut every list that holds more than it must deliver."""
    for r in range(keys.shape[0]):
        for q in range(N_LISTS):
            if fill[q, r] > length[q]:
                cut(keys, fill, threshold, limit, length, start, r, q)
