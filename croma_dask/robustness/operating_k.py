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

_WIDE = 4
"""Labels for each neighbour up to which votes are counted in a table of all labels: beyond, most of
it would be empty."""


def first_appearance(label: NDArray[np.int32], n_labels: int) -> NDArray[np.int64]:
    """(n_labels,) rank of each label by the first row that has it."""
    codes, first = np.unique(label, return_index=True)
    rank = np.full(n_labels, n_labels, np.int64)
    rank[codes[np.argsort(first)]] = np.arange(codes.shape[0])
    return rank


class Votes:
    """Majority votes of one scope at every candidate k, counted block by block.

    Only integers are kept (rows and hits a label), so the order of the blocks cannot matter.

    Attributes
    ----------
    k_values
        The candidates, ascending.
    label
        (n,) label of each row, numbered in the order of codes among the labels of the scope: of a
        subset of a cohort these are few.
    rank
        (labels,) rank of each of these by the first row that has it.
    used, hits
        (labels,) rows with a neighbour; by k, those whose own label has the majority.
    """

    def __init__(self, scope: Scope, k_values: Sequence[int]) -> None:
        self.k_values = sorted(set(k_values))
        codes, label = np.unique(scope.label, return_inverse=True)
        self.n_labels = int(codes.shape[0])
        self.label = label.astype(np.int32)
        self.rank = first_appearance(self.label, self.n_labels)
        self.scope = scope
        self.used = np.zeros(self.n_labels, np.int64)
        self.hits = {k: np.zeros(self.n_labels, np.int64) for k in self.k_values}

    def add(self, block: Block) -> None:
        """Count the votes of a block."""
        own = self.label[block.lo : block.hi]
        for part in self._steps(block.index):
            self._count(block.index[part], own[part])

    def _count(self, index: NDArray[np.int32], own: NDArray[np.int32]) -> None:
        voted = index[:, 0] >= 0 if index.shape[1] else np.zeros(index.shape[0], bool)
        self.used += np.bincount(own[voted], minlength=self.n_labels)
        ballot = self._ballot(index, own)
        for k, counts in ballot.tables(self.k_values):
            # The first of equal maxima is the label that appears first: a tie goes to it.
            right = voted & (counts.argmax(axis=1) == ballot.own)
            self.hits[k] += np.bincount(own[right], minlength=self.n_labels)

    def leads(self, index: NDArray[np.int32], own: NDArray[np.int32]) -> NDArray[np.int32]:
        """(candidates, n) votes between a row's own label and the best of the others, at each k.

        Parameters
        ----------
        index
            (n, K) neighbours.
        own
            (n,) own label of each row, numbered as in `label`.
        """
        leads = np.empty((len(self.k_values), index.shape[0]), np.int32)
        for part in self._steps(index):
            ballot = self._ballot(index[part], own[part])
            rows = np.flatnonzero(ballot.own < ballot.n_columns)
            column = ballot.own[rows]
            for number, (_, counts) in enumerate(ballot.tables(self.k_values)):
                mine = np.zeros(counts.shape[0], np.int64)
                mine[rows] = counts[rows, column]
                # Back in place below: the table goes on to the next k.
                counts[rows, column] = -1
                leads[number, part] = np.abs(mine - counts.max(axis=1, initial=0))
                counts[rows, column] = mine[rows]
        return leads

    def _steps(self, index: NDArray[np.int32]) -> Iterator[slice]:
        """Parts of the rows whose table of votes stays small."""
        n, columns = index.shape[0], min(self.n_labels, _WIDE * max(index.shape[1], 1))
        step = max(1, _TABLE // (columns + 1))
        return (slice(lo, min(n, lo + step)) for lo in range(0, n, step))

    def _ballot(self, index: NDArray[np.int32], own: NDArray[np.int32]) -> _Ballot:
        there = index >= 0
        votes = np.where(there, self.rank[self.label[np.where(there, index, 0)]], self.n_labels)
        if self.n_labels <= _WIDE * max(index.shape[1], 1):
            return _Ballot(votes, self.rank[own], self.n_labels)
        return _Ballot.of_many(votes, self.rank[own], self.n_labels)

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


@dataclass(frozen=True)
class _Ballot:
    """Who votes for what in a block of rows: every row's labels in columns of its own.

    Attributes
    ----------
    votes
        (n, K) column of the label of each neighbour, n_columns where there is none. Of two columns
        of a row the label of the first has the lower rank.
    own
        (n,) column of the row's own label; n_columns where nobody votes for it.
    n_columns
        Number of columns.
    """

    votes: NDArray[np.int64]
    own: NDArray[np.int64]
    n_columns: int

    @classmethod
    def of_many(cls, votes: NDArray[np.int64], own: NDArray[np.int64], n_labels: int) -> _Ballot:
        """Give columns to the labels that are voted for, and to no other: a row has K at most.

        A table of all labels would take rows x labels, of which hardly any are voted for.
        """
        n, most = votes.shape
        order = np.argsort(votes, axis=1, kind="stable")
        sorted_votes = np.take_along_axis(votes, order, axis=1)
        column = np.zeros((n, most), np.int64)
        np.cumsum(sorted_votes[:, 1:] != sorted_votes[:, :-1], axis=1, out=column[:, 1:])
        mine = sorted_votes == own[:, None]
        at = mine.argmax(axis=1)
        rows = np.arange(n)
        found = np.where(mine[rows, at], column[rows, at], most)
        column[sorted_votes == n_labels] = most
        placed = np.empty_like(column)
        np.put_along_axis(placed, order, column, axis=1)
        return cls(placed, found, most)

    def tables(self, k_values: Sequence[int]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """(n, columns) votes, at each k in turn; one table, which goes on to the next k."""
        n, width = self.votes.shape[0], self.n_columns + 1
        counts = np.zeros(n * width, np.int64)
        row = np.arange(n)[:, None] * width
        done = 0
        for k in k_values:
            fresh = row + self.votes[:, done:k]
            counts += np.bincount(fresh.ravel(), minlength=counts.shape[0])
            done = max(done, min(k, self.votes.shape[1]))
            yield k, counts.reshape(n, width)[:, : self.n_columns]


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
