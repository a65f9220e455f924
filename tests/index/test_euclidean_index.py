"""Approximate indexes of Euclidean distances: what they find, and what is refused."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner

import croma_dask as cd
from croma_dask import build, cost
from croma_dask.approximate import Approximation, Sample
from croma_dask.cli import main
from croma_dask.cohort.align import Embedding, resolve
from croma_dask.cohort.design import Scope
from croma_dask.cohort.store import StoredCohort
from croma_dask.errors import SchemaError, StoreError
from croma_dask.index.spec import ListSpec
from croma_dask.index.stored import StoredIndex
from croma_dask.options import merged
from croma_dask.search import search
from tests.helpers.cohorts import manifest

N, D, K = 900, 6, 10
KIND = "ivf"
BUILD: dict[str, Any] = {
    "kind": KIND, "distance": "euclidean", "cluster_rows": 30, "shard_rows": 250, "seed": 3,
}  # fmt: skip
SCORE: dict[str, Any] = {
    "confounder": "center", "k_candidates": [3], "m": 1, "tau": 0.2, "warn_tau": False,
    "calibration": 100,
}  # fmt: skip
BENCHMARK: dict[str, Any] = {
    "label": "label", "metrics": ["cLISI", "GC"], "calibration": 300, "quiet": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    with cd.set_options(scratch=str(folder), threads=1, quiet=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        warnings.simplefilter("ignore", cd.RecallWarning)
        yield folder


def rows(n: int = N, d: int = D, seed: int = 1) -> Any:
    """Clumps of unlike width, far from the origin: no direction tells them apart."""
    rng = np.random.default_rng(seed)
    centres = 3.0 * rng.normal(size=(8, d)) + 40.0
    return centres[rng.integers(0, 8, n)] + rng.normal(size=(n, d)) * rng.uniform(0.3, 2.0, (n, 1))


def frame(n: int = N) -> Any:
    rng = np.random.default_rng(0)
    return manifest(rng.integers(0, 3, n), rng.integers(0, 3, n), np.arange(n))


@dataclass(frozen=True)
class Searched:
    """Lists of all rows, and the sample of the search."""

    index: Any
    distance: Any
    sample: Sample
    used: StoredIndex


def searched(
    x: Any, index: Any, *, spec: ListSpec | None = None, group: Any = None, **how: Any
) -> Searched:
    """Search all rows through an index: for the nearest of another group, by default for others."""
    n = x.shape[0]
    none = np.zeros(n, np.int32)
    own = np.arange(n, dtype=np.int32) if group is None else group
    scope = Scope("dataset", None, none, none, own, 1)
    with contextlib.ExitStack() as keep:
        found = search(
            Embedding(x, None), [scope], spec or ListSpec(K, 0), merged(), keep=keep,
            distance="euclidean",
            how=Approximation(index, **{"calibration": 100, **how}),
        )  # fmt: skip
        assert found.sample is not None
        assert found.index is not None
        blocks = list(found.neighbors[0].blocks())
        return Searched(
            np.concatenate([block.index for block in blocks]),
            np.concatenate([block.distance for block in blocks]), found.sample, found.index,
        )  # fmt: skip


def distances(x: Any) -> Any:
    """All distances, in the order of summation that counts; inf from a row to itself."""
    from croma_dask.kernels.dots import pair_euclidean

    x = x.astype(np.float32 if x.dtype == np.float32 else np.float64)
    n = x.shape[0]
    query, other = (a.ravel().astype(np.int32) for a in np.indices((n, n)))
    d = np.empty(n * n)
    pair_euclidean(x, x, query, other, d)
    d = d.reshape(n, n)
    np.fill_diagonal(d, np.inf)
    return d


def assert_good(found: Searched, x: Any, recall: float) -> None:
    """Distances are those of the rows found, known rows have the exact lists, few are missing."""
    d, (n, k) = distances(x), found.index.shape
    own = np.arange(n)[:, None]
    assert ((found.index >= 0) & (found.index != own)).all()
    np.testing.assert_array_equal(found.distance, d[own, found.index])
    exact = np.lexsort((np.broadcast_to(np.arange(n), d.shape), d), axis=-1)[:, :k]
    known = found.sample.known
    assert known.sum() >= 100
    np.testing.assert_array_equal(found.index[known], exact[known])
    np.testing.assert_array_equal(found.sample.exact.index, exact[found.sample.rows])
    hit = [np.isin(exact[r], found.index[r]).mean() for r in np.flatnonzero(~known)]
    assert np.mean(hit) > recall
    sampled = [np.isin(exact[r], found.sample.approx.index[at]).mean()
               for at, r in enumerate(found.sample.rows)]  # fmt: skip
    assert abs(float(np.mean(sampled)) - float(np.mean(hit))) < 0.05, "the sample tells the recall"


@pytest.fixture(scope="module")
def data() -> Any:
    return rows()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, data: Any) -> str:
    place = tmp_path_factory.mktemp("euclidean") / "cohort.zarr"
    return cd.write_cohort(place, data, frame(), chunk_rows=128)


@pytest.fixture(scope="module")
def built(data: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole index, which no test changes."""
    place = tmp_path_factory.mktemp("euclidean") / "whole.zarr"
    with cd.set_options(threads=1, scratch=str(place.parent / "scratch"), quiet=True):
        cd.build_index(data, path=place, **BUILD)
    return place


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy.zarr"))


# ---- what is found ---------------------------------------------------------------------------

KINDS: dict[str, Callable[[Any], Any]] = {
    "float64": lambda x: x,
    "float32": lambda x: x.astype(np.float32),
    "whole numbers": lambda x: np.clip(20 * (x - 40), -128, 127).astype(np.int8),
    "tiny": lambda x: 1e-30 * x,
    "huge": lambda x: 1e100 * x,
    "about 1e8": lambda x: 1e8 + x,
    "a far row": lambda x: np.where(np.arange(N)[:, None] == 17, 1e4, x),
    "zero rows": lambda x: np.where(np.arange(N)[:, None] % 300 == 0, 0.0, x),
}


@pytest.mark.parametrize("kind", KINDS)
def test_index__finds_what_exact_search_finds(kind: str, tmp_path: Path) -> None:
    x = KINDS[kind](rows())
    index = cd.build_index(x, path=tmp_path / "i.zarr", **BUILD)
    assert index.partition.n_shards > 2
    assert_good(searched(x, index), x, 0.9)


def test_index__looking_everywhere_finds_everything(data: Any, built: Path) -> None:
    found = searched(data, built, probes=cd.open_index(built).partition.n_clusters)
    assert_good(found, data, 0.999_999)


@pytest.mark.parametrize("far", [None, 1e3])
@pytest.mark.slow
def test_index__of_sketched_rows(far: float | None, tmp_path: Path) -> None:
    """Rows that differ in few directions are screened by these, an outlier or not."""
    rng = np.random.default_rng(0)
    n, d = 2_400, 130
    x = rows(n, d) * np.arange(1, d + 1) ** -1.5 + rng.normal(size=d)
    if far is not None:
        x[17] = far
    index = cd.build_index(x, path=tmp_path / "i.zarr", **(BUILD | {"shard_rows": 1_500}))
    assert 0 < index.partition.basis.shape[1] < d
    assert_good(searched(x, index), x, 0.93)


def test_index__rows_lie_with_their_nearest_centre(built: Path, data: Any) -> None:
    """Centres are those of centred and scaled rows: as `mean` and `scale` say."""
    index = cd.open_index(built)
    partition, scale = index.partition, index.frame.scale
    np.testing.assert_allclose(partition.mean, data.mean(axis=0), rtol=1e-12)
    assert index.attrs["distance"] == index.distance == "euclidean"
    moved = (data - partition.mean) * scale
    assert np.linalg.norm(moved, axis=1).max() <= 1.0
    nearest = ((moved[:, None] - partition.centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    of_place = np.repeat(np.arange(partition.n_clusters), np.diff(partition.cluster_edges))
    assert (nearest[partition.order] == of_place).mean() > 0.999, "but for rounding"


def test_search__of_rows_that_dask_makes(tmp_path: Path, data: Any) -> None:
    """They are computed once and lie in scratch; so does the index, as there is no store."""
    lazy = da.from_array(data, chunks=(100, D))
    assert_good(searched(lazy, KIND), data, 0.9)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_search__lists_of_the_same_label_are_no_index_s(data: Any, built: Path) -> None:
    with pytest.raises(ValueError, match="no lists of the same label"):
        searched(data, built, spec=ListSpec(3, 3, same_label=True))
    alone = searched(data, built, spec=ListSpec(K, 0, same_label=True))
    assert alone.index.shape == (N, K)


# ---- beside a store, with an index of the other distance ---------------------------------------


def test_index__both_distances_lie_beside_one_store(store: str, tmp_path: Path) -> None:
    place = str(shutil.copytree(store, tmp_path / "cohort.zarr"))
    euclidean = cd.build_index(place, **BUILD)
    cosine = cd.build_index(place, **(BUILD | {"distance": "cosine"}))
    assert euclidean.url == str(tmp_path / "cohort.euclidean.ivf.zarr")
    assert cosine.url == str(tmp_path / "cohort.ivf.zarr")
    assert (euclidean.distance, cosine.distance) == ("euclidean", "cosine")
    assert not np.array_equal(euclidean.partition.order, cosine.partition.order)
    embedding, _ = resolve(StoredCohort(place), None, ())
    for distance, index in (("cosine", cosine), ("euclidean", euclidean)):
        found = build.find_built(embedding, distance=distance)  # type: ignore[arg-type]
        assert found is not None
        assert found.url == index.url
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "train", None)  # nothing is built
        assert cd.score(place, index=KIND, **SCORE)["RI"].attrs["index"] == KIND
        found = cd.embedding_benchmark(place, index=KIND, **BENCHMARK)
    exact = cd.embedding_benchmark(place, **BENCHMARK)
    about = json.loads(str(found["about"].values.ravel()[0]))
    assert about["recall"] > 0.9
    np.testing.assert_allclose(found["value"], exact["value"], rtol=0, atol=0.02)


def test_index__of_one_distance_does_not_serve_the_other(
    store: str, built: Path, tmp_path: Path, data: Any
) -> None:
    cosine = cd.build_index(data, path=tmp_path / "i.zarr", **(BUILD | {"distance": "cosine"}))
    with pytest.raises(StoreError, match="of euclidean distances, and cosine ones are asked for"):
        cd.score(store, index=built, **SCORE)
    for index in (cosine, cosine.url):
        with pytest.raises(
            StoreError, match="of cosine distances, and euclidean ones are asked for"
        ):
            cd.embedding_benchmark(store, index=index, **BENCHMARK)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("there", ["cosine", "euclidean"])
def test_build_index__takes_no_index_of_the_other_distance_for_its_own(
    there: str, finished: bool, data: Any, tmp_path: Path
) -> None:
    place = tmp_path / "i.zarr"
    other = "cosine" if there == "euclidean" else "euclidean"
    if finished:
        cd.build_index(data, path=place, **(BUILD | {"distance": there}))
    else:
        cut_build(data, place, 1, distance=there)
    with pytest.raises(StoreError, match=f"distance differs: '{there}' there, '{other}' asked for"):
        cd.build_index(data, path=place, **(BUILD | {"distance": other}))
    index = cd.build_index(data, path=place, overwrite=True, **(BUILD | {"distance": other}))
    assert index.distance == other


def test_search__auto_takes_the_index_of_its_own_distance(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = str(shutil.copytree(store, tmp_path / "cohort.zarr"))
    cd.build_index(place, **(BUILD | {"distance": "cosine"}))
    assert about(cd.embedding_benchmark(place, index="auto", **BENCHMARK))["index"] == "exact"
    built_there: list[bool] = []
    seconds = cost.index_seconds

    def noted(*args: Any, built: bool, **kwargs: Any) -> float:
        built_there.append(built)
        return 1e-3 * seconds(*args, built=built, **kwargs)

    monkeypatch.setattr(cost, "_PATIENCE", 0.0)
    monkeypatch.setattr(cost, "index_seconds", noted)
    with caplog.at_level(logging.WARNING, "croma_dask"):
        first = cd.embedding_benchmark(place, index="auto", **BENCHMARK)
        assert "building an index" in caplog.text
        caplog.clear()
        again = cd.embedding_benchmark(place, index="auto", **BENCHMARK)
        assert "building an index" not in caplog.text
    assert built_there == [False, True]
    assert "recall" in about(first)
    assert "recall" in about(again)
    np.testing.assert_array_equal(first["value"], again["value"])


def about(result: Any) -> dict[str, Any]:
    return dict(json.loads(str(result["about"].values.ravel()[0])))


# ---- built ------------------------------------------------------------------------------------


class Cut(Exception):
    """What a test throws into a build."""


def cut_build(x: Any, place: Path, n: int, what: str = "write_shard", **other: Any) -> None:
    """Start a build and end it at call n of a function."""
    calls, whole = iter(range(1_000)), getattr(build, what)

    def cut(*args: Any, **kwargs: Any) -> Any:
        if next(calls) >= n:
            raise Cut
        return whole(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, what, cut)
        with pytest.raises(Cut):
            cd.build_index(x, path=place, **(BUILD | other))


def contents(place: Path) -> dict[str, bytes]:
    files = (path for path in sorted(place.rglob("*")) if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("what", "n"), [("assign_span", 0), ("write_partition", 0), ("write_shard", 2), ("finish", 0)]
)
def test_build_cut_anywhere__ends_with_the_same_bytes(
    what: str, n: int, data: Any, built: Path, tmp_path: Path
) -> None:
    place = tmp_path / "cut.zarr"
    cut_build(data, place, n, what)
    cd.build_index(data, path=place, **BUILD)
    assert contents(place) == contents(built)


def test_build_cut__whose_scale_is_lost_begins_anew(data: Any, built: Path, tmp_path: Path) -> None:
    place = tmp_path / "cut.zarr"
    cut_build(data, place, 2)
    edit(place, scale=None)
    cd.build_index(data, path=place, **BUILD)
    assert StoredIndex(str(place)).frame.scale == StoredIndex(str(built)).frame.scale
    assert_good(searched(data, place), data, 0.9)


def test_cli_index__builds_one_of_euclidean_distances(store: str, tmp_path: Path) -> None:
    place = str(shutil.copytree(store, tmp_path / "cohort.zarr"))
    done = CliRunner().invoke(main, ["index", place, "--kind", KIND, "--distance", "euclidean"])
    assert done.exit_code == 0, done.output
    assert str(tmp_path / "cohort.euclidean.ivf.zarr") in done.output
    assert cd.open_index(tmp_path / "cohort.euclidean.ivf.zarr").distance == "euclidean"
    assert not (tmp_path / "cohort.ivf.zarr").exists()
    refused = CliRunner().invoke(main, ["index", place, "--distance", "manhattan"])
    assert refused.exit_code == 2


@pytest.mark.parametrize("distance", ["manhattan", None, "Euclidean"])
def test_build_index__knows_two_distances(distance: Any, data: Any, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="distance is 'cosine' or 'euclidean', found"):
        cd.build_index(data, path=tmp_path / "i.zarr", **(BUILD | {"distance": distance}))
    assert not (tmp_path / "i.zarr").exists()


def test_build_index__rows_that_are_all_the_same_have_euclidean_distances(tmp_path: Path) -> None:
    x = np.ones((300, 4))
    found = searched(x, cd.build_index(x, path=tmp_path / "i.zarr", **BUILD))
    assert (found.distance == 0).all()
    with pytest.raises(SchemaError, match="longer than 1e150"):
        cd.build_index(1e170 * x, path=tmp_path / "j.zarr", **BUILD)


# ---- what is refused --------------------------------------------------------------------------


def edit(place: Path, **attributes: Any) -> None:
    """Change attributes; None takes one away."""
    meta = json.loads((place / "zarr.json").read_text())
    meta["attributes"].pop("layout_checksum", None)
    for name, value in attributes.items():
        meta["attributes"][name] = value
        if value is None:
            del meta["attributes"][name]
    (place / "zarr.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"distance": None}, "damaged: its attributes lack distance"),
        ({"distance": "manhattan"}, "of 'manhattan' distances, this release knows cosine, eucl"),
        ({"distance": 3}, "of 3 distances"),
        ({"scale": None}, "damaged: its rows are scaled by None"),
        *(({"scale": value}, "damaged: its (rows are|attribute 'scale')") for value in
          (0.0, -0.5, 3.0, "0.5", float("nan"), float("inf"))),
    ],
)  # fmt: skip
def test_open_index__refuses_one_whose_screening_is_not_known(
    attributes: dict[str, Any], message: str, copy: Path, data: Any, store: str
) -> None:
    edit(copy, **attributes)
    for use in (
        cd.open_index, lambda path: searched(data, path),
        lambda path: cd.score(store, index=path, **SCORE),
        lambda path: cd.build_index(data, path=path, **(BUILD | {"distance": "cosine"})),
    ):  # fmt: skip
        with pytest.raises(StoreError, match=f"{message}|distance differs"):
            use(copy)
    with pytest.raises(StoreError, match=message):
        cd.open_index(copy)


def test_open_index__one_older_than_the_choice_of_a_distance_is_of_cosine_ones(
    data: Any, store: str, tmp_path: Path
) -> None:
    place = tmp_path / "i.zarr"
    cd.build_index(store, path=place, **(BUILD | {"distance": "cosine"}))
    edit(place, distance=None, scale=None)
    assert cd.open_index(place).distance == "cosine"
    cd.score(store, index=place, **SCORE)
    before = contents(place)
    cd.build_index(store, path=place, **(BUILD | {"distance": "cosine"}))
    assert contents(place) == before


def test_search__an_index_of_other_rows_is_stale(data: Any, built: Path) -> None:
    with pytest.raises(StoreError, match="stale"):
        searched(data + 1.0, built)
