"""Three embeddings of one small cohort, of different width and dtype, scored once."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd

N = 120
NAMES = ("MahmoodLab/UNI2-h", "org/name:v1 é", "narrow")
ARGUMENTS: dict[str, Any] = {"confounder": "center", "k_candidates": (5, 11), "m": (1, 3)}


def make_frame(n: int = N) -> pd.DataFrame:
    at = np.arange(n)
    return pd.DataFrame(
        {
            "sample_id": [f"tile/{i:04d}" for i in at],
            "label": np.array(["tumour", "Überklasse", "肿瘤"])[at % 3],
            "center": np.array(["A/1", "B"])[at // 3 % 2],
            "group_id": [f"slide-{i // 2}" for i in at],
        }
    )


def make_arrays(n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(11)
    found = {}
    for name, (width, dtype) in zip(NAMES, ((6, "f4"), (9, "f8"), (4, "f2")), strict=True):
        found[name] = rng.normal(size=(n, width)).astype(dtype)
    return found


def make_paired() -> tuple[dict[str, Any], pd.DataFrame]:
    frame = make_frame()
    at = np.arange(N)
    frame["label"] = np.array(["a", "b"])[at % 2]
    frame["center"] = np.array(["x", "y"])[at // 2 % 2]
    frame["group_id"] = at.astype(str)
    frame["subset"] = np.array(["one", "two/2", "three"])[at // 40]
    return make_arrays(), frame


@pytest.fixture(autouse=True)
def _without_support_warnings() -> Any:
    """Small cohorts have rows that cannot be scored; who looks at warnings records them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        yield


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("panel")
    frame = make_frame()
    return {
        name: cd.write_cohort(folder / f"store-{at}.zarr", x, frame, chunk_rows=50)
        for at, (name, x) in enumerate(make_arrays().items())
    }


@pytest.fixture(scope="session")
def _singles(stores: dict[str, str]) -> dict[str, xr.DataTree]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: cd.score(place, **ARGUMENTS) for name, place in stores.items()}


@pytest.fixture(scope="session")
def _panel(stores: dict[str, str]) -> xr.DataTree:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cd.score(stores, **ARGUMENTS)


@pytest.fixture
def singles(_singles: dict[str, xr.DataTree]) -> dict[str, xr.DataTree]:
    """Each model scored alone."""
    return {name: tree.copy(deep=True) for name, tree in _singles.items()}


@pytest.fixture
def panel(_panel: xr.DataTree) -> xr.DataTree:
    """All of them scored in one call."""
    return _panel.copy(deep=True)
