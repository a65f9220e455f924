"""How strongly a row holds on to each of its neighbours: the directed weights of UMAP's graph.

The nearest neighbour weighs 1, and the others less by ``exp(-(d - rho) / scale)``, where the scale
is found by bisection such that the weights of a row sum up to a number that depends on its length
alone.

Partitions of the graph hang on the last bits of its weights, so that these are made in the steps of
the reference: distances, their differences, scales and weights are float32, the bisection float64.
"""

from __future__ import annotations

import math

import numpy as np

from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F32, F64, I32, Scalar

_STEPS = 64
_TOLERANCE = 1e-5
_LEAST_SCALE = 1e-3

# Within these the squares of distances are float32 numbers, and the bisection, which starts at 1,
# gets to them in time. Outside, a row is multiplied by a power of two first.
_LOWEST = 1e-12
_HIGHEST = 1e12


@inlined
def scale_of(distance: F32, n: int, rho: Scalar) -> float:
    """Scale at which the weights of the first n distances sum up to ``log2(n + 1)``."""
    target = np.log2(n + 1.0)
    low, high, scale = 0.0, np.inf, 1.0
    for _ in range(_STEPS):
        total = 0.0
        for e in range(n):
            beyond = distance[e] - rho
            total += np.exp(-np.float64(beyond) / scale) if beyond > 0.0 else 1.0
        if abs(total - target) < _TOLERANCE:
            break
        if total > target:
            high = scale
        else:
            low = scale
        scale = 2.0 * scale if high == np.inf else 0.5 * (low + high)
    return scale


@inlined
def as_float32(distance: F64, n: int, out: F32) -> None:
    """Take the first n distances as roots of their squares in float32, as others have them."""
    largest = distance[n - 1] if n else 0.0
    factor = 1.0
    if largest > 0.0 and not _LOWEST <= largest <= _HIGHEST:
        factor = math.ldexp(1.0, -math.frexp(largest)[1])
    for e in range(n):
        d = factor * distance[e]
        out[e] = np.sqrt(np.float32(d * d))


@kernel
def fuzzy_weights(index: I32, distance: F64, weight: F32) -> None:
    """Weigh the neighbours of some rows.

    Parameters
    ----------
    index, distance
        (n, m) nearest first, without the row itself; -1 behind the last.
    weight
        (n, m) for the result; 0 where there is no neighbour.
    """
    d = np.empty(index.shape[1], np.float32)
    for i in range(index.shape[0]):
        n = 0
        while n < index.shape[1] and index[i, n] >= 0:
            n += 1
        as_float32(distance[i], n, d)
        rho = np.float32(0.0)
        total = 0.0
        for e in range(n):
            if rho == 0.0:
                rho = d[e]
            total += np.float64(d[e])
        # The row itself counts for its mean, as one at distance 0.
        scale = np.float32(max(scale_of(d, n, rho), _LEAST_SCALE * total / (n + 1)))
        for e in range(n):
            weight[i, e] = np.exp(-((d[e] - rho) / scale)) if d[e] > rho else np.float32(1.0)
        weight[i, n:] = 0.0
