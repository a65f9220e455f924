"""Results scored one by one, made a panel: the same numbers, or a refusal that says why not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import schema
from croma_dask.errors import SchemaError
from croma_dask.panel.models import drop_model
from croma_dask.schema import METRICS
from croma_dask.schema_panel import RANKS
from tests.helpers.compare import assert_same_bits
from tests.panel.conftest import ARGUMENTS, NAMES, make_arrays, make_frame, make_paired


def test_combine_results__is_what_scoring_all_gives(
    singles: dict[str, xr.DataTree], panel: xr.DataTree
) -> None:
    found = cd.combine_results(singles)
    assert list(found.children) == list(panel.children)
    for metric in METRICS:
        assert_same_bits(found[metric].to_dataset(), panel[metric].to_dataset())
        assert list(found[metric].data_vars) == list(panel[metric].data_vars)
    for attrs in (found.attrs, panel.attrs):
        attrs.pop("created")
    assert found.attrs == panel.attrs


def test_combine_results__keeps_every_number_and_the_order(
    singles: dict[str, xr.DataTree],
) -> None:
    for names in (NAMES, NAMES[::-1]):
        found = cd.combine_results({name: singles[name] for name in names})
        for metric in METRICS:
            node = found[metric].to_dataset().drop_vars(list(RANKS), errors="ignore")
            assert node.model.values.tolist() == list(names)
            for name in names:
                alone = drop_model(node.sel(model=[name]))
                assert_same_bits(alone, singles[name][metric].to_dataset())


def test_combine_results__of_results_changes_none_of_them(singles: dict[str, xr.DataTree]) -> None:
    before = {name: tree.copy(deep=True) for name, tree in singles.items()}
    found = cd.combine_results(singles)
    found["CRoMa"].sample_values.values[:] = 0
    for name, tree in singles.items():
        assert tree.identical(before[name])


def test_combine_results__of_one_metric_and_of_one_result(singles: dict[str, xr.DataTree]) -> None:
    found = cd.combine_results({name: tree["RI"].to_dataset() for name, tree in singles.items()})
    assert list(found.children) == ["RI"]
    assert found["RI"].value.dims == ("model",)
    one = cd.combine_results({"x": singles[NAMES[0]]})
    assert one["CRoMa"].value_rank.values.tolist() == [[1.0, 1.0]]
    assert one["CRoMa"].pareto_front.values.all()


def test_combine_results__of_models_of_panels(panel: xr.DataTree) -> None:
    again = cd.combine_results({name: panel.sel(model=name) for name in NAMES})
    assert again.identical(panel)
    two = cd.combine_results({"b": panel.sel(model=NAMES[1]), "a": panel.sel(model=NAMES[0])})
    croma = two["CRoMa"]
    # Ranks are those of the two, not what they were among the three.
    expected = croma.value.to_pandas().rank(ascending=False)
    np.testing.assert_array_equal(croma.value_rank, expected)


def test_combine_results__keeps_lazy_results_lazy(
    singles: dict[str, xr.DataTree], panel: xr.DataTree
) -> None:
    read: list[int] = []

    def look(block: Any) -> Any:
        read.append(block.shape[-1])
        return block

    lazy = {}
    for name, tree in singles.items():
        nodes = {}
        for metric, node in tree.children.items():
            chunked = node.to_dataset().chunk({"sample": 60})
            values = chunked.sample_values
            seen = values.copy(
                data=values.data.map_blocks(look, dtype=values.dtype, meta=values.data._meta)
            )
            nodes[metric] = chunked.assign(sample_values=seen)
        lazy[name] = xr.DataTree.from_dict(nodes)
        lazy[name].attrs = tree.attrs
    found = cd.combine_results(lazy)
    assert read == []
    assert found["RI"].sample_values.chunks == ((1, 1, 1), (60, 60))
    assert_same_bits(found["RI"].to_dataset().compute(), panel["RI"].to_dataset())
    mixed = cd.combine_results({**lazy, NAMES[1]: singles[NAMES[1]]})
    assert_same_bits(mixed["RI"].to_dataset().compute(), panel["RI"].to_dataset())


def approximate(tree: xr.DataTree) -> xr.DataTree:
    """What an approximate search would have added to a result; its numbers are made up."""
    nodes = {}
    for metric, node in tree.children.items():
        dataset = node.to_dataset()
        for name, declared in schema.CALIBRATION[metric].items():
            over_m = "m" in dataset.dims and "error" in name
            dims = ("m", *declared.dims) if over_m else declared.dims
            shape = tuple(dataset.sizes[dim] for dim in dims)
            value = {"f": 0.5, "i": 100, "b": True}[declared.kind]
            dataset[name] = (dims, np.full(shape, value), declared.attrs())
        dataset.attrs |= {"index": "ivf", "recall": 0.97, "probes": 4, "calibration_seed": 3}
        dataset.attrs["index_parameters"] = '{"a": 1}'
        nodes[metric] = dataset
    found = xr.DataTree.from_dict(nodes)
    found.attrs = tree.attrs
    return found


@pytest.mark.parametrize("first", [True, False])
def test_combine_results__what_only_approximate_searches_say_is_missing_of_the_exact_ones(
    first: bool, singles: dict[str, xr.DataTree]
) -> None:
    exact, searched = singles[NAMES[0]], approximate(singles[NAMES[1]])
    order = {"ivf": searched, "exact": exact} if first else {"exact": exact, "ivf": searched}
    found = cd.combine_results(order)
    for metric in METRICS:
        node = found[metric].to_dataset()
        for name, declared in schema.CALIBRATION[metric].items():
            assert node[name].dtype.kind == declared.kind
            mine, theirs = (node[name].sel(model=m).values for m in ("exact", "ivf"))
            missing = {"f": np.nan, "i": 0, "b": False}[declared.kind]
            np.testing.assert_array_equal(mine, np.full_like(mine, missing))
            np.testing.assert_array_equal(theirs, searched[metric][name].values)
        assert node["index"].sel(model=["exact", "ivf"]).values.tolist() == ["exact", "ivf"]
        assert node["recall"].sel(model=["exact", "ivf"]).values.tolist() == [1.0, 0.97]
        assert node["probes"].sel(model=["exact", "ivf"]).values.tolist() == [0, 4]
        assert node["calibration_seed"].sel(model=["exact", "ivf"]).values.tolist() == [-1, 3]
        assert node["index_parameters"].sel(model=["exact", "ivf"]).values.tolist() == [
            "", '{"a": 1}',
        ]  # fmt: skip


@pytest.fixture
def score() -> Callable[..., xr.DataTree]:
    def call(*, frame: Any = None, **changed: Any) -> xr.DataTree:
        x = make_arrays()[NAMES[1]]
        frame = make_frame() if frame is None else frame
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cd.score(x[: len(frame)], frame, **{**ARGUMENTS, **changed})

    return call


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"metrics": ("RI", "CRoMa")}, "has the metrics RI, CRoMa, and 'one' has RI, MaRI, CRoMa"),
        ({"m": (1, 5)}, r"CRoMa has m = \[1, 5\], and \[1, 3\] in 'one'"),
        ({"m": 1}, r"CRoMa has m = 1, and \[1, 3\] in 'one'"),
        ({"k_candidates": (5,)}, r"RI has k_candidates = \[5\], and \[5, 11\] in 'one'"),
        ({"alpha": 0.2}, "CRoMa has the alpha 0.2, and 0.1 in 'one'"),
        ({"group": "sample_id"}, "RI has the group column 'sample_id', and 'group_id' in 'one'"),
        ({"tau": 0.05}, "MaRI has the choice of tau 'pinned', and 'recommended' in 'one'"),
        ({"confounder": "site"}, "RI has the confounder column 'site', and 'center' in 'one'"),
    ],
)
def test_combine_results__of_another_request_is_refused(
    changed: dict[str, Any], said: str, singles: dict[str, xr.DataTree], score: Callable
) -> None:
    frame = make_frame()
    frame["site"] = frame["center"]
    other = score(frame=frame, **changed)
    with pytest.raises(SchemaError, match="'two' is not of the same request as 'one': .*" + said):
        cd.combine_results({"one": singles[NAMES[0]], "two": other})


def test_combine_results__of_another_pinned_tau_is_refused(score: Callable) -> None:
    one = score(tau=0.05)
    with pytest.raises(SchemaError, match=r"MaRI has a pinned tau = 0\.2, and 0\.05 in 'one'"):
        cd.combine_results({"one": one, "two": score(tau=0.2)})
    with pytest.warns(cd.InputWarning, match="same embedding"):
        panel = cd.combine_results({"one": one, "two": score(tau=0.05)})
    assert panel["MaRI"].attrs["tau_choice"] == "pinned"
    assert panel["MaRI"].tau.values.tolist() == [0.05, 0.05]


def test_combine_results__of_other_rows_is_refused(
    singles: dict[str, xr.DataTree], score: Callable
) -> None:
    one = singles[NAMES[0]]

    def refusal(frame: Any) -> str:
        with pytest.raises(SchemaError) as found:
            cd.combine_results({"one": one, "two": score(frame=frame)})
        return str(found.value)

    frame = make_frame()
    assert "'one' has 120 rows and 'two' 119" in refusal(frame[:-1])
    assert "the same ids in another order" in refusal(frame[::-1].reset_index(drop=True))
    other = frame.copy()
    other.loc[[7, 9], "center"] = "C"
    said = refusal(other)
    assert "column 'center' differs in 2 of 120 rows: row 7 ('A/1' in 'one', 'C' in 'two')" in said
    other = frame.assign(sample_id=[*frame.sample_id[:-1], "another"])
    assert "column 'sample_id' differs in 1 of 120 rows: row 119" in refusal(other)


def test_combine_results__of_other_scored_rows_is_refused() -> None:
    """Both have the same manifest, and one was told to leave an incomplete subset out."""
    arrays, frame = make_paired()
    request: dict[str, Any] = {
        "confounder": "center", "design": "paired_2x2", "k_candidates": (5,), "m": 1,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = cd.score(arrays[NAMES[0]], frame, **request)
        assert cd.combine_results({"a": whole, "b": whole})["RI"].sizes["subset"] == 3
        frame.loc[(frame.subset == "three") & (frame.label == "a"), "label"] = "b"
        less = cd.score(arrays[NAMES[1]], frame, skip_incomplete=True, **request)
    less["RI"].coords["label"] = whole["RI"].label
    with pytest.raises(SchemaError, match="80 units in 2 subsets were scored, and 120 in 3"):
        cd.combine_results({"a": whole["RI"].to_dataset(), "b": less["RI"].to_dataset()})


def test_combine_results__of_the_same_embedding_warns(singles: dict[str, xr.DataTree]) -> None:
    one = singles[NAMES[0]]
    with pytest.warns(cd.InputWarning, match="the models 'a', 'c' have the same embedding") as told:
        found = cd.combine_results({"a": one, "b": singles[NAMES[1]], "c": one})
    assert len(told) == 1
    ranks = found["CRoMa"].value_rank.isel(m=0).values
    assert ranks[0] == ranks[2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no results to combine"),
        ([1], "expected a mapping .*; found a list"),
        (xr.Dataset(), "found a Dataset"),
        ({"a": 3}, "expected a result of croma-dask .* found a int"),
        ({"": xr.Dataset(attrs={"metric": "RI"})}, "no name of a model"),
        ({"a\nb": xr.Dataset(attrs={"metric": "RI"})}, "no name of a model"),
        ({"a": xr.Dataset(attrs={"metric": "RI"})}, "'a' is no result of scoring"),
        ({1: xr.Dataset(attrs={"metric": "RI"}), "1": None}, "two models have the same name"),
    ],
)
def test_combine_results__says_what_it_cannot_combine(given: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        cd.combine_results(given)


def test_combine_results__of_a_panel_says_how(
    panel: xr.DataTree, singles: dict[str, xr.DataTree]
) -> None:
    with pytest.raises(SchemaError, match=r"'two' is of several models.*panel.sel\(model=name\)"):
        cd.combine_results({"one": singles[NAMES[0]], "two": panel})
