"""What docs/embedding.md shows works as it stands there, and so does its example."""

from __future__ import annotations

import dataclasses
import glob
import importlib.util
import shlex
import textwrap
import warnings
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

import croma_dask as cd
from croma_dask.embedding.outcome import METRIC_NAMES
from croma_dask.embedding.request import Readings
from croma_dask.results import summary

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "embedding.md"
SHOWN = ("results/benchmark/", "method ")
"""How blocks begin that are to be looked at and not to be run."""

WITH_INDEX = 'index="ivf"'
"""Stands in the block whose kernels take a quarter of a minute to compile."""


def blocks(page: Path) -> Iterator[str]:
    """Yield the indented blocks of a page, in their order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for is_block, part in groupby(lines, lambda line: not line or line.startswith("    ")):
        block = textwrap.dedent("\n".join(part)).strip()
        if is_block and block:
            yield block


def cells(seed: int, n: int = 300) -> tuple[np.ndarray, pd.DataFrame]:
    """Cells that overlap, so that no metric is at the end of its range."""
    rng = np.random.default_rng(seed)
    kind, donor = rng.integers(0, 3, n), rng.integers(0, 2, n)
    x = rng.normal(size=(3, 6))[kind] + 0.3 * donor[:, None] + 0.8 * rng.normal(size=(n, 6))
    names = np.array(["B cell", "NK", "T cell"], object)[kind]
    obs = {"cell_type": names, "donor": np.array(["d1", "d2"], object)[donor]}
    return x.astype(np.float32), pd.DataFrame(obs, index=[f"cell-{i}" for i in range(n)])


@pytest.fixture
def embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder that holds the files of the page."""
    import anndata

    for seed, place in enumerate(
        f"embeddings/{method}/{sample}.h5ad"
        for method in ("scvi", "pca")
        for sample in ("lung", "liver")
    ):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        x, obs = cells(seed)
        anndata.AnnData(x, obs=obs).write_h5ad(path)
    x, obs = cells(9)
    genes = np.random.default_rng(0).poisson(1.0, (len(obs), 5)).astype(np.float32)
    both = {"X_scvi": x, "X_pca": x[:, :4]}
    anndata.AnnData(genes, obs=obs, obsm=both).write_h5ad(tmp_path / "atlas.h5ad")
    manifest = obs.assign(sample_id=obs.index)
    cd.write_cohort(tmp_path / "atlas.zarr", x, manifest, label="cell_type")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_page__snippets_run_as_they_stand(
    embeddings: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    ran = {"shell": 0, "python": 0}
    with cd.set_options(quiet=True):
        for block in blocks(PAGE):
            if block.startswith("croma-dask "):
                for line in block.splitlines():
                    words = [w for word in shlex.split(line)[1:] for w in glob.glob(word) or [word]]
                    done = run(*words)
                    assert done.exit_code == 0, f"{line}\n{done.output}"
                    ran["shell"] += 1
            elif not block.startswith(SHOWN) and WITH_INDEX not in block:
                exec(compile(block, str(PAGE), "exec"), names)
                ran["python"] += 1
    assert ran["shell"] >= 6
    assert ran["python"] >= 8
    tables = sorted(path.name for path in (embeddings / "results/benchmark").glob("scvi_*.csv"))
    shown = PAGE.read_text(encoding="utf-8")
    assert len(tables) == 4
    assert all(name.replace("scvi", "<method>") in shown for name in tables)
    # What comments say of the last results.
    several = names["several"]
    assert names["scvi"].sizes["sample"] == several.sizes["sample"] // 2
    again = names["scvi"].bras.groupby("label").mean().mean().item()
    bras = several.value.sel({"method": "X_scvi", "metric": "BRAS"}).item()
    assert again == pytest.approx(bras, abs=1e-12)


@pytest.mark.slow
def test_page__the_index_is_what_it_says(embeddings: Path) -> None:
    names: dict[str, Any] = {"cd": cd}
    (block,) = (block for block in blocks(PAGE) if WITH_INDEX in block)
    with cd.set_options(quiet=True):
        exec(compile(block, str(PAGE), "exec"), names)
    result = names["result"]
    assert ";index=ivf;recall=" in result.note.sel(metric="cLISI").item()
    assert "cLISI_error" in result.about.item()
    assert (embeddings / "atlas.euclidean.ivf.zarr").exists()


def test_page__notes_are_those_that_the_benchmark_writes() -> None:
    shown = PAGE.read_text(encoding="utf-8").replace("`", " ").replace(";", " ")
    for how in ({}, {"asw": "interval", "clustering": "kmeans", "batch_max_cells": 100}):
        found = cd.embedding_benchmark(*cells(5, 120), batch="donor", quiet=True, **how)
        for note in found.note.values.ravel():
            for part in str(note).split(";"):
                name = part.partition("=")[0]
                assert f" {name}" in shown, f"{part!r} is not on the page"


def test_page__has_every_metric_and_reading() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    for metric in METRIC_NAMES:
        assert f"\n| {metric} |" in shown
    for field in dataclasses.fields(Readings):
        assert f"\n| `{field.name}` |" in shown
        assert field.default is None or f'"{field.default}"' in shown


def test_example__prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "examples" / "embedding_benchmark.py"
    spec = importlib.util.spec_from_file_location("embedding_benchmark_example", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with cd.set_options(quiet=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        example.main()
    printed = capsys.readouterr().out
    table = [" ".join(line.split()) for line in printed.split("\n\n")[0].splitlines()]
    shown = {" ".join(line.split()) for line in PAGE.read_text(encoding="utf-8").splitlines()}
    assert len(table) == 15
    # Clusters of k-means may be others with another build of BLAS.
    settled = [line for line in table if line.split()[0] not in ("NMI", "HOM", "COM", "FMI", "ARI")]
    assert [line for line in settled if line not in shown] == []
    assert "weighted mean" in printed
    assert "all families" in printed


def test_summary__of_several_methods_names_each() -> None:
    x, obs = cells(3, 80)
    several = {("a", "one"): (x, obs), ("a", "two"): (x[:, :3], obs)}
    result = cd.embedding_benchmark(several, metrics=["ASW"], quiet=True)
    lines = summary(result).splitlines()
    assert lines[0] == "a by one"
    assert lines[2] == "a by two"
    value = result.value.sel({"method": "two"}).item()
    assert lines[3].split() == ["ASW", f"{value:.4f}"]


def test_benchmark__auto_takes_the_exact_search_of_few_rows() -> None:
    x, obs = cells(4, 80)
    how: dict[str, Any] = {"batch": "donor", "metrics": ["cLISI", "CiLISI"], "quiet": True}
    found = cd.embedding_benchmark(x, obs, index="auto", **how)
    expected = cd.embedding_benchmark(x, obs, **how)
    np.testing.assert_array_equal(found.value, expected.value)
    np.testing.assert_array_equal(found.note, expected.note)
    assert '"index": "exact"' in found.about.item()
