"""What a result carries: every declared field, labelled, documented, saved and read back."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import schema
from tests.helpers.cohorts import Cohort, lattice_cohort, manifest

METRICS = ("RI", "MaRI", "CRoMa")
pytestmark = pytest.mark.filterwarnings("ignore:.*units")


def tree_of(cohort: Cohort, **options: Any) -> xr.DataTree:
    arguments = {"k_candidates": [2, 7], "m": 2} | options
    return cd.score(cohort.x, cohort.frame, confounder="center", design=cohort.design, **arguments)


@pytest.fixture
def cohort(rng: np.random.Generator) -> Cohort:
    cohort = lattice_cohort(rng, 90, n_features=4, reach=5, n_groups=30)
    cohort.frame["label"] = cohort.frame["label"].map({"0": "Überklasse", "1": "肿瘤", "2": "a/b"})
    return cohort


@pytest.fixture
def paired(rng: np.random.Generator) -> Cohort:
    return lattice_cohort(rng, 90, n_features=4, reach=5, n_subsets=3)


def plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(type(v) in (str, int, float) for v in value)
    return type(value) in (str, int, float)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("m", [2, [3, 1]])
@pytest.mark.parametrize("kind", ["cohort", "paired"])
def test_result__has_every_declared_variable_as_declared(
    name: str, m: Any, kind: str, request: pytest.FixtureRequest
) -> None:
    cohort = request.getfixturevalue(kind)
    result = tree_of(cohort, m=m)[name].to_dataset()
    declared = schema.variables_of(name)
    assert list(result.data_vars) == list(declared)
    for variable, declaration in declared.items():
        array = result[variable]
        once = ("n_pairs", "k_start", "k_final", "retries")
        swept = name == "CRoMa" and isinstance(m, list) and variable not in once
        assert array.dims == (("m",) if swept else ()) + declaration.dims, variable
        assert array.dtype.kind == declaration.kind, variable
        assert array.attrs["long_name"], variable
        assert array.attrs["units"] == "1", variable
        for bound in ("valid_min", "valid_max"):
            assert array.attrs.get(bound) == getattr(declaration, bound), variable
        assert array.attrs.get("neutral_value") == declaration.neutral, variable
        assert all(plain(v) for v in array.attrs.values()), variable
    assert result.sizes["sample"] == len(cohort)
    assert result.subset.values.tolist() == (
        ["dataset"] if cohort.design == "all" else ["0", "1", "2"]
    )
    for field in ("value", "pair_values", "sample_values", "median_value"):
        assert result[field].attrs["neutral_value"] == (0.0 if name == "CRoMa" else 0.5)


@pytest.mark.parametrize("name", METRICS)
def test_undefined_type__names_its_codes(name: str, cohort: Cohort) -> None:
    attrs = tree_of(cohort)[name]["undefined_type"].attrs
    meanings = attrs["flag_meanings"].split()
    assert len(meanings) == len(attrs["flag_values"])
    codes = dict(zip(attrs["flag_values"], meanings, strict=True))
    assert codes[0] == "defined"
    assert codes[-1] == "not_scored"
    assert set(np.unique(tree_of(cohort)[name]["undefined_type"])) <= set(codes)


def test_coordinates__say_who_a_sample_is(paired: Cohort) -> None:
    frame = paired.frame
    for name, node in tree_of(paired).children.items():
        for coordinate, column in (
            ("sample_id", "sample_id"), ("label", "label"), ("confounder", "center"),
            ("group_id", "group_id"), ("sample_subset", "subset"),
        ):  # fmt: skip
            found = node[coordinate]
            assert found.dims == ("sample",)
            assert found.values.tolist() == frame[column].tolist()
            assert found.attrs["long_name"]
        assert node["confounder"].attrs["column"] == "center"
        assert "sample" not in node.to_dataset().indexes, "no index of strings unless asked for"
        assert ("k" in node.coords) == (name != "CRoMa")
        assert ("m" in node.coords) == (name == "CRoMa")
        assert not any(isinstance(i, pd.MultiIndex) for i in node.to_dataset().indexes.values())


def test_names__do_not_hide_behind_methods(cohort: Cohort) -> None:
    """`std` and `dataset` are read by item; everything else by attribute."""
    names, attrs = set(schema.COORDINATES), set()
    for name in METRICS:
        result = tree_of(cohort, m=[1, 2])[name].to_dataset()
        names |= set(map(str, result.variables)) | set(map(str, result.dims))
        attrs |= set(result.attrs)
    nodes = set(dir(xr.Dataset)) | set(dir(xr.DataTree))
    assert (names | set(METRICS)) & (nodes | set(dir(xr.DataArray))) <= {"std", "dataset"}
    assert attrs & nodes <= {"dataset"}  # attrs of a Dataset are not those of its variables


def test_dims_and_per_row_coordinates__are_different_names(cohort: Cohort) -> None:
    result = tree_of(cohort)["RI"].to_dataset()
    for dim in result.dims:
        if dim in result.coords:
            assert result[dim].dims == (dim,)
    per_row = {str(c) for c in result.coords if result[c].dims == ("sample",)}
    assert not per_row & set(map(str, result.dims))


def test_attrs__tell_what_was_done(paired: Cohort) -> None:
    x = paired.x.astype(">f4")
    x[4] = 0.0
    paired.frame["dataset"] = "camelyon"
    with pytest.warns(cd.InputWarning, match="1 of 90 embedding rows are zero .*row 4"):
        tree = tree_of(Cohort(x, paired.frame, "paired_2x2"), alpha=0.25)
    for name, node in tree.children.items():
        attrs = node.attrs
        assert all(plain(v) for v in attrs.values())
        assert attrs["metric"] == name
        assert attrs["evaluation_design"] == "paired_2x2"
        assert attrs["evaluation_unit"] == "occurrence"
        assert attrs["dataset"] == "camelyon"
        assert attrs["distance"] == "cosine"
        assert attrs["index"] == "exact"
        assert attrs["recall"] == 1.0
        assert attrs["n_rows"] == attrs["n_rows_used"] == attrs["n_tiles"] == 90
        assert attrs["n_features"] == 4
        assert attrs["dtype"] == "float32"
        assert attrs["n_zero_rows"] == 1
        assert len(attrs["embedding_fingerprint"]) == 64
        assert attrs["croma_dask_version"] == cd.__version__
        assert attrs["metric_version"]
        assert attrs["alpha"] == (0.25 if name == "CRoMa" else 0.1)


def test_exhaustive_search__has_no_radius(cohort: Cohort) -> None:
    found = tree_of(cohort)["CRoMa"]
    assert int(found.k_final) == int(found.k_start) == 89
    assert int(found.retries) == 0


@pytest.mark.parametrize("kind", ["cohort", "paired"])
def test_results__survive_zarr_and_netcdf(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Names with a slash, non-ASCII text, NaN, integer zeros; no warning on the way."""
    tree = tree_of(request.getfixturevalue(kind), m=[3, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree.to_zarr(tmp_path / "tree.zarr", consolidated=False)
        tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
        back = [
            xr.open_datatree(tmp_path / "tree.zarr", engine="zarr", consolidated=False).load(),
            xr.open_datatree(tmp_path / "tree.nc", engine="h5netcdf").load(),
        ]
        single = tree["CRoMa"].to_dataset()
        single.to_zarr(tmp_path / "one.zarr", consolidated=False)
        single.to_netcdf(tmp_path / "one.nc", engine="h5netcdf")
        ones = [
            xr.open_zarr(tmp_path / "one.zarr", consolidated=False).load(),
            xr.open_dataset(tmp_path / "one.nc", engine="h5netcdf").load(),
        ]
    for other in back:
        for name in METRICS:
            expected, found = tree[name].to_dataset(), other[name].to_dataset()
            xr.testing.assert_identical(found, expected)
            for variable in expected.variables:
                kinds = {found[variable].dtype.kind, expected[variable].dtype.kind}
                assert len(kinds) == 1 or kinds <= set("OTU"), variable  # all of these are text
            assert found.undefined_type.dtype == np.int8
    for other in ones:
        xr.testing.assert_identical(other, single)
        other.close()


def test_groupby_label__is_one_call(cohort: Cohort) -> None:
    result = tree_of(cohort)["CRoMa"].to_dataset()
    medians = result.sample_values.groupby("label").median()
    assert medians.sizes == {"label": 3}
    for label in medians.label.values:
        mine = result.sample_values.values[result.label.values == label]
        assert float(medians.sel(label=label)) == pytest.approx(np.nanmedian(mine))
    by_subset = result.sample_values.groupby("sample_subset").median()
    assert float(by_subset[0]) == pytest.approx(float(result.value))


def test_pooled_values__are_the_documented_reductions(paired: Cohort) -> None:
    tree = tree_of(paired)
    margin = tree["CRoMa"]
    medians = [np.nanmedian(margin.sample_values[margin.sample_subset == s]) for s in "012"]
    np.testing.assert_allclose(margin.pair_values, medians)
    assert float(margin.value) == pytest.approx(np.median(medians))
    for name in METRICS:
        node = tree[name]
        values = node.sample_values.values
        defined = values[~np.isnan(values)]
        assert float(node.median_value) == np.median(defined)
        assert float(node.q_alpha) == np.quantile(defined, 0.1)
        assert float(node.ltm_alpha) == pytest.approx(
            defined[defined <= float(node.q_alpha)].mean()
        )
        assert float(node["std"]) == pytest.approx(np.std(node.pair_values))
    assert float(margin.f0) == np.mean(margin.sample_values.values[margin.defined.values] <= 0)


def test_frame__is_tidy(cohort: Cohort) -> None:
    frame = tree_of(cohort, m=[1, 3]).croma.to_frame()
    assert set(frame.columns) == {"metric", "variable", "m", "subset", "k", "value"}
    assert set(frame["metric"]) == set(METRICS)
    only = frame[(frame.metric == "CRoMa") & (frame.variable == "value")]
    assert only["m"].tolist() == [1, 3]
    single = tree_of(cohort)["RI"].to_dataset().croma.to_frame()
    assert set(single["metric"]) == {"RI"}


def test_input__is_not_touched(cohort: Cohort) -> None:
    x, frame = cohort.x.copy(), cohort.frame.copy(deep=True)
    tree_of(cohort)
    np.testing.assert_array_equal(cohort.x, x)
    pd.testing.assert_frame_equal(cohort.frame, frame)
    assert cohort.frame.dtypes.equals(frame.dtypes)


def test_global_state__is_left_alone(cohort: Cohort) -> None:
    state, filters = np.random.get_state()[1].copy(), list(warnings.filters)  # noqa: NPY002
    tree_of(cohort)
    assert list(warnings.filters) == filters
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_one_metric__is_what_the_tree_holds(cohort: Cohort) -> None:
    tree = tree_of(cohort)
    common = {"confounder_column": "center"}
    alone = {
        "RI": cd.RI.compute(cohort.x, cohort.frame, k_candidates=[2, 7], **common),
        "MaRI": cd.MaRI.compute(cohort.x, cohort.frame, k_candidates=[2, 7], **common),
        "CRoMa": cd.CRoMa.compute(cohort.x, cohort.frame, m=2, **common),
    }
    for name, result in alone.items():
        for ds in (result, expected := tree[name].to_dataset()):
            ds.attrs.pop("created")
        xr.testing.assert_identical(result, expected)


def test_cells__of_a_curve_are_read_by_k(cohort: Cohort) -> None:
    curve = cd.RI.compute_curve(
        cohort.x, cohort.frame, confounder_column="center", k_values=[9, 2, 5, 2]
    )
    assert curve.k.values.tolist() == [9, 2, 5]
    assert list(curve.data_vars) == ["value"]
    assert curve.value.attrs["long_name"]
    assert 0.0 <= float(curve.value.sel(k=5)) <= 1.0


def test_manifest_of_unused_categories__has_none_in_the_result(rng: np.random.Generator) -> None:
    frame = manifest(rng.integers(0, 2, 40), rng.integers(0, 2, 40))
    frame["label"] = pd.Categorical(frame["label"], categories=["1", "zzz", "0"])
    result = tree_of(Cohort(rng.normal(size=(40, 3)), frame))["RI"].to_dataset()
    assert set(result.label.values) == {"0", "1"}
