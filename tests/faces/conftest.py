"""One small cohort for all faces: no ties, every sample scored by every metric, no warning."""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner, Result

import croma_dask as cd
from croma_dask.cli import main

ROOT = Path(__file__).resolve().parents[2]
N = 160


def make_cohort(n: int = N, *, seed: int = 5, n_features: int = 6) -> tuple[Any, pd.DataFrame]:
    """Rows that follow nothing, so that every neighbourhood holds every type."""
    rng = np.random.default_rng(seed)
    at = np.arange(n)
    frame = pd.DataFrame(
        {
            "sample_id": [f"tile/{i:05d}" for i in at],
            "label": np.array(["tumour", "Überklasse", "肿瘤"])[at % 3],
            "center": np.array(["A/1", "B", "C"])[at // 3 % 3],
            "group_id": [f"slide-{i // 2}" for i in at],
        }
    )
    return rng.normal(size=(n, n_features)).astype(np.float32), frame


def make_paired(n_subsets: int = 3, rows: int = 40) -> tuple[Any, pd.DataFrame]:
    x, frame = make_cohort(n_subsets * rows, seed=6)
    at = np.arange(len(frame))
    frame["label"] = np.array(["a", "b"])[at % 2]
    frame["center"] = np.array(["x", "y"])[at // 2 % 2]
    frame["group_id"] = at.astype(str)
    frame["subset"] = np.array([f"set/{i}" for i in range(n_subsets)])[at // rows]
    return x, frame


@pytest.fixture(autouse=True)
def _short_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the machine for a moment only: no test here looks at the rate."""
    # With all that a plan imports, so that no test's patch is taken for the real thing by it.
    importlib.import_module("croma_dask.plan")
    module = importlib.import_module("croma_dask.cost")
    monkeypatch.setattr(module, "_CALIBRATION_SECONDS", 0.02)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return cd.write_cohort(tmp_path_factory.mktemp("faces") / "cohort.zarr", *make_cohort())


@pytest.fixture(scope="session")
def paired_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return cd.write_cohort(tmp_path_factory.mktemp("faces") / "paired.zarr", *make_paired())


@pytest.fixture(scope="session")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Large enough that the smallest memory streams it."""
    return cd.write_cohort(tmp_path_factory.mktemp("faces") / "large.zarr", *make_cohort(3_000))


@functools.cache
def _scored(place: str, design: str, m: Any) -> xr.DataTree:
    return cd.score(place, confounder="center", design=design, k_candidates=(15, 21), m=m)


@pytest.fixture
def scored() -> Callable[..., xr.DataTree]:
    """Score a store in this process, once for each set of arguments."""

    def score(place: str, *, design: str = "all", m: Any = (1, 3)) -> xr.DataTree:
        return _scored(place, design, m).copy(deep=True)

    return score


SCORE = ("--confounder", "center", "--k", "15,21", "--m", "1,3")
"""What `scored` computes."""


@pytest.fixture
def run() -> Callable[..., Result]:
    """Call the command in this process."""

    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)

    return invoke


@pytest.fixture
def command() -> list[str]:
    """Start of the command line of a real process."""
    code = "from croma_dask.cli import main; main()"
    return [sys.executable, "-c", code]


@pytest.fixture
def shell(command: list[str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Call the command as a process of its own."""

    def invoke(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=ROOT,
        )

    return invoke


@pytest.fixture
def smallest_memory() -> Callable[..., str]:
    """The least memory that a store can be scored in, as the refusal names it."""

    def ask(place: str, **options: Any) -> str:
        with pytest.raises(cd.MemoryLimitError) as refusal:
            cd.plan(place, confounder="center", memory=1, **options)
        found = re.search(r"at least ([\d.]+) MB", str(refusal.value))
        assert found is not None
        return f"{float(found[1]) + 0.02:.2f}MB"

    return ask
