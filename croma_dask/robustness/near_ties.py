"""Whether an exact search would have chosen the operating k of an approximate one, too.

Candidates for k are often nearly as good as one another, and a few missed neighbours decide between
them. How much they could decide is estimated from the sample: a row's vote changes only when it has
missed about half as many neighbours as its label leads by, of other labels than those it has in
their place. Where that leaves a choice, the rows whose votes are in most doubt are searched
exactly; what is in doubt even then is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.design import Scope
from croma_dask.index.neighbors import Neighbors
from croma_dask.robustness.index_scores import NeighborCounts, choose, count_neighbors
from croma_dask.robustness.operating_k import Choice, Votes
from croma_dask.robustness.trial import Trial

__all__ = ["Settled", "settle_k"]

F64 = NDArray[np.float64]

_ROUNDS = (0.25, 0.75)
"""Shares of the rows that may be looked at, one round after the other while k is in doubt."""

_LEAST, _SHARE = 1_000, 1 / 200
"""Rows that may be searched exactly for the sake of k: a two hundredth of the exact search."""


@dataclass(frozen=True)
class Settled:
    """The operating k, and what it was chosen from.

    Attributes
    ----------
    counts
        Votes and typed neighbours, one a scope.
    choice
        The operating k.
    possible
        Candidates that an exact search could choose, ascending, the operating k among them.
    trial
        Of an approximate search, with all rows that were looked at closer.
    """

    counts: list[NeighborCounts]
    choice: Choice
    possible: tuple[int, ...]
    trial: Trial | None = None


def settle_k(
    scopes: Sequence[Scope], neighbors: Sequence[Neighbors], candidates: Sequence[int],
    trial: Trial | None, *, paired: bool,
) -> Settled:  # fmt: skip
    """Choose the operating k; of an approximate search, with a closer look where it is in doubt.

    Parameters
    ----------
    scopes, neighbors
        One each a scope.
    candidates
        Candidates for k.
    trial
        Of an approximate search, else None.
    paired
        As the design has it.

    Raises
    ------
    SupportError
        No candidate can be used.
    """

    def count() -> tuple[list[NeighborCounts], Choice]:
        counts = [
            count_neighbors(scope, found, candidates)
            for scope, found in zip(scopes, neighbors, strict=True)
        ]
        return counts, choose(counts, candidates, paired=paired)

    counts, choice = count()
    if trial is None:
        return Settled(counts, choice, (choice.k,))
    (scope,), (found,) = scopes, neighbors
    most = max(_LEAST, int(_SHARE * len(scope)))
    for number, share in enumerate(_ROUNDS):
        looked = trial.closer.begun(number)
        if looked is None:
            doubt = _Doubt(scope, counts[0].votes, trial)
            possible = doubt.possible(found, candidates, choice)
            if len(possible) == 1:
                break
            looked = doubt.rows(found, possible, max(1, int(share * most)))
            if looked[0].size == 0:
                break
            trial.closer.look(number, *looked)
        trial = trial.without(*looked)
        counts, choice = count()
    possible = _Doubt(scope, counts[0].votes, trial).possible(found, candidates, choice)
    return Settled(counts, choice, possible, trial)


_NO_ROW = 0.05
"""Expected number of changed votes below which none has changed, with 95 % confidence."""


class _Doubt:
    """What the votes of the rows without exact lists may be wrong about."""

    def __init__(self, scope: Scope, votes: Votes, trial: Trial) -> None:
        self.scope, self.votes, self.trial = scope, votes, trial
        own = scope.label[trial.exact.rows]
        # Of another label are mostly the farther neighbours: the longest lists say enough of all.
        share = _other_label(trial.approx.index, trial.exact.index, own, scope.label)
        self.risk = {
            k: _risk(trial.approx.index[:, :k], trial.exact.index[:, :k], share)
            for k in votes.k_values
        }
        present = votes.used > 0
        # What one row of a label is worth in the balanced accuracy.
        self.worth = np.where(present, 1.0 / np.maximum(votes.used, 1), 0.0) / max(present.sum(), 1)

    def possible(
        self, found: Neighbors, candidates: Sequence[int], choice: Choice
    ) -> tuple[int, ...]:
        """Candidates that may be the best ones."""
        accuracy = dict(zip(candidates, choice.balanced_accuracy, strict=True))
        bound = dict.fromkeys(self.votes.k_values, 0.0)
        changed = dict.fromkeys(self.votes.k_values, 0.0)
        for block in found.blocks():
            rows = np.flatnonzero(~self.trial.known[block.lo : block.hi])
            own = self.scope.label[block.lo + rows]
            leads = self.votes.leads(block.index[rows], own)
            for number, k in enumerate(self.votes.k_values):
                risk = self._risk_of(k, leads[number])
                bound[k] += float((self.worth[own] * risk).sum())
                changed[k] += float(risk.sum())
        best = choice.k
        return tuple(
            k
            for k in sorted(accuracy)
            if k == best
            or (
                accuracy[best] - accuracy[k] <= bound[best] + bound[k]
                and changed[best] + changed[k] > _NO_ROW
            )
        )

    def _risk_of(self, k: int, leads: NDArray[np.int32]) -> F64:
        # One neighbour in the place of another changes a lead by two at most.
        needed = np.maximum((leads + 1) // 2, 1)
        risk: F64 = self.risk[k][needed]
        return risk

    def rows(
        self, found: Neighbors, possible: Sequence[int], most: int
    ) -> tuple[NDArray[np.int64], F64]:
        """Choose the rows whose votes are in most doubt.

        Parameters
        ----------
        found
            Lists of all rows.
        possible
            Candidates that are in doubt.
        most
            Number of rows.

        Returns
        -------
        rows, alike
            Rows, and for each row of the sample which share of the rows like it are among them.
        """
        number = [self.votes.k_values.index(k) for k in possible]
        doubt = np.zeros(len(self.scope), np.float32)
        for block in found.blocks():
            doubt[block.lo : block.hi] = self._of(
                block.index, self.scope.label[block.lo : block.hi], number
            )
        of_sample = self._of(
            self.trial.approx.index, self.scope.label[self.trial.exact.rows], number
        )
        doubt[self.trial.known] = 0.0
        # By the doubt, then by row.
        rows = np.argsort(-doubt, kind="stable")[:most]
        rows = np.sort(rows[doubt[rows] > 0.0])
        if rows.size == 0:
            return rows, np.zeros(of_sample.shape[0])
        least = doubt[rows].min()
        inside = float((doubt[rows] == least).sum() / max((doubt == least).sum(), 1))
        return rows, np.where(of_sample > least, 1.0, np.where(of_sample == least, inside, 0.0))

    def _of(
        self, index: NDArray[np.int32], own: NDArray[np.int32], number: Sequence[int]
    ) -> NDArray[np.float32]:
        leads = self.votes.leads(index, own)
        risk = np.zeros(own.shape[0])
        for n in number:
            risk += self._risk_of(self.votes.k_values[n], leads[n])
        doubt: NDArray[np.float32] = (self.worth[own] * risk).astype(np.float32)
        return doubt


def _other_label(
    approx: NDArray[np.int32], exact: NDArray[np.int32], own: NDArray[np.int32],
    label: NDArray[np.int32],
) -> float:  # fmt: skip
    """How often a neighbour that is missed, or what is in its place, has another label."""
    missed = other = 0
    for row in range(exact.shape[0]):
        sides = (
            np.setdiff1d(exact[row], approx[row], assume_unique=True),
            np.setdiff1d(approx[row], exact[row], assume_unique=True),
        )
        missed += sides[0].size
        other += max(int((label[side[side >= 0]] != own[row]).sum()) for side in sides)
    return min((other + 1) / (missed + 1), 1.0)


def _risk(approx: NDArray[np.int32], exact: NDArray[np.int32], share: float) -> F64:
    """(k + 2,) chance that a vote is changed for which so many neighbours have to be missed.

    The first one is taken to be of another label than what is in its place; the others are in a
    `share`. What no row of the sample has missed gets rarer as fast as what some have.
    """
    n, k = exact.shape
    missed = np.zeros(n, np.int64)
    for row in range(n):
        missed[row] = np.setdiff1d(exact[row], approx[row], assume_unique=True).size
    least = np.arange(k + 2)
    seen = (missed[:, None] >= least).sum(axis=0)
    risk: F64 = seen / max(n, 1)
    risk[1] = (seen[1] + 1) / (n + 1)
    for j in range(2, k + 2):
        if seen[j] == 0:
            fall = risk[j - 1] / risk[j - 2] if j > 2 else 0.5
            risk[j] = risk[j - 1] * min(max(fall, 0.1), 0.5)
    risk *= share ** np.maximum(least - 1, 0)
    return risk
