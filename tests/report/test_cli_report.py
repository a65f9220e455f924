"""The command ``croma-dask report``."""

from __future__ import annotations

from pathlib import Path

import pytest
import xarray as xr
from click.testing import CliRunner, Result

from croma_dask.cli import main
from croma_dask.results import save
from tests.helpers.report_page import Page


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def saved(panel: xr.DataTree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    for name in ("good", "poor"):
        save(panel.sel(model=name), folder / f"{name}.zarr")
    return folder


def test_report__names_models_by_their_files(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    done = run(saved / "good.zarr", saved / "poor.zarr", "--out", out, "--draws", "0")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"written: {out} (")
    page = Page(out)
    assert page.payload["models"] == ["good", "poor"]
    assert page.payload["title"] == "Robustness of good and poor to scanner"


def test_report__takes_names_title_and_seed(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    done = run(
        saved / "good.zarr", saved / "poor.zarr", "--name", "A", "--name", "B", "--out", out,
        "--title", "Two models", "--draws", "20", "--seed", "7", "-q",
    )  # fmt: skip
    assert (done.exit_code, done.output) == (0, "")
    page = Page(out)
    assert page.payload["models"] == ["A", "B"]
    assert page.payload["title"] == "Two models"
    assert "20 bootstrap draws" in dict(page.payload["about"]["facts"])["Intervals"]
    assert "seed 7" in dict(page.payload["about"]["facts"])["Intervals"]


def test_report__is_made_of_a_netcdf_file_too(panel: xr.DataTree, tmp_path: Path) -> None:
    save(panel, tmp_path / "panel.nc")
    done = run(tmp_path / "panel.nc", "--out", tmp_path / "r.html", "--draws", "0")
    assert done.exit_code == 0, done.output
    assert Page(tmp_path / "r.html").payload["models"] == ["good", "poor", "plain/noise"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["good.zarr", "--out", "r.txt"], "ends in '.txt'"),
        (["good.zarr", "--out", "there.html"], "(--overwrite)"),
        (["absent.zarr", "--out", "r.html"], "no result at"),
        (["good.zarr", "--name", "a", "--name", "b", "--out", "r.html"], "2 times for 1 results"),
        (["good.zarr", "poor.zarr", "--name", "a", "--name", "a", "--out", "r.html"], "called 'a'"),
        (["good.zarr"], "--out"),
        (["good.zarr", "--out", "r.html", "--draws", "-1"], "--draws"),
    ],
)
def test_report__says_what_is_wrong_in_a_line(
    arguments: list[str], message: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved)
    (saved / "there.html").write_text("", encoding="utf-8")
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output
    assert not (saved / "r.html").exists()


def test_report__of_other_rows_names_the_difference(
    saved: Path, paired: xr.DataTree, tmp_path: Path
) -> None:
    save(paired, tmp_path / "paired.zarr")
    done = run(saved / "good.zarr", tmp_path / "paired.zarr", "--out", tmp_path / "r.html")
    assert done.exit_code == 2
    assert "paired" in done.output
    assert not (tmp_path / "r.html").exists()
