"""One model or several: a result is seen as a panel, and back, without losing anything."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from croma_dask.errors import SchemaError
from croma_dask.panel.models import as_panel, datasets_of, drop_model, is_panel, names_of
from croma_dask.schema import METRICS
from croma_dask.schema_panel import FACTS, RANKS, SHARED
from tests.panel.conftest import NAMES


@pytest.fixture
def single(singles: dict[str, xr.DataTree]) -> xr.DataTree:
    return singles[NAMES[0]]


def test_as_panel__and_drop_model_give_the_result_back(single: xr.DataTree) -> None:
    panel = as_panel(single, "a/b é")
    assert names_of(panel) == ["a/b é"]
    for metric in METRICS:
        back = drop_model(panel[metric].to_dataset())
        xr.testing.assert_identical(back, single[metric].to_dataset())
        assert back.attrs == single[metric].attrs


def test_as_panel__puts_model_first_where_the_embedding_counts(single: xr.DataTree) -> None:
    panel = as_panel(single)
    for metric in METRICS:
        node, before = panel[metric].to_dataset(), single[metric].to_dataset()
        for name, array in before.data_vars.items():
            expected = array.dims if name in SHARED else ("model", *array.dims)
            assert node[name].dims == expected, name
            assert node[name].attrs == array.attrs
        facts = {name for name in FACTS if name in before.attrs}
        assert {
            "n_features",
            "dtype",
            "embedding_fingerprint",
            "n_zero_rows",
            "index",
            "recall",
        } <= (facts)
        for name in facts:
            assert node[name].dims == ("model",)
            assert node[name].values.tolist() == [before.attrs[name]]
            assert name not in node.attrs
        for name in ("sample_id", "label", "confounder", "group_id", "sample_subset"):
            assert node[name].dims == ("sample",)
    assert panel["RI"].k.dims == ("model",)
    assert "embedding_fingerprint" not in panel.attrs
    assert panel.attrs["manifest_fingerprint"] == single.attrs["manifest_fingerprint"]


def test_as_panel__copies_nothing_and_leaves_a_panel_alone(single: xr.DataTree) -> None:
    panel = as_panel(single)
    values = single["CRoMa"].sample_values.values
    assert np.shares_memory(panel["CRoMa"].sample_values.values, values)
    assert as_panel(panel).identical(panel)


def test_as_panel__keeps_lazy_arrays_lazy(single: xr.DataTree) -> None:
    lazy = xr.DataTree.from_dict({"RI": single["RI"].to_dataset().chunk({"sample": 50})})
    node = as_panel(lazy)["RI"]
    assert node.sample_values.chunks == ((1,), (50, 50, 20))
    np.testing.assert_array_equal(node.sample_values.values[0], single["RI"].sample_values.values)


def test_as_panel__of_one_metric_is_a_tree_of_one_node(single: xr.DataTree) -> None:
    alone = single["MaRI"].to_dataset()
    panel = as_panel(alone, "x")
    assert list(panel.children) == ["MaRI"]
    xr.testing.assert_identical(drop_model(panel["MaRI"].to_dataset()), alone)
    assert "metric" not in panel.attrs
    assert panel.attrs["n_rows"] == alone.attrs["n_rows"]


def test_as_panel__of_one_model_of_a_panel_finds_its_facts(panel: xr.DataTree) -> None:
    for name in NAMES:
        again = as_panel(panel.sel(model=name), name)
        for metric in METRICS:
            expected = panel[metric].to_dataset().sel(model=[name])
            xr.testing.assert_identical(again[metric].to_dataset(), expected)


def test_is_panel__tells_them_apart(single: xr.DataTree, panel: xr.DataTree) -> None:
    assert not is_panel(single)
    assert not is_panel(single["RI"].to_dataset())
    assert is_panel(panel)
    assert is_panel(panel["RI"].to_dataset())
    assert not is_panel(panel.sel(model=NAMES[1]))
    assert names_of(panel) == list(NAMES)
    assert names_of(single) == []


def test_datasets_of__takes_trees_and_datasets_of_a_metric(single: xr.DataTree) -> None:
    assert list(datasets_of(single)) == list(METRICS)
    one = single["CRoMa"].to_dataset()
    assert datasets_of(one)["CRoMa"] is one
    assert list(datasets_of(xr.DataTree(one))) == ["CRoMa"]


@pytest.mark.parametrize(
    ("thing", "found"),
    [
        (None, "found nothing"),
        (np.ones(3), "found a ndarray"),
        ("panel.zarr", "found a str"),
        (xr.Dataset(), "names no metric"),
        (xr.Dataset(attrs={"metric": "probe_sweep"}), "found one of 'probe_sweep'"),
        (xr.DataTree.from_dict({"RI": xr.Dataset(), "x": xr.Dataset()}), "found the node 'x'"),
        (xr.DataTree(), "names no metric"),
    ],
)
def test_datasets_of__says_what_else_it_was_given(thing: object, found: str) -> None:
    with pytest.raises(SchemaError, match=found):
        datasets_of(thing)


def test_drop_model__of_several_is_refused(panel: xr.DataTree, single: xr.DataTree) -> None:
    with pytest.raises(SchemaError, match="only one model can be dropped; found 3"):
        drop_model(panel["RI"].to_dataset())
    alone = single["RI"].to_dataset()
    assert drop_model(alone) is alone


def test_schema_panel__is_what_a_panel_has(panel: xr.DataTree) -> None:
    """Each declared name is there as declared, and carries its declared attributes."""
    croma = panel["CRoMa"].to_dataset()
    for name, declared in RANKS.items():
        assert croma[name].dims == ("model", "m")
        assert croma[name].dtype.kind == declared.kind
        assert croma[name].attrs == declared.attrs()
    assert not set(RANKS) & set(panel["RI"].data_vars)
    for name, declared in FACTS.items():
        if name in croma.coords:
            assert croma[name].dims == declared.dims
            assert croma[name].dtype.kind == declared.kind
            assert croma[name].attrs["long_name"] == declared.long_name
    # Items are attributes of Datasets: a name of theirs would hide one.
    for name in (*RANKS, *FACTS, "model"):
        for kind in (xr.Dataset, xr.DataTree):
            assert not hasattr(kind, name), name
