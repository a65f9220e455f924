"""RI, MaRI and CRoMa by brute force: the specification read aloud, in float64 and python loops.

Slow on purpose and written without a look at the package: no vectorisation across rows, no
screening, no blocks. Distances follow decision 10 (``1 - <x, y> / sqrt(<x, x> <y, y>)`` of rows
scaled by a power of two, below 1e-14 exactly 0). On rows of small whole numbers every product and
sum is exact, so that equal distances are equal here too and ties can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SAME = {
    (True, False): "SO",
    (False, True): "OS",
    (True, True): "SS",
    (False, False): "OO",
}


def distances(x: Any) -> np.ndarray:
    """(n, n) cosine distances; a zero row is at 1 from everything."""
    rows = []
    for row in np.asarray(x).astype(np.float64):
        largest = float(np.max(np.abs(row)))
        rows.append(row * 2.0 ** -math.frexp(largest)[1] if largest > 0.0 else row)
    n = len(rows)
    square = [float(np.dot(row, row)) for row in rows]
    d = np.ones((n, n))
    for i in range(n):
        for j in range(i, n):
            if square[i] > 0.0 and square[j] > 0.0:
                value = 1.0 - float(np.dot(rows[i], rows[j])) / math.sqrt(square[i] * square[j])
                d[i, j] = d[j, i] = 0.0 if value < 1e-14 else min(value, 2.0)
    return d


@dataclass
class Scope:
    """Rows that are searched among one another, with the neighbours of each in order."""

    name: str
    rows: list[int]
    neighbors: dict[int, list[tuple[float, int]]] = field(default_factory=dict)


class Oracle:
    """A cohort with all its distances known.

    Parameters
    ----------
    x
        (n, D) rows.
    label, confounder, group, subset
        One value a row; `subset` None for the design ``all``.
    """

    def __init__(
        self,
        x: Any,
        label: Sequence[Any],
        confounder: Sequence[Any],
        group: Sequence[Any],
        subset: Sequence[Any] | None = None,
    ) -> None:
        self.label = [str(v).strip() for v in label]
        self.confounder = [str(v).strip() for v in confounder]
        group = [str(v).strip() for v in group]
        self.n = len(self.label)
        self.paired = subset is not None
        d = distances(x)
        if subset is None:
            self.scopes = [Scope("dataset", list(range(self.n)))]
        else:
            subset = [str(v).strip() for v in subset]
            self.scopes = [
                Scope(name, [i for i in range(self.n) if subset[i] == name])
                for name in sorted(set(subset))
            ]
        for scope in self.scopes:
            for i in scope.rows:
                scope.neighbors[i] = sorted(
                    (float(d[i, j]), j) for j in scope.rows if group[j] != group[i]
                )

    def kind(self, i: int, j: int) -> str:
        return SAME[self.label[i] == self.label[j], self.confounder[i] == self.confounder[j]]

    def typed(self, i: int, scope: Scope, k: int) -> list[tuple[float, str]]:
        """SO and OS neighbours among the first k of a row, in order."""
        found = [(d, self.kind(i, j)) for d, j in scope.neighbors[i][:k]]
        return [(d, kind) for d, kind in found if kind in ("SO", "OS")]

    # ---- operating k -------------------------------------------------------------------------

    def balanced_accuracy(self, scope: Scope, k: int) -> float:
        first_row: dict[str, int] = {}
        for i in scope.rows:
            first_row.setdefault(self.label[i], i)
        hits: dict[str, list[bool]] = {}
        for i in scope.rows:
            nearest = scope.neighbors[i][:k]
            if not nearest:
                continue
            votes: dict[str, int] = {}
            for _, j in nearest:
                votes[self.label[j]] = votes.get(self.label[j], 0) + 1
            most = max(votes.values())
            winner = min((label for label in votes if votes[label] == most), key=first_row.get)
            hits.setdefault(self.label[i], []).append(winner == self.label[i])
        if not hits:
            return math.nan
        return math.fsum(sum(h) / len(h) for h in hits.values()) / len(hits)

    def accuracies(self, candidates: Sequence[int]) -> dict[int, float]:
        """Score of each candidate, NaN where it is valid in no scope."""
        scores = {}
        for k in candidates:
            valid = [self.balanced_accuracy(s, k) for s in self.scopes if k < len(s.rows)]
            valid = [v for v in valid if not math.isnan(v)]
            scores[k] = math.fsum(valid) / len(valid) if valid else math.nan
        return scores

    def operating_k(self, candidates: Sequence[int]) -> int:
        candidates = list(dict.fromkeys(candidates))
        scores = self.accuracies(candidates)
        order = sorted(candidates) if self.paired else candidates
        order = [k for k in order if not math.isnan(scores[k])]
        best = order[0]
        for k in order[1:]:
            # Recalls are short fractions: what differs by rounding alone is a tie.
            if scores[k] > scores[best] + 1e-12:
                best = k
        return best

    # ---- RI and MaRI -------------------------------------------------------------------------

    def tau(self, k: int) -> float:
        """Median of all typed distances within k; NaN without any."""
        pool = [d for scope in self.scopes for i in scope.rows for d, _ in self.typed(i, scope, k)]
        return float(np.median(pool)) if pool else math.nan

    def index(self, k: int, tau: float | None = None) -> dict[str, Any]:
        """RI (`tau` None) or MaRI at one k."""
        sample = np.full(self.n, np.nan)
        cause = np.full(self.n, -1)
        everything: list[tuple[float, str]] = []
        pairs = []
        for scope in self.scopes:
            mine: list[tuple[float, str]] = []
            for i in scope.rows:
                typed = self.typed(i, scope, k)
                mine += typed
                if typed:
                    sample[i] = share(typed, tau)
                    cause[i] = 0
                    continue
                kinds = [self.kind(i, j) for _, j in scope.neighbors[i][:k]]
                ss, oo = kinds.count("SS"), kinds.count("OO")
                cause[i] = 1 if ss > oo else 2 if oo > ss else 3
            pairs.append(share(mine, tau))
            everything += mine
        return {
            "value": share(everything, tau),
            "pair_values": np.array(pairs),
            "std": float(np.std(pairs)),
            "sample_values": sample,
            "undefined_type": cause,
            **tail(sample, 0.1),
        }

    # ---- CRoMa -------------------------------------------------------------------------------

    def margin(self, m: int, alpha: float = 0.1) -> dict[str, Any]:
        """CRoMa at one m."""
        sample = np.full(self.n, np.nan)
        cause = np.full(self.n, -1)
        medians = []
        for scope in self.scopes:
            for i in scope.rows:
                so = [d for d, j in scope.neighbors[i] if self.kind(i, j) == "SO"][:m]
                os = [d for d, j in scope.neighbors[i] if self.kind(i, j) == "OS"][:m]
                if len(so) < m or len(os) < m:
                    cause[i] = (len(so) < m) + 2 * (len(os) < m)
                    continue
                d_so, d_os = math.fsum(so) / m, math.fsum(os) / m
                if d_so + d_os == 0.0:
                    cause[i] = 4
                    continue
                sample[i] = (d_os - d_so) / (d_os + d_so)
                cause[i] = 0
            mine = [v for v in sample[scope.rows] if not math.isnan(v)]
            medians.append(float(np.median(mine)) if mine else math.nan)
        known = [v for v in medians if not math.isnan(v)]
        defined = sample[~np.isnan(sample)]
        return {
            "value": float(np.median(known)) if known else math.nan,
            "pair_values": np.array(medians),
            "std": float(np.std(known)) if known else math.nan,
            "sample_values": sample,
            "undefined_type": cause,
            "f0": float(np.mean(defined <= 0.0)) if defined.size else math.nan,
            **tail(sample, alpha),
        }


def share(typed: list[tuple[float, str]], tau: float | None) -> float:
    """SO evidence over all evidence; 0.5 without any. Weights relative to the nearest one."""
    if not typed:
        return 0.5
    nearest = min(d for d, _ in typed)
    weight = {"SO": 0.0, "OS": 0.0}
    for kind in weight:
        weight[kind] = math.fsum(
            1.0 if tau is None else math.exp(-(d - nearest) / tau) for d, k in typed if k == kind
        )
    return weight["SO"] / (weight["SO"] + weight["OS"])


def tail(sample: np.ndarray, alpha: float) -> dict[str, float]:
    defined = sample[~np.isnan(sample)]
    if not defined.size:
        return {"median_value": math.nan, "q_alpha": math.nan, "ltm_alpha": math.nan}
    q = float(np.quantile(defined, alpha))
    return {
        "median_value": float(np.median(defined)),
        "q_alpha": q,
        "ltm_alpha": float(np.mean(defined[defined <= q])),
    }
