"""The clusters of an index: k-means centres of a sample, put in an order, and who belongs where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from croma_dask.index.kmeans import kmeans
from croma_dask.index.ranges import read_native
from croma_dask.index.sketch import find_basis
from croma_dask.index.source import RowSource, TakenRows
from croma_dask.index.threads import one_blas_thread
from croma_dask.kernels import dots_numpy
from croma_dask.kernels.frame import Frame
from croma_dask.kernels.typing import F32, I32, I64

__all__ = [
    "Clusters",
    "assign",
    "centre_rows",
    "cluster_edges",
    "count_clusters",
    "half_norms",
    "scores",
    "train",
]

CLUSTER_ROWS = 256
"""Rows of a cluster, on average: shorter ones cost more to tell apart, longer ones are searched in
vain (docs/adr/0011)."""

_MANY_ROWS = 2_000_000
"""Rows from which clusters grow with the square root of the cohort, so that finding the nearest
ones does not outgrow the search."""

_SAMPLE = 40
"""Rows a centre that k-means is trained on."""

_ITERATIONS = 8
_LARGEST = 8
"""A cluster of more than this many times the average is cut up."""

_BLOCK = 4096


def count_clusters(n_rows: int, cluster_rows: int | None) -> int:
    """Clusters of an index over n rows."""
    rows = cluster_rows or int(CLUSTER_ROWS * max(1.0, (n_rows / _MANY_ROWS) ** 0.5))
    return max(1, n_rows // rows)


def centre_rows(x: np.ndarray, frame: Frame) -> tuple[F32, F32]:
    """Screening rows of raw ones (centred unit vectors, of cosine), and their half-norm terms.

    Returns
    -------
    centred, half
        (n, D) and (n,) float32.
    """
    native = frame.native(x)
    out = np.empty(native.shape, np.float32)
    norm = np.zeros(native.shape[0])
    if not frame.is_euclidean:
        norm = dots_numpy.squared_norms(native)
    half, _ = frame.centre(native, norm, out)
    return out, half.astype(np.float32)


def train(
    source: RowSource, n_clusters: int, frame: Frame, *, seed: int, most_bytes: int, n_threads: int
) -> tuple[F32, F32]:
    """Centres of k-means on a random sample of rows, neighbours in space next to each other.

    Parameters
    ----------
    source
        All rows.
    n_clusters
        Centres; at most the number of rows.
    frame
        Distance, and origin of the screening.
    seed
        Of the sample and of k-means.
    most_bytes
        Bytes that the sample may take.
    n_threads
        Threads of k-means.

    Returns
    -------
    centres, basis
        (n_clusters, r) float32, in the space of the sketch, or (n_clusters, D) without one; and
        (D, r) its directions (index/sketch.py).
    """
    n, d = source.n_rows, source.n_features
    rng = np.random.default_rng([seed, 1])
    size = min(n, max(n_clusters, min(_SAMPLE * n_clusters, most_bytes // (12 * d))))
    rows = np.sort(rng.choice(n, size, replace=False))
    taken = TakenRows(source, rows)
    sample = np.empty((size, d), np.float32)
    for lo in range(0, size, _BLOCK):
        hi = min(size, lo + _BLOCK)
        sample[lo:hi] = centre_rows(read_native(taken, lo, hi, frame=frame), frame)[0]
    # On one thread each, whatever there are: the same rows and seed make the same index.
    with one_blas_thread():
        basis = find_basis(sample, seed)
        centres = kmeans(
            sample @ basis if basis.shape[1] else sample, n_clusters, seed=seed,
            iterations=_ITERATIONS, n_threads=n_threads,
        )  # fmt: skip
        return centres[_in_order(centres)], basis


def _in_order(centres: F32) -> I64:
    """Put near centres near each other: halves by principal direction."""
    out: list[I64] = []

    def halve(rows: I64) -> None:
        if rows.size <= 2:
            out.append(rows)
            return
        spread = centres[rows] - centres[rows].mean(axis=0)
        # A few steps of power iteration: the direction need not be exact, only the same each time.
        direction = spread[int(np.argmax(np.einsum("ij,ij->i", spread, spread)))].copy()
        for _ in range(8):
            direction = spread.T @ (spread @ direction)
            length = float(np.linalg.norm(direction))
            if length == 0.0:
                break
            direction /= length
        order = rows[np.argsort(spread @ direction, kind="stable")]
        halve(order[: rows.size // 2])
        halve(order[rows.size // 2 :])

    halve(np.arange(centres.shape[0]))
    return np.concatenate(out)


def scores(centred: F32, half: F32, centres: F32, centre_half: F32, out: F32) -> F32:
    """Half squared distances of rows to centres, (n, C) float32 into `out`."""
    product = out[: centred.shape[0]]
    np.matmul(centred, centres.T, out=product)
    np.subtract(centre_half[None, :], product, out=product)
    product += half[:, None]
    return product


def half_norms(centres: F32) -> F32:
    """Half squared lengths of the centres."""
    half: F32 = 0.5 * np.einsum("ij,ij->i", centres, centres, dtype=np.float32)
    return half


def assign(source: RowSource, lo: int, hi: int, frame: Frame, centres: F32, basis: F32) -> I32:
    """Nearest centre of rows lo..hi, the first one where several are.

    Returns
    -------
    cluster
        (hi - lo,) int32.
    """
    cluster = np.empty(hi - lo, np.int32)
    halves = half_norms(centres)
    step = max(64, min(_BLOCK, (8 << 20) // max(1, centres.shape[0])))
    buffer = np.empty((step, centres.shape[0]), np.float32)
    for where, rows in source.pieces(lo, hi):
        found = np.empty(rows.shape[0], np.int32)
        for a in range(0, rows.shape[0], step):
            centred, half = centre_rows(rows[a : a + step], frame)
            if basis.shape[1]:
                centred = centred @ basis
            near = scores(centred, half, centres, halves, buffer)
            found[a : a + step] = near.argmin(axis=1)
        cluster[where] = found
    return cluster


@dataclass(frozen=True)
class Clusters:
    """Rows in the order of clusters.

    Attributes
    ----------
    order
        (N,) row at each place of the index.
    edges
        (C + 1,) where each cluster starts.
    centres
        (C, r) or (C, D) float32; a cluster that was cut up repeats its centre.
    """

    order: I64
    edges: I64
    centres: F32


def cluster_edges(cluster: I32, centres: F32) -> Clusters:
    """Sort rows by cluster; leave empty clusters out, cut up those that are far too large."""
    order = np.argsort(cluster, kind="stable").astype(np.int64)
    size = np.bincount(cluster, minlength=centres.shape[0])
    most = max(_LARGEST * max(1, cluster.shape[0] // centres.shape[0]), 256)
    edges, which = [0], []
    for c in np.flatnonzero(size):
        pieces = -(-int(size[c]) // most)
        cuts = edges[-1] + np.linspace(0, int(size[c]), pieces + 1).astype(int)[1:]
        edges += [int(cut) for cut in cuts]
        which += [int(c)] * pieces
    return Clusters(order, np.array(edges, np.int64), np.ascontiguousarray(centres[which]))
