"""`croma-dask rank`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

from croma_dask import results
from croma_dask.cli import CromaGroup
from croma_dask.cli_rank import rank
from croma_dask.embedding.outcome import BATCH_METRICS, BIO_METRICS
from croma_dask.embedding.rank_report import leaderboard, rank_text, with_ranks
from croma_dask.embedding.rank_statistics import rank_statistics
from croma_dask.embedding.ranks import rank_embeddings
from croma_dask.errors import SchemaError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ranks.md"
METHODS = {"PCA": 0.0, "scVI": 0.15, "Geneformer": -0.1, "UCE": 0.12}
group = CromaGroup(commands={"rank": rank})


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Wide tables of label and batch metrics; every third data set has one batch."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(3)
    for name, metrics, skipped in (("bio", BIO_METRICS, ()), ("batch", BATCH_METRICS, (0, 3, 6))):
        rows = [
            {"sample_id": f"{t:03d}", "method": method,
             **{metric: 0.5 + shift + rng.normal(0, 0.1) for metric in metrics}}
            for t in range(8) if t not in skipped
            for method, shift in METHODS.items()
        ]  # fmt: skip
        pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)
    return [str(folder / "bio.csv"), str(folder / "batch.csv")]


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(group, ["rank", *arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def test_rank__prints_positions_and_tests(tables: list[str]) -> None:
    told = run(*tables, "--baseline", "PCA", "--baseline", "UCE", "--draws", "200").output
    lines = told.splitlines()
    ranks = rank_embeddings(tables)
    found = rank_statistics(ranks, baselines=["PCA", "UCE"], n_draws=200)
    frame = leaderboard(with_ranks(ranks, found))
    assert lines[0].split() == [
        "method", "mean", "rank", "95", "%", "interval", "P(best)", "data", "sets", *"ABCD",
    ]  # fmt: skip
    for line, (_, row) in zip(lines[1:5], frame.iterrows(), strict=True):
        cells = line.split()
        assert cells[:3] == [f"{row['position']:g}", row["method"], f"{row['mean_rank']:.3f}"]
        assert cells[3:6] == [f"{row['interval_low']:.3f}", "to", f"{row['interval_high']:.3f}"]
    assert "D batch_mixing (weight 0.25)" in told
    assert f"Friedman: chi-squared(3) = {float(found['friedman'].statistic):.4g}" in told
    assert "Leaving one data set out: Spearman at least " in told
    assert "Against PCA" in told
    assert "Against UCE" in told
    assert told == run(*tables[::-1], "--baseline", "PCA,UCE", "--draws", "200").output


def test_ranks__are_told_and_saved_as_other_results_are(tables: list[str], tmp_path: Path) -> None:
    ranks = rank_embeddings(tables)
    statistics = rank_statistics(ranks, n_draws=50)
    tree = with_ranks(ranks, statistics)
    assert results.summary(tree) == rank_text(tree)
    pd.testing.assert_frame_equal(results.to_frame(tree), leaderboard(tree))
    for suffix in (".csv", ".json"):
        results.save(tree, tmp_path / f"saved{suffix}")
        run(*tables, "--draws", "50", "--out", str(tmp_path / f"written{suffix}"), "-q")
        saved, written = (
            (tmp_path / f"{name}{suffix}").read_text(encoding="utf-8").splitlines()
            for name in ("saved", "written")
        )
        # All but the second at which they were made.
        assert [a for a in saved if '"created"' not in a] == [
            b for b in written if '"created"' not in b
        ]
    for part in (ranks, statistics):
        assert len(results.to_frame(part)), "texts among the values do no harm"
        with pytest.raises(SchemaError, match="ranks and their statistics together"):
            results.summary(part)


def test_rank__passes_its_options_on(tables: list[str]) -> None:
    options = "--weights batch_mixing=0 --weights local_cell_type_neighborhood_structure=1"
    told = run(*tables, *options.split(), "--decimals", "2", "--seed", "5").output
    assert "batch_mixing (weight 0)" in told
    assert "neighborhood_structure (weight 1)" in told
    assert "Rounding to 2 decimals" in told
    weights = {"batch_mixing": 0.0, "local_cell_type_neighborhood_structure": 1.0}
    ranks = rank_embeddings(tables, weights=weights, decimals=2)
    frame = leaderboard(with_ranks(ranks, rank_statistics(ranks, seed=5)))
    for line, (_, row) in zip(told.splitlines()[1:5], frame.iterrows(), strict=True):
        assert f"{row['interval_low']:.3f} to {row['interval_high']:.3f}" in line


def test_rank__writes_what_python_returns(tables: list[str], tmp_path: Path) -> None:
    options = ["--baseline", "PCA", "--draws", "50", "-q"]
    for ending in ("csv", "json", "nc", "zarr"):
        out = str(tmp_path / f"r.{ending}")
        assert run(*tables, *options, "--out", out).output == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.json", "r.nc", "r.zarr"]
    ranks = rank_embeddings(tables)
    tree = with_ranks(ranks, rank_statistics(ranks, n_draws=50, baselines=["PCA"]))
    frame = pd.read_csv(tmp_path / "r.csv", dtype=str)
    expected = leaderboard(tree)
    assert list(frame) == list(expected)
    assert frame.pop("method").tolist() == expected.pop("method").tolist()
    np.testing.assert_array_equal(frame.map(float), expected)
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["ranks"]["data_vars"]["mean_rank"]["data"] == ranks.mean_rank.values.tolist()
    assert set(told) == {"attrs", "ranks", "bootstrap", "friedman", "wilcoxon", "leave_one_out"}
    for name, engine in (("r.nc", "h5netcdf"), ("r.zarr", "zarr")):
        read = xr.open_datatree(tmp_path / name, engine=engine).load()
        for node in tree.children:
            for variable, expected in tree[node].to_dataset().data_vars.items():
                np.testing.assert_array_equal(
                    read[node][variable].values.astype(expected.dtype), expected.values
                )
        assert read["ranks"]["dataset"].values.tolist() == [f"{t:03d}" for t in range(8)]


@pytest.mark.parametrize("ending", ["csv", "json", "nc"])
def test_rank__replaces_when_told_to(ending: str, tables: list[str], tmp_path: Path) -> None:
    out = tmp_path / f"r.{ending}"
    out.write_text("old")
    again = [*tables, "--draws", "10", "--out", str(out)]
    assert "exists already" in run(*again, code=2).output
    assert out.read_text() == "old"
    assert f"written: {out}" in run(*again, "--overwrite").output
    assert out.read_bytes() != b"old"
    assert list(tmp_path.iterdir()) == [out]


def test_rank__replaces_a_zarr_result_of_its_own(tables: list[str], tmp_path: Path) -> None:
    out = str(tmp_path / "r.zarr")
    run(*tables, "--draws", "10", "--out", out)
    assert "exists already" in run(*tables, "--draws", "10", "--out", out, code=2).output
    assert "written" in run(*tables, "--draws", "20", "--out", out, "--overwrite").output


def test_rank__reads_what_a_benchmark_has_saved(tables: list[str], tmp_path: Path) -> None:
    frames = [pd.read_csv(t, dtype={"sample_id": str}) for t in tables]
    wide = frames[0].merge(frames[1], how="left").set_index(["sample_id", "method"])
    array = wide.rename_axis(columns="metric").stack(future_stack=True).to_xarray()
    saved = array.rename(sample_id="dataset").to_dataset(name="value")
    saved = saved.assign_coords({dim: saved[dim].astype(object) for dim in saved.dims})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently")
        saved.to_zarr(tmp_path / "b.zarr")
    told = run(str(tmp_path / "b.zarr"), "--draws", "50").output
    assert told == run(*tables, "--draws", "50").output


REFUSED = [
    (["--weights", "batch_mixing"], "expected NAME=VALUE"),
    (["--weights", "batch_mixing=much"], "'much' is no number"),
    (["--weights", "batch=1"], "no family 'batch'"),
    (["--baseline", "pca"], "no method 'pca'; the methods are 'Geneformer', 'PCA'"),
    (["--decimals", "-1"], "--decimals"),
    (["--draws", "0"], "--draws"),
    (["--out", "r.txt"], "expected one of"),
    (["no-such.csv"], "no-such.csv"),
    (["no-such.nc"], "no-such.nc"),
    (["no-such.zarr"], "no-such.zarr"),
]


@pytest.mark.parametrize(("more", "told"), REFUSED)
def test_rank__refuses(more: list[str], told: str, tables: list[str]) -> None:
    assert told in run(*tables, *more, code=2).output


def test_rank__needs_a_table(tables: list[str]) -> None:
    assert "Missing argument" in run(code=2).output
    assert "given twice: ('000', 'PCA')" in run(tables[0], tables[0], code=2).output


def test_page__shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of docs/ranks.md, from its own table."""
    page = PAGE.read_text(encoding="utf-8")
    blocks = [
        "".join(f"{line[4:]}\n" for line in block.splitlines())
        for block in page.split("\n\n")
        if block.startswith("    ")
    ]
    table = next(block for block in blocks if block.startswith("sample_id,"))
    printed = next(block for block in blocks if "mean rank" in block)
    monkeypatch.chdir(tmp_path)
    Path("scores.csv").write_text(table)
    assert "`croma-dask rank scores.csv` prints" in page
    assert run("scores.csv").output.startswith(printed)
