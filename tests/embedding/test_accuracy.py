"""Acc@kNN: scikit-learn's cross-validated classifier, from one list of neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from croma_dask.embedding.accuracy import LEFT_OUT, SHORT, accuracy, folds, vote_block
from croma_dask.errors import SchemaError
from tests.helpers.plain_metrics import accuracy as plain_accuracy
from tests.helpers.plain_metrics import exact_lists


def cells(n: int, d: int, seed: int, *, rare: int = 0) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Rows, codes and names (in the order of code points) of overlapping labels."""
    rng = np.random.default_rng(seed)
    names = ["B cell", "T", "a", "b10", "b9", "ä"]
    codes = rng.integers(0, 5, n).astype(np.int32)
    codes[:rare] = 5
    x = rng.normal(size=(n, d)) + 0.8 * rng.normal(size=(6, d))[codes]
    order = rng.permutation(n)
    return x[order], codes[order], names


def metric(x: np.ndarray, codes: np.ndarray, k: int) -> tuple[Any, Any, Any]:
    fold = folds(codes)
    index, _ = exact_lists(x, min(k + 1, len(x)))
    predicted = vote_block(index[:, 1:], fold, fold, codes, complete=k >= len(x) - 1)
    return accuracy(predicted, codes, fold), predicted, fold


# ---- folds ---------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**31), n=st.integers(5, 150), n_labels=st.integers(1, 12))
def test_folds__are_those_of_the_text(seed: int, n: int, n_labels: int) -> None:
    rng = np.random.default_rng(seed)
    names = np.array([f"{chr(97 + (7 * i) % 26)}{i}" for i in range(n_labels)])
    text = names[rng.integers(0, n_labels, n)]
    levels, codes = np.unique(text, return_inverse=True)
    found = folds(codes.astype(np.int32))
    assert found.dtype == np.int8
    kept = np.flatnonzero(np.bincount(codes)[codes] >= 5)
    np.testing.assert_array_equal(found >= 0, np.isin(np.arange(n), kept))
    if len(kept) == 0:
        return
    cv = StratifiedKFold(5, shuffle=True, random_state=42)
    for number, (_, test) in enumerate(cv.split(np.zeros((len(kept), 2)), text[kept])):
        np.testing.assert_array_equal(np.flatnonzero(found == number), kept[test])
    # Other names, other codes: the same folds.
    renamed = rng.permutation(len(levels) + 3)[: len(levels)].astype(np.int32)[codes]
    np.testing.assert_array_equal(folds(renamed), found)


def test_folds__five_cells_are_one_in_each_fold_and_four_are_dropped() -> None:
    found = folds(np.repeat([0, 1, 2, 3], [5, 4, 0, 12]).astype(np.int32))
    np.testing.assert_array_equal(np.sort(found[:5]), np.arange(5))
    np.testing.assert_array_equal(found[5:9], -1)
    assert (found[9:] >= 0).all()
    for small in (np.empty(0, np.int32), np.array([0, 1, 1], np.int32)):
        np.testing.assert_array_equal(folds(small), np.full(len(small), -1))


def test_folds__leave_the_global_generator_alone() -> None:
    np.random.seed(3)  # noqa: NPY002
    expected = np.random.get_state()[1].copy()  # noqa: NPY002
    folds(np.repeat([0, 1], 20).astype(np.int32))
    np.testing.assert_array_equal(np.random.get_state()[1], expected)  # noqa: NPY002


# ---- votes and their accuracy ------------------------------------------------------------------


@pytest.mark.parametrize("rare", [0, 4])
@pytest.mark.parametrize("d", [8, 24])  # a tree, and brute force
def test_accuracy__is_the_cross_validated_classifier_s(d: int, rare: int) -> None:
    x, codes, names = cells(300, d, seed=d, rare=rare)
    outcome, predicted, fold = metric(x, codes, 60)
    text = np.array(names, dtype=object)[codes]
    kept = np.bincount(codes)[codes] >= 5
    classifier = KNeighborsClassifier(5, metric="euclidean")
    cv = StratifiedKFold(5, shuffle=True, random_state=42)
    expected = cross_val_score(classifier, x[kept], text[kept], cv=cv).mean()
    assert outcome.value == expected
    assert outcome.value == pytest.approx(plain_accuracy(x, text), abs=1e-15)
    votes = cross_val_predict(classifier, x[kept], text[kept], cv=cv)
    np.testing.assert_array_equal(np.array(names, dtype=object)[predicted[kept]], votes)
    np.testing.assert_array_equal(predicted[~kept], LEFT_OUT)
    protocol = "n_neighbors=5;folds=5;random_state=42"
    assert outcome.note == (f"dropped_cells={rare};{protocol}" if rare else protocol)
    assert outcome.status == "ok"


def test_vote_block__takes_the_first_five_of_other_folds() -> None:
    """Of ten neighbours one is of the own fold and one was dropped; the last two come too late."""
    codes = np.array([0, 1, 1, 2, 0, 1, 2, 2, 2, 0, 0], np.int32)
    fold = np.array([0, 0, 1, -1, 2, 3, 4, 1, 2, 3, 0], np.int8)
    index = np.array([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]], np.int32)
    votes = vote_block(index, fold[:1], fold, codes, complete=False)
    # 2: b, 4: a, 5: b, 6: c, 7: c - a tie of 1 and 2, which the smaller code wins
    assert votes.dtype == np.int32
    np.testing.assert_array_equal(votes, [1])
    np.testing.assert_array_equal(vote_block(index[:, 5:], fold[:1], fold, codes, complete=True), 2)


def test_vote_block__short_unless_the_list_is_complete() -> None:
    codes = np.array([0, 1, 0, 0, 1, 1, 1], np.int32)
    fold = np.array([0, 1, 2, 3, 0, -1, 0], np.int8)
    index = np.array([[1, 2, 3, 4, 5, 6, -1]], np.int32)
    # Three voters: 1, 0, 0.
    assert vote_block(index, fold[:1], fold, codes, complete=False)[0] == SHORT
    assert vote_block(index, fold[:1], fold, codes, complete=True)[0] == 0
    nobody = np.full((1, 3), -1, np.int32)
    assert vote_block(nobody, fold[:1], fold, codes, complete=False)[0] == SHORT
    assert vote_block(nobody, fold[:1], fold, codes, complete=True)[0] == LEFT_OUT
    assert vote_block(index, fold[5:6], fold, codes, complete=False)[0] == LEFT_OUT
    assert vote_block(index[:, :2], fold[:1], fold, codes, complete=False)[0] == SHORT


@given(seed=st.integers(0, 2**31), n=st.integers(12, 90), k=st.integers(1, 95))
def test_vote_block__rows_stand_alone_and_longer_lists_agree(seed: int, n: int, k: int) -> None:
    x, codes, _ = cells(n, 2, seed, rare=3)
    fold = folds(codes)
    index, _ = exact_lists(x, n)
    index = index[:, 1:]
    k = min(k, n - 1)
    whole = vote_block(index[:, :k], fold, fold, codes, complete=k == n - 1)
    step = 1 + seed % 7
    parts = [
        vote_block(index[lo : lo + step, :k], fold[lo : lo + step], fold, codes,
                   complete=k == n - 1)
        for lo in range(0, n, step)
    ]  # fmt: skip
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    final = vote_block(index, fold, fold, codes, complete=True)
    enough = whole != SHORT
    np.testing.assert_array_equal(whole[enough], final[enough])
    assert (final[fold >= 0] >= 0).all()


@given(seed=st.integers(0, 2**31))
def test_accuracy__is_that_of_plain_loops_on_ties(seed: int) -> None:
    """Rows on a grid, many of them equal: the order (distance, row) decides."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 60))
    x = rng.integers(0, 3, (n, 2)).astype(float)
    codes = rng.integers(0, 3, n).astype(np.int32)
    outcome, _, fold = metric(x, codes, n - 1)
    expected = plain_accuracy(x, codes)
    if math.isnan(expected):
        assert math.isnan(outcome.value)
    elif (fold >= 0).all():
        assert outcome.value == pytest.approx(expected, abs=1e-15)


def test_accuracy__is_the_mean_of_folds_not_of_cells() -> None:
    codes = np.array([0] * 6 + [1] * 6, np.int32)
    fold = np.array([0, 0, 1, 2, 3, 4] * 2, np.int8)
    predicted = codes.copy()
    predicted[0] = 1
    outcome = accuracy(predicted, codes, fold)
    assert outcome.value == pytest.approx((0.75 + 4) / 5)
    assert outcome.value != pytest.approx(11 / 12)


@pytest.mark.parametrize("sizes", [[20], [20, 4, 4], [4, 4, 4], [9], []])
def test_accuracy__undefined_without_ten_cells_of_two_labels(sizes: list[int]) -> None:
    codes = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    fold = folds(codes)
    outcome = accuracy(np.full(len(codes), SHORT, np.int32), codes, fold)
    assert math.isnan(outcome.value)
    dropped = sum(size for size in sizes if size < 5)
    parts = outcome.note.split(";")
    assert parts[:2] == [
        "insufficient_cells_after_dropping_rare_classes", f"dropped_cells={dropped}"
    ]  # fmt: skip
    assert outcome.status.startswith("undefined: ")


def test_accuracy__refuses_rows_that_are_still_short() -> None:
    codes = np.repeat([0, 1], 10).astype(np.int32)
    fold = folds(codes)
    predicted = codes.copy()
    predicted[[3, 7]] = SHORT
    with pytest.raises(SchemaError, match="2 rows"):
        accuracy(predicted, codes, fold)
