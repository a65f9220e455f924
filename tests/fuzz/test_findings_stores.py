"""What fuzzing has found in stores, indexes, results and small files: each stays mended.

Every input is made here, from something that is as it should be and one change. Whoever forges
metadata leaves their checksum out, as in stores of older releases.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import croma_dask as cd
from croma_dask.cohort.location import Location
from croma_dask.cohort.store import StoredCohort
from croma_dask.errors import SchemaError, StoreError
from croma_dask.index.kept_lists import KeptLists, find_kept
from croma_dask.index.spec import ListSpec
from croma_dask.index.stored import StoredIndex
from tests.fuzz import targets_results, targets_stores

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return shutil.copytree(targets_stores.made() / "plain.zarr", tmp_path / "x.zarr")


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return shutil.copytree(targets_stores.made() / "plain.ivf.zarr", tmp_path / "x.ivf.zarr")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return shutil.copytree(targets_stores.made() / "kept.zarr", tmp_path / "kept.zarr")


@pytest.fixture
def result(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        stem, _, ending = name.partition(".")
        return targets_results.copy_of(stem, f".{ending}", tmp_path)

    return copy


def forge(place: Path, array: str = "", **change: Any) -> None:
    """Change metadata of an array, or attributes of the root, wherever they stand."""
    path = place / "zarr.json"
    about = json.loads(path.read_text())
    about["attributes"].pop("layout_checksum", None)
    if array:
        about["consolidated_metadata"]["metadata"][array].update(change)
    else:
        about["attributes"].update(change)
    path.write_text(json.dumps(about))
    if array:
        path = place / array / "zarr.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def read_all(place: Path) -> None:
    store = StoredCohort(str(place))
    for column in store.columns:
        store.text(column)
    store.read_tiles(0, min(store.n_tiles, 16))


def chunks(*sizes: int) -> dict[str, Any]:
    return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(sizes)}}}


# --- cohort stores ---

COLUMNS = {
    "leads out": [{"name": "sample_id", "kind": "text", "array": "../../secret"}],
    "absolute": [{"name": "sample_id", "kind": "text", "array": "/etc"}],
    "twice": [{"name": "sample_id", "kind": "text", "array": "column_0"}] * 2,
    "kind": [{"name": "sample_id", "kind": "pickle", "array": "column_0"}],
    "no id": [{"name": "label", "kind": "category", "array": "column_1"}],
    "no objects": [1, None],
    "no text": [{"name": 1, "kind": "text", "array": "column_0"}],
}


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=list(COLUMNS))
def test_store__columns_are_checked(columns: Any, store: Path) -> None:
    forge(store, columns=json.dumps(columns))
    with pytest.raises(StoreError, match="is damaged"):
        read_all(store)


@pytest.mark.parametrize("name", ["columns", "source", "fingerprint", "created_by"])
@pytest.mark.parametrize("value", [None, 7, {"a": 1}, "[" * 100_000])
def test_store__attributes_are_checked(name: str, value: Any, store: Path) -> None:
    if isinstance(value, str) and name not in ("columns", "source"):
        return
    forge(store, **{name: value})
    with pytest.raises(StoreError, match=f"is damaged: its attribute '{name}'"):
        read_all(store)


EMBEDDINGS: dict[str, dict[str, Any]] = {
    "rows": {"shape": [10**15, 4]},
    "features": {"shape": [60, 10**12]},
    "both": {"shape": [10**12, 4], **chunks(10**12, 4)},
    "no chunk": chunks(0, 4),
    "one dim": chunks(1),
    "complex": {"data_type": "complex128"},
    "text": {"data_type": "string"},
    "no codecs": {"codecs": []},
    "pickle": {"codecs": [{"name": "numcodecs.pickle", "configuration": {}}]},
    "a group": {"node_type": "group"},
}


@pytest.mark.parametrize("change", EMBEDDINGS.values(), ids=list(EMBEDDINGS))
def test_store__embedding_claims_no_more_than_there_is(change: Any, store: Path) -> None:
    forge(store, "embedding", **change)
    with pytest.raises(StoreError):
        read_all(store)


@pytest.mark.parametrize("change", EMBEDDINGS.values(), ids=list(EMBEDDINGS))
def test_store__columns_claim_no_more_than_there_is(change: Any, store: Path) -> None:
    forge(store, "column_1", **change)
    with pytest.raises(StoreError):
        read_all(store)


def test_store__codes_without_a_name_are_no_level(store: Path) -> None:
    """A code of -2 would have been the last level but one, without a word."""
    import zarr

    forge(store)
    columns = json.loads(json.loads((store / "zarr.json").read_text())["attributes"]["columns"])
    array = next(column["array"] for column in columns if column["name"] == "label")
    codes = zarr.open_array(store / array, mode="r+")
    codes[3] = -2
    with pytest.raises(StoreError, match="codes that none of its names is of"):
        StoredCohort(str(store)).text("label")


@pytest.mark.parametrize("name", ["zarr.json", "embedding", "embedding/c/0/0", "column_1/c/0"])
def test_store__links_are_not_followed(name: str, store: Path, tmp_path: Path) -> None:
    (store / name).rename(tmp_path / "elsewhere")
    (store / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic links in this folder"):
        read_all(store)
    # The place that somebody names may be a link.
    (store / name).unlink()
    (tmp_path / "elsewhere").rename(store / name)
    (tmp_path / "link.zarr").symlink_to(store)
    read_all(tmp_path / "link.zarr")


def test_store__folder_in_place_of_a_file(store: Path) -> None:
    chunk = store / "embedding" / "c" / "0" / "0"
    chunk.unlink()
    chunk.mkdir()
    with pytest.raises(StoreError, match="chunk 0 of 'embedding'"):
        read_all(store)
    (store / "zarr.json").unlink()
    (store / "zarr.json").mkdir()
    with pytest.raises(StoreError):
        read_all(store)


# --- indexes ---


@pytest.mark.parametrize(
    "change",
    [
        {"n_rows": 10**15}, {"n_rows": "60"}, {"n_rows": True}, {"n_features": 0},
        {"parameters": "[]"}, {"parameters": "[" * 100_000}, {"dtype": "O"}, {"dtype": "f4,f4"},
        {"build_id": None}, {"scale": "1"},
    ],
    ids=str,
)  # fmt: skip
def test_index__attributes_are_checked(change: dict[str, Any], index: Path) -> None:
    forge(index, **change)
    with pytest.raises(StoreError):
        StoredIndex(str(index)).read(0, 8)


@pytest.mark.parametrize("array", ["order", "centres", "basis", "mean", "shard-00000/rows"])
@pytest.mark.parametrize("size", [10**15, 0])
def test_index__arrays_claim_no_more_than_there_is(array: str, size: int, index: Path) -> None:
    shape = json.loads((index / array / "zarr.json").read_text())["shape"]
    forge(index, array, shape=[size, *shape[1:]])
    with pytest.raises(StoreError):
        StoredIndex(str(index)).read(0, 8)


@pytest.mark.parametrize("content", [b"\xff", b"[]", b'"x"', b"1", b"[" * 100_000])
def test_index__shard_whose_metadata_are_no_metadata(content: bytes, index: Path) -> None:
    (index / "shard-00000" / "zarr.json").write_bytes(content)
    # The root has the same metadata: it may be read all the same, but raises nothing else.
    with contextlib.suppress(StoreError):
        assert StoredIndex(str(index)).read(0, 8).shape == (8, 4)


# --- kept neighbours ---


@pytest.mark.parametrize(
    "change", [{"n_rows": -1}, {"k": "3"}, {"m": None}, {"global_id": 1}, {"n_tiles": 1e300}]
)
def test_kept__attributes_are_checked(change: dict[str, Any], kept: Path) -> None:
    forge(kept, **change)
    for use in (cd.open_neighbors, lambda place: find_kept(Location.of(place))):
        with pytest.raises(StoreError, match="its attribute"):
            use(kept)


def test_kept__neighbours_are_rows(kept: Path) -> None:
    """They go into compiled kernels, which check no bounds."""
    import zarr

    forge(kept)
    array = zarr.open_array(kept / "neighbor_index", mode="r+")
    array[5, 0] = 60
    found = find_kept(Location.of(kept))
    assert found is not None
    lists = KeptLists(found, 0, ListSpec(found.n_global, 0))
    with pytest.raises(StoreError, match="are none of 60 rows"):
        lists.read(0, 10)


@pytest.mark.parametrize("change", [{"shape": [60, 10**12]}, chunks(0, 1), {"data_type": "string"}])
def test_kept__arrays_are_what_they_should_be(change: dict[str, Any], kept: Path) -> None:
    forge(kept, "neighbor_index", **change)
    found = find_kept(Location.of(kept))
    assert found is not None
    with pytest.raises(StoreError):
        KeptLists(found, 0, ListSpec(found.n_global, 0)).read(0, 10)
    with contextlib.suppress(StoreError):
        cd.open_neighbors(kept).close()


def test_kept__links_are_not_followed(kept: Path, tmp_path: Path) -> None:
    (kept / "unit_sum").rename(tmp_path / "elsewhere")
    (kept / "unit_sum").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic links"):
        cd.open_neighbors(kept)


# --- results ---


def test_result__arrays_claim_no_more_than_there_is(result: Callable[[str], Path]) -> None:
    """xarray would have cut it into a task a chunk, and waited for ever."""
    place = result("metric.zarr")
    for file in place.glob("*.sha256"):
        file.unlink()
    forge(place, "sample_values", shape=[10**15], **chunks(1))
    with pytest.raises((StoreError, SchemaError), match="claims"):
        cd.open_result(place)


def test_result__hdf5_claims_no_more_than_there_is(result: Callable[[str], Path]) -> None:
    place = result("metric.nc")
    with h5py.File(place, "r+") as file:
        del file["value"]
        file.create_dataset("value", (10**6, 10**6), "f8")
    with pytest.raises(StoreError):
        cd.open_result(place)


@pytest.mark.parametrize("link", [h5py.ExternalLink("/etc/passwd", "/"), h5py.SoftLink("/")])
@pytest.mark.parametrize("name", ["value", "RI", "new"])
def test_result__hdf5_links_are_not_followed(
    name: str, link: Any, result: Callable[[str], Path]
) -> None:
    place = result("metric.nc" if name == "value" else "one.nc")
    with h5py.File(place, "r+") as file:
        if name in file:
            del file[name]
        file[name] = link
    with pytest.raises(StoreError):
        cd.open_result(place)


def test_result__missing_parts_are_named(result: Callable[[str], Path]) -> None:
    with cd.open_result(result("metric.nc")) as opened:
        whole = opened.load()
    cut = whole.drop_vars("n_pairs")
    with pytest.raises(SchemaError, match="n_pairs is missing"):
        cd.results.summary(cut)
    with pytest.raises(SchemaError, match="median_value is of dtype"):
        cd.results.summary(whole.assign(median_value=((), "a text")))


def test_result__a_defect_of_ours_stays_one(
    result: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with cd.open_result(result("metric.nc")) as opened:
        whole = opened.load()

    def broken(*_: Any) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr("croma_dask.results.tables._summary", broken)
    with pytest.raises(KeyError, match="a defect"):
        cd.results.summary(whole)


def test_result__bytes_in_attributes_become_text(result: Callable[[str], Path]) -> None:
    place = result("metric.nc")
    with h5py.File(place, "r+") as file:
        file.attrs["comment"] = np.bytes_(b"caf\xe9")
    with cd.open_result(place) as opened:
        assert opened.attrs["comment"] == "caf\N{REPLACEMENT CHARACTER}"


# --- small files ---


@pytest.mark.parametrize("value", [None, 1, "A", [None], [1], [[1.5]], {"A": 1}], ids=str)
def test_splits__are_lists_of_cases(value: Any, tmp_path: Path) -> None:
    from croma_dask.probe.tolkach import tolkach_arrangement

    path = tmp_path / "splits.json"
    path.write_text(json.dumps({"train": {"A": [["c1"]]}, "test": {"A": value}}))
    with pytest.raises(SchemaError):
        tolkach_arrangement(path, ["c1", "c2"], centers=["A"])


@pytest.mark.parametrize(
    "content",
    [gzip.compress(bytes(70 << 20)), b"\x1f\x8b\x08\x00" + b"\xff" * 50, b"[" * 100_000],
    ids=["bomb", "no gzip", "deep"],
)
def test_splits__file_that_cannot_be_read(content: bytes, tmp_path: Path) -> None:
    from croma_dask.probe.tolkach import tolkach_arrangement

    path = tmp_path / "splits.json.gz"
    path.write_bytes(content)
    with pytest.raises(SchemaError):
        tolkach_arrangement(path, ["c1", "c2"], centers=["A"])


def test_record__deeply_nested_is_no_record(tmp_path: Path) -> None:
    from croma_dask.embedding.table_sections import read_sections

    (tmp_path / "record.json").write_text("[" * 100_000)
    assert read_sections(tmp_path) == {}


@pytest.mark.parametrize("array", [np.zeros(0), np.array("[["), np.array([1, 2]), np.array(1.5)])
def test_scratch__what_is_no_count_is_not_there(array: Any, tmp_path: Path) -> None:
    from croma_dask.index.scratch import Scratch

    scratch = Scratch(str(tmp_path))
    scratch.write("range-00000/final.npz", {"n_failing": array})
    assert scratch.n_failing(0) is None


@pytest.mark.parametrize(
    "arrays",
    [{}, {"edges": np.array(3), "per_block": np.array(1)},
     {"edges": np.array([0, 5, 5]), "per_block": np.array(1)},
     {"edges": np.array([0.0, 5.0]), "per_block": np.array(1)},
     {"edges": np.array([0, 5]), "per_block": np.array([1])}],
    ids=str,
)  # fmt: skip
def test_scratch__cut_that_is_none(arrays: Any, tmp_path: Path) -> None:
    from croma_dask.index.scratch import Scratch
    from croma_dask.resume import _read_cut

    scratch = Scratch(str(tmp_path))
    scratch.write("cut.npz", arrays)
    assert _read_cut(scratch) is None


@pytest.mark.parametrize(
    "about", ["[" * 100_000, "1", "{}", '{"metrics": {"RI": 1}}', '{"metrics": {"RI": [{}, {}]}}']
)
def test_panel__model_in_scratch_that_is_none(about: str, tmp_path: Path) -> None:
    from croma_dask.index.scratch import Scratch
    from croma_dask.panel.finished import Finished

    scratch = Scratch(str(tmp_path))
    scratch.write(f"model-{'0' * 32}.npz", {"about": np.array(about)})
    assert Finished(scratch).take("0" * 64, dict) is None
