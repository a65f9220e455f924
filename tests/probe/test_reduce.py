"""Reductions: the reference's numbers, values argued by hand, and PathoROB's published ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from croma_dask.errors import SchemaError
from croma_dask.probe.reduce import Aggregate, aggregate_drops, apd, nipd

WORKED = [[0.9, 0.9], [0.7, 0.7], [0.5, 0.5]]

matrices = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 8), st.integers(1, 20)),
    elements=st.floats(0.3, 1.0),
)


def labelled(matrix: Any, v: Any, n_classes: int | None = 2) -> xr.DataArray:
    attrs = {} if n_classes is None else {"n_classes": n_classes}
    coords = {} if v is None else {"cramers_v": ("split", v)}
    return xr.DataArray(matrix, dims=("split", "iteration"), coords=coords, attrs=attrs)


@given(matrix=matrices, chance=st.floats(0.0, 0.25))
def test_reductions__equal_the_reference(matrix: np.ndarray, chance: float) -> None:
    downstream = pytest.importorskip("croma.downstream")
    v = np.linspace(0.0, 1.0, matrix.shape[0])
    assert apd(matrix) == downstream.apd(matrix)
    assert nipd(matrix, v, chance) == downstream.nipd(matrix, v, chance)


def test_reductions__of_worked_values() -> None:
    assert nipd(WORKED, [0, 0.5, 1], 0.5) == -0.5
    # Ratios 7/9 and 5/9, so a mean of 2/3.
    assert apd(WORKED) == pytest.approx(-1 / 3, abs=1e-15)
    # The mean of ratios, not the ratio of means: (0.5 + 2) / 2 - 1.
    assert apd([[1.0, 0.25], [0.5, 0.5]]) == 0.25
    # g is 0, -1, -1 at 0, 1/4, 1: a triangle of 1/8 and a block of 3/4.
    assert nipd([[1.0], [0.5], [0.5]], [0, 0.25, 1], 0.5) == -0.875
    assert type(apd(WORKED)) is type(nipd(WORKED, [0, 0.5, 1], 0.5)) is float


@given(matrix=matrices)
def test_reductions__of_labelled_results_are_the_same(matrix: np.ndarray) -> None:
    v = np.linspace(0.0, 1.0, matrix.shape[0])
    array = labelled(matrix, v, n_classes=4)
    for result in (
        array,
        array.transpose("iteration", "split"),
        xr.Dataset({"other": array * 0, "in_domain": array}),
    ):
        assert apd(result) == apd(matrix)
        assert nipd(result) == nipd(matrix, v, 0.25)
        assert nipd(result, v**2, 0.1) == nipd(matrix, v**2, 0.1), "what is given wins"


ENDS = [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("accuracies", "message"),
    [
        ([0.9, 0.8], r"expected \(splits, iterations\) .* found shape \(2,\)"),
        ([[0.9, 0.8]], r"found shape \(1, 2\)"),
        (np.zeros((3, 0)), r"found shape \(3, 0\)"),
        ([[0.9], [np.nan], [np.inf]], "2 of 3 accuracies are not finite, the first in split 1"),
        ([["a"], ["b"], ["c"]], "not a matrix of numbers"),
        ([[0.9], [0.8, 0.7]], "not a matrix of numbers"),
        (xr.DataArray(np.ones((3, 1)), dims=("split", "fold")), "found 'split', 'fold'"),
        (xr.Dataset({"ood": ("split", ENDS)}), "no variable 'in_domain'; it has 'ood'"),
    ],
)
def test_reductions__say_what_a_matrix_is(accuracies: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        apd(accuracies)
    with pytest.raises(SchemaError, match=message):
        nipd(accuracies, ENDS, 0.5)
    with pytest.raises(SchemaError, match=message):
        aggregate_drops([WORKED, accuracies])


@pytest.mark.parametrize(
    ("v", "chance", "message"),
    [
        ([0.0, 1.0], 0.5, r"cramers_v must be one value a split \(3\), found shape \(2,\)"),
        ([0.0, 0.5, 0.5], 0.5, r"strictly increasing from 0 to 1, found \[0\. , 0\.5, 0\.5\]"),
        ([0.1, 0.5, 1.0], 0.5, "strictly increasing from 0 to 1"),
        ([0.0, 0.5, 0.9], 0.5, "strictly increasing from 0 to 1"),
        ([0.0, np.nan, 1.0], 0.5, "must be finite"),
        (["a", "b", "c"], 0.5, "cramers_v: not numbers"),
        (ENDS, 1.0, r"chance must be in \[0, 1\), found 1\.0"),
        (ENDS, -0.1, r"chance must be in \[0, 1\)"),
        (ENDS, np.nan, r"chance must be in \[0, 1\), found nan"),
        (ENDS, "x", "chance must be a number"),
        (ENDS, 0.9, r"mean accuracy of 0\.9, not above chance \(0\.9\)"),
        (None, 0.5, "accuracies bring no cramers_v; pass cramers_v"),
        (ENDS, None, "accuracies bring no number of classes; pass chance"),
    ],
)
def test_nipd__says_what_is_wrong(v: Any, chance: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        nipd(WORKED, v, chance)
    with pytest.raises(SchemaError, match=message):
        nipd(labelled(WORKED, None, None), v, chance)


def test_apd__needs_a_baseline() -> None:
    with pytest.raises(SchemaError, match=r"accuracy of 0 in replicate 1; .* above 0"):
        apd([[0.5, 0.0], [0.5, 0.5]])


# ---- over cohorts -----------------------------------------------------------------------------


def test_aggregate_drops__of_a_worked_value() -> None:
    # Drops -0.2, -0.4 and 0, -0.1, 0.1: mean -0.12, and +-0.1, 0, +-0.1 around it. Their standard
    # deviation is sqrt(0.04 / 4) = 0.1, and t(0.975, 5 degrees of freedom) is 2.5706.
    first, second = [[1.0, 0.5], [0.8, 0.3]], [[1.0, 1.0, 1.0], [1.0, 0.9, 1.1]]
    found = aggregate_drops({"first": first, "second": labelled(second, None)})
    assert isinstance(found, Aggregate)
    assert found.mean == pytest.approx(-0.12, abs=1e-15)
    assert found.half_width == pytest.approx(2.570581836 * 0.1 / np.sqrt(5), abs=1e-9)
    assert found.n_scores == 5
    assert aggregate_drops([first, second]) == found
    assert aggregate_drops([second]).mean == pytest.approx(apd(second), abs=1e-15)


@pytest.mark.parametrize("model", ["uni2h_clsmean", "phikonv2_clsmean"])
@pytest.mark.parametrize(("matrix", "name"), [("ID", "id"), ("OOD", "ood")])
def test_reductions__equal_what_pathorob_published(
    model: str, matrix: str, name: str, shared_data: Path
) -> None:
    folder = shared_data / "pathorob_published" / "apd" / model
    read = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    whole = read.pop("aggregated_summary")
    accuracies = {}
    for cohort in whole["aggregation_datasets"]:
        accuracies[cohort] = read[f"{cohort}_raw"][f"{matrix}_test_accuracies"]
        summary = read[f"{cohort}_summary"]
        assert apd(accuracies[cohort]) == pytest.approx(summary[f"apd_{name}"], abs=1e-15)
    found = aggregate_drops(accuracies)
    assert found.mean == pytest.approx(whole[f"apd_{name}"], abs=1e-15)
    assert found.half_width == pytest.approx(whole[f"ci_{name}"], abs=1e-15)
    assert found.n_scores == 60


@pytest.mark.parametrize(
    ("accuracies", "message"),
    [
        ({}, "one entry a cohort, found dict with 0 entries"),
        (xr.Dataset({"in_domain": labelled(WORKED, ENDS)}), "found Dataset"),
        (labelled(WORKED, ENDS), "found DataArray"),
        ([[[0.5], [0.4]]], "one drop has no interval"),
        ({"tcga": [[0.0], [0.4]]}, "tcga: the balanced split has an accuracy of 0"),
        (WORKED, r"cohort 0: expected \(splits, iterations\)"),
    ],
)
def test_aggregate_drops__says_what_is_wrong(accuracies: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        aggregate_drops(accuracies)
