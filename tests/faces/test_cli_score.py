"""`croma-dask plan` and `croma-dask score`: options, files, messages and exit codes."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from tests.faces.conftest import SCORE, make_cohort
from tests.helpers.compare import assert_same_bits

METRICS = ("RI", "MaRI", "CRoMa")


def assert_one_line(stderr: str, *parts: str) -> None:
    """An error is one line that says what is wrong; usage errors carry click's usage line too."""
    assert "Traceback" not in stderr
    last = stderr.strip().splitlines()[-1]
    assert last.lower().startswith("error: "), stderr
    if last.startswith("error: "):
        assert len(stderr.strip().splitlines()) == 1, stderr
    for part in parts:
        assert part in last, stderr


# ---- what comes out --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outputs(store: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from click.testing import CliRunner

    from croma_dask.cli import main

    folder = tmp_path_factory.mktemp("out")
    found = {}
    for suffix in ("zarr", "nc", "csv", "json"):
        found[suffix] = folder / f"result.{suffix}"
        result = CliRunner().invoke(
            main, ["score", store, *SCORE, "--out", str(found[suffix])], catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        assert str(found[suffix]) in result.stdout
    assert sorted(folder.iterdir()) == sorted(found.values()), "and nothing else was left"
    return found


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_score__out_as_zarr_or_netcdf_holds_everything(suffix, store, scored, outputs):
    expected = scored(store)
    found = xr.open_datatree(outputs[suffix]).load()
    assert set(found.children) == set(METRICS)
    for name in METRICS:
        node, other = found[name].to_dataset(), expected[name].to_dataset()
        assert node.attrs.pop("format_version") == 1
        for dataset in (node, other):
            dataset.attrs.pop("created")
        xr.testing.assert_identical(node, other)
        for variable in other.data_vars:
            assert node[variable].values.tobytes() == other[variable].values.tobytes(), variable
    assert found.attrs.pop("format_version") == 1
    assert {k: v for k, v in found.attrs.items() if k != "created"} == {
        k: v for k, v in expected.attrs.items() if k != "created"
    }


def test_score__out_as_csv_is_the_tidy_frame(store, scored, outputs):
    found = pd.read_csv(
        outputs["csv"], dtype={"m": "Int64", "k": "Int64"}, float_precision="round_trip"
    )
    expected = scored(store).croma.to_frame()
    assert found["value"].dtype == np.float64
    expected["value"] = expected["value"].astype(np.float64)
    pd.testing.assert_frame_equal(
        found.astype({"subset": object}), expected.astype({"subset": object}), check_exact=True
    )


def test_score__out_as_json_holds_the_same_numbers_and_no_nan(store, scored, outputs):
    text = outputs["json"].read_text(encoding="utf-8")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads(text, parse_constant=refuse)
    expected = scored(store)
    assert set(found["metrics"]) == set(METRICS)
    assert found["metrics"]["RI"]["tau"] is None
    for name in METRICS:
        node = expected[name]
        for variable, array in node.data_vars.items():
            if "sample" in array.dims:
                continue
            value = found["metrics"][name][variable]
            np.testing.assert_array_equal(np.array(value, dtype=float), array.values.astype(float))
    assert found["metrics"]["CRoMa"]["m"] == [1, 3]
    assert found["metrics"]["RI"]["k_candidate"] == [15, 21]
    assert found["metrics"]["RI"]["k"] == int(expected["RI"].k)
    assert found["attrs"]["embedding_fingerprint"] == expected.attrs["embedding_fingerprint"]


def test_score__prints_a_table_of_what_python_returns(run, store, scored):
    result = run("score", store, *SCORE)
    assert (result.exit_code, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines()]
    for name in METRICS:
        mine = [row for row in rows if row and row[0] == name]
        values = np.atleast_1d(scored(store)[name].value.values)
        assert [float(row[1]) for row in mine] == pytest.approx(values.tolist(), abs=6e-5)
    assert "m = 1" in result.stdout
    assert "m = 3" in result.stdout
    assert f"k = {int(scored(store)['RI'].k)}" in result.stdout
    assert f"tau = {float(scored(store)['MaRI'].tau):.4g}" in result.stdout


@pytest.mark.parametrize(
    "form",
    [
        ["--k", "15,21", "--m", "1,3"],
        ["--k", "15", "--k", "21", "--m", "1", "--m", "3"],
        ["--k", " 15, 21", "--m", "1 ,3,"],
    ],
)
def test_score__lists_by_comma_or_repeated(run, store, scored, tmp_path, form):
    out = tmp_path / "r.nc"
    assert run("score", store, "--confounder", "center", *form, "--out", out, "-q").exit_code == 0
    with cd.open_result(out) as found:
        assert found["RI"].k_candidate.values.tolist() == [15, 21]
        assert found["CRoMa"].m.values.tolist() == [1, 3]
        assert_same_bits(
            found["CRoMa"].to_dataset()[["value"]], scored(store)["CRoMa"].to_dataset()[["value"]]
        )


@pytest.mark.parametrize(
    "form", [["--metrics", "ri,CROMA"], ["--metrics", "RI", "--metrics", "croma"]]
)
def test_score__chosen_metrics(run, store, tmp_path, form):
    out = tmp_path / "r.json"
    assert run("score", store, *SCORE, *form, "--out", out, "-q").exit_code == 0
    assert list(json.loads(out.read_text())["metrics"]) == ["RI", "CRoMa"]


def test_score__quiet_prints_nothing(run, store, tmp_path):
    result = run("score", store, *SCORE, "--quiet", "--out", tmp_path / "r.csv")
    assert (result.exit_code, result.output) == (0, "")
    assert (tmp_path / "r.csv").exists()


def test_score__paired_design(run, paired_store, scored, tmp_path):
    out = tmp_path / "r.zarr"
    options = ["--design", "paired_2x2", *SCORE, "--out", out]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("score", paired_store, *options)
        expected = scored(paired_store, design="paired_2x2")
    assert result.exit_code == 0, result.stderr
    found = xr.open_datatree(out)
    assert found["RI"].subset.values.tolist() == ["set/0", "set/1", "set/2"]
    np.testing.assert_array_equal(found["RI"].pair_values, expected["RI"].pair_values)


def test_score__warnings_are_one_line_each(run, store):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("score", store, "--confounder", "center", "--m", "40", "--metrics", "CRoMa")
    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert lines
    for line in lines:
        assert line.startswith("warning: ")
        assert "SupportWarning" not in line
    assert "units cannot be scored" in lines[0]


def test_score__arguments_reach_the_metrics(run, store, tmp_path):
    out = tmp_path / "r.nc"
    options = ["--alpha", "0.25", "--tau", "0.2", "--out", out, "-q"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run("score", store, *SCORE, *options).exit_code == 0
        expected = cd.score(
            store, confounder="center", k_candidates=(15, 21), m=(1, 3), alpha=0.25, tau=0.2
        )
    with xr.open_datatree(out) as found:
        for name in METRICS:
            xr.testing.assert_equal(found[name].to_dataset(), expected[name].to_dataset())
        assert found["CRoMa"].attrs["alpha"] == 0.25
        assert float(found["MaRI"].tau) == 0.2


def test_score__other_column_names(run, tmp_path):
    x, frame = make_cohort(90)
    names = {"label": "diagnosis", "group_id": "slide", "center": "org/site"}
    place = cd.write_cohort(
        tmp_path / "c.zarr", x, frame.rename(columns=names), label="diagnosis", group="slide"
    )
    stored = cd.open_cohort(place)
    roles = ["--label", "label" if "label" in stored.coords else "diagnosis"]
    roles += ["--group", "group_id" if "group_id" in stored.coords else "slide"]
    out = tmp_path / "r.zarr"
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("score", place, "--confounder", "org/site", *roles, "--out", out)
    assert result.exit_code == 0, result.stderr
    found = xr.open_datatree(out)["RI"]
    assert found.confounder.attrs["column"] == "org/site"
    assert found.confounder.values.tolist() == frame["center"].tolist()


def test_plan__prints_what_the_python_plan_holds(run, store):
    result = run("plan", store, *SCORE, "--memory", "2GB", "--threads", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    expected = cd.plan(store, confounder="center", k_candidates=(15, 21), m=(1, 3), memory="2GB",
                       threads=1)  # fmt: skip
    steady = ("samples", "search", "tasks", "disk", "memory", "support")
    printed = [line for line in result.stdout.splitlines() if line.startswith(steady)]
    assert printed == [line for line in str(expected).splitlines() if line.startswith(steady)]
    assert sum(line.startswith("support") for line in printed) == 2


# ---- what goes wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plan", "score"])
@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--confounder", "centre"], ["no column 'centre'", "'center'"]),
        ([], ["--confounder"]),
        (["--confounder", "center", "--label", "diagnosis"], ["no column 'diagnosis'"]),
        (["--confounder", "center", "--design", "paired"], ["'paired'", "paired_2x2"]),
        (["--confounder", "center", "--design", "paired_2x2"], ["no column 'subset'"]),
        (["--confounder", "center", "--metrics", "XI"], ["'XI'", "RI, MaRI, CRoMa"]),
        (["--confounder", "center", "--metrics", ""], ["no metric"]),
        (["--confounder", "center", "--k", "5,x"], ["'x' is no whole number"]),
        (["--confounder", "center", "--k", ""], ["k_candidates is empty"]),
        (["--confounder", "center", "--m", "0"], ["m must be 1 or larger"]),
        (["--confounder", "center", "--m", ""], ["m"]),
        (["--confounder", "center", "--memory", "much"], ["'much'", "4GB"]),
        (["--confounder", "center", "--memory", "-1GB"], ["above 0"]),
        (["--confounder", "center", "--threads", "0"], ["--threads"]),
        (["--confounder", "center", "--workers", "2", "--scheduler", "x"], ["either"]),
        (["--confounder", "center", "--storage-option", "x"], ["NAME=VALUE"]),
        (["--confounder", "center", "--no-such-option"], ["--no-such-option"]),
    ],
)
def test_bad_usage__exit_code_2(run, store, name, options, parts):
    result = run(name, store, *options)
    assert result.exit_code == 2
    assert_one_line(result.stderr, *parts)
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--alpha", "2"], ["alpha must be in [0, 1]"]),
        (["--tau", "-1"], ["tau must be above 0"]),
        (["--tau", "nan"], ["tau must be above 0"]),
        (["--on-undefined", "ignore"], ["--on-undefined"]),
    ],
)
def test_bad_values__exit_code_2(run, store, options, parts):
    result = run("score", store, "--confounder", "center", *options)
    assert result.exit_code == 2
    assert_one_line(result.stderr, *parts)


@pytest.fixture
def unfinished(store: str, tmp_path: Path) -> Path:
    place = tmp_path / "unfinished.zarr"
    shutil.copytree(store, place)
    root = place / "zarr.json"
    described = json.loads(root.read_text())
    assert described["attributes"]["status"] == "complete"
    described["attributes"]["status"] = "writing"
    del described["attributes"]["layout_checksum"]  # an unfinished one has none yet
    root.write_text(json.dumps(described))
    return place


@pytest.mark.parametrize("name", ["plan", "score"])
def test_bad_store__exit_code_2(run, name, store, unfinished, outputs, tmp_path):
    missing, text = tmp_path / "none.zarr", tmp_path / "a.zarr"
    text.write_text("x")
    for place, part in (
        (missing, "no store"), (unfinished, "not finished"), (text, "not a cohort store"),
        (outputs["zarr"], "is a result (croma-dask report, breakdown and rank take it)"),
    ):  # fmt: skip
        result = run(name, place, "--confounder", "center")
        assert result.exit_code == 2, place
        assert_one_line(result.stderr, str(place), part)


def test_bad_target__is_refused_before_the_search(run, store, tmp_path, monkeypatch):
    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr("croma_dask.robustness.evaluate.search", never)
    there = tmp_path / "there.csv"
    there.write_text("precious")
    for target, parts in (
        (there, ["exists already", "--overwrite"]),
        (tmp_path / "r.txt", ["'.txt'", ".zarr, .nc, .csv, .json"]),
        (tmp_path / "r", [".zarr, .nc, .csv, .json"]),
        (tmp_path / "no" / "r.csv", ["does not exist"]),
    ):
        result = run("score", store, *SCORE, "--out", target)
        assert result.exit_code == 2, target
        assert_one_line(result.stderr, *parts)
    assert there.read_text() == "precious"


@pytest.mark.parametrize("suffix", ["zarr", "nc", "csv", "json"])
def test_overwrite__replaces_a_result(run, store, tmp_path, suffix):
    out = tmp_path / f"r.{suffix}"
    assert run("score", store, *SCORE, "--out", out, "-q").exit_code == 0
    assert run("score", store, *SCORE, "--out", out, "-q").exit_code == 2
    metric = ["--metrics", "CRoMa", "--overwrite"]
    assert run("score", store, *SCORE, *metric, "--out", out, "-q").exit_code == 0
    assert list(tmp_path.iterdir()) == [out]
    if suffix in ("zarr", "nc"):
        with xr.open_datatree(out) as found:
            assert list(found.children) == ["CRoMa"]
    else:
        assert "MaRI" not in out.read_text()


def test_overwrite__never_replaces_what_is_no_result(run, store, tmp_path):
    """The cohort itself, somebody's folder: what ends as a result may is not always one."""
    cohort, folder, file = tmp_path / "c.zarr", tmp_path / "d.csv", tmp_path / "e.zarr"
    shutil.copytree(store, cohort)
    folder.mkdir()
    (folder / "precious").write_text("x")
    file.write_text("x")
    for out in (cohort, folder, file):
        result = run("score", cohort, *SCORE, "--out", out, "--overwrite")
        assert result.exit_code == 2, out
        assert_one_line(result.stderr, "no result of croma-dask", str(out))
    assert cd.open_cohort(cohort).sizes["sample"] == 160
    assert (folder / "precious").read_text() == file.read_text() == "x"


@pytest.mark.parametrize("name", ["plan", "score"])
def test_memory__refusal_has_exit_code_3_and_names_term_and_argument(run, large_store, name):
    result = run(name, large_store, "--confounder", "center", "--memory", "300MB")
    assert result.exit_code == 3
    assert_one_line(result.stderr, "300.00 MB", "largest term", "--memory", "threads=", "MB")
    assert result.stdout == ""


def test_nothing_to_score__exit_code_4(run, store):
    result = run("score", store, *SCORE, "--m", "100", "--on-undefined", "raise")
    assert result.exit_code == 4
    assert_one_line(result.stderr, "m=100", "cannot be scored")
    result = run("score", store, "--confounder", "center", "--k", "500", "--metrics", "RI")
    assert result.exit_code == 4
    assert_one_line(result.stderr, "500")


def test_one_group__exit_code_4_or_2(run, tmp_path):
    x, frame = make_cohort(60)
    place = cd.write_cohort(tmp_path / "c.zarr", x, frame.assign(group_id="one"))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("score", place, "--confounder", "center")
    assert result.exit_code in (2, 4)
    assert_one_line(result.stderr.splitlines()[-1])


def test_interrupt__exit_code_130(run, store, tmp_path, monkeypatch):
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("croma_dask.robustness.evaluate.search", interrupted)
    result = run("score", store, *SCORE, "--out", tmp_path / "r.zarr")
    assert result.exit_code == 130
    assert_one_line(result.stderr, "interrupted")
    assert list(tmp_path.iterdir()) == []


def test_bug__is_not_hidden(run, store, monkeypatch):
    def bug(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("croma_dask.robustness.evaluate.search", bug)
    with pytest.raises(ZeroDivisionError):
        run("score", store, *SCORE)


# ---- help ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plan", "score"])
def test_help__shows_an_example_and_every_default(run, name):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert f"croma-dask {name} cohort.zarr --confounder center" in result.stdout
    text = " ".join(result.stdout.split())
    for part in ("[required]", "[default: 5,11,21,51]", "[default: all]", "--memory", "--workers"):
        assert part in text
    if name == "score":
        assert "Exit codes: 0 done; 2 bad input or usage" in text
        assert ".zarr, .nc, .csv or .json" in text


def test_help__offers_every_argument_of_the_functions():
    """What Python offers, the command line offers too, under a name that can be found."""
    import inspect

    from croma_dask.cli_score import plan, score

    elsewhere = {"cohort", "manifest", "client", "warn_tau", "metrics"}
    for command, function in ((plan, cd.plan), (score, cd.score)):
        offered = {parameter.name for parameter in command.params}
        wanted = set(inspect.signature(function).parameters) - elsewhere
        assert wanted <= offered, wanted - offered
