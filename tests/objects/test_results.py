"""Results, reports and tables that go to an object store and are opened there."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.cohort import retrying
from croma_dask.cohort.uploads import UPLOADING
from croma_dask.errors import SchemaError, StoreError
from croma_dask.results import save
from croma_dask.temporary import private_root
from tests.objects.conftest import Bucket
from tests.objects.eager import eager


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less between tries."""
    monkeypatch.setattr(retrying, "WAIT", 0.01)


@pytest.fixture(autouse=True)
def temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of this test, where other processes copy nothing."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> xr.DataTree:
    rng = np.random.default_rng(0)
    n = 120
    frame = {
        "sample_id": [f"s{i}" for i in range(n)],
        "label": [f"l{i % 2}" for i in range(n)],
        "center": [f"c{i // 2 % 3}" for i in range(n)],
        "group_id": [f"g{i // 4}" for i in range(n)],
    }
    x = rng.standard_normal((n, 8)).astype("f4")
    store = cd.write_cohort(tmp_path_factory.mktemp("scored") / "c.zarr", x, frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cd.score(store, confounder="center", k_candidates=[5], m=2, quiet=True)


@pytest.fixture
def small() -> xr.Dataset:
    """What has the attributes of a result, and two variables."""
    n = 50
    return xr.Dataset(
        {"value": ("k", [0.25, np.nan]), "sample_values": ("sample", np.arange(float(n)))},
        {"k": [5, 11], "sample_id": ("sample", np.array([f"s{i}" for i in range(n)], object))},
        {"croma_dask_version": cd.__version__, "metric": "RI"},
    )


@pytest.mark.parametrize("ending", ["zarr", "nc"])
def test_result__is_the_same_from_a_url(
    bucket: Bucket, small: xr.Dataset, tmp_path: Path, ending: str
) -> None:
    check_saved(bucket, small, tmp_path, ending)
    url = bucket.url(f"out/r.{ending}")
    with pytest.raises(SchemaError, match="exists already"):
        save(small, url, storage_options=bucket.options)
    save(small.assign(value=small.value + 1), url, overwrite=True, storage_options=bucket.options)
    with cd.open_result(url, storage_options=bucket.options) as there:
        assert there.value[0] == 1.25


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["zarr", "nc"])
def test_scored_result__is_the_same_from_a_url(
    bucket: Bucket, scored: xr.DataTree, tmp_path: Path, ending: str
) -> None:
    check_saved(bucket, scored, tmp_path, ending)


def check_saved(bucket: Bucket, result: Any, tmp_path: Path, ending: str) -> None:
    url = bucket.url(f"out/r.{ending}")
    save(result, url, storage_options=bucket.options)
    save(result, tmp_path / f"r.{ending}")
    here = cd.open_result(tmp_path / f"r.{ending}")
    with cd.open_result(url, storage_options=bucket.options) as there:
        xr.testing.assert_identical(there.compute(), here.compute())
        assert copies()
    assert not copies()
    here.close()
    assert not any("check" in key or UPLOADING in key for key in bucket.keys())


def copies() -> list[Path]:
    """What is copied from a URL and not deleted yet."""
    return list(Path(private_root()).glob("transfer-*"))


def test_result__whose_upload_failed_does_not_open(
    bucket: Bucket, small: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = eager(bucket, monkeypatch)
    url = fast.url("r.zarr")
    fast.faults.add("500", "PUT", "sample_values/zarr.json$", times=retrying.TRIES)
    with pytest.raises(StoreError, match="cannot be written"):
        save(small, url, storage_options=fast.options)
    with pytest.raises(StoreError, match="was not written to its end; write it again"):
        cd.open_result(url, storage_options=fast.options)
    assert not copies()
    save(small, url, storage_options=fast.options)  # nothing there is to be overwritten
    cd.open_result(url, storage_options=fast.options).close()


@pytest.mark.slow
def test_what_is_no_result__is_neither_opened_nor_overwritten(
    bucket: Bucket, small: xr.Dataset
) -> None:
    options = bucket.options
    frame = {"sample_id": range(9), "label": ["a"] * 9}
    store = cd.write_cohort(bucket.url("c.zarr"), np.ones((9, 2)), frame, storage_options=options)
    bucket.faults.requests.clear()
    with pytest.raises(StoreError, match="found a cohort store"):
        cd.open_result(store, storage_options=options)
    assert not [r for r in bucket.faults.requests if "/c/0" in r.key]  # nothing is copied
    with pytest.raises(SchemaError, match="exists already"):
        save(small, store, storage_options=options)
    with pytest.raises(SchemaError, match="is no result of croma-dask"):
        save(small, store, overwrite=True, storage_options=options)
    fs = bucket.filesystem()
    fs.pipe_file(f"{bucket.name}/page.html", b"<html>mine</html>")
    with pytest.raises(SchemaError, match="is no report of croma-dask"):
        cd.report(small, bucket.url("page.html"), overwrite=True, storage_options=options)
    with pytest.raises(StoreError, match="there is no result at"):
        cd.open_result(bucket.url("none.zarr"), storage_options=options)
    save(small, bucket.url("r.json"), storage_options=options)
    with pytest.raises(StoreError, match="holds a result's numbers only"):
        cd.open_result(bucket.url("r.json"), storage_options=options)
