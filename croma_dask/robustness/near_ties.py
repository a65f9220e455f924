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
from croma_dask.fingerprint import text_digest
from croma_dask.index.neighbors import Neighbors
from croma_dask.robustness.index_scores import NeighborCounts, choose, count_neighbors
from croma_dask.robustness.operating_k import Choice, Votes
from croma_dask.robustness.trial import Trial

__all__ = ["Settled", "settle_k"]

F64 = NDArray[np.float64]

_ROUNDS = (0.25, 0.75)
"""Shares of the rows that may be looked at, one round after the other while k is in doubt."""

_LEAST, _SHARE, _MOST = 1_000, 1 / 200, 20_000
"""Rows that may be searched exactly for the sake of k, in small, middling and large cohorts."""

_NEAR = 0.25
"""Share of the sample with the smallest leads, whose misses speak for rows of such leads: rows
between clusters miss more than others."""

_NO_VOTE = 0.025
"""Expected number of changed votes below which none has changed."""


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
    if len(set(candidates)) == 1:
        return Settled(counts, choice, (choice.k,), trial)
    (scope,), (found,) = scopes, neighbors
    most = min(max(_LEAST, int(_SHARE * len(scope))), _MOST)
    # Which rows are looked at depends on all of this; a run with other candidates is another one.
    asked = text_digest(repr((tuple(candidates), _ROUNDS, most, _NEAR, _NO_VOTE)))[:12]
    doubt = _Doubt(scope, counts[0].votes, trial)
    possible: tuple[int, ...] | None = None
    for number, share in enumerate(_ROUNDS):
        looked = trial.closer.chosen(f"{asked}-{number}")
        if looked is None:
            possible = doubt.possible(found, candidates, choice, trial.known)
            if len(possible) == 1:
                break
            looked = doubt.rows(found, possible, max(1, int(share * most)), trial.known, number)
            if looked[0].size == 0:
                break
        trial.closer.look(f"{asked}-{number}", *looked)
        trial = trial.without(*looked)
        counts, choice = count()
        doubt.votes = counts[0].votes
        possible = None
    if possible is None:
        possible = doubt.possible(found, candidates, choice, trial.known)
    return Settled(counts, choice, possible, trial)


class _Doubt:
    """What the votes of the rows without exact lists may be wrong about."""

    def __init__(self, scope: Scope, votes: Votes, trial: Trial) -> None:
        self.scope, self.votes = scope, votes
        self.rows_of_sample, self.index_of_sample = trial.exact.rows, trial.approx.index
        own = votes.label[trial.exact.rows]
        leads = votes.leads(trial.approx.index, own)
        # Of another label are mostly the farther neighbours: the longest lists say enough of all.
        share = _other_label(trial.approx.index, trial.exact.index, own, votes.label)
        self.near: dict[int, float] = {}
        self.risk: dict[int, tuple[F64, F64]] = {}
        for number, k in enumerate(votes.k_values):
            missed = _missed(trial.approx.index[:, :k], trial.exact.index[:, :k])
            self.near[k] = float(np.quantile(leads[number], _NEAR)) if own.size else float(k)
            close = leads[number] <= self.near[k]
            everywhere = _risk(missed, k, share)
            self.risk[k] = everywhere, np.maximum(everywhere, _risk(missed[close], k, share))

    @property
    def worth(self) -> F64:
        """(labels,) what one row of a label is worth in the balanced accuracy."""
        used = self.votes.used
        present = used > 0
        worth: F64 = np.where(present, 1.0 / np.maximum(used, 1), 0.0) / max(int(present.sum()), 1)
        return worth

    def possible(
        self, found: Neighbors, candidates: Sequence[int], choice: Choice,
        known: NDArray[np.bool_],
    ) -> tuple[int, ...]:  # fmt: skip
        """Candidates that may be the best ones."""
        accuracy = dict(zip(candidates, choice.balanced_accuracy, strict=True))
        ks, n_labels = self.votes.k_values, self.votes.n_labels
        changed = {k: np.zeros(n_labels) for k in ks}
        for block in found.blocks():
            rows = np.flatnonzero(~known[block.lo : block.hi])
            own = self.votes.label[block.lo + rows]
            leads = self.votes.leads(block.index[rows], own)
            for number, k in enumerate(ks):
                changed[k] += np.bincount(own, self._risk_of(k, leads[number]), n_labels)
        bound = {k: self._most(changed[k]) for k in ks}
        best = choice.k
        return tuple(
            k
            for k in sorted(accuracy)
            if k == best
            or (
                accuracy[best] - accuracy[k] <= bound[best] + bound[k]
                and float(changed[best].sum() + changed[k].sum()) > _NO_VOTE
            )
        )

    def _most(self, changed: F64) -> float:
        """How far so many changed votes of each label may move the balanced accuracy.

        As far as expected and two standard deviations more; and one vote of the rarest label that
        may have one: of few rows a single one moves it by much.
        """
        worth = self.worth
        one = worth[changed > _NO_VOTE / max(changed.size, 1)].max(initial=0.0)
        return float((worth * changed).sum() + 2.0 * np.sqrt((worth**2 * changed).sum()) + one)

    def _risk_of(self, k: int, leads: NDArray[np.int32]) -> F64:
        # One neighbour in the place of another changes a lead by two at most.
        needed = np.maximum((leads + 1) // 2, 1)
        everywhere, near = self.risk[k]
        risk: F64 = np.where(leads <= self.near[k], near[needed], everywhere[needed])
        return risk

    def rows(
        self, found: Neighbors, possible: Sequence[int], most: int, known: NDArray[np.bool_],
        seed: int,
    ) -> tuple[NDArray[np.int64], F64]:  # fmt: skip
        """Choose the rows whose votes are in most doubt; of equal ones some at random.

        Parameters
        ----------
        found
            Lists of all rows.
        possible
            Candidates that are in doubt.
        most
            Number of rows.
        known
            (n,) rows that have their exact lists.
        seed
            Of that choice.

        Returns
        -------
        rows, alike
            Rows, and for each row of the sample which share of the rows like it are among them.
        """
        number = [self.votes.k_values.index(k) for k in possible]
        doubt = np.zeros(len(self.scope), np.float32)
        for block in found.blocks():
            doubt[block.lo : block.hi] = self._of(
                block.index, self.votes.label[block.lo : block.hi], number
            )
        of_sample = self._of(self.index_of_sample, self.votes.label[self.rows_of_sample], number)
        doubt[known] = 0.0
        n_doubtful = int((doubt > 0.0).sum())
        if n_doubtful == 0:
            return np.empty(0, np.int64), np.zeros(of_sample.shape[0])
        most = min(most, n_doubtful)
        least = np.partition(doubt, doubt.size - most)[doubt.size - most]
        above, ties = np.flatnonzero(doubt > least), np.flatnonzero(doubt == least)
        drawn = np.random.default_rng([seed, most]).choice(ties, most - above.size, replace=False)
        inside = drawn.size / ties.size
        alike = np.where(of_sample > least, 1.0, np.where(of_sample == least, inside, 0.0))
        return np.sort(np.concatenate([above, drawn])), alike

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


def _missed(approx: NDArray[np.int32], exact: NDArray[np.int32]) -> NDArray[np.int64]:
    """(n,) how many of its exact neighbours each row has missed."""
    return np.array(
        [np.setdiff1d(e, a, assume_unique=True).size for e, a in zip(exact, approx, strict=True)],
        np.int64,
    )


def _risk(missed: NDArray[np.int64], k: int, share: float) -> F64:
    """(k + 2,) chance that a vote is changed for which so many neighbours have to be missed.

    Parameters
    ----------
    missed
        (n,) neighbours that rows of the sample have missed among their first k.
    k, share
        The candidate, and how often a missed neighbour has another label.

    Notes
    -----
    The first one is taken to be of another label than what is in its place. As if one row more of
    the sample had missed as many; what none has missed gets rarer as fast as what some have.
    """
    n = missed.shape[0]
    least = np.arange(k + 2)
    seen = (missed[:, None] >= least).sum(axis=0)
    risk: F64 = (seen + 1) / (n + 1)
    for j in range(2, k + 2):
        if seen[j] == 0:
            fall = risk[j - 1] / risk[j - 2] if j > 2 else 0.5
            risk[j] = risk[j - 1] * min(max(fall, 0.1), 0.5)
    risk *= share ** np.maximum(least - 1, 0)
    return risk
