"""Local inverse Simpson index of rows of neighbours: one search for a bandwidth a row.

Neighbour j weighs ``exp(-beta d_j)``, with the plain distance, not its square. `beta` is sought
such that the entropy of the weights is the logarithm of the perplexity, which is the number of
neighbours that count. The index is one over the sum of the squared shares of the categories: how
many categories there are in effect, from 1 to as many as there are.

The search is that of scib-metrics 0.5.10: double or halve until the entropy lies between two
values, then bisect, until it is off by less than 1e-5 or after 50 updates. Three things differ,
and none of them the answer where that answer is right:

* The least distance is taken off first. Weights keep their ratios by that, and cannot all
  underflow. There, in float32, they do where the distances of a row are large and close to each
  other, which ends the search at a bandwidth that rounding has chosen.
* It starts at the power of two that suits the row instead of at 1. Between doubling and bisecting
  it passes the same powers of two, so it ends at the same `beta`, and never at the limit of 50
  only because distances are small or large.
* Where no `beta` fits, since the neighbours, or those at the least distance, are fewer, or more,
  than the perplexity, the limit is taken that the search comes near to: equal weights.
"""

from __future__ import annotations

import math

import numpy as np

from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F64, I32

_TOLERANCE = 1e-5
"""Of the entropy."""

_UPDATES = 50

_LEAST_NORMAL = np.float32(2.0**-126)
"""Where scib-metrics' float32 underflows to 0: it knows no smaller numbers."""


@inlined
def weigh(distance: F64, n: int, beta: float, weight: F64) -> float:
    """Weigh `n` neighbours by their distances, the least of which is 0; return the entropy."""
    total, moment = 0.0, 0.0
    for j in range(n):
        w = math.exp(-beta * distance[j])
        weight[j] = w
        total += w
        moment += w * distance[j]
    return math.log(total) + beta * moment / total


@inlined
def fit_weights(distance: F64, n: int, perplexity: float, weight: F64) -> None:
    """Fill `weight` with the weights of `n` neighbours; take the least off `distance`."""
    least = distance[0]
    for j in range(1, n):
        least = min(least, distance[j])
    spread = 0.0
    n_least = 0
    for j in range(n):
        distance[j] -= least
        spread += distance[j]
        n_least += distance[j] == 0.0
    if n < perplexity or n_least > perplexity:
        for j in range(n):
            weight[j] = 1.0 if n < perplexity or distance[j] == 0.0 else 0.0
        return
    exponent = math.frexp(spread / n)[1]
    beta = math.ldexp(1.0, -min(1000, max(-1000, exponent)))
    low, high = 0.0, math.inf
    wanted = math.log(perplexity)
    entropy = weigh(distance, n, beta, weight)
    for _ in range(_UPDATES):
        if abs(entropy - wanted) < _TOLERANCE:
            break
        if entropy > wanted:
            low = beta
            beta = beta * 2.0 if high == math.inf else (beta + high) / 2.0
        else:
            # Halving, as long as there is no lower end but 0.
            high = beta
            beta = (beta + low) / 2.0
        entropy = weigh(distance, n, beta, weight)


@inlined
def weigh_in_float32(distance: F64, n: int, beta: np.float32, weight: F64) -> np.float32:
    """Weigh as scib-metrics does; its entropy is 0 where every weight has underflowed."""
    total, moment = np.float32(0.0), np.float32(0.0)
    for j in range(n):
        d = np.float32(distance[j])
        w = np.float32(math.exp(np.float32(-d * beta)))
        if w < _LEAST_NORMAL:
            w = np.float32(0.0)
        else:
            moment += d * w
        weight[j] = w
        total += w
    if total == np.float32(0.0):
        return np.float32(0.0)
    return np.float32(np.float32(math.log(total)) + beta * moment / total)


@inlined
def fit_weights_in_float32(distance: F64, n: int, perplexity: float, weight: F64) -> bool:
    """Fill `weight` as scib-metrics does; False where its entropy has ended at 0, which is -1."""
    half, two = np.float32(0.5), np.float32(2.0)
    wanted = np.float32(math.log(perplexity))
    beta = np.float32(1.0)
    low, high = np.float32(0.0), np.float32(np.inf)
    entropy = weigh_in_float32(distance, n, beta, weight)
    for _ in range(_UPDATES):
        if abs(entropy - wanted) < np.float32(_TOLERANCE):
            break
        if entropy > wanted:
            low = beta
            beta = beta * two if high == np.float32(np.inf) else (beta + high) * half
        else:
            high = beta
            beta = (beta + low) * half
        entropy = weigh_in_float32(distance, n, beta, weight)
    return bool(entropy != np.float32(0.0))


@kernel
def lisi_rows(
    index: I32, distance: F64, codes: I32, n_categories: int, width: I32, perplexity: F64,
    in_float32: bool, out: F64,
) -> None:  # fmt: skip
    """Write the local inverse Simpson index of every row of a block of neighbour lists.

    Parameters
    ----------
    index, distance
        (n, k) positions of the neighbours and their distances, the row itself not among them;
        entries with a negative index are skipped.
    codes
        (N,) category of each position, 0 to `n_categories` - 1.
    n_categories
        Number of categories.
    width, perplexity
        (n,) columns of the row that are looked at, and its perplexity.
    in_float32
        Do as scib-metrics does: weights may vanish, and -1 stands for those that all have.
    out
        (n,) the result, at least 1; NaN for rows without neighbours, unless `in_float32`.
    """
    n, k = index.shape
    near = np.empty(k, np.float64)
    weight = np.empty(k, np.float64)
    category = np.empty(k, np.int32)
    mass = np.zeros(n_categories, np.float64)
    for r in range(n):
        m = 0
        for j in range(min(k, width[r])):
            if index[r, j] >= 0:
                near[m] = distance[r, j]
                category[m] = codes[index[r, j]]
                m += 1
        if in_float32:
            if not fit_weights_in_float32(near, m, perplexity[r], weight):
                out[r] = -1.0
                continue
        elif m == 0:
            out[r] = np.nan
            continue
        else:
            fit_weights(near, m, perplexity[r], weight)
        total, squares = 0.0, 0.0
        for j in range(m):
            total += weight[j]
            mass[category[j]] += weight[j]
        # In the order of the list, not of the codes: other names for the categories change nothing.
        for j in range(m):
            squares += mass[category[j]] * mass[category[j]]
            mass[category[j]] = 0.0
        lisi = total * total / squares
        if lisi < 1.0:  # not max(): NaN has to stay NaN
            lisi = 1.0
        out[r] = lisi
