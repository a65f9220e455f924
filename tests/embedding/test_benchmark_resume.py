"""What a benchmark that is started again computes again, and what not."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import croma_dask as cd
from croma_dask.approximate import Approximation
from croma_dask.embedding import run as run_module
from croma_dask.embedding import sources as sources_module
from croma_dask.embedding.inputs import expand_paths
from croma_dask.embedding.label import Evaluated
from croma_dask.embedding.outcome import (
    BATCH_METRICS,
    BIO_METRICS,
    METRIC_NAMES,
    Counts,
    Outcome,
    Scores,
)
from croma_dask.embedding.request import Readings, Request
from croma_dask.embedding.run import run_inputs
from croma_dask.embedding.sources import READINGS_OF
from croma_dask.options import merged
from tests.helpers.samples import cells, digest_tree, write_h5ad

SAMPLES = ("001", "liver", "lung")
FEW = ("NMI", "ASW", "GC", "BRAS", "CiLISI")
"""Metrics of both groups, with clusters and values of rows."""


class Cut(BaseException):
    """What a test throws into a run."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three samples of one method."""
    for seed, name in enumerate(SAMPLES):
        write_h5ad(tmp_path / "scvi" / f"{name}.h5ad", *cells(seed, 90))
    return tmp_path / "scvi"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[Evaluated]]:
    """Score the samples, without scoring done before unless `force`."""

    def call(
        *paths: Path, metrics: Any = None, batch: str | None = "batch_id", label: str = "cell_type",
        max_cells: int = 0, outdir: str = "out", force: bool = False, key: str | None = None,
        **readings: Any,
    ) -> list[Evaluated]:  # fmt: skip
        request = Request.of(metrics, label, batch, "sample_id", max_cells, **readings)
        inputs = expand_paths(list(paths))
        options = merged(scratch=str(tmp_path / "scratch"))
        return list(run_inputs(inputs, request, tmp_path / outdir, options, key=key, force=force))

    return call


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """Which metrics of which samples were computed; nothing is, values are made up."""
    calls: list[tuple[str, tuple[str, ...]]] = []

    def evaluate(embedding: Any, rows: Any, request: Any, *, dataset: str, method: str, **_: Any):
        calls.append((dataset, request.metrics))
        rng = np.random.default_rng(len(calls))
        n = rows.n_rows
        return Scores(
            dataset, method, {name: Outcome(rng.random(), "n=1") for name in request.metrics},
            Counts(n, 6, 3) if request.bio else None,
            Counts(n, 6, 3, 2) if request.mixing else None,
            {"clisi": rng.random(n)} if request.bio else {},
            np.zeros(n, np.int32) if request.clustered else None, {"engine": "none"},
        )  # fmt: skip

    monkeypatch.setattr(run_module, "evaluate_embedding", evaluate)
    return calls


def group(metrics: tuple[str, ...]) -> str:
    return {METRIC_NAMES: "all", BIO_METRICS: "bio", BATCH_METRICS: "batch"}[metrics]


def values(found: list[Evaluated]) -> dict[tuple[str, str], bytes]:
    return {
        (one.scores.dataset, name): np.float64(outcome.value).tobytes()
        for one in found
        for name, outcome in one.scores.outcomes.items()
    }


def of_rows(found: list[Evaluated]) -> dict[str, bytes]:
    (one,) = found
    return {name: array.tobytes() for name, array in one.scores.sample_values.items()}


def test_run_again__goes_on_with_the_sample_it_was_at(
    folder: Path, run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit-identical to a run that nothing has interrupted, and nothing else is left."""
    evaluate = run_module.evaluate_embedding
    begun: list[str] = []

    def cut(*args: Any, dataset: str, **more: Any) -> Any:
        begun.append(dataset)
        if dataset == "liver":
            raise Cut
        return evaluate(*args, dataset=dataset, **more)

    with monkeypatch.context() as patched:
        patched.setattr(run_module, "evaluate_embedding", cut)
        with pytest.raises(Cut):
            run(folder, metrics=FEW)
    tables = tmp_path / "out" / "benchmark"
    assert begun == ["001", "liver"]
    assert not list(tables.glob("*.csv")), "tables of all samples need all samples"
    assert {path.name for path in tables.rglob("*.csv")} == {"001_scvi.csv"}
    assert list((tmp_path / "scratch").iterdir()) == []

    begun.clear()

    def count(*args: Any, dataset: str, **more: Any) -> Any:
        begun.append(dataset)
        return evaluate(*args, dataset=dataset, **more)

    monkeypatch.setattr(run_module, "evaluate_embedding", count)
    again = run(folder, metrics=FEW)
    assert begun == ["liver", "lung"]
    whole = run(folder, metrics=FEW, outdir="whole")
    assert digest_tree(tables) == digest_tree(tmp_path / "whole" / "benchmark")
    assert list((tmp_path / "scratch").iterdir()) == []
    for one, other in zip(again, whole, strict=True):
        assert one.scores.attrs == other.scores.attrs
        assert one.scores.outcomes == other.scores.outcomes
        assert of_rows([one]) == of_rows([other])
        assert one.scores.predictions is not None
        assert one.scores.predictions.tolist() == other.scores.predictions.tolist()
        assert one.label(0, 9).tolist() == other.label(0, 9).tolist()


def test_run_again__another_batch_column_does_not_cost_the_metrics_of_labels(
    folder: Path, run: Callable, tmp_path: Path
) -> None:
    """And what comes out is what a fresh run gives, in which one search serves both groups."""
    path = folder / "liver.h5ad"
    run(path, metrics=FEW)
    evaluated = []
    evaluate = run_module.evaluate_embedding
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            run_module, "evaluate_embedding",
            lambda *a, **k: evaluated.append(a[2].metrics) or evaluate(*a, **k),
        )  # fmt: skip
        found = run(path, metrics=FEW, batch="site")
    assert evaluated == [("BRAS", "CiLISI")]
    fresh = run(path, metrics=FEW, batch="site", outdir="fresh")
    assert values(found) == values(fresh)
    assert list(found[0].scores.outcomes) == list(FEW)
    assert digest_tree(tmp_path / "out") == digest_tree(tmp_path / "fresh")
    assert of_rows(found) == of_rows(fresh)


@pytest.mark.parametrize(
    ("first", "then", "again"),
    [
        ({}, {}, []),
        ({}, {"metrics": "bio", "batch": None}, []),
        ({}, {"metrics": ["GC", "BRAS"]}, []),
        ({"metrics": "bio", "batch": None}, {}, ["batch"]),
        ({"metrics": "batch"}, {}, ["bio"]),
        ({"metrics": ["GC"]}, {}, ["all"]),
        ({}, {"batch": "site"}, ["batch"]),
        ({}, {"max_cells": 50}, ["batch"]),
        ({}, {"asw": "interval"}, ["bio"]),
        ({}, {"gc_components": "weak"}, ["bio"]),
        ({}, {"selection": "best_nmi"}, ["bio"]),
        ({}, {"bras_other": "batches"}, ["batch"]),
        ({}, {"kbet_components": "independent"}, ["batch"]),
        ({}, {"lisi_compat": "scib-metrics"}, ["all"]),
        ({}, {"clustering": "kmeans"}, ["all"]),
        ({}, {"label": "site"}, ["all"]),
        ({}, {"missing_batches": "all_metrics"}, ["all"]),
        ({"missing_batches": "all_metrics"}, {"missing_batches": "all_metrics"}, []),
        (
            {"missing_batches": "all_metrics"},
            {"missing_batches": "all_metrics", "batch": "site"},
            ["all"],
        ),
        ({}, {"force": True}, ["all"]),
    ],
)
def test_run_again__computes_what_other_arguments_change(
    folder: Path, run: Callable, asked: list, first: dict, then: dict, again: list[str]
) -> None:
    path = folder / "001.h5ad"
    before = values(run(path, **first))
    asked.clear()
    after = values(run(path, **then))
    assert [group(metrics) for _, metrics in asked] == again
    kept = {
        "all": (), "bio": BATCH_METRICS, "batch": BIO_METRICS,
    }.get(again[0] if again else "", METRIC_NAMES)  # fmt: skip
    assert {k: v for k, v in after.items() if k[1] in kept} == {
        k: v for k, v in before.items() if k[1] in kept and k in after
    }
    asked.clear()
    if not then.get("force"):
        assert values(run(path, **then)) == after
        assert asked == []


def other_rows(path: Path) -> None:
    x, obs = cells(0, 90)
    x[3, 2] = np.nextafter(x[3, 2], np.float32(9))
    write_h5ad(path, x, obs)


def other_labels(path: Path) -> None:
    x, obs = cells(0, 90)
    obs.loc[obs.index[0], "cell_type"] = "T0" if obs["cell_type"].iloc[0] != "T0" else "T1"
    write_h5ad(path, x, obs)


def other_batches(path: Path) -> None:
    x, obs = cells(0, 90)
    obs.loc[obs.index[0], "batch_id"] = "b2"
    write_h5ad(path, x, obs)


def other_names(path: Path) -> None:
    x, obs = cells(0, 90)
    write_h5ad(path, x, obs.set_index(obs.index + "-1"))


def another_column(path: Path) -> None:
    x, obs = cells(0, 90)
    write_h5ad(path, x, obs.assign(more=1.0), obsm={"X_umap": x[:, :2]})


def as_it_was(path: Path) -> None:
    x, obs = cells(0, 90)
    write_h5ad(path, np.asfortranarray(x), obs.assign(cell_type=obs["cell_type"].astype(str)))


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (other_rows, ["all"]), (other_labels, ["all"]), (other_batches, ["batch"]),
        (other_names, ["bio"]), (another_column, []), (as_it_was, []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_run_again__computes_what_another_file_changes(
    folder: Path, run: Callable, asked: list, change: Callable, again: list[str]
) -> None:
    """The content counts, not when it was written."""
    run(folder)
    asked.clear()
    change(folder / "001.h5ad")
    run(folder)
    assert [(name, group(metrics)) for name, metrics in asked] == [("001", one) for one in again]


def test_run_again__another_array_is_another_embedding(
    folder: Path, run: Callable, asked: list
) -> None:
    x, obs = cells(0, 90)
    path = write_h5ad(folder / "001.h5ad", x, obs, obsm={"X_pca": x[:, :2]})
    run(path)
    asked.clear()
    run(path, key="X_pca")
    assert [group(metrics) for _, metrics in asked] == ["all"]


def test_run_again__a_store_of_the_same_content_serves(
    folder: Path, run: Callable, asked: list
) -> None:
    x, obs = cells(0, 90)
    run(folder / "001.h5ad")
    asked.clear()
    frame = obs.rename_axis("sample_id").reset_index()
    place = cd.write_cohort(folder / "stores" / "scvi" / "001.zarr", x, frame)
    run(Path(place))
    assert asked == []


def test_run_again__other_versions_count(
    folder: Path, run: Callable, asked: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder / "001.h5ad")
    asked.clear()
    monkeypatch.setattr(sources_module, "__version__", "0.0.0")
    run(folder / "001.h5ad")
    assert [group(metrics) for _, metrics in asked] == ["all"]


@pytest.mark.parametrize("what", ["change", "delete"])
@pytest.mark.parametrize(
    ("which", "again"),
    [
        ("bio_conservation_leiden_metrics/scvi/001_scvi.csv", "bio"),
        ("bio_conservation_leiden_predictions/scvi/001_scvi_leiden_labels.tsv", "bio"),
        ("batch_mixing_leiden_metrics/scvi/001_scvi.csv", "batch"),
        (".croma/leiden/scvi/001_scvi/clisi.npy", "bio"),
        (".croma/leiden/scvi/001_scvi/record.json", "all"),
    ],
)
def test_run_again__makes_tables_anew_that_are_not_as_they_were_written(
    folder: Path, run: Callable, asked: list, tmp_path: Path, which: str, again: str, what: str
) -> None:
    run(folder)
    asked.clear()
    path = tmp_path / "out" / "benchmark" / which
    if what == "change":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.unlink()
    run(folder)
    assert [(name, group(metrics)) for name, metrics in asked] == [("001", again)]
    assert path.exists()
    asked.clear()
    run(folder)
    assert asked == []


def test_run_again__rows_without_batch_are_left_out_as_before(
    folder: Path, run: Callable, tmp_path: Path
) -> None:
    """Also where the metrics of batches are there and only those of labels have to be computed."""
    x, obs = cells(0, 90)
    obs.loc[obs.index[:30], "batch_id"] = None
    path = write_h5ad(folder / "001.h5ad", x, obs)
    how = {"metrics": ["GC", "ASW", "BRAS"], "missing_batches": "all_metrics"}
    with pytest.warns(cd.InputWarning, match="001 by scvi: .* are left out of all metrics"):
        first = run(path, **how)
    assert first[0].scores.bio == Counts(60, 6, 3)
    (tmp_path / "out/benchmark/bio_conservation_leiden_metrics/scvi/001_scvi.csv").unlink()
    with pytest.warns(cd.InputWarning):
        again = run(path, **how)
    assert again[0].scores.bio == Counts(60, 6, 3)
    assert values(again) == values(first)


def test_run_again__tries_a_metric_again_that_failed(
    folder: Path, run: Callable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, obs = cells(0, 90)
    zero = x.copy()
    zero[4] = 0
    path = write_h5ad(folder / "001.h5ad", zero, obs)
    evaluated = []
    evaluate = run_module.evaluate_embedding
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            run_module, "evaluate_embedding",
            lambda *a, **k: evaluated.append(a[2].metrics) or evaluate(*a, **k),
        )  # fmt: skip
        for _ in range(2):
            (found,) = run(path, metrics=["GC", "BRAS"])
            assert found.scores.outcomes["BRAS"].status.startswith("failed: ")
    assert evaluated == [("GC", "BRAS"), ("BRAS",)]
    told = [record for record in caplog.records if "BRAS of 001 by scvi failed" in record.message]
    assert len(told) == 2
    assert not any(record.exc_info for record in told), "raised on purpose: no traceback"


TABLES_OF = {
    "bio": "bio_conservation_leiden_metrics/scvi/001_scvi.csv",
    "predictions": "bio_conservation_leiden_predictions/scvi/001_scvi_leiden_labels.tsv",
    "batch": "batch_mixing_leiden_metrics/scvi/001_scvi.csv",
    "all bio": "scvi_bio_conservation_leiden_metrics_wide.csv",
    "all batch": "scvi_batch_mixing_leiden_metrics_wide.csv",
}


def there(tables: Path) -> list[str]:
    """Which tables of the first sample, and of all, there are."""
    return [name for name, path in TABLES_OF.items() if (tables / path).exists()]


def samples_of(path: Path) -> list[str]:
    return pd.read_csv(path, dtype={"sample_id": str})["sample_id"].tolist()


@pytest.mark.parametrize(
    ("change", "then", "left"),
    [
        (other_rows, {}, ["bio", "all bio"]),
        (other_labels, {}, ["bio", "all bio"]),
        (other_batches, {}, ["bio", "predictions", "all bio"]),
        (other_names, {}, ["bio", "batch", "all bio", "all batch"]),
        (as_it_was, {}, list(TABLES_OF)),
        (as_it_was, {"label": "site"}, ["bio", "all bio"]),
        (other_rows, {"metrics": ["BRAS"], "batch": "batch_id"}, ["batch", "all batch"]),
        (other_names, {"metrics": ["BRAS"], "batch": "batch_id"}, ["batch", "all batch"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_run_again__leaves_no_tables_of_another_embedding(
    folder: Path, run: Callable, asked: list, tmp_path: Path, change: Callable, then: dict,
    left: list[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Whoever asks for fewer metrics of a file that was replaced: the others are of the old one."""
    path, tables = folder / "001.h5ad", tmp_path / "out" / "benchmark"
    run(path)
    assert there(tables) == list(TABLES_OF)
    change(path)
    caplog.clear()
    run(path, **({"metrics": ["ASW"], "batch": None} | then))
    assert there(tables) == left
    told = [m for m in caplog.messages if m.startswith("001 by scvi: its ") and "deleted" in m]
    gone = {"bio", "batch"} - set(left)
    assert len(told) == len(gone)
    # Nothing is left of it in the record either, and a run for all is right again.
    asked.clear()
    run(path)
    assert there(tables) == list(TABLES_OF)


def test_run_again__rows_of_another_embedding_leave_the_combined_tables(
    folder: Path, run: Callable, asked: list, tmp_path: Path
) -> None:
    run(folder)
    wide = tmp_path / "out" / "benchmark" / TABLES_OF["all batch"]
    assert samples_of(wide) == list(SAMPLES)
    other_rows(folder / "001.h5ad")
    run(folder, metrics=["ASW"], batch=None)
    assert samples_of(wide) == ["liver", "lung"]
    assert samples_of(tmp_path / "out" / "benchmark" / TABLES_OF["all bio"]) == list(SAMPLES)
    other_batches(folder / "001.h5ad")
    run(folder / "001.h5ad", metrics="batch")
    assert samples_of(wide) == ["001"]


def test_run_again__for_fewer_metrics_keeps_the_others(
    folder: Path, run: Callable, asked: list, tmp_path: Path
) -> None:
    run(folder)
    before = digest_tree(tmp_path / "out")
    asked.clear()
    (found,) = run(folder / "001.h5ad", metrics=["ASW"], batch=None)
    assert list(found.scores.outcomes) == ["ASW"]
    run(folder, metrics=["ASW"], batch=None)
    assert asked == []
    assert digest_tree(tmp_path / "out") == before
    run(folder, metrics=["ASW"], batch=None, force=True)
    after = pd.read_csv(tmp_path / "out" / "benchmark" / TABLES_OF["all bio"])
    assert not after.isna().any(axis=None)


def test_run_again__for_other_metrics_adds_them(
    folder: Path, run: Callable, tmp_path: Path
) -> None:
    """Bit for bit what one run for all of them gives."""
    path = folder / "001.h5ad"
    for metrics in (["ASW"], ["BRAS"], ["NMI"], ["GC"], ["ASW", "CiLISI"], ["ASW"]):
        run(path, metrics=metrics)
    run(path, metrics=FEW, outdir="whole")
    mine, whole = digest_tree(tmp_path / "out"), digest_tree(tmp_path / "whole")
    assert mine.keys() == whole.keys()
    # The attributes of a record are in the order in which they were found.
    differ = [name for name in mine if mine[name] != whole[name]]
    assert all(name.endswith("record.json") for name in differ)
    found, other = (values(run(path, metrics=FEW, outdir=name)) for name in ("out", "whole"))
    assert found == other


def test_run_again__a_search_of_another_kind_is_another_run(
    folder: Path, tmp_path: Path, asked: list
) -> None:
    inputs = expand_paths(folder / "001.h5ad")
    request = Request.of(None, "cell_type", "batch_id", "sample_id", 0)
    options = merged(scratch=str(tmp_path / "scratch"))
    ivf = Approximation("ivf")
    for how in (None, ivf, replace(ivf, recall=0.9), replace(ivf, calibration=500),
                replace(ivf, seed=1), replace(ivf, index="auto")):  # fmt: skip
        for expected in (["all"], []):
            asked.clear()
            list(run_inputs(inputs, request, tmp_path / "out", options, how=how))
            assert [group(metrics) for _, metrics in asked] == expected


def test_run_again__a_killed_run_leaves_nothing_half_written_for_good(
    folder: Path, run: Callable, asked: list, tmp_path: Path
) -> None:
    """A file that was being written when the process was killed is no one's after a while."""
    run(folder / "001.h5ad")
    shutil.rmtree(tmp_path / "out" / "benchmark" / ".croma")
    tables = tmp_path / "out/benchmark/bio_conservation_leiden_metrics/scvi"
    old, young = tables / f".{'0' * 32}", tables / f".{'f' * 32}"
    for path in (old, young):
        path.write_text("sample_id,met")
    os.utime(old, (0, 0))
    (tables / ".note").write_text("somebody's")
    os.utime(tables / ".note", (0, 0))
    run(folder / "001.h5ad")
    assert sorted(path.name for path in tables.iterdir()) == [young.name, ".note", "001_scvi.csv"]


def test_run_inputs__order_of_inputs_is_that_of_the_long_table(
    folder: Path, run: Callable, asked: list, tmp_path: Path
) -> None:
    run(folder)
    lines = (
        (tmp_path / "out/benchmark/scvi_batch_mixing_leiden_metrics_long.csv")
        .read_text().splitlines()[1:]
    )  # fmt: skip
    found = [tuple(line.split(",")[:3]) for line in lines]
    assert found == [
        (sample, "scvi", metric) for sample, metric in itertools.product(SAMPLES, BATCH_METRICS)
    ]


def test_run_again__no_reading_is_forgotten() -> None:
    """One that no group of metrics is said to depend on would change numbers unseen."""
    known = {field.name for field in fields(Readings)}
    assert {name for names in READINGS_OF.values() for name in names} == known
