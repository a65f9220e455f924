"""Clusters of an embedding, and the five metrics that compare them with the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.embedding.clusters import kmeans_clusters, kmeans_note
from croma_dask.embedding.concordance import concordance, contingency
from croma_dask.embedding.fuzzy import memberships, symmetric
from croma_dask.embedding.leiden import Leiden, leiden_neighbors, leiden_note, leiden_scan
from croma_dask.embedding.opened import Opened
from croma_dask.embedding.outcome import Outcome
from croma_dask.embedding.request import Readings
from croma_dask.embedding.rows import GroupRows
from croma_dask.errors import MemoryLimitError
from croma_dask.index.neighbors import Neighbors
from croma_dask.index.scratch import Scratch
from croma_dask.memory import LIBRARIES, allowed_bytes, format_bytes

__all__ = ["Clustered", "by_kmeans", "by_leiden", "kmeans_bytes"]


@dataclass(frozen=True)
class Clustered:
    """Clusters, and how they agree with the labels.

    Attributes
    ----------
    clusters
        (n,) int32 cluster of each row.
    outcomes
        The five metrics.
    """

    clusters: NDArray[np.int32]
    outcomes: dict[str, Outcome]

    @classmethod
    def of(cls, clusters: NDArray[np.int32], group: GroupRows, note: str) -> Clustered:
        """Compare clusters with the labels of the same rows."""
        n_clusters = int(clusters.max(initial=-1)) + 1
        table = contingency(group.label.codes, clusters, len(group.label.names), n_clusters)
        values = concordance(table)
        return cls(clusters, {name: Outcome(value, note) for name, value in values.items()})


def by_leiden(
    opened: Opened, group: GroupRows, neighbors: Neighbors, edges: NDArray[np.int32],
    how: Readings, scratch: Scratch, *, n_processes: int = 1,
) -> Clustered:  # fmt: skip
    """Cluster by the scan of resolutions on the fuzzy graph of the lists.

    Parameters
    ----------
    opened, group
        Where it runs, and the rows.
    neighbors, edges
        Lists of the rows, and their first 14 positions.
    how
        Readings.
    scratch
        Where resolutions that are done are kept.
    n_processes
        Processes of this machine that share the resolutions.

    Notes
    -----
    Memory: the graph, some 20 entries a row of 12 bytes, and what igraph makes of it, in every
    process that clusters (:func:`croma_dask.embedding.leiden_runs.process_bytes`).
    """
    width = min(leiden_neighbors(group.n_rows) - 1, edges.shape[1])
    weights = np.empty((group.n_rows, width), np.float32)
    for block in neighbors.blocks():
        weights[block.lo : block.hi] = memberships(
            np.ascontiguousarray(block.index[:, :width]),
            np.ascontiguousarray(block.distance[:, :width]),
        )
    graph: Any = symmetric(np.ascontiguousarray(edges[:, :width]), weights, group.n_rows)
    del weights
    found: Leiden = leiden_scan(
        graph, group.label.codes, len(group.label.names), selection=how.selection,
        n_processes=n_processes, client=opened.client, scratch=scratch,
        quiet=opened.options.quiet,
    )  # fmt: skip
    return Clustered.of(found.clusters, group, leiden_note(found))


def by_kmeans(opened: Opened, group: GroupRows, *, held: int = 0) -> Clustered:
    """Cluster by k-means, as many clusters as labels, all rows in memory.

    Raises
    ------
    MemoryLimitError
        They do not fit the allowed memory: k-means is scikit-learn's, and not streamed.
    """
    needed = kmeans_bytes(group.n_rows, opened.embedding.n_features, len(group.label.names))
    allowed = allowed_bytes(opened.options.memory) - LIBRARIES - held
    if needed > allowed:
        raise MemoryLimitError(
            f"k-means holds all rows in memory, {format_bytes(needed)}, and "
            f"{format_bytes(max(0, allowed))} are left: raise memory= (--memory), or use "
            "clustering='leiden' (--clustering leiden)"
        )
    source = opened.rows(group)
    x = np.empty((group.n_rows, source.n_features))
    for where, rows in source.pieces(0, group.n_rows):
        x[where] = rows
    # By a power of two, which moves no boundary: squares of very small rows would vanish.
    _, exponent = np.frexp(max(float(x.max()), -float(x.min())))
    np.ldexp(x, -int(exponent), out=x)
    n_clusters = len(group.label.names)
    return Clustered.of(kmeans_clusters(x, n_clusters), group, kmeans_note(n_clusters))


def kmeans_bytes(n_rows: int, n_features: int, n_clusters: int) -> int:
    """Memory of k-means: the rows as float64 twice, and 12 bytes a row and cluster."""
    return n_rows * (16 * n_features + 12 * n_clusters)
