"""What goes wrong on the way to an object store: tried again, or one plain error, never a value."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import croma_dask as cd
from croma_dask.cohort import downloads, retrying, uploads
from croma_dask.cohort.location import Location
from croma_dask.cohort.store import StoredCohort
from croma_dask.cohort.transfer import fetched, published
from croma_dask.cohort.uploads import UPLOADING, is_unfinished
from croma_dask.errors import SchemaError, StoreError
from tests.objects.commands import run
from tests.objects.conftest import KEY, SECRET, Bucket
from tests.objects.eager import eager
from tests.objects.test_transfer import make_folder

N = 40


@pytest.fixture
def fast(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket whose failures are tried again without a pause."""
    return eager(bucket, monkeypatch)


def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((N, 3)).astype("f4")


def write(bucket: Bucket, name: str = "c.zarr", **options: object) -> str:
    frame = {"sample_id": [f"s{i}" for i in range(N)], "label": ["a"] * 20 + ["b"] * 20}
    return cd.write_cohort(
        bucket.url(name), rows(), frame, chunk_rows=8, storage_options=bucket.options, **options
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["500", "503", "429", "drop", "cut", "lost"])
@pytest.mark.slow
def test_passing_faults__are_tried_again(fast: Bucket, kind: str) -> None:
    for verb in ("PUT", "GET", "HEAD", "LIST"):
        fast.faults.add(kind, verb, times=2)
    url = write(fast)
    for verb in ("GET", "HEAD"):
        fast.faults.add(kind, verb, times=2)
    store = StoredCohort(url, fast.options)
    assert np.array_equal(store.read_tiles(0, N), rows())
    store.verify()
    assert fast.faults.broken()[kind] >= 4


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("500", "embedding/c/"),
        ("403", "column_"),
        *(
            pytest.param(kind, key, marks=pytest.mark.slow)
            for kind, key in itertools.product(
                ("500", "503", "drop", "cut", "403"), ("embedding/c/", "column_")
            )
        ),
    ],
)
def test_chunk_that_cannot_be_read__is_no_missing_chunk(fast: Bucket, kind: str, key: str) -> None:
    url = write(fast)
    store = StoredCohort(url, fast.options)
    assert store.n_tiles == N
    fast.faults.add(kind, "GET|HEAD", key, times=-1)
    with pytest.raises(StoreError, match=r"cannot be read") as caught:
        store.read_tiles(0, N) if "embedding" in key else store.codes("label")
    told = str(caught.value)
    assert "missing" not in told
    assert "access is denied" in told if kind == "403" else f"tried {retrying.TRIES} times" in told
    assert SECRET not in told
    assert KEY not in told


@pytest.mark.slow
def test_chunk_that_is_missing__is_an_error(fast: Bucket) -> None:
    url = write(fast)
    fs = fast.filesystem()
    fs.rm_file(f"{fast.name}/c.zarr/embedding/c/2/0")
    with pytest.raises(StoreError, match="chunk 2"):
        StoredCohort(url, fast.options).read_tiles(0, N)


@pytest.mark.slow
def test_listing__is_never_an_old_one(fast: Bucket) -> None:
    place = Location.of(fast.url("folder"), fast.options)
    assert place.names() == []
    assert place.about() is None
    fs = fast.filesystem()
    fs.pipe_file(f"{fast.name}/folder/a", b"1")
    assert place.names() == ["a"]
    assert place.joined("a").about()["size"] == 1  # type: ignore[index]
    fs.pipe_file(f"{fast.name}/folder/a", b"1234")
    assert place.joined("a").about()["size"] == 4  # type: ignore[index]
    assert place.read_bytes("a") == b"1234"
    fs.rm_file(f"{fast.name}/folder/a")
    assert place.read_bytes("a") is None
    assert place.names() == []


@pytest.mark.slow
def test_store_that_is_replaced__is_read_anew(fast: Bucket) -> None:
    url = write(fast)
    first = StoredCohort(url, fast.options).fingerprint
    cd.write_cohort(
        url, rows()[:20] + 1, {"sample_id": range(20), "label": ["a"] * 20}, chunk_rows=8,
        overwrite=True, storage_options=fast.options,
    )  # fmt: skip
    again = StoredCohort(url, fast.options)
    assert again.fingerprint != first
    assert np.array_equal(again.read_tiles(0, 20), rows()[:20] + 1)


@pytest.mark.parametrize(
    "at",
    ["part/1", *(pytest.param(at, marks=pytest.mark.slow) for at in ("zarr.json", UPLOADING))],
)
def test_folder_whose_upload_fails__does_not_open_and_is_written_again(
    fast: Bucket, at: str
) -> None:
    url = fast.url("r.zarr")
    place = Location.of(url, fast.options)
    for overwrite in (False, True):
        fast.faults.add("500", "PUT", f"r.zarr/{at}$", times=retrying.TRIES)
        with (
            pytest.raises(StoreError, match="cannot be written"),
            published(url, storage_options=fast.options, overwrite=overwrite) as path,
        ):
            make_folder(path)
        # What was there stands as long as nothing was touched.
        assert (place.read_bytes("zarr.json") is None) == (not overwrite or at != UPLOADING)
        assert is_unfinished(place) == (at != UPLOADING)
        with published(url, storage_options=fast.options, overwrite=overwrite) as path:
            make_folder(path)
        with fetched(url, storage_options=fast.options) as path:
            assert (path / "part/2").read_text() == "xxx"


@pytest.mark.slow
def test_folder_that_another_run_writes__is_refused(
    fast: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Location.of(fast.url("r.zarr"), fast.options)
    put = uploads._put

    def meanwhile(path: Path, location: Location) -> None:
        put(path, location)
        if path.name == "2":
            place.write_bytes(UPLOADING, b"somebody else")

    monkeypatch.setattr(uploads, "_put", meanwhile)
    with pytest.raises(StoreError, match="another run writes"), published(place) as path:  # noqa: PT012
        make_folder(path)
        assert path.is_dir()
    assert place.read_bytes("zarr.json") is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["500", "drop", "lost"])
def test_large_file__is_sent_in_parts_and_aborted_whole(fast: Bucket, kind: str) -> None:
    size = 120 << 20
    content = np.random.default_rng(0).bytes(size)
    url = fast.url("large.npy")
    fast.faults.add(kind, "MULTI", times=1)
    with published(url, storage_options=fast.options) as path:
        path.write_bytes(content)
    # Of one whose answer was lost nobody knows the number.
    assert kind == "lost" or fast.uploads() == []
    with fetched(url, storage_options=fast.options) as path:
        assert path.read_bytes() == content
    assert max(fast.faults.counts().values()) < 60
    fast.faults.add(kind, "MULTI", times=-1)
    with (
        pytest.raises(StoreError, match="cannot be written"),
        published(url, storage_options=fast.options, overwrite=True) as path,
    ):
        path.write_bytes(b"x" + content[1:])
    fast.faults.clear()
    with fetched(url, storage_options=fast.options) as path:
        assert path.read_bytes() == content  # what was there
    # Of one whose answer was lost nobody knows the number.
    assert kind == "lost" or fast.uploads() == []


@pytest.mark.slow
def test_large_file__changed_while_it_is_read(
    fast: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "PIECE", 10)
    fs = fast.filesystem()
    fs.pipe_file(f"{fast.name}/x.npy", b"a" * 35)
    with fetched(fast.url("x.npy"), storage_options=fast.options) as path:
        assert path.read_bytes() == b"a" * 35
    piece = downloads._piece

    def meanwhile(location: Location, lo: int, hi: int) -> bytes:
        if lo == 20:
            fs.pipe_file(f"{fast.name}/x.npy", b"b" * 35)
        return piece(location, lo, hi)

    monkeypatch.setattr(downloads, "_piece", meanwhile)
    with (
        pytest.raises(StoreError, match="changed while it was read"),
        fetched(fast.url("x.npy"), storage_options=fast.options),
    ):
        raise AssertionError


@pytest.mark.slow
def test_no_room_on_the_disk__is_said_before_anything_is_copied(
    fast: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    fast.filesystem().pipe_file(f"{fast.name}/x.npy", b"a" * 5000)
    free = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    fast.faults.requests.clear()
    with (
        pytest.raises(StoreError, match=r"takes .* free: set TMPDIR"),
        fetched(fast.url("x.npy"), storage_options=fast.options),
    ):
        raise AssertionError
    assert "GET" not in fast.faults.counts()


# ---- what is wrong, in one line ----------------------------------------------------------------


def wrong(output: str) -> str:
    """The one line that a command says."""
    (line,) = [line for line in output.splitlines() if line.strip()]
    assert line.startswith("error: ")
    assert "Traceback" not in output
    assert SECRET not in output
    return line


@pytest.mark.slow
def test_command__tells_of_a_bucket_that_is_not_there(fast: Bucket) -> None:
    options = fast.cli
    gone = "s3://no-such-bucket-anywhere/c.zarr"
    assert "no such bucket" in wrong(run(["info", gone, *options], 2))
    write(fast)
    told = run(
        ["score", fast.url("c.zarr"), "--confounder", "label", "--out",
         "s3://no-such-bucket-anywhere/r.zarr", *options], 2,
    )  # fmt: skip
    assert "no such bucket" in wrong(told)


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("ExpiredToken", 400, "the credentials have expired"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("InvalidAccessKeyId", 403, "the access key is not known there"),
                ("SignatureDoesNotMatch", 403, "the secret key does not belong to the access key"),
                ("AccessDenied", 403, "access is denied"),
            )
        ),
    ],
)
def test_command__tells_of_credentials_that_are_wrong(
    fast: Bucket, code: str, status: int, said: str
) -> None:
    write(fast)
    fast.faults.requests.clear()
    fast.faults.add(f"{status}:{code}", times=-1)
    assert said in wrong(run(["info", fast.url("c.zarr"), *fast.cli], 2))
    assert len(fast.faults.requests) <= 2  # nothing that does not pass is tried again


@pytest.mark.slow
def test_command__tells_of_credentials_that_are_missing(fast: Bucket) -> None:
    write(fast)
    told = run(["info", fast.url("c.zarr"), "--storage-option",
                f"endpoint_url={fast.options['endpoint_url']}"], 2)  # fmt: skip
    assert "there are no credentials for it" in wrong(told)


@pytest.mark.slow
def test_command__reads_a_public_bucket(fast: Bucket) -> None:
    write(fast)
    fast.publish()
    told = run(["info", fast.url("c.zarr"), "--storage-option", "anon=true", "--storage-option",
                f"endpoint_url={fast.options['endpoint_url']}"])  # fmt: skip
    assert "40" in told


@pytest.mark.slow
def test_command__tells_of_options_and_urls_that_nothing_takes(fast: Bucket) -> None:
    assert "cannot be opened" in wrong(run(["info", "nowhere://x/c.zarr"], 2))
    told = run(["info", fast.url("c.zarr"), "--storage-option", "no_such=1", *fast.cli], 2)
    assert "no_such" in wrong(told)


@pytest.mark.slow
def test_score__tells_before_it_runs_that_nothing_may_be_written(fast: Bucket) -> None:
    write(fast)
    fast.faults.add("403", "PUT", times=-1)
    told = run(
        ["score", fast.url("c.zarr"), "--confounder", "label", "--out", fast.url("r.zarr"),
         *fast.cli], 2,
    )  # fmt: skip
    assert "cannot be written: access is denied" in wrong(told)


def test_http__is_read_only(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="read only"), published("https://host/r.zarr"):
        raise AssertionError
    store = str(tmp_path / "c.zarr")
    cd.write_cohort(store, rows(), {"sample_id": range(N), "label": ["a"] * N})
    told = run(["score", store, "--confounder", "label", "--out", "http://host/r.nc"], 2)
    assert "read only" in wrong(told)


@pytest.mark.parametrize(
    "kind", ["500", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("403", "drop"))]
)
def test_http__that_fails_is_no_missing_file(fast: Bucket, kind: str) -> None:
    """What fsspec calls not found over HTTP is whatever it could not look at."""
    base = f"{fast.options['endpoint_url']}/{fast.name}/x"
    fast.filesystem().pipe_file(f"{fast.name}/x", b"1")
    fast.publish()
    place = Location.of(base)
    about = place.about()
    assert about is not None
    assert about["size"] == 1
    assert Location.of(base + "none").about() is None
    fast.faults.add(kind, times=-1)
    with pytest.raises(StoreError, match="cannot be read"):
        place.about()
    with pytest.raises(StoreError, match="cannot be read"):
        place.parent.read_bytes("x")


@pytest.mark.parametrize("scheme", ["memory://transfer", "file://{}"])
def test_other_places__work_alike(tmp_path: Path, scheme: str) -> None:
    root = scheme.format(tmp_path)
    for overwrite in (False, True):
        with published(f"{root}/f.txt", overwrite=overwrite) as path:
            path.write_text("text")
        with published(f"{root}/r.zarr", overwrite=overwrite) as path:
            make_folder(path, n=2)
    for name in ("f.txt", "r.zarr"):
        with (
            pytest.raises(SchemaError, match="exists already"),
            published(f"{root}/{name}"),
        ):
            raise AssertionError
    with fetched(f"{root}/f.txt") as path:
        assert path.read_text() == "text"
    with fetched(f"{root}/r.zarr") as path:
        assert (path / "part/1").read_text() == "xx"
    with pytest.raises(RuntimeError), published(f"{root}/g.txt") as path:  # noqa: PT012
        path.write_text("half")
        raise RuntimeError
    assert Location.of(f"{root}/g.txt").about() is None


@pytest.mark.slow
def test_slow_answers__are_waited_for(fast: Bucket) -> None:
    write(fast)
    options = {**fast.options, "config_kwargs": {
        "read_timeout": 0.3, "retries": {"total_max_attempts": 1}
    }}  # fmt: skip
    slow = replace(fast, options=options)
    slow.faults.seconds = 1.0
    slow.faults.add("slow", "GET", "embedding", times=2)
    assert np.array_equal(StoredCohort(slow.url("c.zarr"), options).read_tiles(0, N), rows())
    assert slow.faults.broken()["slow"] == 2


@pytest.mark.slow
def test_waits__are_told_and_carry_no_secret(
    fast: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    url = write(fast)
    caplog.set_level(logging.DEBUG)
    fast.faults.add("503", "GET", "zarr.json", times=4)
    assert StoredCohort(url, fast.options).n_tiles == N
    said = [r for r in caplog.records if r.name == "croma_dask" and "trying again" in r.message]
    assert len(said) == 4
    assert [r.levelname for r in said] == ["DEBUG", "DEBUG", "WARNING", "WARNING"]
    assert SECRET not in "".join(r.message for r in said)


@pytest.mark.slow
def test_killed_upload__is_taken_up_by_the_next(fast: Bucket, tmp_path: Path) -> None:
    code = f"""
import os, sys
from croma_dask.cohort import uploads
from croma_dask.cohort.transfer import published
from pathlib import Path
put = uploads._put
def die(path, location):
    if path.name == "1":
        os._exit(9)
    put(path, location)
uploads._put = die
with published({fast.url("r.zarr")!r}, storage_options={fast.options!r}) as path:
    (path / "part").mkdir(parents=True)
    for name in ("zarr.json", "part/0", "part/1"):
        (path / name).write_text("{{}}")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, env={"TMPDIR": str(tmp_path), "PATH": ""}
    )
    assert done.returncode == 9
    place = Location.of(fast.url("r.zarr"), fast.options)
    assert is_unfinished(place)
    with published(place) as path:
        make_folder(path)
    assert not is_unfinished(place)
    assert place.read_bytes("zarr.json") is not None
