"""The worst groups are those that a pandas groupby finds, in its order."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.schema_breakdown import WORST
from tests.helpers.cohorts import features, manifest


@pytest.fixture(scope="module")
def cohort() -> tuple[np.ndarray, pd.DataFrame]:
    rng = np.random.default_rng(4)
    at = np.arange(120)
    label, center = at % 3, at // 3 % 2
    x = features(rng, label, center, 5, noise=0.8)
    # Slides lie in one centre; some hold two labels, their sizes differ.
    group = np.char.add("s", (center * 10 + np.minimum(at % 7, at % 4)).astype(str))
    return x, manifest(label, center, group)


def score(x: Any, frame: pd.DataFrame) -> xr.DataTree:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cd.score(x, frame, confounder="center", k_candidates=[5], m=[1, 3], alpha=0.2)


@pytest.fixture(scope="module")
def result(cohort: Any) -> xr.DataTree:
    return score(*cohort)


def frame_of(result: xr.DataTree, m: int) -> pd.DataFrame:
    node = result["CRoMa"].to_dataset()
    return pd.DataFrame(
        {
            "group": node["group_id"].values,
            "label": node["label"].values,
            "center": node["confounder"].values,
            "value": node["sample_values"].sel(m=m).values,
        }
    )


def tail(values: pd.Series) -> float:
    values = values.dropna()
    return float(values[values <= np.quantile(values, 0.2)].mean())


@pytest.mark.parametrize("m", [1, 3])
def test_worst_groups__come_in_the_order_of_pandas(result: xr.DataTree, m: int) -> None:
    frame = frame_of(result, m)
    each = frame.groupby("group")["value"].apply(tail).sort_values()
    worst = cd.worst_groups(result, 4, m=m)
    assert worst["group"].values.tolist() == each.index[:4].tolist()
    np.testing.assert_allclose(worst["ltm_alpha"].sel(m=m), each[:4], atol=1e-12)
    assert worst["ltm_alpha"].dims == ("m", "group")
    assert worst.attrs["ordered_by"] == "ltm_alpha"
    limit = np.quantile(frame["value"].dropna(), 0.2)
    low = frame[frame["value"] <= limit]
    for name in worst["group"].values:
        one = worst.sel(group=name)
        mine = frame[frame["group"] == name]
        assert str(one["label"].item()) == ", ".join(sorted(set(mine["label"])))
        assert str(one["confounder"].item()) == ", ".join(sorted(set(mine["center"])))
        assert one["n_samples"].item() == len(mine)
        assert one["share"].item() == len(mine) / len(frame)
        assert one["tail_share"].sel(m=m).item() == (low["group"] == name).sum() / len(low)
    every = cd.worst_groups(result, None, m=m)
    assert every.sizes["group"] == len(each)
    assert every["share"].sum().item() == pytest.approx(1.0)
    np.testing.assert_allclose(every["tail_share"].sum("group"), 1.0)


def test_worst_groups__by_default_of_the_first_radius(result: xr.DataTree) -> None:
    xr.testing.assert_equal(cd.worst_groups(result), cd.worst_groups(result, m=1))


def test_worst_groups__larger_f0_is_worse_and_ties_are_in_order(result: xr.DataTree) -> None:
    share = frame_of(result, 3).dropna().groupby("group")["value"].apply(lambda v: (v <= 0).mean())
    expected = sorted(share.index, key=lambda name: (-share[name], name))
    found = cd.worst_groups(result, None, order="f0", m=3)
    assert found["group"].values.tolist() == expected
    # All groups have the same support: a tie, and so in the order of their names.
    tied = cd.worst_groups(result, None, order="support")
    assert set(tied["support"].values.ravel()) == {1.0}
    assert tied["group"].values.tolist() == sorted(share.index)


def test_worst_groups__of_an_index_by_pooled_value(result: xr.DataTree) -> None:
    table = cd.breakdown(result, "group", metric="RI").to_dataframe()
    found = cd.worst_groups(result, 5, metric="RI")
    expected = table.dropna(subset="value").sort_values("value", kind="stable").index[:5].tolist()
    assert found["group"].values.tolist() == expected
    assert found.attrs["ordered_by"] == "value"
    assert "m" not in found.coords


def test_worst_groups__leaves_small_groups_out(result: xr.DataTree) -> None:
    defined = frame_of(result, 1).dropna().groupby("group").size()
    least = int(defined.median()) + 1
    found = cd.worst_groups(result, None, min_defined=least)
    assert set(found["group"].values) == set(defined[defined >= least].index)
    with pytest.raises(cd.SupportError, match=r"none of \d+ groups has 1000 defined samples"):
        cd.worst_groups(result, min_defined=1000)


def test_worst_groups__of_a_panel(cohort: Any) -> None:
    x, frame = cohort
    each = {"good": score(x, frame), "poor": score(x[:, :2], frame)}
    panel = cd.combine_results(each)
    for name, alone in each.items():
        found = cd.worst_groups(panel, 5, model=name)
        assert found["group"].values.tolist() == cd.worst_groups(alone, 5)["group"].values.tolist()
        assert found["ltm_alpha"].dims == ("model", "m", "group")
        np.testing.assert_array_equal(
            found["tail_share"].sel(model=name), cd.worst_groups(alone, 5)["tail_share"]
        )
        assert found.attrs["ordered_by_model"] == name
    mean = sum(
        frame_of(alone, 1).groupby("group")["value"].apply(tail) for alone in each.values()
    ).sort_values(kind="stable")  # fmt: skip
    by_mean = cd.worst_groups(panel, 5)
    assert by_mean["group"].values.tolist() == mean.index[:5].tolist()
    assert by_mean.attrs["ordered_by_model"] == "the mean over models"
    assert by_mean.attrs["ordered_by_m"] == 1
    with pytest.raises(cd.SchemaError, match="no model 'best'.*'good', 'poor'"):
        cd.worst_groups(panel, model="best")


def test_worst_groups__groups_without_a_value_come_last() -> None:
    coords = {
        "group_id": ("sample", np.array(["a", "a", "b", "c"], object)),
        "label": ("sample", np.array(["x", "y", "y", "y"], object)),
        "confounder": ("sample", np.array(["1", "1", "2", "2"], object)),
        "m": 5,
    }
    values = np.array([0.5, np.nan, np.nan, -0.5])
    result = xr.Dataset(
        {
            "sample_values": ("sample", values),
            "undefined_type": ("sample", np.isnan(values).astype(np.int8)),
            "q_alpha": ((), -0.5),
        },
        coords, {"metric": "CRoMa", "alpha": 0.0},
    )  # fmt: skip
    assert cd.worst_groups(result)["group"].values.tolist() == ["c", "a"]
    found = cd.worst_groups(result, min_defined=0)
    assert found["group"].values.tolist() == ["c", "a", "b"]
    assert found["label"].values.tolist() == ["y", "x, y", "y"]
    assert found["tail_share"].values.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"order": "value"}, "ordered by 'value'; CRoMa has 'n_samples'.*'f0'"),
        ({"m": 2}, "no m = 2 in this result; it has m = 1, 3"),
        ({"model": "a"}, "no model 'a' in this result; it has one model without a name"),
        ({"n": 0}, "n must be at least 1"),
        ({"metric": "RI", "m": 1}, "no m = 1 in this result; it has no m"),
        ({"metric": "other"}, "'other' is not known"),
    ],
)
def test_worst_groups__refuses_what_is_not_there(
    result: xr.DataTree, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(cd.SchemaError, match=message):
        cd.worst_groups(result, **how)


def test_schema__every_addition_is_declared(result: xr.DataTree) -> None:
    found = cd.worst_groups(result)
    for name, declared in WORST.items():
        assert found[name].attrs["long_name"] == declared.long_name
        assert found[name].dtype.kind == declared.kind
