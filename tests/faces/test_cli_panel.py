"""`croma-dask score` and `plan` of several stores."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.panel import scoring
from croma_dask.results import summary
from tests.faces.conftest import SCORE, make_cohort
from tests.helpers.compare import assert_same_bits

NAMES = ("MahmoodLab/UNI2-h", "org/name:v1 é")
NAMED = ("--name", NAMES[0], "--name", NAMES[1])
METRICS = ("RI", "MaRI", "CRoMa")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    _, frame = make_cohort()
    rng = np.random.default_rng(4)
    return [
        cd.write_cohort(folder / f"{name}.zarr", rng.normal(size=(len(frame), width)), frame)
        for name, width in (("first", 5), ("second", 8))
    ]


@pytest.fixture(scope="module")
def expected(stores: list[str]) -> xr.DataTree:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cd.score(
            dict(zip(NAMES, stores, strict=True)), confounder="center", k_candidates=(15, 21),
            m=(1, 3),
        )  # fmt: skip


@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
def test_score__of_several_stores_writes_the_panel(
    suffix: str, run: Callable, stores: list[str], expected: xr.DataTree, tmp_path: Path
) -> None:
    out = tmp_path / f"panel{suffix}"
    done = run("score", *stores, *NAMED, *SCORE, "--out", out)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(summary(expected))
    assert "model 1 of 2: MahmoodLab/UNI2-h" in done.stderr
    assert list(tmp_path.iterdir()) == [out]
    with cd.open_result(out) as found:
        assert found["CRoMa"].model.values.tolist() == list(NAMES)
        for metric in METRICS:
            assert_same_bits(found[metric].to_dataset().load(), expected[metric].to_dataset())
    # And by anybody who has xarray alone.
    with xr.open_datatree(out) as plain:
        assert [str(name) for name in plain["RI"].model.values] == list(NAMES)


def test_score__of_several_stores_as_a_table(
    run: Callable, stores: list[str], expected: xr.DataTree, tmp_path: Path
) -> None:
    done = run("score", *stores, *NAMED, *SCORE, "--out", tmp_path / "p.csv", "-q")
    assert (done.exit_code, done.stdout) == (0, "")
    found = pd.read_csv(tmp_path / "p.csv", float_precision="round_trip")
    rows = found[(found.metric == "CRoMa") & (found.variable == "ltm_alpha") & (found.m == 3)]
    assert rows.model.tolist() == list(NAMES)
    assert rows.value.astype(float).tolist() == expected["CRoMa"].ltm_alpha.values[:, 1].tolist()


def test_score__names_models_as_their_stores(run: Callable, stores: list[str]) -> None:
    done = run("score", *stores, "--metrics", "CRoMa", "--m", "1", "--confounder", "center")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "CRoMa, m = 1"
    assert [line.split()[0] for line in lines[2:4]] == ["first", "second"]


def test_score__of_one_store_with_a_name_is_a_panel_of_one(
    run: Callable, stores: list[str]
) -> None:
    done = run(
        "score", stores[0], "--name", "only", "--metrics", "CRoMa", "--m", "1", "--confounder",
        "center",
    )  # fmt: skip
    assert "ranking by CRoMa, m = 1" in done.stdout
    assert "model 1 of" not in done.stderr


@pytest.mark.parametrize("command", ["score", "plan"])
def test_panel__what_is_refused_is_one_line(
    command: str, run: Callable, stores: list[str], tmp_path: Path
) -> None:
    x, frame = make_cohort()
    frame.loc[3, "center"] = "elsewhere"
    other = cd.write_cohort(tmp_path / "other.zarr", x, frame)
    options = ("--confounder", "center", "--m", "1")
    for arguments, parts in (
        ((*stores, other), ("'other' is not of the same rows as 'first'", "'center'", "row 3")),
        ((stores[0], stores[0]), ("two cohorts are called 'first'", "--name")),
        ((*stores, "--name", "x"), ("2 stores, 1 names",)),
        ((*stores, "--name", "x", "--name", "x"), ("a name is given twice",)),
        ((stores[0], tmp_path / "no.zarr"), ("model 'no': ", "no store here")),
        ((*stores, "--index", "some/i.zarr"), ("an index belongs to one embedding",)),
    ):
        done = run(command, *arguments, *options)
        assert done.exit_code == 2, arguments
        last = done.stderr.strip().splitlines()[-1]
        assert last.lower().startswith("error: ")
        for part in parts:
            assert part in last


def test_plan__of_several_stores(run: Callable, stores: list[str]) -> None:
    done = run("plan", *stores, *NAMED, "--confounder", "center")
    assert done.exit_code == 0
    assert done.stdout.startswith("2 models of 160 samples, one after the other")
    for name in NAMES:
        assert name in done.stdout


def test_score__goes_on_with_the_models_that_are_left(
    run: Callable, stores: list[str], expected: xr.DataTree, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    scored: list[Any] = []
    real = scoring.evaluate

    def evaluate(cohort: Any, *args: Any, **kwargs: Any) -> Any:
        scored.append(cohort.url)
        if len(scored) == 2:
            raise KeyboardInterrupt
        return real(cohort, *args, **kwargs)

    monkeypatch.setattr(scoring, "evaluate", evaluate)
    out = tmp_path / "p.zarr"
    call = ("score", *stores, *NAMED, *SCORE, "--out", out)
    assert run(*call).exit_code == 130
    assert [path.name for path in tmp_path.iterdir()] == [".p.zarr.scratch"]
    done = run(*call)
    assert done.exit_code == 0
    assert scored == [stores[0], stores[1], stores[1]]
    assert "taken over from the run that was interrupted" in done.stderr
    assert list(tmp_path.iterdir()) == [out]
    with cd.open_result(out) as found:
        for metric in METRICS:
            assert_same_bits(found[metric].to_dataset().load(), expected[metric].to_dataset())
