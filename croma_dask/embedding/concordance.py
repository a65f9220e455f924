"""Agreement of clusters with labels: NMI, HOM, COM, FMI and ARI of their contingency table.

With C_ij cells of label i in cluster j, a_i and m_j the sums of rows and columns, n their total:

* MI = sum of C_ij/n log(n C_ij / (a_i m_j)), H(a) and H(m) the entropies of labels and clusters,
  in nats; HOM = MI / H(a), COM = MI / H(m), NMI = 2 MI / (H(a) + H(m)). In [0, 1].
* FMI = sqrt(TP / P) sqrt(TP / Q), of pairs: TP = sum C_ij^2 - n, P = sum m_j^2 - n and
  Q = sum a_i^2 - n. In [0, 1].
* ARI = 2 (TP TN - FN FP) / ((TP + FN)(FN + TN) + (TP + FP)(FP + TN)). In [-0.5, 1], and not
  rescaled.

The source is scikit-learn, whose values these are to 1e-12, edges included. Pairs are counted in
Python's integers, which do not overflow, and sums of logarithms are rounded once, so neither the
order of the labels nor how the table was put together can change a digit. Scores that are 1 by
their structure are exactly 1, so that equal ones tie in a ranking.

Memory: 8 bytes a cell of the table, and of a block 8 bytes a row.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from croma_dask.errors import SchemaError
from croma_dask.kernels.typing import I32, I64

__all__ = ["CONCORDANCE_METRICS", "concordance", "contingency"]

CONCORDANCE_METRICS = ("NMI", "HOM", "COM", "FMI", "ARI")


def contingency(labels: I32, clusters: I32, n_labels: int, n_clusters: int) -> I64:
    """Count cells of each label in each cluster.

    Tables of blocks of one scope are added to that of the whole scope.

    Returns
    -------
    ndarray
        (n_labels, n_clusters) int64.

    Raises
    ------
    SchemaError
        If the two differ in length, or a code is negative or too large.
    """
    if len(labels) != len(clusters):
        raise SchemaError(f"{len(labels)} labels and {len(clusters)} clusters: not one a cell")
    for codes, limit, what in ((labels, n_labels, "label"), (clusters, n_clusters, "cluster")):
        if len(codes) and not (codes.min() >= 0 and codes.max() < limit):
            raise SchemaError(f"a {what} code is outside 0 to {limit - 1}")
    flat = np.asarray(labels, np.int64) * n_clusters + clusters
    counts = np.bincount(flat, minlength=n_labels * n_clusters)
    return counts.astype(np.int64, copy=False).reshape(n_labels, n_clusters)


def concordance(table: I64) -> dict[str, float]:
    """Return NMI, HOM, COM, FMI and ARI of a contingency table (labels x clusters).

    Labels and clusters without cells do not count. All five are NaN for a table without cells.
    """
    cells = np.asarray(table, np.int64)
    a, m = cells.sum(axis=1), cells.sum(axis=0)
    n = int(a.sum())
    if n == 0:
        return dict.fromkeys(CONCORDANCE_METRICS, math.nan)
    i, j = np.nonzero(cells)
    count = cells[i, j]
    homogeneity, completeness, nmi = _of_information(count, a[i], m[j], a[a > 0], m[m > 0], n)
    fmi, ari = _of_pairs(count, a[i], m[j], a, m, n)
    return {"NMI": nmi, "HOM": homogeneity, "COM": completeness, "FMI": fmi, "ARI": ari}


def _of_information(
    count: I64, of_label: I64, of_cluster: I64, a: I64, m: I64, n: int
) -> tuple[float, float, float]:
    information = math.fsum(count / n * np.log(n / of_label * (count / of_cluster)))
    if information <= np.finfo(np.float64).eps:
        information = 0.0  # what rounding leaves of labels and clusters that are independent
    of_labels, of_clusters = _entropy(a, n), _entropy(m, n)
    # By the structure of the table: every cluster has one label, every label one cluster.
    pure, whole = len(count) == len(m), len(count) == len(a)
    homogeneity = 1.0 if pure else min(1.0, information / of_labels)
    completeness = 1.0 if whole else min(1.0, information / of_clusters)
    if pure and whole:
        return 1.0, 1.0, 1.0
    return homogeneity, completeness, min(1.0, 2.0 * information / (of_labels + of_clusters))


def _entropy(sizes: I64, n: int) -> float:
    return math.fsum(sizes / n * np.log(n / sizes))


def _of_pairs(
    count: I64, of_label: I64, of_cluster: I64, a: I64, m: I64, n: int
) -> tuple[float, float]:
    """FMI and ARI; the sums of squares fit int64 up to 3e9 cells, their products do not."""
    squares = _dot(count, count)
    tp = squares - n
    fp = _dot(count, of_cluster) - squares
    fn = _dot(count, of_label) - squares
    tn = n * n - fp - fn - squares
    p, q = _dot(m, m) - n, _dot(a, a) - n
    fmi = math.sqrt(tp / p) * math.sqrt(tp / q) if tp else 0.0
    if fp == 0 and fn == 0:
        return fmi, 1.0
    below = (tp + fn) * (fn + tn) + (tp + fp) * (fp + tn)
    return fmi, 2 * (tp * tn - fn * fp) / below


def _dot(a: I64, b: I64) -> int:
    return int(cast("np.int64", (a * b).sum()))
