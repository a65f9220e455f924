"""Probe sweeps and embedding benchmarks in a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from tests.helpers.report_page import Page


@pytest.fixture(scope="module")
def sweep() -> xr.Dataset:
    """As label_sweep labels one; 4 splits, 6 replicates, two test sets."""
    rng = np.random.default_rng(1)
    accuracy = 0.9 - 0.1 * np.arange(4)[:, None] + 0.01 * rng.normal(size=(4, 6))
    about = {"n_classes": 2}
    dims = ("split", "iteration")
    return xr.Dataset(
        {"in_domain": (dims, accuracy, about), "other <b>": (dims, accuracy - 0.1, about)},
        {
            "split": np.arange(4),
            "iteration": np.arange(6),
            "cramers_v": ("split", [0.0, 0.3, 0.6, 1.0]),
            "training_rows": ("split", [100, 100, 100, 100]),
            "converged": (dims, np.ones((4, 6), bool)),
        },
        {"metric": "probe_sweep"},
    )


@pytest.fixture(scope="module")
def benchmark() -> xr.Dataset:
    dims = ("dataset", "method", "metric")
    status = np.full((2, 2, 3), "ok", object)
    value = np.arange(12.0).reshape(2, 2, 3) / 12
    status[0, 1, 2], value[0, 1, 2] = "undefined", np.nan
    status[1, 1], value[1, 1] = "not computed", np.nan
    return xr.Dataset(
        {"value": (dims, value), "status": (dims, status)},
        {
            "dataset": np.array(["lung", "gut"], object),
            "method": np.array(["PCA", "scVI"], object),
            "metric": np.array(["NMI", "ARI", "kBET"], object),
            "long_name": ("metric", np.array(["a", "b", "c"], object)),
        },
        {"metric": "embedding_benchmark"},
    )


def test_sweep__alone_is_a_report(sweep: xr.Dataset, tmp_path: Path) -> None:
    page = Page(cd.report({"camelyon": sweep}, tmp_path / "sweep.html"))
    assert "summary" not in page.payload
    (section,) = page.payload["others"]
    assert section["title"] == "Probe sweep: camelyon"
    (figure,) = section["figures"]
    assert figure["chance"] == 0.5
    assert [one["name"] for one in figure["series"]] == ["in_domain", "other <b>"]
    assert figure["series"][0]["x"] == [0.0, 0.3, 0.6, 1.0]
    mean = sweep["in_domain"].mean("iteration").values
    np.testing.assert_allclose(figure["series"][0]["y"], mean, rtol=1e-8)
    costs = page.table(section["tables"][1])
    assert costs["in_domain"][0] == pytest.approx(cd.apd(sweep["in_domain"]), rel=1e-8)
    assert costs["other <b>"][1] == pytest.approx(cd.nipd(sweep["other <b>"]), rel=1e-8)


def test_benchmark__is_a_table_of_metrics(
    benchmark: xr.Dataset, single: xr.DataTree, tmp_path: Path
) -> None:
    page = Page(cd.report([single, benchmark], tmp_path / "both.html", n_draws=0))
    assert "summary" in page.payload
    (section,) = page.payload["others"]
    table = page.table(section["tables"][0])
    assert list(zip(table["Data set"], table["Method"], strict=True)) == [
        ("lung", "PCA"), ("lung", "scVI"), ("gut", "PCA"),
    ]  # fmt: skip
    assert table["kBET"] == [pytest.approx(2 / 12), None, pytest.approx(8 / 12)]
    assert "kBET of scVI in lung: undefined" in section["text"]
