"""How far rows have to look: chosen on a sample whose neighbours are known exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.index.partition import centre_rows, scores
from croma_dask.index.probing import Radius, TypeCounts
from croma_dask.index.source import Codes, RowSource, TakenRows
from croma_dask.index.spec import ListSpec
from croma_dask.index.stored import Partition
from croma_dask.kernels.frame import Frame
from croma_dask.kernels.typing import F32, I32, I64

__all__ = ["Tuned", "tune"]

_GLOBAL_EACH = 16
"""Neighbours of a query that are looked at, spread over its list."""

_TYPED_SLACK = 4.0
"""Typed lists may miss so many times the share that lists of any type may: only their mean distance
counts, and one that is missed is replaced by one hardly farther."""

_BLOCK_ENTRIES = 8 << 20


@dataclass(frozen=True)
class Tuned:
    """A radius, and what it promises.

    Attributes
    ----------
    radius
        How far to look.
    recall
        Share of the sample's neighbours of any type within the radius; NaN without such lists.
    recall_typed
        The same of its SO and OS neighbours, the lesser.
    steps
        How often the typed radius was widened.
    """

    radius: Radius
    recall: float
    recall_typed: float
    steps: int


def tune(
    source: RowSource, frame: Frame, partition: Partition, codes: Codes, counts: TypeCounts,
    queries: I64, places: I32, spec: ListSpec, *, recall: float, start: int, growth: float,
    probes: int | None = None,
) -> Tuned:  # fmt: skip
    """Choose the least radius with which the sample would have reached the recall.

    Parameters
    ----------
    source, frame, partition, codes
        Rows and their screening, clusters and codes in the order of the index.
    counts
        Rows of each type in the clusters.
    queries
        (q,) places of the sample.
    places
        (q, delivered) places of its exact neighbours, -1 behind the last.
    spec
        Lists.
    recall
        Share of the neighbours to find, of each list.
    start, growth
        First typed radius, in candidates, and the factor by which it grows.
    probes
        Clusters that a row probes, where the caller has chosen.
    """
    query, target, kind = _pairs(places, spec)
    there = _needed(source, frame, partition, codes, counts, queries[query], target)
    rows = target.astype(np.int64)
    back = _needed(source, frame, partition, codes, counts, rows, queries[query])
    rank = np.minimum(there[:, 0], back[:, 0]) + 1
    reached = float("nan")
    if spec.n_global:
        mine = np.sort(rank[kind == 0])
        if probes is None:
            probes = max(1, _quantile(mine, recall))
        reached = float((mine <= probes).mean()) if mine.size else 1.0
    near = probes if spec.n_global and probes is not None else 0
    least = [max(int(start), int(n)) for n in spec.length[1:]] if spec.n_typed else [0, 0]
    typed, steps, found = list(least), 0, 1.0
    goal = 1.0 - _TYPED_SLACK * (1.0 - recall)
    for q in (1, 2) if spec.n_typed else ():
        mine = kind == q
        # Candidates that have to be met before the one that is wanted; none within the probes.
        met = np.sort(np.where(rank[mine] <= near, 0, 1 + np.minimum(there, back)[mine, q]))
        wanted, tried, at = _quantile(met, goal), 0, least[q - 1]
        while at < wanted:
            at, tried = int(np.ceil(at * growth)), tried + 1
        # The last step need not be a whole one.
        typed[q - 1] = max(wanted, least[q - 1])
        steps = max(steps, tried)
        if met.size:
            found = min(found, float((met <= typed[q - 1]).mean()))
    radius = Radius(min(near, partition.n_clusters), typed[0], typed[1])
    return Tuned(radius, reached, found, steps)


def _quantile(ascending: NDArray[np.int64], share: float) -> int:
    """Least value that at least this share does not exceed; 0 of nothing."""
    if not ascending.size:
        return 0
    at = int(np.clip(np.ceil(share * ascending.size) - 1, 0, ascending.size - 1))
    return int(ascending[at])


def _pairs(places: I32, spec: ListSpec) -> tuple[NDArray[np.int64], I32, NDArray[np.int64]]:
    """Pairs of a query and a neighbour that are looked at, and of which list they are."""
    query, target, kind = [], [], []
    for q in range(3):
        n = int(spec.deliver[q])
        if n == 0:
            continue
        some = np.unique(np.linspace(0, n - 1, min(n, _GLOBAL_EACH)).astype(int))
        mine = places[:, int(spec.offset[q]) + some]
        row, column = np.nonzero(mine >= 0)
        query.append(row)
        target.append(mine[row, column])
        kind.append(np.full(row.size, q))
    return np.concatenate(query), np.concatenate(target), np.concatenate(kind)


def _needed(
    source: RowSource, frame: Frame, partition: Partition, codes: Codes, counts: TypeCounts,
    row: I64, target: Any,
) -> I64:  # fmt: skip
    """(p, 3) clusters, SO and OS rows that row `row[p]` meets before the cluster of `target[p]`."""
    from croma_dask.kernels.probe import needed_radius

    edges = partition.cluster_edges
    goal = (np.searchsorted(edges, target, side="right") - 1).astype(np.int32)
    distinct, which = np.unique(row, return_inverse=True)
    # Equal types together: the counts of a type are then made once.
    by_type = np.lexsort((codes.confounder[distinct], codes.label[distinct]))
    distinct = distinct[by_type]
    back = np.empty_like(by_type)
    back[by_type] = np.arange(by_type.size)
    which = back[which]
    order = np.argsort(which, kind="stable")
    home = (np.searchsorted(edges, distinct, side="right") - 1).astype(np.int32)
    label, confounder = codes.label[distinct], codes.confounder[distinct]
    rows = TakenRows(source, distinct).read(0, distinct.size)
    places, halves = partition.sketches
    step = max(16, min(2048, _BLOCK_ENTRIES // partition.n_clusters))
    buffer: F32 = np.empty((step, partition.n_clusters), np.float32)
    out = np.empty((row.shape[0], 3), np.int64)
    for lo in range(0, distinct.size, step):
        hi = min(distinct.size, lo + step)
        centred, half = centre_rows(rows[lo:hi], frame)
        near = scores(partition.sketch(centred), half, places, halves, buffer)
        a, b = np.searchsorted(which[order], [lo, hi])
        mine = order[a:b]
        part = np.empty((mine.size, 3), np.int64)
        needed_radius(
            near, home[lo:hi], label[lo:hi], confounder[lo:hi],
            (which[mine] - lo).astype(np.int32), goal[mine], counts.size,
            *counts.label, *counts.confounder, part,
        )  # fmt: skip
        out[mine] = part
    return out
