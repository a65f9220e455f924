"""Statistics of resampled rows, from the multiplicity of each group: nothing is concatenated.

A draw takes every row as often as its group was drawn. Rows are sorted by value once; a draw walks
along them and adds up multiplicities until it has come as far as the statistic asks.
"""

from __future__ import annotations

import math

import numpy as np

from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F64, I32, I64, Scalar

__all__ = ["resampled_medians", "resampled_sums", "resampled_tails"]


@kernel
def resampled_sums(times: I32, sums: F64, out: F64) -> None:
    """Add sums up over the drawn groups.

    Parameters
    ----------
    times
        (draws, G) how often each group was drawn.
    sums
        (G, C) sums over the rows of each group.
    out
        (draws, C) result. Groups are added in their order, so the bits depend on nothing else.
    """
    for d in range(times.shape[0]):
        for c in range(sums.shape[1]):
            out[d, c] = 0.0
        for g in range(times.shape[1]):
            n = times[d, g]
            if n:
                for c in range(sums.shape[1]):
                    out[d, c] += n * sums[g, c]


@inlined
def _total(times: I32, group: I32, start: Scalar, stop: Scalar) -> Scalar:
    """Length of the resampled rows start..stop."""
    total = 0
    for i in range(start, stop):
        total += times[group[i]]
    return total


@inlined
def _walk(times: I32, group: I32, i: Scalar, before: Scalar, position: Scalar) -> Scalar:
    """Row at a position of the resampled rows, which has to be there, and how many come before it.

    The walk goes on from row `i`, before which there are `before`.
    """
    after = before + times[group[i]]
    while after <= position:
        before = after
        i += 1
        after += times[group[i]]
    return i, before


@kernel
def resampled_medians(times: I32, group: I32, values: F64, first: I64, out: F64) -> None:
    """Find the medians of the resampled rows of each subset.

    Parameters
    ----------
    times
        (draws, G) how often each group was drawn.
    group, values
        (n,) group and value of each row, by subset, and in each subset ascending.
    first
        (subsets + 1,) where each subset begins.
    out
        (draws, subsets) result; NaN where nothing was drawn.
    """
    for d in range(times.shape[0]):
        of = times[d]
        for s in range(first.shape[0] - 1):
            total = _total(of, group, first[s], first[s + 1])
            if total == 0:
                out[d, s] = np.nan
                continue
            i, before = _walk(of, group, first[s], 0, (total - 1) // 2)
            j, before = _walk(of, group, i, before, total // 2)
            out[d, s] = (values[i] + values[j]) / 2.0


@kernel
def resampled_tails(times: I32, group: I32, values: F64, alpha: Scalar, out: F64) -> None:
    """Find the lower-tail mean of the resampled rows, and the share of values at or below 0.

    Parameters
    ----------
    times
        (draws, G) how often each group was drawn.
    group, values
        (n,) group and value of each row, ascending.
    alpha
        Tail, in [0, 1].
    out
        (draws, 2) result: mean of the values at or below the alpha quantile (linear interpolation),
        and the share; NaN where nothing was drawn.
    """
    n = values.shape[0]
    positive = 0
    while positive < n and values[positive] <= 0.0:
        positive += 1
    for d in range(times.shape[0]):
        of = times[d]
        below = _total(of, group, 0, positive)
        total = below + _total(of, group, positive, n)
        if total == 0:
            out[d, 0] = out[d, 1] = np.nan
            continue
        out[d, 1] = below / total
        place = alpha * (total - 1)
        low = min(int(math.floor(place)), total - 1)
        i, before = _walk(of, group, 0, 0, low)
        j, _ = _walk(of, group, i, before, min(low + 1, total - 1))
        # As numpy interpolates, so that the same values are at or below it.
        apart, part = values[j] - values[i], place - low
        q = values[j] - apart * (1.0 - part) if part >= 0.5 else values[i] + apart * part
        tail, count, at = 0.0, 0, 0
        while at < n and values[at] <= q:
            tail += of[group[at]] * values[at]
            count += of[group[at]]
            at += 1
        out[d, 0] = tail / count
