"""Ingest from URLs, to URLs: every format, through a store that fails now and then."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import zarr

import croma_dask as cd
from croma_dask.cohort import retrying
from croma_dask.cohort.ingestion import ingest
from croma_dask.cohort.store import StoredCohort
from croma_dask.errors import SchemaError, StoreError
from tests.objects.conftest import KEY, SECRET, Bucket
from tests.objects.eager import eager

N, D = 30, 4
FRAME = pd.DataFrame(
    {
        "sample_id": [f"s{i:02d}" for i in range(N)],
        "label": ["x", "y", "z"] * (N // 3),
        "center": ["A", "B"] * (N // 2),
        "group_id": [f"g{i // 2}" for i in range(N)],
    }
)
X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)


@pytest.fixture
def store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return eager(bucket, monkeypatch)


def npy(folder: Path) -> Path:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def npz(folder: Path) -> Path:
    np.savez(folder / "x.npz", x=X, sample_id=FRAME["sample_id"].to_numpy(str)[::-1])
    return folder / "x.npz"


def h5ad(folder: Path) -> Path:
    obs = FRAME.set_index("sample_id")
    anndata.AnnData(X, obs=obs).write_h5ad(folder / "x.h5ad")
    return folder / "x.h5ad"


def hdf5(folder: Path) -> Path:
    with h5py.File(folder / "x.h5", "w") as file:
        file["features"] = X
    return folder / "x.h5"


def parquet(folder: Path) -> Path:
    table = pd.DataFrame({"sample_id": FRAME["sample_id"], "f": list(X)})
    table.to_parquet(folder / "x.parquet")
    return folder / "x.parquet"


def zarr_array(folder: Path) -> Path:
    zarr.create_array(folder / "x.zarr", data=X, chunks=(7, D))
    return folder / "x.zarr"


def archive(folder: Path) -> Path:
    with zarr.storage.ZipStore(folder / "x.zip", mode="w") as there:
        zarr.create_array(there, data=X, chunks=(7, D))
    return folder / "x.zip"


def slides(folder: Path) -> Path:
    (folder / "slides").mkdir()
    for number in range(3):
        with h5py.File(folder / "slides" / f"slide_{number}.h5", "w") as file:
            file["features"] = X[number * 10 : number * 10 + 10]
    return folder / "slides"


def csv(folder: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(folder / "m.csv", index=False)
    return folder / "m.csv"


def tsv(folder: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(folder / "m.tsv.gz", index=False, sep="\t")
    return folder / "m.tsv.gz"


def parquet_manifest(folder: Path, frame: pd.DataFrame) -> Path:
    frame.to_parquet(folder / "m.parquet")
    return folder / "m.parquet"


def obs(folder: Path, frame: pd.DataFrame) -> Path:
    anndata.AnnData(obs=frame.set_index("sample_id")).write_h5ad(folder / "m.h5ad")
    return folder / "m.h5ad"


FORMATS = [npy, npz, h5ad, hdf5, parquet, zarr_array, archive, slides]
MANIFESTS = [csv, tsv, parquet_manifest, obs]


def put(store: Bucket, path: Path) -> str:
    """Copy a file or folder into the bucket, past the proxy."""
    store.filesystem().put(str(path), f"{store.name}/in/{path.name}", recursive=path.is_dir())
    return store.url(f"in/{path.name}")


def content(place: str, options: dict[str, Any] | None = None) -> tuple[Any, ...]:
    """What a store holds, and where it says that it came from."""
    cohort = StoredCohort(place, options)
    cohort.verify()
    told = json.loads(str(cohort.attrs["source"]))
    return cohort.fingerprint, cohort.columns, told


def left_here(tmp_path: Path) -> list[str]:
    """Copies that nobody has deleted."""
    return [str(path) for path in tmp_path.rglob("*transfer*")]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary folder of this test: what is left in it is seen."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def check_format(
    store: Bucket, tmp_path: Path, write: Callable[[Path], Path], rate: float = 0.2
) -> None:
    features = write(tmp_path)
    frame = FRAME
    if write is slides:
        frame = FRAME.assign(sample_id=[f"slide_{i // 10}/{i % 10}" for i in range(N)])
    table = csv(tmp_path, frame)
    expected = content(ingest(features, table, tmp_path / "out.zarr"))
    urls = put(store, features), put(store, table)
    store.faults.at_random(rate)
    place = ingest(*urls, store.url("out.zarr"), storage_options=store.options)
    store.faults.at_random(0.0)
    assert place == store.url("out.zarr")
    assert store.faults.broken().total() > 0
    assert content(place, store.direct) == expected


def test_ingest__npy_at_a_url_to_a_url(store: Bucket, tmp_path: Path, here: Path) -> None:
    store.faults.add("cut", verb="GET", key="x.npy")
    check_format(store, tmp_path, npy, 0.03)
    assert not left_here(here)


@pytest.mark.slow
@pytest.mark.parametrize("write", FORMATS[1:])
def test_ingest__every_format_at_a_url(
    store: Bucket, tmp_path: Path, here: Path, write: Callable[[Path], Path]
) -> None:
    check_format(store, tmp_path, write)
    assert not left_here(here)


@pytest.mark.slow
@pytest.mark.parametrize("write", MANIFESTS)
def test_ingest__every_manifest_at_a_url(
    store: Bucket, tmp_path: Path, here: Path, write: Callable[[Path, pd.DataFrame], Path]
) -> None:
    features, table = npy(tmp_path), write(tmp_path, FRAME)
    expected = content(ingest(features, table, tmp_path / "out.zarr"))
    url = put(store, table)
    store.faults.at_random(0.2)
    place = ingest(features, url, store.url("out.zarr"), storage_options=store.options)
    store.faults.at_random(0.0)
    assert content(place, store.direct) == expected
    assert not left_here(here)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("in/none.npy", "there is no s3://.*/in/none.npy$"),
        ("in/m.csv", "m.csv: unknown kind of file"),
        ("in", "folder in holds no .h5, .npy or .npz file; it has 'm.csv'"),
    ],
)
def test_ingest__says_what_is_wrong_at_a_url(
    store: Bucket, tmp_path: Path, here: Path, key: str, message: str
) -> None:
    put(store, csv(tmp_path, FRAME))
    with pytest.raises(SchemaError, match=message):
        ingest(store.url(key), FRAME, tmp_path / "out.zarr", storage_options=store.options)
    assert not (tmp_path / "out.zarr").exists()
    assert not left_here(here)


def test_ingest__gives_up_with_one_message(store: Bucket, tmp_path: Path, here: Path) -> None:
    features = put(store, npy(tmp_path))
    store.faults.add("403", verb="GET", key="x.npy", times=-1)
    with pytest.raises(StoreError, match=r"/in/x.npy cannot be read: .*denied") as told:
        ingest(features, FRAME, store.url("out.zarr"), storage_options=store.options)
    assert SECRET not in str(told.value)
    assert KEY not in str(told.value)
    assert store.keys("out.zarr") == []
    assert not left_here(here)


def test_ingest__gives_up_where_the_store_never_answers(
    store: Bucket, tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "TRIES", 2)
    features = put(store, npy(tmp_path))
    store.faults.add("503", verb="GET", key="x.npy", times=-1)
    with pytest.raises(StoreError, match=r"/in/x.npy cannot be read \(tried 2 times in .*HTTP 503"):
        ingest(features, FRAME, store.url("out.zarr"), storage_options=store.options)
    assert store.keys("out.zarr") == []


class Stopped(Exception):
    """Stands for a process that ends."""


def stop_after(monkeypatch: pytest.MonkeyPatch, n_chunks: int) -> None:
    """Let the writing of a store end after some chunks."""
    from croma_dask.cohort.writer import CohortWriter

    flush = CohortWriter._flush
    count = 0

    def counted(self: CohortWriter, rows: Any) -> None:
        nonlocal count
        if count == n_chunks:
            raise Stopped
        count += 1
        flush(self, rows)

    monkeypatch.setattr(CohortWriter, "_flush", counted)


def interrupted(
    store: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: str
) -> Callable[[], str]:
    """Begin an ingest and stop it in the middle; returns how to go on."""

    def run() -> str:
        return ingest(
            features, FRAME, store.url("out.zarr"), chunk_rows=5, storage_options=store.options
        )

    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(Stopped):
            run()
    with pytest.raises(StoreError, match="was not finished"):
        cd.open_cohort(store.url("out.zarr"), storage_options=store.options)
    return run


@pytest.mark.slow
def test_ingest__resumes_at_a_url(
    store: Bucket, tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = content(ingest(npy(tmp_path), FRAME, tmp_path / "out.zarr", chunk_rows=5))
    run = interrupted(store, tmp_path, monkeypatch, put(store, tmp_path / "x.npy"))
    before = len(store.faults.requests)
    store.faults.at_random(0.1)
    place = run()
    store.faults.at_random(0.0)
    assert content(place, store.direct) == expected
    # Chunks that were there are not written again.
    written = [r.key for r in store.faults.requests[before:] if r.verb == "PUT"]
    assert {key.rsplit("/", 2)[-2] for key in written if "/embedding/c/" in key} == {"3", "4", "5"}
    assert not left_here(here)


@pytest.mark.slow
@pytest.mark.parametrize("folder", [False, True])
def test_ingest__notices_that_its_source_has_changed(
    store: Bucket, tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    if folder:
        (tmp_path / "f").mkdir()
        np.save(tmp_path / "f" / "a.npy", X)
        features = put(store, tmp_path / "f")
        changed = f"{store.name}/in/f/a.npy"
    else:
        features = put(store, npy(tmp_path))
        changed = f"{store.name}/in/x.npy"
    frame = FRAME.assign(sample_id=[f"a/{i}" for i in range(N)]) if folder else FRAME
    monkeypatch.setattr(sys.modules[__name__], "FRAME", frame)
    run = interrupted(store, tmp_path, monkeypatch, features)
    np.save(tmp_path / "other.npy", np.flipud(X))
    store.filesystem().put_file(str(tmp_path / "other.npy"), changed)
    with pytest.raises(StoreError, match="started from other rows"):
        run()


@pytest.mark.slow
def test_ingest__overwrites_safely(store: Bucket, tmp_path: Path, here: Path) -> None:
    place = store.url("out.zarr")
    ingest(npy(tmp_path), FRAME, place, storage_options=store.options)
    np.save(tmp_path / "y.npy", X + 1)
    with pytest.raises(StoreError, match=r"exists; pass overwrite=True"):
        ingest(tmp_path / "y.npy", FRAME, place, storage_options=store.options)
    expected = content(ingest(tmp_path / "y.npy", FRAME, tmp_path / "o.zarr", chunk_rows=7))
    store.faults.at_random(0.2)
    ingest(
        tmp_path / "y.npy", FRAME, place, overwrite=True, chunk_rows=7,
        storage_options=store.options,
    )  # fmt: skip
    store.faults.at_random(0.0)
    assert content(place, store.direct) == expected


@pytest.mark.slow
def test_readers__of_signed_urls_name_the_file_alone(tmp_path: Path) -> None:
    """A file system in memory stands for a server: its paths take a query as they are."""
    import fsspec

    memory = fsspec.filesystem("memory")
    table = csv(tmp_path, FRAME)
    memory.put_file(str(npy(tmp_path)), "/signed/x.npy?X-Amz-Signature=abcdef")
    memory.put_file(str(table), "/signed/m.csv?X-Amz-Signature=abcdef")
    place = ingest(
        "memory://signed/x.npy?X-Amz-Signature=abcdef",
        "memory://signed/m.csv?X-Amz-Signature=abcdef", tmp_path / "out.zarr",
    )  # fmt: skip
    told = str(StoredCohort(place).attrs["source"])
    assert json.loads(told)["features"] == "x.npy"
    assert json.loads(told)["manifest"] == "m.csv"
    assert "abcdef" not in told
    assert re.search(r"[Ss]ignature", told) is None
