"""Results of small cohorts, and reports of them; each is made once a module."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><script>alert(3)</script>",
    "<!--<script>",
    "a&amp;b\u2028c'd\\e",
    "{{script}}",
]
"""Texts that a page must show, and never read."""


def frame_of(n: int, labels: list[str], confounders: list[str], *, groups: int) -> pd.DataFrame:
    at = np.arange(n)
    return pd.DataFrame(
        {
            "sample_id": [f"tile-{i:04d}" for i in at],
            "diagnosis": np.array(labels, object)[at % len(labels)],
            "scanner": np.array(confounders, object)[at // len(labels) % len(confounders)],
            "slide": [f"slide-{i % groups:02d}" for i in at],
        }
    )


def score(x: Any, frame: pd.DataFrame, **options: Any) -> xr.DataTree:
    with warnings.catch_warnings():
        # Support below 1 is what some of these cohorts are for.
        warnings.simplefilter("ignore", cd.SupportWarning)
        return cd.score(
            x, frame, confounder="scanner", label="diagnosis", group="slide",
            **{"k_candidates": (3, 7), "m": 3, **options},
        )  # fmt: skip


def rows_of(frame: pd.DataFrame, seed: int, *, biology: float, shortcut: float) -> Any:
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(40, 8))
    label = pd.factorize(frame["diagnosis"])[0]
    confounder = pd.factorize(frame["scanner"])[0]
    x = biology * directions[label] + shortcut * directions[20 + confounder]
    return x + rng.normal(size=x.shape)


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    return frame_of(150, ["tumour", "normal", "stroma"], ["A", "B"], groups=30)


@pytest.fixture(scope="session")
def panel(frame: pd.DataFrame) -> xr.DataTree:
    """Three models, two radii."""
    models = {
        "good": rows_of(frame, 1, biology=1.0, shortcut=0.3),
        "poor": rows_of(frame, 2, biology=0.4, shortcut=1.2),
        "plain/noise": rows_of(frame, 3, biology=0.0, shortcut=0.0),
    }
    return score(models, frame, m=[1, 3])


@pytest.fixture(scope="session")
def single(frame: pd.DataFrame) -> xr.DataTree:
    """One embedding whose strong effects leave RI and MaRI without full support."""
    return score(rows_of(frame, 4, biology=1.2, shortcut=1.2), frame)


@pytest.fixture(scope="session")
def paired() -> xr.DataTree:
    parts = []
    for number in range(3):
        part = frame_of(48, ["tumour", "normal"], ["A", "B"], groups=24)
        part["subset"] = f"pair {number}"
        part["slide"] += f"-{number}"
        parts.append(part)
    frame = pd.concat(parts, ignore_index=True)
    return score(rows_of(frame, 5, biology=0.6, shortcut=0.6), frame, design="paired_2x2")


@pytest.fixture(scope="session")
def hostile() -> xr.DataTree:
    """Names of columns' levels, ids, groups and models that would like to be markup."""
    frame = frame_of(120, HOSTILE[:3], HOSTILE[3:5], groups=20)
    frame["sample_id"] = [f"{HOSTILE[i % 6]}{i}" for i in range(len(frame))]
    frame["slide"] = [f"{text}{HOSTILE[0]}" for text in frame["slide"]]
    models = {
        HOSTILE[1]: rows_of(frame, 6, biology=0.5, shortcut=0.5),
        HOSTILE[5]: rows_of(frame, 7, biology=0.5, shortcut=0.5),
    }
    return score(models, frame)


@pytest.fixture(scope="session")
def panel_page(panel: xr.DataTree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cd.report(panel, tmp_path_factory.mktemp("report") / "panel.html", n_draws=50)


@pytest.fixture(scope="session")
def sweep() -> xr.Dataset:
    """As label_sweep labels one; 4 splits, 6 replicates, two test sets."""
    rng = np.random.default_rng(1)
    accuracy = 0.9 - 0.1 * np.arange(4)[:, None] + 0.01 * rng.normal(size=(4, 6))
    about = {"n_classes": 2}
    dims = ("split", "iteration")
    return xr.Dataset(
        {"in_domain": (dims, accuracy, about), "other <b>": (dims, accuracy - 0.1, about)},
        {
            "split": np.arange(4),
            "iteration": np.arange(6),
            "cramers_v": ("split", [0.0, 0.3, 0.6, 1.0]),
            "training_rows": ("split", [100, 100, 100, 100]),
            "converged": (dims, np.ones((4, 6), bool)),
        },
        {"metric": "probe_sweep", "seed": 1000, "croma_dask_version": "0"},
    )


@pytest.fixture(scope="session")
def benchmark() -> xr.Dataset:
    dims = ("dataset", "method", "metric")
    status = np.full((2, 2, 3), "ok", object)
    value = np.arange(12.0).reshape(2, 2, 3) / 12
    status[0, 1, 2], value[0, 1, 2] = "undefined", np.nan
    status[1, 1], value[1, 1] = "not computed", np.nan
    return xr.Dataset(
        {"value": (dims, value), "status": (dims, status)},
        {
            "dataset": np.array(["lung", "gut"], object),
            "method": np.array(["PCA", "scVI"], object),
            "metric": np.array(["NMI", "ARI", "kBET"], object),
            "long_name": ("metric", np.array(["a", "b", "c"], object)),
        },
        {"metric": "embedding_benchmark"},
    )
