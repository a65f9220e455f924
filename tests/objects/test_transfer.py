"""Files and folders that go to an object store and come from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from croma_dask.cohort import retrying
from croma_dask.cohort.transfer import fetched, published
from croma_dask.cohort.uploads import UPLOADING
from croma_dask.errors import SchemaError
from tests.objects.conftest import Bucket


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less between tries."""
    monkeypatch.setattr(retrying, "WAIT", 0.01)


def make_folder(path: Path, *, n: int = 3, text: str = "x") -> None:
    path.mkdir()
    (path / "zarr.json").write_text(json.dumps({"node_type": "group", "attributes": {"a": text}}))
    for at in range(n):
        (path / f"part/{at}").parent.mkdir(exist_ok=True)
        (path / f"part/{at}").write_text(text * (at + 1))


def test_file__comes_back_as_it_was(bucket: Bucket) -> None:
    url = bucket.url("a/x.npy")
    with published(url, storage_options=bucket.options) as path:
        assert path.name == "x.npy"
        path.write_bytes(b"123")
    assert bucket.keys() == ["a/x.npy"]
    with fetched(url, storage_options=bucket.options) as path:
        assert path.name == "x.npy"
        assert path.read_bytes() == b"123"
    assert not path.exists()
    with (
        pytest.raises(SchemaError, match="exists already"),
        published(url, storage_options=bucket.options),
    ):
        raise AssertionError


def test_folder__root_comes_last_and_goes_first(bucket: Bucket) -> None:
    url = bucket.url("r.zarr")
    for n, overwrite in ((3, False), (2, True)):
        bucket.faults.clear()
        with published(url, storage_options=bucket.options, overwrite=overwrite) as path:
            make_folder(path, n=n)
        puts = [r.key for r in bucket.faults.requests if r.verb == "PUT"]
        assert puts[0].endswith(UPLOADING)
        assert puts[-1].endswith("r.zarr/zarr.json")
        assert len(puts) == len(set(puts)) == n + 2  # one object, one write
        deletes = [r.key for r in bucket.faults.requests if r.verb in ("DELETE", "POST")]
        assert not overwrite or deletes[0].endswith("r.zarr/zarr.json")
        assert sorted(bucket.keys()) == sorted(
            ["r.zarr/zarr.json", *(f"r.zarr/part/{at}" for at in range(n))]
        )
    with fetched(url, storage_options=bucket.options) as path:
        assert sorted(p.name for p in path.rglob("*")) == ["0", "1", "part", "zarr.json"]
