"""The operating k of an approximate search is that of the exact one, or the doubt is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from croma_dask.cohort.design import Scope
from croma_dask.index.finish import Delivered
from croma_dask.index.neighbors import Block, Neighbors, ResidentLists
from croma_dask.index.probing import Radius
from croma_dask.index.spec import ListSpec
from croma_dask.index.tune import Tuned
from croma_dask.robustness import near_ties
from croma_dask.robustness.calibration import SampleLists, recall_of
from croma_dask.robustness.near_ties import Settled, settle_k
from croma_dask.robustness.operating_k import Votes
from croma_dask.robustness.sampling import Share
from croma_dask.robustness.trial import Trial
from tests.helpers.inverted import Pair, pairs, taken

KS = (3, 5, 11, 21)


@dataclass
class Closer:
    """Looks up what a closer look would find."""

    exact: SampleLists
    delivered: Delivered
    looked: list[np.ndarray]

    def chosen(self, name: str) -> None:
        return None

    def look(self, name: str, rows: np.ndarray, note: np.ndarray) -> None:
        assert note.min() >= 0.0
        assert note.max() <= 1.0
        self.looked.append(rows)
        self.delivered.index[rows] = self.exact.index[rows]
        self.delivered.distance[rows] = self.exact.distance[rows]


def settled(pair: Pair, seed: int, size: int = 200) -> tuple[Settled, Settled, Closer]:
    """What an approximate run settles on, an exact one, and what the former looked at."""
    n = len(pair.scope)
    rows = np.sort(np.random.default_rng(seed).choice(n, size, replace=False))
    spec = ListSpec(max(KS), 0)
    delivered = Delivered(pair.approx.index.copy(), pair.approx.distance.copy())
    closer = Closer(pair.exact, delivered, [])
    approx, exact = pair.sample(rows)
    known = np.zeros(n, bool)
    known[rows] = True
    closer.look("", rows, np.zeros(1))
    closer.looked.clear()
    trial = Trial(
        Tuned(Radius(1, 0, 0), 1.0, 1.0, 0), exact, approx, recall_of(approx, exact), known,
        Share(size / n, 1 - size / n), closer, {},
    )  # type: ignore[arg-type]  # fmt: skip

    def settle(lists: Delivered, trial: Trial | None) -> Settled:
        found = Neighbors(n, spec, ResidentLists(lists, spec.n_global), 0, "ivf")
        return settle_k([pair.scope], [found], KS, trial, paired=False)

    truth = settle(Delivered(pair.exact.index, pair.exact.distance), None)
    return settle(delivered, trial), truth, closer


def test_leads__by_hand() -> None:
    label = np.array([0, 1, 1, 2, 0, 0], np.int32)
    scope = Scope("dataset", None, label, label, np.arange(6, dtype=np.int32), 3)
    votes = Votes(scope, [1, 3, 5])
    # Row 0 of label 0: nearest are 1 (label 1), 4, 5 (label 0), 3 (label 2), 2 (label 1).
    index = np.array([[1, 4, 5, 3, 2], [4, 5, 3, -1, -1]], np.int32)
    leads = votes.leads(index, label[[0, 1]])
    # Of row 1 label 0 has one, then two votes more than its own label.
    assert leads.tolist() == [[1, 1], [1, 2], [0, 2]]
    block = Block(0, 2, index, np.zeros(index.shape))
    votes.add(block)
    assert [votes.hits[k].tolist() for k in (1, 3, 5)] == [[0, 0, 0], [1, 0, 0], [1, 0, 0]]


def test_risk__falls_with_what_has_to_be_missed() -> None:
    rng = np.random.default_rng(0)
    exact = np.argsort(rng.random((300, 50)), axis=1)[:, :9].astype(np.int32)
    approx = exact.copy()
    approx[:30, 8] = 50 + np.arange(30)
    approx[:6, 7] = 90
    label = np.zeros(100, np.int32)
    own = np.zeros(300, np.int32)
    share = near_ties._other_label(approx, exact, own, label)
    assert share == 1 / 37, "all missed ones are of the row's own label, as those in their place"
    missed = near_ties._missed(approx, exact)
    assert missed.sum() == 36
    risk = near_ties._risk(missed, 9, share)
    assert risk.shape == (11,)
    assert risk[0] == 1.0
    assert risk[1] == 31 / 301
    assert risk[2] == pytest.approx(7 / 301 / 37)
    assert (np.diff(risk) < 0).all()
    label[50:] = 1
    assert near_ties._other_label(approx, exact, own, label) == 1.0
    assert near_ties._risk(np.zeros(300, int), 9, 1.0)[1:3].tolist() == [1 / 301, 0.5 / 301]


@pytest.mark.parametrize("recall", [pytest.param(0.93, marks=pytest.mark.slow), 0.98])
def test_operating_k__is_the_exact_one_or_among_the_possible(
    recall: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few rows to look at, so that some doubt remains in cohorts whose k are nearly tied."""
    monkeypatch.setattr(near_ties, "_LEAST", 300)
    told = same = alone = by_itself = 0
    seeds = range(30)
    for seed in seeds:
        (pair,) = pairs(seed, 900, k=max(KS), m=1, recalls=[recall])
        found, truth, closer = settled(pair, seed)
        assert sum(rows.size for rows in closer.looked) <= 300
        assert found.choice.k in found.possible
        assert truth.possible == (truth.choice.k,)
        told += truth.choice.k in found.possible
        same += truth.choice.k == found.choice.k
        alone += len(found.possible) == 1
        by_itself += len(found.possible) == 1 and truth.choice.k == found.choice.k
    assert told >= len(seeds) - 1
    assert same >= len(seeds) - 5
    assert by_itself >= alone - 1, "who names one k is right"
    assert alone > 0


def test_operating_k__of_all_rows_looked_at_is_certain() -> None:
    for seed in range(6):
        (pair,) = pairs(seed, 700, k=max(KS), m=1, recalls=[0.9])
        found, truth, _ = settled(pair, seed, size=100)
        assert found.possible == (truth.choice.k,)
        assert found.choice.balanced_accuracy.tolist() == truth.choice.balanced_accuracy.tolist()


def test_rows_looked_at__are_unknown_and_counted_for_the_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(near_ties, "_LEAST", 100)
    (pair,) = pairs(3, 900, k=max(KS), m=1, recalls=[0.9])
    # Labels at random: no k is better than another.
    label = np.random.default_rng(0).integers(0, 6, 900).astype(np.int32)
    pair = replace(pair, scope=replace(pair.scope, label=label))
    found, _, closer = settled(pair, 3)
    trial: Any = found.trial
    rows = np.concatenate(closer.looked)
    assert np.unique(rows).size == rows.size == 100
    assert not np.isin(rows, trial.exact.rows).any()
    assert trial.known.sum() == 300
    # As large a part of the sample would have been looked at as of the other rows.
    assert 1.0 - np.mean(trial.share.weight) == pytest.approx(100 / 700, abs=0.06)
    assert taken(pair.exact, rows).index.shape == (100, max(KS))


def test_rare_label__one_vote_of_it_is_not_smoothed_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows of one of two labels: a single vote moves the balanced accuracy by a twentieth.

    Nothing is missed but by chance; the more seldom, the more often nobody in the sample sees it.
    """
    monkeypatch.setattr(near_ties, "_LEAST", 1)
    n, k = 4_000, 5
    wrong = alone = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        label = np.zeros(n, np.int32)
        label[:10] = 1
        codes = np.arange(n, dtype=np.int32)
        scope = Scope("dataset", None, label, label, codes, 2)
        exact = rng.integers(10, n, (n, k)).astype(np.int32)
        # Of the rare rows one has the vote at k = 3 and half of them nearly so.
        exact[:10, 0] = (np.arange(10) + 1) % 10
        exact[:10, 1] = (np.arange(10) + 2) % 10
        exact[:, 2:] = np.arange(3_000, 3_003)
        lost = rng.random(n) < 0.02
        approx = exact.copy()
        approx[lost, 1] = 2_000
        lists = [
            SampleLists(codes, index, index / n, np.empty((n, 0)), np.empty((n, 0)))
            for index in (approx, exact)
        ]
        monkeypatch.setattr("tests.robustness.test_near_ties.KS", (3, 5))
        found, truth, _ = settled(Pair(scope, *lists), seed, size=400)
        alone += len(found.possible) == 1
        wrong += len(found.possible) == 1 and found.choice.k != truth.choice.k
    assert wrong <= 2, (wrong, alone)
