"""Metrics of an embedding by brute force: the specification read aloud, in float64 and loops.

Slow on purpose and written without a look at the package: all distances, no lists cut short, no
blocks. Labels and batches are given as text; the order of code points decides ties.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = [
    "LIST",
    "accuracy",
    "bras",
    "cilisi",
    "connectivity",
    "euclidean",
    "exact_lists",
    "lisi",
    "silhouettes",
]

PERPLEXITY = 30
LIST = 90


def euclidean(x: Any) -> np.ndarray:
    """(n, n) distances, exactly 0 between equal rows."""
    x = np.asarray(x).astype(np.float64)
    return np.stack([np.sqrt(((x - row) ** 2).sum(axis=1)) for row in x])


def exact_lists(x: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, k) positions and distances: each row itself, then the nearest by (distance, row)."""
    d = euclidean(x)
    n = len(d)
    order = d.copy()
    order[np.arange(n), np.arange(n)] = -1.0  # itself first, whatever else is at distance 0
    index = np.argsort(order, axis=1, kind="stable")[:, :k]
    return index.astype(np.int32), np.take_along_axis(d, index, axis=1)


# ---- LISI --------------------------------------------------------------------------------------


def _weights(d: np.ndarray, perplexity: float) -> np.ndarray | None:
    """Weights of neighbours at these distances; None where none has any."""
    target = math.log(perplexity)
    beta, least, most = 1.0, -math.inf, math.inf
    for attempt in range(51):
        p = np.exp(-beta * d)
        total = float(p.sum())
        entropy = math.log(total) + beta * float((d * p).sum()) / total if total > 0.0 else 0.0
        excess = entropy - target
        if abs(excess) < 1e-5 or attempt == 50:
            break
        if excess > 0.0:
            least = beta
            beta = beta * 2.0 if most == math.inf else (beta + most) / 2.0
        else:
            most = beta
            beta = beta / 2.0 if least == -math.inf else (beta + least) / 2.0
    return p / total if total > 0.0 and entropy != 0.0 else None


def lisi(x: Any, category: Any, *, columns: int = LIST, perplexity: float = PERPLEXITY) -> Any:
    """(n,) LISI of each row over the first columns of its list, itself among them."""
    names, code = np.unique(np.asarray(category), return_inverse=True)
    n = len(code)
    index, distance = exact_lists(x, min(columns, n - 1))
    found = np.empty(n)
    for i in range(n):
        others = index[i] != i
        p = _weights(distance[i][others], perplexity)
        if p is None:
            p = np.full(int(others.sum()), 1.0 / max(1, int(others.sum())))
        around = code[index[i][others]]
        shares = [float(p[around == c].sum()) for c in range(len(names))]
        found[i] = 1.0 / sum(share * share for share in shares)
    return found


def cilisi(x: Any, labels: Any, batches: Any) -> np.ndarray:
    """(n,) LISI over batches among the cells of a label, scaled; NaN where the label is skipped."""
    x, labels, batches = np.asarray(x), np.asarray(labels), np.asarray(batches)
    found = np.full(len(labels), np.nan)
    for name in np.unique(labels):
        rows = np.flatnonzero(labels == name)
        n_batches = len(np.unique(batches[rows]))
        if len(rows) < 10 or n_batches < 2:
            continue
        perplexity = min(PERPLEXITY, len(rows) - 1)
        values = lisi(x[rows], batches[rows], columns=3 * perplexity, perplexity=perplexity)
        found[rows] = np.clip((values - 1.0) / (n_batches - 1), 0.0, 1.0)
    return found


# ---- distances to labels and batches -----------------------------------------------------------


def _ratio(a: float, b: float) -> float:
    return (b - a) / max(a, b) if max(a, b) > 0.0 else 0.0


def silhouettes(x: Any, labels: Any) -> np.ndarray:
    """(n,) silhouette of each cell with the labels as clusters."""
    labels = np.asarray(labels)
    d = euclidean(x)
    members = {name: np.flatnonzero(labels == name) for name in np.unique(labels)}
    found = np.zeros(len(labels))
    for i, own in enumerate(labels):
        if len(members[own]) == 1:
            continue
        a = math.fsum(d[i, members[own]]) / (len(members[own]) - 1)
        b = min(math.fsum(d[i, rows]) / len(rows) for name, rows in members.items() if name != own)
        found[i] = _ratio(a, b)
    return found


def bras(x: Any, labels: Any, batches: Any, *, other: str = "pooled") -> tuple[float, np.ndarray]:
    """Mean over labels and (n,) score of each cell, NaN where its label is skipped.

    `other` says how the other batches count: ``pooled``, all their cells alike, or ``batches``,
    the mean of their means.
    """
    labels, batches = np.asarray(labels), np.asarray(batches)
    x = np.asarray(x).astype(np.float64)
    unit = x / np.sqrt((x * x).sum(axis=1, keepdims=True))
    found = np.full(len(labels), np.nan)
    of_labels = []
    for name in np.unique(labels):
        rows = np.flatnonzero(labels == name)
        names = np.unique(batches[rows])
        if len(names) in (1, len(rows)):
            continue
        for i in rows:
            # half the square of the chord: the cosine distance, without cancellation
            d = ((unit[rows] - unit[i]) ** 2).sum(axis=1) / 2.0
            by_batch = {b: d[batches[rows] == b] for b in names}
            own = by_batch.pop(batches[i])
            if len(own) == 1:
                found[i] = 1.0
                continue
            a = math.fsum(own) / (len(own) - 1)
            means = [math.fsum(v) / len(v) for v in by_batch.values()]
            if other == "pooled":
                o = math.fsum(np.concatenate(list(by_batch.values()))) / (len(rows) - len(own))
            else:
                o = math.fsum(means) / len(means)
            found[i] = 1.0 - abs(_ratio(a, o))
        of_labels.append(math.fsum(found[rows]) / len(rows))
    return (math.fsum(of_labels) / len(of_labels) if of_labels else math.nan), found


# ---- neighbours and labels -----------------------------------------------------------------------


def accuracy(x: Any, labels: Any) -> float:
    """Mean of five accuracies: five nearest rows of the other folds vote."""
    from sklearn.model_selection import StratifiedKFold

    x, labels = np.asarray(x), np.asarray(labels)
    names, counts = np.unique(labels, return_counts=True)
    kept = np.isin(labels, names[counts >= 5])
    x, labels = x[kept], labels[kept]
    if len(labels) < 10 or len(np.unique(labels)) < 2:
        return math.nan
    d = euclidean(x)
    of_folds = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=42).split(x, labels):
        right = 0
        for i in test:
            nearest = train[np.argsort(d[i, train], kind="stable")[:5]]
            seen, votes = np.unique(labels[nearest], return_counts=True)
            right += bool(seen[np.argmax(votes)] == labels[i])
        of_folds.append(right / len(test))
    return math.fsum(of_folds) / 5.0


def connectivity(x: Any, labels: Any, *, components: str = "strong", k: int = 15) -> float:
    """Mean over labels of the share of its cells that its largest component holds."""
    labels = np.asarray(labels)
    n = len(labels)
    index, _ = exact_lists(x, min(k, n - 1))
    of_labels = []
    for name in np.unique(labels):
        rows = set(np.flatnonzero(labels == name).tolist())
        ahead = {i: [j for j in index[i].tolist() if j in rows] for i in rows}
        behind: dict[int, list[int]] = {i: [] for i in rows}
        for i, targets in ahead.items():
            for j in targets:
                behind[j].append(i)
        if components == "weak":
            ahead = {i: ahead[i] + behind[i] for i in rows}
            behind = ahead
        left, largest = set(rows), 0
        while left:
            start = min(left)
            part = _reached(start, ahead) & _reached(start, behind)
            largest = max(largest, len(part))
            left -= part
        of_labels.append(largest / len(rows))
    return math.fsum(of_labels) / len(of_labels)


def _reached(start: int, edges: dict[int, list[int]]) -> set[int]:
    found, waiting = {start}, [start]
    while waiting:
        for j in edges[waiting.pop()]:
            if j not in found:
                found.add(j)
                waiting.append(j)
    return found
