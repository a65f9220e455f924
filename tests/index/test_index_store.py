"""An index on disk: plain Zarr, built shard by shard, and refused when it is not what it was."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr

import croma_dask as cd
from croma_dask import build
from croma_dask.cohort.layout import build_columns
from croma_dask.cohort.manifest import as_frame
from croma_dask.cohort.writer import CohortWriter
from croma_dask.errors import SchemaError, StoreError
from croma_dask.index import making
from croma_dask.index.partition import CLUSTER_ROWS, Clusters, cluster_edges, count_clusters
from croma_dask.index.stored import StoredIndex
from croma_dask.one_writer import one_writer
from tests.helpers.cohorts import features, manifest
from tests.helpers.compare import assert_same_bits
from tests.helpers.marks import first

KIND = "ivf"
N, D, SHARDS = 600, 6, 5
BUILD: dict[str, Any] = {"kind": KIND, "cluster_rows": 25, "shard_rows": 150, "seed": 3}
"""Clusters of 25 rows, in five shards."""

SCORE: dict[str, Any] = {
    "confounder": "center", "k_candidates": [3, 7], "m": [1, 3], "tau": 0.2, "warn_tau": False,
}  # fmt: skip
ARRAYS = ("order", "cluster_edges", "centres", "mean", "shard_edges", "basis")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    with cd.set_options(scratch=str(folder), threads=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        warnings.simplefilter("ignore", cd.RecallWarning)
        yield folder


def cohort(n: int = N, *, seed: int = 1, dtype: Any = np.float32) -> tuple[Any, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    label, center = rng.integers(0, 3, n), rng.integers(0, 3, n)
    x = features(rng, label, center, D)
    return (x if dtype is None else x.astype(dtype)), manifest(label, center, np.arange(n) // 2)


@pytest.fixture(scope="module")
def data() -> tuple[Any, pd.DataFrame]:
    return cohort()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, data: Any) -> str:
    return cd.write_cohort(tmp_path_factory.mktemp("index") / "cohort.zarr", *data, chunk_rows=100)


@pytest.fixture(scope="module")
def built(store: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole index, which no test changes."""
    place = tmp_path_factory.mktemp("index") / "whole.zarr"
    with cd.set_options(threads=1, scratch=str(place.parent / "scratch")):
        cd.build_index(store, path=place, **BUILD)
    return place


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    place = tmp_path / "copy.zarr"
    shutil.copytree(built, place)
    return place


def contents(place: Path) -> dict[str, bytes]:
    """All files of an index, by name."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def everything(index: StoredIndex, n: int) -> dict[str, Any]:
    """Arguments with which rows look everywhere."""
    return {"index": index, "probes": index.partition.n_clusters, "start_k": n, "calibration": 100}


def assert_exact(x: Any, frame: Any, index: StoredIndex) -> None:
    """Looking everywhere finds what the exact search finds, to the last bit."""
    n = len(frame) if frame is not None else index.n_rows
    found = cd.score(x, frame, **SCORE, **everything(index, n))
    expected = cd.score(x, frame, **SCORE)
    for name in ("RI", "MaRI", "CRoMa"):
        fields = ["value", "sample_values", "undefined_type", "pair_values"]
        mine, other = found[name].to_dataset(), expected[name].to_dataset()
        mine.attrs, other.attrs = {}, {}
        assert_same_bits(mine[fields], other[fields])


# ---- what lies on disk -----------------------------------------------------------------------


def test_index__is_plain_zarr(built: Path, data: Any, store: str) -> None:
    """zarr alone reads it: nothing is pickled, compressed or hidden."""
    x, _ = data
    group = zarr.open_group(str(built), mode="r", zarr_format=3)
    attrs = dict(group.attrs)
    assert (attrs["format"], attrs["format_version"]) == ("croma-dask index", 1)
    assert (attrs["status"], attrs["kind"]) == ("complete", KIND)
    assert (attrs["n_rows"], attrs["n_features"], attrs["dtype"]) == (N, D, "float32")
    assert attrs["croma_dask_version"] == cd.__version__
    assert attrs["embedding_fingerprint"] == cd.open_cohort(store).attrs["embedding_fingerprint"]
    assert json.loads(attrs["parameters"]) == {"cluster_rows": 25, "seed": 3}
    found = {name: group[name][...] for name in ARRAYS}
    kinds = {name: (array.dtype.str, array.shape) for name, array in found.items()}
    n_clusters = len(found["centres"])
    assert kinds == {
        "order": ("<i8", (N,)), "cluster_edges": ("<i8", (n_clusters + 1,)),
        "centres": ("<f4", (n_clusters, D)), "mean": ("<f8", (D,)),
        "shard_edges": ("<i8", (SHARDS + 1,)), "basis": ("<f4", (D, 0)),
    }  # fmt: skip
    assert sorted(found["order"].tolist()) == list(range(N))
    assert np.isin(found["shard_edges"], found["cluster_edges"]).all()
    shards = [group[f"shard-{number:05d}"] for number in range(SHARDS)]
    rows = [shard["rows"] for shard in shards]
    told = {"status": "complete", "build_id": attrs["build_id"]}
    for shard in shards:
        own = dict(shard.attrs)
        assert len(own.pop("metadata")) == 64, "digest of the metadata of what is inside"
        assert own == told
    assert [array.shape[0] for array in rows] == np.diff(found["shard_edges"]).tolist()
    for array in rows:
        assert array.metadata.zarr_format == 3
        assert [codec.to_dict() for codec in array.compressors] == [{"name": "crc32c"}]
    np.testing.assert_array_equal(np.concatenate([a[...] for a in rows]), x[found["order"]])
    listed = {path.name for path in built.iterdir()}
    assert listed == {"zarr.json", *ARRAYS, *(f"shard-{number:05d}" for number in range(SHARDS))}


def test_index__holds_each_row_with_its_nearest_centre(built: Path, data: Any) -> None:
    index = cd.open_index(built)
    partition = index.partition
    x = data[0].astype(np.float64)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(partition.mean, unit.mean(axis=0), rtol=0, atol=1e-12)
    distance = ((unit - partition.mean)[:, None] - partition.centres[None]) ** 2
    nearest = distance.sum(axis=2).argmin(axis=1)
    sizes = np.diff(partition.cluster_edges)
    of_place = np.repeat(np.arange(partition.n_clusters), sizes)
    assert (nearest[partition.order] == of_place).mean() > 0.999, "but for rounding"
    assert all(
        (np.diff(partition.order[a:b]) > 0).all()
        for a, b in zip(partition.cluster_edges, partition.cluster_edges[1:], strict=False)
    ), "within a cluster rows keep their order, by which ties are broken"


def test_index__is_small_and_travels_by_its_place(built: Path) -> None:
    index = cd.open_index(built)
    index.read(0, 10)
    dump = pickle.dumps(index)
    assert len(dump) < 1_000
    again = pickle.loads(dump)
    np.testing.assert_array_equal(again.read(3, N - 3), index.read(3, N - 3))
    assert repr(again) == f"StoredIndex({str(built)!r})"


@pytest.mark.parametrize(("lo", "hi"), [(0, N), (0, 0), (140, 160), (149, 301), (N - 1, N)])
def test_index__reads_any_rows_across_shards(lo: int, hi: int, built: Path, data: Any) -> None:
    index = cd.open_index(built)
    np.testing.assert_array_equal(index.read(lo, hi), data[0][index.partition.order[lo:hi]])
    met = np.zeros(hi - lo, int)
    for where, rows in index.pieces(lo, hi):
        np.testing.assert_array_equal(rows, index.read(lo, hi)[where])
        met[where] += 1
    assert (met == 1).all()


def test_build_index__lies_beside_the_store_and_is_found_again(store: str) -> None:
    index = cd.build_index(store, KIND)
    assert index.url == store.replace("cohort.zarr", f"cohort.{KIND}.zarr")
    before = contents(Path(index.url))
    assert cd.build_index(store, KIND).url == index.url
    assert contents(Path(index.url)) == before
    shutil.rmtree(index.url)


def test_build_index__of_the_same_rows_has_the_same_bytes(store: str, built: Path, tmp_path: Path
) -> None:  # fmt: skip
    again = tmp_path / "again.zarr"
    cd.build_index(store, path=again, **BUILD)
    assert contents(again) == contents(built)
    other = cd.build_index(store, path=tmp_path / "other.zarr", **{**BUILD, "seed": 4})
    assert not np.array_equal(other.partition.order, cd.open_index(again).partition.order)


def test_build_index__leaves_numpy_s_seed_and_the_filters_alone(store: str, tmp_path: Path) -> None:
    state, filters = np.random.get_state()[1].tolist(), list(warnings.filters)  # noqa: NPY002
    cd.build_index(store, path=tmp_path / "i.zarr", **BUILD)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
    assert list(warnings.filters) == filters


# ---- built shard by shard --------------------------------------------------------------------


class Cut(Exception):
    """What a test throws into a build."""


def cut_after(n: int, function: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter(range(10**6))

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) >= n:
            raise Cut
        return function(*args, **kwargs)

    return wrapped


def cut_build(
    store: str, place: Path, what: str, n: int, module: Any = build, **other: Any
) -> None:
    """Start a build and end it at call n of a function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, what, cut_after(n, getattr(module, what)))
        with pytest.raises(Cut):
            cd.build_index(store, path=place, **{**BUILD, **other})


def written(place: Path) -> dict[str, int]:
    """When the rows of each shard were written."""
    return {p.parts[-5]: p.stat().st_mtime_ns for p in place.glob("shard-*/rows/c/0/0")}


@pytest.mark.parametrize("done", [0, 2, 4])
def test_build_cut_between_shards__goes_on_with_the_next_one(
    done: int, store: str, built: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "cut.zarr"
    cut_build(store, place, "write_shard", done)
    before = written(place)
    assert len(before) == done
    for refused in (cd.open_index, lambda path: cd.score(store, index=path, **SCORE)):
        with pytest.raises(StoreError, match="started and not finished.*goes on with it"):
            refused(place)
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING, "croma_dask"):
        patch.setattr(build, "train", cut_after(0, build.train))
        index = cd.build_index(store, path=place, **BUILD)
    assert "going on with" in caplog.text
    after = written(place)
    assert len(after) == SHARDS
    assert {name: after[name] for name in before} == before, "what was done is not done again"
    assert contents(place) == contents(built)
    assert index.n_rows == N


@pytest.mark.parametrize(
    ("module", "what", "calls"),
    [
        (build, "train", 0), (build, "write_array", 1), (build, "assign_span", 0),
        (build, "write_partition", 0), (making, "chunk_rows_for", 2), (build, "finish", 0),
    ],
)  # fmt: skip
def test_build_cut_anywhere__ends_with_the_same_bytes(
    module: Any, what: str, calls: int, store: str, built: Path, tmp_path: Path
) -> None:
    place = tmp_path / "cut.zarr"
    cut_build(store, place, what, calls, module)
    cd.build_index(store, path=place, **BUILD)
    assert contents(place) == contents(built)


def test_build_cut_within_the_partition__makes_that_again(
    store: str, built: Path, tmp_path: Path
) -> None:
    """Some of its arrays are there, but it is not said to be whole."""
    place = tmp_path / "cut.zarr"
    cut_build(store, place, "write_shard", 0)
    group = zarr.open_group(str(place), mode="r+")
    group.attrs.update({"partition": False})
    shutil.rmtree(place / "order")
    cd.build_index(store, path=place, **BUILD)
    assert contents(place).keys() == contents(built).keys()
    np.testing.assert_array_equal(
        cd.open_index(place).partition.order, cd.open_index(built).partition.order
    )


@pytest.mark.parametrize("harm", ["missing", "truncated", "other"])
def test_build_cut__a_partition_that_was_damaged_since_is_made_again_with_its_shards(
    harm: str, store: str, data: Any, tmp_path: Path
) -> None:
    place = tmp_path / "cut.zarr"
    cut_build(store, place, "write_shard", 2)
    if harm == "missing":
        shutil.rmtree(place / "order")
    elif harm == "truncated":
        shorten(place / "order/c/0")
    else:
        change(place, "order", lambda order: np.where(order == 1, 0, order))
    index = cd.build_index(store, path=place, **BUILD)
    np.testing.assert_array_equal(index.read(0, N), data[0][index.partition.order])


def test_build_index__without_resume_starts_afresh(store: str, built: Path, tmp_path: Path) -> None:
    place = tmp_path / "cut.zarr"
    cut_build(store, place, "write_shard", 3)
    before = written(place)
    cd.build_index(store, path=place, resume=False, **BUILD)
    assert not before.items() & written(place).items()
    assert contents(place) == contents(built)


def test_build_index__does_not_go_on_with_what_was_started_otherwise(
    store: str, built: Path, tmp_path: Path
) -> None:
    place = tmp_path / "cut.zarr"
    cut_build(store, place, "write_shard", 3, cluster_rows=60)
    with pytest.raises(cd.StoreError, match="another index .*overwrite"):
        cd.build_index(store, path=place, **BUILD)
    cd.build_index(store, path=place, overwrite=True, **BUILD)
    assert contents(place) == contents(built)


def test_build_index__is_one_process_s_at_a_time(store: str, tmp_path: Path) -> None:
    place = tmp_path / "i.zarr"
    with one_writer(place), pytest.raises(StoreError, match="being written by another process"):
        cd.build_index(store, path=place, **BUILD)
    assert not place.exists()
    # Its owner is gone, however that ended: the lock went with it.
    cd.build_index(store, path=place, **BUILD)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
def test_index__that_was_built_again_is_not_mixed_with_what_it_was(
    store: str, tmp_path: Path
) -> None:
    """A handle has read the old order; the rows are another build's."""
    place = tmp_path / "i.zarr"
    handle = cd.build_index(store, path=place, **BUILD)
    assert handle.partition.n_clusters > 20
    cd.build_index(store, path=place, overwrite=True, **{**BUILD, "seed": 4})
    with pytest.raises(StoreError, match="built again since it was opened"):
        handle.read(0, 10)
    cd.score(store, index=handle, **SCORE)


def test_index__at_a_url(data: Any) -> None:
    """Any file system that fsspec knows: here there are no locks, and no direct reads."""
    x, frame = data
    place = cd.write_cohort("memory://index/c.zarr", x, frame)
    index = cd.build_index(place, **BUILD)
    assert index.url == f"memory://index/c.{KIND}.zarr"
    np.testing.assert_array_equal(index.read(0, N), x[index.partition.order])
    assert_exact(place, None, index)
    assert cd.score(place, index=KIND, **SCORE)["RI"].attrs["index"] == KIND
    assert cd.score(x, frame, index=index.url, **SCORE)["RI"].attrs["index"] == KIND
    with pytest.raises(StoreError, match="another index"):
        cd.build_index(place, **{**BUILD, "seed": 8})
    cd.build_index(place, overwrite=True, **{**BUILD, "seed": 8})
    files, root = index.location.filesystem()
    files.rm(f"{root}/shard-00001/rows/c/0/0")
    with pytest.raises(StoreError, match="damaged.*shard-00001/rows.*missing"):
        cd.score(place, index=KIND, **SCORE)


# ---- what is refused -------------------------------------------------------------------------


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(place: Path, name: str, function: Callable[[Any], Any]) -> None:
    """Write another array of the same name, whatever its shape and dtype."""
    value = function(zarr.open_group(str(place), mode="r")[name][...])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        group = zarr.open_group(str(place), mode="r+", use_consolidated=False)
        array = group.create_array(
            name, shape=value.shape, dtype=value.dtype, chunks=value.shape, overwrite=True,
            compressors=None,
        )  # fmt: skip
        array[...] = value
        consolidated = (json.loads((place / "zarr.json").read_text())).get("consolidated_metadata")
        if consolidated:
            zarr.consolidate_metadata(group.store)
    # Without the checksum: what is looked at below it is what these tests are about.
    edit(place)


def edit(place: Path, **attributes: Any) -> None:
    meta = json.loads((place / "zarr.json").read_text())
    meta["attributes"].pop("layout_checksum", None)
    for name, value in attributes.items():
        if value is None:
            del meta["attributes"][name]
        else:
            meta["attributes"][name] = value
    (place / "zarr.json").write_text(json.dumps(meta))


def swapped(edges: Any) -> Any:
    return np.concatenate([edges[:2], edges[2:4][::-1], edges[4:]])


FILLED = ARRAYS[:-1]
"""Rows as narrow as these are screened whole: the basis of a sketch is empty."""

DAMAGE: dict[str, Callable[[Path], object]] = {
    **{f"{name} lost": lambda p, name=name: shutil.rmtree(p / name) for name in FILLED},
    **{f"{name} emptied": lambda p, name=name: shutil.rmtree(p / name / "c") for name in FILLED},
    **{
        f"{name} cut short": lambda p, name=name: shorten(
            next(f for f in (p / name / "c").rglob("*") if f.is_file())
        )
        for name in FILLED
    },
    **{
        f"{name} shorter": lambda p, name=name: change(p, name, lambda a: a[:-1])
        for name in ARRAYS
    },
    **{
        f"{name} of another dtype": lambda p, name=name: change(
            p, name, lambda a: a.astype("f4" if a.dtype == np.int64 else "f2")
        )
        for name in ARRAYS
    },
    "order repeats": lambda p: change(p, "order", lambda a: np.where(a == 1, 0, a)),
    "order points outside": lambda p: change(p, "order", lambda a: np.where(a == 1, N, a)),
    "order is negative": lambda p: change(p, "order", lambda a: np.where(a == 1, -1, a)),
    "edges descend": lambda p: change(p, "cluster_edges", swapped),
    "edges repeat": lambda p: change(p, "cluster_edges", lambda a: np.r_[a[:3], a[2], a[4:]]),
    "edges begin late": lambda p: change(p, "cluster_edges", lambda a: np.r_[1, a[1:]]),
    "shard edges descend": lambda p: change(p, "shard_edges", swapped),
    "shard edges within clusters": lambda p: change(
        p, "shard_edges", lambda a: np.r_[a[0], a[1] + 1, a[2:]]
    ),
    "centres are NaN": lambda p: change(p, "centres", lambda a: np.where(a == a[2, 1], np.nan, a)),
    "centres narrow": lambda p: change(p, "centres", lambda a: a[:, :-1]),
    "mean is inf": lambda p: change(p, "mean", lambda a: a + np.inf),
    "mean is a matrix": lambda p: change(p, "mean", lambda a: a[None]),
    **{
        f"attribute {name} lost": lambda p, name=name: edit(p, **{name: None})
        for name in ("kind", "parameters", "n_rows", "n_features", "dtype", "croma_dask_version",
                     "embedding_fingerprint")
    },
    "dtype unheard of": lambda p: edit(p, dtype="float33"),
    "rows of another number": lambda p: edit(p, n_rows=N - 1),
    "root cut short": lambda p: shorten(p / "zarr.json"),
}  # fmt: skip


@pytest.mark.parametrize("harm", DAMAGE)
def test_open_index__refuses_what_is_damaged(harm: str, copy: Path, store: str) -> None:
    DAMAGE[harm](copy)
    for use in (cd.open_index, lambda path: cd.score(store, index=path, **SCORE)):
        with pytest.raises(StoreError, match=r"copy\.zarr.*(damaged.*overwrite|build one)"):
            use(copy)


@pytest.mark.parametrize("harm", ["lost", "emptied", "cut short", "of another dtype", "shorter"])
def test_score__refuses_an_index_whose_rows_are_damaged(
    harm: str, copy: Path, store: str, scratch: Path
) -> None:
    rows = "shard-00002/rows"
    if harm == "lost":
        shutil.rmtree(copy / rows)
    elif harm == "emptied":
        shutil.rmtree(copy / rows / "c")
    elif harm == "cut short":
        shorten(copy / rows / "c/0/0")
    else:
        cut = harm == "shorter"
        change(copy, rows, lambda a: a[:-1] if cut else a.astype(np.float64))
    with pytest.raises(StoreError, match=r"copy\.zarr is damaged: .*shard-00002/rows.*overwrite"):
        cd.score(store, index=copy, **SCORE)


def test_a_damaged_index__is_made_anew_by_overwrite_only(
    copy: Path, built: Path, store: str
) -> None:
    shutil.rmtree(copy / "centres")
    with pytest.raises(StoreError, match="damaged.*overwrite"):
        cd.build_index(store, path=copy, **BUILD)
    cd.build_index(store, path=copy, overwrite=True, **BUILD)
    assert contents(copy) == contents(built)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"status": "writing"}, "started and not finished"),
        ({"format": "something"}, "no index of croma-dask"),
        ({"format_version": 2}, "format version 2, .* up to 1: pip install"),
        ({"embedding_fingerprint": "0" * 64}, "stale.*fingerprint 000000000000"),
        ({"kind": "hnsw"}, "of the kind 'hnsw'"),
    ],
)
def test_score__refuses_an_index_that_is_not_its_own(
    attributes: dict[str, Any], message: str, copy: Path, store: str
) -> None:
    edit(copy, **attributes)
    for index in (copy, str(copy), StoredIndex(str(copy))):
        with pytest.raises(StoreError, match=message):
            cd.score(store, index=index, **SCORE)


def test_index_of_another_release__serves_and_is_not_built_again(
    copy: Path, store: str, built: Path
) -> None:
    edit(copy, croma_dask_version="0.0.1")
    before = contents(copy)
    there, here = (cd.score(store, index=place, **SCORE)["RI"] for place in (copy, built))
    np.testing.assert_array_equal(there.sample_values, here.sample_values)
    cd.build_index(store, path=copy, **BUILD)
    assert contents(copy) == before
    # But what it has begun is not gone on with.
    edit(copy, status="writing")
    cd.build_index(store, path=copy, **BUILD)
    assert cd.open_index(copy).attrs["croma_dask_version"] == cd.__version__


def test_score__refuses_an_index_of_other_rows(built: Path, tmp_path: Path, data: Any) -> None:
    """One digit, one row more or less, another dtype: another cohort."""
    x, frame = data
    moved = x.copy()
    moved[5, 1] = np.nextafter(moved[5, 1], np.float32(9))
    for rows in (moved, x[:-1], x.astype(np.float64), np.roll(x, 1, axis=0)):
        with pytest.raises(StoreError, match="stale.*overwrite"):
            cd.score(rows, frame[: len(rows)], index=built, **SCORE)
    cd.score(x, frame, index=built, **SCORE)


def test_score__refuses_a_stale_index_beside_the_store(tmp_path: Path, data: Any) -> None:
    x, frame = data
    place = cd.write_cohort(tmp_path / "c.zarr", x, frame)
    cd.build_index(place, **BUILD)
    cd.write_cohort(place, x[::-1], frame, overwrite=True)
    for call in (
        lambda: cd.score(place, index=KIND, **SCORE),
        lambda: cd.build_index(place, **BUILD),
    ):
        with pytest.raises(StoreError, match="overwrite"):
            call()
    cd.build_index(place, overwrite=True, **BUILD)
    cd.score(place, index=KIND, **SCORE)


@pytest.mark.parametrize(
    ("other", "named"), [({"seed": 9}, "parameters"), ({"cluster_rows": 80}, "parameters")]
)
def test_build_index__does_not_replace_another_one_unasked(
    other: dict[str, Any], named: str, copy: Path, store: str
) -> None:
    before = contents(copy)
    with pytest.raises(StoreError, match=f"another index \\({named} differs.*overwrite=True"):
        cd.build_index(store, path=copy, **{**BUILD, **other})
    assert contents(copy) == before
    index = cd.build_index(store, path=copy, overwrite=True, **{**BUILD, **other})
    assert index.parameters == {"cluster_rows": 25, "seed": 3} | other
    assert list(copy.glob(".*")) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_build_index__leaves_what_is_not_its_own_alone(
    overwrite: bool, store: str, tmp_path: Path
) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.txt").write_text("precious")
    array = tmp_path / "array.zarr"
    zarr.create_array(str(array), shape=(3,), dtype="i4")
    twin = shutil.copytree(store, tmp_path / "twin.zarr")
    file = tmp_path / "file"
    file.write_text("precious")
    for place in (folder, array, twin, file):
        before = contents(tmp_path)
        with pytest.raises(StoreError, match="is no index, so it is left alone|is a file"):
            cd.build_index(store, path=place, overwrite=overwrite, **BUILD)
        assert contents(tmp_path) == before


@pytest.mark.parametrize("what", ["nothing", "folder", "file", "cohort", "array"])
def test_open_index__says_what_is_there_instead(what: str, store: str, tmp_path: Path) -> None:
    place = tmp_path / what
    if what == "folder":
        place.mkdir()
        (place / "a.txt").touch()
    elif what == "file":
        place.touch()
    elif what == "cohort":
        place = Path(store)
    elif what == "array":
        zarr.create_array(str(place), shape=(3,), dtype="i4")
    with pytest.raises(StoreError, match=f"{place}.*build one with build_index") as refusal:
        cd.open_index(place)
    assert "ingest" not in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "hnsw"}, "no index of the kind 'hnsw'"),
        ({"cluster_rows": 0}, "cluster_rows must be at least 1"),
        ({"cluster_rows": 2.5}, "cluster_rows must be a whole number"),
        ({"shard_rows": -3}, "shard_rows must be at least 1"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 1 << 32}, r"below 2\*\*32"),
        ({"seed": "one"}, "seed must be a whole number"),
    ],
)
def test_build_index__names_the_argument_that_is_wrong(
    arguments: dict[str, Any], message: str, store: str, tmp_path: Path
) -> None:
    place = tmp_path / "i.zarr"
    with pytest.raises(SchemaError, match=message):
        cd.build_index(store, path=place, **{"kind": KIND, **arguments})
    assert not place.exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.empty((0, 4)), "no rows"),
        (np.ones((9, 4)), "identical"),
        (np.where(np.eye(6) > 0, np.nan, 1.0), "NaN"),
    ],
)
def test_build_index__refuses_rows_that_nothing_can_be_searched_in(
    rows: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SchemaError, match=message):
        cd.build_index(rows, KIND, path=tmp_path / "i.zarr")
    assert not (tmp_path / "i.zarr").exists()


def test_build_index__of_an_array_needs_a_place(data: Any, tmp_path: Path) -> None:
    x, frame = data
    with pytest.raises(SchemaError, match="name a path="):
        cd.build_index(x, KIND)
    index = cd.build_index(x, path=tmp_path / "i.zarr", **BUILD)
    assert_exact(x, frame, index)


def test_score__of_an_array_by_kind_leaves_nothing_behind(data: Any, scratch: Path) -> None:
    x, frame = data
    found = cd.score(x, frame, index=KIND, calibration=100, **SCORE)
    assert found["RI"].attrs["index"] == KIND
    assert list(scratch.iterdir()) == []


# ---- rows of every make ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["<f2", "<f4", "<f8", ">f4", ">f8", "i1", "<i4", ">i4", "<i8", "u1"]
)
def test_index__of_any_dtype(dtype: str, tmp_path: Path) -> None:
    x, frame = cohort(dtype=None)
    if np.dtype(dtype).kind in "iu":
        x = np.round(8 * x) + (40 if dtype == "u1" else 0)
    x = x.astype(dtype)
    index = cd.build_index(x, path=tmp_path / "i.zarr", **BUILD)
    assert index.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(index.read(0, N), x[index.partition.order])
    if np.dtype(dtype).kind == "f":
        assert_exact(x, frame, index)
    else:
        # Full of equal distances: which of them the lists hold is another matter.
        cd.score(x, frame, index=index, calibration=100, **SCORE)


@pytest.mark.filterwarnings("ignore:.*rows are zero")
def test_index__with_zero_rows(tmp_path: Path, data: Any) -> None:
    x, frame = data[0].copy(), data[1]
    x[[3, 77, 400]] = 0.0
    index = cd.build_index(x, path=tmp_path / "i.zarr", **BUILD)
    expected = cd.score(x, frame, **SCORE)
    found = cd.score(x, frame, **SCORE, **everything(index, N))
    for name in ("RI", "CRoMa"):
        np.testing.assert_array_equal(found[name].undefined_type, expected[name].undefined_type)


def mapped(place: Path, x: Any, frame: Any, tiles: Any) -> str:
    """A store whose manifest row i is the stored row tiles[i]."""
    columns = build_columns(as_frame(frame))
    with CohortWriter(place, x.shape, x.dtype, columns, tile_of_sample=tiles) as writer:
        writer.write(x)
        return writer.finish()


def test_index__of_a_store_whose_manifest_is_in_another_order(
    tmp_path: Path, data: Any, rng: np.random.Generator
) -> None:
    x, frame = data
    tiles = rng.permutation(N)
    place = mapped(tmp_path / "c.zarr", x, frame, tiles)
    index = cd.build_index(place, **BUILD)
    np.testing.assert_array_equal(index.read(0, N), x[index.partition.order])
    assert_exact(place, None, index)
    plain = cd.score(x[tiles], frame, **SCORE)
    found = cd.score(place, **SCORE, **everything(index, N))
    for name in ("RI", "CRoMa"):
        assert found[name].value.values.tobytes() == plain[name].value.values.tobytes()


@pytest.mark.parametrize("case", ["repeated", "left out", "both"])
def test_score__refuses_an_index_where_tiles_are_repeated_or_left_out(
    case: str, tmp_path: Path, data: Any
) -> None:
    x, frame = data
    tiles = np.arange(N)
    if case == "both":
        tiles[7] = 6
    x = x[: N // 2] if case == "repeated" else x
    tiles = (
        tiles % len(x) if case == "repeated" else tiles[: N - 9] if case == "left out" else tiles
    )
    place = mapped(tmp_path / "c.zarr", x, frame[: len(tiles)], tiles)
    index = cd.build_index(place, **BUILD)
    with pytest.raises(SchemaError, match="several times or not at all.*index='exact'"):
        cd.score(place, index=index, **SCORE)
    assert cd.score(place, index="auto", **SCORE)["RI"].attrs["index"] == "exact"


# ---- few rows, few clusters, many equal ones -------------------------------------------------


@pytest.mark.parametrize("n", [9, 20, 200])
@pytest.mark.parametrize("cluster_rows", first(2, [4, None, 1, 5_000]))
def test_index__of_a_tiny_cohort(n: int, cluster_rows: int | None, tmp_path: Path) -> None:
    x, frame = cohort(n, seed=3)
    index = cd.build_index(x, KIND, path=tmp_path / "i.zarr", cluster_rows=cluster_rows)
    expected = 1 if cluster_rows in (None, 5_000) else n // (cluster_rows or 1)
    assert index.partition.n_clusters <= expected
    assert_exact(x, frame, index)
    found = cd.score(x, frame, index=index, calibration=100, **SCORE)
    exact = cd.score(x, frame, **SCORE)
    np.testing.assert_array_equal(found["CRoMa"].undefined_type, exact["CRoMa"].undefined_type)


def test_index__of_five_rows(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(5, 3))
    frame = manifest([0, 0, 1, 1, 0], [0, 1, 0, 1, 0])
    for cluster_rows in (1, 2, 5, 6):
        index = cd.build_index(
            x, KIND, path=tmp_path / f"{cluster_rows}.zarr", cluster_rows=cluster_rows
        )
        arguments = {**SCORE, "k_candidates": [2], "m": 1}
        found = cd.score(x, frame, index=index, calibration=100, **arguments)
        exact = cd.score(x, frame, **arguments)
        for name in ("RI", "CRoMa"):
            np.testing.assert_array_equal(found[name].sample_values, exact[name].sample_values)


def test_index__of_equal_rows_but_one(tmp_path: Path) -> None:
    """Every centre but one is the same; none of the equal rows is out of sight of the others."""
    x, frame = cohort(200)
    x[1:] = x[1]
    index = cd.build_index(x, KIND, path=tmp_path / "i.zarr", cluster_rows=4)
    found = cd.score(x, frame, index=index, calibration=100, probes=1, **SCORE)
    exact = cd.score(x, frame, **SCORE)
    np.testing.assert_array_equal(found["CRoMa"].undefined_type, exact["CRoMa"].undefined_type)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_index__cuts_up_a_cluster_that_is_far_too_large(share: float, tmp_path: Path) -> None:
    n, rows = 1_600, 20
    x, frame = cohort(n)
    x[: int(share * n)] = x[0]
    index = cd.build_index(x, KIND, path=tmp_path / "i.zarr", cluster_rows=rows)
    sizes = np.diff(index.partition.cluster_edges)
    assert sizes.max() <= max(8 * rows, 256)
    assert sizes.min() >= 1
    np.testing.assert_array_equal(index.read(0, n), x[index.partition.order])
    found = cd.score(x, frame, index=index, calibration=100, probes=1, **SCORE)
    exact = cd.score(x, frame, **SCORE)
    np.testing.assert_array_equal(found["CRoMa"].undefined_type, exact["CRoMa"].undefined_type)


def test_cluster_edges__leaves_empty_clusters_out_and_cuts_large_ones_evenly() -> None:
    cluster = np.array([4] * 30 + [1] * 1_000 + [4] * 5 + [2], np.int32)
    centres = np.arange(10, dtype=np.float32).reshape(5, 2)
    found: Clusters = cluster_edges(cluster, centres)
    sizes = np.diff(found.edges)
    # The average is 207 rows: up to 1,656 are left together.
    assert sizes.tolist() == [1_000, 1, 35]
    np.testing.assert_array_equal(found.centres, centres[[1, 2, 4]])
    found = cluster_edges(cluster, np.repeat(centres, 20, axis=0)[:100])
    sizes = np.diff(found.edges)
    assert sizes[:4].tolist() == [250] * 4
    assert sizes[4:].tolist() == [1, 35]
    assert (found.centres[:4] == found.centres[0]).all()
    assert found.order.tolist() == sorted(range(len(cluster)), key=lambda i: (cluster[i], i))


def test_count_clusters__grows_with_the_rows_and_slower_beyond_two_million() -> None:
    rows = CLUSTER_ROWS
    sizes = (1, rows - 1, rows, 2 * rows + 9, 1_000_000)
    assert [count_clusters(n, None) for n in sizes] == [1, 1, 1, 2, 1_000_000 // rows]
    assert count_clusters(8_000_000, None) == 4_000_000 // rows
    assert [count_clusters(100, rows) for rows in (1, 30, 100, 1_000)] == [100, 3, 1, 1]
