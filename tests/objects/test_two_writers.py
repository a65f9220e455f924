"""Two runs that write to one URL: one stops, and what is there is the work of the other alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import croma_dask as cd
from croma_dask import build
from croma_dask.cohort import transfer, uploads
from croma_dask.cohort.layout import build_columns
from croma_dask.cohort.location import Location
from croma_dask.cohort.store import StoredCohort
from croma_dask.cohort.writer import CohortWriter
from croma_dask.index import scratch as scratch_module
from croma_dask.one_writer import one_writer
from croma_dask.temporary import private_root
from croma_dask.whole_folders import beside

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


def test_folder_beside__that_cannot_be_opened_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made one folder after the other, for ever."""
    real = os.open

    def too_many(path: object, *args: object, **kwargs: object) -> int:
        if "partial-" in str(path):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(path, *args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", too_many)
        with pytest.raises(OSError, match="Too many open files"):
            with transfer.published(tmp_path / "r.zarr"):
                raise AssertionError("opened")
    assert list(tmp_path.iterdir()) == []


def test_folder_beside__takes_no_name_that_only_begins_alike(tmp_path: Path) -> None:
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / ".x.zarr.old-0123456789ab").mkdir()
    kept = tmp_path / ".x.zarr.old-2025.scratch"
    kept.mkdir()
    with beside(tmp_path / "x.zarr.old-2025") as other, beside(tmp_path / "x.zarr"):
        assert other.exists()
        assert kept.exists()
        assert not (tmp_path / ".x.zarr.old-0123456789ab").exists()


def test_upload__into_which_another_one_comes_last_opens_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        for file in ("a", "zarr.json"):
            (tmp_path / name / file).write_text(name)
    place = Location.of("memory://come-last/r.zarr")
    real, begun = uploads._check_uploaded, []

    def late(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]
        if not begun:
            begun.append(True)
            place.write_bytes(uploads.UPLOADING, b"another")
            place.write_bytes("a", b"other")

    monkeypatch.setattr(uploads, "_check_uploaded", late)
    with pytest.raises(cd.StoreError, match="another run writes to .* this one stops"):
        uploads.upload(tmp_path / "one", place)
    assert place.read_bytes("zarr.json") is None
    assert place.read_bytes(uploads.UPLOADING) == b"another"
    uploads.upload(tmp_path / "other", place)
    assert {place.read_bytes(n) for n in ("a", "zarr.json")} == {b"other"}


def test_index_for_a_url__does_not_delete_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    frame = {"sample_id": range(200), "label": list("ab") * 100}
    store = cd.write_cohort(tmp_path / "c.zarr", rng.normal(size=(200, 4)).astype("f4"), frame)
    real = build.finish
    url = "memory://meanwhile/i.zarr"

    def meanwhile(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]
        cd.write_cohort(url, rng.normal(size=(9, 2)), {"sample_id": range(9), "label": ["a"] * 9})

    monkeypatch.setattr(build, "finish", meanwhile)
    with pytest.raises(cd.StoreError, match="is no index, so it is left alone"):
        cd.build_index(store, "ivf", path=url, scratch=str(tmp_path / "scratch"))
    assert cd.open_cohort(url).sizes["sample"] == 9
    (built,) = (tmp_path / "scratch").iterdir()
    assert built.stat().st_mode & 0o077 == 0


def test_ingest__of_two_that_begin_at_once_one_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = {"sample_id": range(4), "label": list("abab")}
    url = "memory://at-once/c.zarr"
    real = CohortWriter._start

    def second(self: CohortWriter) -> None:
        monkeypatch.setattr(CohortWriter, "_start", real)
        cd.write_cohort(url, np.ones((4, 2)), frame)
        real(self)

    monkeypatch.setattr(CohortWriter, "_start", second)
    with pytest.raises(cd.StoreError, match="another run writes to .* at the same time"):
        cd.write_cohort(url, np.zeros((4, 2)), frame)
    assert cd.open_cohort(url).embedding.values.min() == 1
