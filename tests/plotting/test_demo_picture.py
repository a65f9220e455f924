"""The picture of the README is what the demo draws."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import croma_dask as cd

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "demo.png"
LARGEST = 150_000
"""Bytes."""


def load_demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore::croma_dask.SupportWarning")
def test_demo__draws_the_picture_of_the_readme(tmp_path: Path) -> None:
    """Said by what both pictures keep of what they show: pixels depend on fonts and versions."""
    pytest.importorskip("matplotlib")
    from PIL import Image

    demo = load_demo()
    cohorts = {
        name: cd.open_cohort(str(ROOT / "stores" / f"{store}.zarr"))
        for name, store in demo.EMBEDDINGS.items()
    }
    panel = cd.score(cohorts, confounder="scanner")
    demo.draw(panel, tmp_path / "demo.png")
    with Image.open(PICTURE) as kept, Image.open(tmp_path / "demo.png") as drawn:
        assert kept.text["Description"] == drawn.text["Description"] == demo.caption(panel)
        assert np.abs(np.subtract(kept.size, drawn.size)).max() <= 2
        corners = np.asarray(kept.convert("RGBA"))[[0, 0, -1, -1], [0, -1, 0, -1]]
        assert (corners == 255).all(), "opaque and white, to be read on a dark page too"
    assert PICTURE.stat().st_size < LARGEST


def test_demo__its_picture_is_in_the_readme() -> None:
    assert "docs/images/demo.png" in (ROOT / "README.md").read_text(encoding="utf-8")
