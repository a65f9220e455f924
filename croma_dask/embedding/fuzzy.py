"""The fuzzy graph of the neighbour lists, which Leiden and kBET start from.

It is UMAP's: a row's directed weights (:mod:`croma_dask.kernels.fuzzy`), of which an edge has
either or both, joined as probabilities are: ``w + w' - w w'``. Weights are float32 numbers, bit for
bit those of umap-learn for the same lists, and of scanpy for those of an embedding in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp  # type: ignore[import-untyped]

from croma_dask.kernels.fuzzy import fuzzy_weights
from croma_dask.kernels.typing import F32, F64, I32, Floats

__all__ = ["memberships", "symmetric"]


def memberships(index: I32, distance: F64) -> F32:
    """Directed weights of the lists of some rows.

    Parameters
    ----------
    index, distance
        (n, m) nearest first, without the row itself; -1 and NaN behind the last. The "number of
        neighbours" that other libraries ask for counts the row itself: m + 1.

    Returns
    -------
    weight
        (n, m) in [0, 1]: 1 for the nearest row that is not at distance 0 and all before it; 0
        where there is no neighbour, and where float32 has no number as small as the weight. No
        row's weights depend on other rows.
    """
    weight = np.empty(index.shape, np.float32)
    fuzzy_weights(index, distance, weight)
    return weight


def symmetric(index: I32, weights: Floats, n: int) -> Any:
    """Join directed weights into the graph.

    Parameters
    ----------
    index, weights
        (n, m) the lists of all rows, and the weights of their entries; entries of -1 are skipped.
        The graph within some of the rows is that of their lists, with positions among these rows
        for positions in the scope, and -1 for all others.
    n
        Number of rows.

    Returns
    -------
    scipy.sparse.csr_matrix
        (n, n) float64 of float32 numbers, symmetric bit for bit, columns ascending, nothing stored
        that is 0.

    Notes
    -----
    Memory: 50 bytes an entry of the lists.
    """
    there = (index >= 0) & (weights > 0.0)
    start = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    entries = weights[there].astype(np.float32, copy=False)
    directed = sp.csr_matrix((entries, index[there], start), shape=(n, n))
    directed.sort_indices()
    other = directed.T.tocsr()
    graph = directed + other - directed.multiply(other)
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph.astype(np.float64)
