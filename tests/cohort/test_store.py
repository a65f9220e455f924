"""The store: what is written is what is read, finished or refused, wherever it lies."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from croma_dask.cohort import StoredCohort, open_cohort, store_of, write_cohort
from croma_dask.cohort.layout import build_columns
from croma_dask.cohort.text import as_frame
from croma_dask.cohort.writer import CohortWriter
from croma_dask.errors import ChunkError, SchemaError, StoreError
from croma_dask.fingerprint import block_digest, combine


def make_manifest(n: int, **columns: Any) -> pd.DataFrame:
    base = {
        "sample_id": [f"s{i}" for i in range(n)],
        "label": [f"l{i % 3}" for i in range(n)],
        "group_id": [f"g{i // 4}" for i in range(n)],
        "center": [f"c{i % 2}" for i in range(n)],
    }
    return pd.DataFrame({**base, **columns})


def fingerprint_of(x: np.ndarray) -> str:
    blocks = [block_digest(x[i : i + 4096]) for i in range(0, len(x), 4096)]
    return combine(blocks, x.shape, x.dtype)


def tree(path: str | Path) -> dict[str, bytes]:
    """All files of a store, without the time at which it was begun and what covers it."""
    files = {}
    for file in sorted(Path(path).rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            if file == Path(path) / "zarr.json":
                meta = json.loads(content)
                meta["attributes"].pop("created_at")
                meta["attributes"].pop("layout_checksum", None)
                content = json.dumps(meta, sort_keys=True).encode()
            files[str(file.relative_to(path))] = content
    return files


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("chunk_rows", [None, 1, 7, 100, 1000])
def test_write__read_back(tmp_path: Path, rng: np.random.Generator, dtype: str, chunk_rows: int):
    x = rng.standard_normal((100, 5)).astype(dtype)
    url = write_cohort(tmp_path / "c.zarr", x, make_manifest(100), chunk_rows=chunk_rows)
    store = StoredCohort(url)
    assert (store.n_samples, store.n_tiles, store.n_features) == (100, 100, 5)
    assert store.dtype == np.dtype(dtype)
    assert store.embedding_fingerprint == fingerprint_of(x)
    for lo, hi in [(0, 100), (0, 0), (3, 4), (6, 8), (99, 100), (13, 88), (100, 100)]:
        block = store.read_tiles(lo, hi)
        assert block.dtype == x.dtype
        assert block.flags.c_contiguous
        np.testing.assert_array_equal(block, x[lo:hi])
    store.verify()
    np.testing.assert_array_equal(open_cohort(url).embedding.values, x)


def test_fingerprint__independent_of_chunks_and_source(tmp_path: Path, rng: np.random.Generator):
    x = rng.standard_normal((9000, 3)).astype("f4")
    prints = set()
    variants = [
        (x, 100),
        (np.asfortranarray(x), 4096),
        (x.astype(">f4"), 5000),
        (da.from_array(x, chunks=(1234, 2)), 8999),
        (xr.DataArray(x, dims=("sample", "feature")), 4097),
        (xr.DataArray(x.T, dims=("feature", "sample")), None),
    ]
    for i, (features, chunk_rows) in enumerate(variants):
        url = write_cohort(
            tmp_path / f"{i}.zarr", features, make_manifest(9000), chunk_rows=chunk_rows
        )
        prints.add(StoredCohort(url).fingerprint)
    assert len(prints) == 1
    manifest = make_manifest(9000)
    reordered = manifest[["center", "group_id", "label", "sample_id"]]
    url = write_cohort(tmp_path / "r.zarr", x, reordered)
    assert StoredCohort(url).fingerprint in prints
    manifest.loc[8999, "center"] = "c9"
    url = write_cohort(tmp_path / "m.zarr", x, manifest)
    assert StoredCohort(url).embedding_fingerprint == fingerprint_of(x)
    assert StoredCohort(url).fingerprint not in prints
    x[8999, 2] += 1
    assert StoredCohort(write_cohort(tmp_path / "x.zarr", x, manifest)).fingerprint not in prints


def test_default_chunks__4096_rows_or_32_mib(tmp_path: Path):
    for n_features, expected in [(8, 4096), (2048, 4096), (4096, 2048), (3000, 2796)]:
        columns = build_columns(make_manifest(5000))
        writer = CohortWriter(tmp_path / f"{n_features}", (5000, n_features), "f4", columns)
        assert writer.chunk_rows == expected


def test_default_chunks__small_cohorts_take_no_more_room_than_their_rows(tmp_path: Path):
    url = write_cohort(tmp_path / "c.zarr", np.ones((3, 1000), "f4"), make_manifest(3))
    # and the checksum of the chunk
    assert (tmp_path / "c.zarr/embedding/c/0/0").stat().st_size == 12_000 + 4
    assert StoredCohort(url).chunk_rows == 3


def test_layout__rows_in_one_piece_uncompressed_and_plain_xarray_opens_it(tmp_path: Path, rng):
    x = rng.standard_normal((10, 4)).astype("f2")
    url = write_cohort(tmp_path / "c.zarr", x, make_manifest(10), chunk_rows=4)
    group = zarr.open_group(url, mode="r")
    array = group["embedding"]
    assert array.chunks == (4, 4)
    assert [codec.to_dict() for codec in array.compressors] == [{"name": "crc32c"}]
    assert array.metadata.dimension_names == ("sample", "feature")
    chunk = (tmp_path / "c.zarr/embedding/c/1/0").read_bytes()
    assert chunk[:-4] == x[4:8].astype("<f2").tobytes()
    plain = xr.open_zarr(url)
    np.testing.assert_array_equal(plain.embedding.values, x)
    assert plain.embedding.dims == ("sample", "feature")
    assert plain.column_1.dtype == np.int32
    assert plain.column_1.values[0] == 0  # a code 0 is no missing value
    assert group.metadata.consolidated_metadata is not None
    for name, item in group.arrays():
        assert item.dtype.kind != "O", name


def test_open__everything_lazy_with_names_that_tell_an_unmodified_array(tmp_path: Path, rng):
    url = write_cohort(tmp_path / "c.zarr", rng.standard_normal((10, 4)), make_manifest(10))
    cohort = open_cohort(url)
    fingerprint = cohort.attrs["fingerprint"]
    assert cohort.embedding.data.name == f"croma-embedding-{fingerprint}"
    assert cohort.center.data.name == f"croma-column-{fingerprint}-center"
    assert cohort.attrs["croma_store"] == url
    assert not cohort.indexes
    assert all(isinstance(value, str | int | float) for value in cohort.attrs.values())
    assert store_of(cohort).url == url
    assert store_of(cohort.isel(sample=slice(1, None))) is None
    assert store_of(cohort * 2) is None
    assert len(pickle.dumps(cohort)) < 20_000
    assert cohort.center.values.tolist() == [f"c{i % 2}" for i in range(10)]
    assert cohort.isel(sample=[3, 1]).center.values.tolist() == ["c1", "c1"]
    np.testing.assert_array_equal(cohort.embedding[::3].values, cohort.embedding.values[::3])
    np.testing.assert_array_equal(cohort.embedding[::-1].values, cohort.embedding.values[::-1])


def test_handle__small_pickle_and_same_rows_in_another_process(tmp_path: Path, rng):
    x = rng.standard_normal((50, 3))
    store = StoredCohort(write_cohort(tmp_path / "c.zarr", x, make_manifest(50)))
    assert store.n_tiles == 50
    raw = pickle.dumps(store)
    assert len(raw) < 500
    code = (
        "import pickle, sys; s = pickle.loads(bytes.fromhex(sys.argv[1]));"
        "sys.stdout.write(s.read_tiles(3, 40).tobytes().hex())"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, raw.hex()], capture_output=True, text=True, check=True
    )
    assert bytes.fromhex(out.stdout) == x[3:40].tobytes()


def test_columns__codes_and_text(tmp_path: Path, rng):
    manifest = make_manifest(
        6,
        site=pd.Categorical(["b", None, "a", "b", "b", "a"], categories=["zzz", "b", "a"]),
        stage=pd.Categorical([2, 1, 2, 1, 1, 1], categories=[3, 2, 1], ordered=True),
        note=["", "NA", " x ", None, "肿瘤", "Ü" * 3000],
    )
    store = StoredCohort(write_cohort(tmp_path / "c.zarr", rng.standard_normal((6, 2)), manifest))
    codes, names = store.codes("site")
    assert codes.dtype == np.int32
    assert codes.tolist() == [1, -1, 0, 1, 1, 0]
    assert names == ["a", "b"]
    assert store.text("site").tolist() == ["b", "", "a", "b", "b", "a"]
    assert store.codes("stage")[1] == ["1", "2"]
    assert store.text("note", 1, 5).tolist() == ["NA", "x", "", "肿瘤"]
    assert store.text("note")[5] == "Ü" * 3000
    codes, names = store.codes("sample_id")
    assert names == sorted(manifest["sample_id"])
    assert [names[code] for code in codes] == manifest["sample_id"].tolist()
    assert store.columns == list(manifest.columns)
    with pytest.raises(KeyError, match="no column 'nope'.*sample_id, label"):
        store.codes("nope")


def test_columns__names_with_slash_unicode_and_dimension_names(tmp_path: Path, rng):
    names = ["MahmoodLab/UNI2-h", "org/name:v1 é", "../up", "sample", "tile", "a.b", "c"]
    manifest = make_manifest(5, **{name: [f"{name}{i}" for i in range(5)] for name in names})
    url = write_cohort(tmp_path / "c.zarr", rng.standard_normal((5, 2)), manifest)
    cohort = open_cohort(url)
    for name in names:
        assert cohort[name].values.tolist() == manifest[name].tolist()
    xr.open_zarr(url).load()


@pytest.mark.parametrize("name", ["embedding", "feature"])
def test_columns__reserved_name_is_refused(tmp_path: Path, rng, name: str):
    manifest = make_manifest(5, **{name: list("abcde")})
    with pytest.raises(SchemaError, match=f"column '{name}'.*rename"):
        write_cohort(tmp_path / "c.zarr", rng.standard_normal((5, 2)), manifest)
    assert not (tmp_path / "c.zarr").exists()


def test_columns__high_cardinality_stays_text_and_low_is_coded(tmp_path: Path, rng):
    n = 2000
    manifest = make_manifest(n, barcode=[f"b{i}" for i in range(n)], group_id=np.arange(n))
    store = StoredCohort(write_cohort(tmp_path / "c.zarr", rng.standard_normal((n, 2)), manifest))
    kinds = {column: store.kind(column) for column in store.columns}
    assert kinds == {
        "sample_id": "text",
        "label": "category",
        "group_id": "category",
        "center": "category",
        "barcode": "text",
    }
    assert store.codes("group_id")[1][:3] == ["0", "1", "10"]


def test_roles__other_names_are_kept_and_canonical_ones_added(tmp_path: Path, rng):
    manifest = make_manifest(6, cell_type=list("xxyyxy"), slide_id=list("aabbcc")).drop(
        columns="group_id"
    )
    url = write_cohort(
        tmp_path / "c.zarr",
        rng.standard_normal((6, 2)),
        manifest,
        label="cell_type",
        group="slide_id",
    )
    store = StoredCohort(url)
    assert store.text("label").tolist() == store.text("cell_type").tolist() == list("xxyyxy")
    assert store.text("original_label").tolist() == manifest["label"].tolist()
    assert store.text("group_id").tolist() == list("aabbcc")
    assert store.array_of("group_id") == store.array_of("slide_id")
    store.verify()


def test_roles__every_sample_its_own_group(tmp_path: Path, rng):
    manifest = make_manifest(6).drop(columns="group_id")
    url = write_cohort(
        tmp_path / "c.zarr", rng.standard_normal((6, 2)), manifest, group="sample_id"
    )
    assert StoredCohort(url).codes("group_id")[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_roles__one_column_may_play_two(tmp_path: Path, rng):
    manifest = pd.DataFrame({"cell": list("abcdef"), "label": list("xyxyxy")})
    x = rng.standard_normal((6, 2))
    store = StoredCohort(
        write_cohort(tmp_path / "c.zarr", x, manifest, sample_id="cell", group="cell")
    )
    for column in ("cell", "sample_id", "group_id"):
        assert store.kind(column) == "text"
        assert store.codes(column)[0].tolist() == [0, 1, 2, 3, 4, 5]
    swapped = manifest.assign(group_id=list("uvwuvw"))
    store = StoredCohort(
        write_cohort(
            tmp_path / "d.zarr", x, swapped, sample_id="cell", group="label", label="group_id"
        )
    )
    assert store.text("label").tolist() == list("uvwuvw")
    assert store.text("group_id").tolist() == list("xyxyxy")
    store.verify()


def test_roles__slide_id_without_group_id_names_the_rename(tmp_path: Path, rng):
    manifest = make_manifest(6).rename(columns={"group_id": "slide_id"})
    with pytest.raises(SchemaError, match="--group slide_id"):
        write_cohort(tmp_path / "c.zarr", rng.standard_normal((6, 2)), manifest)


def test_missing_labels_and_groups_are_stored(tmp_path: Path, rng):
    manifest = make_manifest(4, label=["a", None, "", "b"]).drop(columns="group_id")
    store = StoredCohort(write_cohort(tmp_path / "c.zarr", rng.standard_normal((4, 2)), manifest))
    assert store.codes("label")[0].tolist() == [0, -1, -1, 1]
    assert "group_id" not in store.columns


def test_missing_sample_id_is_refused(tmp_path: Path, rng):
    manifest = make_manifest(4, sample_id=["a", None, " ", "b"])
    with pytest.raises(SchemaError, match="'sample_id' is empty in rows 1, 2"):
        write_cohort(tmp_path / "c.zarr", rng.standard_normal((4, 2)), manifest)


def test_paired__each_tile_is_stored_once(tmp_path: Path, rng):
    tiles = rng.standard_normal((30, 3)).astype("f4")
    order = np.concatenate([rng.permutation(30)[:20] for _ in range(4)])
    manifest = pd.DataFrame(
        {
            "sample_id": [f"t{i}" for i in order],
            "label": "a",
            "subset": np.repeat(["p", "q", "r", "s"], 20),
        }
    )
    url = write_cohort(tmp_path / "c.zarr", tiles[order], manifest, chunk_rows=7)
    store = StoredCohort(url)
    assert store.n_samples == 80
    assert store.n_tiles == len(set(order.tolist())) < 80
    np.testing.assert_array_equal(
        store.read_tiles(0, store.n_tiles)[store.tile_of_sample()], tiles[order]
    )
    np.testing.assert_array_equal(store.read_samples(15, 70), tiles[order][15:70])
    cohort = open_cohort(url)
    assert cohort.embedding.shape == (80, 3)
    np.testing.assert_array_equal(cohort.embedding.values, tiles[order])
    np.testing.assert_array_equal(cohort.embedding[5:9].values, tiles[order][5:9])
    assert cohort.sample_id.values.tolist() == manifest["sample_id"].tolist()
    assert xr.open_zarr(url).embedding.dims == ("tile", "feature")
    store.verify()


def test_paired__image_path_is_half_of_the_identity(tmp_path: Path, rng):
    x = rng.standard_normal((4, 3))
    manifest = pd.DataFrame(
        {
            "sample_id": list("abab"),
            "image_path": ["1", "2", "3", "2"],
            "subset": ["p", "p", "q", "q"],
        }
    )
    x[3] = x[1]
    store = StoredCohort(write_cohort(tmp_path / "c.zarr", x, manifest))
    assert store.tile_of_sample().tolist() == [0, 1, 2, 1]


def test_paired__repeated_tile_with_other_features_raises(tmp_path: Path, rng):
    x = rng.standard_normal((6, 3))
    x[5] = x[2]
    x[4] = x[1]
    x[3] = x[0]
    manifest = pd.DataFrame({"sample_id": list("abcabc"), "subset": list("pppqqq")})
    write_cohort(tmp_path / "ok.zarr", x, manifest, chunk_rows=2)
    x[4, 2] += 1e-12
    with pytest.raises(SchemaError, match="rows 1 and 4 .* different features"):
        write_cohort(tmp_path / "c.zarr", x, manifest, chunk_rows=2)
    assert not (tmp_path / "c.zarr").exists()
    x[4] = x[1] = [0.0, -0.0, 1]
    x[4, 1] = 0.0  # the same number
    write_cohort(tmp_path / "z.zarr", x, manifest)


def test_duplicates__raise_unless_subset_tells_apart(tmp_path: Path, rng):
    x = rng.standard_normal((4, 3))
    manifest = pd.DataFrame(
        {"sample_id": list("abca"), "donor": list("1112"), "label": list("uvuv")}
    )
    with pytest.raises(
        SchemaError, match=r"'a' in rows 0, 3.*id_columns=\[\"sample_id\", \"donor\"\]"
    ):
        write_cohort(tmp_path / "c.zarr", x, manifest)
    with pytest.raises(SchemaError, match="within a subset"):
        write_cohort(tmp_path / "c.zarr", x, manifest.assign(subset="p"))
    url = write_cohort(tmp_path / "c.zarr", x, manifest, id_columns=["sample_id", "donor"])
    store = StoredCohort(url)
    assert store.text("sample_id").tolist() == ["a/1", "b/1", "c/1", "a/2"]
    assert store.text("original_sample_id").tolist() == list("abca")


def test_id_columns__that_run_together_raise(tmp_path: Path, rng):
    manifest = pd.DataFrame({"slide": ["a/b", "a"], "patch": ["c", "b/c"]})
    with pytest.raises(SchemaError, match="both become 'a/b/c'"):
        write_cohort(
            tmp_path / "c.zarr",
            rng.standard_normal((2, 3)),
            manifest,
            id_columns=["slide", "patch"],
        )


def test_manifest__index_of_a_filtered_frame_is_ignored(tmp_path: Path, rng):
    frame = make_manifest(10)
    frame = frame[frame.center == "c1"]
    store = StoredCohort(write_cohort(tmp_path / "c.zarr", rng.standard_normal((5, 2)), frame))
    assert store.text("sample_id").tolist() == ["s1", "s3", "s5", "s7", "s9"]
    mapping = {"sample_id": frame["sample_id"], "x": frame["center"].reset_index(drop=True)}
    store = StoredCohort(write_cohort(tmp_path / "d.zarr", rng.standard_normal((5, 2)), mapping))
    assert store.text("x").tolist() == ["c1"] * 5


def test_manifest__is_not_modified(tmp_path: Path, rng):
    frame = make_manifest(5, cat=pd.Categorical(list("ababa")))
    before, dtypes = frame.copy(deep=True), frame.dtypes.copy()
    write_cohort(tmp_path / "c.zarr", rng.standard_normal((5, 2)), frame, id_columns=["sample_id"])
    pd.testing.assert_frame_equal(frame, before)
    assert (frame.dtypes == dtypes).all()


def test_rows__length_mismatch_names_both_counts(tmp_path: Path, rng):
    with pytest.raises(SchemaError, match="embedding has 5 rows and the manifest 6"):
        write_cohort(tmp_path / "c.zarr", rng.standard_normal((5, 2)), make_manifest(6))
    assert not (tmp_path / "c.zarr").exists()


def test_rows__array_with_ids_is_matched_by_id(tmp_path: Path, rng):
    x = rng.standard_normal((50, 2))
    manifest = make_manifest(50)
    shuffled = rng.permutation(50)
    features = xr.DataArray(
        x[shuffled],
        dims=("sample", "feature"),
        coords={"sample_id": ("sample", manifest["sample_id"].to_numpy()[shuffled])},
    )
    store = StoredCohort(write_cohort(tmp_path / "c.zarr", features, manifest))
    np.testing.assert_array_equal(store.read_tiles(0, 50), x[shuffled])  # rows never move
    assert store.text("sample_id").tolist() == manifest["sample_id"].to_numpy()[shuffled].tolist()
    assert store.text("label").tolist() == manifest["label"].to_numpy()[shuffled].tolist()
    assert store.tile_of_sample() is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite__raises_with_count_and_rows(tmp_path: Path, rng, value: float):
    x = rng.standard_normal((1000, 3)).astype("f4")
    rows = [11, 12, 500, 501, 502, 998, 999]
    x[rows, 1] = value
    word = "NaN" if np.isnan(value) else "infinity"
    with pytest.raises(
        SchemaError, match=f"{word} in 7 rows .rows 11, 12, 500, 501, 502 and 2 more"
    ):
        write_cohort(tmp_path / "c.zarr", x, make_manifest(1000), chunk_rows=10)
    assert not (tmp_path / "c.zarr").exists()


def test_not_finite__one_nan_in_many_rows(tmp_path: Path):
    x = np.ones((100_000, 2), dtype="f4")
    x[77_777, 1] = np.nan
    with pytest.raises(SchemaError, match=r"NaN in 1 row \(row 77777\)"):
        write_cohort(tmp_path / "c.zarr", x, {"sample_id": np.arange(100_000)})


def test_zero_rows_and_empty_cohorts_are_stored(tmp_path: Path):
    x = np.zeros((3, 2))
    store = StoredCohort(write_cohort(tmp_path / "z.zarr", x, make_manifest(3)))
    np.testing.assert_array_equal(store.read_tiles(0, 3), x)
    url = write_cohort(tmp_path / "e.zarr", np.zeros((0, 2), "f4"), make_manifest(0))
    cohort = open_cohort(url)
    assert cohort.embedding.shape == (0, 2)
    assert cohort.embedding.values.shape == (0, 2)
    assert cohort.label.values.tolist() == []
    StoredCohort(url).verify()
    xr.open_zarr(url).load()


def test_exists__refused_and_overwritten_only_when_asked(tmp_path: Path, rng):
    x = rng.standard_normal((5, 2))
    url = write_cohort(tmp_path / "c.zarr", x, make_manifest(5))
    with pytest.raises(StoreError, match="exists; pass overwrite=True"):
        write_cohort(url, x + 1, make_manifest(5))
    write_cohort(url, x + 1, make_manifest(5), overwrite=True)
    np.testing.assert_array_equal(StoredCohort(url).read_tiles(0, 5), x + 1)


def test_exists__nothing_else_is_ever_replaced(tmp_path: Path, rng):
    x = rng.standard_normal((5, 2))
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("years of work")
    file = tmp_path / "file"
    file.write_text("more work")
    foreign = tmp_path / "other.zarr"
    zarr.open_group(str(foreign), mode="w")
    for place in (folder, file, foreign):
        with pytest.raises(StoreError, match="name another place"):
            write_cohort(place, x, make_manifest(5), overwrite=True)
    assert (folder / "chapter.tex").read_text() == "years of work"
    assert file.read_text() == "more work"
    empty = tmp_path / "empty"
    empty.mkdir()
    write_cohort(empty, x, make_manifest(5))


@pytest.mark.parametrize("left", [0, 1, 2])
def test_overwrite__cut_short_leaves_what_can_be_written_again(
    tmp_path: Path, rng, monkeypatch, left: int
):
    from fsspec.implementations.local import LocalFileSystem

    x = rng.standard_normal((5, 2))
    url = write_cohort(tmp_path / "c.zarr", x, make_manifest(5))
    original, calls = LocalFileSystem.rm, []

    def dies(self: Any, path: str, **kwargs: Any) -> None:
        if len(calls) == left:
            raise KeyboardInterrupt
        calls.append(path)
        original(self, path, **kwargs)

    monkeypatch.setattr(LocalFileSystem, "rm", dies)
    with pytest.raises(KeyboardInterrupt):
        write_cohort(url, x + 1, make_manifest(5), overwrite=True)
    monkeypatch.undo()
    with pytest.raises(StoreError, match="not finished"):
        open_cohort(url)
    write_cohort(url, x + 2, make_manifest(5))
    np.testing.assert_array_equal(StoredCohort(url).read_tiles(0, 5), x + 2)


class Slow:
    """Features that fail after some rows, as a machine does."""

    def __init__(self, x: np.ndarray, fail_at: int, error: type[BaseException]) -> None:
        self.x, self.shape, self.dtype = x, x.shape, x.dtype
        self.fail_at, self.error, self.read = fail_at, error, []

    def __getitem__(self, key: slice) -> np.ndarray:
        self.read.append((key.start, key.stop))
        if key.stop > self.fail_at:
            raise self.error
        return self.x[key]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("chunk_rows", [50, 64, 4096, 5000])
def test_resume__gives_the_identical_store(tmp_path: Path, rng, error, chunk_rows: int):
    n = 20_000
    x = rng.standard_normal((n, 2)).astype("f4")
    manifest = make_manifest(n)
    whole, half = tmp_path / "whole.zarr", tmp_path / "half.zarr"
    write_cohort(whole, x, manifest, chunk_rows=chunk_rows)
    with pytest.raises(error):
        write_cohort(half, Slow(x, 12_345, error), manifest, chunk_rows=chunk_rows)
    with pytest.raises(StoreError, match="not finished.*resume"):
        open_cohort(half)
    reached = json.loads(zarr.open_group(half).attrs["progress"])["rows"]
    assert reached == 12_345 // chunk_rows * chunk_rows
    write_cohort(half, x, manifest)  # the chunk size is remembered
    left, right = tree(whole), tree(half)
    left["zarr.json"] = right["zarr.json"] = b"" if _same_meta(left, right) else b"x"
    assert left == right
    StoredCohort(half).verify()


def _same_meta(left: dict[str, bytes], right: dict[str, bytes]) -> bool:
    a, b = (json.loads(side["zarr.json"]) for side in (left, right))
    for side in (a, b):
        side["attributes"].pop("source")  # "array" of numpy there, of the test's class here
    return a == b


def test_resume__with_repeated_tiles(tmp_path: Path, rng):
    tiles = rng.standard_normal((500, 2))
    order = np.concatenate([np.arange(500), rng.permutation(500)])
    manifest = pd.DataFrame({"sample_id": order, "subset": np.repeat(["p", "q"], 500)})
    for fail_at in (300, 700):
        path = tmp_path / f"{fail_at}.zarr"
        with pytest.raises(OSError):  # noqa: PT011
            write_cohort(path, Slow(tiles[order], fail_at, OSError), manifest, chunk_rows=50)
        url = write_cohort(path, tiles[order], manifest)
        store = StoredCohort(url)
        assert store.n_tiles == 500
        np.testing.assert_array_equal(store.read_samples(0, 1000), tiles[order])
        store.verify()


def test_resume__another_source_is_refused(tmp_path: Path, rng):
    x = rng.standard_normal((1000, 2))
    path = tmp_path / "c.zarr"
    manifest = make_manifest(1000)
    with pytest.raises(OSError):  # noqa: PT011
        write_cohort(path, Slow(x, 500, OSError), manifest, chunk_rows=10)
    other = x.copy()
    other[3, 1] += 1
    for features, frame, message in [
        (other, manifest, "other rows"),
        (x.astype("f4"), manifest, "embedding .* float64"),
        (x, make_manifest(1000, center="c"), "another manifest"),
    ]:
        with pytest.raises(StoreError, match=f"{message}.*--overwrite"):
            write_cohort(path, features, frame)
    with pytest.raises(StoreError, match="chunk_rows=10"):
        write_cohort(path, x, manifest, chunk_rows=11)
    with pytest.raises(StoreError, match="not finished; resume it"):
        write_cohort(path, x, manifest, resume=False)
    write_cohort(path, x, manifest)
    np.testing.assert_array_equal(StoredCohort(path).read_tiles(0, 1000), x)


def test_resume__damaged_chunk_is_found(tmp_path: Path, rng):
    x = rng.standard_normal((1000, 2))
    path = tmp_path / "c.zarr"
    with pytest.raises(OSError):  # noqa: PT011
        write_cohort(path, Slow(x, 500, OSError), make_manifest(1000), chunk_rows=10)
    chunk = path / "embedding/c/3/0"
    chunk.write_bytes(bytes(len(chunk.read_bytes())))
    with pytest.raises(StoreError, match="damaged.*--overwrite"):
        write_cohort(path, x, make_manifest(1000))


def test_resume__after_being_killed(tmp_path: Path, rng):
    n = 6000
    np.save(tmp_path / "x.npy", rng.standard_normal((n, 64)))
    make_manifest(n).to_csv(tmp_path / "m.csv", index=False)
    code = (
        "import sys, time; import croma_dask.cohort.writer as w; w.PROGRESS_SECONDS = 0;"
        "flush = w.CohortWriter._flush;"
        "w.CohortWriter._flush = lambda s, r: (flush(s, r), time.sleep(0.02));"
        "from croma_dask.cohort import ingest; ingest(*sys.argv[1:], chunk_rows=20)"
    )
    files = [str(tmp_path / name) for name in ("x.npy", "m.csv", "half.zarr")]
    process = subprocess.Popen([sys.executable, "-c", code, *files])
    chunk = tmp_path / "half.zarr/embedding/c/5/0"
    deadline = time.monotonic() + 60
    while not chunk.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(StoreError, match="not finished"):
        open_cohort(files[2])
    reached = json.loads(zarr.open_group(files[2]).attrs["progress"])["rows"]
    assert 0 < reached < n
    from croma_dask.cohort import ingest

    ingest(*files)
    ingest(files[0], files[1], tmp_path / "whole.zarr", chunk_rows=20)
    assert tree(files[2]) == tree(tmp_path / "whole.zarr")


def test_refused__what_is_not_a_finished_cohort(tmp_path: Path, rng):
    with pytest.raises(StoreError, match="there is no store here"):
        open_cohort(tmp_path / "nothing.zarr")
    zarr.open_group(str(tmp_path / "foreign.zarr"), mode="w").attrs["a"] = 1
    with pytest.raises(StoreError, match="not a cohort store.*'a'.*croma-dask ingest"):
        open_cohort(tmp_path / "foreign.zarr")
    zarr.open_group(str(tmp_path / "v2.zarr"), mode="w", zarr_format=2)
    with pytest.raises(StoreError, match="Zarr version 2"):
        open_cohort(tmp_path / "v2.zarr")
    (tmp_path / "file.npy").write_bytes(b"x")
    with pytest.raises(StoreError, match="this is a file"):
        open_cohort(tmp_path / "file.npy")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.txt").write_text("a")
    with pytest.raises(StoreError, match="folder is not a cohort store"):
        open_cohort(tmp_path / "folder")
    url = write_cohort(tmp_path / "c.zarr", rng.standard_normal((5, 2)), make_manifest(5))
    meta = json.loads((tmp_path / "c.zarr/zarr.json").read_text())
    meta["attributes"]["format_version"] = 99
    (tmp_path / "c.zarr/zarr.json").write_text(json.dumps(meta))
    with pytest.raises(
        StoreError, match="format version 99, .* up to 1: pip install --upgrade croma-dask"
    ):
        open_cohort(url)


def test_damaged__missing_short_or_altered_chunks_never_become_rows(tmp_path: Path, rng):
    x = rng.standard_normal((100, 2))
    url = write_cohort(tmp_path / "c.zarr", x, make_manifest(100), chunk_rows=10)
    chunk = tmp_path / "c.zarr/embedding/c/4/0"
    content = chunk.read_bytes()
    chunk.unlink()
    with pytest.raises(StoreError, match="chunk 4 .* missing"):
        StoredCohort(url).read_tiles(0, 100)
    np.testing.assert_array_equal(StoredCohort(url).read_tiles(0, 40), x[:40])
    chunk.write_bytes(content[:-1])
    with pytest.raises(StoreError, match="chunk 4 .* has 163 bytes, expected 164"):
        StoredCohort(url).read_tiles(45, 46)
    # the checksum of other rows is right, the fingerprint tells
    chunk.write_bytes((tmp_path / "c.zarr/embedding/c/5/0").read_bytes())
    with pytest.raises(StoreError, match="embedding does not match"):
        StoredCohort(url).verify()
    chunk.write_bytes(content)
    StoredCohort(url).verify()
    codes = zarr.open_group(url, mode="r+")["column_1"]
    codes[3] = 2
    with pytest.raises(StoreError, match="manifest does not match"):
        StoredCohort(url).verify()


@pytest.mark.parametrize("lost", ["sample_id", "label", "label names", "note", "tiles"])
def test_damaged__lost_chunks_of_the_manifest_are_not_missing_cells(tmp_path: Path, rng, lost: str):
    x = np.repeat(rng.standard_normal((20, 2)), 2, axis=0)
    manifest = make_manifest(40, empty=[""] * 40, note=[f"n{i % 3}" for i in range(40)])
    manifest = manifest.assign(sample_id=[f"s{i // 2}" for i in range(40)], subset=["a", "b"] * 20)
    url = write_cohort(tmp_path / "c.zarr", x, manifest)
    store = StoredCohort(url)
    assert store.text("empty").tolist() == [""] * 40
    assert (store.codes("empty")[0] == -1).all()
    name = lost.split()[0]
    if lost == "tiles":
        array = "tile_of_sample"
    else:
        array = store.array_of(name) + ("_name" if lost.endswith("names") else "")
    (tmp_path / "c.zarr" / array / "c/0").unlink()
    for read in (
        lambda s: s.tile_of_sample() if lost == "tiles" else s.codes(name),
        lambda s: s.read_samples(0, 3) if lost == "tiles" else s.text(name, 3, 5),
        lambda s: s.text("empty"),
        lambda s: s.verify(),
    ):
        with pytest.raises(StoreError, match="damaged"):
            read(StoredCohort(url))


def test_compressed_store__reads_the_same(tmp_path: Path, rng):
    """Nothing but the direct path depends on chunks being plain."""
    x = rng.standard_normal((100, 2))
    url = write_cohort(tmp_path / "c.zarr", x, make_manifest(100), chunk_rows=10)
    group = zarr.open_group(url, mode="r+")
    shutil.rmtree(tmp_path / "c.zarr/embedding")
    array = group.create_array(
        "embedding", shape=x.shape, chunks=(10, 2), dtype="f8", fill_value=np.nan
    )
    array[:] = x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(group.store)
    with pytest.raises(StoreError, match="damaged.*layout_checksum"):
        StoredCohort(url).read_tiles(3, 77)
    del zarr.open_group(url, mode="r+").attrs["layout_checksum"]
    store = StoredCohort(url)
    np.testing.assert_array_equal(store.read_tiles(3, 77), x[3:77])
    store.verify()
    array[40:50] = np.nan
    with pytest.raises(StoreError, match="chunk 4"):
        StoredCohort(url).read_tiles(0, 100)


def test_memory_url(rng):
    x = rng.standard_normal((50, 3))
    url = write_cohort("memory://croma/c.zarr", x, make_manifest(50), chunk_rows=8)
    assert url == "memory://croma/c.zarr"
    cohort = open_cohort(url)
    np.testing.assert_array_equal(cohort.embedding.values, x)
    assert cohort.label.values[:3].tolist() == ["l0", "l1", "l2"]
    StoredCohort(url).verify()
    with pytest.raises(StoreError, match="exists"):
        write_cohort(url, x, make_manifest(50))
    write_cohort(url, x, make_manifest(50), overwrite=True)
    with pytest.raises(OSError):  # noqa: PT011
        write_cohort(url, Slow(x, 20, OSError), make_manifest(50), overwrite=True, chunk_rows=8)
    with pytest.raises(StoreError, match="not finished"):
        open_cohort(url)
    write_cohort(url, x, make_manifest(50))
    StoredCohort(url).verify()
    with pytest.raises(StoreError, match="there is no store here"):
        open_cohort("memory://croma/none.zarr")


def test_file_url_and_relative_path(tmp_path: Path, rng, monkeypatch):
    x = rng.standard_normal((5, 3))
    monkeypatch.chdir(tmp_path)
    url = write_cohort("c.zarr", x, make_manifest(5))
    assert url == str(tmp_path / "c.zarr")  # workers may have another working directory
    np.testing.assert_array_equal(open_cohort(f"file://{url}").embedding.values, x)


def test_each_object_is_put_once(rng, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    puts: dict[str, int] = {}
    original = MemoryFileSystem.pipe_file

    def counted(self: Any, path: str, value: bytes, **kwargs: Any) -> Any:
        if "/embedding/c/" in path:
            puts[path] = puts.get(path, 0) + 1
        return original(self, path, value, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", counted)
    x = rng.standard_normal((50, 3))
    write_cohort("memory://croma/once.zarr", x, make_manifest(50), chunk_rows=8)
    assert len(puts) == 7
    assert set(puts.values()) == {1}


# In a process of its own: clients that the S3 library leaves open would be this one's to close.
S3_SCRIPT = """
import sys
import numpy as np, s3fs
from moto.server import ThreadedMotoServer
from croma_dask.cohort import StoredCohort, open_cohort, store_of, write_cohort
from croma_dask.errors import StoreError

server = ThreadedMotoServer(port=0)
server.start()
host, port = server.get_host_and_port()
options = {"endpoint_url": f"http://{host}:{port}", "key": "testing", "secret": "testing"}
s3fs.S3FileSystem(**options).mkdir("cohorts")
x = np.random.default_rng(0).standard_normal((50, 3)).astype("f4")
manifest = {"sample_id": np.arange(50), "label": np.arange(50) % 3}
place = "s3://cohorts/a/c.zarr"
url = write_cohort(place, x, manifest, chunk_rows=8, storage_options=options)
assert url == place
cohort = open_cohort(url, storage_options=options)
assert np.array_equal(cohort.embedding.values, x)
assert "testing" not in str(cohort.attrs)
assert store_of(cohort).storage_options == options
assert np.array_equal(store_of(cohort).read_tiles(3, 20), x[3:20])
try:
    open_cohort("s3://cohorts/none", storage_options=options)
except StoreError as err:
    assert "no store here" in str(err)
else:
    raise AssertionError
try:
    write_cohort(url, x, manifest, storage_options=options)
except StoreError as err:
    assert "exists" in str(err)
else:
    raise AssertionError
write_cohort(url, x + 1, manifest, overwrite=True, storage_options=options)
assert StoredCohort(url, options).read_tiles(0, 1)[0, 0] == x[0, 0] + 1

import functools, http.server, threading
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
threading.Thread(target=web.serve_forever, daemon=True).start()
write_cohort(sys.argv[1] + "/c.zarr", x, manifest, chunk_rows=8)
cohort = open_cohort(f"http://127.0.0.1:{web.server_port}/c.zarr")
assert np.array_equal(cohort.embedding.values, x)
assert cohort.label.values[:4].tolist() == ["0", "1", "2", "0"]
print("done")
"""


@pytest.mark.slow
@pytest.mark.ci
def test_s3_and_http(tmp_path: Path):
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    env = {**os.environ, "AWS_DEFAULT_REGION": "us-east-1"}
    out = subprocess.run(
        [sys.executable, "-c", S3_SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
        check=False,
    )
    assert out.stdout.strip().endswith("done"), out.stderr


def test_warnings__none_on_write_and_open(tmp_path: Path, rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_cohort(
            tmp_path / "a.zarr", np.ones((5, 3)), make_manifest(5)
        )  # imports what it needs
        before = list(warnings.filters)
        url = write_cohort(tmp_path / "c.zarr", rng.standard_normal((5, 3)), make_manifest(5))
        open_cohort(url).load()
        assert warnings.filters == before
        xr.open_zarr(url).load()


def test_source__carries_no_path_of_this_machine(tmp_path: Path, rng):
    np.save(tmp_path / "x.npy", rng.standard_normal((5, 3)))
    make_manifest(5).to_csv(tmp_path / "m.csv", index=False)
    from croma_dask.cohort import ingest

    ingest(tmp_path / "x.npy", tmp_path / "m.csv", tmp_path / "c.zarr")
    for file in (tmp_path / "c.zarr").rglob("zarr.json"):
        assert str(tmp_path) not in file.read_text()
    attrs = open_cohort(tmp_path / "c.zarr").attrs
    assert json.loads(attrs["source"]) == {
        "features": "x.npy",
        "manifest": "m.csv",
        "reader": "npy",
        "rows": "by position",
    }


def test_large_cohort__opens_with_a_small_graph(tmp_path: Path):
    n = 300_000
    columns = build_columns(as_frame({"sample_id": np.arange(n), "label": np.arange(n) % 5}))
    with CohortWriter(tmp_path / "c.zarr", (n, 2), "f4", columns, chunk_rows=100) as writer:
        for _ in range(30):
            writer.write(np.ones((n // 30, 2), "f4"))
        writer.finish()
    cohort = open_cohort(tmp_path / "c.zarr")
    assert cohort.embedding.data.npartitions == 3000
    assert len(pickle.dumps(cohort)) < 100_000


@pytest.mark.cluster
def test_cluster__columns_and_rows_decode_on_workers(tmp_path: Path, rng, cluster_client):
    x = rng.standard_normal((50, 3))
    cohort = open_cohort(write_cohort(tmp_path / "c.zarr", x, make_manifest(50), chunk_rows=9))
    with cluster_client.as_current():
        done = cohort.compute(scheduler=cluster_client)
    np.testing.assert_array_equal(done.embedding.values, x)
    assert done.label.values[4] == "l1"


def test_writer__checks_what_it_is_given(tmp_path: Path):
    columns = build_columns(as_frame({"sample_id": list("abc")}))
    with pytest.raises(SchemaError, match="expected float16"):
        CohortWriter(tmp_path / "a", (3, 2), "i4", columns)
    with pytest.raises(ChunkError, match="at least 1"):
        CohortWriter(tmp_path / "a", (3, 2), "f4", columns, chunk_rows=0)
    with pytest.raises(SchemaError, match="3 rows, expected 4"):
        CohortWriter(tmp_path / "a", (4, 2), "f4", columns)
    with pytest.raises(SchemaError, match="points outside"):
        CohortWriter(tmp_path / "a", (2, 2), "f4", columns, tile_of_sample=np.array([0, 1, 2]))
    writer = CohortWriter(tmp_path / "a", (3, 2), "f4", columns)
    with pytest.raises(SchemaError, match="expected .n, 2. float32"):
        writer.write(np.ones((1, 2)))
    with pytest.raises(SchemaError, match="more rows than the 3"):
        writer.write(np.ones((4, 2), "f4"))
    with pytest.raises(SchemaError, match="0 rows written of the 3"):
        writer.finish()
