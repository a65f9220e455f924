"""The operating k: the candidate at which neighbours predict the label best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.design import Scope
from croma_dask.errors import SupportError
from croma_dask.index.neighbors import Block

__all__ = ["Votes", "choose_k", "first_appearance", "require_neighbors"]

F64 = NDArray[np.float64]

_TABLE = 1 << 20
"""Counts held at once: 8 MiB."""


def first_appearance(label: NDArray[np.int32], n_labels: int) -> NDArray[np.int64]:
    """(n_labels,) rank of each label by the first row of the scope that has it."""
    codes, first = np.unique(label, return_index=True)
    rank = np.full(n_labels, n_labels, np.int64)
    rank[codes[np.argsort(first)]] = np.arange(codes.shape[0])
    return rank


class Votes:
    """Majority votes of one scope at every candidate k, counted block by block.

    Only integers are kept (rows and hits a label), so the order of the blocks cannot matter.
    """

    def __init__(self, scope: Scope, k_values: Sequence[int]) -> None:
        self.k_values = sorted(set(k_values))
        self.rank = first_appearance(scope.label, scope.n_labels)
        self.scope = scope
        self.used = np.zeros(scope.n_labels, np.int64)
        self.hits = {k: np.zeros(scope.n_labels, np.int64) for k in self.k_values}

    def add(self, block: Block) -> None:
        """Count the votes of a block."""
        own = self.scope.label[block.lo : block.hi]
        for part in self._steps(own.shape[0]):
            self._count(block.index[part], own[part])

    def _count(self, index: NDArray[np.int32], own: NDArray[np.int32]) -> None:
        voted = index[:, 0] >= 0 if index.shape[1] else np.zeros(index.shape[0], bool)
        n_labels = self.scope.n_labels
        self.used += np.bincount(own[voted], minlength=n_labels)
        for k, counts in self._tables(index):
            # The first of equal maxima is the label that appears first: a tie goes to it.
            right = voted & (counts.argmax(axis=1) == self.rank[own])
            self.hits[k] += np.bincount(own[right], minlength=n_labels)

    def leads(self, index: NDArray[np.int32], own: NDArray[np.int32]) -> NDArray[np.int32]:
        """(candidates, n) votes between a row's own label and the best of the others, at each k."""
        leads = np.empty((len(self.k_values), index.shape[0]), np.int32)
        for part in self._steps(index.shape[0]):
            rank = self.rank[own[part]]
            rows = np.arange(rank.shape[0])
            for number, (_, counts) in enumerate(self._tables(index[part])):
                mine = counts[rows, rank].copy()
                # Back in place below: the table goes on to the next k.
                counts[rows, rank] = -1
                leads[number, part] = np.abs(mine - counts.max(axis=1, initial=0))
                counts[rows, rank] = mine
        return leads

    def _steps(self, n: int) -> Iterator[slice]:
        """Parts of n rows whose table of rows x labels stays small."""
        step = max(1, _TABLE // (self.scope.n_labels + 1))
        return (slice(lo, min(n, lo + step)) for lo in range(0, n, step))

    def _tables(self, index: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """(n, labels) votes of every label, in the order of appearance, at each k in turn."""
        n, n_labels = index.shape[0], self.scope.n_labels
        there = index >= 0
        votes = np.where(there, self.rank[self.scope.label[np.where(there, index, 0)]], n_labels)
        counts = np.zeros(n * (n_labels + 1), np.int64)
        row = np.arange(n)[:, None] * (n_labels + 1)
        done = 0
        for k in self.k_values:
            fresh = row + votes[:, done:k]
            counts += np.bincount(fresh.ravel(), minlength=counts.shape[0])
            done = max(done, min(k, votes.shape[1]))
            yield k, counts.reshape(n, n_labels + 1)[:, :n_labels]

    @property
    def any_neighbor(self) -> bool:
        """Whether any row of the scope has a neighbour."""
        return bool(self.used.any())

    def balanced_accuracy(self, k: int) -> float:
        """Mean recall over the labels of the rows that have a neighbour; NaN without any."""
        present = self.used > 0
        if not present.any():
            return float("nan")
        return float(np.mean(self.hits[k][present] / self.used[present]))


def require_neighbors(votes: Sequence[Votes]) -> None:
    """Refuse a cohort in which no row has a neighbour.

    Raises
    ------
    SupportError
        Nothing can be scored.
    """
    if not any(v.any_neighbor for v in votes):
        raise SupportError("no row has a single neighbour of another group; nothing can be scored")


@dataclass(frozen=True)
class Choice:
    """The operating k and what it was chosen from.

    Attributes
    ----------
    k
        The operating k.
    balanced_accuracy
        (candidates,) score of each, NaN where a candidate was not valid.
    """

    k: int
    balanced_accuracy: F64


def choose_k(votes: Sequence[Votes], candidates: Sequence[int], *, paired: bool) -> Choice:
    """Choose the operating k among the candidates.

    Parameters
    ----------
    votes
        One a scope.
    candidates
        In the order of the caller, without duplicates.
    paired
        Average over the subsets for which a k is valid, and take the smallest of equal ones;
        otherwise the first in the given order.

    Raises
    ------
    SupportError
        No candidate is below the number of rows, or no row has a neighbour.
    """
    sizes = [len(v.scope) for v in votes]
    require_neighbors(votes)
    score = np.full(len(candidates), np.nan)
    for at, k in enumerate(candidates):
        valid = [
            v.balanced_accuracy(k)
            for v, n in zip(votes, sizes, strict=True)
            if k < n and v.any_neighbor
        ]
        if valid:
            score[at] = np.mean(valid)
    if np.isnan(score).all():
        raise SupportError(
            f"no candidate k is below the number of rows in a scope ({max(sizes)}): candidates "
            f"{list(candidates)}; pass smaller k_candidates"
        )
    order = np.argsort(candidates, kind="stable") if paired else np.arange(len(candidates))
    best = -1
    for at in order:
        if not np.isnan(score[at]) and (best < 0 or score[at] > score[best]):
            best = int(at)
    return Choice(int(candidates[best]), score)
