"""Statistics of ranks: values argued by hand, slow direct versions, and other people's tests."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from croma_dask.embedding import rank_resampling
from croma_dask.embedding.rank_hypotheses import friedman, holm, signed_rank
from croma_dask.embedding.rank_report import leaderboard, rank_text, ranks_as_plain, with_ranks
from croma_dask.embedding.rank_resampling import bootstrap, leave_one_out
from croma_dask.embedding.rank_schema import BOOTSTRAP, FRIEDMAN, LEAVE_ONE_OUT, WILCOXON
from croma_dask.embedding.rank_statistics import rank_statistics
from croma_dask.embedding.ranks import rank_embeddings
from croma_dask.errors import SchemaError

NAN = np.nan
NODES = {
    "bootstrap": BOOTSTRAP, "friedman": FRIEDMAN, "wilcoxon": WILCOXON,
    "leave_one_out": LEAVE_ONE_OUT,
}  # fmt: skip

aggregates = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 9), st.integers(1, 6)),
    # Thirds: whose means are equal in numbers and not in bits.
    elements=st.one_of(st.just(NAN), st.integers(3, 18).map(lambda n: n / 3.0)),
)


def direct_bootstrap(aggregate: np.ndarray, n_draws: int, seed: int) -> dict[str, np.ndarray]:
    """One draw after the other, one method after the other."""
    aggregate = aggregate[[bool((~np.isnan(row)).any()) for row in aggregate]]
    t, m = aggregate.shape
    draws = np.random.default_rng(seed).integers(t, size=(n_draws, t))
    means = np.full((n_draws, m), NAN)
    ends = np.zeros((m, m))
    for d, drawn in enumerate(draws):
        for j in range(m):
            there = [aggregate[i, j] for i in drawn if not np.isnan(aggregate[i, j])]
            if there:
                means[d, j] = sum(there) / len(there)
        for j in range(m):
            if np.isnan(means[d, j]):
                continue
            ahead = sum(means[d, i] < means[d, j] - 1e-9 for i in range(m))
            tied = sum(abs(means[d, i] - means[d, j]) <= 1e-9 for i in range(m))
            ends[j, ahead : ahead + tied] += 1 / tied
    found = {"share": ends / n_draws, "count": (~np.isnan(means)).sum(axis=0)}
    for name, q in (("low", 2.5), ("high", 97.5)):
        found[name] = np.array(
            [np.percentile(c[~np.isnan(c)], q) if (~np.isnan(c)).any() else NAN for c in means.T]
        )
    return found


@given(aggregate=aggregates, seed=st.integers(0, 1000))
def test_bootstrap__equals_the_direct_one(aggregate: np.ndarray, seed: int) -> None:
    found = bootstrap(aggregate, n_draws=40, seed=seed)
    if found["reason"]:
        assert (~np.isnan(aggregate)).any(axis=1).sum() < 2
        assert all(np.isnan(found[name]).all() for name in ("interval_low", "p_best"))
        return
    expected = direct_bootstrap(aggregate, 40, seed)
    ranked = ~np.isnan(found["mean_rank"])
    np.testing.assert_allclose(found["interval_low"], expected["low"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found["interval_high"], expected["high"], rtol=0, atol=1e-12)
    share = found["position_probability"]
    np.testing.assert_allclose(share[ranked], expected["share"][ranked], rtol=0, atol=1e-12)
    assert np.isnan(share[~ranked]).all()
    np.testing.assert_array_equal(found["p_best"], share[:, 0])
    np.testing.assert_array_equal(found["n_draws_ranked"], expected["count"])
    if not np.isnan(aggregate).any():
        np.testing.assert_allclose(share.sum(axis=0), 1.0)
        np.testing.assert_allclose(share.sum(axis=1), 1.0)


def test_bootstrap__does_not_depend_on_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    aggregate = np.random.default_rng(2).integers(1, 9, (7, 5)) / 3.0
    whole = bootstrap(aggregate, n_draws=1000, seed=5)
    monkeypatch.setattr(rank_resampling, "_BLOCK_ENTRIES", 7 * 13)
    parts = bootstrap(aggregate, n_draws=1000, seed=5)
    for name, value in whole.items():
        np.testing.assert_array_equal(value, parts[name])


def test_bootstrap__of_a_method_that_always_wins() -> None:
    aggregate = np.array([[1.0, 2.5, 2.5, NAN], [1.0, 2.0, 3.0, NAN], [1.0, 3.0, 2.0, NAN]])
    found = bootstrap(aggregate, n_draws=500, seed=0)
    np.testing.assert_array_equal(found["p_best"], [1.0, 0.0, 0.0, NAN])
    assert found["interval_low"][0] == found["interval_high"][0] == 1.0
    share = found["position_probability"]
    # The two are exchanged by exchanging the last two data sets.
    assert share[1, 1] == pytest.approx(0.5, abs=0.06)
    np.testing.assert_allclose(share[1:3, 1:3].sum(axis=0), 1.0)
    assert found["n_draws_ranked"].tolist() == [500, 500, 500, 0]
    # A method that is in one of three data sets is not drawn in (2/3)^3 of the draws.
    aggregate[0, 3] = 4.0
    counted = bootstrap(aggregate, n_draws=2000, seed=0)["n_draws_ranked"]
    assert counted[3] == pytest.approx(2000 * 19 / 27, abs=100)


def test_bootstrap__covers_what_it_should() -> None:
    """Of 60 means over 30 data sets about 57 lie within their 95 % interval."""
    rng = np.random.default_rng(7)
    inside = 0
    for seed in range(60):
        aggregate = rng.normal(3.0, 1.0, (30, 1))
        found = bootstrap(aggregate, n_draws=400, seed=seed)
        inside += bool(found["interval_low"][0] <= 3.0 <= found["interval_high"][0])
    assert 50 <= inside <= 60


def test_friedman__of_full_agreement() -> None:
    # Sums of ranks 6, 12, 18: chi2 = 12 / (6 * 3 * 4) * (36 + 144 + 324) - 3 * 6 * 4 = 12.
    found = friedman(np.tile([1.0, 2.0, 3.0], (6, 1)))
    assert found["statistic"] == pytest.approx(12.0, abs=1e-12)
    assert found["p_value"] == pytest.approx(np.exp(-6.0), rel=1e-12)  # of two degrees of freedom
    assert (found["dof"], found["n_blocks"], found["reason"]) == (2, 6, "")
    assert found["kendall_w"] == pytest.approx(1.0)
    assert found["kendall_w"] <= 1.0
    # A Latin square: every method has every rank twice.
    square = np.array(list(itertools.permutations([1.0, 2.0, 3.0])))
    found = friedman(square)
    assert (found["statistic"], found["kendall_w"]) == (0.0, 0.0)
    assert found["p_value"] == 1.0


@given(aggregate=aggregates)
def test_friedman__is_scipys_on_the_blocks(aggregate: np.ndarray) -> None:
    found = friedman(aggregate)
    taking_part = aggregate[:, (~np.isnan(aggregate)).any(axis=0)]
    blocks = taking_part[~np.isnan(taking_part).any(axis=1)] if taking_part.size else taking_part
    if taking_part.size:
        assert found["n_blocks"] == len(blocks) == found["is_block"].sum()
    if found["reason"]:
        assert np.isnan([found[n] for n in ("statistic", "p_value", "kendall_w")]).all()
        return
    assert blocks.shape[0] >= 6
    assert blocks.shape[1] >= 3
    expected = scipy.stats.friedmanchisquare(*np.round(blocks, 9).T)
    assert found["statistic"] == pytest.approx(expected.statistic, abs=1e-9)
    assert found["p_value"] == pytest.approx(expected.pvalue, abs=1e-9)
    assert 0.0 <= found["kendall_w"] <= 1.0


def test_friedman__takes_sums_that_differ_in_the_last_bit_for_ties() -> None:
    tied = np.tile([0.3, 0.1 + 0.2, 0.3], (8, 1))
    assert friedman(tied)["reason"] == "all methods tie in every data set"
    mixed = np.tile([0.1 + 0.2, 0.3, 1.0], (8, 1))
    expected = friedman(np.tile([0.3, 0.3, 1.0], (8, 1)))
    assert friedman(mixed)["p_value"] == expected["p_value"]


REASONS = [
    (np.tile([1.0, 2.0, 3.0], (5, 1)), "data sets that rank every method: 5; the test needs 6"),
    (np.tile([1.0, 2.0], (9, 1)), "methods with ranks: 2; the test needs 3"),
    (np.tile([1.0, 2.0, NAN], (9, 1)), "methods with ranks: 2; the test needs 3"),
    (np.full((9, 3), NAN), "methods with ranks: 0; the test needs 3"),
    (np.full((9, 3), 2.0), "all methods tie in every data set"),
]


@pytest.mark.parametrize(("aggregate", "reason"), REASONS)
def test_friedman__says_why_there_is_no_p_value(aggregate: np.ndarray, reason: str) -> None:
    found = friedman(aggregate)
    assert found["reason"] == reason
    assert np.isnan([found[n] for n in ("statistic", "p_value", "kendall_w")]).all()


def test_friedman__leaves_out_datasets_with_gaps() -> None:
    aggregate = np.random.default_rng(0).random((9, 4))
    whole = friedman(aggregate[:7])
    aggregate[7:, 1] = NAN
    found = friedman(aggregate)
    assert found["p_value"] == whole["p_value"]
    assert found["is_block"].tolist() == [True] * 7 + [False] * 2


def test_signed_rank__of_one_direction() -> None:
    # Six differences of one sign and no tie: the most extreme of 2^6 outcomes, on either side.
    aggregate = np.column_stack([np.arange(1, 7) / 10, np.zeros(6), np.full(6, 3.0)])
    found = signed_rank(aggregate, [1])
    assert found["p_value"][0, 0] == 2 / 64
    assert found["exact"][0, 0]
    assert found["statistic"][0, 0] == 0.0
    assert found["median_difference"][0].tolist() == pytest.approx([0.35, 0.0, 3.0])
    # All the same size: a tie, so that the p-value is the normal approximation's.
    assert not found["exact"][0, 2]
    # W = 0 of an expected 10.5; the variance 22.75 less 6^3 - 6 over 48.
    z = 10.5 / np.sqrt(22.75 - 210 / 48)
    assert found["p_value"][0, 2] == pytest.approx(2 * scipy.stats.norm.sf(z), rel=1e-12)
    assert found["reason"][0].tolist() == ["", "the baseline itself", ""]
    assert np.isnan(found["p_adjusted"][0, 1])
    smaller, larger = sorted([found["p_value"][0, 0], found["p_value"][0, 2]])
    np.testing.assert_allclose(
        sorted(found["p_adjusted"][0, [0, 2]]), [2 * smaller, max(2 * smaller, larger)]
    )


def test_signed_rank__drops_zeros_and_counts_them() -> None:
    difference = np.array([0.0, 0.0, 0.1, 0.2, 0.3, 0.4, -0.5, NAN])
    aggregate = np.column_stack([2.0 + difference, np.full(8, 2.0), np.arange(8.0)])
    found = signed_rank(aggregate, [1])
    assert found["n_pairs"][0, 0] == 7
    assert found["n_nonzero"][0, 0] == 5
    # Ranks 1 to 4 against 5. Of 32 sets of ranks ten have a sum of at most 5:
    # none, 1, 2, 3, 4, 5, 1+2, 1+3, 1+4, 2+3.
    assert found["p_value"][0, 0] == 2 * 10 / 32
    assert found["median_difference"][0, 0] == pytest.approx(0.1)
    tied = signed_rank(np.full((7, 3), 2.0), [0])
    assert tied["reason"][0, 1] == "both tie in every data set"
    assert np.isnan(tied["p_value"]).all()
    assert tied["median_difference"][0, 1] == 0.0


def test_signed_rank__takes_equal_differences_for_ties() -> None:
    # 0.55 in two ways that differ in the last bit.
    aggregate = np.array(
        [[2.15, 1.6, 0], [0.55, 0.0, 0], [1, 3, 0], [1, 4, 0], [1, 5, 0], [1, 6, 0]]
    )
    assert 2.15 - 1.6 != 0.55
    assert not signed_rank(aggregate, [1])["exact"][0, 0]


@given(aggregate=aggregates, data=st.data())
def test_signed_rank__is_scipys_and_holms(aggregate: np.ndarray, data: Any) -> None:
    baseline = data.draw(st.integers(0, aggregate.shape[1] - 1))
    found = signed_rank(aggregate, [baseline])
    for m in range(aggregate.shape[1]):
        p, reason = found["p_value"][0, m], found["reason"][0, m]
        assert np.isnan(p) == bool(reason)
        difference = aggregate[:, m] - aggregate[:, baseline]
        difference = np.round(difference[~np.isnan(difference)], 9)
        assert found["n_pairs"][0, m] == difference.size
        if not reason:
            assert difference.size >= 6
            nonzero = difference[difference != 0]
            tie = np.unique(np.abs(nonzero)).size < nonzero.size
            how = "approx" if tie else "exact"
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sample size too small")
                expected = scipy.stats.wilcoxon(nonzero, method=how)
            assert p == pytest.approx(expected.pvalue, abs=1e-12)
    np.testing.assert_allclose(
        found["p_adjusted"][0], closed_bonferroni(found["p_value"][0]), atol=1e-14
    )


def closed_bonferroni(p_values: np.ndarray) -> np.ndarray:
    """What Holm's steps are short for: the worst Bonferroni test of all sets that hold one."""
    there = np.flatnonzero(~np.isnan(p_values)).tolist()
    adjusted = np.full(p_values.shape, NAN)
    for i in there:
        sets = [
            s
            for size in range(1, len(there) + 1)
            for s in itertools.combinations(there, size)
            if i in s
        ]
        adjusted[i] = max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in sets)
    return adjusted


@given(p_values=hnp.arrays(np.float64, st.integers(0, 7), elements=st.floats(0.0, 1.0)))
def test_holm__is_bonferroni_closed(p_values: np.ndarray) -> None:
    np.testing.assert_allclose(holm(p_values), closed_bonferroni(p_values), atol=1e-14)


def test_holm__of_worked_values() -> None:
    # 0.01 * 4, 0.02 * 3, then 0.03 * 2 and 0.9 * 1; NaN is none of the four.
    found = holm(np.array([0.9, 0.01, NAN, 0.02, 0.03]))
    np.testing.assert_allclose(found, [0.9, 0.04, NAN, 0.06, 0.06])
    np.testing.assert_array_equal(holm(np.array([0.6, 0.6])), [1.0, 1.0])
    assert holm(np.array([])).size == 0


def test_leave_one_out__by_hand() -> None:
    # Means 2, 2.125, 2.125 -> with the first left out 7/3, 13/6 and 1.5.
    aggregate = np.array([[1.0, 2.0, 4.0], [3.0, 2.0, 1.0], [2.0, 2.5, 1.5], [2.0, 2.0, 2.0]])
    found = leave_one_out(aggregate)
    np.testing.assert_array_equal(found["position_without"][0], [3, 2, 1])
    assert found["spearman"][0] == pytest.approx(-np.sqrt(3) / 2)  # of 1, 2.5, 2.5 and 3, 2, 1
    assert found["kendall"][0] == pytest.approx(-np.sqrt(2 / 3))
    # Means without the second 5/3, 13/6, 2.5; without the third 2, 2, 7/3; without the last as all.
    np.testing.assert_array_equal(
        found["position_without"][1:], [[1, 2, 3], [1.5, 1.5, 3], [1, 2.5, 2.5]]
    )
    assert found["max_position_shift"].tolist() == [2.0, 1.0, 1.5]
    # In the third the first is joined by another; all three are always the first three.
    assert found["top1_changed"].tolist() == [True, False, True, False]
    assert found["top1_changes"] == 2
    assert found["top3_changes"] == 0
    assert found["spearman_min"] == found["spearman"].min()
    assert found["spearman_mean"] == pytest.approx(found["spearman"].mean())


def test_leave_one_out__of_a_method_with_one_dataset() -> None:
    aggregate = np.array([[1.0, NAN, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0], [1, NAN, 2, 3, 4]])
    found = leave_one_out(aggregate)
    assert np.isnan(found["position_without"][1, 1])
    np.testing.assert_array_equal(found["position_without"][1, [0, 2, 3, 4]], [1, 2, 3, 4])
    # The others move up where it is gone, in the same order.
    assert found["spearman"][1] == found["kendall"][1] == pytest.approx(1.0)
    assert found["top3_changed"].tolist() == [False, True, False]
    assert found["max_position_shift"][1] < 1.0


def test_leave_one_out__without_ranks_or_an_order() -> None:
    found = leave_one_out(np.array([[1.0, 2.0], [NAN, NAN]]))
    assert found["reason"] == "data sets with ranks: 1; leaving one out needs 2"
    assert np.isnan(found["spearman_min"])
    assert np.isnan(found["max_position_shift"]).all()
    found = leave_one_out(np.array([[1.0, 2.0], [NAN, NAN], [1.0, 2.0]]))
    np.testing.assert_allclose(found["spearman"], [1.0, NAN, 1.0])
    # Ties throughout have no correlation, and scipy's warning of that is not ours.
    found = leave_one_out(np.full((3, 4), 2.5))
    assert np.isnan(found["kendall"]).all()
    assert np.isnan(found["kendall_mean"])
    assert found["reason"] == ""


@given(aggregate=aggregates)
def test_leave_one_out__equals_leaving_one_out(aggregate: np.ndarray) -> None:
    found = leave_one_out(aggregate)
    if found["reason"]:
        return
    for t in range(len(aggregate)):
        if np.isnan(aggregate[t]).all():
            continue
        rest = [i for i in range(len(aggregate)) if i != t]
        for m in range(aggregate.shape[1]):
            means = [
                np.mean([aggregate[i, j] for i in rest if not np.isnan(aggregate[i, j])] or [NAN])
                for j in range(aggregate.shape[1])
            ]
            ahead = sum(mean < means[m] - 1e-9 for mean in means)
            tied = sum(abs(mean - means[m]) < 1e-9 for mean in means)
            expected = NAN if np.isnan(means[m]) else ahead + (tied + 1) / 2
            np.testing.assert_allclose(found["position_without"][t, m], expected)


def table(seed: int = 0, n_datasets: int = 8, n_methods: int = 5) -> xr.Dataset:
    value = np.random.default_rng(seed).random((n_datasets, n_methods, 3))
    value += 0.15 * np.arange(n_methods)[None, :, None]
    coords = {
        "dataset": np.array([f"{t:03d}" for t in range(n_datasets)], object),
        "method": np.array([f"org/m{m}" for m in range(n_methods)], object),
        "metric": np.array(["ARI", "ASW", "kBET"], object),
    }
    return xr.Dataset({"value": (tuple(coords), value)}, coords)


def test_rank_statistics__labels_all_it_says() -> None:
    found = rank_statistics(table(), baselines=["org/m0", "org/m3"], n_draws=50, seed=3)
    assert set(found.children) == set(NODES)
    for node, declared in NODES.items():
        dataset = found[node].to_dataset()
        assert set(dataset.data_vars) == set(declared)
        for name, about in declared.items():
            assert dataset[name].dims == about.dims
            assert dataset[name].attrs["long_name"]
            assert ("units" in dataset[name].attrs) == (about.kind != "O")
        for dim in dataset.dims:
            assert dim in dataset.coords
        assert all(isinstance(v, str | int | float) for v in dataset.attrs.values())
    assert found["bootstrap"].attrs["seed"] == 3
    assert found["bootstrap"].attrs["n_draws"] == 50
    assert (found["bootstrap"]["n_draws_ranked"] == 50).all()
    assert found["wilcoxon"]["baseline"].values.tolist() == ["org/m0", "org/m3"]
    assert found.attrs["scipy_version"] == scipy.__version__


def test_rank_statistics__of_ranks_and_of_a_table_are_the_same() -> None:
    for baselines in ((), "org/m1", ["org/m1"]):
        a = rank_statistics(rank_embeddings(table()), n_draws=20, baselines=baselines)
        b = rank_statistics(table(), n_draws=20, baselines=baselines)
        for tree in (a, b):
            tree.attrs["created"] = ""
        xr.testing.assert_identical(a, b)
        assert ("wilcoxon" in a.children) == bool(baselines)


def test_rank_statistics__does_not_look_at_the_order_of_tables() -> None:
    whole = table()
    shuffled = whole.isel(dataset=[3, 1, 0, 7, 6, 2, 5, 4], method=[4, 0, 1, 3, 2])
    a, b = (rank_statistics(t, n_draws=100, baselines=["org/m0"]) for t in (whole, shuffled))
    for node in NODES:
        xr.testing.assert_identical(a[node].to_dataset(), b[node].to_dataset())
    c = rank_statistics(whole, n_draws=100, seed=1)
    low = [tree["bootstrap"]["interval_low"].values for tree in (a, c)]
    assert (low[0] != low[1]).any()


def test_rank_statistics__leaves_generators_and_filters_alone() -> None:
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    filters = list(warnings.filters)
    rank_statistics(table(), n_draws=20, baselines=["org/m0"])
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    assert filters == warnings.filters


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"baselines": ["PCA"]}, "no method 'PCA'; the methods are 'org/m0', "),
    ({"baselines": ["org/m0", "org/m0"]}, "named twice"),
    ({"n_draws": 0}, "n_draws must be at least 1, found 0"),
    ({"n_draws": 2.5}, "n_draws must be a whole number, found 2.5"),
    ({"seed": -1}, "seed must be at least 0"),
    ({"seed": None}, "seed must be a whole number, found None"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_rank_statistics__says_what_is_wrong(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        rank_statistics(table(), **arguments)


def test_rank_statistics__survives_files(tmp_path: Path) -> None:
    ranks = rank_embeddings(table(n_datasets=2), decimals=3)
    tree = with_ranks(ranks, rank_statistics(ranks, n_draws=10, baselines=["org/m0"], seed=2**70))
    assert tree["bootstrap"].attrs["seed"] == str(2**70)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently")
        tree.to_zarr(tmp_path / "r.zarr", consolidated=True)
    tree.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
    for name, engine in (("r.zarr", "zarr"), ("r.nc", "h5netcdf")):
        read = xr.open_datatree(tmp_path / name, engine=engine).load()
        assert rank_text(read) == rank_text(tree)
        for node in tree.children:
            for variable in tree[node].to_dataset().variables:
                a, b = (t[node][variable] for t in (tree, read))
                if a.dtype.kind == "O":
                    assert a.values.tolist() == b.values.tolist()
                else:
                    xr.testing.assert_equal(a.drop_vars(a.coords), b.drop_vars(b.coords))
        again = rank_statistics(read["ranks"].to_dataset(), n_draws=10, seed=2**70)
        np.testing.assert_array_equal(
            again["bootstrap"]["interval_low"], tree["bootstrap"]["interval_low"]
        )


def test_report__has_a_row_a_method() -> None:
    whole = table()
    value = whole["value"].values
    value[:, 4] = NAN
    ranks = rank_embeddings(whole, decimals=6)
    tree = with_ranks(ranks, rank_statistics(ranks, n_draws=50, baselines=["org/m0", "org/m4"]))
    frame = leaderboard(tree)
    assert frame["method"].tolist()[-1] == "org/m4", "one without ranks comes last"
    assert frame["position"].tolist()[:4] == [1, 2, 3, 4]
    assert frame["method"].tolist()[0] == "org/m3"
    assert list(frame)[7:] == [
        "cluster_label_concordance_rank", "continuous_cell_type_separation_rank",
        "local_cell_type_neighborhood_structure_rank", "batch_mixing_rank",
        "p_adjusted_vs_org/m0", "p_adjusted_vs_org/m4",
    ]  # fmt: skip
    text = rank_text(tree)
    assert "Rounding to 6 decimals does not change the order" in text
    assert "Against org/m4" in text
    assert "data sets that rank both: 0; the test needs 6" in text
    plain = ranks_as_plain(tree)
    assert plain["wilcoxon"]["data_vars"]["p_value"]["data"][0][0] is None
    assert plain["ranks"]["attrs"]["order_changed"] == 0
