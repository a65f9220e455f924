"""One probe: scikit-learn's to the last bit, and quiet in every thread."""

from __future__ import annotations

import pickle
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from croma_dask.probe.fit import (
    C_GRID,
    FittedProbe,
    balanced_accuracy,
    count_hits,
    fit_probe,
    predict,
)


def rows_of(
    n: int, n_features: int, classes: list[int], *, seed: int = 0, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([classes, rng.choice(classes, size=n - len(classes))])
    middle = np.random.default_rng(99).normal(size=(max(classes) + 1, n_features))
    return scale * (0.7 * middle[labels] + rng.normal(size=(n, n_features))), labels


def fitted_aloud(x: Any, y: Any, x_validation: Any, y_validation: Any) -> tuple[Any, float]:
    """The specification: every C, then the first of the best."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [LogisticRegression(C=C, random_state=0).fit(x, y) for C in C_GRID]
        scores = [balanced_accuracy_score(y_validation, m.predict(x_validation)) for m in models]
    best = int(np.argmax(scores))
    return models[best], scores[best]


@pytest.mark.parametrize("classes", [[0, 1], [1, 4], [0, 1, 2], [0, 2, 3, 5, 6, 7, 8, 9, 11]])
@pytest.mark.parametrize("foreign", [False, True])
def test_fit_probe__is_the_best_of_the_grid(classes: list[int], foreign: bool) -> None:
    x, y = rows_of(60, 5, classes, seed=1)
    # Validation rows lack some classes and bring one that was not trained on.
    x_v, y_v = rows_of(30, 5, [*classes[1:], 10] if foreign else classes, seed=2)
    probe = fit_probe(x, y, x_v, y_v)
    model, score = fitted_aloud(x, y, x_v, y_v)
    assert (probe.C, probe.validation_score) == (model.C, score)
    assert probe.n_fits == len(C_GRID)
    assert probe.n_iter == model.n_iter_.max()
    for found, expected in [
        (probe.coef, model.coef_),
        (probe.intercept, model.intercept_),
        (probe.classes, model.classes_),
    ]:
        np.testing.assert_array_equal(found, expected)
    x_t, _ = rows_of(500, 5, classes, seed=3)
    scores = model.decision_function(x_t)
    for same in (probe, pickle.loads(pickle.dumps(probe))):
        np.testing.assert_array_equal(predict(same, x_t), model.predict(x_t))
        product = x_t @ same.coef.T + same.intercept
        np.testing.assert_array_equal(product.reshape(scores.shape), scores)


def test_fit_probe__stops_where_nothing_can_be_better() -> None:
    x, y = rows_of(40, 3, [0, 1], seed=4)
    apart = x + 50.0 * y[:, None]
    probe = fit_probe(apart, y, apart, y)
    model, score = fitted_aloud(apart, y, apart, y)
    assert probe.validation_score == score == 1.0
    assert probe.C == model.C
    assert probe.n_fits == 1 + list(C_GRID).index(probe.C) < len(C_GRID)


def test_c_grid__is_the_reference_s(monkeypatch: pytest.MonkeyPatch) -> None:
    downstream = pytest.importorskip("croma.downstream")
    tried = []
    fit = LogisticRegression.fit
    monkeypatch.setattr(
        LogisticRegression,
        "fit",
        lambda self, *args, **kwargs: tried.append(self.C) or fit(self, *args, **kwargs),
    )
    x, y = rows_of(48, 2, [0, 1], seed=5)
    schedule = [([(0, 0, 4), (0, 1, 4)], 4), ([(0, 0, 4), (0, 1, 3)], 4)]
    downstream.probe_sweep(
        x, np.zeros_like(y), y, schedule=schedule, iterations=1, validation_fraction=0.5
    )
    assert tried[: len(C_GRID)] == C_GRID.tolist()


@given(
    true=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    seed=st.integers(0, 1000),
    blocks=st.integers(1, 4),
)
def test_balanced_accuracy__equals_sklearn(true: list[int], seed: int, blocks: int) -> None:
    labels = np.array(true)
    rng = np.random.default_rng(seed)
    predicted = np.where(rng.random(labels.size) < 0.5, labels, rng.integers(0, 14, labels.size))
    # Counts of blocks add up, and classes without a row do not matter.
    classes = np.arange(20)
    hits, totals = np.zeros(20, np.int64), np.zeros(20, np.int64)
    for at in np.array_split(np.arange(labels.size), blocks):
        h, t = count_hits(predicted[at], labels[at], classes)
        hits, totals = hits + h, totals + t
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = balanced_accuracy_score(labels, predicted)
    assert balanced_accuracy(hits, totals) == expected
    assert balanced_accuracy(*count_hits(predicted, labels, np.unique(labels))) == expected


def test_predict__of_equal_scores_is_the_first_class() -> None:
    zero = {"C": 1.0, "validation_score": 0.0, "n_iter": 1, "converged": True, "n_fits": 1}
    two = FittedProbe(np.array([3, 5]), np.zeros((1, 2)), np.zeros(1), **zero)
    three = FittedProbe(np.array([3, 5, 8]), np.zeros((3, 2)), np.array([-1.0, 0, 0]), **zero)
    assert predict(two, np.ones((2, 2))).tolist() == [3, 3]
    assert predict(three, np.ones((2, 2))).tolist() == [5, 5]


# ---- convergence ------------------------------------------------------------------------------


def hard() -> tuple[Any, ...]:
    """Rows on which the best fit runs out of iterations."""
    x, y = rows_of(60, 12, [0, 1, 2], seed=6, scale=1e5)
    x_v, y_v = rows_of(40, 12, [0, 1, 2], seed=7, scale=1e5)
    return x, y, x_v, y_v


def test_fit_probe__tells_whether_it_converged() -> None:
    x, y = rows_of(60, 4, [0, 1], seed=1)
    assert fit_probe(x, y, *rows_of(30, 4, [0, 1], seed=2)).converged
    probe = fit_probe(*hard())  # warnings are errors here
    model, _ = fitted_aloud(*hard())
    assert (probe.converged, probe.n_iter, probe.C) == (False, 100, model.C)


def test_fit_probe__tells_it_of_a_failed_line_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a fit ends early, so that its number of iterations says nothing."""
    fit = LogisticRegression.fit

    def warning_fit(self: Any, *args: Any) -> Any:
        warnings.warn("lbfgs failed to converge: ABNORMAL", ConvergenceWarning, stacklevel=2)
        return fit(self, *args)

    monkeypatch.setattr(LogisticRegression, "fit", warning_fit)
    x, y = rows_of(60, 4, [0, 1], seed=1)
    probe = fit_probe(x, y, *rows_of(30, 4, [0, 1], seed=2))
    assert not probe.converged
    assert probe.n_iter < 100


@pytest.mark.slow
def test_fit_probe__is_quiet_in_threads_while_others_still_warn() -> None:
    """Filters of the process change all the time; fits of other code warn as ever."""
    expected = fit_probe(*hard())
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            with warnings.catch_warnings():
                time.sleep(0.0005)

    x, y, *_ = hard()
    other = threading.Thread(target=disturb)
    other.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(fit_probe, *hard()) for _ in range(5)]
            with pytest.raises(ConvergenceWarning):
                LogisticRegression(C=expected.C, random_state=0).fit(x, y)
            found = [future.result() for future in futures]
    finally:
        stop.set()
        other.join()
    for probe in found:
        assert probe.C == expected.C
        assert not probe.converged
        np.testing.assert_array_equal(probe.coef, expected.coef)


@pytest.mark.slow
def test_fit_probe__leaves_one_filter_behind_at_most() -> None:
    x, y = rows_of(40, 3, [0, 1], seed=4)
    before = list(warnings.filters)
    for _ in range(3):
        fit_probe(x, y, x, y)
        warnings.simplefilter("error")  # what others put in front is looked past
        fit_probe(*hard())
    assert len(warnings.filters) <= len(before) + 2
    with pytest.raises(ConvergenceWarning):
        LogisticRegression(C=fit_probe(*hard()).C, random_state=0).fit(*hard()[:2])
