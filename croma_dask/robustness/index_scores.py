"""RI and MaRI from the lists of a search: pooled values, sample values, curves, support."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.design import Scope, block_rows
from croma_dask.errors import SupportWarning, warn
from croma_dask.index.neighbors import Neighbors
from croma_dask.robustness import evidence as ev
from croma_dask.robustness.operating_k import Choice, Votes, choose_k
from croma_dask.robustness.statistics import GridSum

__all__ = ["IndexScore", "NeighborCounts", "count_neighbors", "score_index", "warn_support"]

F64 = NDArray[np.float64]


@dataclass
class NeighborCounts:
    """What one pass over the lists of a scope has counted, at every candidate.

    Attributes
    ----------
    votes
        Votes for the operating k.
    so, os
        SO and OS neighbours within each candidate, over all rows.
    nearest
        Least typed distance within each candidate, inf without any.
    """

    votes: Votes
    so: dict[int, int] = field(default_factory=dict)
    os: dict[int, int] = field(default_factory=dict)
    nearest: dict[int, float] = field(default_factory=dict)


def count_neighbors(scope: Scope, neighbors: Neighbors, k_values: Sequence[int]) -> NeighborCounts:
    """Count votes and typed neighbours of a scope in one pass over its lists."""
    counts = NeighborCounts(Votes(scope, k_values))
    for k in k_values:
        counts.so[k] = counts.os[k] = 0
        counts.nearest[k] = np.inf
    for block in neighbors.blocks():
        counts.votes.add(block)
        kind = ev.kinds_of(block, scope)
        so, os = kind == ev.SO, kind == ev.OS
        typed = np.where(so | os, block.distance, np.inf)
        for k in k_values:
            counts.so[k] += int(so[:, :k].sum())
            counts.os[k] += int(os[:, :k].sum())
            counts.nearest[k] = min(counts.nearest[k], float(typed[:, :k].min(initial=np.inf)))
    return counts


def choose(counts: Sequence[NeighborCounts], candidates: Sequence[int], *, paired: bool) -> Choice:
    """Choose the operating k from the votes of all scopes."""
    return choose_k([c.votes for c in counts], candidates, paired=paired)


@dataclass
class IndexScore:
    """RI or MaRI of a cohort.

    Attributes
    ----------
    value
        Pooled value; 0.5 without typed evidence.
    pair_values
        (subsets,) pooled value of each.
    sample_values
        (rows,) aligned to the manifest, NaN where undefined.
    undefined_type
        (rows,) int8: 0 defined, 1 SS-dominated, 2 OO-dominated, 3 mixed, -1 not scored.
    so_evidence, os_evidence
        (rows,) weight of the SO and the OS neighbours of each row within k: their number, or of
        MaRI relative to the row's nearest typed neighbour; 0 where undefined.
    evidence_distance
        (rows,) distance of that neighbour, which brings rows to one scale; NaN where undefined.
        None of RI.
    curve
        (candidates,) pooled value at each.
    """

    value: float
    pair_values: F64
    sample_values: F64
    undefined_type: NDArray[np.int8]
    so_evidence: F64
    os_evidence: F64
    evidence_distance: F64 | None
    curve: F64


def score_index(
    scopes: Sequence[Scope],
    neighbors: Sequence[Neighbors],
    counts: Sequence[NeighborCounts],
    k: int,
    candidates: Sequence[int],
    n_rows: int,
    tau: float | None,
) -> IndexScore:
    """Score RI (`tau` None: every neighbour weighs 1) or MaRI.

    Parameters
    ----------
    scopes, neighbors, counts
        One each a scope.
    k
        The operating k.
    candidates
        Where the curve is taken.
    n_rows
        Manifest rows.
    tau
        Bandwidth of MaRI.
    """
    values = np.full(n_rows, np.nan)
    undefined = np.full(n_rows, -1, np.int8)
    evidence = np.zeros((2, n_rows))
    distance = None if tau is None else np.full(n_rows, np.nan)
    ks = list(dict.fromkeys([k, *candidates]))
    # Everything pooled is scaled to the nearest typed neighbour of the whole cohort at that k.
    nearest = {q: min(c.nearest[q] for c in counts) for q in ks}
    pooled = np.zeros((2, len(ks)))
    pairs = np.full(len(scopes), 0.5)
    for number, (scope, found, count) in enumerate(zip(scopes, neighbors, counts, strict=True)):
        mine = [_Pool(q, nearest[q], tau) for q in ks]
        # Of its own scale: a subset whose neighbours are all far would underflow in the pool.
        own = _Pool(k, count.nearest[k], tau)
        for block in found.blocks():
            kind = ev.kinds_of(block, scope)
            at = block_rows(scope, block.lo, block.hi)
            numbers = ev.count_kinds(kind, k)
            so, os = numbers[ev.SO], numbers[ev.OS]
            defined = so + os > 0
            top, bottom = so.astype(np.float64), (so + os).astype(np.float64)
            if tau is not None:
                weights = ev.sample_weights(kind, block.distance, k, tau)
                top, bottom = weights.so, weights.so + weights.os
                for pool in (*mine, own):
                    pool.add(kind, block.distance)
                evidence[:, at] = weights.so, weights.os
                assert distance is not None
                distance[at] = np.where(defined, weights.nearest, np.nan)
            else:
                evidence[:, at] = so, os
            values[at] = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=defined)
            ss, oo = numbers[ev.SS], numbers[ev.OO]
            undefined[at] = np.where(defined, 0, np.where(ss > oo, 1, np.where(oo > ss, 2, 3)))
        if tau is None:
            totals = np.array([[c[q] for q in ks] for c in (count.so, count.os)], dtype=np.float64)
            pair = totals[:, 0]
        else:
            totals = np.array([pool.totals() for pool in mine]).T
            pair = np.array(own.totals())
        pooled += totals
        if pair.sum() > 0:
            pairs[number] = pair[0] / pair.sum()
    ratio = [_ratio(pooled[0, at], pooled[1, at]) for at in range(len(ks))]
    by_k = dict(zip(ks, ratio, strict=True))
    curve = np.array([by_k[q] for q in candidates])
    return IndexScore(by_k[k], pairs, values, undefined, evidence[0], evidence[1], distance, curve)


class _Pool:
    """Weights of all rows at one k, relative to a typed neighbour at distance `nearest`."""

    def __init__(self, k: int, nearest: float, tau: float | None) -> None:
        self.k, self.nearest, self.tau = k, nearest, tau
        self.so, self.os = GridSum(), GridSum()

    def add(self, kind: NDArray[np.int8], distance: F64) -> None:
        """Add the rows of a block."""
        if self.tau is None or not np.isfinite(self.nearest):
            return
        part = ev.pooled_weights(kind, distance, self.k, self.tau, self.nearest)
        self.so.add(part.so)
        self.os.add(part.os)

    def totals(self) -> tuple[float, float]:
        return self.so.value(), self.os.value()


def _ratio(so: float, os: float) -> float:
    return float(so / (so + os)) if so + os > 0 else 0.5


def warn_support(name: str, undefined_type: NDArray[np.int8]) -> None:
    """Warn when not every unit is defined, and when what is missing is mostly OO.

    Warns
    -----
    SupportWarning
        The figure, and what the undefined units have for neighbours.
    """
    scored = undefined_type[undefined_type >= 0]
    missing = int((scored != 0).sum())
    if not missing:
        return
    text = (
        f"{name}: {missing} of {scored.size} units are undefined "
        f"(support {1 - missing / scored.size:.4f}): no SO or OS neighbour within k"
    )
    oo = int((scored == 2).sum())
    if 2 * oo > missing:
        text += (
            f"; {oo} of them have mostly neighbours of another label and another confounder (OO): "
            "neither biology nor the confounder places them"
        )
    if missing == scored.size:
        text += "; the pooled value is 0.5 because there is no evidence at all"
    warn(text, SupportWarning)
