"""The embedding benchmark as a whole: what it takes, what it refuses, what its readings change."""

from __future__ import annotations

import importlib
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.embedding.outcome import BATCH_METRICS, BIO_METRICS, METRIC_NAMES
from croma_dask.embedding.request import Readings
from croma_dask.embedding.subsample import stratified_subsample
from tests.helpers.benchmarks import (
    SAMPLE_VALUES,
    cells,
    frame,
    notes,
    plain_accuracy,
    score,
    statuses,
    values,
)
from tests.helpers.compare import assert_same_bits
from tests.helpers.embeddings import Embedding
from tests.helpers.engines import engine

CLUSTERED = ("NMI", "HOM", "COM", "FMI", "ARI")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[None]:
    """Runs that a test cuts off leave what they had found there."""
    with cd.set_options(scratch=str(tmp_path / "scratch")):
        yield


@pytest.fixture(scope="module")
def embedding() -> Embedding:
    return cells()


@pytest.fixture(scope="module")
def found(embedding: Embedding) -> xr.Dataset:
    return score(embedding)


def assert_rows_equal(one: xr.Dataset, other: xr.Dataset, metrics: Any) -> None:
    """Some metrics have the same values, notes and counts, bit for bit."""
    for variable in ("value", "note", "status", "n_cells", "n_labels", "n_batches"):
        a, b = (r[variable].sel(metric=list(metrics)).values for r in (one, other))
        np.testing.assert_array_equal(a, b, err_msg=variable)


# ---- what it takes ---------------------------------------------------------------------------


def test_benchmark__all_thirteen(found: xr.Dataset) -> None:
    assert tuple(found["metric"].values) == METRIC_NAMES
    assert set(statuses(found).values()) == {"ok"}
    low, high = found["lowest"].values, found["highest"].values
    assert ((low <= found["value"].values) & (found["value"].values <= high)).all()
    assert found["dataset"].values.tolist() == ["dataset"]
    assert found["method"].values.tolist() == ["embedding"]


def test_benchmark__without_batches_the_metrics_of_labels(
    embedding: Embedding, found: xr.Dataset
) -> None:
    bio = score(embedding, batch=None)
    assert tuple(bio["metric"].values) == BIO_METRICS
    assert "batch" not in bio.coords
    assert "batch_column" not in bio.attrs
    assert_rows_equal(bio, found, BIO_METRICS)


def test_benchmark__a_store_has_the_names_of_its_file_and_folder(
    embedding: Embedding, found: xr.Dataset, tmp_path: Path
) -> None:
    (tmp_path / "sc vi").mkdir()
    place = cd.write_cohort(tmp_path / "sc vi" / "lung.zarr", embedding.x, embedding.obs)
    cohort = cd.open_cohort(place)
    for one in (score(place), score(cohort), score(Path(place))):
        assert one["dataset"].values.tolist() == ["lung"]
        assert one["method"].values.tolist() == ["sc-vi"]
        np.testing.assert_array_equal(one["value"].values, found["value"].values)
    by_accessor = cohort.croma.embedding_benchmark(batch="batch_id", method="m", quiet=True)
    assert_same_bits(by_accessor, score(cohort, method="m"))


def test_benchmark__a_cohort_that_was_selected_from(embedding: Embedding, tmp_path: Path) -> None:
    place = cd.write_cohort(tmp_path / "lung.zarr", embedding.x, embedding.obs)
    some = np.arange(0, 240, 2)
    part = score(cd.open_cohort(place).isel(sample=some), metrics=["cLISI", "BRAS"])
    whole = score(embedding.x[some], embedding.obs.iloc[some], metrics=["cLISI", "BRAS"])
    np.testing.assert_array_equal(part["value"].values, whole["value"].values)
    assert part["dataset"].values.tolist() == ["lung"]


@pytest.mark.parametrize(
    ("given", "names", "datasets", "methods"),
    [
        (list, {}, ["dataset"], ["embedding-0", "embedding-1"]),
        (tuple, {"dataset": "lung"}, ["lung"], ["embedding-0", "embedding-1"]),
        (list, {"dataset": ["lung", "liver"], "method": "pca"}, ["lung", "liver"], ["pca"]),
        (list, {"method": ["b", "a"]}, ["dataset"], ["b", "a"]),
        (lambda pairs: {("lung", "b"): pairs[0], ("lung", "a"): pairs[1]}, {}, ["lung"],
         ["b", "a"]),
    ],
)  # fmt: skip
def test_benchmark__several_embeddings(
    embedding: Embedding, given: Callable[[Any], Any], names: dict[str, Any],
    datasets: list[str], methods: list[str],
) -> None:  # fmt: skip
    """Each is scored by itself; names keep the order in which they come."""
    other = cells(2, 100)
    pairs = [(embedding.x, embedding.obs), (other.x, other.obs)]
    several = score(given(pairs), metrics=["GC", "BRAS"], **names)
    assert several["dataset"].values.tolist() == datasets
    assert several["method"].values.tolist() == methods
    alone = [score(*pair, metrics=["GC", "BRAS"]) for pair in pairs]
    flat = several["value"].values.reshape(2, 2)
    np.testing.assert_array_equal(flat, [one["value"].values[0, 0] for one in alone])
    np.testing.assert_array_equal(several["bras"].values[240:], alone[1]["bras"].values)
    assert several.sizes["sample"] == 340


def test_benchmark__an_embedding_that_is_not_there(embedding: Embedding, found: xr.Dataset) -> None:
    given = {(d, m): (embedding.x, embedding.obs) for d, m in (("A", "x"), ("A", "y"), ("B", "x"))}
    table = score(given, metrics=["GC", "iLISI"])
    assert dict(table.sizes) == {"dataset": 2, "method": 2, "metric": 2, "sample": 720}
    absent = table.sel({"dataset": "B", "method": "y"})
    assert absent["status"].values.tolist() == ["not computed"] * 2
    assert np.isnan(absent["value"].values).all()
    assert absent["n_cells"].values.tolist() == [0, 0]
    assert absent["n_dims"].item() == 0
    assert absent["about"].item() == ""
    for d, m in given:
        there = table.sel({"dataset": d, "method": m})
        np.testing.assert_array_equal(
            there["value"].values, found["value"].sel(metric=["GC", "iLISI"]).values[0, 0]
        )
    np.testing.assert_array_equal(
        table["sample_dataset"].values, np.repeat(["A", "A", "B"], 240).astype(object)
    )


def test_benchmark__rows_that_have_ids_are_matched(embedding: Embedding, found: xr.Dataset) -> None:
    """Results are in the order of the manifest, by which folds and clusters go."""
    order = np.random.default_rng(0).permutation(240)
    ids = embedding.obs["sample_id"].to_numpy()
    shuffled = pd.DataFrame(embedding.x[order], index=ids[order])
    named = xr.DataArray(
        embedding.x[order].T, dims=("feature", "sample"),
        coords={"sample_id": ("sample", ids[order])},
    )  # fmt: skip
    for features in (shuffled, named):
        matched = score(features, embedding.obs)
        assert_rows_equal(matched, found, METRIC_NAMES)
        for variable in (*SAMPLE_VALUES, "cluster", "sample_id"):
            np.testing.assert_array_equal(matched[variable].values, found[variable].values)


def test_benchmark__rows_without_ids_are_numbered(embedding: Embedding) -> None:
    obs = embedding.obs.drop(columns="sample_id")
    found = score(embedding.x, obs, metrics=["GC"])
    assert found["sample_id"].values[[0, 239]].tolist() == ["0", "239"]
    named = score(embedding.x, obs.assign(cell=embedding.obs["sample_id"]), metrics=["GC"],
                  sample_id="cell")  # fmt: skip
    assert named["sample_id"].values[3] == "cell-0003"


def test_benchmark__without_values_of_rows(embedding: Embedding, found: xr.Dataset) -> None:
    small = score(embedding, samples=False)
    assert "sample" not in small.dims
    assert_same_bits(small, found.drop_dims("sample"))


@pytest.mark.parametrize(
    "metrics",
    [*METRIC_NAMES, "bio", "batch", ["kBET", "GC", "kBET"], ("bio", "BRAS"), ["batch", "ASW"]],
    ids=str,
)
def test_benchmark__some_metrics_are_as_all_of_them(
    embedding: Embedding, found: xr.Dataset, metrics: Any
) -> None:
    some = score(embedding, metrics=metrics)
    asked = [metrics] if isinstance(metrics, str) else metrics
    sets = {"bio": BIO_METRICS, "batch": BATCH_METRICS}
    wanted = {name for part in asked for name in sets.get(part, (part,))}
    assert some["metric"].values.tolist() == [name for name in METRIC_NAMES if name in wanted]
    assert_rows_equal(some, found, some["metric"].values)
    for variable in {*SAMPLE_VALUES, "cluster"} & set(some.variables):
        np.testing.assert_array_equal(some[variable].values, found[variable].values)
    assert ("cluster" in some.coords) == bool(wanted & set(CLUSTERED))


# ---- what it refuses -------------------------------------------------------------------------


@pytest.fixture
def _nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*args: Any, **more: Any) -> Any:
        raise AssertionError("an embedding was scored")

    benchmark = importlib.import_module("croma_dask.embedding.benchmark")
    monkeypatch.setattr(benchmark, "evaluate_embedding", run)


@pytest.mark.usefixtures("_nothing_runs")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"metrics": "nope"}, "no metric is called 'nope'; there are 'NMI'"),
        ({"metrics": ["ARI", "kbet"]}, "no metric is called 'kbet'"),
        ({"metrics": ["ARI", 3]}, "no metric is called 3"),
        ({"metrics": []}, "no metric is asked for"),
        ({"metrics": 5}, "metrics are a name, or a list of names, found 5"),
        ({"metrics": "batch", "batch": None}, "name their column as batch="),
        ({"metrics": ["GC", "kBET"], "batch": None}, "'kBET' compare batches"),
        ({"batch": "zzz"}, "no column 'zzz' .there are 'sample_id', 'cell_type', 'batch_id'"),
        ({"label": "zzz"}, "no column 'zzz'"),
        ({"label": "batch_id"}, "label and batch are columns of their own"),
        ({"label": ["cell_type"]}, "label is the name of one column"),
        ({"label": None}, "label is the name of one column, found None"),
        ({"batch": 3}, "batch is the name of one column"),
        ({"clustering": "louvain"}, "clustering is 'leiden' or 'kmeans', found 'louvain'"),
        ({"selection": None}, "selection is 'match_n_labels' or 'best_nmi', found None"),
        ({"asw": ["exact"]}, "asw is 'exact' or 'interval'"),
        ({"lisi_compat": "harmony"}, "lisi_compat is None or 'scib-metrics'"),
        ({"batch_max_cells": -1}, "batch_max_cells is 0"),
        ({"batch_max_cells": 1.5}, "a whole number, found 1.5"),
        ({"batch_max_cells": float("nan")}, "a whole number, found nan"),
        ({"batch_max_cells": "9"}, "a whole number, found '9'"),
        ({"batch_max_cells": True}, "a whole number, found True"),
        ({"batch_max_cells": None}, "a whole number, found None"),
        ({"index": "nope"}, "index is 'exact', 'auto', 'ivf'"),
        ({"index": None}, "found None"),
        ({"recall": 1.5}, "recall must be in"),
        ({"probes": 0}, "probes"),
        ({"calibration": 3}, "calibration must be at least"),
        ({"seed": -1}, "seed must be 0 or larger"),
    ],
    ids=str,
)
def test_benchmark__refuses_what_is_not_known(
    embedding: Embedding, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(cd.SchemaError, match=said):
        score(embedding, **wrong)


@pytest.mark.usefixtures("_nothing_runs")
@pytest.mark.parametrize(
    ("given", "more", "said"),
    [
        (lambda x, f: [], {}, "no embedding is given"),
        (lambda x, f: {}, {}, "no embedding is given"),
        (lambda x, f: [(x, f), (x, f)], {"method": "a"}, "'dataset', method 'a': name them"),
        (lambda x, f: [(x, f), (x, f)], {"method": ["a"]}, "method has 1 names .'a'. for 2"),
        (lambda x, f: [x, x], {"manifest": True}, "a manifest is for one array"),
        (lambda x, f: {("a", "b"): x}, {"manifest": True}, "a manifest is for one array"),
        (lambda x, f: {("a", "b"): (x, f)}, {"method": "c"}, "names them"),
        (lambda x, f: {"a": (x, f)}, {}, r"keys \(dataset, method\), found 'a'"),
        (lambda x, f: {("a", 1): (x, f)}, {}, r"keys \(dataset, method\)"),
        (lambda x, f: x, {}, "an array needs a manifest"),
        (lambda x, f: [(x, f), x], {}, "an array needs a manifest"),
        (lambda x, f: [(x, f), (x, f.drop(columns="batch_id"))], {},
         "dataset by embedding-1: there is no column 'batch_id'"),
        (lambda x, f: (x[:3], f), {}, "an array needs a manifest"),
    ],
)  # fmt: skip
def test_benchmark__refuses_what_cannot_be_told_apart(
    embedding: Embedding, given: Callable[..., Any], more: dict[str, Any], said: str
) -> None:
    """Of several embeddings none is scored where one of them cannot be."""
    manifest = embedding.obs if more.pop("manifest", False) else None
    with pytest.raises(cd.SchemaError, match=said):
        score(given(embedding.x, embedding.obs), manifest, **more)


@pytest.mark.usefixtures("_nothing_runs")
@pytest.mark.parametrize("column", ["cell_type", "batch_id", "sample_id"])
def test_benchmark__refuses_names_of_several_kinds(embedding: Embedding, column: str) -> None:
    obs = embedding.obs.copy()
    obs.loc[3, column] = 3
    with pytest.raises(cd.SchemaError, match=f"column '{column}' mixes values of type int, str"):
        score(embedding.x, obs)


def test_benchmark__says_once_that_names_become_one(
    embedding: Embedding, found: xr.Dataset
) -> None:
    obs = embedding.obs.copy()
    obs.loc[::2, "cell_type"] = obs.loc[::2, "cell_type"] + " "
    with pytest.warns(cd.InputWarning) as told:
        same = score(embedding.x, obs)
    assert [str(warning.message) for warning in told] == [
        "column 'cell_type': values that differ only by blanks around them are one: 'L', 'k', 'm'"
    ]
    assert_same_bits(same, found)


def test_benchmark__refuses_a_store_that_is_not_there(embedding: Embedding, tmp_path: Path) -> None:
    with pytest.raises(cd.StoreError, match="nothing.zarr"):
        score([(embedding.x, embedding.obs), tmp_path / "nothing.zarr"])


# ---- what fails ------------------------------------------------------------------------------

FAILS = {
    "by_leiden": ("neighbor_metrics", CLUSTERED),
    "clisi": ("neighbor_metrics", ("cLISI",)),
    "accuracy": ("neighbor_metrics", ("Acc@kNN",)),
    "graph_connectivity": ("neighbor_metrics", ("GC",)),
    "kbet": ("neighbor_metrics", ("kBET",)),
    "ilisi": ("neighbor_metrics", ("iLISI",)),
    "cilisi": ("neighbor_metrics", ("CiLISI",)),
    "silhouette": ("evaluate", ("ASW",)),
    "bras": ("evaluate", ("BRAS",)),
}
"""What is made to raise, in which module, and the metrics that come of it."""


@pytest.mark.parametrize("step", FAILS)
def test_benchmark__a_metric_that_fails_takes_no_other_down(
    embedding: Embedding, found: xr.Dataset, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, step: str,
) -> None:  # fmt: skip
    def fail(*args: Any, **more: Any) -> Any:
        raise ZeroDivisionError("no; not today")

    module, lost = FAILS[step]
    monkeypatch.setattr(importlib.import_module(f"croma_dask.embedding.{module}"), step, fail)
    with caplog.at_level(logging.WARNING, "croma_dask"):
        partly = score(embedding)
    assert_rows_equal(partly, found, [name for name in METRIC_NAMES if name not in lost])
    for name in lost:
        assert np.isnan(values(partly)[name])
        assert statuses(partly)[name] == "failed: ZeroDivisionError: no; not today"
        said = "metric_failed=ZeroDivisionError:no, not today"
        more = ";bras_definition=cosine_mean_other" if name == "BRAS" else ""
        assert notes(partly)[name] == said + more
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{', '.join(lost)} of dataset by embedding failed: no; not today"
    )
    assert record.exc_info is not None, "where it comes from is logged"


@pytest.mark.parametrize("error", [OSError("the disk is gone"), cd.StoreError("half a chunk")])
def test_benchmark__rows_that_cannot_be_read_end_it(
    embedding: Embedding, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*args: Any, **more: Any) -> Any:
        raise error

    monkeypatch.setattr(importlib.import_module("croma_dask.embedding.evaluate"), "bras", fail)
    with pytest.raises(type(error), match=str(error)):
        score(embedding)


def test_benchmark__igraph_is_asked_for_by_name(
    embedding: Embedding, found: xr.Dataset, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "igraph", None)
    partly = score(embedding)
    assert_rows_equal(partly, found, [name for name in METRIC_NAMES if name not in CLUSTERED])
    assert "pip install 'croma-dask[embedding]'" in statuses(partly)["ARI"]
    assert [record.exc_info for record in caplog.records] == [None], "a message is enough"


def test_benchmark__no_memory_for_k_means(embedding: Embedding, found: xr.Dataset) -> None:
    clusters = importlib.import_module("croma_dask.embedding.clustering")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "kmeans_bytes", lambda *_: 10**15)
        partly = score(embedding, clustering="kmeans")
    assert statuses(partly)["ARI"].startswith("failed: MemoryLimitError: k-means holds all rows")
    assert_rows_equal(partly, found, METRIC_NAMES[5:])


# ---- a sample for the metrics of batches -----------------------------------------------------


def test_batch_max_cells__scores_the_rows_of_the_sample(
    embedding: Embedding, found: xr.Dataset
) -> None:
    obs = embedding.obs
    drawn = score(embedding, batch_max_cells=100)
    rows = stratified_subsample(*(np.unique(obs[c], return_inverse=True)[1].astype(np.int32)
                                  for c in ("cell_type", "batch_id")), 100)  # fmt: skip
    alone = score(embedding.x[rows], obs.iloc[rows], metrics="batch")
    assert_rows_equal(drawn, found, BIO_METRICS)
    said = "stratified_subsample=cell_type_x_batch;full_n_cells=240;used_n_cells=100;"
    for name in BATCH_METRICS:
        assert values(drawn)[name] == values(alone)[name]
        assert notes(drawn)[name] == said + notes(alone)[name]
    assert drawn["n_cells"].sel(metric=list(BATCH_METRICS)).values.tolist() == [[[100] * 4]]
    for variable in ("kbet", "bras", "ilisi", "cilisi"):
        of_rows = drawn[variable].values
        np.testing.assert_array_equal(of_rows[rows], alone[variable].values)
        assert np.isnan(np.delete(of_rows, rows)).all()
    for variable in ("silhouette", "clisi", "knn_correct", "cluster"):
        np.testing.assert_array_equal(drawn[variable].values, found[variable].values)


@pytest.mark.parametrize("most", [240, np.int64(10**9), 0])
def test_batch_max_cells__of_all_rows_changes_nothing(
    embedding: Embedding, found: xr.Dataset, most: int
) -> None:
    drawn = score(embedding, batch_max_cells=most)
    assert drawn.attrs["batch_max_cells"] == most
    drawn.attrs["batch_max_cells"] = 0
    assert_same_bits(drawn, found)


@pytest.mark.parametrize(
    ("most", "word"), [(1, "insufficient_cells"), (3, "insufficient_batches_after_subsample")]
)
def test_batch_max_cells__that_leave_too_little(
    embedding: Embedding, found: xr.Dataset, most: int, word: str
) -> None:
    batch = np.where(np.arange(240) == 5, "one", "all")
    few = score(embedding.x, frame(embedding.obs["cell_type"], batch), batch_max_cells=most)
    assert_rows_equal(few, found, BIO_METRICS)
    for name in BATCH_METRICS:
        assert statuses(few)[name].startswith("undefined: ")
        assert word in notes(few)[name].split(";")
        assert f"used_n_cells={most}" in notes(few)[name]


# ---- readings --------------------------------------------------------------------------------

READINGS = {
    "clustering": ("kmeans", CLUSTERED, "clustering=kmeans;k=3", {"cluster"}),
    "selection": ("best_nmi", CLUSTERED, "selection=best_nmi", {"cluster"}),
    "asw": ("interval", ("ASW",), "asw=interval;low=", {"silhouette"}),
    "gc_components": ("weak", ("GC",), "components=weak", set()),
    "cilisi_average": ("labels", ("CiLISI",), "average=labels", set()),
    "bras_other": ("batches", ("BRAS",), "other=batches", {"bras"}),
    "kbet_expected": ("dataset", ("kBET",), "expected=dataset", {"kbet"}),
    "kbet_components": ("independent", ("kBET",), "components=independent", {"kbet"}),
    "lisi_compat": ("scib-metrics", ("cLISI", "iLISI", "CiLISI"), "compat=scib-metrics",
                    {"clisi", "ilisi", "cilisi"}),
}  # fmt: skip
"""Other reading of each, the metrics that it changes, what their notes say, and values of rows."""


@pytest.fixture(scope="module")
def telling() -> tuple[Embedding, xr.Dataset]:
    """Rows whose every reading is another number: three batches, one label that is small."""
    made = cells(4, 300, n_features=6)
    obs = made.obs
    obs.loc[::7, "batch_id"] = "w"
    obs.loc[obs["cell_type"].eq("L") & (np.arange(300) > 70), "cell_type"] = "k"
    return made, score(made)


@pytest.mark.parametrize("name", READINGS)
def test_readings__change_what_they_are_of(
    telling: tuple[Embedding, xr.Dataset], name: str
) -> None:
    made, usual = telling
    reading, changed, said, rows = READINGS[name]
    other = score(made, **{name: reading})
    assert json.loads(other.attrs["readings"])[name] == reading
    assert_rows_equal(other, usual, [m for m in METRIC_NAMES if m not in changed])
    for metric in changed:
        assert statuses(other)[metric] == "ok"
        assert values(other)[metric] != values(usual)[metric], metric
        assert said in notes(other)[metric]
        assert said not in notes(usual)[metric]
    for variable in {*SAMPLE_VALUES, "cluster"}:
        same = variable in other and np.array_equal(
            other[variable].values, usual[variable].values, equal_nan=True
        )
        assert same == (variable not in rows), variable


def test_readings__are_all_covered() -> None:
    assert {*READINGS, "missing_batches"} == set(vars(Readings()))


def test_asw_interval__holds_the_exact_value(embedding: Embedding, found: xr.Dataset) -> None:
    interval = score(embedding, metrics=["ASW"], asw="interval")
    said = dict(part.split("=") for part in notes(interval)["ASW"].split(";"))
    assert float(said["low"]) <= values(found)["ASW"] <= float(said["high"])
    assert "silhouette" not in interval


def test_lisi_compat__has_the_library_s_minus_one() -> None:
    """Every row is as far from every other one, and its weights vanish there."""
    apart, obs = np.eye(120), cells(3, 120).obs
    usual = score(apart, obs, metrics=["cLISI", "iLISI"])
    assert (usual["clisi"].values >= 1).all()
    assert (usual["ilisi"].values >= 1).all()
    compat = score(apart, obs, metrics=["cLISI", "iLISI"], lisi_compat="scib-metrics")
    assert (compat["clisi"].values == -1).all()
    assert (compat["ilisi"].values == -1).all()


def test_missing_batches__readings(embedding: Embedding, found: xr.Dataset) -> None:
    obs = embedding.obs.copy()
    obs.loc[[7, 8, 100, 101], "batch_id"] = [None, np.nan, "", "  "]
    complete = np.setdiff1d(np.arange(240), [7, 8, 100, 101])
    alone = score(embedding.x[complete], embedding.obs.iloc[complete])
    with pytest.warns(cd.InputWarning, match=r"left out of the metrics of batches"):
        kept = score(embedding.x, obs)
    assert_rows_equal(kept, found, BIO_METRICS)
    assert_rows_equal(kept, alone, BATCH_METRICS)
    with pytest.warns(cd.InputWarning, match=r"rows 7, 8, 100, 101 \(4 of 240\).*of all metrics"):
        gone = score(embedding.x, obs, missing_batches="all_metrics")
    assert_rows_equal(gone, alone, METRIC_NAMES)
    # Whichever metrics are asked for, the rows are the same.
    with pytest.warns(cd.InputWarning):
        bio = score(embedding.x, obs, metrics="bio", missing_batches="all_metrics")
    assert_rows_equal(bio, alone, BIO_METRICS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_rows_equal(score(embedding.x, obs, metrics="bio"), found, BIO_METRICS)


# ---- votes that are searched again -----------------------------------------------------------


@pytest.fixture(scope="module")
def lonely() -> tuple[np.ndarray, np.ndarray]:
    """Three cells each in a crowd of rare ones, none of which has a vote."""
    rng = np.random.default_rng(5)
    kept = 3 * rng.normal(size=(60, 4))
    kept[:3] = [[40, 0, 0, 0], [0, -40, 0, 0], [0, 0, 60, 0]]
    crowd = np.concatenate([place + 0.5 * rng.normal(size=(110, 4)) for place in kept[:3]])
    label = np.concatenate([np.resize(["A", "B", "C"], 60), [f"r{i // 4:03d}" for i in range(330)]])
    order = rng.permutation(390)
    return np.concatenate([kept, crowd])[order], label[order].astype(object)


@pytest.mark.parametrize("name", ["small", "direct", "streamed"])
@pytest.mark.parametrize("left_out", [0, 20])
def test_accuracy__rows_whose_lists_hold_no_voters_are_searched_again(
    lonely: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch, name: str,
    left_out: int,
) -> None:  # fmt: skip
    module = importlib.import_module("croma_dask.embedding.neighbor_metrics")
    again = []
    first = module.NeighborMetrics._vote_again
    monkeypatch.setattr(
        module.NeighborMetrics, "_vote_again",
        lambda self, fold: again.append(1) or first(self, fold),
    )  # fmt: skip
    x, label = lonely
    value, right = plain_accuracy(x[left_out:], label[left_out:])
    label = label.copy()
    label[:left_out] = None
    with engine(name, range_rows=97), warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.InputWarning)
        found = score(x, frame(label, np.resize(["u", "v"], 390)), metrics=["Acc@kNN", "GC"])
    assert again == [1]
    assert values(found)["Acc@kNN"] == value
    assert notes(found)["Acc@kNN"].startswith("dropped_cells=")
    np.testing.assert_array_equal(found["knn_correct"].values[left_out:], right)
