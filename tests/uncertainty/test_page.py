"""What docs/uncertainty.md shows works as it stands there, and so does its command."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner, Result

import croma_dask as cd
from croma_dask.cli_bootstrap import bootstrap as command
from croma_dask.results import save
from croma_dask.uncertainty.table import bootstrap_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "uncertainty.md"
N_GROUPS = 24
pytestmark = pytest.mark.filterwarnings("ignore:.*units")


def made_up(n: int = 168) -> tuple[np.ndarray, pd.DataFrame]:
    rng = np.random.default_rng(3)
    group = np.arange(n) % N_GROUPS
    label, center = rng.integers(0, 2, n), group % 2
    frame = pd.DataFrame({"sample_id": np.arange(n).astype(str), "label": label.astype(str)})
    frame["center"], frame["group_id"] = center.astype(str), [f"slide {g}" for g in group]
    x = rng.normal(size=(n, 5)) + 0.5 * rng.normal(size=(N_GROUPS, 5))[group]
    x[:, 0] += label
    return x, frame


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with the stores of the page, and their results."""
    x, frame = made_up()
    (tmp_path / "stores").mkdir()
    (tmp_path / "results").mkdir()
    other = x + 0.3 * np.random.default_rng(4).normal(size=x.shape)
    for name, rows in (("uni", x), ("virchow", other)):
        place = cd.write_cohort(tmp_path / "stores" / f"{name}.zarr", rows, frame)
        save(cd.score(place, confounder="center"), tmp_path / "results" / f"{name}.zarr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks() -> Iterator[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for is_block, part in groupby(lines, lambda line: not line or line.startswith("    ")):
        block = textwrap.dedent("\n".join(part)).strip()
        if is_block and block:
            yield block


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)


def test_page__snippets_run_as_they_stand(folder: Path) -> None:
    names: dict[str, Any] = {}
    ran = 0
    with cd.set_options(quiet=True):
        for block in blocks():
            if block.startswith("croma-dask "):
                for line in block.splitlines():
                    if line.startswith("croma-dask bootstrap"):
                        few = line.replace("--pairs 10", "--pairs 2")
                        assert run(*shlex.split(few)[2:]).exit_code == 0
                continue
            # As it stands, but for twenty halves: four show as much.
            exec(compile(block.replace("n_pairs=10", "n_pairs=2"), str(PAGE), "exec"), names)
            ran += 1
    assert ran >= 2
    assert (folder / "sure.zarr").is_dir()
    assert 0.0 <= names["pair"].value_better.item() <= 1.0
    assert names["sure"].attrs["neighbors"] == "of each half"


def test_page__tells_every_variable(folder: Path) -> None:
    found = cd.bootstrap(
        cd.combine_results({n: cd.open_result(f"results/{n}.zarr") for n in ("uni", "virchow")}),
        n_draws=5, keep_draws=True,
    )["RI"]  # fmt: skip
    text = PAGE.read_text(encoding="utf-8")
    for name in found.data_vars:
        assert f"`{str(name).replace('value', 's', 1)}`" in text


def test_command__prints_and_writes_what_bootstrap_returns(folder: Path) -> None:
    done = run(
        "results/uni.zarr", "results/virchow.zarr", "--name", "UNI", "--name", "Virchow/2",
        "--draws", 50, "--seed", 3, "--level", 0.8, "--out", "sure.nc",
    )  # fmt: skip
    assert done.exit_code == 0
    opened = [cd.open_result(f"results/{name}.zarr") for name in ("uni", "virchow")]
    expected = cd.bootstrap(
        cd.combine_results(dict(zip(("UNI", "Virchow/2"), opened, strict=True))),
        n_draws=50, seed=3, level=0.8,
    )  # fmt: skip
    back = cd.open_result("sure.nc")
    for name, node in expected.children.items():
        for variable, array in node.data_vars.items():
            np.testing.assert_array_equal(back[name][variable], array)
    assert bootstrap_text(expected) in done.output
    assert "50 draws of 24 groups (group_id), seed 3; 80 % intervals (percentile)" in done.output
    assert "written: sure.nc" in done.output
    pair = expected["CRoMa"].to_dataset().sel(model="UNI", other="Virchow/2")
    assert f"{pair.f0_difference.item():+.4f}" in done.output
    assert f"{pair.ltm_alpha_better.item():.3f}" in done.output
    back.close()


def test_command__of_one_result_has_no_pairs(folder: Path) -> None:
    done = run("results/uni.zarr", "--draws", 20)
    assert "first better" not in done.output
    assert "rank" not in done.output
    assert run("results/uni.zarr", "--draws", 20, "-q").output == ""
    swept = cd.score("stores/uni.zarr", confounder="center", m=[1, 5])
    save(swept, "swept.zarr")
    assert "CRoMa, m = 1\n" in run("swept.zarr", "--draws", 20).output


def test_command__refuses_before_it_draws(folder: Path) -> None:
    with pytest.raises(cd.SchemaError, match="ends in"):
        run("results/uni.zarr", "--out", "sure.txt")
    save(cd.open_result("results/uni.zarr").load(), "uni.zarr")
    with pytest.raises(cd.SchemaError, match="two results are called 'uni'"):
        run("results/uni.zarr", "uni.zarr")
    with pytest.raises(cd.SchemaError, match="2 times for 1 results"):
        run("results/uni.zarr", "--name", "a", "--name", "b")
    with pytest.raises(cd.StoreError):
        run("stores/uni.zarr")
    save(cd.bootstrap(cd.open_result("uni.zarr"), n_draws=5), "sure.zarr")
    with pytest.raises(cd.SchemaError, match="no result of score"):
        run("sure.zarr")


def test_text__is_of_bootstraps_alone() -> None:
    for other in (xr.DataTree(), xr.Dataset()):
        with pytest.raises(cd.SchemaError, match="expected a result of bootstrap"):
            bootstrap_text(other)  # type: ignore[arg-type]
