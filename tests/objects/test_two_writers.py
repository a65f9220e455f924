"""Two runs that write to one URL: one stops, and what is there is the work of the other alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import croma_dask as cd
from croma_dask.cohort import transfer, uploads
from croma_dask.cohort.layout import build_columns
from croma_dask.cohort.location import Location
from croma_dask.cohort.store import StoredCohort
from croma_dask.cohort.writer import CohortWriter
from croma_dask.index import scratch as scratch_module
from croma_dask.one_writer import one_writer
from croma_dask.temporary import private_root

N = 40


def writer(value: float, url: str, **how: bool) -> tuple[CohortWriter, np.ndarray]:
    rows = np.full((N, 3), value, np.float32)
    frame = pd.DataFrame({"sample_id": [f"s{i}" for i in range(N)], "label": "a"})
    return CohortWriter(
        url, rows.shape, rows.dtype, build_columns(frame), chunk_rows=4, **how
    ), rows


def test_ingest__into_a_store_that_another_has_begun_anew_stops() -> None:
    url = "memory://two/ingest.zarr"
    first, rows = writer(1.0, url)
    first.write(rows[:20])
    second, others = writer(2.0, url, overwrite=True, resume=False)
    second.write(others[:12])
    with pytest.raises(cd.StoreError, match="another run writes to .* this one stops"), first:
        first.write(rows[20:])
    second.write(others[12:])
    second.finish()
    store = StoredCohort(url)
    store.verify()
    assert (store.read_tiles(0, N) == 2.0).all()


def test_upload__into_a_folder_that_another_has_taken_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        for file in ("a", "b", "zarr.json"):
            path = tmp_path / name / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{name}  "[:5] + file)
    place = Location.of("memory://two/upload.zarr")
    put, taken = uploads._put, []

    def interrupted(path: Path, location: Location) -> None:
        if not taken:
            taken.append(path)
            uploads.upload(tmp_path / "other", place)
            return
        put(path, location)

    monkeypatch.setattr(uploads, "_SIDE_BY_SIDE", 1)
    monkeypatch.setattr(uploads, "_put", interrupted)
    with pytest.raises(cd.StoreError, match="another run writes to .* this one stops"):
        uploads.upload(tmp_path / "one", place)
    found = {name: place.read_bytes(name) for name in ("a", "b", "zarr.json")}
    assert found == {n: (tmp_path / "other" / n).read_bytes() for n in found}


def test_integers_at_a_url__a_chunk_that_is_lost_is_no_zeros() -> None:
    x = np.random.default_rng(0).integers(-9, 9, (300, 4)).astype(np.int16)
    x[100:] = 0
    index = cd.build_index(x, "ivf", path="memory://two/x.ivf.zarr", quiet=True)
    assert len(index.read(0, 300)) == 300
    files, root = index.location.filesystem()
    files.rm(f"{root}/shard-00000/rows/c/0/0")
    with pytest.raises(cd.StoreError, match="chunk 0 of .* is missing"):
        index.read(0, 3)


def test_scratch__what_the_system_refuses_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scratch_module.Scratch(str(tmp_path))
    run.write("range-00000/lists-00001.npz", {"met": np.ones(1, bool)})

    def refuse(path: Path, keys: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(scratch_module, "read_arrays", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            run.read_lists(0)
    found = run.read_lists(0)
    assert found is not None
    assert found["met"].all()


def test_private_root__closes_its_folder_and_refuses_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / f"croma-dask-{os.getuid()}"
    folder.mkdir(mode=0o755)
    assert private_root() == private_root() == str(folder)
    assert folder.stat().st_mode & 0o077 == 0
    folder.rmdir()
    folder.touch()
    with pytest.raises(cd.StoreError, match="no folder of this user: remove it, or set TMPDIR"):
        private_root()


@pytest.mark.parametrize(
    "url",
    ["http://me:pa@secret@h/x", "https://h/x?code=secret", "https://h/x?a=1&jwt=secret",
     "https://h/x?pw=secret"],
)  # fmt: skip
def test_location__shows_no_secret_of_a_url(url: str) -> None:
    assert "secret" not in str(Location.of(url))
    assert "secret" not in repr(Location.of(url))


@pytest.mark.parametrize("length", [100, 246, 255])
def test_names__as_long_as_a_file_system_takes_them(tmp_path: Path, length: int) -> None:
    place = tmp_path / ("n" * length)
    with transfer.published(place) as path:
        path.write_text("one")
    with transfer.published(place, overwrite=True) as path:
        path.write_text("two")
    assert place.read_text() == "two"
    place.unlink()
    for text in ("one", "two"):
        with transfer.published(place, overwrite=True) as path:
            path.mkdir()
            (path / "a").write_text(text)
    with one_writer(place), pytest.raises(cd.StoreError, match="written by another process"):
        with one_writer(place):
            pass
    assert (place / "a").read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == [place.name]


def test_folder_that_is_read_only__is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def denied(path: object, *args: object, **kwargs: object) -> int:
        # What root is never told.
        if str(path).endswith(".writing"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", denied)
    frame = {"sample_id": range(4), "label": list("abab")}
    with pytest.raises(cd.StoreError, match="cannot be written: Permission denied in"):
        cd.write_cohort(tmp_path / "c.zarr", np.ones((4, 2)), frame)
