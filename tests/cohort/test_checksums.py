"""Checksums: what was flipped is an error that says where, and what has none is read as before."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from croma_dask.cohort import StoredCohort, write_cohort
from croma_dask.cohort.checked_store import CheckedStore
from croma_dask.cohort.checksums import ATTR, check_layout, seal
from croma_dask.cohort.location import Location
from croma_dask.cohort.writer import CohortWriter
from croma_dask.errors import StoreError
from tests.cohort.test_store import make_manifest

N, D, STEP = 100, 3, 16


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((N, D)).astype("f4")


@pytest.fixture
def place(tmp_path: Path, x: np.ndarray) -> Path:
    note = ["" if i % 7 else f"é{i}" for i in range(N)]
    return Path(write_cohort(tmp_path / "c.zarr", x, make_manifest(N, note=note), chunk_rows=STEP))


def flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


@pytest.mark.parametrize("where", ["first", "middle", "checksum", "behind the last row"])
def test_flipped_bit__of_the_embedding_names_chunk_and_rows(place: Path, where: str) -> None:
    number = 6 if where == "behind the last row" else 2
    rows = "rows 96 to 99" if number == 6 else "rows 32 to 47"
    file = place / f"embedding/c/{number}/0"
    size = 8 * file.stat().st_size
    flip(file, {"first": 0, "middle": size // 2, "checksum": size - 1}.get(where, size - 40))
    store = StoredCohort(place)
    told = rf"chunk {number} of 'embedding' \({rows}\).*checksum"
    first = number * STEP
    for lo, hi in ((0, N), (first, first + 1), (first - 1, first + 2)):
        with pytest.raises(StoreError, match=told):
            store.read_tiles(lo, hi)
    store.read_tiles(0, 32)


def test_flipped_bit__is_found_after_rows_of_the_same_chunk_were_read(
    place: Path, x: np.ndarray
) -> None:
    store = StoredCohort(place)
    np.testing.assert_array_equal(store.read_tiles(33, 34), x[33:34])
    file = place / "embedding/c/2/0"
    flip(file, 99)
    # what tells that a file was changed may have the resolution of a clock's tick
    os.utime(file, ns=(1, 1))
    with pytest.raises(StoreError, match="chunk 2 .*checksum"):
        store.read_tiles(40, 41)


def test_metadata__that_are_consolidated_no_more_are_damaged(tmp_path: Path) -> None:
    place = write_cohort(
        tmp_path / "c.zarr",
        np.ones((4, 2), np.float32),
        {"sample_id": list("abcd"), "label": list("xyxy")},
    )
    zarr.open_group(place, mode="r+", use_consolidated=False).attrs["fingerprint"] = "0" * 64
    with pytest.raises(StoreError, match="its metadata .* are not those that were written"):
        _ = StoredCohort(place).fingerprint


def test_some_rows__are_read_alone_once_their_chunk_was_checked(
    place: Path, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    from croma_dask.cohort import chunks

    counted: list[int] = []
    real = chunks.crc32c
    monkeypatch.setattr(chunks, "crc32c", lambda part, crc: (counted.append(1), real(part, crc))[1])
    store = StoredCohort(place)
    for lo in (33, 35, 40):
        np.testing.assert_array_equal(store.read_tiles(lo, lo + 2), x[lo : lo + 2])
    few = len(counted)
    assert few > 0
    store.read_tiles(32, 48)
    assert len(counted) > few, "a chunk that is read whole is checked every time"
    checked = len(counted)
    store.read_tiles(34, 36)
    assert len(counted) == checked


@pytest.mark.parametrize("column", ["label", "note", "sample_id"])
def test_flipped_bit__of_a_column_names_it(place: Path, column: str) -> None:
    store = StoredCohort(place)
    array = store.array_of(column)
    flip(place / array / "c/0", 11)
    told = rf"chunk 0 of {array} \(column '{column}'\) \(rows 0 to 99"
    with pytest.raises(StoreError, match=told):
        store.text(column)


def test_flipped_bit__anywhere_in_the_root_is_an_error_or_changes_nothing(place: Path) -> None:
    """Some bits; of all files in tests/faults/test_damage.py."""
    file = place / "zarr.json"
    raw = file.read_bytes()
    attrs = StoredCohort(place).attrs
    refused = 0
    bits = range(0, 8 * len(raw), 1613)
    for bit in bits:
        flip(file, bit)
        try:
            assert {**StoredCohort(place).attrs, ATTR: attrs[ATTR]} == attrs, bit
        except StoreError:
            refused += 1
        file.write_bytes(raw)
    assert refused > len(bits) // 2


def test_verify__compares_the_metadata_in_the_folders_too(place: Path) -> None:
    file = place / "embedding/zarr.json"
    file.write_text(file.read_text().replace("NaN", "0.0"))
    StoredCohort(place).read_tiles(0, N)
    with pytest.raises(StoreError, match="embedding/zarr.json is not what was written"):
        StoredCohort(place).verify()


def test_old_store__without_checksums_is_read_as_before() -> None:
    for path in (Path(__file__).parents[2] / "stores").glob("*.zarr"):
        store = StoredCohort(path)
        assert ATTR not in store.attrs
        store.read_tiles(0, store.n_tiles)
        store.verify()


def test_newer_store__is_refused_for_that_and_not_for_its_checksum(place: Path) -> None:
    document = json.loads((place / "zarr.json").read_text())
    document["attributes"]["format_version"] = 2
    (place / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(StoreError, match="pip install --upgrade"):
        StoredCohort(place).attrs  # noqa: B018


def test_resume__seals_the_manifest_that_it_was_given(tmp_path: Path, x: np.ndarray) -> None:
    """What became of the columns of an unfinished store meanwhile is nobody's guess."""
    from croma_dask.cohort.layout import build_columns

    manifest = build_columns(make_manifest(N))
    with CohortWriter(tmp_path / "c.zarr", x.shape, x.dtype, manifest, chunk_rows=STEP) as writer:
        writer.write(x[:40])
    flip(tmp_path / "c.zarr/column_1/c/0", 50)
    document = json.loads((tmp_path / "c.zarr/zarr.json").read_text())
    attributes = document["attributes"]
    attributes["columns"] = attributes["columns"].replace("center", "cenuer")
    (tmp_path / "c.zarr/zarr.json").write_text(json.dumps(document))
    with CohortWriter(tmp_path / "c.zarr", x.shape, x.dtype, manifest) as writer:
        writer.write(x[writer.position :])
        writer.finish()
    store = StoredCohort(tmp_path / "c.zarr")
    store.verify()
    assert "center" in store.columns


def test_resume__a_flipped_bit_of_what_was_written_is_named(tmp_path: Path, x: np.ndarray) -> None:
    from croma_dask.cohort.layout import build_columns

    manifest = build_columns(make_manifest(N))
    with CohortWriter(tmp_path / "c.zarr", x.shape, x.dtype, manifest, chunk_rows=STEP) as writer:
        writer.write(x[:40])
    flip(tmp_path / "c.zarr/embedding/c/1/0", 50)
    with pytest.raises(StoreError, match=r"chunk 1 .*rows 16 to 31.*checksum.*--overwrite"):
        CohortWriter(tmp_path / "c.zarr", x.shape, x.dtype, manifest)


def test_seal__covers_attributes_and_arrays_whatever_their_values(tmp_path: Path) -> None:
    root = zarr.open_group(str(tmp_path / "g"), mode="w", zarr_format=3)
    root.create_array("a", shape=(3,), dtype="f8", fill_value=np.nan)
    attrs: dict[str, Any] = {
        "format": "test", "format_version": 1, "n": float("nan"), "t": (1, 2), "ä": "\x00\ud800",
    }  # fmt: skip
    location = Location.of(tmp_path / "g")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seal(location, attrs)
    check_layout(location, "cohort", "test", "mend", deep=True)
    text = (tmp_path / "g/zarr.json").read_text()
    (tmp_path / "g/zarr.json").write_text(text.replace("float64", "float32"))
    with pytest.raises(StoreError, match="layout_checksum shows; mend"):
        check_layout(location, "cohort", "test", "mend")
    check_layout(location, "cohort", "another", "mend")


def test_checked_store__says_which_chunk_is_damaged_or_missing(tmp_path: Path) -> None:
    from croma_dask.cohort.checksums import codecs

    root = zarr.open_group(str(tmp_path / "g"), mode="w", zarr_format=3)
    array = root.create_array(
        "b/a", shape=(5, 4), chunks=(2, 2), dtype="i4", compressors=codecs(compress=True)
    )
    array[:] = np.arange(1, 21).reshape(5, 4)
    flip(tmp_path / "g/b/a/c/1/0", 3)
    (tmp_path / "g/b/a/c/2/1").unlink()
    for complete in (True, ["b/a"]):
        store = CheckedStore(tmp_path / "g", mend="mend", complete=complete)
        found = zarr.open_group(store, mode="r")["b/a"]
        np.testing.assert_array_equal(found[:2], array[:2])
        with pytest.raises(StoreError, match=r"chunk 1, 0 of 'b/a' \(rows 2 to 3\).*checksum"):
            found[2:4]
        with pytest.raises(StoreError, match=r"chunk 2, 1 of 'b/a' \(rows 4 to 4\) is missing"):
            found[4:]
    found = zarr.open_group(CheckedStore(tmp_path / "g", mend="mend"), mode="r")["b/a"]
    assert found[4, 3] == 0
