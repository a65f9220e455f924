"""What docs/breakdown.md shows works as it stands there."""

from __future__ import annotations

import shlex
import textwrap
import warnings
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import croma_dask as cd
from croma_dask.cli import CromaGroup
from croma_dask.cli_breakdown import breakdown, explain
from croma_dask.cli_score import score
from croma_dask.schema_breakdown import BREAKDOWN, EXPLANATION
from tests.helpers.cohorts import features, manifest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "breakdown.md"
MAIN = CromaGroup("croma-dask", commands=[breakdown, explain, score])


def blocks() -> Iterator[str]:
    """Yield the indented blocks of the page, in their order."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for is_block, part in groupby(lines, lambda line: not line or line.startswith("    ")):
        block = textwrap.dedent("\n".join(part)).strip()
        if is_block and block:
            yield from (piece for piece in block.split("\n\n") if piece.strip())


def test_page__snippets_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    at = np.arange(160)
    x = features(rng, at % 2, at // 2 % 3, 5)
    ids = [f"tile_{i:04d}" for i in at]
    label = np.array(["normal", "tumour"])[at % 2]
    frame = manifest(label, np.array(["A", "B", "C"])[at // 2 % 3], at // 10, sample_id=ids)
    frame["scanner"] = np.array(["s1", "s2"])[at // 6 % 2]
    monkeypatch.chdir(tmp_path)
    cd.write_cohort("cohort.zarr", x, frame)
    names: dict[str, Any] = {}
    ran = {"shell": 0, "python": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for block in blocks():
            if block.startswith("croma-dask "):
                for line in block.splitlines():
                    done = CliRunner().invoke(MAIN, shlex.split(line)[1:], catch_exceptions=False)
                    assert done.exit_code == 0, f"{line}\n{done.output}"
                    ran["shell"] += 1
            else:
                exec(compile(block, str(PAGE), "exec"), names)
                ran["python"] += 1
    assert (ran["shell"], ran["python"]) == (6, 5)
    # What the page says of the last ones.
    result, told = names["result"], names["told"]
    assert float(told.margin) == result["CRoMa"].sample_values.sel(m=5).values[3]
    assert float(told.ri) == result["RI"].sample_values.values[3]
    assert float(told.mari) == pytest.approx(result["MaRI"].sample_values.values[3], abs=1e-12)
    picked = cd.open_cohort("cohort.zarr").isel(sample=told.manifest_row)
    assert picked["sample_id"].values.tolist() == told["neighbor_id"].values.tolist()


def test_page__names_every_variable() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    for name in {*EXPLANATION, *(v for variables in BREAKDOWN.values() for v in variables)}:
        assert f"`{name}`" in shown, name
