"""The numbers of a benchmark are those of its rows: how they came to it leaves no trace."""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from tests.helpers.benchmarks import cells, frame, score
from tests.helpers.compare import assert_same_bits
from tests.helpers.embeddings import Embedding
from tests.helpers.engines import engine

N = 260
NAMES = {"dataset": "d", "method": "m"}


class Cut(BaseException):
    """What a test throws into a run."""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    with cd.set_options(scratch=str(folder)):
        yield folder
    assert not folder.exists() or list(folder.iterdir()) == [], "scratch is left behind"


@pytest.fixture(scope="module")
def embedding() -> Embedding:
    return cells(n=N)


@pytest.fixture(scope="module")
def expected(embedding: Embedding) -> xr.Dataset:
    with engine("direct"):
        return score(embedding, **NAMES)


def of_numbers(found: xr.Dataset) -> xr.Dataset:
    """Leave out the fingerprint, which is of the bytes and not of the numbers."""
    found = found.copy()
    said = json.loads(found["about"].item())
    del said["embedding_fingerprint"]
    found["about"] = found["about"].copy(data=np.full((1, 1), json.dumps(said), object))
    return found


@pytest.mark.parametrize("name", ["small", "direct", "streamed"])
def test_benchmark__engines(embedding: Embedding, expected: xr.Dataset, name: str) -> None:
    with engine(name, range_rows=97) as used:
        found = score(embedding, **NAMES)
    assert used == {name}
    assert_same_bits(found, expected)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("name", ["direct", "streamed"])
def test_benchmark__threads(
    embedding: Embedding, expected: xr.Dataset, name: str, threads: int
) -> None:
    with engine(name, range_rows=50):
        assert_same_bits(score(embedding, threads=threads, **NAMES), expected)


@pytest.mark.parametrize(
    ("chunk_rows", "opened"), [(7, False), (64, False), (64, True), (N, False)]
)
def test_benchmark__chunks_of_a_store(
    embedding: Embedding, expected: xr.Dataset, tmp_path: Path, chunk_rows: int, opened: bool
) -> None:
    place = tmp_path / "cohort.zarr"
    cd.write_cohort(place, embedding.x, embedding.obs, chunk_rows=chunk_rows)
    with engine("streamed", range_rows=97):
        found = score(cd.open_cohort(place) if opened else place, **NAMES)
    assert_same_bits(found, expected)


def test_benchmark__memory(embedding: Embedding, expected: xr.Dataset) -> None:
    with engine("streamed"), pytest.raises(cd.MemoryLimitError) as refusal:
        score(embedding, memory=1, threads=1)
    (least,) = re.findall(r"at least ([\d.]+) MB", str(refusal.value))
    with engine("streamed"):
        least_of_all = score(embedding, memory=f"{float(least) + 0.02:.2f}MB", threads=1, **NAMES)
        assert_same_bits(score(embedding, memory="2GB", threads=1, **NAMES), expected)
    fits = least_of_all["status"].values[0, 0] == "ok"
    np.testing.assert_array_equal(fits, expected["metric"].values != "kBET")
    (said,) = least_of_all["status"].values[0, 0, ~fits]
    assert said.startswith("failed: MemoryLimitError: kBET of the largest label")
    np.testing.assert_array_equal(
        least_of_all["value"].values[0, 0, fits], expected["value"].values[0, 0, fits]
    )


@pytest.mark.parametrize(
    "as_given",
    [
        lambda x: da.from_array(x, chunks=(37, 3)), pd.DataFrame, np.asfortranarray,
        lambda x: x.astype(">f8"), lambda x: x.tolist(),
        lambda x: np.repeat(x, 2, axis=0)[::2],
    ],
    ids=["dask", "data frame", "columns first", "big-endian", "lists", "strided"],
)  # fmt: skip
def test_benchmark__kinds_of_arrays(
    embedding: Embedding, expected: xr.Dataset, as_given: Callable[[Any], Any]
) -> None:
    assert_same_bits(score(as_given(embedding.x), embedding.obs, **NAMES), expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint16"])
def test_benchmark__dtypes(embedding: Embedding, dtype: str, tmp_path: Path) -> None:
    """The same numbers, in whatever type: also in a store, where they are streamed."""
    shift = 100.0 if dtype == "uint16" else 0.0
    x = np.clip(np.round(embedding.x * 16) + shift, -127, 255 if shift else 127).astype(dtype)
    x, obs = x[:200], embedding.obs[:200]
    wide = of_numbers(score(x.astype(np.float64), obs, **NAMES))
    assert_same_bits(of_numbers(score(x, obs, **NAMES)), wide)
    place = cd.write_cohort(tmp_path / "cohort.zarr", x, obs, chunk_rows=33)
    with engine("streamed", range_rows=50):
        assert_same_bits(of_numbers(score(place, **NAMES)), wide)


def test_benchmark__a_store_that_keeps_a_row_once(tmp_path: Path) -> None:
    """Rows of the manifest that name one tile are scored as rows that are equal."""
    tiles = cells(2, 90)
    tile = np.random.default_rng(3).integers(0, 90, 160)
    obs = frame(np.resize(["a", "b", "c"], 160), np.resize(["u", "v"], 160))
    obs["sample_id"] = tiles.obs["sample_id"].to_numpy()[tile]
    obs["subset"] = obs.groupby("sample_id").cumcount().astype(str)
    used = np.unique(tile)
    stored = xr.DataArray(
        tiles.x[used], dims=("sample", "feature"),
        coords={"sample_id": ("sample", tiles.obs["sample_id"].to_numpy()[used])},
    )  # fmt: skip
    place = cd.write_cohort(tmp_path / "cohort.zarr", stored, obs)
    with engine("streamed", range_rows=50):
        found = score(place, **NAMES)
    assert_same_bits(of_numbers(found), of_numbers(score(tiles.x[tile], obs, **NAMES)))


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.ci
def test_benchmark__workers(
    embedding: Embedding, expected: xr.Dataset, tmp_path: Path, cluster_client: Any
) -> None:
    place = cd.write_cohort(tmp_path / "cohort.zarr", embedding.x, embedding.obs, chunk_rows=50)
    with engine("streamed", range_rows=97):
        assert_same_bits(score(place, client=cluster_client, **NAMES), expected)
        with cluster_client.as_current():
            assert_same_bits(score(embedding, **NAMES), expected)
    obs = embedding.obs.copy()
    obs.loc[::9, "cell_type"], obs.loc[::7, "batch_id"] = None, None
    other = {"clustering": "kmeans", "kbet_expected": "dataset", "batch_max_cells": 150, **NAMES}
    with warnings.catch_warnings(), engine("streamed", range_rows=97):
        warnings.simplefilter("ignore", cd.InputWarning)
        left = score(embedding.x, obs, **other)
        assert_same_bits(score(embedding.x, obs, client=cluster_client, **other), left)


STEPS = {
    "read_lists": "neighbor_metrics", "by_leiden": "neighbor_metrics", "kbet": "neighbor_metrics",
    "silhouette": "evaluate", "bras": "evaluate", "label_scores": "benchmark",
}  # fmt: skip
"""Where a run is cut, and the module that takes the step."""


@pytest.mark.parametrize(
    ("step", "error"), [*((step, Cut) for step in STEPS), ("kbet", OSError), ("bras", OSError)]
)
def test_benchmark__resumed(
    embedding: Embedding, expected: xr.Dataset, scratch: Path, monkeypatch: pytest.MonkeyPatch,
    step: str, error: type[BaseException],
) -> None:  # fmt: skip
    """What the search had found is used again, and gone in the end."""
    searched = []
    graph = importlib.import_module("croma_dask.graph")
    first = graph.run_graph

    def counted(tasks: Any, *args: Any, **more: Any) -> Any:
        searched.append(len(tasks))
        return first(tasks, *args, **more)

    def cut(*args: Any, **more: Any) -> Any:
        raise error("cut off")

    monkeypatch.setattr(graph, "run_graph", counted)
    module = importlib.import_module(f"croma_dask.embedding.{STEPS[step]}")
    with engine("streamed", range_rows=97):
        with monkeypatch.context() as patch:
            patch.setattr(module, step, cut)
            with pytest.raises(error, match="cut off"):
                score(embedding, **NAMES)
        whole = searched.copy()
        left = list(scratch.rglob("lists-*.npz"))
        assert bool(left) == (step != "label_scores"), "all is done by then"
        searched.clear()
        found = score(embedding, **NAMES)
    assert_same_bits(found, expected)
    if left:
        assert sum(searched) < sum(whole) / 2


def test_benchmark__resumed_within_the_search(
    embedding: Embedding, expected: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = importlib.import_module("croma_dask.graph")
    first = graph.run_graph

    def cut(*args: Any, **more: Any) -> Any:
        first(*args, **more)
        raise Cut

    with engine("streamed", range_rows=97):
        with monkeypatch.context() as patch:
            patch.setattr(graph, "run_graph", cut)
            with pytest.raises(Cut):
                score(embedding, **NAMES)
        assert_same_bits(score(embedding, **NAMES), expected)


def test_benchmark__what_is_kept_on_demand_is_used_again(
    embedding: Embedding, expected: xr.Dataset, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine("streamed", range_rows=97):
        assert_same_bits(score(embedding, keep_scratch=True, **NAMES), expected)
        kept = sorted(scratch.rglob("lists-*.npz"))
        assert kept
        caplog.clear()
        assert_same_bits(score(embedding, keep_scratch=True, **NAMES), expected)
        assert sorted(scratch.rglob("lists-*.npz")) == kept
        assert "used again" in caplog.text
        assert_same_bits(score(embedding, resume=False, **NAMES), expected)


def test_benchmark__other_readings_do_not_take_what_was_found_for_these(
    embedding: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of a step that was cut are of its readings, and not used for others."""
    other = {"kbet_expected": "dataset", "selection": "best_nmi", **NAMES}
    wanted = score(embedding, **other)
    evaluate = importlib.import_module("croma_dask.embedding.evaluate")

    def cut(*args: Any, **more: Any) -> Any:
        raise Cut

    with monkeypatch.context() as patch, engine("streamed", range_rows=97):
        patch.setattr(evaluate, "silhouette", cut)
        with pytest.raises(Cut):
            score(embedding, **NAMES)
    with engine("streamed", range_rows=97):
        assert_same_bits(score(embedding, **other), wanted)
        score(embedding, **NAMES)  # which takes what is left


@pytest.mark.parametrize("clustering", ["leiden", "kmeans"])
def test_benchmark__leaves_the_process_as_it_was(embedding: Embedding, clustering: str) -> None:
    before = np.random.get_state()[1].tolist(), random.getstate(), list(warnings.filters)  # noqa: NPY002
    score(embedding, clustering=clustering)
    after = np.random.get_state()[1].tolist(), random.getstate(), list(warnings.filters)  # noqa: NPY002
    assert before == after
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    found = score(embedding, clustering=clustering, **NAMES)
    assert_same_bits(found, score(embedding, clustering=clustering, **NAMES))


@pytest.mark.parametrize("name", ["small", "direct", "streamed"])
def test_benchmark__rows_that_are_left_out_leave_no_trace(embedding: Embedding, name: str) -> None:
    """Rows without a label, and for the metrics of batches those without a batch."""
    rng = np.random.default_rng(8)
    out = np.sort(rng.choice(N, 90, replace=False))
    obs = embedding.obs.copy()
    obs.loc[out[:50], "cell_type"] = None
    obs.loc[out[40:], "batch_id"] = None
    labelled = np.setdiff1d(np.arange(N), out[:50])
    complete = np.setdiff1d(np.arange(N), out)
    with engine(name, range_rows=64):
        with pytest.warns(cd.InputWarning) as told:
            found = score(embedding.x, obs)
        assert len(told) == 2
        bio = score(embedding.x[labelled], embedding.obs.iloc[labelled], metrics="bio")
        mixing = score(embedding.x[complete], embedding.obs.iloc[complete], metrics="batch")
    for part, rows in ((bio, labelled), (mixing, complete)):
        same = found.sel(metric=part["metric"])
        for variable in ("value", "note", "status", "n_cells", "n_labels"):
            np.testing.assert_array_equal(same[variable].values, part[variable].values)
        for variable in part.data_vars:
            if "sample" in part[variable].dims:
                of_rows = found[variable].values[rows]
                np.testing.assert_array_equal(of_rows, part[variable].values)
    assert np.isnan(found["clisi"].values[out[:50]]).all()
    assert np.isnan(found["kbet"].values[out]).all()
    assert (found["cluster"].values[out[:50]] == -1).all()
    np.testing.assert_array_equal(found["cluster"].values[labelled], bio["cluster"].values)


CHILD = """
import hashlib
from tests.helpers.benchmarks import SAMPLE_VALUES, cells, score

found = score(cells(n=260))
digest = hashlib.sha256()
for name in ("value", *SAMPLE_VALUES, "cluster"):
    digest.update(found[name].values.tobytes())
digest.update(repr(found["note"].values.tolist()).encode())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_benchmark__other_processes() -> None:
    """No set is walked in the order that a process has by chance."""
    found = {
        subprocess.run(
            [sys.executable, "-c", CHILD], check=True, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).resolve().parents[2], env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1
