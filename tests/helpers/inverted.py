"""Exact lists by brute force and approximate ones by a small inverted file, in plain numpy.

Independent of the engine: calibration is tested without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.cohort.design import Scope
from croma_dask.robustness.calibration import SampleLists


@dataclass
class Pair:
    """A cohort with the lists of all its rows, approximate and exact."""

    scope: Scope
    approx: SampleLists
    exact: SampleLists

    def sample(self, rows: np.ndarray) -> tuple[SampleLists, SampleLists]:
        return taken(self.approx, rows), taken(self.exact, rows)


def taken(lists: SampleLists, rows: np.ndarray) -> SampleLists:
    return SampleLists(
        lists.rows[rows], lists.index[rows], lists.distance[rows], lists.so[rows], lists.os[rows]
    )


def cohort(
    seed: int, n: int, n_features: int = 64, labels: int = 6, confounders: int = 6, group: int = 50
) -> tuple[np.ndarray, Scope]:
    """Rows drawn around label, confounder and group, with a tendency that the seed decides."""
    rng = np.random.default_rng([seed, 1])
    biology, shortcut = rng.uniform(0.15, 0.6), rng.uniform(0.1, 0.6)
    of_group = np.arange(n) // group
    label = rng.integers(0, labels, n).astype(np.int32)
    confounder = rng.integers(0, confounders, of_group[-1] + 1).astype(np.int32)[of_group]
    spectrum = (1.0 + np.arange(n_features)) ** -0.5
    spectrum /= np.sqrt((spectrum**2).sum())

    def directions(how_many: int) -> Any:
        found = rng.normal(size=(how_many, n_features))
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    x = rng.normal(size=(n, n_features)) * spectrum + directions(1)
    x += biology * directions(labels)[label] + shortcut * directions(confounders)[confounder]
    x += 0.4 * (rng.normal(size=(of_group[-1] + 1, n_features)) * spectrum)[of_group]
    scope = Scope("dataset", None, label, confounder, of_group.astype(np.int32), labels)
    return x / np.linalg.norm(x, axis=1, keepdims=True), scope


def both_lists(
    seed: int, n: int, *, k: int = 21, m: int = 5, recall: float = 0.98, per_cluster: int = 70
) -> Pair:
    """Lists of a cohort; the approximate ones miss about as much as asked, of each kind."""
    return pairs(seed, n, k=k, m=m, recalls=(recall,), per_cluster=per_cluster)[0]


def pairs(
    seed: int, n: int, *, k: int, m: int, recalls: Sequence[float], per_cluster: int = 70
) -> list[Pair]:
    """Lists of a cohort at several recalls, from one search."""
    x, scope = cohort(seed, n)
    rng = np.random.default_rng([seed, 2])
    v = x - x.mean(axis=0)
    centres, cluster = _kmeans(v, max(4, n // per_cluster), rng)
    order = np.argsort((centres**2).sum(axis=1) / 2 - v @ centres.T, axis=1)
    rank = np.empty(order.shape, np.int32)
    np.put_along_axis(rank, order, np.arange(order.shape[1], dtype=np.int32)[None], axis=1)
    distance = np.maximum(1.0 - x @ x.T, 0.0)
    other = scope.group[:, None] != scope.group[None]
    same_label = scope.label[:, None] == scope.label[None]
    same_confounder = scope.confounder[:, None] == scope.confounder[None]
    searched = []
    for eligible, length in (
        (other, k), (other & same_label & ~same_confounder, m),
        (other & ~same_label & same_confounder, m),
    ):  # fmt: skip
        index, d = _nearest(np.where(eligible, distance, np.inf), min(n - 1, 3 * length + 20))
        there = np.where(index < 0, 0, index)
        # Probes with which a neighbour is met, from either side.
        met = np.minimum(
            np.take_along_axis(rank, cluster[there], axis=1), rank[there, cluster[:, None]]
        )
        searched.append((index, d, met, length))
    exact = _lists([(index[:, :length], d[:, :length]) for index, d, _, length in searched])
    return [
        Pair(scope, _lists([_probed(*one, recall) for one in searched]), exact)
        for recall in recalls
    ]


def _probed(
    index: np.ndarray, d: np.ndarray, met: np.ndarray, length: int, recall: float
) -> tuple[np.ndarray, np.ndarray]:
    """What is left of long exact lists with as many probes as the recall takes."""
    first = met[:, :length][index[:, :length] >= 0]
    probes = int(np.quantile(first, recall)) + 1 if first.size else 1
    seen = (met < probes) & (index >= 0)
    keep = np.argsort(~seen, axis=1, kind="stable")[:, :length]
    good = np.take_along_axis(seen, keep, axis=1)
    index, d = np.take_along_axis(index, keep, axis=1), np.take_along_axis(d, keep, axis=1)
    return np.where(good, index, -1), np.where(good, d, np.nan)


def _lists(found: list[tuple[np.ndarray, np.ndarray]]) -> SampleLists:
    (index, d), (_, so), (_, os) = found
    return SampleLists(np.arange(index.shape[0]), index.astype(np.int32), d, so, os)


def _kmeans(v: np.ndarray, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    centres = v[rng.choice(v.shape[0], k, replace=False)].copy()
    for _ in range(5):
        cluster = (v @ centres.T - (centres**2).sum(axis=1) / 2).argmax(axis=1)
        for c in np.unique(cluster):
            centres[c] = v[cluster == c].mean(axis=0)
    return centres, (v @ centres.T - (centres**2).sum(axis=1) / 2).argmax(axis=1)


def _nearest(distance: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    index = np.argpartition(distance, length, axis=1)[:, :length]
    d = np.take_along_axis(distance, index, axis=1)
    order = np.argsort(d, axis=1, kind="stable")
    index, d = np.take_along_axis(index, order, axis=1), np.take_along_axis(d, order, axis=1)
    there = np.isfinite(d)
    return np.where(there, index, -1), np.where(there, d, np.nan)
