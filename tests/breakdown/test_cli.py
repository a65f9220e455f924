"""`croma-dask breakdown` and `croma-dask explain`: tables, files, messages and exit codes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner, Result

import croma_dask as cd
from croma_dask.breakdown.text import breakdown_frame, breakdown_text, explanation_text
from croma_dask.cli import CromaGroup
from croma_dask.cli_breakdown import breakdown, explain
from croma_dask.results import save
from croma_dask.uncertainty.table import bootstrap_text
from tests.helpers.cohorts import features, manifest

MAIN = CromaGroup("croma-dask", commands=[breakdown, explain])


@pytest.fixture
def run() -> Callable[..., Result]:
    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(MAIN, [str(a) for a in arguments], catch_exceptions=False)

    return invoke


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A store, its result, that of two models, and kept neighbours."""
    rng = np.random.default_rng(2)
    at = np.arange(90)
    x = features(rng, at % 3, at // 3 % 2, 6)
    frame = manifest(np.array(["benign", "tumour", "stroma"])[at % 3], at // 3 % 2, at // 4)
    folder = tmp_path_factory.mktemp("cli")
    store = cd.write_cohort(folder / "cohort.zarr", x, frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how: dict[str, Any] = {"confounder": "center", "k_candidates": [5], "m": [1, 2]}
        result = cd.score(store, keep_neighbors=folder / "kept", **how)
        panel = cd.combine_results(
            {"a": result, "b/2": cd.score(x[:, :3], frame, **how)}
        )  # fmt: skip
    save(result, folder / "result.zarr")
    save(panel, folder / "panel.nc")
    return {
        "store": store, "result": folder / "result.zarr", "panel": folder / "panel.nc",
        "kept": folder / "kept", "tree": result, "models": panel,
    }  # fmt: skip


def test_breakdown__prints_a_table_a_radius(places: Any, run: Callable[..., Result]) -> None:
    done = run("breakdown", places["result"], "--by", "label,center")
    assert done.exit_code == 0
    table = cd.breakdown(places["tree"], ("label", "confounder"))
    assert done.output.strip() == breakdown_text(table)
    lines = done.output.splitlines()
    assert lines[0] == "CRoMa by label x center, m = 1"
    assert lines[1].split() == [
        "label", "center", "samples", "defined", "median", "q(alpha)", "LTM", "F(0)",
    ]  # fmt: skip
    assert lines[2].split()[:4] == ["benign", "0", "15", "15"]
    assert float(lines[2].split()[4]) == pytest.approx(float(table.median_value[0, 0, 0]), abs=1e-4)
    assert "CRoMa by label x center, m = 2" in lines


def test_breakdown__of_a_panel_and_an_index(places: Any, run: Callable[..., Result]) -> None:
    done = run("breakdown", places["panel"], "--metric", "RI", "--by", "group")
    titles = [line for line in done.output.splitlines() if line.startswith("RI by")]
    assert titles == [f"RI by group_id, model = {name}, k = 5" for name in ("a", "b/2")]
    assert done.output.splitlines()[1].split()[:4] == ["group_id", "samples", "defined", "value"]


def test_breakdown__worst_groups(places: Any, run: Callable[..., Result], tmp_path: Path) -> None:
    out = tmp_path / "worst.csv"
    done = run("breakdown", places["panel"], "--worst", 3, "--m", 2, "--model", "a", "--out", out)
    assert done.exit_code == 0
    worst = cd.worst_groups(places["models"], 3, model="a", m=2)
    assert "; worst LTM at m = 2 of a first" in done.output.splitlines()[0]
    assert done.output.endswith(f"written: {out}\n")
    frame = pd.read_csv(out, dtype={"group": str})
    assert len(frame) == 3 * 2 * 2
    mine = frame[(frame["model"] == "a") & (frame["m"] == 2)]
    assert mine["group"].tolist() == worst["group"].values.tolist()
    assert mine["label"].tolist() == worst["label"].values.tolist()
    np.testing.assert_allclose(mine["ltm_alpha"], worst["ltm_alpha"].sel(model="a", m=2))
    assert frame.columns[:5].tolist() == ["model", "m", "group", "label", "confounder"]


@pytest.mark.parametrize("name", ["cells.csv", "cells.zarr", "cells.nc"])
def test_breakdown__writes_whole_or_not_at_all(
    name: str, places: Any, run: Callable[..., Result], tmp_path: Path
) -> None:
    out = tmp_path / name
    arguments = ("breakdown", places["result"], "--by", "label", "--by", "confounder", "-q")
    done = run(*arguments, "--out", out)
    assert (done.exit_code, done.output) == (0, "")
    table = cd.breakdown(places["tree"], ("label", "confounder"))
    if name.endswith(".csv"):
        found = pd.read_csv(out, dtype={"confounder": str}, float_precision="round_trip")
        expected = breakdown_frame(table)
        pd.testing.assert_frame_equal(found, expected, check_dtype=False, check_exact=True)
        assert len(expected) == 2 * 3 * 2
    else:
        with cd.open_result(out) as opened:
            xr.testing.assert_equal(opened.load(), table)
    again = run(*arguments, "--out", out)
    assert again.exit_code == 2
    assert "exists already" in again.output
    assert run(*arguments, "--out", out, "--overwrite").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_tables__are_the_same_of_the_commands_and_of_save(
    suffix: str, places: Any, run: Callable[..., Result], tmp_path: Path
) -> None:
    for name, made, arguments in (
        ("cells", cd.breakdown(places["models"], "label"), ("breakdown", places["panel"])),
        ("worst", cd.worst_groups(places["tree"], 2, m=1),
         ("breakdown", places["result"], "--worst", 2, "--m", 1)),
        ("why", cd.explain(places["store"], "s0007", confounder="center"),
         ("explain", places["store"], "s0007", "--confounder", "center")),
    ):  # fmt: skip
        saved, written = tmp_path / f"{name}{suffix}", tmp_path / f"{name}-command{suffix}"
        save(made, saved)
        assert run(*arguments, "-q", "--out", written).exit_code == 0
        assert written.read_bytes() == saved.read_bytes()
        frame = cd.results.to_frame(made)
        if suffix == ".csv":
            found = pd.read_csv(saved, dtype=str, keep_default_na=False)
        else:
            content = json.loads(saved.read_text(encoding="utf-8"))
            found = pd.DataFrame(content["neighbors" if name == "why" else "cells"])
        assert found.columns.tolist() == frame.columns.tolist()
        assert len(found) == len(frame)


def test_summary__of_what_is_made_of_a_result_is_what_the_commands_print(places: Any) -> None:
    result = places["tree"]
    for made, text in (
        (cd.breakdown(result, ("label", "confounder")), breakdown_text),
        (cd.worst_groups(places["models"], 2, m=1), breakdown_text),
        (cd.explain(places["store"], "s0007", confounder="center"), explanation_text),
        (cd.bootstrap(places["models"], n_draws=5), bootstrap_text),
    ):
        assert cd.results.summary(made) == text(made)
    with pytest.raises(cd.SchemaError, match="found a cohort: score it first"):
        cd.results.summary(cd.open_cohort(places["store"]))


def test_breakdown__long_tables_are_cut_and_counted() -> None:
    n = 60
    result = xr.Dataset(
        {
            "sample_values": ("sample", np.linspace(-1, 1, n)),
            "undefined_type": ("sample", np.zeros(n, np.int8)),
        },
        {"group_id": ("sample", np.array([f"g{i:02d}" for i in range(n)], object)), "m": 5},
        {"metric": "CRoMa", "alpha": 0.1},
    )
    text = breakdown_text(cd.breakdown(result, "group"), most=4).splitlines()
    assert len(text) == 2 + 4 + 1
    assert text[-1] == "... and 56 more (--out writes all)"


def test_explain__prints_who_it_is_and_its_neighbours(
    places: Any, run: Callable[..., Result]
) -> None:
    done = run("explain", places["store"], "s0003", "--neighbors", places["kept"], "--tau", 0.2)
    assert done.exit_code == 0, done.output
    told = cd.explain(places["store"], "s0003", neighbors=places["kept"], tau=0.2)
    assert done.output.strip() == explanation_text(told)
    lines = done.output.splitlines()
    assert lines[0] == "sample s0003: label benign, center 1, group 0"
    margin = float(places["tree"]["CRoMa"]["sample_values"].values[1, 3])
    assert f"margin {margin:.4f}" in lines[2]
    assert lines[5].split() == [
        "type", "sample", "label", "center", "group_id", "rank", "of", "type", "distance",
    ]  # fmt: skip
    assert len(lines) == 6 + told.sizes["neighbor"]
    assert lines[6].split()[:2] == [told["kind"].values[0], told["neighbor_id"].values[0]]
    without = run("explain", places["store"], "s0003", "--confounder", "center", "--k", 5, "--m", 2)
    assert [line.split()[1] for line in without.output.splitlines()[6:]] == [
        line.split()[1] for line in lines[6:]
    ]
    assert "(give --tau)" in without.output


def test_explain__writes_a_row_a_neighbour(
    places: Any, run: Callable[..., Result], tmp_path: Path
) -> None:
    out, labelled = tmp_path / "why.csv", tmp_path / "why.nc"
    arguments = ("explain", places["store"], "s0007", "--confounder", "center", "-q", "--out")
    assert run(*arguments, out).exit_code == 0
    told = cd.explain(places["store"], "s0007", confounder="center")
    frame = pd.read_csv(out)
    assert frame["neighbor_id"].tolist() == told["neighbor_id"].values.tolist()
    np.testing.assert_allclose(frame["distance"], told["distance"])
    assert run(*arguments, labelled).exit_code == 0
    with cd.open_result(labelled) as opened:
        xr.testing.assert_equal(opened.load(), told)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("breakdown", "nowhere.zarr"), 2, "there is no result at 'nowhere.zarr'"),
        (("breakdown", "{store}"), 2, "a cohort store: score it first"),
        (("breakdown", "{result}", "--by", "scanner"), 2, "cannot be broken down by 'scanner'"),
        (("breakdown", "{result}", "--metric", "X"), 2, "metric 'X' is not known"),
        (("breakdown", "{result}", "--worst", "2", "--min-defined", "99"), 4, "--min-defined"),
        (("breakdown", "{result}", "--order", "f0"), 2, "--order is an option of --worst N"),
        (("breakdown", "{result}", "--min-defined", "1"), 2, "--min-defined is an option of"),
        (("breakdown", "{result}", "--model", "a"), 2, "--model is an option of --worst N"),
        (("breakdown", "{result}", "--m", "2"), 2, "--m is an option of --worst N"),
        (("breakdown", "{result}", "--worst", "2", "--by", "label"), 2, "--by and --worst are"),
        (("breakdown", "{result}", "--out", "x.txt"), 2, "ends in '.txt'"),
        (("explain", "{store}", "s00003", "--confounder", "center"), 2, "did you mean 's0003'"),
        (("explain", "{store}", "s0003"), 2, "--confounder"),
        (("explain", "{store}", "s0003", "--neighbors", "{store}"), 2, "no neighbours"),
    ],
)
def test_commands__say_what_is_wrong_in_one_line(
    arguments: tuple[str, ...], code: int, message: str, places: Any, run: Callable[..., Result]
) -> None:
    done = run(*(a.format(**places) for a in arguments))
    assert done.exit_code == code
    assert message in done.output
    assert "Traceback" not in done.output
