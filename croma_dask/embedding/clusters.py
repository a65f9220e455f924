"""Clusters by k-means, one for each label: the alternative to Leiden.

scikit-learn's, with its defaults, a fixed seed and ten initialisations. Its threads add up the sums
of their rows in the order in which they end; on one thread the centres have the same bits every
time. The clusters have been those of several threads wherever the two were compared.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from croma_dask.index.threads import one_blas_thread
from croma_dask.kernels.typing import F64, I32

__all__ = ["kmeans_clusters", "kmeans_note"]

_SEED = 1
_INITIALISATIONS = 10


def kmeans_clusters(x: F64, n_clusters: int) -> I32:
    """Cluster the rows of an embedding.

    Parameters
    ----------
    x
        (n, d) finite rows in row order, all of them in memory.
    n_clusters
        Clusters, at most n.

    Returns
    -------
    clusters
        (n,) int32. Fewer clusters are found where fewer rows than these are distinct.

    Notes
    -----
    Memory: a centred copy of `x`, and 12 bytes a row and cluster.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    model: Any = KMeans(n_clusters=n_clusters, random_state=_SEED, n_init=_INITIALISATIONS)
    # OpenMP's limit is that of the thread that sets it, BLAS's that of the process.
    with one_blas_thread(), threadpool_limits(limits=1, user_api="openmp"):
        with warnings.catch_warnings():
            # Too few distinct rows: nothing that anybody could do about it.
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = model.fit(np.asarray(x, np.float64)).labels_
    return np.asarray(labels, np.int32)


def kmeans_note(n_clusters: int) -> str:
    """Say how the clusters were made, in the vocabulary of the tables."""
    return f"clustering=kmeans;k={n_clusters};random_state={_SEED};n_init={_INITIALISATIONS}"
