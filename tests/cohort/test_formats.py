"""Every format of embeddings gives the same rows, streamed; what cannot be read says why."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from croma_dask.cohort import StoredCohort, ingest
from croma_dask.cohort.readers import open_reader
from croma_dask.cohort.readers.base import BlockSource, EmbeddingReader, block_edges, convert
from croma_dask.errors import InputWarning, SchemaError

N, D = 30, 4


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((N, D)).astype("f4")


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    frame = pd.DataFrame({"sample_id": [f"s{i}" for i in range(N)], "label": np.arange(N) % 3})
    frame.to_csv(tmp_path / "m.csv", index=False)
    return tmp_path / "m.csv"


def store_of(path: Path, manifest: Any, **options: Any) -> StoredCohort:
    # beside the test's folder: a store inside of a Zarr group would become a part of it
    base = next(p for p in path.parents if p.parent.name.startswith("pytest-"))
    out = base.parent / f"{base.name}-out" / f"{path.parent.name}-{path.name}"
    return StoredCohort(ingest(path, manifest, out, chunk_rows=7, overwrite=True, **options))


def check(path: Path, manifest: Any, expected: np.ndarray, **options: Any) -> StoredCohort:
    store = store_of(path, manifest, **options)
    rows = store.read_tiles(0, store.n_tiles)
    assert rows.dtype == expected.dtype
    np.testing.assert_array_equal(rows, expected)
    store.verify()
    reader = open_reader(path, key=options.get("key"))
    assert isinstance(reader, EmbeddingReader)
    assert reader.shape == expected.shape
    for lo, hi in [(3, 9), (20, 30), (0, 30), (29, 30)]:  # backwards too
        np.testing.assert_array_equal(convert(reader.read(lo, hi), expected.dtype), expected[lo:hi])
    reader.close()
    return store


# .npy


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        ("<f2", "f2"),
        ("<f4", "f4"),
        (">f4", "f4"),
        ("<f8", "f8"),
        (">f8", "f8"),
        ("i1", "f4"),
        ("u1", "f4"),
        (">i2", "f4"),
        ("i4", "f8"),
        ("u8", "f8"),
        ("?", "f4"),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy__dtypes_and_orders(tmp_path: Path, x, manifest, dtype: str, stored: str, order: str):
    array = np.array(np.abs(x) * 3, dtype=dtype, order=order)
    np.save(tmp_path / "x.npy", array)
    check(tmp_path / "x.npy", manifest, array.astype(stored))


def test_npy__structured_floats_are_columns(tmp_path: Path, x, manifest):
    table = np.zeros(N, dtype=[("PC1", "f4"), ("PC2", "f4"), ("PC3", "f8")])
    for i, field in enumerate(table.dtype.names):
        table[field] = x[:, i]
    np.save(tmp_path / "x.npy", table)
    check(tmp_path / "x.npy", manifest, x[:, :3].astype("f8"))
    mixed = np.zeros(N, dtype=[("PC1", "f4"), ("label", "i4")])
    np.save(tmp_path / "y.npy", mixed)
    with pytest.raises(SchemaError, match="structured with fields PC1, label"):
        store_of(tmp_path / "y.npy", manifest)


def bfloat16(x: np.ndarray) -> np.ndarray:
    """The file that numpy writes for bfloat16: two bytes a value, of no known type."""
    return (x.view("<u4") >> 16).astype("<u2").view("V2")


def test_npy__bfloat16_on_request(tmp_path: Path, x, manifest):
    np.save(tmp_path / "x.npy", bfloat16(x))
    with pytest.raises(SchemaError, match="void dtype .V2.*--dtype bfloat16"):
        store_of(tmp_path / "x.npy", manifest)
    expected = (x.view("u4") & 0xFFFF0000).view("f4")
    check(tmp_path / "x.npy", manifest, expected, dtype="bfloat16")
    np.save(tmp_path / "y.npy", x)
    with pytest.raises(SchemaError, match="float32, so it cannot be read as bfloat16"):
        store_of(tmp_path / "y.npy", manifest, dtype="bfloat16")


def test_npy__casts_on_request_and_what_overflows_is_named(tmp_path: Path, x, manifest):
    np.save(tmp_path / "x.npy", x)
    check(tmp_path / "x.npy", manifest, x.astype("f2"), dtype="float16")
    check(tmp_path / "x.npy", manifest, x.astype("f8"), dtype="float64")
    x[4, 1] = 1e6
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(SchemaError, match="infinity in 1 row .row 4. .after the cast from float32"):
        store_of(tmp_path / "x.npy", manifest, dtype="float16")
    with pytest.raises(SchemaError, match="dtype 'int8'; expected"):
        store_of(tmp_path / "x.npy", manifest, dtype="int8")


def test_npy__integers_that_float64_does_not_hold(tmp_path: Path, manifest):
    array = np.ones((N, D), dtype="i8")
    array[3, 2] = 2**53 + 1
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(SchemaError, match=r"beyond 2\*\*53"):
        store_of(tmp_path / "x.npy", manifest)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[1, "a"]] * N, dtype=object), "dtype object.*convert to float"),
        (np.ones((N, D), dtype=complex), "complex .complex128.; expected real"),
        (np.array([["a"] * D] * N), "dtype <U1; convert to float"),
        (np.ones((N, D), dtype=np.longdouble), "convert to float64"),
        (np.ones(N), "expected .rows, features.*array.None"),
        (np.ones((1, N, D)), r"shape \(1, 30, 4\).*take the first axis off"),
        (np.ones((N, D, 2)), r"shape \(30, 4, 2\); expected .rows, features."),
        (np.ones((N, 0)), "no features"),
        (np.array(3.0), "expected .rows, features."),
    ],
)
def test_npy__refused(tmp_path: Path, manifest, array: np.ndarray, message: str):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(SchemaError, match=message) as info:
        store_of(tmp_path / "x.npy", manifest)
    assert len(str(info.value)) < 250
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}-out/*"))


def test_npy__truncated_or_something_else(tmp_path: Path, x, manifest):
    np.save(tmp_path / "x.npy", x)
    content = (tmp_path / "x.npy").read_bytes()
    for broken in (content[:-1], b"", b"PK", content[:20]):
        (tmp_path / "x.npy").write_bytes(broken)
        with pytest.raises(SchemaError, match=r"x\.npy is not a readable|never loaded"):
            store_of(tmp_path / "x.npy", manifest)


def test_npy__zero_rows(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.zeros((0, 3), "f4"))
    (tmp_path / "m.csv").write_text("sample_id,label\n")
    assert store_of(tmp_path / "x.npy", tmp_path / "m.csv").n_samples == 0


def test_npy__huge_file_opens_at_once(tmp_path: Path):
    """Nothing is read or hashed to open a file: 4 GB that the disk does not even hold."""
    header = io.BytesIO()
    shape = (1_000_000, 1024)
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    with open(tmp_path / "x.npy", "wb") as file:
        file.write(header.getvalue())
        file.truncate(len(header.getvalue()) + 4 * shape[0] * shape[1])
    reader = open_reader(tmp_path / "x.npy")
    assert reader.shape == shape
    assert reader.read(999_000, 999_003).shape == (3, 1024)


def test_file__missing_or_of_unknown_kind(tmp_path: Path, manifest):
    with pytest.raises(SchemaError, match="there is no .*none.npy"):
        store_of(tmp_path / "none.npy", manifest)
    (tmp_path / "x.pt").write_bytes(b"x")
    with pytest.raises(SchemaError, match="unknown kind of file; expected .npy"):
        store_of(tmp_path / "x.pt", manifest)
    np.save(tmp_path / "x.npy", np.ones((N, D)))
    with pytest.raises(SchemaError, match="carries no manifest"):
        store_of(tmp_path / "x.npy", None)
    with pytest.raises(SchemaError, match="leave key"):
        store_of(tmp_path / "x.npy", manifest, key="a")


# .npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz__one_member_or_key(tmp_path: Path, x, manifest, save: Any, order: str):
    array = np.array(x, order=order)
    save(tmp_path / "x.npz", array)
    check(tmp_path / "x.npz", manifest, x)
    save(tmp_path / "y.npz", features=array, coords=np.ones((N, 2)), ids=np.arange(N))
    with pytest.raises(SchemaError, match="'features', 'coords'; choose the member with key="):
        store_of(tmp_path / "y.npz", manifest)
    check(tmp_path / "y.npz", manifest, x, key="features")
    with pytest.raises(SchemaError, match="no member 'feats'; it has 'features', 'coords', 'ids'"):
        store_of(tmp_path / "y.npz", manifest, key="feats")
    save(tmp_path / "z.npz", features=array, names=np.array(["a"] * N))
    check(tmp_path / "z.npz", manifest, x)
    save(tmp_path / "w.npz", features=array[None])
    with pytest.raises(SchemaError, match="take the first axis off"):
        store_of(tmp_path / "w.npz", manifest)


def test_npz__never_unpickled(tmp_path: Path, manifest):
    np.savez(tmp_path / "x.npz", features=np.array([[None] * D] * N))
    with pytest.raises(SchemaError, match="never loaded"):
        store_of(tmp_path / "x.npz", manifest)
    (tmp_path / "y.npz").write_bytes(b"nothing")
    with pytest.raises(SchemaError, match="not a readable .npz"):
        store_of(tmp_path / "y.npz", manifest)


def test_npz__damaged_member(tmp_path: Path, x, manifest):
    np.savez(tmp_path / "x.npz", x)
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[300] ^= 1
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(SchemaError, match="Bad CRC"):
        store_of(tmp_path / "x.npz", manifest)


def pathorob(folder: Path, frame: pd.DataFrame, x: np.ndarray) -> None:
    """Write features as PathoROB does: a file a centre, a member a tile."""
    folder.mkdir()
    ids = frame["slide_id"] + "-" + frame["patch_id"]
    for center in frame["medical_center"].unique():
        rows = np.flatnonzero(frame["medical_center"] == center)
        np.savez(folder / f"{center.replace(' ', '_')}.npz", **{ids[row]: x[row] for row in rows})


def test_npz__pathorob_layout(tmp_path: Path, x, rng):
    frame = pd.DataFrame(
        {
            "subset": np.repeat(["p", "q"], N // 2),
            "slide_id": [f"case-{i // 5}" for i in range(N)],
            "patch_id": [str(i % 5) for i in range(N)],
            "biological_class": np.where(np.arange(N) % 2, "tumor", "normal"),
            "medical_center": [f"centre {'CAB'[i // 10]}" for i in range(N)],
        }
    )
    pathorob(tmp_path / "feats", frame, x)
    shuffled = frame.sample(frac=1, random_state=0)
    shuffled.to_csv(tmp_path / "m.csv", index=False)
    roles = {
        "id_columns": ["slide_id", "patch_id"],
        "label": "biological_class",
        "group": "slide_id",
    }
    store = store_of(tmp_path / "feats", tmp_path / "m.csv", **roles)
    found = dict(zip(store.text("sample_id"), store.read_tiles(0, N), strict=True))
    for row, slide, patch in zip(x, frame["slide_id"], frame["patch_id"], strict=True):
        np.testing.assert_array_equal(found[f"{slide}/{patch}"], row)
    ids = frame["slide_id"] + "/" + frame["patch_id"]
    expected = dict(zip(ids, frame["biological_class"], strict=True))
    assert store.text("label").tolist() == [expected[name] for name in store.text("sample_id")]
    single = tmp_path / "feats/centre_A.npz"
    part = frame[frame.medical_center == "centre A"]
    assert store_of(single, part, **roles).n_tiles == 10
    with pytest.raises(SchemaError, match="20 only in the manifest .'case-"):
        store_of(single, frame, **roles)


def test_npz__pathorob_collision(tmp_path: Path, x):
    frame = pd.DataFrame(
        {
            "slide_id": ["a-1", "a", "b"],
            "patch_id": ["2", "1-2", "1"],
            "medical_center": ["A", "B", "C"],
        }
    )
    pathorob(tmp_path / "feats", frame, x)
    with pytest.raises(SchemaError, match="both become 'a-1-2'"):
        store_of(tmp_path / "feats", frame, id_columns=["slide_id", "patch_id"], group="slide_id")


def test_npz__vectors_of_different_length(tmp_path: Path):
    np.savez(tmp_path / "x.npz", **{"a-1": np.ones(3), "a-2": np.ones(3), "a-3": np.ones(4)})
    with pytest.raises(
        SchemaError, match=r"'a-3' has shape \(4,\) float64, the first member 'a-1'"
    ):
        store_of(tmp_path / "x.npz", {"sample_id": ["a-1", "a-2", "a-3"]})


# HDF5


@pytest.mark.parametrize("chunks", [None, (4, D), (100, D), (7, 2)])
def test_hdf5__key_or_only_dataset(tmp_path: Path, x, manifest, chunks: Any):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        chunks = chunks and (min(chunks[0], N), chunks[1])
        file.create_dataset("a/b", data=x, chunks=chunks, compression="gzip" if chunks else None)
        file["coords_1d"] = np.arange(N)
        file.attrs["note"] = "x"
    check(tmp_path / "x.h5", manifest, x)
    check(tmp_path / "x.h5", manifest, x, key="/a/b")
    with h5py.File(tmp_path / "x.h5", "a") as file:
        file["other"] = x.astype("f8") + 1
    with pytest.raises(SchemaError, match="'a/b', 'other'; choose the dataset"):
        store_of(tmp_path / "x.h5", manifest)
    check(tmp_path / "x.h5", manifest, x.astype("f8") + 1, key="other")
    with h5py.File(tmp_path / "x.h5", "a") as file:
        file["features"] = x
    check(tmp_path / "x.h5", manifest, x)


def test_hdf5__refused(tmp_path: Path, x, manifest):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["features"] = x[None]
    with pytest.raises(SchemaError, match=r"'features' has shape \(1, 30, 4\).*first axis"):
        store_of(tmp_path / "x.h5", manifest)
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["a"] = np.arange(3)
    with pytest.raises(SchemaError, match="no dataset that is two-dimensional; it has 'a'"):
        store_of(tmp_path / "y.h5", manifest)
    (tmp_path / "z.h5").write_bytes(b"nothing")
    with pytest.raises(SchemaError, match="not a readable HDF5"):
        store_of(tmp_path / "z.h5", manifest)


# Zarr


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("chunks", [(4, D), (7, 3), (N, D)])
def test_zarr__versions_and_consolidation(
    tmp_path: Path, x, manifest, zarr_format: Any, consolidated: bool, chunks: Any
):
    path = tmp_path / "x.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=zarr_format)
    group.create_array("deep/features", data=x, chunks=chunks)
    group.create_array("ids", data=np.arange(N))
    if consolidated:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(str(path))
    check(path, manifest, x)
    check(path, manifest, x, key="deep/features")
    check(path / "deep/features", manifest, x)
    with pytest.raises(SchemaError, match="no array 'nope'"):
        store_of(path, manifest, key="nope")


def test_zarr__sharded_in_archive_and_by_url(tmp_path: Path, x, manifest):
    zarr.create_array(
        str(tmp_path / "s.zarr"), data=x, chunks=(2, D), shards=(10, D), zarr_format=3
    )
    check(tmp_path / "s.zarr", manifest, x)
    with zarr.storage.ZipStore(str(tmp_path / "x.zarr.zip"), mode="w") as archive:
        zarr.create_array(archive, data=x, chunks=(4, D))
    check(tmp_path / "x.zarr.zip", manifest, x)
    zarr.create_array("memory://ingest/x.zarr", data=x, chunks=(4, D), overwrite=True)
    url = ingest("memory://ingest/x.zarr", manifest, "memory://ingest/out.zarr", overwrite=True)
    np.testing.assert_array_equal(StoredCohort(url).read_tiles(0, N), x)
    with pytest.raises(SchemaError, match="there is no memory://ingest/x.npy"):
        ingest("memory://ingest/x.npy", manifest, tmp_path / "o.zarr")


def test_zarr__absent_chunks_are_reported(tmp_path: Path, manifest):
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(N, D), chunks=(10, D), dtype="f4")
    array[:20] = 1
    with pytest.warns(InputWarning, match="1 of 3 chunks are not there and read as 0"):
        store_of(tmp_path / "x.zarr", manifest)


def test_zarr__a_cohort_can_be_the_source(tmp_path: Path, x, manifest):
    np.save(tmp_path / "x.npy", x)
    first = store_of(tmp_path / "x.npy", manifest)
    second = check(Path(first.url), manifest, x)
    assert second.fingerprint == first.fingerprint


# parquet


@pytest.mark.parametrize("row_group_size", [4, 9, 1000])
def test_parquet__columns(tmp_path: Path, x, manifest, row_group_size: int):
    data = {f"f{i}": x[:, i] for i in (2, 0, 1, 3)}  # the order of the file is kept
    ids = [f"s{i}" for i in range(N)]
    table = pa.table({"label": ["a"] * N, **data, "sample_id": ids, "n": np.arange(N)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=row_group_size)
    store = check(tmp_path / "x.parquet", None, x[:, [2, 0, 1, 3]])
    assert store.columns == ["label", "sample_id", "n"]
    shuffled = pd.read_csv(manifest).sample(frac=1, random_state=1)
    store = check(tmp_path / "x.parquet", shuffled, x[:, [2, 0, 1, 3]])
    assert store.text("sample_id").tolist() == ids
    assert store.text("label").tolist() == [str(i % 3) for i in range(N)]


@pytest.mark.parametrize("kind", ["list", "fixed", "large"])
@pytest.mark.parametrize("row_group_size", [4, 1000])
def test_parquet__list_column(tmp_path: Path, x, manifest, kind: str, row_group_size: int):
    kinds = {
        "list": pa.list_(pa.float32()),
        "fixed": pa.list_(pa.float32(), D),
        "large": pa.large_list(pa.float32()),
    }
    table = pa.table({"emb": pa.array(x.tolist(), type=kinds[kind]), "age": np.arange(N) / 2})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=row_group_size)
    check(tmp_path / "x.parquet", manifest, x)
    check(tmp_path / "x.parquet", manifest, x, key="emb")


def test_parquet__refused_and_chosen(tmp_path: Path, x, manifest):
    columns = {f"f{i}": x[:, i] for i in range(D)}
    pq.write_table(pa.table({**columns, "age": x[:, 0]}), tmp_path / "x.parquet")
    with pytest.raises(SchemaError, match="which of the float columns.*--key 'feat_"):
        store_of(tmp_path / "x.parquet", manifest)
    check(tmp_path / "x.parquet", manifest, x, key="f*")
    with pytest.raises(SchemaError, match="no numeric columns that match 'z"):
        store_of(tmp_path / "x.parquet", manifest, key="z*")
    pq.write_table(pa.table({"emb": [[1.0, 2.0]] * 29 + [[1.0]]}), tmp_path / "y.parquet")
    with pytest.raises(SchemaError, match="'emb' has 1 values in row 29, expected 2"):
        store_of(tmp_path / "y.parquet", manifest)
    pq.write_table(pa.table({"emb": [[1.0, 2.0]] * 29 + [None]}), tmp_path / "y.parquet")
    with pytest.raises(SchemaError, match="'emb' is empty in row 29"):
        store_of(tmp_path / "y.parquet", manifest)
    pq.write_table(pa.table({"f0": [1.0] * 29 + [None], "f1": [1.0] * 30}), tmp_path / "z.parquet")
    with pytest.raises(SchemaError, match="NaN in 1 row .row 29"):
        store_of(tmp_path / "z.parquet", manifest)
    (tmp_path / "w.parquet").write_bytes(b"nothing")
    with pytest.raises(SchemaError, match="not a readable parquet"):
        store_of(tmp_path / "w.parquet", manifest)


# a folder of slides


def slides(tmp_path: Path, x: np.ndarray, *, key: str = "features", coords: bool = True) -> Path:
    folder = tmp_path / "slides"
    folder.mkdir()
    for name, lo, hi in [("s10", 0, 12), ("s2", 12, 13), ("sA.v1", 13, 30)]:
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file.create_dataset(key, data=x[lo:hi], chunks=(min(5, hi - lo), D))
            if coords:
                file["coords"] = np.stack([np.arange(hi - lo) * 256, np.full(hi - lo, 7)], axis=1)
    (folder / "log.txt").write_text("done")
    (folder / ".hidden.h5").write_bytes(b"")
    return folder


def test_folder__without_manifest(tmp_path: Path, x):
    store = check(slides(tmp_path, x), None, x)
    assert store.text("sample_id")[[0, 11, 12, 29]].tolist() == [
        "s10/0",
        "s10/11",
        "s2/0",
        "sA.v1/16",
    ]
    assert store.codes("group_id")[1] == ["s10", "s2", "sA.v1"]
    assert store.text("image_path")[1] == "s10/256_7"


@pytest.mark.parametrize("key", ["slide_id", "slide", "group_id", "sample_id"])
def test_folder__manifest_of_slides(tmp_path: Path, x, key: str):
    frame = pd.DataFrame(
        {key: ["sA.v1", "s2", "s10"], "label": ["a", "b", "c"], "site": list("xyx")}
    )
    store = check(slides(tmp_path, x), frame, x)
    assert store.text("label").tolist() == ["c"] * 12 + ["b"] + ["a"] * 17
    assert store.text("sample_id")[13] == "sA.v1/0"
    assert store.codes("group_id")[1] == ["s10", "s2", "sA.v1"]
    patients = frame.assign(patient=["p1", "p1", "p2"])
    store = store_of(tmp_path / "slides", patients, group="patient")
    assert store.codes("group_id")[1] == ["p1", "p2"]


def test_folder__manifest_of_tiles(tmp_path: Path, x):
    folder = slides(tmp_path, x)
    ids = store_of(folder, None).text("sample_id")
    frame = pd.DataFrame({"sample_id": ids, "label": np.arange(N)}).sample(frac=1, random_state=2)
    store = check(folder, frame, x)
    assert store.text("label").tolist() == [str(i) for i in range(N)]
    assert store.codes("group_id")[1] == ["s10", "s2", "sA.v1"]
    with pytest.raises(SchemaError, match="1 only in the embedding"):
        store_of(folder, frame.iloc[:-1])


def test_folder__manifest_that_does_not_fit(tmp_path: Path, x):
    folder = slides(tmp_path, x)
    with pytest.raises(
        SchemaError, match="1 only in the folder .'sA.v1'.; 2 only in the manifest .'s3', 's4'"
    ):
        store_of(folder, pd.DataFrame({"slide_id": ["s10", "s2", "s3", "s4"]}))
    with pytest.raises(SchemaError, match="slides twice in column 'slide_id': 's2'"):
        store_of(folder, pd.DataFrame({"slide_id": ["s10", "s2", "s2", "sA.v1"]}))
    with pytest.raises(SchemaError, match="no column that names slides"):
        store_of(folder, pd.DataFrame({"file": ["s10", "s2", "sA.v1"]}))


def test_folder__npy_feats_and_key(tmp_path: Path, x, manifest):
    check(slides(tmp_path, x, key="feats", coords=False), None, x)
    other = tmp_path / "other"
    other.mkdir()
    check(slides(other, x, key="h", coords=False), None, x)
    check(other / "slides", None, x, key="h")
    npy = tmp_path / "npy"
    npy.mkdir()
    np.save(npy / "a.npy", x[:20].astype("f2"))
    np.save(npy / "b.npy", x[20:])
    expected = x.copy()
    expected[:20] = x[:20].astype("f2")
    check(npy, None, expected)


def test_folder__refused(tmp_path: Path, x):
    folder = tmp_path / "f"
    folder.mkdir()
    with pytest.raises(SchemaError, match="folder f is empty"):
        store_of(folder, None)
    (folder / "a.txt").write_text("x")
    with pytest.raises(SchemaError, match="no .h5, .npy or .npz file; it has 'a.txt'"):
        store_of(folder, None)
    np.save(folder / "a.npy", x)
    np.save(folder / "b.npy", x[:, :3])
    with pytest.raises(SchemaError, match="a.npy has 4 features and b.npy 3"):
        store_of(folder, None)
    np.save(folder / "b.npy", x.astype("i4"))
    with pytest.raises(SchemaError, match="a.npy has dtype float32 and b.npy int32"):
        store_of(folder, None)
    with h5py.File(folder / "c.h5", "w") as file:
        file["features"] = x
    with pytest.raises(SchemaError, match="several kinds .HDF5, npy"):
        store_of(folder, None)


def test_folder__nan_names_the_tile(tmp_path: Path, x):
    x[14, 2] = np.nan
    with pytest.raises(SchemaError, match="row 14, ids 'sA.v1/1'"):
        store_of(slides(tmp_path, x), None)


# the blocks that readers share


def test_blocks__each_is_loaded_once_in_a_pass():
    loads: list[int] = []
    data = np.arange(40).reshape(20, 2)
    edges = [0, 3, 3, 10, 20]

    def load(i: int) -> np.ndarray:
        loads.append(i)
        return data[edges[i] : edges[i + 1]]

    source = BlockSource(edges, load)
    for lo in range(0, 20, 2):
        np.testing.assert_array_equal(source.read(lo, lo + 2), data[lo : lo + 2])
    assert loads == [0, 2, 3]


def test_blocks__follow_chunks_within_a_limit():
    assert [*block_edges((5000, 4), 4, 3)] == [0, 4095, 5000]
    assert [*block_edges((10_000, 4), 4, 5000)] == [0, 5000, 10_000]
    assert block_edges((10_000, 1024), 4, None)[1] == 4096
    assert block_edges((10**6, 1024), 4, 10**6)[1] == 4096  # a chunk of 4 GB is not held
    assert [*block_edges((0, 4), 4, 3)] == [0]


def test_archives_are_read_by_member_not_as_a_whole(tmp_path: Path, x, manifest, monkeypatch):
    np.savez(tmp_path / "x.npz", x)
    largest = 0
    original = zipfile.ZipExtFile.read

    def read(self: Any, n: int | None = -1) -> bytes:
        nonlocal largest
        data = original(self, n)
        largest = max(largest, len(data))
        return data

    monkeypatch.setattr(zipfile.ZipExtFile, "read", read)
    store_of(tmp_path / "x.npz", manifest)
    assert largest <= 7 * D * 4 + 128
