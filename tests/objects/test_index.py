"""Indexes at URLs: built here and uploaded whole, opened there, gone on with, replaced."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import croma_dask as cd
from croma_dask.cli import main
from croma_dask.cluster import connect
from croma_dask.cohort import retrying
from croma_dask.cohort.uploads import UPLOADING
from croma_dask.errors import MemoryLimitError, StoreError
from croma_dask.index import making
from tests.helpers.cohorts import manifest
from tests.objects.conftest import SECRET, Bucket
from tests.objects.eager import eager

N, D = 300, 8
KIND = "ivf"
SMALL = {"cluster_rows": 25, "shard_rows": 120, "seed": 3}
RNG = np.random.default_rng(5)
LABEL, CENTER = RNG.integers(0, 3, N), RNG.integers(0, 3, N)
X = (RNG.normal(size=(N, D)) + np.eye(D)[LABEL] + np.eye(D)[5 + CENTER]).astype(np.float32)
FRAME = manifest(LABEL, CENTER)
HOW: dict[str, Any] = {
    "confounder": "center", "k_candidates": (5, 11), "m": 2, "calibration": 100, "quiet": True,
}  # fmt: skip


@pytest.fixture
def store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return eager(bucket, monkeypatch)


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> str:
    return cd.write_cohort(tmp_path_factory.mktemp("cohort") / "c.zarr", X, FRAME)


@pytest.fixture(scope="module")
def expected(cohort: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of the index that is built on this machine."""
    place = tmp_path_factory.mktemp("index") / "i.zarr"
    cd.build_index(cohort, KIND, path=place, quiet=True, **SMALL)
    return {
        path.relative_to(place).as_posix(): path.read_bytes()
        for path in place.rglob("*") if path.is_file()
    }  # fmt: skip


def build(store: Bucket, cohort: str, scratch: Path, **options: Any) -> Any:
    return cd.build_index(
        cohort, KIND, path=store.url("i.zarr"), storage_options=store.options, quiet=True,
        scratch=str(scratch), **{**SMALL, **options},
    )  # fmt: skip


def check_there(store: Bucket, expected: dict[str, bytes]) -> None:
    """What lies in the bucket is what is built here, byte for byte, and nothing else."""
    fs = store.filesystem()
    keys = [key.removeprefix("i.zarr/") for key in store.keys("i.zarr")]
    assert sorted(keys) == sorted(expected)
    for key in keys:
        assert fs.cat_file(f"{store.name}/i.zarr/{key}") == expected[key], key


def test_build_index__to_a_url(
    store: Bucket, cohort: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    store.faults.at_random(0.1)
    built = build(store, cohort, tmp_path)
    assert built.n_rows == N
    store.faults.at_random(0.0)
    assert store.faults.broken().total() > 0
    check_there(store, expected)
    # Nothing is left here, and the root came last of all that stays.
    assert list(tmp_path.iterdir()) == []
    puts = [r.key for r in store.faults.requests if r.verb == "PUT" and r.fault is None]
    assert puts[-1].endswith("/i.zarr/zarr.json")
    # The same call finds it, and writes nothing.
    before = len(store.faults.requests)
    build(store, cohort, tmp_path)
    assert {r.verb for r in store.faults.requests[before:]} <= {"GET", "HEAD", "LIST"}


@pytest.mark.slow
def test_score__through_an_index_at_a_url(store: Bucket, cohort: str, tmp_path: Path) -> None:
    build(store, cohort, tmp_path / "scratch")
    here = cd.score(cohort, index=cd.build_index(cohort, KIND, path=tmp_path / "i.zarr", **SMALL),
                    **HOW)  # fmt: skip
    store.faults.at_random(0.1)
    there = cd.score(cohort, index=store.url("i.zarr"), storage_options=store.options, **HOW)
    store.faults.at_random(0.0)
    for name in ("RI", "MaRI", "CRoMa"):
        np.testing.assert_array_equal(there[name].sample_values, here[name].sample_values)
        assert SECRET not in json.dumps({k: str(v) for k, v in there[name].attrs.items()})


class Stopped(Exception):
    """Stands for a process that ends."""


def fail_at_shard(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let a build end when so many shards are there."""
    count = itertools.count()

    def write(work: Any, shard: int) -> int:
        if next(count) >= number:
            raise Stopped
        return making.write_shard(work, shard)

    monkeypatch.setattr("croma_dask.build.write_shard", write)


def shards_written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the shards whose rows are read from now on."""
    taken: list[int] = []
    real = making.TakenRows.read

    def read(self: Any, lo: int, hi: int) -> Any:
        taken.append(hi - lo)
        return real(self, lo, hi)

    monkeypatch.setattr(making.TakenRows, "read", read)
    return taken


@pytest.mark.slow
def test_build_index__goes_on_from_scratch(
    store: Bucket, cohort: str, expected: dict[str, bytes], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with monkeypatch.context() as patch:
        fail_at_shard(patch, 1)
        with pytest.raises(Stopped):
            build(store, cohort, tmp_path, threads=1)
    assert store.keys("i.zarr") == []
    with pytest.raises(StoreError, match="there is no store here; build one"):
        cd.open_index(store.url("i.zarr"), storage_options=store.options)
    n_shards = len([key for key in expected if key.endswith("rows/zarr.json")])
    with monkeypatch.context() as patch:
        taken = shards_written(patch)
        build(store, cohort, tmp_path, threads=1)
    assert len(taken) == n_shards - 1
    check_there(store, expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_build_index__goes_on_from_an_upload_that_failed(
    store: Bucket, cohort: str, expected: dict[str, bytes], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(retrying, "TRIES", 2)
    store.faults.add("503", verb="PUT", key="order/c/0", times=-1)
    with pytest.raises(StoreError, match="order/c/0 cannot be written .tried 2 times") as told:
        build(store, cohort, tmp_path)
    assert SECRET not in str(told.value)
    keys = store.keys("i.zarr")
    assert f"i.zarr/{UPLOADING}" in keys
    assert "i.zarr/zarr.json" not in keys
    with pytest.raises(StoreError):
        cd.open_index(store.url("i.zarr"), storage_options=store.options)
    store.faults.clear()
    with monkeypatch.context() as patch:
        taken = shards_written(patch)
        build(store, cohort, tmp_path)
    assert taken == []
    check_there(store, expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["PUT", "DELETE", "GET", "LIST", "HEAD", "POST"])
def test_overwriting__never_leaves_half_an_index(
    store: Bucket, cohort: str, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever request is the last that comes through: the old one, none, or the new one."""
    monkeypatch.setattr(retrying, "TRIES", 1)
    first = build(store, cohort, tmp_path, seed=1)
    old = first.attrs["build_id"]
    opened = set()
    for skipped in range(0, 60, 7):
        rule = store.faults
        rule.clear()
        # The first ones come through.
        rule.add("slow", verb=verb, times=skipped)
        rule.seconds = 0.0
        rule.add("503", verb=verb, times=-1)
        failed = False
        try:
            build(store, cohort, tmp_path, seed=2, overwrite=True)
        except StoreError:
            failed = True
        rule.clear()
        try:
            found = cd.open_index(store.url("i.zarr"), storage_options=store.direct)
        except StoreError:
            opened.add("none")
            assert failed
            continue
        kind = "old" if found.attrs["build_id"] == old else "new"
        opened.add(kind)
        assert found.read(0, N).shape == (N, D)
        assert sorted(found.partition.order.tolist()) == list(range(N))
        if kind == "new":
            break
    build(store, cohort, tmp_path, seed=2, overwrite=True)
    found = cd.open_index(store.url("i.zarr"), storage_options=store.direct)
    assert found.parameters["seed"] == 2
    np.testing.assert_array_equal(np.sort(found.read(0, N), axis=0), np.sort(X, axis=0))


@pytest.mark.slow
def test_build_index__leaves_what_is_no_index_alone(
    store: Bucket, cohort: str, tmp_path: Path
) -> None:
    store.filesystem().pipe_file(f"{store.name}/i.zarr/mine.txt", b"mine")
    for overwrite in (False, True):
        with pytest.raises(StoreError, match="exists and is no index, so it is left alone"):
            build(store, cohort, tmp_path, overwrite=overwrite)
    assert store.keys("i.zarr") == ["i.zarr/mine.txt"]
    store.filesystem().rm(f"{store.name}/i.zarr", recursive=True)
    build(store, cohort, tmp_path)
    with pytest.raises(StoreError, match="is another index .parameters differ"):
        build(store, cohort, tmp_path, seed=9)
    store.filesystem().pipe_file(f"{store.name}/file.zarr", b"mine")
    with pytest.raises(StoreError, match="is a file; name another place"):
        cd.build_index(
            cohort, KIND, path=store.url("file.zarr"), storage_options=store.options, quiet=True,
            scratch=str(tmp_path), **SMALL,
        )  # fmt: skip


def test_build_index__refuses_before_it_begins(
    store: Bucket, cohort: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("it has begun")

    monkeypatch.setattr("croma_dask.build.train", never)
    store.faults.add("403", verb="PUT", times=-1)
    with pytest.raises(StoreError, match="i.zarr cannot be written: access is denied"):
        build(store, cohort, tmp_path)
    store.faults.clear()
    import shutil

    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda place: real(place)._replace(free=1000))
    with pytest.raises(MemoryLimitError, match="takes 9.60 kB on disk .* 1.00 kB free.*--scr"):
        build(store, cohort, tmp_path)
    assert store.keys("i.zarr") == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ivf", "pynndescent"])
def test_index_and_score__of_a_store_at_a_url(
    bucket: Bucket, cohort: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands: the index lies beside the store, and is found there by its kind."""
    monkeypatch.setattr(retrying, "WAIT", 0.01)
    bucket.filesystem().put(cohort, f"{bucket.name}/c.zarr", recursive=True)
    run = runner(bucket)
    bucket.faults.at_random(0.05)
    scratch = ["--scratch", str(tmp_path / "s")]
    said = run("index", bucket.url("c.zarr"), "--kind", kind, "-q", *scratch)
    assert SECRET not in said
    score = ["score", bucket.url("c.zarr"), "--confounder", "center", "--k", "5,11", "--m", "2",
             "--calibration", "100", "-q", *scratch]  # fmt: skip
    run(*score, "--index", kind, "--out", str(tmp_path / "named.nc"))
    place = bucket.url(f"c.{kind}.zarr")
    run(*score, "--index", place, "--out", str(tmp_path / "placed.nc"))
    assert SECRET not in run("plan", *score[1:8], "--index", place)
    bucket.faults.at_random(0.0)
    here = cd.build_index(cohort, kind, path=tmp_path / "here.zarr", quiet=True)
    expected = cd.score(cohort, index=here, **HOW)
    for name in ("named.nc", "placed.nc"):
        with cd.open_result(tmp_path / name) as found:
            np.testing.assert_array_equal(
                found["CRoMa"].sample_values, expected["CRoMa"].sample_values
            )


def runner(bucket: Bucket) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, *bucket.cli])
        assert result.exit_code == 0, result.output
        return result.output

    return run


@pytest.mark.slow
@pytest.mark.cluster
def test_build_index__of_a_store_at_a_url_by_workers(
    store: Bucket, cohort: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    store.filesystem().put(cohort, f"{store.name}/c.zarr", recursive=True)
    with connect(workers=2) as client:
        store.faults.at_random(0.03)
        build(store, store.url("c.zarr"), tmp_path, client=client)
        store.faults.at_random(0.0)
    check_there(store, expected)
