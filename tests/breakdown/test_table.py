"""Breakdowns equal what pandas makes of the samples of each cell."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.breakdown.cells import LARGEST
from croma_dask.breakdown.segments import summarise
from croma_dask.results import save
from croma_dask.robustness.pooling import Evidence
from croma_dask.schema_breakdown import AXES, BREAKDOWN
from tests.helpers.cohorts import manifest, random_cohort

COLUMN = {
    "label": "label", "confounder": "confounder", "subset": "sample_subset", "group": "group_id",
}  # fmt: skip
RADII = [3, 1]


@functools.cache
def scored(seed: int) -> xr.DataTree:
    cohort = random_cohort(seed, least=100, most=140)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cd.score(
            cohort.x, cohort.frame, confounder=cohort.confounder, design=cohort.design,
            k_candidates=[3, 7], m=RADII,
        )  # fmt: skip


def expected(values: pd.Series, alpha: float) -> dict[str, float]:
    """What is told of the samples of one cell, as numpy and pandas have it."""
    some = values.dropna().to_numpy()
    told = {"n_samples": len(values), "n_defined": len(some)}
    told["support"] = len(some) / len(values)
    if not len(some):
        nothing = dict.fromkeys(("median_value", "q_alpha", "ltm_alpha", "f0"), np.nan)
        return told | nothing
    q = np.quantile(some, alpha)
    return told | {
        "median_value": np.median(some), "q_alpha": q, "ltm_alpha": some[some <= q].mean(),
        "f0": np.mean(some <= 0),
    }  # fmt: skip


def assert_cell(table: dict[Any, np.ndarray], at: tuple[int, ...], told: dict[str, float]) -> None:
    """Equal to the bit, but for the order in which a tail is summed."""
    for name, value in told.items():
        if name in table:
            found, tolerance = table[name][at], 1e-12 if name in ("ltm_alpha", "value") else 0.0
            same = found == value or (np.isnan(found) and np.isnan(value))
            assert same or abs(found - value) <= tolerance, (name, at, found, value)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "by", ["confounder", "subset", "group", ("confounder", "label"), ("label", "subset", "group")]
)
def test_breakdown__equals_pandas_groupby(seed: int, by: Any) -> None:
    result = scored(seed)
    axes = [by] if isinstance(by, str) else list(by)
    for metric in result.children:
        node = result[metric].to_dataset()
        table = cd.breakdown(result, by, metric=metric)
        outer = ("m",) if metric == "CRoMa" else ()
        assert table["median_value"].dims == (*outer, *axes)
        assert table["n_samples"].dims == tuple(axes)
        frame = pd.DataFrame({axis: node[COLUMN[axis]].values for axis in axes})
        level = {axis: {v: i for i, v in enumerate(table[axis].values)} for axis in axes}
        seen = 0
        for number in range(len(RADII) if outer else 1):
            mine = {"m": number} if outer else {}
            one = node.isel(mine)
            arrays = {name: array.values for name, array in table.isel(mine).data_vars.items()}
            frame["value"] = one["sample_values"].values
            if metric != "CRoMa":
                frame["so"], frame["os"] = one["so_evidence"].values, one["os_evidence"].values
            if metric == "MaRI":
                weight = np.exp(-one["evidence_distance"].fillna(2.0) / one["tau"]).values
                frame["so"], frame["os"] = frame["so"] * weight, frame["os"] * weight
            for names, part in frame.groupby(axes):
                told = expected(part["value"], node.attrs["alpha"])
                if metric != "CRoMa":
                    both = part["so"].sum() + part["os"].sum()
                    told["value"] = part["so"].sum() / both if both else np.nan
                at = tuple(level[a][name] for a, name in zip(axes, names, strict=True))
                assert_cell(arrays, at, told)
                seen += told["n_samples"]
        assert seen == node.sizes["sample"] * (len(RADII) if outer else 1)
        assert int(table["n_samples"].sum()) == node.sizes["sample"]
        for axis in axes:
            assert table[axis].values.tolist() == sorted(set(frame[axis]))


def test_breakdown__of_subsets_is_pair_values() -> None:
    result = scored(2)
    assert result["RI"].sizes["subset"] > 1
    croma = cd.breakdown(result, "subset")
    np.testing.assert_array_equal(croma["median_value"], result["CRoMa"]["pair_values"])
    assert croma["subset"].values.tolist() == result["CRoMa"]["subset"].values.tolist()
    for metric in ("RI", "MaRI"):
        table = cd.breakdown(result, "subset", metric=metric)
        np.testing.assert_allclose(table["value"], result[metric]["pair_values"], atol=1e-12)


def by_hand(values: list[float], labels: list[str], centers: list[str], **more: Any) -> xr.Dataset:
    """A result of CRoMa with given margins."""
    n = len(values)
    coords = {
        "label": ("sample", np.array(labels, object)),
        "confounder": ("sample", np.array(centers, object)),
        "group_id": ("sample", np.array([f"g{i // 2}" for i in range(n)], object)),
        "sample_subset": ("sample", np.array(["dataset"] * n, object)),
        "m": 5,
    }
    kinds = np.isnan(values).astype(np.int8)
    attrs = {
        "metric": "CRoMa", "alpha": 0.5, "label_column": "type", "confounder_column": "center",
        "group_column": "slide", **more,
    }  # fmt: skip
    data = {"sample_values": ("sample", np.array(values)), "undefined_type": ("sample", kinds)}
    return xr.Dataset(data, coords, attrs)


def test_breakdown__hand_made_cells() -> None:
    nan = float("nan")
    result = by_hand(
        [0.5, -0.5, 0.0, nan, 0.25, nan], ["a", "a", "a", "a", "b", "c"], ["x"] * 5 + ["y"]
    )
    table = cd.breakdown(result, "label")
    assert table["n_samples"].values.tolist() == [4, 1, 1]
    assert table["n_defined"].values.tolist() == [3, 1, 0]
    assert table["support"].values.tolist() == [0.75, 1.0, 0.0]
    # a: -0.5, 0, 0.5: median 0; at or below the median -0.5 and 0; both of these are at most 0.
    np.testing.assert_array_equal(table["median_value"], [0.0, 0.25, nan])
    np.testing.assert_array_equal(table["q_alpha"], [0.0, 0.25, nan])
    np.testing.assert_array_equal(table["ltm_alpha"], [-0.25, 0.25, nan])
    np.testing.assert_array_equal(table["f0"], [2 / 3, 0.0, nan])
    cells = cd.breakdown(result, ("label", "center"))
    assert cells["n_samples"].values.tolist() == [[4, 0], [1, 0], [0, 1]]
    assert np.isnan(cells["support"].values[0, 1])
    assert cells["label"].attrs["column"] == "type"
    assert int(cells["m"]) == 5


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1 / 3, 0.5, 0.95, 1.0])
def test_summarise__equals_numpy_on_every_cell(alpha: float, rng: np.random.Generator) -> None:
    n_cells = 40
    cell = rng.integers(0, n_cells - 3, 900)
    values = np.round(rng.normal(size=900), 1) if alpha < 0.5 else rng.normal(size=900)
    values[rng.random(900) < 0.1] = np.nan
    values[cell == 7] = np.nan
    told = summarise(cell, n_cells, values, alpha)
    so, os = rng.random(900), np.where(cell == 3, 0.0, rng.random(900))
    so[cell == 4] = os[cell == 4] = 0.0
    value = Evidence(so, os, np.zeros(900), np.inf).by_part(cell, n_cells).value()
    for at in range(n_cells):
        mine = expected(pd.Series(values[cell == at]), alpha) if (cell == at).any() else None
        if mine is None or not mine["n_defined"]:
            assert told.n_defined[at] == 0
            assert np.isnan([told.median[at], told.q_alpha[at], told.ltm_alpha[at]]).all()
            continue
        assert told.n_defined[at] == mine["n_defined"]
        assert told.median[at] == mine["median_value"]
        assert told.q_alpha[at] == mine["q_alpha"]
        assert told.ltm_alpha[at] == pytest.approx(mine["ltm_alpha"], rel=1e-13)
        assert told.f0[at] == mine["f0"]
        both = so[cell == at].sum() + os[cell == at].sum()
        assert value[at] == pytest.approx(
            so[cell == at].sum() / both if both else np.nan, rel=1e-13, nan_ok=True
        )


def test_breakdown__panel_equals_each_model() -> None:
    cohort = random_cohort(0, least=80, most=100)
    embeddings = {"one": cohort.x, "two/b": cohort.x[:, :2]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        each = {
            name: cd.score(
                x, cohort.frame, confounder="center", k_candidates=[3, 7], m=RADII,
            )
            for name, x in embeddings.items()
        }  # fmt: skip
        panel = cd.combine_results(each)
    for metric in ("CRoMa", "MaRI"):
        together = cd.breakdown(panel, ("center", "label"), metric=metric)
        assert together["median_value"].dims[0] == "model"
        assert together["n_samples"].dims == ("confounder", "label")
        for name, result in each.items():
            alone = cd.breakdown(result, ("center", "label"), metric=metric)
            for variable in alone.data_vars:
                mine = together[variable]
                mine = mine.sel(model=name) if "model" in mine.dims else mine
                np.testing.assert_array_equal(mine, alone[variable], err_msg=str(variable))
        assert together["embedding_fingerprint"].dims == ("model",)


def test_breakdown__of_an_opened_result_is_the_same(tmp_path: Path) -> None:
    result = scored(2)
    save(result, tmp_path / "result.zarr")
    with cd.open_result(tmp_path / "result.zarr") as opened:
        for metric in ("CRoMa", "MaRI"):
            found = cd.breakdown(opened, ("subset", "label"), metric=metric)
            xr.testing.assert_equal(found, cd.breakdown(result, ("subset", "label"), metric=metric))


@pytest.mark.parametrize("by", ["label", ("subset", "label")])
def test_breakdown__is_saved_and_comes_back(by: Any, tmp_path: Path) -> None:
    table = cd.breakdown(scored(2), by)
    for name in ("table.zarr", "table.nc"):
        save(table, tmp_path / name)
        with cd.open_result(tmp_path / name) as opened:
            xr.testing.assert_identical(opened.load(), table)


def test_breakdown__takes_the_names_of_columns() -> None:
    result = by_hand([0.1, 0.2, 0.3, 0.4], ["a", "b"] * 2, ["x", "x", "y", "y"])
    for name, axis in (
        ("type", "label"), ("center", "confounder"), ("slide", "group"), ("group_id", "group"),
        ("sample_subset", "subset"), ("confounder", "confounder"),
    ):  # fmt: skip
        assert cd.breakdown(result, name)["n_samples"].dims == (axis,)
    # A name of the first kind counts, even where a column is called so.
    swapped = by_hand([0.1, 0.2], ["a", "b"], ["x", "x"], confounder_column="group")
    assert cd.breakdown(swapped, "group").sizes == {"group": 1}


@pytest.mark.parametrize(
    ("by", "parts"),
    [
        ("scanner", ("'scanner'", "'confounder' (column 'center')", "'subset'")),
        ((), ("names nothing",)),
        (("label", "type"), ("label twice",)),
        (None, ("found None", "label, confounder")),
        (5, ("found 5",)),
        ((["label"],), ("['label']",)),
    ],
)
def test_breakdown__refuses_what_it_cannot_be_broken_down_by(by: Any, parts: Any) -> None:
    result = by_hand([0.1, 0.2], ["a", "b"], ["x", "x"])
    with pytest.raises(cd.SchemaError) as refusal:
        cd.breakdown(result, by)
    assert all(part in str(refusal.value) for part in parts), refusal.value


def test_breakdown__refuses_metrics_that_are_not_there() -> None:
    result = by_hand([0.1, 0.2], ["a", "b"], ["x", "x"])
    with pytest.raises(cd.SchemaError, match=r"holds 'CRoMa' and no 'RI'.*--metric"):
        cd.breakdown(result, metric="RI")
    with pytest.raises(cd.SchemaError, match="'foo' is not known; there are RI"):
        cd.breakdown(result, metric="foo")
    with pytest.raises(cd.SchemaError, match=r"'undefined_type'.*Give the result itself"):
        cd.breakdown(cd.breakdown(result))
    with pytest.raises(cd.SchemaError, match="expected a result"):
        cd.breakdown(pd.DataFrame())  # type: ignore[arg-type]


def test_breakdown__of_an_index_without_evidence_names_scoring_again() -> None:
    for metric, name in (("RI", "so_evidence"), ("MaRI", "evidence_distance")):
        node = scored(1)[metric].to_dataset().drop_vars(name)
        with pytest.raises(cd.SchemaError, match=f"no '{name}'.*score again"):
            cd.breakdown(node, metric=metric)


def test_breakdown__refuses_huge_tables_with_their_size() -> None:
    n = 3000
    result = by_hand([0.1] * n, [str(i) for i in range(n)], ["x"] * n)
    result["group_id"] = ("sample", np.array([f"g{i}" for i in range(n)], object))
    assert n * n > LARGEST
    with pytest.raises(
        cd.MemoryLimitError, match=r"3,000 groups x 3,000 labels = 9,000,000 .*72.00 MB.*fewer"
    ):
        cd.breakdown(result, ("group", "label"))


def test_breakdown__leaves_rows_out_that_were_not_scored() -> None:
    rng = np.random.default_rng(3)
    n = 48
    at = np.arange(n)
    label, center = at % 2, at // 2 % 2
    subset = np.where(at < 40, "whole", "broken")
    label[at >= 40] = 0
    frame = manifest(label, center, subset=subset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = cd.score(
            rng.normal(size=(n, 4)), frame, confounder="center", design="paired_2x2",
            skip_incomplete=True, m=2, k_candidates=[3],
        )  # fmt: skip
    table = cd.breakdown(result, "subset")
    assert table["subset"].values.tolist() == ["whole"]
    assert table["n_samples"].item() == 40
    assert int(cd.breakdown(result, ("label", "center"), metric="RI")["n_samples"].sum()) == 40
    nothing = result["CRoMa"].to_dataset()
    nothing["undefined_type"] = nothing["undefined_type"] * 0 - 1
    with pytest.raises(cd.SupportError, match="no sample of this result was scored"):
        cd.breakdown(nothing)


def test_schema__every_variable_is_declared() -> None:
    result = scored(1)
    for metric in result.children:
        table = cd.breakdown(result, ("label", "group"), metric=metric)
        assert list(table.data_vars) == list(BREAKDOWN[metric])
        for name, declared in BREAKDOWN[metric].items():
            array = table[name]
            assert array.dtype.kind == declared.kind
            assert array.attrs["units"] == "1"
            assert array.attrs["long_name"] == declared.long_name
            defined = array.values[~np.isnan(array.values)]
            if declared.valid_min is not None:
                assert defined.min() >= declared.valid_min
            if declared.valid_max is not None:
                assert defined.max() <= declared.valid_max
        assert table.attrs["broken_down_by"] == "label,group"
    for name in {*AXES, *(v for variables in BREAKDOWN.values() for v in variables)}:
        assert not hasattr(xr.Dataset(), name)


@pytest.mark.slow
def test_breakdown__a_million_rows_in_ten_thousand_groups_take_seconds() -> None:
    import time

    rng = np.random.default_rng(0)
    n = 1_000_000
    result = by_hand(rng.uniform(-1, 1, n), ["a", "b"] * (n // 2), ["x", "y"] * (n // 2))
    names = np.array([f"slide-{i}" for i in range(10_000)], object)
    result["group_id"] = ("sample", names[rng.integers(0, names.size, n)])
    start = time.perf_counter()
    table = cd.breakdown(result, "group")
    assert time.perf_counter() - start < 5.0
    assert int(table["n_samples"].sum()) == n
