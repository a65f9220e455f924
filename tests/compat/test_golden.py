"""What released versions left on disk is opened by this one, with the values that it had.

An archive of ``make.py`` for each release. The values are those that the release itself had in
memory; here they are read back from its files.
"""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import croma_dask as cd
from tests.compat.make import RESULTS, SCORE, dump, rows

# Cohorts of 120 rows have some without a neighbour of either type, and one method ranks first.
pytestmark = pytest.mark.filterwarnings("ignore::croma_dask.errors.SupportWarning")

ARCHIVES = sorted(Path(__file__).parent.glob("*.zip"))
SUFFIXES = ("zarr", "nc")


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Path:
    """A folder with all that one release wrote."""
    folder = tmp_path_factory.mktemp(request.param.stem)
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def values(golden: Path) -> dict[str, Any]:
    return dict(json.loads((golden / "values.json").read_text(encoding="utf-8")))


def test_archives__there_is_one_of_each_release() -> None:
    assert "0.1.0" in [path.stem for path in ARCHIVES]


def same(found: Any, expected: dict[str, Any]) -> None:
    """What was read is what the release had: each array, to the bit."""
    mine = dump(found)
    assert mine.keys() == expected.keys()
    for path, variables in expected.items():
        assert mine[path].keys() >= variables.keys()
        for name, variable in variables.items():
            got = mine[path][name]
            assert (got["dims"], got["shape"]) == (variable["dims"], variable["shape"]), name
            assert got["values"] == variable["values"], (path, name)


@pytest.mark.parametrize("name", ["cohort", "paired"])
def test_cohort__is_opened_with_its_values(name: str, golden: Path, values: Any) -> None:
    same(cd.open_cohort(golden / f"{name}.zarr"), values[f"{name}.zarr"])


def test_neighbors__are_opened_with_their_values(golden: Path, values: Any) -> None:
    with cd.open_neighbors(golden / "neighbors.zarr") as kept:
        same(kept, values["neighbors.zarr"])


# netCDF is slow to open; the largest ones of it in the long run only.
_SLOW = ("panel.nc", "pairs.nc", "bootstrapped.nc")
RESULT_FILES = [
    pytest.param(name, suffix, marks=[pytest.mark.slow] if f"{name}.{suffix}" in _SLOW else [])
    for name in RESULTS
    for suffix in SUFFIXES
]


@pytest.mark.parametrize(("name", "suffix"), RESULT_FILES)
def test_result__is_opened_with_its_values(
    name: str, suffix: str, golden: Path, values: Any
) -> None:
    with cd.open_result(golden / f"{name}.{suffix}") as result:
        same(result, values[f"{name}.{suffix}"])


@pytest.mark.slow
def test_result__of_an_old_release_is_reported(golden: Path) -> None:
    page = golden / "page.html"
    cd.report(golden / "scored.zarr", page)
    assert page.stat().st_size > 10_000


def test_result__of_an_old_release_is_taken_further(golden: Path) -> None:
    with cd.open_result(golden / "scored.zarr") as scored:
        assert cd.breakdown(scored, "label").sizes["label"] == 3
        drawn = cd.bootstrap(scored, n_draws=50)
    with cd.open_result(golden / "bootstrapped.zarr") as before:
        for metric in ("RI", "MaRI", "CRoMa"):
            np.testing.assert_allclose(
                drawn[metric].value_std_error, before[metric].value_std_error, rtol=1e-9
            )


def test_score__of_an_old_cohort_gives_the_values_of_then(golden: Path, values: Any) -> None:
    found = cd.score(golden / "cohort.zarr", **SCORE)
    for metric in ("RI", "MaRI", "CRoMa"):
        of_then = values["scored.zarr"][f"/{metric}"]
        for name in ("value", "sample_values"):
            expected = [float.fromhex(v) for v in of_then[name]["values"]]
            # Weights of MaRI had the last bits of each machine's exp.
            np.testing.assert_allclose(found[metric][name].values.ravel(), expected, rtol=1e-13)


def test_tables__are_read_as_numbers(golden: Path, values: Any) -> None:
    told = json.loads((golden / "scored.json").read_text(encoding="utf-8"))["metrics"]
    cells = list(csv.DictReader((golden / "scored.csv").read_text(encoding="utf-8").splitlines()))
    expected = values["scored.zarr"]
    for metric in ("RI", "MaRI"):
        value = float.fromhex(expected[f"/{metric}"]["value"]["values"][0])
        assert told[metric]["value"] == value
        found = [row for row in cells if (row["metric"], row["variable"]) == (metric, "value")]
        assert [float(row["value"]) for row in found] == [value]
    for name in ("benchmark", "sweep"):
        assert len((golden / f"{name}.csv").read_text(encoding="utf-8").splitlines()) > 2
        assert json.loads((golden / f"{name}.json").read_text(encoding="utf-8"))["attrs"]


def test_benchmark_tables__are_ranked_and_written_on(golden: Path, tmp_path: Path) -> None:
    tables = sorted(golden.glob("tables/benchmark/*wide.csv"))
    wide = [path for path in tables if "ARI" in path.read_text(encoding="utf-8")]
    assert wide
    assert "raw" in cd.rank_embeddings(wide).method.values
    assert "raw" in cd.rank_embeddings(golden / "benchmark.nc").method.values
    from croma_dask.cli import main

    # A run of this release into the folder of an old one finds what it has to do by itself.
    before = wide[0].read_text(encoding="utf-8")
    main(
        [
            "benchmark", str(golden / "cohort.zarr"), "--label-key", "label", "--batch-key",
            "center", "--metrics", "ARI,NMI", "--clustering", "kmeans", "--method", "raw",
            "--output-dir", str(golden / "tables"), "--quiet",
        ],
        standalone_mode=False,
    )  # fmt: skip
    assert wide[0].is_file()
    first, second = (_wide(text) for text in (before, wide[0].read_text(encoding="utf-8")))
    for name in ("ARI", "NMI"):
        assert math.isclose(first[name], second[name], rel_tol=1e-9)


def _wide(text: str) -> dict[str, float]:
    import pandas as pd

    row = pd.read_csv(io.StringIO(text)).iloc[0]
    return {name: float(row[name]) for name in ("ARI", "NMI")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ivf", "pynndescent"])
def test_index__of_an_old_release_serves(kind: str, golden: Path, values: Any) -> None:
    place = golden / f"cohort.{kind}.zarr"
    assert cd.open_index(place).kind == kind
    found = cd.score(golden / "cohort.zarr", index=place, recall=0.5, calibration=100, **SCORE)
    for metric in ("RI", "MaRI", "CRoMa"):
        of_then = values[place.name][f"/{metric}"]["value"]["values"]
        expected = [float.fromhex(v) for v in of_then]
        np.testing.assert_allclose(found[metric]["value"].values.ravel(), expected, atol=1e-9)


def test_index__of_an_old_release_is_opened_and_not_built_again(golden: Path) -> None:
    place = golden / "cohort.ivf.zarr"
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    opened = cd.build_index(
        golden / "cohort.zarr", "ivf", path=place, cluster_rows=15, n_neighbors=8, quiet=True
    )
    assert opened.attrs["n_rows"] == len(rows(0, "float32")[1])
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def newer(path: Path) -> None:
    """Make what lies somewhere one of format version 99."""
    if path.suffix == ".nc":
        import h5py

        with h5py.File(path, "r+") as file:
            for node in (file, *(file[name] for name in ("RI", "MaRI", "CRoMa") if name in file)):
                node.attrs["format_version"] = 99
        return
    about = path / "zarr.json"
    meta = json.loads(about.read_text())
    meta["attributes"]["format_version"] = 99
    about.write_text(json.dumps(meta))


@pytest.fixture
def newer_than_this(golden: Path, tmp_path: Path) -> Any:
    def made(name: str) -> Path:
        source, target = golden / name, tmp_path / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
        newer(target)
        return target

    return made


@pytest.mark.parametrize(
    ("name", "opening"),
    [
        ("cohort.zarr", cd.open_cohort),
        ("cohort.ivf.zarr", lambda place: cd.open_index(place).kind),
        ("neighbors.zarr", cd.open_neighbors),
        ("scored.zarr", cd.open_result),
        ("scored.nc", cd.open_result),
        ("sweep.nc", cd.open_result),
        ("benchmark.nc", cd.rank_embeddings),
    ],
)
def test_newer_version__is_refused_with_the_command_that_upgrades(
    name: str, opening: Any, newer_than_this: Any
) -> None:
    place = newer_than_this(name)
    with pytest.raises(cd.StoreError) as refused:
        opening(place)
    said = str(refused.value)
    assert str(place) in said
    assert "version 99" in said
    assert "up to 1: pip install --upgrade croma-dask" in said


def test_newer_benchmark_record__is_refused_and_left_alone(golden: Path, tmp_path: Path) -> None:
    from croma_dask.embedding.table_sections import read_sections

    record = next((golden / "tables").rglob("record.json"))
    folder = tmp_path / "record"
    folder.mkdir()
    text = json.dumps({**json.loads(record.read_text()), "format": 99})
    (folder / "record.json").write_text(text)
    with pytest.raises(cd.StoreError, match="version 99.*pip install --upgrade croma-dask"):
        read_sections(folder)
    assert (folder / "record.json").read_text() == text
    assert read_sections(record.parent)


@pytest.mark.parametrize("suffix", ["zarr", pytest.param("nc", marks=pytest.mark.slow)])
def test_saved_result__says_its_version_in_the_file_alone(
    suffix: str, golden: Path, tmp_path: Path
) -> None:
    import xarray as xr

    place = tmp_path / f"again.{suffix}"
    with cd.open_result(golden / "scored.nc") as result:
        cd.results.save(result, place)
    with xr.open_datatree(place, engine="zarr" if suffix == "zarr" else "h5netcdf") as plain:
        assert int(np.ravel(plain.attrs["format_version"])[0]) == 1
        assert int(np.ravel(plain["RI"].attrs["format_version"])[0]) == 1
    with cd.open_result(place) as opened:
        assert "format_version" not in opened.attrs
        assert "format_version" not in opened["RI"].attrs
