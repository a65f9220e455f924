"""Pooled values of parts of a cohort and of draws: right however small tau is."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import croma_dask as cd
from croma_dask.robustness.pooling import Evidence
from croma_dask.robustness.request import Request
from croma_dask.uncertainty import statistics
from tests.helpers.cohorts import manifest
from tests.helpers.oracle import Oracle
from tests.helpers.resampling import drawn_rows

pytestmark = pytest.mark.filterwarnings("ignore:.*units")


def test_evidence__of_parts_is_on_the_scale_of_each() -> None:
    nan = math.nan
    tau = 0.5
    far = Evidence(
        np.array([1.0, 0.0, 1.5, 0.0, 0.0]), np.array([0.0, 2.0, 0.5, 1.0, 0.0]),
        np.array([0.1, 0.1 + tau * math.log(2.0), 900.0, 1900.0, np.inf]), tau,
    )  # fmt: skip
    found = far.by_part(np.array([2, 2, 0, 0, 3]), 4)
    # Part 2: 2 OS at half the weight. Part 0: the second sample weighs exp(-2000). 1 and 3: none.
    np.testing.assert_array_equal(found.so, [1.5, 0.0, 1.0, 0.0])
    np.testing.assert_allclose(found.os, [0.5, 0.0, 1.0, 0.0], rtol=1e-15)
    np.testing.assert_array_equal(found.nearest, [900.0, np.inf, 0.1, np.inf])
    np.testing.assert_allclose(found.value(), [0.75, nan, 0.5, nan], rtol=1e-15)
    # Parts can be pooled again; the far one is nothing beside the near one.
    whole = found.by_part(np.zeros(4, np.int64), 1)
    assert whole.value().tolist() == pytest.approx([0.5], rel=1e-15)
    assert whole.nearest.tolist() == [0.1]


def three_labels(n: int = 120) -> tuple[np.ndarray, pd.DataFrame]:
    """Three labels of different tightness, groups of one label each.

    The tightest is biology throughout and has two groups only; the others lie in one another.
    """
    rng = np.random.default_rng(0)
    at = np.arange(n)
    label, center = at % 3, at // 3 % 2
    group = np.where(label == 0, at // 60, 10 + 3 * (at // 12) + label)
    x = np.eye(6)[np.minimum(label, 1)] + 0.6 * np.eye(6)[2 + center] * (label > 0)[:, None]
    x += rng.normal(size=(n, 6)) * np.array([0.001, 0.2, 0.3])[label][:, None]
    return x, manifest(label, center, group)


def log_weights(
    x: np.ndarray, frame: pd.DataFrame, k: int, tau: float
) -> list[list[tuple[float, str]]]:
    """Log weight and type of the typed neighbours of every sample, from distances."""
    oracle = Oracle(x, frame["label"], frame["center"], frame["group_id"], None)
    return [
        [(-d / tau, kind) for d, kind in oracle.typed(i, oracle.scopes[0], k)]
        for i in range(len(frame))
    ]


def pooled_by_logarithms(weights: list[tuple[float, str]]) -> float:
    """Log-sum-exp: right however small tau is; NaN without a typed neighbour."""
    if not weights:
        return math.nan
    top = max(w for w, _ in weights)
    so, os = (
        math.fsum(math.exp(w - top) for w, kind in weights if kind == which)
        for which in ("SO", "OS")
    )
    return so / (so + os)


@pytest.mark.parametrize("tau", [1e-2, 1e-4, 1e-5, 1e-9])
def test_breakdown__of_cells_that_are_far_is_right_for_a_tiny_tau(tau: float) -> None:
    x, frame = three_labels()
    result = cd.score(
        x, frame, confounder="center", metrics="MaRI", tau=tau, warn_tau=False, k_candidates=[11]
    )
    weights = log_weights(x, frame, 11, tau)
    for by, columns in (
        ("label", ["label"]), ("group", ["group_id"]), (("label", "center"), ["label", "center"]),
    ):  # fmt: skip
        table = cd.breakdown(result, by, metric="MaRI")
        expected = [
            pooled_by_logarithms([w for i in rows for w in weights[i]])
            for _, rows in sorted(frame.groupby(columns).indices.items())
        ]
        assert not np.isnan(expected).all()
        # (Errors of the distances are divided by tau.)
        np.testing.assert_allclose(
            table["value"].values.ravel(), expected, rtol=0, atol=1e-15 / tau + 1e-13
        )
        assert (np.isnan(table["value"]) == (table["n_defined"] == 0)).all()
    worst = cd.worst_groups(result, None, metric="MaRI")
    assert not np.isnan(worst["value"]).any()


@pytest.mark.parametrize("tau", [1e-2, 1e-4, 1e-5, 1e-9])
def test_bootstrap__of_draws_without_the_nearest_group_is_right_for_a_tiny_tau(tau: float) -> None:
    x, frame = three_labels()
    result = cd.score(
        x, frame, confounder="center", metrics="MaRI", tau=tau, warn_tau=False, k_candidates=[11]
    )
    found = cd.bootstrap(result, n_draws=80, seed=3, keep_draws=True)["MaRI"]
    weights = log_weights(x, frame, 11, tau)
    group = frame["group_id"].to_numpy().astype(str)
    expected = [
        pooled_by_logarithms([w for i in rows for w in weights[i]])
        for rows in drawn_rows(group, np.ones(len(group), bool), 80, 3)
    ]
    np.testing.assert_allclose(found["value_draws"], expected, rtol=0, atol=1e-15 / tau + 1e-13)
    assert min(expected) < 0.4
    assert max(expected) > 0.9
    assert found["value_empty_draws"].item() == 0


def test_bootstrap__faded_draws_are_those_of_fewer_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a draw is added up on the common scale or on its own makes no difference."""
    x, frame = three_labels()
    result = cd.score(
        x, frame, confounder="center", metrics=["RI", "MaRI"], tau=1e-3, warn_tau=False,
        k_candidates=[11],
    )  # fmt: skip
    common = cd.bootstrap(result, n_draws=80, keep_draws=True)
    monkeypatch.setattr(statistics, "_FADED", np.inf)
    own = cd.bootstrap(result, n_draws=80, keep_draws=True)
    for metric in ("RI", "MaRI"):
        np.testing.assert_allclose(
            own[metric].value_draws, common[metric].value_draws, rtol=0, atol=1e-13
        )


def test_request__counts_what_a_result_holds_of_a_sample() -> None:
    x, frame = three_labels()
    for metrics, m in ((["RI"], None), (["MaRI"], None), (["RI", "MaRI", "CRoMa"], [1, 2])):
        tree = cd.score(x, frame, confounder="center", metrics=metrics, m=m, k_candidates=[5])
        held = sum(
            array.nbytes
            for node in tree.children.values()
            for array in node.data_vars.values()
            if "sample" in array.dims
        )
        assert held <= 9 * Request.of(metrics, k_candidates=[5], m=m).n_scores * len(frame)
