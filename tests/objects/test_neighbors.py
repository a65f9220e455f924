"""Neighbours kept at URLs: taken from there by a later run, replaced there, told by explain."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import croma_dask as cd
from croma_dask.cli import main
from croma_dask.cohort import retrying
from croma_dask.cohort.uploads import UPLOADING
from croma_dask.errors import MemoryLimitError, SchemaError, StoreError
from croma_dask.robustness import reuse
from tests.helpers.cohorts import manifest
from tests.objects.conftest import SECRET, Bucket
from tests.objects.eager import eager

# Small cohorts leave some rows without a typed neighbour within k.
pytestmark = pytest.mark.filterwarnings("ignore:.*units are undefined")

N, D = 90, 6
RNG = np.random.default_rng(2)
LABEL, CENTER = RNG.integers(0, 2, N), RNG.integers(0, 2, N)
X = (RNG.normal(size=(N, D)) + np.eye(D)[LABEL] + np.eye(D)[3 + CENTER]).astype(np.float32)
FRAME = manifest(LABEL, CENTER).assign(scanner=[str(v) for v in RNG.integers(0, 2, N)])
HOW: dict[str, Any] = {"k_candidates": (3, 7), "m": 2, "quiet": True}


@pytest.fixture
def store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return eager(bucket, monkeypatch)


def score(store: Bucket, confounder: str = "center", **options: Any) -> xr.DataTree:
    return cd.score(
        X, FRAME, confounder=confounder, keep_neighbors=store.url("n.zarr"),
        storage_options=store.options, **{**HOW, **options},
    )  # fmt: skip


def check(found: xr.DataTree, confounder: str = "center", **options: Any) -> None:
    expected = cd.score(X, FRAME, confounder=confounder, **{**HOW, **options})
    for name, node in expected.children.items():
        for variable in ("value", "sample_values"):
            np.testing.assert_array_equal(found[name][variable], node[variable])


@pytest.fixture
def no_distances(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def arm() -> None:
        def never(*args: Any, **options: Any) -> None:
            raise AssertionError("a search has begun")

        monkeypatch.setattr("croma_dask.robustness.evaluate.search", never)

    return arm


def test_score__keeps_neighbours_at_a_url_and_takes_them_from_there(
    store: Bucket, caplog: pytest.LogCaptureFixture, no_distances: Callable[[], None]
) -> None:
    store.faults.add("503", verb="PUT", key="n.zarr/neighbor_index")
    check(score(store))
    puts = [r.key for r in store.faults.requests if r.verb == "PUT" and r.fault is None]
    assert puts[-1].endswith("/n.zarr/zarr.json")
    assert not [key for key in store.keys() if UPLOADING in key or "croma-dask-" in key]
    no_distances()
    store.faults.add("cut", verb="GET", key="neighbor_distance/c/0")
    with caplog.at_level(logging.DEBUG, "croma_dask"):
        found = score(store, "scanner", metrics=("RI", "MaRI"))
    assert found["RI"].attrs["neighbors_reused"] == "global"
    assert f"neighbours of {store.url('n.zarr')} reused" in caplog.text
    assert SECRET not in caplog.text
    store.faults.clear()
    kept = cd.open_neighbors(store.url("n.zarr"), storage_options=store.options)
    assert kept["neighbor_index"].shape == (N, 7)
    assert SECRET not in str(kept.attrs)


@pytest.mark.slow
def test_score__with_requests_that_fail(store: Bucket) -> None:
    store.faults.at_random(0.1)
    check(score(store))
    check(score(store, "scanner"), "scanner")
    check(score(store, metrics="RI", k_candidates=(3, 11)), metrics="RI", k_candidates=(3, 11))
    store.faults.at_random(0.0)
    kept = cd.open_neighbors(store.url("n.zarr"), storage_options=store.options)
    assert (kept.attrs["k"], kept.attrs["m"], kept.attrs["confounder_column"]) == (11, 2, "scanner")
    assert not (kept["neighbor_index"] < -1).any()


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["PUT", "DELETE", "GET", "LIST", "HEAD", "POST"])
def test_replacing__never_leaves_half(
    store: Bucket, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Whichever request is the last that comes through, what is there is old, none, or new."""
    monkeypatch.setattr(retrying, "TRIES", 1)
    score(store, metrics="RI", k_candidates=(3,))
    for skipped in range(0, 40, 3):
        store.faults.clear()
        store.faults.seconds = 0.0
        store.faults.add("slow", verb=verb, times=skipped)
        store.faults.add("503", verb=verb, times=-1)
        try:
            score(store, metrics="RI", k_candidates=(3, 12))
            done = True
        except StoreError:
            done = False
        store.faults.clear()
        try:
            there = cd.open_neighbors(store.url("n.zarr"), storage_options=store.options)
        except StoreError:
            assert not done
        else:
            width = there.sizes["neighbor"]
            assert width in (3, 12)
            assert (there["neighbor_index"].values >= 0).all()
            if done:
                assert width == 12
                break
    check(score(store, metrics="RI", k_candidates=(3, 12)), metrics="RI", k_candidates=(3, 12))


@pytest.mark.slow
def test_score__notices_that_another_run_replaces_what_it_copies(
    store: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(store)
    other = {**HOW, "k_candidates": (3, 9)}
    real = reuse.Kept.nearby

    def nearby(self: Any, keep: Any) -> Any:
        if not self.place.is_local:
            monkeypatch.setattr(reuse.Kept, "nearby", real)
            store.filesystem().rm(f"{store.name}/n.zarr", recursive=True)
            score(store, **other)
        return real(self, keep)

    monkeypatch.setattr(reuse.Kept, "nearby", nearby)
    with pytest.raises(StoreError, match="another run has replaced the neighbours in s3://"):
        score(store)


@pytest.mark.slow
def test_score__of_several_models_keeps_a_folder_each(
    store: Bucket, tmp_path: Path, no_distances: Callable[[], None]
) -> None:
    models = {"a": X, "org/b v1": X + 0.5}
    how = {"confounder": "center", "keep_neighbors": store.url("all"), **HOW,
           "storage_options": store.options}  # fmt: skip
    store.faults.at_random(0.05)
    first = cd.score(models, FRAME, **how)
    no_distances()
    again = cd.score(models, FRAME, **how)
    store.faults.at_random(0.0)
    np.testing.assert_array_equal(first["CRoMa"].sample_values, again["CRoMa"].sample_values)
    assert {key.split("/")[1] for key in store.keys("all")} == {"a", "org%2Fb%20v1"}
    with pytest.raises(StoreError, match=r"holds the neighbours of 'a', 'org/b v1', a folder each"):
        cd.open_neighbors(store.url("all"), storage_options=store.options)
    with pytest.raises(SchemaError, match="holds something of a single cohort"):
        cd.score(models, FRAME, **{**how, "keep_neighbors": store.url("all/a")})


def test_score__refuses_bad_places_before_the_search(
    store: Bucket, no_distances: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_distances()
    store.filesystem().pipe_file(f"{store.name}/n.zarr/mine.txt", b"mine")
    with pytest.raises(StoreError, match=r"s3://.*/n.zarr exists and holds no neighbours"):
        score(store)
    with pytest.raises(StoreError, match="this holds no neighbours"):
        cd.open_neighbors(store.url("n.zarr"), storage_options=store.options)
    with pytest.raises(StoreError, match="there is nothing here"):
        cd.open_neighbors(store.url("none.zarr"), storage_options=store.options)
    store.filesystem().rm(f"{store.name}/n.zarr", recursive=True)
    store.faults.add("403", verb="PUT", times=-1)
    with pytest.raises(StoreError, match=r"n.zarr cannot be written: access is denied"):
        score(store)
    store.faults.clear()
    import shutil

    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda place: real(place)._replace(free=1000))
    with pytest.raises(MemoryLimitError, match="the neighbours to keep take .*set TMPDIR"):
        score(store)
    assert store.keys() == []


@pytest.mark.slow
def test_explain__reads_one_row_of_what_is_kept(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "WAIT", 0.01)
    place = cd.write_cohort(tmp_path / "c.zarr", X, FRAME)
    bucket.filesystem().put(place, f"{bucket.name}/c.zarr", recursive=True)
    options = ("--confounder", "center", "--k", "3,7", "--m", "2", "-q")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, *bucket.cli])
        assert result.exit_code == 0, result.output
        assert SECRET not in result.output
        return result.output

    run("score", bucket.url("c.zarr"), *options, "--keep-neighbors", bucket.url("n.zarr"))
    here = str(tmp_path / "n.zarr")
    run("score", place, *options, "--keep-neighbors", here)
    expected = run("explain", place, "s0007", "--neighbors", here)
    bucket.faults.clear()
    bucket.faults.at_random(0.05)
    said = run("explain", bucket.url("c.zarr"), "s0007", "--neighbors", bucket.url("n.zarr"))
    assert said == expected
    keys = {r.key for r in bucket.faults.requests if "/n.zarr/" in r.key and "/c/" in r.key}
    assert not any("unit_sum" in key for key in keys), "one row is looked up, nothing is copied"
    told = cd.explain(
        bucket.url("c.zarr"), "s0007", neighbors=bucket.url("n.zarr"),
        storage_options=bucket.options,
    )  # fmt: skip
    xr.testing.assert_identical(told, cd.explain(place, "s0007", neighbors=here))
    assert told.attrs["neighbors"].startswith("kept")
    assert SECRET not in str(told.attrs)
