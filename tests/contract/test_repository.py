"""What a stranger finds in the repository holds together: links, demo stores, examples."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import croma_dask as cd
from tests.helpers.marks import first

ROOT = Path(__file__).resolve().parents[2]
DEMO = ["digits_raw", "digits_normalised"]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_docs__links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def load_make_demo() -> ModuleType:
    path = ROOT / "stores" / "make_demo.py"
    spec = importlib.util.spec_from_file_location("make_demo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_demo_stores__are_small() -> None:
    files = [f for name in DEMO for f in (ROOT / "stores" / f"{name}.zarr").rglob("*")]
    assert sum(file.stat().st_size for file in files if file.is_file()) < 1 << 20


def test_demo_stores__are_what_their_script_builds() -> None:
    embeddings, manifest = load_make_demo().build()
    assert list(embeddings) == DEMO
    for name, expected in embeddings.items():
        cohort = cd.open_cohort(str(ROOT / "stores" / f"{name}.zarr"))
        found = cohort["embedding"].values
        assert found.dtype == expected.dtype
        # Powers may differ by a unit in the last place between maths libraries.
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-6)
        for column in manifest:
            np.testing.assert_array_equal(cohort[column].values, manifest[column])


@pytest.mark.parametrize(
    "script", first(1, ["score_arrays.py", "demo.py", "compare_stores.py", "probe_sweep.py"])
)
def test_examples__run_without_a_warning(script: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path)] if script == "demo.py" else []
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / script), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not done.stderr
    if script == "demo.py":
        heading = done.stdout.index("raw pixels")
        rows = done.stdout[heading:].split("\n\n")[0].splitlines()
        shown = (ROOT / "README.md").read_text(encoding="utf-8")
        assert [row for row in rows if row.strip() not in shown] == []
