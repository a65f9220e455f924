"""All commands over s3://, with requests that fail: the same results as on this machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.cohort import retrying
from croma_dask.cohort.uploads import UPLOADING
from tests.objects.commands import inputs, run, steps
from tests.objects.conftest import SECRET, Bucket
from tests.objects.eager import eager
from tests.objects.proxy import KINDS

FOLDER = "scvi"  # a benchmark calls the method as the folder is called
RESULTS = ("r.zarr", "again.nc", "sure.zarr", "why.zarr", "sweep.zarr", "bench.zarr")
TIMES = {"about"}  # of a benchmark: what it took
TABLES = ("r.csv", "ivf.json", "cells.csv", "ranks.csv")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less between tries."""
    monkeypatch.setattr(retrying, "WAIT", 0.02)


def put_inputs(bucket: Bucket) -> None:
    fs = bucket.filesystem()
    for name, content in zip(("x.npy", "m.csv"), inputs(), strict=True):
        fs.pipe_file(f"{bucket.name}/{FOLDER}/{name}", content)


def _datasets(result: xr.DataTree | xr.Dataset) -> dict[str, xr.Dataset]:
    if isinstance(result, xr.Dataset):
        return {"/": result.load()}
    return {node.path: node.to_dataset().load() for node in result.subtree}


def _timeless(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)


def compare(bucket: Bucket, here: Path) -> None:
    """Everything that the commands wrote there is what they wrote here."""
    for name in RESULTS:
        url = bucket.url(f"{FOLDER}/{name}")
        with (
            cd.open_result(url, storage_options=bucket.direct) as there,
            cd.open_result(here / name) as expected,
        ):
            found, own = _datasets(there), _datasets(expected)
            assert found.keys() == own.keys(), name
            for node, dataset in found.items():
                differ = [
                    v for v in dataset.variables
                    if not dataset[v].equals(own[node][v]) and v not in TIMES
                ]  # fmt: skip
                assert not differ, (name, node, differ)
    fs = bucket.filesystem()
    for name in TABLES:
        there = fs.cat_file(f"{bucket.name}/{FOLDER}/{name}").decode()
        assert _timeless(there) == _timeless((here / name).read_text()), name
    page = fs.cat_file(f"{bucket.name}/{FOLDER}/page.html")
    assert b"croma-dask" in page[:4096]
    assert SECRET.encode() not in page


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_all_commands__with_five_percent_of_requests_broken(
    bucket: Bucket, tmp_path: Path, seed: int
) -> None:
    put_inputs(bucket)
    here = tmp_path / FOLDER
    here.mkdir()
    for name, content in zip(("x.npy", "m.csv"), inputs(), strict=True):
        (here / name).write_bytes(content)
    told = []
    for local, remote in zip(
        steps(lambda name: str(here / name)),
        steps(lambda name: bucket.url(f"{FOLDER}/{name}")),
        strict=True,
    ):
        run(local)
        bucket.faults.clear()
        bucket.faults.at_random(0.05, KINDS, seed=seed)
        output = run([*remote, *bucket.cli])
        assert SECRET not in output
        counts = bucket.faults.counts()
        told.append(f"{remote[0]:10} {sum(counts.values()):5} {dict(counts)} "
                    f"broken {dict(bucket.faults.broken())}")  # fmt: skip
    bucket.faults.clear()
    print("\n" + "\n".join(told))
    compare(bucket, here)
    left = [key for key in bucket.keys() if UPLOADING in key or re.search(r"check-|\.partial", key)]
    assert not left


def test_some_commands__with_a_tenth_of_requests_broken(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = eager(bucket, monkeypatch)
    put_inputs(fast)
    fast.faults.at_random(0.1, KINDS, seed=4)
    at = {step[0]: step for step in steps(lambda name: fast.url(f"{FOLDER}/{name}"))[:4]}
    for name in ("ingest", "info"):
        assert SECRET not in run([*at[name], *fast.cli])
    out = fast.url("r.nc")
    run(["score", *at["score"][1:-5], "--out", out, "-q", *fast.cli])
    run(["breakdown", out, "--out", fast.url("cells.csv"), "-q", *fast.cli])
    assert fast.faults.broken().total() > 5
    fast.faults.clear()
    keys = fast.keys()
    assert {"r.nc", "cells.csv"} <= set(keys)
    fs = fast.filesystem()
    assert not [key for key in keys if SECRET.encode() in fs.cat_file(f"{fast.name}/{key}")]
