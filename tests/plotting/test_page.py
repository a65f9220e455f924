"""docs/plots.md: what stands there runs as it stands."""

from __future__ import annotations

import textwrap
import warnings
from itertools import groupby
from pathlib import Path

import pytest

import croma_dask as cd
from croma_dask import plotting

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "plots.md"


def blocks() -> list[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [
        textwrap.dedent("\n".join(part)).strip()
        for is_block, part in groupby(lines, lambda line: not line or line.startswith("    "))
        if is_block
    ]
    return [block for block in found if block]


def test_page__tells_of_every_plot() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in plotting.__all__:
        if name != "PlotAccessor":
            assert f"plot.{name}(" in page


@pytest.mark.slow
def test_page__snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    (tmp_path / "stores").symlink_to(ROOT / "stores")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with matplotlib.rc_context({"backend": "Agg"}), warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        plt = pytest.importorskip("matplotlib.pyplot")
        try:
            for block in blocks():
                exec(compile(block, PAGE.name, "exec"), names)
        finally:
            plt.close("all")
    assert (tmp_path / "margins.png").stat().st_size > 10_000
