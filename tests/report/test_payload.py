"""What a report carries is what the library computed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.report.encode import Blocks, packed_margins
from tests.helpers.report_page import Page


@pytest.fixture(scope="module")
def page(panel_page: Path) -> Page:
    return Page(panel_page)


def test_explorer__carries_the_margins_of_every_model_and_m(page: Page, panel: xr.DataTree) -> None:
    explorer, croma = page.payload["explorer"], panel["CRoMa"]
    assert explorer["models"] == croma["model"].values.tolist()
    assert explorer["m"] == [1, 3]
    for i in range(3):
        for j in range(2):
            single = page.block(explorer["margins"][i][j])
            expected = croma["sample_values"].values[i, j]
            np.testing.assert_allclose(single, expected, rtol=0, atol=5e-7)
            assert np.mean(single <= 0) == float(croma["f0"][i, j])
            low = single <= np.quantile(single.astype(float), 0.1)
            assert single[low].mean() == pytest.approx(float(croma["ltm_alpha"][i, j]), abs=1e-6)


def test_explorer__carries_the_names_of_every_sample(page: Page, panel: xr.DataTree) -> None:
    croma = panel["CRoMa"]
    assert page.decoded("label") == croma["label"].values.tolist()
    assert page.decoded("confounder") == croma["confounder"].values.tolist()
    explorer = page.payload["explorer"]
    assert page.block(explorer["ids"]) == croma["sample_id"].values.tolist()
    names, codes = (page.block(explorer["groups"][part]) for part in ("names", "codes"))
    assert [names[c] for c in codes] == croma["group_id"].values.tolist()
    assert explorer["worst"] is None


def test_summary__has_values_and_bootstrap_intervals(page: Page, panel: xr.DataTree) -> None:
    drawn = cd.bootstrap(panel, n_draws=50, seed=0)
    table = page.table(page.payload["summary"]["table"])
    ranks = panel["CRoMa"]["mean_rank"].isel(m=0).values
    best_first = np.argsort(ranks, kind="stable")
    assert table["Model"] == panel["CRoMa"]["model"].values[best_first].tolist()
    assert page.payload["best"] == best_first[0]
    assert [one["model"] for one in page.payload["summary"]["readings"]] == table["Model"]
    assert "best mean rank first" in page.payload["summary"]["caption"]
    for title, metric, variable in (
        ("CRoMa value (median margin)", "CRoMa", "value"),
        ("CRoMa lower-tail mean", "CRoMa", "ltm_alpha"),
        ("scanner wins, F(0)", "CRoMa", "f0"),
        ("RI", "RI", "value"),
        ("MaRI", "MaRI", "value"),
    ):
        at: dict[str, Any] = {"m": 0} if metric == "CRoMa" else {}
        at["model"] = best_first
        whole, parts = panel[metric].isel(at), drawn[metric].isel(at)
        expected = np.stack(
            [whole[variable], parts[f"{variable}_low"], parts[f"{variable}_high"]], axis=1
        )
        np.testing.assert_allclose(table[title], expected, rtol=1e-8)
    more = page.table(page.payload["summary"]["more"])
    np.testing.assert_allclose(more["Mean rank"], ranks[best_first])
    np.testing.assert_allclose(more["RI support"], panel["RI"]["support"][best_first], rtol=1e-8)
    front = panel["CRoMa"]["pareto_front"].isel(m=0).values
    assert table["Pareto front"] == front[best_first].tolist()


def test_summary__tells_who_beats_whom(page: Page, panel: xr.DataTree) -> None:
    drawn = cd.bootstrap(panel, n_draws=50, seed=0)["CRoMa"].isel(m=0)
    shown = {one["title"]: one for one in page.payload["summary"]["pairs"]}["F(0)"]
    np.testing.assert_allclose(shown["better"], drawn["f0_better"])
    np.testing.assert_allclose(shown["difference"], drawn["f0_difference"], atol=1e-9)


def test_breakdowns__are_those_of_the_library(page: Page, panel: xr.DataTree) -> None:
    tables = {one["title"]: one for one in page.payload["breakdowns"]["tables"]}
    cells = tables["By diagnosis and scanner"]
    labels, scanners = (key["texts"] for key in cells["keys"])
    expected = cd.breakdown(panel, ("label", "confounder"))
    titles = [column["title"] for column in cells["columns"]]
    for title, variable in (("n", "n_samples"), ("Median margin", "median_value"), ("F(0)", "f0")):
        column = titles.index(title)
        for row, (a, b) in enumerate(zip(labels, scanners, strict=True)):
            cell = expected[variable].sel(label=a, confounder=b)
            for i in range(3):
                for j in range(2):
                    at = {d: p for d, p in (("model", i), ("m", j)) if d in cell.dims}
                    value = cells["values"][i][j][row][column]
                    assert value == pytest.approx(float(cell.isel(at)), rel=1e-8)


def test_breakdowns__list_the_worst_groups_of_each_model(page: Page, panel: xr.DataTree) -> None:
    worst = page.payload["breakdowns"]["tables"][-1]
    assert worst["title"] == "Worst slide by lower-tail mean"
    expected = cd.worst_groups(panel.isel(model=[1], m=1), n=25)
    key = worst["keys_by_model"][1][1][0]
    assert key["texts"] == expected["group"].values.tolist()
    titles = [column["title"] for column in worst["columns"]]
    for title, name in (("Share of samples", "share"), ("Share of the tail", "tail_share")):
        shown = [row[titles.index(title)] for row in worst["values"][1][1]]
        np.testing.assert_allclose(shown, expected[name].values.ravel(), rtol=1e-8)


def test_breakdowns__leave_out_what_all_groups_hold(panel: xr.DataTree, tmp_path: Path) -> None:
    """A column that says the same in every line says it once, above; long lists are cut."""
    croma = panel["CRoMa"].to_dataset().isel(model=[0], m=[0])
    n = croma.sizes["sample"]
    rows = np.arange(n)
    croma = croma.assign_coords(
        group_id=("sample", (rows % 10).astype(str).astype(object)),
        label=("sample", np.array([f"class {c}" for c in "abcdef"], object)[rows // 10 % 6]),
        confounder=("sample", np.where(rows % 10 < 5, rows // 10 % 5, rows % 2).astype(object)),
    )
    croma["confounder"] = croma["confounder"].astype(str).astype(object)
    made = Page(cd.report(croma, tmp_path / "same.html", n_draws=0))
    worst = made.payload["breakdowns"]["tables"][-1]
    (keys,) = worst["keys_by_model"][0]
    assert [key["title"] for key in keys] == ["slide", "scanner"]
    labels = ", ".join(f"class {c}" for c in "abcdef")
    assert worst["note"] == f"Each of them holds diagnosis {labels}."
    texts = dict(zip(*(key["texts"] for key in keys), strict=True))
    assert texts["0"] == "0, 1, 2 +2"
    assert texts["7"] == "1"


def test_curves__have_every_k_and_m(page: Page, panel: xr.DataTree) -> None:
    by_k, by_m = page.payload["curves"]
    figures = {one["title"]: one for one in [*by_k["figures"], *by_m["figures"]]}
    ri = figures["RI by k"]
    assert ri["x"] == [3, 7]
    np.testing.assert_allclose([s["y"] for s in ri["series"]], panel["RI"]["curve"], rtol=1e-8)
    assert [s["mark"] for s in ri["series"]] == panel["RI"]["k"].values.tolist()
    sweep = figures["CRoMa value by m"]
    np.testing.assert_allclose([s["y"] for s in sweep["series"]], panel["CRoMa"]["value"])


def test_about__says_what_was_computed(page: Page, panel: xr.DataTree) -> None:
    facts = dict(page.payload["about"]["facts"])
    assert "Data set" not in facts, "nobody has named it"
    assert facts["Fingerprint of the manifest"] == panel["RI"].attrs["manifest_fingerprint"]
    assert "50 bootstrap draws" in facts["Intervals"]
    models = page.table(page.payload["about"]["models"])
    prints = panel["RI"]["embedding_fingerprint"].values.tolist()
    assert models["Fingerprint of the embedding"] == prints


def test_report__of_one_embedding_has_no_comparisons(single: xr.DataTree, tmp_path: Path) -> None:
    page = Page(cd.report(single, tmp_path / "one.html", n_draws=20))
    assert page.payload["title"] == "Robustness of an embedding to scanner"
    assert page.payload["summary"]["pairs"] == []
    assert page.payload["summary"]["pareto"] == []
    assert "Pareto front" not in page.table(page.payload["summary"]["table"])
    (first, *_) = page.payload["cautions"]
    support = float(single["RI"]["support"])
    assert first["title"] == f"RI and MaRI speak for {100 * support:.1f} % of the samples only"


def test_report__of_a_paired_design_knows_subsets(paired: xr.DataTree, tmp_path: Path) -> None:
    page = Page(cd.report(paired, tmp_path / "paired.html", n_draws=20))
    explorer = page.payload["explorer"]
    assert explorer["paired"]
    assert page.decoded("subset") == paired["CRoMa"]["sample_subset"].values.tolist()
    assert page.payload["words"]["units"] == "occurrences"
    tables = {one["title"]: one for one in page.payload["breakdowns"]["tables"]}
    by_subset = tables["By subset"]
    column = [c["title"] for c in by_subset["columns"]].index("Median margin")
    np.testing.assert_allclose(
        [row[column] for row in by_subset["values"][0][0]], paired["CRoMa"]["pair_values"]
    )


def test_report__without_croma_has_no_explorer(single: xr.DataTree, tmp_path: Path) -> None:
    page = Page(cd.report(single["RI"].to_dataset(), tmp_path / "ri.html", n_draws=0))
    assert "explorer" not in page.payload
    assert "breakdowns" not in page.payload
    assert page.payload["cautions"][-1]["title"] == "No intervals"


def test_report__is_the_same_of_a_result_and_of_its_file(
    single: xr.DataTree, tmp_path: Path
) -> None:
    from croma_dask.results import save

    save(single, tmp_path / "embedding.zarr")
    direct = Page(cd.report({"embedding": single}, tmp_path / "a.html", n_draws=20))
    opened = Page(cd.report([tmp_path / "embedding.zarr"], tmp_path / "b.html", n_draws=20))
    assert direct.payload | {"made": ""} == opened.payload | {"made": ""}
    np.testing.assert_array_equal(
        direct.block(direct.payload["explorer"]["margins"][0][0]),
        opened.block(opened.payload["explorer"]["margins"][0][0]),
    )


def test_report__puts_results_of_one_cohort_together(panel: xr.DataTree, tmp_path: Path) -> None:
    parts = {name: panel.sel(model=name) for name in ("poor", "good")}
    page = Page(cd.report(parts, tmp_path / "two.html", n_draws=0))
    assert page.payload["models"] == ["poor", "good"]
    expected = panel["CRoMa"]["value"].isel(m=0).sel(model=["good", "poor"]).values
    values = page.table(page.payload["summary"]["table"])["CRoMa value (median margin)"]
    np.testing.assert_allclose([value for value, *_ in values], expected, rtol=1e-8)


def test_explorer__of_many_samples_keeps_the_worst_ids(
    panel: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By its name: the package's attribute of that name is the function.
    module = importlib.import_module("croma_dask.report.explorer")
    monkeypatch.setattr(module, "MOST_NAMES", 300)
    monkeypatch.setattr(module, "WORST", 5)
    monkeypatch.setattr(module, "MOST_MARGINS", 3 * 150 + 1)
    page = Page(cd.report(panel, tmp_path / "many.html", n_draws=0))
    explorer = page.payload["explorer"]
    assert explorer["ids"] is None
    # The main radius is all there is room for.
    assert (explorer["m"], explorer["m_left_out"], explorer["main_m"]) == ([1], [3], 0)
    margins = panel["CRoMa"]["sample_values"].values[:, 0]
    expected = sorted({int(i) for one in margins for i in np.argsort(one)[:5]})
    assert page.block(explorer["worst"]["rows"]).tolist() == expected
    ids = panel["CRoMa"]["sample_id"].values[expected].tolist()
    assert page.block(explorer["worst"]["ids"]) == ids
    # Every row was scored: its place says which.
    assert explorer["rows"] is None


def test_explorer__knows_the_rows_of_the_manifest(
    paired: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    croma = paired["CRoMa"].to_dataset()
    out = (croma["sample_subset"] == "pair 1").values
    croma = croma.assign(undefined_type=croma["undefined_type"].where(~out, -1))
    path = tmp_path / "rows.html"
    assert Page(cd.report(croma, path, n_draws=0)).payload["explorer"]["rows"] is None
    monkeypatch.setattr(importlib.import_module("croma_dask.report.explorer"), "MOST_NAMES", 100)
    page = Page(cd.report(croma, path, n_draws=0, overwrite=True))
    np.testing.assert_array_equal(
        page.block(page.payload["explorer"]["rows"]), np.flatnonzero(~out)
    )


def test_explorer__carries_every_digit_of_alpha(single: xr.DataTree, tmp_path: Path) -> None:
    croma = single["CRoMa"].to_dataset()
    croma.attrs["alpha"] = 1 / 3
    page = Page(cd.report(croma, tmp_path / "a.html", n_draws=0))
    assert float(page.payload["explorer"]["alpha"]) == 1 / 3


@pytest.mark.parametrize(
    ("alpha", "title"), [(0.0, "Least margin"), (0.25, "25 % quantile"), (1.0, "Largest margin")]
)
def test_breakdowns__call_the_quantile_what_it_is(
    single: xr.DataTree, tmp_path: Path, alpha: float, title: str
) -> None:
    croma = single["CRoMa"].to_dataset()
    croma.attrs["alpha"] = alpha
    page = Page(cd.report(croma, tmp_path / "a.html", n_draws=0))
    table = page.payload["breakdowns"]["tables"][0]
    assert title in [column["title"] for column in table["columns"]]


def test_report__reads_the_margins_of_each_model_once(
    panel: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask.array as da

    reads: list[int] = []
    croma = panel["CRoMa"].to_dataset()
    whole = croma["sample_values"].values

    def read(block_info: dict) -> np.ndarray:
        place = tuple(slice(*ends) for ends in block_info[None]["array-location"])
        reads.append(place[0].start)
        return whole[place]

    lazy = da.map_blocks(
        read, chunks=((1,) * 3, (1,) * 2, (whole.shape[2],)), dtype=float, meta=np.empty((0, 0, 0))
    )
    croma["sample_values"] = (croma["sample_values"].dims, lazy)
    once = [0, 0, 1, 1, 2, 2]
    # The bootstrap has them from memory.
    cd.report(croma, tmp_path / "few.html", n_draws=10)
    assert sorted(reads) == once
    reads.clear()
    monkeypatch.setattr(importlib.import_module("croma_dask.report.inputs"), "_FEW", 100)
    cd.report(croma, tmp_path / "many.html", n_draws=0)
    assert reads == once, "model by model"


def numbers_of(values: np.ndarray, alpha: float) -> list[float]:
    """What the page says of margins, as the library does; values as they are packed."""
    values = values[~np.isnan(values)].astype(float)
    low = values[values <= np.quantile(values, alpha)]
    return [low.size, low.mean(), np.mean(values <= 0), np.median(values)]


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        # float32 would make one of the 95, and the tail would hold all of them.
        (np.r_[np.full(5, -1.0), 0.3 + 1e-10 * np.arange(95)], "float64"),
        (np.r_[np.full(5, -1.0), 0.3 + 1e-9 * np.arange(6), np.full(40, 0.5)], "float32"),
        (np.round(RNG.normal(0, 0.3, 500), 2).clip(-1, 1), "float32"),
        (1 - 1e-9 * np.arange(5.0), "float32"),
        (np.r_[-1 + 1e-9 * np.arange(5.0), np.nan], "float32"),
        (np.array([0.1, np.nextafter(0.1, 1), 0.5]), "float64"),
        (np.array([1e-60, -1e-60, 0.0, -0.0, 5e-324, 0.1, -0.1, np.nan, 1.0]), "float64"),
        (np.array([2e-13, 1e-13, 0.0, -0.0, -1e-13, -2e-13, 0.2]), "float32"),
        (RNG.normal(0.2, 0.25, 200_000).clip(-1, 1), "float32"),
        (np.full(3, np.nan), "float32"),
        (np.zeros(0), "float32"),
    ],
)
def test_packed_margins__tell_what_the_library_does(values: np.ndarray, dtype: str) -> None:
    packed = packed_margins(values)
    assert packed.dtype == dtype
    np.testing.assert_allclose(packed, values, rtol=0, atol=5e-7)
    assert np.abs(packed[~np.isnan(values)]).max(initial=0) <= 1
    np.testing.assert_array_equal(packed <= 0, values <= 0)
    there = values[~np.isnan(values)]
    same = np.unique(there, return_inverse=True)[1]
    np.testing.assert_array_equal(
        np.unique(packed[~np.isnan(values)], return_inverse=True)[1], same
    )
    for alpha in (0, 0.01, 0.1, 0.37, 0.5, 1) if there.size else ():
        found, expected = (numbers_of(one, alpha) for one in (packed, values))
        assert found[0] == expected[0]
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_blocks__take_the_short_type_where_it_does() -> None:
    blocks = Blocks()
    assert blocks.codes(np.arange(5), 1 << 16)["dtype"] == "uint16"
    assert blocks.codes(np.arange(5), (1 << 16) + 1)["dtype"] == "uint32"


def test_breakdowns__of_too_many_cells_are_left_out(
    panel: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three labels and two scanners, of three models at two m.
    module = importlib.import_module("croma_dask.report.tables")
    monkeypatch.setattr(module, "MOST_ROWS", 3 * 6)
    page = Page(cd.report(panel, tmp_path / "cells.html", n_draws=0))
    assert page.payload["breakdowns"]["left_out"] == ["By diagnosis and scanner"]
    titles = [one["title"] for one in page.payload["breakdowns"]["tables"]]
    assert titles == ["By diagnosis", "By scanner", "Worst slide by lower-tail mean"]
