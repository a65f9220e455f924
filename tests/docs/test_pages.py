"""Who follows a page by copy and paste succeeds, and sees what it shows.

Pages that belong to one subject are run by the tests of that: tests/breakdown, tests/plotting,
tests/uncertainty, tests/report, tests/faces.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

import croma_dask as cd
from croma_dask.results import save
from tests.docs.pages import DOCS, Block, run_page


def test_getting_started__works_from_the_files_to_the_report(
    folder: Path, run: Callable[..., Result]
) -> None:
    count = run_page(DOCS / "getting-started.md", run, {})
    assert count["command"] >= 6
    assert count["python"] >= 4
    assert count["shown"] >= 9
    assert (folder / "margins.png").stat().st_size > 10_000
    assert "Digits, two scanners" in (folder / "report.html").read_text(encoding="utf-8")


def small_manifest(n: int = 80) -> pd.DataFrame:
    at = np.arange(n)
    return pd.DataFrame(
        {
            "sample_id": [f"tile-{i}" for i in at],
            "label": np.array(["normal", "tumour"])[at % 2],
            "center": np.array(["A", "B"])[at // 2 % 2],
            "scanner": np.array(["1", "2"])[at // 4 % 2],
            "group_id": [f"slide-{i // 2}" for i in at],
        }
    )


def write_stores(names: tuple[str, ...], rng: np.random.Generator) -> None:
    for name in names:
        cd.write_cohort(f"{name}.zarr", rng.normal(size=(80, 5)), small_manifest())


@pytest.mark.slow
def test_panels__works_on_stores_arrays_and_results(
    folder: Path, run: Callable[..., Result], rng: np.random.Generator
) -> None:
    write_stores(("uni", "virchow", "phikon", "a", "b", "c"), rng)
    for name, ending in (("uni", "zarr"), ("virchow", "nc")):
        save(cd.score(f"{name}.zarr", confounder="center"), f"{name}-result.{ending}")
    names: dict[str, Any] = {
        "x": rng.normal(size=(80, 6)),
        "y": rng.normal(size=(80, 4)),
        "manifest": small_manifest().rename(columns={"scanner": "batch"}),
        "result": cd.score("phikon.zarr", confounder="center"),
    }
    count = run_page(DOCS / "panels.md", run, names, skip=lambda block: block.kind == "shown")
    assert count["command"] == 2
    assert count["python"] >= 3
    assert list(names["more"]["CRoMa"].model.values) == ["UNI", "Virchow", "new"]
    named = cd.open_result("named.zarr")
    assert list(named["CRoMa"].model.values) == ["lab/large", "lab/small v2", "baseline"]


@pytest.mark.slow
def test_report__works_on_one_result_and_several(
    folder: Path, run: Callable[..., Result], rng: np.random.Generator
) -> None:
    write_stores(("uni", "virchow"), rng)
    one, other = (cd.score(f"{name}.zarr", confounder="scanner") for name in ("uni", "virchow"))
    for tree, path in ((one, "result"), (one, "uni_result"), (other, "virchow_result")):
        save(tree, f"{path}.zarr")

    def remove_pages(block: Block) -> bool:
        """A reader takes the command or the function, and the page is called the same."""
        for page in folder.glob("*.html"):
            page.unlink()
        return False

    names: dict[str, Any] = {"result": one, "one": one, "other": other}
    count = run_page(DOCS / "report.md", run, names, skip=remove_pages)
    assert count["command"] == 3
    assert count["python"] == 1
    assert {path.name for path in folder.glob("*.html")} == {"report.html", "models.html"}
