"""`croma-dask probe`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

import croma_dask as cd
from croma_dask.cli import main
from tests.probe.glue import cohort as rows_of


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x, center, label = rows_of([[40, 40], [40, 40], [9, 9]], n_features=4)
    frame = pd.DataFrame(
        {
            "sample_id": np.arange(label.size).astype(str), "label": label.astype(str),
            "center": np.array(["A", "B", "C"])[center], "group_id": np.arange(label.size),
        }
    )  # fmt: skip
    return Path(cd.write_cohort(tmp_path_factory.mktemp("probe") / "c.zarr", x, frame))


def run(place: Path, *more: str, code: int = 0) -> Any:
    arguments = [
        "probe", str(place), "--confounder", "center", "--confounders", "A,B", "--iterations", "2",
        "--validation-fraction", "0.1", *more,
    ]  # fmt: skip
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def test_probe__prints_the_table_and_writes_what_python_returns(
    place: Path, tmp_path: Path
) -> None:
    out = tmp_path / "s.zarr"
    told = run(
        place, "--schedule", "linear:20:3", "--test-rows", "unseen=center:C", "--out", str(out)
    ).output
    lines = told.splitlines()
    assert lines[0].split() == ["split", "V", "rows", "in_domain", "unseen"]
    assert [line.split()[1] for line in lines[1:4]] == ["0.000", "0.500", "1.000"]
    expected = cd.open_cohort(place).croma.probe_sweep(
        confounder="center", confounder_order=["A", "B"], iterations=2, validation_fraction=0.1,
        schedule=cd.downstream.linear_schedule(2, 2, 20, 3), test_sets={"unseen": {"center": "C"}},
    )  # fmt: skip
    found = xr.open_zarr(out).load()
    found.attrs.pop("created")
    assert found.attrs.pop("format_version") == 1
    expected.attrs.pop("created")
    xr.testing.assert_identical(found.drop_attrs(), expected.drop_attrs())
    assert found.attrs == expected.attrs
    assert f"APD{cd.apd(expected):>31.4f}" in told
    assert list(tmp_path.iterdir()) == [out]


def test_probe__writes_tables(place: Path, tmp_path: Path) -> None:
    for ending in ("csv", "json", "nc"):
        run(place, "--schedule", "linear:20:3", "-q", "--out", str(tmp_path / f"s.{ending}"))
    frame = pd.read_csv(tmp_path / "s.csv", float_precision="round_trip")
    assert len(frame) == 6
    told = json.loads((tmp_path / "s.json").read_text())
    assert [row["accuracy"] for row in told["probes"]] == frame["accuracy"].tolist()
    read = xr.open_dataset(tmp_path / "s.nc", engine="h5netcdf")
    np.testing.assert_array_equal(read["in_domain"].values.ravel(), frame["accuracy"])
    assert cd.apd(read) == cd.apd(frame["accuracy"].to_numpy().reshape(3, 2))


def test_probe__reads_a_schedule(place: Path, tmp_path: Path) -> None:
    schedule = cd.downstream.linear_schedule(2, 2, 20, 3)
    file = tmp_path / "schedule.json"
    file.write_text(json.dumps(schedule))
    told = [run(place, "--schedule", what).output for what in (str(file), "linear:20:3")]
    assert told[0] == told[1]
    file.write_text("{")
    assert "cannot be read" in run(place, "--schedule", str(file), code=2).output
    file.write_text("{}")
    assert "list of splits" in run(place, "--schedule", str(file), code=2).output


def test_probe__plans(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.zarr"
    told = run(place, "--schedule", "linear:20:3", "--plan", "--out", str(out)).output
    assert "3 splits x 2 replicates, 90 fits at most" in told
    assert not out.exists()


REFUSED = [
    (["--schedule", "linear:20"], 2, "linear:SLIDES:SPLITS"),
    (["--schedule", "linear"], 2, "linear:SLIDES:SPLITS"),
    (["--schedule", "[" * 5000], 2, "["),
    (["--schedule", "linear:20:3", *["--test-rows", "u=center:C"] * 2], 2, "given twice"),
    (["--schedule", "kaiko"], 2, "kaiko"),
    (["--schedule", "linear:60:3"], 2, "split"),
    (["--schedule", "linear:20:3", "--test-rows", "u=center"], 2, "COLUMN:VALUE"),
    (["--schedule", "linear:20:3", "--test-rows", "u=center:A"], 2, "share"),
    (["--schedule", "linear:20:3", "--memory", "1MB"], 3, "raise memory"),
    (["--schedule", "linear:20:3", "--label", "none"], 2, "no column 'none'"),
    (["--schedule", "linear:20:3", "--out", "s.txt"], 2, "expected one of"),
]


@pytest.mark.parametrize(("more", "code", "told"), REFUSED)
def test_probe__refuses(more: list[str], code: int, told: str, place: Path) -> None:
    assert told in run(place, *more, code=code).output
