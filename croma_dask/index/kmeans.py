"""k-means whose centres depend on the rows and the seed alone, whatever the number of threads.

That of scikit-learn adds what its threads have summed in the order in which they end, so that from
three threads on no two builds of an index are the same, nor are those with one thread and with two.
Here blocks of a fixed size are summed by whichever thread is free, and added up in their order.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from croma_dask.index.threads import one_blas_thread
from croma_dask.kernels.typing import F32, F64, I64

__all__ = ["kmeans"]

_ENTRIES = 4 << 20
"""Scores of a block of rows: 16 MiB a thread."""


def kmeans(x: F32, n_clusters: int, *, seed: int, iterations: int, n_threads: int) -> F32:
    """Centres of Lloyd's iteration, begun with rows that are drawn at random.

    Parameters
    ----------
    x
        (n, d) rows, at least as many as clusters.
    n_clusters
        Centres.
    seed
        Of the rows that the centres begin with.
    iterations
        How many there are at most.
    n_threads
        Threads that share the work.

    Returns
    -------
    centres
        (n_clusters, d) float32. Where many rows are equal some may have no row.
    """
    n, d = x.shape
    rng = np.random.default_rng([seed, 3])
    centres = np.ascontiguousarray(x[np.sort(rng.choice(n, n_clusters, replace=False))])
    step = max(64, min(4096, _ENTRIES // n_clusters))
    blocks = range(0, n, step)
    with one_blas_thread(), ThreadPoolExecutor(n_threads, "croma-kmeans") as pool:
        for _ in range(iterations):
            half = 0.5 * np.einsum("ij,ij->i", centres, centres)

            def sums(lo: int, half: F32 = half, centres: F32 = centres) -> tuple[I64, F64, I64]:
                return _sums(x[lo : lo + step], centres, half)

            total, count = np.zeros((n_clusters, d)), np.zeros(n_clusters, np.int64)
            for which, part, rows in pool.map(sums, blocks):
                total[which] += part
                count[which] += rows
            empty = np.flatnonzero(count == 0)
            moved = (total / np.maximum(count, 1)[:, None]).astype(np.float32)
            # Centres that nothing is near to begin again elsewhere.
            moved[empty] = x[rng.choice(n, empty.size)]
            if np.array_equal(moved, centres):
                break
            centres = moved
    return centres


def _sums(x: F32, centres: F32, half: F32) -> tuple[I64, F64, I64]:
    """Clusters that some rows are nearest to, with the sums of these rows and their numbers."""
    near = x @ centres.T
    np.subtract(half, near, out=near)
    nearest = near.argmin(axis=1)
    order = np.argsort(nearest, kind="stable")
    which, first, rows = np.unique(nearest[order], return_index=True, return_counts=True)
    return which, np.add.reduceat(x[order].astype(np.float64), first, axis=0), rows
