"""Small geometries whose values are argued by hand in derived.json, and never captured."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import croma_dask as cd
from tests.helpers.cohorts import manifest
from tests.helpers.engines import ENGINES, engine

CASES = json.loads((Path(__file__).parent / "derived.json").read_text())["cases"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def floats(values: Any) -> Any:
    """JSON has no NaN: null stands for it."""
    if isinstance(values, list):
        return [floats(v) for v in values]
    return math.nan if values is None else float(values)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_values__follow_from_the_geometry(case: dict[str, Any], name: str) -> None:
    angle = np.deg2rad(case["degrees"])
    # Lengths do not matter, so every row has another one.
    x = np.column_stack([np.cos(angle), np.sin(angle)]) * np.arange(1, angle.size + 1)[:, None]
    frame = manifest(case["label"], case["confounder"], case.get("group"))
    common = {"confounder_column": "center"}
    candidates = [case["k"]]
    with engine(name, range_rows=3):
        found = {"ri": cd.RI.compute(x, frame, k_candidates=candidates, **common)}
        if "croma" in case:
            found["croma"] = cd.CRoMa.compute(x, frame, m=case.get("m", 1), **common)
        if "mari" in case:
            found["mari"] = cd.MaRI.compute(
                x, frame, k_candidates=candidates, tau=case["tau"], warn_tau=False, **common
            )
    for metric, result in found.items():
        close = {"rtol": 0, "atol": 1e-12}
        np.testing.assert_allclose(result.value, floats(case[metric]), **close)
        np.testing.assert_allclose(result.sample_values, floats(case[f"{metric}_samples"]), **close)
        if f"{metric}_causes" in case:
            assert result.undefined_type.values.tolist() == case[f"{metric}_causes"]
    if "f0" in case and case["name"] != "neutral":
        np.testing.assert_allclose(found["croma"].f0, floats(case["f0"]))


def test_f0__is_closed_at_zero() -> None:
    """Margins that are exactly 0: the neutral square on the axes, without rounding."""
    x = np.array([[1, 0], [0, 2], [-3, 0], [0, -4]])
    frame = manifest(["a", "a", "b", "b"], ["x", "y", "y", "x"])
    found = cd.CRoMa.compute(x, frame, confounder_column="center", m=1)
    assert found.sample_values.values.tolist() == [0.0] * 4
    assert float(found.f0) == 1.0
