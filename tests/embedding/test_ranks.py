"""Ranks: the specification's worked values, ties and gaps by hand, and what must not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from croma_dask.embedding.outcome import METRIC_NAMES
from croma_dask.embedding.rank_arrays import positions
from croma_dask.embedding.rank_families import FAMILIES, WEIGHTS
from croma_dask.embedding.rank_schema import (
    BOOTSTRAP,
    FRIEDMAN,
    LEAVE_ONE_OUT,
    RANK_COORDINATES,
    RANKS,
    WILCOXON,
)
from croma_dask.embedding.ranks import rank_embeddings
from croma_dask.errors import InputWarning, SchemaError, SupportWarning

NAN = np.nan
# The vector of the specification.
THREE = {"c": ["ARI", "NMI"], "a": ["ASW"], "b": ["kBET", "BRAS"]}
THREE_WEIGHTS = {"c": 0.6, "a": 0.1, "b": 0.3}
METRICS = ["ARI", "NMI", "ASW", "kBET", "BRAS"]
TISSUES = {
    "A": {"p": [0.1, 0.1, 0.1, 0.3, 0.3], "q": [0.1, 0.2, NAN, 0.2, 0.2],
          "r": [0.3, 0.3, 0.3, 0.1, NAN]},
    "B": {"p": [0.9, 0.9, 0.9, NAN, NAN], "q": [0.1, 0.1, 0.1, NAN, NAN],
          "r": [0.5, 0.5, 0.5, NAN, NAN]},
}  # fmt: skip


def benchmark(value: Any, metrics: Any = None, datasets: Any = None) -> xr.Dataset:
    """A benchmark's Dataset, without what ranks do not look at."""
    value = np.asarray(value, float)
    t, m, k = value.shape
    names = {
        "dataset": [f"d{i}" for i in range(t)] if datasets is None else datasets,
        "method": [f"m{i}" for i in range(m)],
        "metric": METRIC_NAMES[:k] if metrics is None else metrics,
    }
    coords = {dim: (dim, np.array(list(of), object)) for dim, of in names.items()}
    return xr.Dataset({"value": (("dataset", "method", "metric"), value)}, coords)


def worked() -> pd.DataFrame:
    rows = [
        {"sample_id": tissue, "method": method, **dict(zip(METRICS, values, strict=True))}
        for tissue, of in TISSUES.items()
        for method, values in of.items()
    ]
    return pd.DataFrame(rows)


def test_rank_embeddings__gives_the_worked_values() -> None:
    ranks = rank_embeddings(worked(), families=THREE, weights=THREE_WEIGHTS)
    a, b = (ranks.sel(dataset=t) for t in "AB")
    expected = [[2.75, 2.0, 1.0], [2.25, NAN, 2.0], [1.0, 1.0, 3.0]]
    np.testing.assert_array_equal(a.family_rank, expected)
    np.testing.assert_array_equal(a.aggregate_rank, [2.15, 13 / 6, 1.6])
    np.testing.assert_array_equal(b.aggregate_rank, [1.0, 3.0, 2.0])
    np.testing.assert_allclose(ranks.mean_rank, [1.575, 31 / 12, 1.8], rtol=2e-16)
    np.testing.assert_array_equal(ranks.position, [1.0, 3.0, 2.0])
    # q lacks ASW: its weights are 0.6 and 0.3 of 0.9. No batch metrics: 0.6 and 0.1 of 0.7.
    np.testing.assert_array_equal(a.family_weight[1], [2 / 3, 0.0, 1 / 3])
    np.testing.assert_array_equal(b.family_weight[0], [6 / 7, 1 / 7, 0.0])
    # A metric ranks those that have it, and says how many these are.
    np.testing.assert_array_equal(a.n_ranked, [3, 3, 2, 3, 2])
    np.testing.assert_array_equal(b.n_ranked, [3, 3, 3, 0, 0])
    np.testing.assert_array_equal(a.n_metrics[:, 2], [2, 2, 1])
    np.testing.assert_array_equal(ranks.n_datasets, [2, 2, 2])


def test_rank_embeddings__has_the_families_of_the_specification() -> None:
    assert sum(WEIGHTS.values()) == 1.0
    assert list(WEIGHTS) == list(FAMILIES)
    ranked = [metric for family in FAMILIES.values() for metric in family]
    assert sorted([*ranked, "iLISI"]) == sorted(METRIC_NAMES)
    ranks = rank_embeddings(benchmark(np.random.default_rng(0).random((2, 3, 13))))
    assert ranks["metric"].values.tolist() == ranked
    assert ranks["weight"].to_series().to_dict() == WEIGHTS
    assert ranks["metric_family"].sel(metric="GC") == "local_cell_type_neighborhood_structure"


def test_metric_rank__shares_the_average_among_ties() -> None:
    value = np.array([[[0.5], [0.5], [0.9], [NAN], [0.5], [0.1]]])
    ranks = rank_embeddings(benchmark(value, ["ASW"]))
    np.testing.assert_array_equal(ranks.metric_rank[0, :, 1 + 4], [3, 3, 1, NAN, 3, 5])
    assert ranks.n_ranked.sel(metric="ASW").item() == 5
    assert np.isnan(ranks.mean_rank[3])
    assert np.isnan(ranks.position[3])
    assert ranks.n_datasets[3] == 0


def test_metric_rank__of_sums_that_differ_in_the_last_bit_is_no_tie() -> None:
    value = np.array([[[0.3], [0.1 + 0.2]]])
    ranks = rank_embeddings(benchmark(value, ["ASW"]))
    np.testing.assert_array_equal(ranks.aggregate_rank, [[2.0, 1.0]])
    ranks = rank_embeddings(benchmark(value, ["ASW"]), decimals=9)
    np.testing.assert_array_equal(ranks.aggregate_rank, [[1.5, 1.5]])


def test_aggregate_rank__is_exact() -> None:
    """Weights of a decimal text are in no binary fraction; nothing of that is left."""
    value = np.linspace(1, 0, 9).reshape(1, 9, 1) * np.ones((1, 1, 13))
    ranks = rank_embeddings(benchmark(value))
    np.testing.assert_array_equal(ranks.mean_rank, np.arange(1, 10))
    # By 0.1 and 0.2 the one is first, by 0.3 the other: as sums of floats they would not tie.
    families = {"x": ["ARI"], "y": ["NMI"], "z": ["ASW"]}
    value = np.array([[[2.0, 2.0, 1.0], [1.0, 1.0, 2.0]]])
    table = benchmark(value, ["ARI", "NMI", "ASW"])
    for third in (1 / 3, 0.1, 1e-7, 12345.678):
        weights = {"x": third, "y": 2 * third, "z": 3 * third}
        ranks = rank_embeddings(table, families=families, weights=weights)
        np.testing.assert_allclose(ranks.mean_rank, [1.5, 1.5], rtol=1e-15)
    ranks = rank_embeddings(table, families=families, weights={"x": 0.1, "y": 0.2, "z": 0.3})
    np.testing.assert_array_equal(ranks.mean_rank, [1.5, 1.5])


def test_positions__of_equal_means_are_shared_whatever_the_last_bit_says() -> None:
    means = np.array([0.1 + 0.2, 0.3, NAN, 0.2])
    np.testing.assert_array_equal(positions(means), [2.5, 2.5, NAN, 1.0])
    np.testing.assert_array_equal(positions(np.stack([means, means[::-1]]))[1], [1, NAN, 2.5, 2.5])


def test_rank_embeddings__of_tables_without_what_is_nan() -> None:
    """A pivot loses the rows and columns that are NaN throughout: the same ranks."""
    full = worked()
    bio, batch = (
        full[["sample_id", "method", "ARI", "NMI", "ASW"]],
        full.drop(columns=["ARI", "NMI", "ASW"]),
    )
    parts = [bio, batch.dropna(how="all", subset=["kBET", "BRAS"])]
    found = rank_embeddings(parts, families=THREE, weights=THREE_WEIGHTS)
    whole = rank_embeddings(full, families=THREE, weights=THREE_WEIGHTS)
    xr.testing.assert_identical(found.assign_attrs(created=""), whole.assign_attrs(created=""))
    alone = rank_embeddings(bio, families=THREE, weights=THREE_WEIGHTS)
    empty = rank_embeddings(
        [bio, pd.DataFrame(columns=["sample_id", "method"])], families=THREE, weights=THREE_WEIGHTS
    )
    for ranks in (alone, empty):
        assert ranks.family_rank.sel(family="b").isnull().all()
        np.testing.assert_allclose(ranks.family_weight.sel(family="b"), 0.0)
        assert (ranks.n_ranked.sel(metric=["kBET", "BRAS"]) == 0).all()
        np.testing.assert_allclose(ranks.aggregate_rank[0], [18.5 / 7, 2.25, 1.0], atol=1e-12)


def test_rank_embeddings__of_nothing_but_nan_has_no_ranks() -> None:
    ranks = rank_embeddings(benchmark(np.full((2, 3, 13), NAN)))
    for name in ("metric_rank", "family_rank", "aggregate_rank", "mean_rank", "position"):
        assert ranks[name].isnull().all(), name
    assert (ranks.family_weight == 0.0).all()
    assert (ranks.n_datasets == 0).all()


def test_rank_embeddings__means_over_the_datasets_that_have_a_method() -> None:
    value = np.array([[[3.0], [2.0], [1.0]], [[NAN], [1.0], [2.0]], [[NAN], [1.0], [2.0]]])
    ranks = rank_embeddings(benchmark(value, ["ASW"]))
    np.testing.assert_array_equal(ranks.mean_rank, [1.0, 2.0, 5 / 3])
    np.testing.assert_array_equal(ranks.n_datasets, [1, 3, 3])
    np.testing.assert_array_equal(ranks.position, [1.0, 3.0, 2.0])


def test_rank_embeddings__weighs_what_is_asked_for() -> None:
    value = np.array([[[1.0, 2.0], [2.0, 1.0]]])
    table = benchmark(value, ["ASW", "kBET"])
    batch = rank_embeddings(table, weights={"continuous_cell_type_separation": 0.0})
    np.testing.assert_array_equal(batch.mean_rank, [1.0, 2.0])
    neither = rank_embeddings(
        benchmark(value[:, :, :1], ["ASW"]), weights={"continuous_cell_type_separation": 0}
    )
    assert neither.mean_rank.isnull().all(), "the one family that it has weighs nothing"
    own = rank_embeddings(table, families={"mine": ["ASW"]}, weights={"mine": 7})
    np.testing.assert_array_equal(own.mean_rank, [2.0, 1.0])
    np.testing.assert_array_equal(own.family_weight, [[[1.0], [1.0]]])


def test_decimals__say_whether_they_change_the_order() -> None:
    value = np.array([[[0.90001], [0.90002], [0.5]]])
    table = benchmark(value, ["cLISI"])
    plain = rank_embeddings(table)
    assert "order_changed" not in plain.attrs
    np.testing.assert_array_equal(plain.position, [2.0, 1.0, 3.0])
    rounded = rank_embeddings(table, decimals=4)
    np.testing.assert_array_equal(rounded.position, [1.5, 1.5, 3.0])
    assert rounded.attrs["decimals"] == 4
    assert rounded.attrs["order_changed"] == 1
    assert rounded.attrs["largest_position_change"] == 0.5
    assert rank_embeddings(table, decimals=5).attrs["order_changed"] == 0
    np.testing.assert_array_equal(rank_embeddings(table, decimals=0).position, [1.5, 1.5, 3.0])


REFUSED = [
    ({"families": {}}, "expected a mapping"),
    ({"families": [["ASW"]]}, "expected a mapping"),
    ({"families": {"x": []}, "weights": {"x": 1}}, "'x' has no metric"),
    ({"families": {"": ["ASW"]}, "weights": {"": 1}}, "a name is a text"),
    ({"families": {"x": [1]}, "weights": {"x": 1}}, "1 is no name of a metric"),
    ({"families": {"x": ["ASW"], "y": ["ASW"]}, "weights": {"x": 1, "y": 1}}, "named twice"),
    ({"families": {"x": ["ASW"]}}, "no weight for 'x'"),
    ({"weights": {"batch": 1}}, "no family 'batch'; the families are 'cluster"),
    ({"weights": {"batch_mixing": -1}}, "at least 0, found -1"),
    ({"weights": {"batch_mixing": NAN}}, "must be finite"),
    ({"weights": {"batch_mixing": "much"}}, "is no number"),
    ({"weights": dict.fromkeys(FAMILIES, 0)}, "at least one must be above 0"),
    ({"decimals": -1}, "from 0 to 15, found -1"),
    ({"decimals": 1.5}, "found 1.5"),
    ({"decimals": True}, "found True"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_rank_embeddings__says_what_is_wrong(arguments: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        rank_embeddings(benchmark(np.zeros((1, 2, 13))), **arguments)


def test_rank_embeddings__warns_of_ranks_that_say_nothing() -> None:
    value = np.array([[[0.5], [NAN]], [[0.5], [0.4]]])
    with pytest.warns(SupportWarning, match="one method only.*'d0'"):
        rank_embeddings(benchmark(value, ["ASW"]))
    with pytest.warns(InputWarning, match="have no value: 'ASV'"):
        rank_embeddings(benchmark(np.zeros((1, 2, 13))), families={"x": ["ASV", "ARI"]},
                        weights={"x": 1})  # fmt: skip


values = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(2, 5), st.just(13)),
    elements=st.one_of(st.just(NAN), st.integers(-8, 8).map(lambda n: n / 8.0)),
)


@given(value=values, seed=st.integers(0, 2**16))
@pytest.mark.filterwarnings("ignore::croma_dask.errors.SupportWarning")
def test_rank_embeddings__looks_at_the_order_of_values_only(value: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    moved = value.copy()
    for t in range(value.shape[0]):
        for k in range(value.shape[2]):
            levels, at = np.unique(value[t, :, k], return_inverse=True)
            images = np.sort(rng.choice(10_000, levels.size, replace=False)) / 3.0 - 1000.0
            moved[t, :, k] = np.where(np.isnan(value[t, :, k]), NAN, images[at])
    a, b = rank_embeddings(benchmark(value)), rank_embeddings(benchmark(moved))
    xr.testing.assert_identical(a.assign_attrs(created=""), b.assign_attrs(created=""))


@given(value=values)
@pytest.mark.filterwarnings("ignore::croma_dask.errors.SupportWarning")
def test_rank_embeddings__equals_pandas_and_plain_sums(value: np.ndarray) -> None:
    ranks = rank_embeddings(benchmark(value))
    for t in range(value.shape[0]):
        frame = pd.DataFrame(value[t], columns=METRIC_NAMES).rank(ascending=False, method="average")
        expected = frame[[str(name) for name in ranks["metric"].values]]
        np.testing.assert_array_equal(ranks.metric_rank[t], expected)
        for m in range(value.shape[1]):
            total = weights = 0.0
            for family, metrics in FAMILIES.items():
                observed = frame.loc[m, list(metrics)].dropna()
                if len(observed):
                    total += WEIGHTS[family] * observed.mean()
                    weights += WEIGHTS[family]
            found = float(ranks.aggregate_rank[t, m])
            assert found == pytest.approx(total / weights if weights else NAN, nan_ok=True)
    np.testing.assert_allclose(
        ranks.mean_rank, pd.DataFrame(ranks.aggregate_rank.values).mean(), atol=1e-12
    )
    expected = pd.Series(ranks.mean_rank.values.round(12)).rank()
    np.testing.assert_array_equal(ranks.position, expected)
    shares = ranks.family_weight.sum("family")
    np.testing.assert_allclose(shares, ranks.aggregate_rank.notnull(), atol=1e-12)


@given(value=values, seed=st.integers(0, 2**16))
@pytest.mark.filterwarnings("ignore::croma_dask.errors.SupportWarning")
def test_rank_embeddings__does_not_look_at_order_of_rows(value: np.ndarray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = benchmark(value)
    shuffled = table.isel(
        {dim: rng.permutation(table.sizes[dim]) for dim in ("dataset", "method", "metric")}
    ).transpose("metric", "dataset", "method")
    a, b = rank_embeddings(table), rank_embeddings(shuffled)
    xr.testing.assert_identical(a.assign_attrs(created=""), b.assign_attrs(created=""))


def test_rank_embeddings__labels_all_it_says() -> None:
    ranks = rank_embeddings(benchmark(np.random.default_rng(1).random((2, 3, 13))), decimals=3)
    assert set(ranks.data_vars) == set(RANKS)
    for name, about in RANKS.items():
        assert ranks[name].dims == about.dims
        assert ranks[name].attrs["long_name"]
        assert ranks[name].attrs["units"] == "1"
    for name in ranks.coords:
        assert ranks[name].attrs["long_name"]
    assert all(isinstance(v, str | int | float) for v in ranks.attrs.values())


def test_names__hide_nothing_of_xarray() -> None:
    names = {
        name
        for declared in (RANKS, RANK_COORDINATES, BOOTSTRAP, FRIEDMAN, WILCOXON, LEAVE_ONE_OUT)
        for name in declared
    }
    taken = {name for kind in (xr.Dataset, xr.DataArray, xr.DataTree) for name in dir(kind)}
    # DataTree.dataset: of a tree it is read by item.
    assert names & taken == {"dataset"}
