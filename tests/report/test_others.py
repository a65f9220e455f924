"""Probe sweeps and embedding benchmarks in a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from tests.helpers.report_page import Page


def test_sweep__alone_is_a_report(sweep: xr.Dataset, tmp_path: Path) -> None:
    page = Page(cd.report({"camelyon": sweep}, tmp_path / "sweep.html"))
    assert "summary" not in page.payload
    assert page.payload["title"] == "Probe sweep"
    (section,) = page.payload["others"]
    assert section["title"] == "Probe sweep: camelyon"
    assert ["Seed", "1000"] in section["facts"]
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
