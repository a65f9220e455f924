"""`croma-dask benchmark`: what it prints, writes and refuses, and how it ends."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
import xarray as xr
from click.testing import CliRunner

import croma_dask as cd
from croma_dask.cli import main
from croma_dask.embedding import run as run_module
from croma_dask.embedding.outcome import BATCH_METRICS, BIO_METRICS, METRIC_NAMES
from tests.helpers.processes import ROOT, wait_until
from tests.helpers.samples import cells, digest_tree, write_h5ad

SAMPLES = ("001", "liver", "lung")
LONG = (
    "sample_id", "method", "metric", "value", "note", "metric_group", "n_cells", "n_dims",
    "n_labels", "n_batches",
)  # fmt: skip
WIDE_BIO = ("ARI", "ASW", "Acc@kNN", "COM", "FMI", "GC", "HOM", "NMI", "cLISI")
WIDE_BATCH = ("BRAS", "CiLISI", "iLISI", "kBET")
QUICK = ("--metrics", "GC")


def run(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["benchmark", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def table(path: Path) -> pd.DataFrame:
    return pd.read_csv(
        path, dtype={"sample_id": str}, float_precision="round_trip", keep_default_na=False,
        na_values=[""],
    )  # fmt: skip


def made(method: str, name: str) -> tuple[np.ndarray, pd.DataFrame]:
    seed = SAMPLES.index(name) + (10 if method == "pca" else 0)
    # The last sample has one batch: whatever compares batches has no value there.
    return cells(seed, 100, n_batches=1 if name == "lung" else 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Embeddings of three samples by two methods."""
    place = tmp_path_factory.mktemp("benchmark") / "embeddings"
    for method in ("scvi", "pca"):
        for name in SAMPLES:
            write_h5ad(place / method / f"{name}.h5ad", *made(method, name))
    return place


@pytest.fixture(scope="module")
def done(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """All metrics of all of them: the folder of the results, and what was said."""
    outdir = tmp_path_factory.mktemp("results")
    out = outdir / "all.zarr"
    result = run(
        folder / "scvi", "--embedding", folder / "pca", "--batch-key", "batch_id",
        "--output-dir", outdir, "--out", out,
    )  # fmt: skip
    return outdir, result


# ---- tables ----------------------------------------------------------------------------------


def test_benchmark__writes_the_tables_and_nothing_else(done: tuple[Path, Any]) -> None:
    outdir, result = done
    found = {str(path.relative_to(outdir)) for path in outdir.rglob("*") if path.is_file()}
    found = {name for name in found if not name.startswith("all.zarr/")}
    hidden = {name for name in found if name.startswith("benchmark/.croma/")}
    expected = set()
    for method in ("pca", "scvi"):
        for group in ("bio_conservation_leiden", "batch_mixing_leiden"):
            expected |= {f"benchmark/{method}_{group}_metrics_{s}.csv" for s in ("long", "wide")}
            expected |= {
                f"benchmark/{group}_metrics/{method}/{name}_{method}.csv" for name in SAMPLES
            }
        expected |= {
            f"benchmark/bio_conservation_leiden_predictions/{method}/"
            f"{name}_{method}_leiden_labels.tsv"
            for name in SAMPLES
        }
    assert found - hidden == expected
    assert sorted(path.name for path in outdir.iterdir()) == ["all.zarr", "benchmark"]
    assert "warning" not in result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "001 by pca: 100 x 6, 3 labels, 2 batches"
    assert lines[-4:] == ["", f"written: {outdir / 'all.zarr'}", "", f"tables: {outdir}/benchmark"]
    assert sum(line.startswith("  kBET") for line in lines) == 6


def test_benchmark__numbers_are_those_of_python(done: tuple[Path, Any]) -> None:
    outdir, _ = done
    given = {}
    for method in ("pca", "scvi"):
        for name in SAMPLES:
            x, obs = made(method, name)
            given[name, method] = (x, obs.rename_axis("sample_id").reset_index())
    expected = cd.embedding_benchmark(given, batch="batch_id")
    found = xr.open_zarr(outdir / "all.zarr").load()
    assert found.attrs.pop("format_version") == 1
    for result in (found, expected):
        result.attrs.pop("created")
        del result["about"]  # how it was searched: a store here, an array there
    xr.testing.assert_identical(found.drop_attrs(), expected.drop_attrs())
    assert found.attrs == expected.attrs
    for method in ("pca", "scvi"):
        for group, metrics in (
            ("bio_conservation", BIO_METRICS), ("batch_mixing", BATCH_METRICS),
        ):  # fmt: skip
            long = table(outdir / "benchmark" / f"{method}_{group}_leiden_metrics_long.csv")
            assert tuple(long.columns) == LONG
            keys = [(name, metric) for name in SAMPLES for metric in metrics]
            assert list(zip(long["sample_id"], long["metric"], strict=True)) == keys
            for row in long.to_dict("records"):
                at = expected.sel(dataset=row["sample_id"], metric=row["metric"])
                at = at.sel({"method": method})
                assert np.float64(row["value"]).tobytes() == at.value.values.tobytes()
                assert row["note"] == at.note.item()
                assert row["n_cells"] == at.n_cells
                assert row["n_labels"] == at.n_labels
                assert row["metric_group"] == group
                if group == "batch_mixing":
                    assert row["n_batches"] == at.n_batches
                else:
                    assert np.isnan(row["n_batches"])


def test_benchmark__every_row_and_column_is_there(done: tuple[Path, Any]) -> None:
    """Also of a sample with one batch, of which no metric of batches has a value."""
    tables = done[0] / "benchmark"
    for method in ("pca", "scvi"):
        wide = table(tables / f"{method}_batch_mixing_leiden_metrics_wide.csv")
        assert tuple(wide.columns) == ("sample_id", "method", *WIDE_BATCH)
        assert wide["sample_id"].tolist() == list(SAMPLES)
        assert wide.iloc[2, 2:].isna().all()
        assert not wide.iloc[:2, 2:].isna().any(axis=None)
        bio = table(tables / f"{method}_bio_conservation_leiden_metrics_wide.csv")
        assert tuple(bio.columns) == ("sample_id", "method", *WIDE_BIO)
        assert not bio.isna().any(axis=None)
        long = table(tables / "batch_mixing_leiden_metrics" / method / f"lung_{method}.csv")
        assert long["metric"].tolist() == list(BATCH_METRICS)
        assert long["value"].isna().all()
        assert long["note"].str.startswith("insufficient_batches").all()
        assert "bras_definition=cosine_mean_other" in long["note"][1]
        note = table(tables / f"{method}_bio_conservation_leiden_metrics_long.csv")["note"][0]
        assert note.startswith("clustering=leiden;selection=match_n_labels;resolution=")


def test_benchmark__predictions_name_cells_and_labels(
    done: tuple[Path, Any], tmp_path: Path
) -> None:
    outdir, _ = done
    _, obs = made("scvi", "001")
    path = outdir / "benchmark/bio_conservation_leiden_predictions/scvi/001_scvi_leiden_labels.tsv"
    frame = pd.read_csv(path, sep="\t", dtype=str)
    assert list(frame) == ["sample_id", "method", "barcode", "true_label", "leiden_label"]
    assert set(frame["sample_id"]) == {"001"}
    assert frame["barcode"].tolist() == obs.index.tolist()
    assert frame["true_label"].tolist() == obs["cell_type"].tolist()
    found = xr.open_zarr(outdir / "all.zarr")
    mine = (found["sample_dataset"] == "001") & (found["sample_method"] == "scvi")
    clusters = found["cluster"].values[mine.values]
    assert frame["leiden_label"].tolist() == [str(cluster) for cluster in clusters]


def test_benchmark__odd_labels_and_names_keep_to_their_cells(tmp_path: Path) -> None:
    x, obs = cells(3, 80, n_labels=4)
    odd = {"T0": 'tab\there, "quoted"', "T1": "two\nlines", "T2": "=1+1, comma", "T3": "naïve 肿瘤"}
    obs["cell_type"] = [odd[kind] for kind in obs["cell_type"]]
    obs.index = [f'{name}\t"{i}"\n' if i == 7 else name for i, name in enumerate(obs.index)]
    path = write_h5ad(tmp_path / "my method (v1)" / "bone marrow, left.h5ad", x, obs)
    run(path, "--metrics", "ARI", "--clustering", "kmeans", "--output-dir", tmp_path / "out")
    tables = tmp_path / "out" / "benchmark"
    name = "bone marrow, left_my-method-v1"
    place = tables / "bio_conservation_predictions" / "my-method-v1" / f"{name}_kmeans_labels.tsv"
    with open(place, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file, delimiter="\t")
    assert header[-1] == "kmeans_label"
    # What a spreadsheet would run as a formula begins with an apostrophe.
    labels = obs["cell_type"].replace("=1+1, comma", "'=1+1, comma")
    assert [row[3] for row in rows] == labels.tolist()
    assert [row[2] for row in rows] == [str(name).strip() for name in obs.index]
    assert {row[0] for row in rows} == {"bone marrow, left"}
    frame = table(tables / "my-method-v1_bio_conservation_metrics_long.csv")
    assert frame["sample_id"].tolist() == ["bone marrow, left"]
    assert frame["note"][0].startswith("clustering=kmeans;k=4;")


def test_rank__reads_the_tables_and_the_result(done: tuple[Path, Any], tmp_path: Path) -> None:
    outdir, _ = done
    tables = sorted((outdir / "benchmark").glob("*_wide.csv"))
    assert len(tables) == 4
    ranked = {}
    for name, given in (("tables", tables), ("result", [outdir / "all.zarr"])):
        out = tmp_path / f"{name}.nc"
        result = CliRunner().invoke(
            main, ["rank", *map(str, given), "--draws", "20", "--out", str(out)]
        )
        assert result.exit_code == 0, result.output
        with xr.open_datatree(out) as tree:
            ranked[name] = tree["ranks"].to_dataset().load() if "ranks" in tree else tree.load()
    (left, right) = ranked.values()
    assert left["dataset"].values.tolist() == list(SAMPLES), "001 is no number"
    for variable in ("metric_rank", "family_rank", "aggregate_rank"):
        xr.testing.assert_equal(left[variable], right[variable])
    # No metric of batches has a value in the last sample: its family is left out there.
    ranks = left["family_rank"].sel(dataset="lung")
    assert np.isnan(ranks.sel(family="batch_mixing")).all()
    assert not np.isnan(left["aggregate_rank"]).any()


# ---- inputs ----------------------------------------------------------------------------------


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nothing is scored: what would be is listed."""
    from croma_dask.embedding.outcome import Counts, Outcome, Scores

    names: list[str] = []

    def evaluate(embedding: Any, rows: Any, request: Any, *, dataset: str, method: str, **_: Any):
        names.append(f"{method}/{dataset}")
        return Scores(
            dataset, method, {name: Outcome(0.5) for name in request.metrics},
            Counts(rows.n_rows, 6, 3) if request.bio else None,
            Counts(rows.n_rows, 6, 3, 2) if request.mixing else None,
        )  # fmt: skip

    monkeypatch.setattr(run_module, "evaluate_embedding", evaluate)
    return names


def test_benchmark__takes_files_folders_patterns_and_stores(
    folder: Path, instant: list[str], tmp_path: Path
) -> None:
    x, obs = cells(1)
    cd.write_cohort(
        folder.parent / "stores" / "uce" / "001.zarr", x,
        obs.rename_axis("sample_id").reset_index(),
    )  # fmt: skip
    everything = [f"{method}/{name}" for method in ("pca", "scvi") for name in SAMPLES]
    for number, (given, expected) in enumerate(
        [
            ([folder / "scvi"], everything[3:]),
            ([folder / "scvi" / "001.h5ad", "--embedding", folder / "pca" / "lung.h5ad"],
             ["pca/lung", "scvi/001"]),
            ([f"{folder}/*/l*.h5ad"], [name for name in everything if "/l" in name]),
            ([folder / "scvi" / "001.h5ad", folder / "scvi"], everything[3:]),
            ([folder / "scvi", folder.parent / "stores" / "uce"], [*everything[3:], "uce/001"]),
            ([folder / "pca", "--method", "my PCA"], [f"my-PCA/{name}" for name in SAMPLES]),
        ]
    ):  # fmt: skip
        instant.clear()
        run(*given, *QUICK, "--output-dir", tmp_path / str(number), "-q")
        assert instant == expected


def test_benchmark__metric_sets(folder: Path, instant: list[str], tmp_path: Path) -> None:
    path = folder / "scvi" / "001.h5ad"
    for number, (options, metrics) in enumerate(
        [
            ((), BIO_METRICS),
            (("--batch-key", "site"), METRIC_NAMES),
            (("--batch-key", "site", "--metric-set", "bio"), BIO_METRICS),
            (("--batch-key", "site", "--metric-set", "batch"), BATCH_METRICS),
            (("--metrics", "ASW,GC", "--metrics", "ARI"), ("ARI", "ASW", "GC")),
        ]
    ):
        told = run(path, *options, "--output-dir", tmp_path / str(number)).stdout
        lines = [line.split() for line in told.splitlines()]
        assert [line[0] for line in lines[1:-2]] == list(metrics)


def test_benchmark__quiet_prints_nothing(folder: Path, instant: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        result = run(folder / "scvi", *QUICK, "--output-dir", tmp_path, "-q")
        assert result.output == ""
    assert len(instant) == 3


def test_benchmark__says_what_is_used_again(
    folder: Path, instant: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = run(folder / "scvi", *QUICK, "--output-dir", tmp_path)
    again = run(folder / "scvi", *QUICK, "--output-dir", tmp_path)
    assert len(instant) == 3
    assert first.stdout == again.stdout
    assert [m for m in caplog.messages if m.startswith("liver by scvi: tables of an earlier run")]
    run(folder / "scvi", *QUICK, "--output-dir", tmp_path, "--force")
    assert len(instant) == 6


@pytest.mark.parametrize("suffix", [".zarr", ".nc", ".csv", ".json"])
def test_benchmark__out(folder: Path, instant: list[str], tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"r{suffix}"
    call = (folder / "scvi", *QUICK, "--output-dir", tmp_path / "o", "--out", out)
    assert run(*call).stdout.splitlines()[-3] == f"written: {out}"
    assert out.exists()
    if suffix == ".csv":
        assert table(out.rename(tmp_path / "moved.csv"))["metric"].tolist() == ["GC"] * 3
        run(*call)
    refused = run(*call, code=2)
    assert refused.stderr.splitlines()[-1].startswith("error: ")
    assert "--overwrite" in refused.stderr
    run(*call, "--overwrite")
    assert len(instant) == 3


def test_plan__runs_nothing_and_writes_nothing(
    folder: Path, instant: list[str], tmp_path: Path
) -> None:
    before = digest_tree(folder)
    call = (folder / "scvi", "--batch-key", "batch_id", "--plan")
    alone = run(*call)
    with_folder = run(*call, "--output-dir", tmp_path / "o", "--out", tmp_path / "r.nc")
    for told in (alone.stdout, with_folder.stdout):
        assert told.startswith("allowed memory ")
        assert [line for line in told.splitlines() if line == "liver by scvi: 100 x 6"]
    assert instant == []
    assert list(tmp_path.iterdir()) == []
    assert digest_tree(folder) == before
    refused = run(*call, "--memory", "1MB", code=3)
    assert "needs at least" in refused.stderr


# ---- what is refused -------------------------------------------------------------------------


def refused(*arguments: object, code: int = 2) -> str:
    """The one line that a call is refused with."""
    result = run(*arguments, code=code)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1 or lines[0].startswith("Usage: "), result.stderr
    return lines[-1]


def test_benchmark__refuses_all_where_one_of_three_lacks_the_label(
    instant: list[str], tmp_path: Path
) -> None:
    for name in SAMPLES:
        x, obs = cells(1)
        obs = obs.rename(columns={"cell_type": "kind"}) if name == "lung" else obs
        write_h5ad(tmp_path / "scvi" / f"{name}.h5ad", x, obs)
    out = tmp_path / "out"
    told = refused(tmp_path / "scvi", "--output-dir", out)
    assert told == (
        f"error: {tmp_path}/scvi/lung.h5ad lacks column 'cell_type' (its columns: 'kind', "
        "'batch_id', 'site'): name the columns with --label-key and --batch-key"
    )
    assert instant == []
    assert not out.exists()


def test_benchmark__refuses_what_cannot_be_meant(
    folder: Path, instant: list[str], tmp_path: Path
) -> None:
    path, out = folder / "scvi" / "001.h5ad", ("--output-dir", tmp_path / "out")
    for arguments, message in (
        ((path, *QUICK), "name the folder of the tables with --output-dir"),
        ((*out, *QUICK), "no embeddings given; expected .h5ad files, cohort stores or folders"),
        ((path, "--metric-set", "bio", *QUICK, *out), "exclude each other"),
        ((path, "--metric-set", "batch", *out), "name their column as batch= (--batch-key)"),
        ((path, "--metrics", "asw", *out), "no metric is called 'asw'"),
        ((path, "--label-key", "site", "--batch-key", "site", *out), "both column 'site'"),
        ((path, "--key", "X_umap", *QUICK, *out), "has no obsm entry or X 'X_umap'"),
        ((path, "--out", tmp_path / "r.txt", *QUICK, *out), "expected one of .zarr, .nc, .csv"),
        ((tmp_path / "gone.h5ad", *out), f"there is no {tmp_path}/gone.h5ad"),
        ((path, "--embedding", folder / "pca" / "001.h5ad", "--method", "x", *out),
         "would both be sample '001' of method 'x'"),
        ((path, "--batch-max-cells", "-1", *out), "-1 is not in the range"),
        ((path, "--memory", "much", *out), "'much'"),
        ((path, "--dashboard", *out), "--dashboard is a cluster's"),
        ((path, *QUICK, "--output-dir", "https://host/out"), "nothing is written over HTTP"),
    ):  # fmt: skip
        assert message in refused(*arguments)
    assert instant == []
    assert not list(tmp_path.rglob("*.csv"))


def test_benchmark__refuses_a_key_for_stores(tmp_path: Path) -> None:
    x, obs = cells(1)
    place = cd.write_cohort(
        tmp_path / "M" / "a.zarr", x, obs.rename_axis("sample_id").reset_index()
    )
    told = refused(place, "--key", "X", "--output-dir", tmp_path / "out")
    assert "--key is for .h5ad files" in told


def test_benchmark__refuses_where_no_table_can_be_written(
    folder: Path, instant: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("somebody's")
    call = (folder / "scvi", *QUICK, "--output-dir")
    where = tmp_path / "file" / "benchmark"
    assert refused(*call, tmp_path / "file") == (
        f"error: no tables can be written to {where} (--output-dir): Not a directory"
    )
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "benchmark").write_text("somebody's")
    assert "(--output-dir): File exists" in refused(*call, tmp_path / "o")
    # Not even root may make a folder there.
    assert "no tables can be written to /proc/nothing" in refused(*call, "/proc/nothing")
    assert instant == []
    assert (tmp_path / "file").read_text() == "somebody's"


def test_benchmark__refuses_names_that_would_break_tables_or_leave_the_folder(
    instant: list[str], tmp_path: Path
) -> None:
    x, obs = cells(1)
    for number, name in enumerate(["a\nb", "a\x1b[31mb", "x" * 220]):
        path = write_h5ad(tmp_path / str(number) / "plain.h5ad", x, obs)
        path.rename(path.with_name(f"{name}.h5ad"))
        told = refused(path.parent, *QUICK, "--output-dir", tmp_path / "out")
        assert "cannot be part of a file name" in told or "bytes long" in told
    path = write_h5ad(tmp_path / "M" / "a.h5ad", x, obs)
    for given, method in (("..", "run"), ("../../up", "up"), ("/abs/x", "abs-x"), (".h", "h")):
        run(path, *QUICK, "--method", given, "--output-dir", tmp_path / "out", "-q")
        assert instant.pop() == f"{method}/a"
        tables = tmp_path / "out" / "benchmark" / "bio_conservation_leiden_metrics"
        assert (tables / method / f"a_{method}.csv").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "M", "out"]


def test_benchmark__too_little_memory_is_an_exit_code_of_its_own(
    folder: Path, tmp_path: Path
) -> None:
    told = refused(folder / "scvi", *QUICK, "--output-dir", tmp_path, "--memory", "1MB", code=3)
    assert told.startswith("error: 001 by scvi: the search needs at least ")
    assert "(--memory)" in told


def test_benchmark__a_metric_that_failed_is_told_at_the_end(tmp_path: Path) -> None:
    """Its tables are there, its reason is in the note, and the other samples are scored."""
    x, obs = cells(1)
    write_h5ad(tmp_path / "M" / "b.h5ad", x, obs)
    x[3] = 0
    write_h5ad(tmp_path / "M" / "a.h5ad", x, obs)
    call = (
        tmp_path / "M", "--metrics", "GC,BRAS", "--batch-key", "batch_id", "--output-dir",
        tmp_path / "out",
    )  # fmt: skip
    result = run(*call, code=5)
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].startswith("error: a by M: failed BRAS: SchemaError: the embedding has no d")
    tables = tmp_path / "out" / "benchmark"
    wide = table(tables / "M_batch_mixing_leiden_metrics_wide.csv")
    assert wide["BRAS"].isna().tolist() == [True, False]
    note = table(tables / "batch_mixing_leiden_metrics" / "M" / "a_M.csv")["note"][0]
    assert note.startswith("metric_failed=SchemaError:the embedding has no direction")
    assert ";bras_definition=cosine_mean_other" in note
    assert table(tables / "M_bio_conservation_leiden_metrics_wide.csv")["GC"].notna().all()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["benchmark"]
    assert run(*call, code=5).stderr.count("error: ") == 1


def test_benchmark__an_input_that_cannot_be_scored_is_told_at_the_end(
    folder: Path, instant: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = run_module.evaluate_embedding

    def or_raise(*args: Any, dataset: str, **more: Any) -> Any:
        if dataset == "liver":
            raise cd.SchemaError("rows 3, 8 are\nlonger than 1e150")
        return evaluate(*args, dataset=dataset, **more)

    monkeypatch.setattr(run_module, "evaluate_embedding", or_raise)
    result = run(folder / "scvi", "--batch-key", "batch_id", "--output-dir", tmp_path, code=5)
    assert instant == ["scvi/001", "scvi/lung"]
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert errors == [
        "error: liver by scvi: failed all metrics: SchemaError: rows 3, 8 are longer than 1e150"
    ]
    for group in ("bio_conservation", "batch_mixing"):
        wide = table(tmp_path / "benchmark" / f"scvi_{group}_leiden_metrics_wide.csv")
        assert wide["sample_id"].tolist() == list(SAMPLES)
        assert wide.iloc[:, 2:].isna().all(axis=1).tolist() == [False, True, False]


# ---- the approximate index -------------------------------------------------------------------


@pytest.mark.slow
def test_benchmark__searches_through_an_index(tmp_path: Path) -> None:
    """Notes tell its recall, a second call takes all from the record, and no index is left."""
    path = write_h5ad(tmp_path / "M" / "a.h5ad", *cells(1, 3000))
    out = tmp_path / "out"
    call = (path, "--metrics", "GC,iLISI", "--batch-key", "batch_id", "--index", "ivf",
            "--calibration", "200", "--output-dir", out)  # fmt: skip
    run(*call, "--out", tmp_path / "r.nc")
    notes = pd.concat(
        table(out / "benchmark" / f"M_{group}_leiden_metrics_long.csv")
        for group in ("bio_conservation", "batch_mixing")
    ).set_index("metric")["note"]
    assert list(notes.index) == ["GC", "iLISI"]
    assert notes.str.contains("index=ivf;recall=").all(), notes.tolist()
    with xr.open_dataset(tmp_path / "r.nc") as found:
        assert found.attrs["index"] == "ivf"
    assert not [p for p in tmp_path.rglob("*.ivf.zarr")]
    assert [p.name for p in out.iterdir()] == ["benchmark"]
    before = digest_tree(out)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_module, "evaluate_embedding", None)
        run(*call)
    assert digest_tree(out) == before


def test_benchmark__another_search_is_another_run(
    folder: Path, instant: list[str], tmp_path: Path
) -> None:
    call = (folder / "scvi" / "001.h5ad", *QUICK, "--output-dir", tmp_path / "out")
    for number, more in enumerate(
        [(), ("--index", "ivf"), ("--index", "ivf", "--recall", "0.9"), ("--index", "pynndescent"),
         ("--index", "ivf", "--calibration", "500"), ("--index", "auto")]
    ):  # fmt: skip
        for _ in range(2):
            run(*call, *more, "-q")
            assert len(instant) == number + 1


def test_benchmark__refuses_a_search_that_cannot_be_meant(
    folder: Path, instant: list[str], tmp_path: Path
) -> None:
    call = (folder / "scvi", *QUICK, "--output-dir", tmp_path / "out", "--index")
    assert "'annoy' is not one of" in refused(*call, "annoy")
    assert "recall must be in (0, 1]" in refused(*call, "ivf", "--recall", "2")
    assert "calibration must be at least 100" in refused(*call, "ivf", "--calibration", "5")
    assert instant == []


# ---- scratch and processes -------------------------------------------------------------------


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command as a process; `first` is done in it before."""
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: object, first: str = "") -> subprocess.Popen[str]:
        code = f"{first}\nfrom croma_dask.cli import main; main()"
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", code, "benchmark", *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )  # fmt: skip
        )
        return started[-1]

    yield call
    for process in started:
        process.kill()
        process.communicate()


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.mark.slow
def test_kill__the_next_run_goes_on_with_the_sample_it_was_at(
    start: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the second of three is scored; the tables are those of an undisturbed run."""
    for seed, name in enumerate(SAMPLES):
        write_h5ad(
            tmp_path / "scvi" / f"{name}.h5ad", *cells(seed, 1000 if name == "liver" else 90)
        )
    out = tmp_path / "out"
    options = ("--metrics", "NMI,cLISI,GC,CiLISI", "--batch-key", "batch_id", "--threads", "1")
    process = start(tmp_path / "scvi", *options, "--output-dir", out)
    first = out / "benchmark" / ".croma" / "leiden" / "scvi" / "001_scvi" / "record.json"
    wait_until(lambda: first.exists() or process.poll() is not None, "the first sample")
    scratch = out / ".benchmark.scratch"
    wait_until(
        lambda: list(scratch.glob("h5ad-*/rows.zarr/zarr.json")) or process.poll() is not None,
        "the second sample",
    )
    process.kill()
    _, stderr = process.communicate()
    assert process.returncode == -signal.SIGKILL, stderr
    assert not first.with_name("liver_scvi").exists()
    assert list(scratch.iterdir()), "what it was working on"
    written = first.stat().st_mtime_ns

    scored: list[str] = []
    evaluate = run_module.evaluate_embedding

    def count(*args: Any, dataset: str, **more: Any) -> Any:
        scored.append(dataset)
        return evaluate(*args, dataset=dataset, **more)

    monkeypatch.setattr(run_module, "evaluate_embedding", count)
    run(tmp_path / "scvi", *options, "--output-dir", out)
    assert scored == ["liver", "lung"]
    assert first.stat().st_mtime_ns == written
    assert [path.name for path in out.iterdir()] == ["benchmark"], "no scratch is left"
    run(tmp_path / "scvi", *options, "--output-dir", tmp_path / "whole")
    assert digest_tree(out) == digest_tree(tmp_path / "whole")


def test_interrupt__ends_at_once_with_all_that_it_has_started(
    start: Callable, tmp_path: Path
) -> None:
    write_h5ad(tmp_path / "scvi" / "a.h5ad", *cells(1, 600))
    out = tmp_path / "out"
    # Leiden of so few cells is not worth processes: here it is.
    process = start(
        tmp_path / "scvi", "--metrics", "NMI", "--threads", "2", "--output-dir", out,
        first="import croma_dask.embedding.leiden_runs as runs; runs.FEW_EDGES = 0",
    )  # fmt: skip
    found = wait_until(lambda: children(process) or process.poll() is not None, "its processes")
    assert found is not True, process.communicate()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert stderr.strip().splitlines()[-1].startswith("error: interrupted: start the same ")
    assert "Traceback" not in stderr
    wait_until(lambda: not any(child.is_running() for child in found), "the end of all of them")
    assert not list(out.rglob("*.csv"))
    assert not list(out.glob(".benchmark.scratch/h5ad-*")), "what cannot be resumed from goes"


@pytest.mark.cluster
@pytest.mark.slow
def test_workers__give_the_same_bits(
    start: Callable, folder: Path, done: tuple[Path, Any], tmp_path: Path
) -> None:
    process = start(
        folder / "scvi", folder / "pca", "--batch-key", "batch_id", "--workers", "2",
        "--output-dir", tmp_path, "-q",
    )  # fmt: skip
    stdout, stderr = process.communicate(timeout=300)
    assert (process.returncode, stdout) == (0, ""), stderr
    assert "Traceback" not in stderr
    mine, other = digest_tree(tmp_path / "benchmark"), digest_tree(done[0] / "benchmark")
    assert mine.keys() == other.keys()
    # A record says how it was searched, too.
    assert all(mine[name] == other[name] for name in mine if not name.endswith("record.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["benchmark"]


@pytest.mark.slow
@pytest.mark.cluster
def test_interrupt__workers_end_with_it(start: Callable, folder: Path, tmp_path: Path) -> None:
    process = start(folder / "scvi", *QUICK, "--workers", "2", "--output-dir", tmp_path)
    found = wait_until(
        lambda: list(tmp_path.glob(".benchmark.scratch/h5ad-*")) or process.poll() is not None,
        "the first sample",
    )
    assert found is not True, process.communicate()
    found = children(process)
    assert len(found) >= 2, "its workers"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=100)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    wait_until(lambda: not any(child.is_running() for child in found), "the end of all of them")
