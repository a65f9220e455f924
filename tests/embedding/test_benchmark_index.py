"""The benchmark through an approximate index: what is approximate is measured, and said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.embedding.outcome import METRIC_NAMES
from tests.helpers.benchmarks import about, cells, frame, notes, score, statuses, values
from tests.helpers.compare import assert_same_bits
from tests.helpers.embeddings import Embedding
from tests.helpers.marks import first

EXACT = ("ASW", "BRAS", "CiLISI")
"""Metrics that no index touches."""

FEW = ["ASW", "cLISI", "Acc@kNN", "GC", "BRAS", "iLISI", "CiLISI"]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Any:
    folder = tmp_path / "scratch"
    with cd.set_options(scratch=str(folder)):
        yield folder
    assert not folder.exists() or list(folder.iterdir()) == [], "scratch is left behind"


@pytest.fixture(scope="module")
def embedding() -> Embedding:
    made = cells(5, 1_500)
    return Embedding(made.x.astype(np.float32), made.obs)


@pytest.fixture(scope="module")
def exact(embedding: Embedding) -> xr.Dataset:
    return score(embedding, metrics=FEW)


@pytest.fixture(scope="module")
def approximate(embedding: Embedding) -> xr.Dataset:
    return score(embedding, metrics=FEW, index="ivf", probes=2, calibration=300)


def check(approximate: xr.Dataset, exact: xr.Dataset, near: float) -> None:
    """Values are near the exact ones, and the errors that were told are of what was measured."""
    assert set(statuses(approximate).values()) == {"ok"}
    said = about(approximate)
    assert said["index"] == "ivf"
    assert 0.5 < said["recall_low"] <= said["recall"] <= said["recall_high"] <= 1.0
    recall = (
        f"index=ivf;recall={said['recall']:.4f};recall_low={said['recall_low']:.4f};"
        f"recall_high={said['recall_high']:.4f}"
    )
    for name, value in values(approximate).items():
        if name in EXACT:
            assert value == values(exact)[name]
            assert notes(approximate)[name] == notes(exact)[name]
        else:
            assert value == pytest.approx(values(exact)[name], abs=near), name
            assert notes(approximate)[name].endswith(f";{recall}")
    for variable in ("silhouette", "bras", "cilisi"):
        np.testing.assert_array_equal(approximate[variable].values, exact[variable].values)
    for name in ("cLISI", "iLISI", "Acc@kNN"):
        low, error, high = (said[f"{name}_error{end}"] for end in ("_low", "", "_high"))
        assert low <= error <= high
        assert abs(error) < near
        assert high - low < 4 * near
    assert not {"ASW_error", "CiLISI_error", "BRAS_error"} & set(said)


def test_index__values_are_near(approximate: xr.Dataset, exact: xr.Dataset) -> None:
    check(approximate, exact, 0.05)
    assert about(approximate)["recall"] < 0.999, "it is approximate"
    assert about(approximate)["calibration_rows"] == 300
    assert approximate.attrs["index"] == "ivf"
    assert about(exact)["index"] == exact.attrs["index"] == "exact"


def test_index__errors_are_of_the_sample(
    approximate: xr.Dataset, exact: xr.Dataset, embedding: Embedding
) -> None:
    """Rows of the sample have their exact lists afterwards; the others show what it had found."""
    same = approximate["clisi"].values == exact["clisi"].values
    assert 300 <= same.sum() < 1_500


def test_index__all_probed_is_exact(embedding: Embedding, exact: xr.Dataset) -> None:
    found = score(embedding, metrics=FEW, index="ivf", probes=10**6)
    assert about(found)["recall"] == 1.0
    for variable in ("value", "n_cells"):
        np.testing.assert_array_equal(found[variable].values, exact[variable].values)
    for name in ("cLISI", "iLISI", "Acc@kNN"):
        assert about(found)[f"{name}_error"] == 0.0


def test_index__threads_leave_no_trace(embedding: Embedding, approximate: xr.Dataset) -> None:
    found = score(embedding, metrics=FEW, index="ivf", probes=2, calibration=300, threads=3)
    assert_same_bits(found, approximate)


def test_index__auto_takes_the_exact_search_of_few_rows(
    embedding: Embedding, exact: xr.Dataset
) -> None:
    found = score(embedding, metrics=FEW, index="auto")
    assert about(found)["index"] == "exact"
    assert found.attrs["index"] == "auto"
    for variable in ("value", "note", "clisi", "cilisi"):
        np.testing.assert_array_equal(found[variable].values, exact[variable].values)


@pytest.mark.parametrize("metrics", [["CiLISI"], ["ASW", "BRAS"]])
def test_index__nothing_that_an_index_serves(
    embedding: Embedding, exact: xr.Dataset, metrics: list[str]
) -> None:
    found = score(embedding, metrics=metrics, index="ivf")
    for name in metrics:
        assert values(found)[name] == values(exact)[name]
    assert "recall" not in about(found)


@pytest.mark.parametrize(
    ("column", "more", "said"),
    [
        ("cell_type", {}, "1 of 1500 are left out of the metrics of labels .a label or batch is"),
        ("cell_type", {"metrics": ["iLISI"]}, "left out of the metrics of batches"),
        ("batch_id", {}, "1 of 1500 are left out of the metrics of batches"),
        ("batch_id", {"missing_batches": "all_metrics"}, "left out of the metrics of labels"),
        (None, {"batch_max_cells": 400}, "1100 of 1500 .*they are no part of the sample"),
    ],
)
def test_index__refuses_rows_that_are_left_out(
    embedding: Embedding, monkeypatch: pytest.MonkeyPatch, column: str | None,
    more: dict[str, Any], said: str,
) -> None:  # fmt: skip
    """At once, and not when the metrics of labels are done."""

    def run(*args: Any, **more: Any) -> Any:
        raise AssertionError("rows were looked at")

    monkeypatch.setattr("croma_dask.embedding.evaluate.open_embedding", run)
    obs = embedding.obs.copy()
    if column is not None:
        obs.loc[7, column] = None
    with pytest.warns(cd.InputWarning) if column else pytest.MonkeyPatch.context():
        with pytest.raises(cd.SchemaError, match=f"index='ivf' is of all rows, .*{said}"):
            score(embedding.x, obs, index="ivf", **more)


def test_index__rows_that_are_left_out_of_what_it_does_not_serve(embedding: Embedding) -> None:
    """No list of the batches is of any label here; and auto searches exactly what it must."""
    obs = embedding.obs.copy()
    obs.loc[7, "batch_id"] = None
    with pytest.warns(cd.InputWarning):
        served = score(embedding.x, obs, index="ivf", metrics=["GC", "BRAS", "CiLISI"])
    with pytest.warns(cd.InputWarning):
        auto = score(embedding.x, obs, index="auto", metrics=["GC", "BRAS", "CiLISI"])
    with pytest.warns(cd.InputWarning):
        exact = score(embedding.x, obs, metrics=["GC", "BRAS", "CiLISI"])
    np.testing.assert_array_equal(auto["value"].values, exact["value"].values)
    np.testing.assert_array_equal(served["value"].values[..., 1:], exact["value"].values[..., 1:])
    assert "recall=" in notes(served)["GC"]


@pytest.mark.parametrize("n", first(2, [1, 12, 2, 3, 100]))
def test_index__few_rows(n: int) -> None:
    made = cells(5, n)
    exact, found = score(made), score(made, index="ivf")
    np.testing.assert_array_equal(found["value"].values, exact["value"].values)
    np.testing.assert_array_equal(found["status"].values, exact["status"].values)


def test_index__rows_that_are_alike() -> None:
    """Of equal distances the first row counts, in an index as elsewhere."""
    made = cells(6, 400)
    x = np.repeat(made.x[:30], 14, axis=0)[:400].astype(np.float32)
    found = score(x, made.obs, metrics=FEW, index="ivf", probes=10**6)
    exact = score(x, made.obs, metrics=FEW)
    np.testing.assert_array_equal(found["value"].values, exact["value"].values)


def test_index__low_recall_is_warned_of() -> None:
    """Rows without structure, of which few clusters know little."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3_000, 30)).astype(np.float32)
    obs = frame(rng.choice(["a", "b"], 3_000), rng.choice(["u", "v"], 3_000))
    with pytest.warns(cd.RecallWarning, match=r"has found 0\.\d+ of the neighbours"):
        found = score(x, obs, metrics=["GC"], index="ivf", probes=1)
    assert about(found)["recall"] < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("index", ["ivf", "pynndescent"])
def test_index__all_metrics_of_6000_rows(index: str) -> None:
    made = cells(7, 6_000, n_features=12)
    made = Embedding(made.x.astype(np.float32), made.obs)
    exact, found = score(made), score(made, index=index)
    assert tuple(found["metric"].values) == METRIC_NAMES
    said = json.loads(found["about"].item())
    assert said["recall"] > 0.97
    for name, value in values(found).items():
        if name in EXACT:
            assert value == values(exact)[name]
        else:
            assert value == pytest.approx(values(exact)[name], abs=0.02), name
            assert f"index={index};recall=" in notes(found)[name]
