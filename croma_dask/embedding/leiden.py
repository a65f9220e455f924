"""Clusters by Leiden: the resolution that gives as many clusters as there are labels.

Resolutions 0.1, 0.2, ..., 3.0 are tried, and as long as none has given as many clusters as there
are labels, also 3.5, 4.0, ..., 6.0. Of these the one counts whose number of clusters is nearest to
that of the labels; of several the one with the highest NMI of clusters and labels; of several the
lowest. The number of clusters does not always grow with the resolution, so all are tried.

Every resolution is a task of its own (:mod:`croma_dask.embedding.leiden_runs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from croma_dask.embedding.concordance import concordance, contingency
from croma_dask.embedding.leiden_partition import Edges
from croma_dask.embedding.leiden_runs import partitions
from croma_dask.index.scratch import Scratch
from croma_dask.kernels.typing import I32

__all__ = ["RESOLUTIONS", "Leiden", "Tried", "leiden_neighbors", "leiden_note", "leiden_scan"]

Selection = Literal["match_n_labels", "best_nmi"]

RESOLUTIONS = tuple(step / 10 for step in range(1, 31))
"""Resolutions that are always tried."""

MAX_RESOLUTION = 6.0

_STEP = 0.5
_NEIGHBORS = 15


@dataclass(frozen=True)
class Tried:
    """One resolution of a scan.

    Attributes
    ----------
    resolution, n_clusters
        What it gave.
    nmi
        Of its clusters and the labels.
    """

    resolution: float
    n_clusters: int
    nmi: float


@dataclass(frozen=True)
class Leiden:
    """What a scan has found.

    Attributes
    ----------
    clusters
        (n,) int32 cluster of each row, numbered without gaps.
    resolution, n_clusters
        Those that were chosen.
    selection, n_labels
        How, and for how many labels.
    scan
        All resolutions that were tried, in that order.
    """

    clusters: I32
    resolution: float
    n_clusters: int
    selection: Selection
    n_labels: int
    scan: tuple[Tried, ...]

    @property
    def n_evaluated(self) -> int:
        """Number of resolutions that were tried."""
        return len(self.scan)


def leiden_neighbors(n_rows: int) -> int:
    """Neighbours that the graph is made of, each row itself counted: its list is one shorter.

    Examples
    --------
    >>> leiden_neighbors(1000), leiden_neighbors(15), leiden_neighbors(14)
    (15, 15, 8)
    """
    return _NEIGHBORS if n_rows >= _NEIGHBORS else 1 + n_rows // 2


def leiden_note(found: Leiden) -> str:
    """Say how the clusters were made, in the vocabulary of the tables."""
    return (
        f"clustering=leiden;selection={found.selection};resolution={found.resolution!r};"
        f"n_clusters={found.n_clusters};target_n_labels={found.n_labels};scan_n={found.n_evaluated}"
    )


def leiden_scan(
    graph: Any, codes: I32, n_labels: int, *, selection: Selection = "match_n_labels",
    resolutions: Sequence[float] = RESOLUTIONS, max_resolution: float = MAX_RESOLUTION,
    seed: int = 0, n_processes: int = 1, client: Any = None, scratch: Scratch | None = None,
    quiet: bool = True,
) -> Leiden:  # fmt: skip
    """Cluster the rows at many resolutions, and choose one.

    Parameters
    ----------
    graph
        (n, n) symmetric CSR matrix of weights, rows in row order
        (:func:`croma_dask.embedding.fuzzy.symmetric`).
    codes
        (n,) labels of the rows.
    n_labels
        How many there are; all of them occur.
    selection
        ``match_n_labels``; or ``best_nmi``: the resolution with the highest NMI, the lowest of
        several, none above those given.
    resolutions
        Those that are always tried.
    max_resolution
        Last one to be tried where none gives enough clusters.
    seed
        Of the random numbers; each resolution begins with it.
    n_processes
        Processes of this machine that share the work, where there is enough of it. Each holds the
        graph.
    client
        `distributed.Client` to run on instead.
    scratch
        Folder of the run, seen by all workers: resolutions that are done are kept there, and a
        scan of the same graph goes on from them. None for one that goes with the call.
    quiet
        No progress.

    Raises
    ------
    MissingLibraryError
        igraph is not installed.
    MemoryLimitError
        A process or worker was killed.
    """
    edges = Edges.of(graph)
    with partitions(
        edges, seed, n_processes=n_processes, client=client, scratch=scratch, quiet=quiet
    ) as made:
        scan: list[Tried] = []

        def try_all(batch: Sequence[float]) -> Iterator[Tried]:
            made.make(batch)
            for resolution in batch:
                clusters = made.clusters(resolution)
                n = int(clusters.max()) + 1
                table = contingency(codes, clusters, n_labels, n)
                yield Tried(resolution, n, concordance(table)["NMI"])

        def enough() -> bool:
            return max(tried.n_clusters for tried in scan) >= n_labels

        scan.extend(try_all([float(resolution) for resolution in resolutions]))
        further = _further(max(resolutions), max_resolution)
        while selection == "match_n_labels" and further and not enough():
            # Several at once: what comes behind the last one needed is not looked at.
            batch, further = further[: made.width], further[made.width :]
            for tried in try_all(batch):
                scan.append(tried)
                if enough():
                    break
        if selection == "best_nmi":
            best = max(scan, key=lambda tried: tried.nmi)
        else:
            best = min(scan, key=lambda tried: (abs(tried.n_clusters - n_labels), -tried.nmi))
        clusters = made.clusters(best.resolution)
    return Leiden(clusters, best.resolution, best.n_clusters, selection, n_labels, tuple(scan))


def _further(resolution: float, last: float) -> list[float]:
    further = []
    while resolution < last:
        resolution = round(resolution + _STEP, 2)
        further.append(resolution)
    return further
