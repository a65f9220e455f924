"""The bandwidth of MaRI: recommended, pinned, fallen back, and found exactly at any size."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import croma_dask as cd
from croma_dask.robustness import tau as tau_module
from tests.helpers.cohorts import Cohort, features, lattice_cohort, manifest
from tests.helpers.engines import engine
from tests.helpers.marks import first
from tests.helpers.oracle import Oracle

COMMON: dict[str, Any] = {"confounder_column": "center"}

pytestmark = pytest.mark.filterwarnings("ignore:.*units are undefined")


def plain(rng: np.random.Generator, n: int = 120) -> Cohort:
    label, confounder = rng.integers(0, 2, n), rng.integers(0, 2, n)
    x = features(rng, label, confounder, 6, biology=0.1, shortcut=0.1)
    return Cohort(x, manifest(label, confounder))


def typeless(rng: np.random.Generator) -> Cohort:
    """Four far cells: every near neighbour shares label and confounder."""
    cell = np.arange(40) % 4
    x = 10.0 * np.eye(4)[cell] + 0.1 * rng.normal(size=(40, 4))
    return Cohort(x, manifest(cell // 2, cell % 2))


def collapsed(rng: np.random.Generator) -> Cohort:
    """Two far points, each of them many times, with all cells at both."""
    cell = np.arange(48) % 4
    x = np.eye(3)[(np.arange(48) // 4) % 2]
    return Cohort(x, manifest(cell // 2, cell % 2))


def test_recommended__is_the_median_typed_distance(rng: np.random.Generator) -> None:
    cohort = plain(rng)
    frame = cohort.frame
    oracle = Oracle(cohort.x, frame["label"], frame["center"], frame["group_id"])
    for k in (1, 4, 5, 30):
        found = cd.MaRI.recommend_tau(cohort.x, frame, k=k, **COMMON)
        assert isinstance(found, float)
        assert found == pytest.approx(oracle.tau(k), rel=1e-12)
    result = cd.MaRI.compute(cohort.x, frame, k_candidates=[5, 9], **COMMON)
    k = int(result.k)
    assert float(result.tau) == cd.MaRI.recommend_tau(cohort.x, frame, k=k, **COMMON)


def test_no_typed_neighbour__falls_back_and_says_so(rng: np.random.Generator) -> None:
    cohort = typeless(rng)
    with pytest.warns(RuntimeWarning, match="no typed neighbour.*0.2"):
        found = cd.MaRI.compute(cohort.x, cohort.frame, k_candidates=[3], **COMMON)
    assert float(found.tau) == 0.2
    assert float(found.value) == 0.5
    assert float(found.undefined_frac) == 1.0
    assert math.isnan(cd.MaRI.recommend_tau(cohort.x, cohort.frame, k=3, **COMMON))
    with pytest.warns(RuntimeWarning, match="no typed neighbour"):
        curve = cd.MaRI.compute_curve(cohort.x, cohort.frame, k_values=[3], **COMMON)
    assert float(curve.tau) == 0.2


def test_a_median_of_zero__falls_back_with_another_warning(rng: np.random.Generator) -> None:
    cohort = collapsed(rng)
    with pytest.warns(RuntimeWarning, match="median.* is 0 .*0.2") as caught:
        found = cd.MaRI.compute(cohort.x, cohort.frame, k_candidates=[9], **COMMON)
    assert "no typed neighbour" not in str(caught[0].message)
    assert float(found.tau) == 0.2
    assert cd.MaRI.recommend_tau(cohort.x, cohort.frame, k=9, **COMMON) == 0.0


@pytest.mark.parametrize("factor", [1 / 4.1, 4.1])
def test_a_pinned_tau_far_off__warns_with_the_recommendation(
    factor: float, rng: np.random.Generator
) -> None:
    cohort = plain(rng)
    best = cd.MaRI.recommend_tau(cohort.x, cohort.frame, k=20, **COMMON)
    what = "too flat" if factor > 1 else "too sharp"
    with pytest.warns(RuntimeWarning, match=what) as caught:
        pinned = cd.MaRI.compute(
            cohort.x, cohort.frame, k_candidates=[20], tau=factor * best, **COMMON
        )
    assert f"{best:g}" in str(caught[0].message)
    assert float(pinned.tau) == factor * best
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = cd.MaRI.compute(
            cohort.x, cohort.frame, k_candidates=[20], tau=factor * best, warn_tau=False, **COMMON
        )
    assert quiet.sample_values.identical(pinned.sample_values)


@pytest.mark.parametrize("factor", [1 / 3.9, 1.0, 3.9])
def test_a_pinned_tau_near_the_median__does_not_warn(
    factor: float, rng: np.random.Generator
) -> None:
    cohort = plain(rng)
    best = cd.MaRI.recommend_tau(cohort.x, cohort.frame, k=20, **COMMON)
    cd.MaRI.compute(cohort.x, cohort.frame, k_candidates=[20], tau=factor * best, **COMMON)


def test_a_pinned_tau__cannot_be_far_from_what_is_not_there(rng: np.random.Generator) -> None:
    for cohort, k in ((typeless(rng), 3), (collapsed(rng), 9)):
        found = cd.MaRI.compute(cohort.x, cohort.frame, k_candidates=[k], tau=7.0, **COMMON)
        assert float(found.tau) == 7.0


@pytest.mark.parametrize("tau", [0, 0.0, -1, -1e-9, float("nan"), float("inf"), "wide", [0.1]])
def test_a_tau_not_above_zero__raises(tau: Any, rng: np.random.Generator) -> None:
    cohort = plain(rng)
    with pytest.raises(ValueError, match="tau"):
        cd.MaRI.compute(cohort.x, cohort.frame, k_candidates=[5], tau=tau, **COMMON)
    with pytest.raises(ValueError, match="tau"):
        cd.MaRI.compute_curve(cohort.x, cohort.frame, k_values=[5], tau=tau, **COMMON)
    with pytest.raises(ValueError, match="tau"):
        cd.score(cohort.x, cohort.frame, confounder="center", k_candidates=[5], tau=tau)


@pytest.mark.parametrize("tau", [5e-324, 1e-310, 1e-200, 1.7e308])
def test_any_tau_above_zero__gives_a_number_and_no_numpy_warning(
    tau: float, rng: np.random.Generator
) -> None:
    cohort = plain(rng)
    found = cd.MaRI.compute(
        cohort.x, cohort.frame, k_candidates=[10], tau=tau, warn_tau=False, **COMMON
    )
    assert float(found.value) in (0.0, 1.0) or tau > 1.0


def test_the_curve__holds_one_tau_chosen_at_the_operating_k(rng: np.random.Generator) -> None:
    cohort = plain(rng)
    ks = [2, 9, 5, 30]
    curve = cd.MaRI.compute_curve(cohort.x, cohort.frame, k_values=ks, **COMMON)
    single = cd.MaRI.compute(cohort.x, cohort.frame, k_candidates=ks, **COMMON)
    assert float(curve.tau) == float(single.tau)
    assert curve.value.values.tobytes() == single.curve.values.tobytes()
    assert float(curve.value.sel(k=int(single.k))) == float(single.value)
    # a Dataset, so that a number is never taken for a position
    with pytest.raises((KeyError, ValueError, TypeError)):
        curve[5]


@pytest.mark.parametrize("kind", first(2, ["ties", "paired", "plain", "two values"]))
def test_the_median_by_bits__is_the_median(
    kind: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many distances to gather: the middle is found by narrowing down bit patterns."""
    cohort = plain(rng)
    if kind == "ties":
        cohort = lattice_cohort(rng, 150, n_features=3, reach=4)
    elif kind == "paired":
        cohort = lattice_cohort(rng, 150, n_features=4, reach=4, n_subsets=3)
    elif kind == "two values":
        cohort = collapsed(rng)
    for k in (1, 2, 7, 40):
        gathered = cd.MaRI.recommend_tau(cohort.x, cohort.frame, k=k, **cohort.arguments)
        with monkeypatch.context() as patch:
            patch.setattr(tau_module, "_GATHER", 0)
            narrowed = cd.MaRI.recommend_tau(cohort.x, cohort.frame, k=k, **cohort.arguments)
            with engine("streamed", range_rows=31):
                streamed = cd.MaRI.recommend_tau(cohort.x, cohort.frame, k=k, **cohort.arguments)
        for other in (narrowed, streamed):
            assert np.float64(other).tobytes() == np.float64(gathered).tobytes()
