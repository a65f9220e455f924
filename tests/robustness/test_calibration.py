"""Recall and the estimated error of approximate values: by hand, by property, and by coverage."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from croma_dask import schema
from croma_dask.cohort.design import Scope
from croma_dask.errors import RecallWarning
from croma_dask.index.finish import Delivered
from croma_dask.index.spec import ListSpec
from croma_dask.robustness import evidence as ev
from croma_dask.robustness.calibration import (
    Recall,
    SampleLists,
    calibrate_index,
    label_calibration,
    recall_of,
    warn_recall,
)
from croma_dask.robustness.margin import margins_of
from croma_dask.robustness.margin_error import calibrate_margin
from croma_dask.robustness.sampling import Estimate, Share, mean_of, t_quantile
from croma_dask.robustness.statistics import tail_of
from tests.helpers.inverted import Pair, both_lists, pairs, taken

K, M, ALPHA = 11, 5, 0.1


@pytest.fixture(scope="module")
def pair() -> Pair:
    return both_lists(5, 800, k=K, m=M, recall=0.95)


def pooled(lists: SampleLists, scope: Scope, k: int, tau: float | None) -> float:
    kind = ev.kinds_at(lists.index, scope, lists.rows)
    if tau is None:
        numbers = ev.count_kinds(kind, k)
        so, os = numbers[ev.SO].sum(), numbers[ev.OS].sum()
    else:
        weights = ev.pooled_weights(kind, lists.distance, k, tau, 0.0)
        so, os = weights.so.sum(), weights.os.sum()
    return float(so / (so + os))


def known(pair: Pair, rows: np.ndarray) -> tuple[SampleLists, Share]:
    """Lists of all rows, in which those of a sample are exact, and what the sample stands for."""
    mixed = {}
    for name in ("index", "distance", "so", "os"):
        mixed[name] = getattr(pair.approx, name).copy()
        mixed[name][rows] = getattr(pair.exact, name)[rows]
    part = rows.size / len(pair.scope)
    return replace(pair.approx, **mixed), Share(part, 1.0 - part)


def typed_median(lists: SampleLists, scope: Scope, k: int) -> float:
    kind = ev.kinds_at(lists.index, scope, lists.rows)[:, :k]
    return float(np.median(lists.distance[:, :k][(kind == ev.SO) | (kind == ev.OS)]))


def estimates_and_truth(pair: Pair, rows: np.ndarray, k: int) -> dict[str, tuple[Estimate, float]]:
    """Estimate and true error of every value; the exact MaRI has its own tau."""
    approx, exact = pair.sample(rows)
    delivered, share = known(pair, rows)
    found = {}
    taus = [typed_median(lists, pair.scope, k) for lists in (delivered, pair.exact)]
    for name, tau_approx, tau_exact in (("RI", None, None), ("MaRI", *taus)):
        value = pooled(delivered, pair.scope, k, tau_approx)
        estimate = calibrate_index(pair.scope, approx, exact, k, tau_approx, value, share)
        found[name] = estimate, value - pooled(pair.exact, pair.scope, k, tau_exact)
    margins, true = (margins_of(s.so, s.os, M)[0] for s in (delivered, pair.exact))
    tails = [tail_of(x, ALPHA) for x in (margins, true)]
    shares = [float(np.mean(x[~np.isnan(x)] <= 0)) for x in (margins, true)]
    of_margin = calibrate_margin(approx, exact, M, ALPHA, margins, share)
    for name, a, b in (
        ("value", tails[0].median, tails[1].median),
        ("ltm_alpha", tails[0].ltm_alpha, tails[1].ltm_alpha),
        ("f0", *shares),
    ):
        found[f"CRoMa {name}"] = of_margin[name], a - b
    return found


def drawn(n: int, size: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng([seed, 9]).choice(n, size, replace=False))


# Recall


def lists(index: Any, so: Any, os: Any, distance: Any = None) -> SampleLists:
    index = np.asarray(index, np.int32)
    if distance is None:
        distance = np.where(index < 0, np.nan, np.arange(1.0, index.shape[1] + 1) / 10)
    return SampleLists(
        np.arange(index.shape[0]), index, np.asarray(distance), np.asarray(so, float),
        np.asarray(os, float),
    )  # fmt: skip


def test_recall__by_hand() -> None:
    nan = np.nan
    exact = lists(
        [[1, 2, 3], [4, 5, -1]], [[0.1, 0.1, 0.2], [0.3, nan, nan]], [[nan] * 3, [nan] * 3]
    )
    approx = lists(
        [[1, 3, 7], [5, 6, -1]], [[0.1, 0.2, 0.4], [0.3, nan, nan]], [[nan] * 3, [nan] * 3]
    )
    found = recall_of(approx, exact)
    assert found.recall_global == 3 / 5
    assert found.recall_so == 3 / 4, "the second 0.1 is missing"
    assert np.isnan(found.recall_os)
    assert recall_of(exact, exact)[:2] == (1.0, 1.0)


def test_recall__of_no_rows_or_no_lists_is_nan() -> None:
    empty = lists(np.empty((4, 0)), np.empty((4, 0)), np.empty((4, 0)))
    assert all(np.isnan(v) for v in recall_of(empty, empty))
    nobody = taken(empty, np.empty(0, np.int64))
    assert all(np.isnan(v) for v in recall_of(nobody, nobody))


def test_recall__as_the_inverted_file_was_asked_for(pair: Pair) -> None:
    # Whole clusters are probed, so that it can only be more.
    assert all(0.95 <= value < 1.0 for value in recall_of(pair.approx, pair.exact))


def test_warn_recall__names_lists_and_argument() -> None:
    with pytest.warns(RecallWarning, match=r"0\.900 of the nearest neighbours .*raise probes"):
        warn_recall(Recall(0.9, 0.99, float("nan")), "probes")
    with pytest.warns(RecallWarning, match=r"0\.840 .*SO.* and 0\.500 .*OS.*raise recall"):
        warn_recall(Recall(float("nan"), 0.84, 0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_recall(Recall(0.95, 0.85, float("nan")))


# Lists of a sample


def test_sample_lists__are_cut_as_a_search_delivers_them(pair: Pair) -> None:
    spec = ListSpec(K, M)
    whole = pair.exact
    filler = np.zeros((len(whole.rows), 2 * M), np.int32)
    found = Delivered(
        np.hstack([whole.index, filler]), np.hstack([whole.distance, whole.so, whole.os])
    )
    rows = drawn(len(pair.scope), 40, 1)
    expected = taken(whole, rows)
    cut = Delivered(found.index[rows], found.distance[rows])
    one = SampleLists.of_delivered(rows, cut, spec)
    for name in ("rows", "index", "distance", "so", "os"):
        np.testing.assert_array_equal(getattr(one, name), getattr(expected, name))


# By hand


def test_t_quantile__is_students() -> None:
    for df in (4.0, 5.5, 10.0, 100.0, 1e6):
        assert t_quantile(df) == pytest.approx(stats.t.ppf(0.975, df), rel=6e-3)
    assert t_quantile(2.0) >= stats.t.ppf(0.975, 2.0)


def test_mean__of_normal_values_is_the_textbook_interval() -> None:
    x = np.random.default_rng(0).normal(size=400)
    mean, half = mean_of(x, Share(0.36, 0.64), np.zeros(0))
    assert mean == 0.64 * x.mean()
    assert half == pytest.approx(1.966 * 0.8 * x.std() / 20, rel=5e-3)


def test_mean__of_zeros_is_decided_by_what_may_have_been_missed() -> None:
    mean, half = mean_of(np.zeros(1000), Share(0.0, 1.0), np.array([2.0, 2.0]))
    assert mean == 0.0
    # The rule of three for a size of 2, a third wider: it has two sides.
    assert half == pytest.approx(3.94 * 2 / 1000, rel=1e-2)
    assert mean_of(np.zeros(5), Share(0.5, 0.5), np.zeros(2)) == (0.0, 0.0)


def test_right_lists__error_zero_in_a_small_interval(pair: Pair) -> None:
    same = replace(pair, approx=pair.exact)
    for name, (estimate, truth) in estimates_and_truth(same, drawn(800, 300, 2), K).items():
        assert estimate.error == truth == 0.0, name
        assert estimate.low <= 0.0 <= estimate.high, name
        assert 0.0 < estimate.high - estimate.low < 0.02, name


@pytest.mark.parametrize("tau", [None, 0.25])
def test_one_missed_neighbour__of_the_whole_cohort_is_exact(tau: float | None) -> None:
    # Label and confounder of rows 0..5: 1 and 2 are SO and OS to row 0, 3 is SS, 4 is OO.
    codes = np.array([[0, 0], [0, 1], [1, 0], [0, 0], [1, 1], [0, 1]], np.int32)
    group = np.arange(6, dtype=np.int32)
    scope = Scope("dataset", None, codes[:, 0].copy(), codes[:, 1].copy(), group, 2)
    none = np.full((6, 0), np.nan)
    exact = lists([[1, 2], [0, 4], [0, 4], [1, 4], [2, 5], [0, 4]], none, none)
    missed = exact.index.copy()
    missed[0] = [2, 3]
    approx = lists(missed, none, none)
    values = [pooled(side, scope, 2, tau) for side in (approx, exact)]
    assert values[0] != values[1]
    # As if all rows were sampled, and as many more were like them.
    found = calibrate_index(scope, approx, exact, 2, tau, values[0], Share(0.0, 1.0))
    assert found.error == pytest.approx(values[0] - values[1], abs=1e-15)
    assert found.low < found.error < found.high
    # A sample without that row sees nothing, but cannot be certain.
    part = np.arange(1, 6)
    found = calibrate_index(
        scope, taken(approx, part), taken(exact, part), 2, tau, values[0], Share(5 / 6, 1 / 6)
    )
    assert found.error == 0.0
    assert found.low < values[0] - values[1] < found.high


def test_one_moved_margin__by_hand() -> None:
    # Margins (os - so) / (os + so) of 0.00, 0.02, ... 0.98 less 0.5; n = 4 x 50 rows.
    margin = np.tile(np.arange(50) / 50 - 0.5, 4)
    so, os = (1 - margin)[:, None] / 2, (1 + margin)[:, None] / 2
    rows = np.arange(50)
    exact = SampleLists(
        rows, np.empty((50, 0), np.int32), np.empty((50, 0)), so[:50].copy(), os[:50].copy()
    )
    # By the approximate lists one row of the upper half lies in the tail, at -0.6.
    moved = replace(exact, so=exact.so.copy(), os=exact.os.copy())
    moved.so[49], moved.os[49] = 0.8, 0.2
    whole = margin.copy()
    whole[49] = -0.6
    found = calibrate_margin(moved, exact, 1, ALPHA, whole, Share(0.0, 1.0))
    quantile = np.quantile(whole, ALPHA)
    share = np.mean(whole <= quantile)
    assert found["ltm_alpha"].error == pytest.approx((-0.6 - quantile) / share / 50)
    # One row of fifty has crossed zero and the median: two hundredths of the cohort if it is
    # typical of what was not sampled.
    assert found["f0"].error == pytest.approx(0.02, abs=2e-3)
    assert found["value"].error == pytest.approx(-0.02, abs=0.011)
    for estimate in found.values():
        assert estimate.low < 0.0 < estimate.high
    same = calibrate_margin(exact, exact, 1, ALPHA, margin, Share(0.25, 0.75))
    assert [e.error for e in same.values()] == [0.0, 0.0, 0.0]


def test_whole_cohort_as_sample__is_the_truth(pair: Pair) -> None:
    for name, (estimate, truth) in estimates_and_truth(pair, np.arange(800), K).items():
        assert (estimate.low, estimate.error, estimate.high) == (0.0, truth, 0.0), name


def test_exact_value__stays_in_its_range() -> None:
    assert Estimate.around(0.0, 0.1).within(0.02, 0.0, 1.0) == Estimate(0.0, -0.1, 0.02)
    assert Estimate.around(0.0, 0.1).within(0.97, 0.0, 1.0) == Estimate(
        0.0, pytest.approx(-0.03), 0.1
    )


def test_nothing_to_compare__is_unknown(pair: Pair) -> None:
    nobody = taken(pair.exact, np.empty(0, np.int64))
    margins = np.full(800, np.nan)
    part = Share(0.1, 0.9)
    found = [
        calibrate_index(pair.scope, nobody, nobody, K, None, 0.5, part),
        *calibrate_margin(nobody, nobody, M, ALPHA, margins + 0.5, part).values(),
        *calibrate_margin(pair.exact, pair.exact, M, ALPHA, margins, part).values(),
        # Longer than the lists are.
        *calibrate_margin(pair.exact, pair.exact, M + 1, ALPHA, margins, part).values(),
    ]
    alone = replace(pair.scope, label=np.zeros(800, np.int32), confounder=np.zeros(800, np.int32))
    found.append(calibrate_index(alone, pair.approx, pair.exact, K, None, 0.5, part))
    for estimate in found:
        assert np.isnan([estimate.error, estimate.low, estimate.high]).all()


def test_undefined_rows__count_on_neither_side(pair: Pair) -> None:
    rows = drawn(800, 300, 3)
    undefined = np.arange(800) % 10 == 0
    sides = []
    for side in (pair.approx, pair.exact):
        so = side.so.copy()
        so[undefined] = np.nan
        sides.append(replace(side, so=so))
    lacking = Pair(pair.scope, *sides)
    found = estimates_and_truth(lacking, rows, K)
    for name in ("CRoMa value", "CRoMa ltm_alpha", "CRoMa f0"):
        estimate, truth = found[name]
        assert abs(estimate.error - truth) < estimate.high - estimate.low
    # Undefined in one of the two only: no crash, finite.
    other = Pair(pair.scope, sides[0], pair.exact)
    assert all(np.isfinite(e.high) for e, _ in estimates_and_truth(other, rows, K).values())


def test_tiny_tau__does_not_underflow(pair: Pair) -> None:
    approx, exact = pair.sample(drawn(800, 200, 4))
    found = calibrate_index(pair.scope, approx, exact, K, 1e-6, 0.5, Share(0.25, 0.75))
    assert np.isfinite([found.error, found.low, found.high]).all()


def test_equal_margins__have_no_width(pair: Pair) -> None:
    so = np.full((800, M), 0.5)
    flat = replace(pair.exact, so=so, os=so)
    found = calibrate_margin(
        *(taken(flat, np.arange(100)),) * 2, M, ALPHA, np.zeros(800), Share(0.1, 0.9)
    )
    assert found["value"] == Estimate(0.0, 0.0, 0.0)
    assert found["f0"].low <= 0.0 <= found["f0"].high


# Properties


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(30, 600), k=st.sampled_from([1, 5, K]))
def test_estimate__lies_in_its_interval_whatever_the_order(
    pair: Pair, seed: int, size: int, k: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.choice(800, size, replace=False)
    found = estimates_and_truth(pair, rows, k)
    again = estimates_and_truth(pair, np.sort(rows), k)
    for name, (estimate, _) in found.items():
        assert estimate.low <= estimate.error <= estimate.high, name
        other = again[name][0]
        np.testing.assert_allclose(
            [estimate.error, estimate.low, estimate.high], [other.error, other.low, other.high],
            rtol=1e-9, atol=1e-13,
        )  # fmt: skip


@given(seed=st.integers(0, 2**32 - 1))
def test_roles_swapped__mirror_the_errors(pair: Pair, seed: int) -> None:
    rows = drawn(800, 200, seed)
    scope = pair.scope
    sides = [replace(s, so=s.os, os=s.so) for s in (pair.approx, pair.exact)]
    swapped = Pair(replace(scope, label=scope.confounder, confounder=scope.label), *sides)
    one, other = (estimates_and_truth(p, rows, K) for p in (pair, swapped))
    for name in ("RI", "MaRI", "CRoMa value"):
        a, b = one[name][0], other[name][0]
        np.testing.assert_allclose(
            [a.error, a.low, a.high], [-b.error, -b.high, -b.low], rtol=1e-6, atol=1e-6
        )


def test_more_rows__narrow_the_interval(pair: Pair) -> None:
    small, large = (estimates_and_truth(pair, drawn(800, n, 6), K) for n in (100, 700))
    for name in small:
        widths = [e[name][0].high - e[name][0].low for e in (small, large)]
        assert widths[1] < widths[0] / 2, name


# In results

POSSIBLE = np.array([True])


@pytest.mark.parametrize("metric", list(schema.METRICS))
@pytest.mark.parametrize("swept", [False, True])
def test_label__gives_every_declared_variable(metric: str, swept: bool) -> None:
    one = {name: Estimate(0.1, 0.0, 0.2) for name in schema.CALIBRATED[metric]}
    found = label_calibration(
        metric, Recall(0.9, 0.8, 0.7), [one, one] if swept else one, 30, POSSIBLE
    )
    assert set(found) == set(schema.CALIBRATION[metric])
    assert found["calibration_rows"] == 30
    assert np.shape(found["value_error_low"]) == ((2,) if swept else ())
    used = {"recall_so": 0.8, "recall_os": 0.7} if metric == "CRoMa" else {"recall_global": 0.9}
    for name in ("recall_global", "recall_so", "recall_os"):
        assert found[name] == used[name] if name in used else np.isnan(found[name])
    assert not schema.CALIBRATION[metric].keys() & schema.METRICS[metric].keys()
    assert schema.variables_of(metric, approximate=True).keys() == (
        schema.METRICS[metric].keys() | schema.CALIBRATION[metric].keys()
    )


@pytest.mark.parametrize("metric", list(schema.METRICS))
def test_dataset__has_all_of_the_calibration_or_none(metric: str) -> None:
    def value_of(variable: schema.Variable) -> Any:
        return np.zeros((1,) * len(variable.dims), variable.kind if variable.kind != "i" else int)

    values = {name: value_of(v) for name, v in schema.METRICS[metric].items()}
    one = {name: Estimate(0.1, 0.0, 0.2) for name in schema.CALIBRATED[metric]}
    calibration = label_calibration(metric, Recall(0.9, 0.8, 0.7), one, 30, POSSIBLE)
    exact = schema.build_dataset(metric, values, {}, {})
    assert list(exact) == list(schema.METRICS[metric])
    found = schema.build_dataset(metric, values | calibration, {}, {})
    assert list(found) == list(schema.variables_of(metric, approximate=True))
    for name, declared in schema.CALIBRATION[metric].items():
        assert found[name].attrs["long_name"]
        assert found[name].dtype.kind == declared.kind
    del calibration["value_error_low"]
    with pytest.raises(KeyError, match="value_error_low"):
        schema.build_dataset(metric, values | calibration, {}, {})


# Coverage


def coverage(
    seeds: range, n: int, size: int, ks: Sequence[int], recalls: Sequence[float]
) -> dict[tuple[float, int, str], tuple[float, float]]:
    """Share of cohorts whose interval holds the true error, and the median half-width."""
    hits: dict[tuple[float, int, str], list[bool]] = {}
    halves: dict[tuple[float, int, str], list[float]] = {}
    for seed in seeds:
        rows = drawn(n, size, seed)
        for recall, pair in zip(
            recalls, pairs(seed, n, k=max(ks), m=M, recalls=recalls), strict=True
        ):
            for k in ks:
                for name, (e, truth) in estimates_and_truth(pair, rows, k).items():
                    key = recall, k, name
                    hit = e.low - 1e-12 <= truth <= e.high + 1e-12
                    hits.setdefault(key, []).append(hit)
                    halves.setdefault(key, []).append((e.high - e.low) / 2)
    return {key: (float(np.mean(hits[key])), float(np.median(halves[key]))) for key in hits}


@pytest.mark.slow
def test_coverage__of_small_cohorts() -> None:
    for key, (share, half) in coverage(range(60), 1200, 350, [11], [0.97]).items():
        assert share >= 0.87, key
        assert half < 0.006, key


@pytest.mark.slow
def test_coverage__of_200_cohorts_of_5000_rows() -> None:
    found = coverage(range(1000, 1200), 5000, 1000, [11, 21], [0.975, 0.985, 0.995])
    for key, (share, half) in found.items():
        assert 0.90 <= share <= 0.99, (key, found)
        assert half <= 0.003, (key, found)
