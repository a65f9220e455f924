"""The pynndescent index of a shard: plain arrays, the same answers to whoever asks.

The only test module that uses the library: compiling it takes half a minute a process.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import multiprocessing
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from croma_dask.errors import CromaDaskError, SchemaError, StoreError
from croma_dask.index import descent
from croma_dask.index.descent import build_bytes, build_descent, held_bytes, library_version
from croma_dask.index.descent_arrays import (
    ARRAYS,
    SEARCH_ARRAYS,
    DescentArrays,
    digest,
    neighbors_of_own_rows,
)
from croma_dask.index.descent_checks import check_search
from croma_dask.index.descent_search import DescentIndex

# pynndescent compiles for half a minute: these run on their own (`make slow`, and in .ci/run).
pytestmark = [pytest.mark.slow, pytest.mark.ci]

N, D, K = 2500, 12, 15


def unit_rows(n: int, d: int = D, seed: int = 0) -> Any:
    """Clustered rows, normalised; the last six are two rows three times."""
    rng, centres = np.random.default_rng(seed), np.random.default_rng(7).normal(size=(40, d))
    rows = centres[rng.integers(0, 40, n)] + 0.4 * rng.normal(size=(n, d))
    if n > 6:
        rows[-6:] = np.repeat(rows[:2], 3, axis=0)
        rows[:2] = rows[2:4]
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def nearest(rows: Any, queries: Any, k: int) -> Any:
    return np.argsort(-(queries @ rows.T), axis=1, kind="stable")[:, :k]


@pytest.fixture(scope="module")
def rows() -> Any:
    return unit_rows(N)


@pytest.fixture(scope="module")
def queries() -> Any:
    return unit_rows(150, seed=1)


@pytest.fixture(scope="module")
def built(rows: Any) -> DescentArrays:
    return build_descent(rows, n_neighbors=K, seed=3, n_jobs=2)


@pytest.fixture(scope="module")
def index(rows: Any, built: DescentArrays) -> DescentIndex:
    return DescentIndex.load(rows, built.arrays, built.params)


@pytest.fixture(scope="module")
def serial(index: DescentIndex, queries: Any) -> tuple[Any, Any]:
    return index.query(queries, 20, 0.1)


def same(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])


def test_build__yields_plain_arrays_and_numbers(built: DescentArrays) -> None:
    assert built.arrays.keys() == ARRAYS.keys()
    for name, array in built.arrays.items():
        assert type(array) is np.ndarray
        assert array.dtype == ARRAYS[name]
    assert all(type(value) in (int, float, str) for value in built.params.values())
    assert built.params["library_version"] == library_version()
    assert built.params["n_rows"] == N


def test_build__is_the_same_again(rows: Any, built: DescentArrays) -> None:
    again = build_descent(rows, n_neighbors=K, seed=3, n_jobs=2)
    assert again.params == built.params
    for name, array in built.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)


def test_build__leaves_the_threads_of_numba_as_they_were(rows: Any) -> None:
    import numba

    before = numba.get_num_threads()
    found = build_descent(rows[:50], n_neighbors=K, seed=0, n_jobs=10_000)
    assert found.params["n_jobs"] == vars(numba.config)["NUMBA_NUM_THREADS"]
    assert numba.get_num_threads() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unit": np.ones((4, 2))}, "float64"),
        ({"unit": np.ones(4, np.float32)}, "float32, found \\(4,\\)"),
        ({"unit": np.full((4, 2), np.nan, np.float32)}, "finite"),
        ({"unit": np.ones((0, 2), np.float32)}, "\\(0, 2\\)"),
        ({"n_neighbors": 0}, "n_neighbors=0"),
        ({"n_jobs": 0}, "n_jobs=0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_build__refuses_what_it_cannot_use(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"unit": np.ones((4, 2), np.float32), "n_neighbors": 2, "seed": 0}
    with pytest.raises(SchemaError, match=words):
        build_descent(**(given | {"n_jobs": 1} | change))


def test_graph__holds_true_neighbours_and_never_the_row_itself(
    rows: Any, built: DescentArrays
) -> None:
    graph, distance = neighbors_of_own_rows(built.arrays, built.params)
    own = np.arange(N)
    assert not (graph == own[:, None]).any()
    assert (np.diff(distance, axis=1) >= 0).all()
    np.testing.assert_allclose(
        distance, np.linalg.norm(rows[graph] - rows[:, None], axis=2), atol=1e-5
    )
    similarity = rows @ rows.T
    similarity[own, own] = -9
    truth = np.argsort(-similarity, axis=1, kind="stable")[:, :K]
    found = np.mean([len(np.intersect1d(graph[i], truth[i])) / K for i in own])
    assert found > 0.95
    some = neighbors_of_own_rows(built.arrays, built.params, 100, 120)
    same(some, (graph[100:120], distance[100:120]))


def test_graph__of_duplicates_holds_the_twins(built: DescentArrays) -> None:
    graph, distance = neighbors_of_own_rows(built.arrays, built.params, N - 6, N)
    for i, row in enumerate(range(N - 6, N)):
        first = N - 6 if i < 3 else N - 3
        assert {first, first + 1, first + 2} - {row} <= set(graph[i].tolist())
        assert (distance[i, :2] == 0).all()


def test_query__finds_the_nearest(rows: Any, queries: Any, serial: tuple[Any, Any]) -> None:
    found, distance = serial
    assert found.dtype == np.int32
    assert distance.dtype == np.float32
    assert (np.diff(distance, axis=1) >= 0).all()
    truth = nearest(rows, queries, 20)
    recall = np.mean([len(np.intersect1d(a, b)) / 20 for a, b in zip(found, truth, strict=True)])
    assert recall > 0.95


def test_query__with_epsilon_zero_wants_more_than_the_graph_is_wide(
    rows: Any, index: DescentIndex, queries: Any
) -> None:
    """The library ends such a search after its first few candidates: its bound is 0 x inf."""
    k = 2 * K
    found, _ = index.query(queries, k, 0.0)
    truth = nearest(rows, queries, k)
    recall = np.mean([len(np.intersect1d(a, b)) / k for a, b in zip(found, truth, strict=True)])
    assert recall > 0.85


def test_query__of_a_row_of_the_shard_drops_nothing(rows: Any, index: DescentIndex) -> None:
    found, distance = index.query(rows[:200], 10, 0.2)
    assert np.mean((found == np.arange(200)[:, None]).any(axis=1)) > 0.97
    assert (distance[:, 0] < 1e-3).mean() > 0.97


def test_query__does_not_depend_on_batches(
    index: DescentIndex, queries: Any, serial: tuple[Any, Any]
) -> None:
    parts = [index.query(queries[lo : lo + 17], 20, 0.1) for lo in range(0, len(queries), 17)]
    same((np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])), serial)
    backwards = index.query(np.ascontiguousarray(queries[::-1]), 20, 0.1)
    same((backwards[0][::-1], backwards[1][::-1]), serial)


def test_query__beyond_the_rows_is_missing() -> None:
    rows = unit_rows(12)
    built = build_descent(rows, n_neighbors=K, seed=0, n_jobs=1)
    assert built.params["n_neighbors"] == 11
    found, distance = DescentIndex.load(rows, built.arrays, built.params).query(rows, 30, 0.1)
    assert (np.sort(found[:, :12], axis=1) == np.arange(12)).all()
    assert (found[:, 12:] == -1).all()
    assert np.isfinite(distance[:, :12]).all()
    assert np.isnan(distance[:, 12:]).all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_smallest_shards(n: int) -> None:
    rows = unit_rows(n)
    built = build_descent(rows, n_neighbors=K, seed=0, n_jobs=2)
    graph, distance = neighbors_of_own_rows(built.arrays, built.params)
    assert graph.shape == (n, max(1, n - 1))
    if n == 1:
        assert graph.tolist() == [[-1]]
        assert np.isnan(distance).all()
    found, _ = DescentIndex.load(rows, built.arrays, built.params).query(rows, 4, 0.0)
    for row in found:
        assert sorted(row.tolist()) == [-1] * (4 - n) + list(range(n))


def test_identical_rows__are_all_there(rows: Any) -> None:
    alike = np.repeat(rows[:1], 300, axis=0)
    built = build_descent(alike, n_neighbors=K, seed=0, n_jobs=2)
    graph, distance = neighbors_of_own_rows(built.arrays, built.params)
    assert not (graph == np.arange(300)[:, None]).any()
    assert (distance == 0).all()
    found, _ = DescentIndex.load(alike, built.arrays, built.params).query(alike[:5], 20, 0.1)
    assert (found >= 0).all()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ((np.ones((2, D)), 3, 0.1), "float64"),
        ((np.ones((2, D + 1), np.float32), 3, 0.1), "12 features"),
        ((np.full((2, D), np.inf, np.float32), 3, 0.1), "finite"),
        ((np.ones((2, D), np.float32), 0, 0.1), "k=0"),
        ((np.ones((2, D), np.float32), 3, -0.1), "epsilon=-0.1"),
        ((np.ones((2, D), np.float32), 3, np.nan), "epsilon=nan"),
    ],
)
def test_query__refuses_what_it_cannot_use(index: DescentIndex, asked: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        index.query(*asked)


def test_load__from_zarr_and_in_blocks_gives_the_same_answers(
    tmp_path: Path, rows: Any, built: DescentArrays, queries: Any, serial: tuple[Any, Any]
) -> None:
    group = zarr.open_group(tmp_path / "shard.zarr", mode="w", zarr_format=3)
    for name, array in built.arrays.items():
        group.create_array(name, data=array)
    group.attrs.put(built.params)
    again = zarr.open_group(tmp_path / "shard.zarr", mode="r")
    blocks = (rows[lo : lo + 700] for lo in range(0, N, 700))
    found = DescentIndex.load(blocks, again, dict(again.attrs))
    same(found.query(queries, 20, 0.1), serial)
    same(
        neighbors_of_own_rows(again, dict(again.attrs), 5, 50),
        neighbors_of_own_rows(built.arrays, built.params, 5, 50),
    )


def test_threads__get_the_serial_answer(index: DescentIndex, rows: Any, queries: Any) -> None:
    """The library fills buffers of the index in one call and reads them in the next."""
    asked = [(queries, 20, 0.1), (queries[:90], 7, 0.0), (rows[:120], 20, 0.2), (queries, 31, 0.1)]
    expected = [index.query(*one) for one in asked]
    found: list[list[tuple[Any, Any]]] = [[] for _ in asked]
    together = threading.Barrier(len(asked))

    def ask(i: int) -> None:
        together.wait()
        for _ in range(5):
            found[i].append(index.query(*asked[i]))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(asked))]
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # without the lock some rows are wrong then, in most runs
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(often)
    for i, answer in enumerate(expected):
        assert len(found[i]) == 5
        for one in found[i]:
            same(one, answer)


def ask_elsewhere(folder: str, number: int) -> None:
    """Load from the files of a folder in a process of its own, and keep its answer there."""
    place = Path(folder)
    arrays = {name: np.load(place / f"{name}.npy") for name in SEARCH_ARRAYS}
    params = pickle.loads((place / "params").read_bytes())
    index = DescentIndex.load(np.load(place / "rows.npy"), arrays, params)
    found, distance = index.query(np.load(place / "queries.npy"), 20, 0.1)
    np.savez(place / f"answer-{number}.npz", index=found, distance=distance)


def test_processes__get_the_serial_answer(
    tmp_path: Path, rows: Any, built: DescentArrays, queries: Any, serial: tuple[Any, Any]
) -> None:
    for name, array in {**built.arrays, "rows": rows, "queries": queries}.items():
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "params").write_bytes(pickle.dumps(built.params))
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=ask_elsewhere, args=(str(tmp_path), i)) for i in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join(300)
        assert other.exitcode == 0
    for i in range(2):
        with np.load(tmp_path / f"answer-{i}.npz") as answer:
            same((answer["index"], answer["distance"]), serial)


def test_index__is_never_pickled(index: DescentIndex) -> None:
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(index)


def put(name: str, where: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][where] = value

    return change


def replaced(name: str, by: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name] = by(arrays[name])

    return change


def lost(name: str) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        del arrays[name]

    return change


DAMAGE = [
    *((name, lost(name), "missing") for name in SEARCH_ARRAYS),
    *((name, replaced(name, lambda a: a.astype(np.float64)), "float64") for name in SEARCH_ARRAYS),
    *((name, replaced(name, lambda a: a[:-1]), "") for name in SEARCH_ARRAYS),
    *((name, replaced(name, lambda a: a.astype(object)), "object") for name in SEARCH_ARRAYS),
    ("vertex_order", put("vertex_order", 3, -1), "each of 2500 rows once"),
    ("vertex_order", put("vertex_order", 3, N), "each of 2500 rows once"),
    ("vertex_order", put("vertex_order", slice(2), 7), "each of 2500 rows once"),
    ("search_start", put("search_start", 0, -5), "does not rise"),
    ("search_start", put("search_start", 9, 1 << 40), "does not rise"),
    ("search_start", put("search_start", -1, 1 << 40), "does not rise"),
    ("search_index", put("search_index", 5, N), "outside of the 2500 rows"),
    ("search_index", put("search_index", 5, -1), "outside of the 2500 rows"),
    ("search_index", put("search_index", 5, 17), "other bytes"),
    ("tree_child", put("tree_child", (0, 0), 2), "no tree"),
    ("tree_child", put("tree_child", (0, 1), 1 << 30), "no tree"),
    ("tree_child", put("tree_child", (-1, 1), -N - 1), "does not divide"),
    ("tree_child", put("tree_child", (-1, 1), np.iinfo(np.int32).min), "does not divide"),
    ("tree_plane", put("tree_plane", (0, 0), 5.0), "other bytes"),
    ("tree_plane", replaced("tree_plane", lambda a: a[:, :-1]), "shape"),
    ("tree_offset", put("tree_offset", 0, np.nan), "other bytes"),
    ("search_rng", put("search_rng", 0, 0), "other bytes"),
]


@pytest.mark.parametrize(("name", "change", "words"), DAMAGE)
def test_load__names_a_damaged_array(
    rows: Any, built: DescentArrays, name: str, change: Any, words: str
) -> None:
    arrays = dict(built.arrays)
    change(arrays)
    with pytest.raises(StoreError, match=f"{name if words else ''}.*{words}.*build the index aga"):
        DescentIndex.load(rows, arrays, built.params)


def test_checks__hold_where_digests_were_forged(built: DescentArrays) -> None:
    """A cycle in the tree would never end, with whatever digest it comes."""
    child = built.arrays["tree_child"].copy()
    inner = np.flatnonzero(child[:, 0] > 0)
    child[inner[3]], child[inner[4], 0] = child[inner[4]], inner[3]
    params = built.params | {"sha256_tree_child": digest(child)}
    with pytest.raises(StoreError, match="tree_child is no tree"):
        check_search({**built.arrays, "tree_child": child}, params)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_rows", "2500"), ("n_rows", True), ("n_features", 0), ("n_neighbors", -1),
        ("n_neighbors", 1.5), ("min_distance", float("nan")), ("min_distance", None),
        ("sha256_tree_plane", 5), ("library_version", None), ("n_features", D + 1),
        ("n_rows", N - 1),
    ],
)  # fmt: skip
def test_load__refuses_parameters_that_do_not_fit(
    rows: Any, built: DescentArrays, name: str, value: Any
) -> None:
    with pytest.raises(StoreError, match="build the index again"):
        DescentIndex.load(rows, built.arrays, built.params | {name: value})


def test_load__refuses_another_release(rows: Any, built: DescentArrays) -> None:
    params = built.params | {"library_version": "0.6.0"}
    with pytest.raises(StoreError, match=r"built with pynndescent 0\.6\.0, here is .*build the"):
        DescentIndex.load(rows, built.arrays, params)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[:-1],
        lambda rows: np.concatenate([rows, rows[:1]]),
        lambda rows: rows[:, :-1],
        lambda rows: rows.astype(np.float64),
        lambda rows: np.where(np.arange(N)[:, None] == 9, np.float32(np.nan), rows),
        lambda rows: iter([rows[:70]]),
    ],
)
def test_load__refuses_other_rows(rows: Any, built: DescentArrays, change: Any) -> None:
    with pytest.raises(StoreError, match="build the index again"):
        DescentIndex.load(change(rows), built.arrays, built.params)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("graph_index", lost("graph_index"), "missing"),
        ("graph_index", put("graph_index", (4, 2), N), "outside of the shard in row 4"),
        ("graph_index", put("graph_index", (4, 2), -2), "outside of the shard in row 4"),
        ("graph_index", put("graph_index", (4, 2), 4), "itself, a repeat or a gap in row 4"),
        ("graph_index", put("graph_index", slice(2, 9), 0), "rows 2, 3, 4, 5, 6 and 2 more"),
        ("graph_distance", put("graph_distance", (4, 2), np.nan), "not go with .* in row 4"),
        ("graph_distance", replaced("graph_distance", lambda a: a[:9]), "shape"),
    ],
)
def test_graph__names_a_damaged_array(
    built: DescentArrays, name: str, change: Any, words: str
) -> None:
    arrays = dict(built.arrays)
    change(arrays)
    with pytest.raises(StoreError, match=f"{name}.*{words}.*build the index again"):
        neighbors_of_own_rows(arrays, built.params)


def test_library__without_a_place_for_its_cache_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, rows: Any
) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pynndescent":
            raise RuntimeError("cannot cache function 'f': no locator available for file 'g'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(CromaDaskError, match="NUMBA_CACHE_DIR"):
        build_descent(rows, n_neighbors=K, seed=0, n_jobs=1)
    assert not descent._one_at_a_time.locked()


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "width"), [(20_000, 128, 60), (40_000, 1024, 15)])
def test_memory__is_within_a_quarter_of_what_is_said(n: int, d: int, width: int) -> None:
    status = Path("/proc/self/status")

    def size(name: str) -> int:
        (line,) = [one for one in status.read_text().splitlines() if one.startswith(name)]
        return int(line.split()[1]) * 1024

    def measured(call: Callable[[], Any]) -> tuple[Any, int]:
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed would be taken again unseen
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts over
        before = size("VmRSS")
        result = call()
        return result, size("VmHWM") - before

    build_descent(unit_rows(3000, 16), n_neighbors=10, seed=0, n_jobs=2)  # compiled before
    # Groups as large as the graph is wide, one behind the other: most changes, so most memory.
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(n // 60 + 1, d)), 60, axis=0)[:n] + rng.normal(size=(n, d))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    built, taken = measured(lambda: build_descent(rows, n_neighbors=width, seed=0, n_jobs=2))
    assert 0.75 < build_bytes(n, d, width) / taken < 1.25
    index, taken = measured(lambda: DescentIndex.load(rows, built.arrays, built.params))
    # Read from a store, these two would be the index' own.
    taken += sum(built.arrays[name].nbytes for name in ("search_index", "vertex_order"))
    assert 0.75 < held_bytes(n, d, width) / taken < 1.25
    assert index.n_rows == n


# ---- searched through: the graph a shard ----------------------------------------------------


def _scored(x: Any, frame: Any, **how: Any) -> tuple[Any, Any]:
    import croma_dask as cd

    settings: dict[str, Any] = {"confounder": "center", "k_candidates": [5, 11], "m": 3}
    with cd.set_options(quiet=True):
        approximate = cd.score(x, frame, **settings, calibration=150, **how)
        return approximate, cd.score(x, frame, **settings)


@pytest.mark.filterwarnings("ignore::croma_dask.errors.SupportWarning")
@pytest.mark.parametrize("group_rows", [5, 60, 300])
def test_score__through_graphs_finds_what_exact_search_finds(
    group_rows: int, tmp_path: Path
) -> None:
    """Groups that take no place in a graph's lists, some of them, and all of them."""
    import pandas as pd

    import croma_dask as cd

    n = 1_500
    rng = np.random.default_rng(group_rows)
    label, center = rng.integers(0, 3, n), rng.integers(0, 3, n)
    group = np.arange(n) // group_rows
    # A group's rows lie close together, so that a large one fills the lists of its rows.
    x = 0.6 * rng.normal(size=(group.max() + 1, D))[group] + 0.5 * rng.normal(size=(n, D))
    x += 0.4 * rng.normal(size=(3, D))[label] + 0.3 * rng.normal(size=(3, D))[center]
    frame = pd.DataFrame(
        {
            "sample_id": np.arange(n).astype(str), "label": label.astype(str),
            "center": center.astype(str), "group_id": group.astype(str),
        }
    )  # fmt: skip
    index = cd.build_index(
        x, "pynndescent", path=tmp_path / "i.zarr", cluster_rows=50, shard_rows=500,
        n_neighbors=30, threads=2,
    )  # fmt: skip
    assert index.partition.n_shards >= 3
    approximate, exact = _scored(x, frame, index=index, start_k=60)
    found, wanted = approximate["RI"], exact["RI"]
    assert found.attrs["index"] == "pynndescent"
    assert float(found["recall_global"]) > 0.97
    assert abs(float(found.value) - float(wanted.value)) < 0.01
    np.testing.assert_array_equal(
        approximate["CRoMa"]["defined"].values, exact["CRoMa"]["defined"].values
    )
    both = approximate["CRoMa"].sample_values.values, exact["CRoMa"].sample_values.values
    assert float(np.nanmean(np.abs(both[0] - both[1]))) < 0.01


def test_score__refuses_a_graph_with_too_few_neighbours(tmp_path: Path) -> None:
    import pandas as pd

    import croma_dask as cd

    n = 400
    x = np.random.default_rng(1).normal(size=(n, D))
    at = np.arange(n)
    frame = pd.DataFrame(
        {"sample_id": at.astype(str), "label": at % 2, "center": at // 2 % 2, "group_id": at}
    )
    index = cd.build_index(x, "pynndescent", path=tmp_path / "i.zarr", n_neighbors=8)
    with pytest.raises(SchemaError, match=r"more than the 8 neighbours .*n_neighbors=20"):
        cd.score(x, frame, confounder="center", index=index, k_candidates=[11], calibration=100)


@pytest.mark.filterwarnings("ignore::croma_dask.errors.RecallWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_search__through_graphs_of_euclidean_distances(dtype: Any, tmp_path: Path) -> None:
    """Graphs are of centred and scaled rows; distances that are found are those of the rows."""
    import croma_dask as cd
    from tests.index.test_euclidean_index import assert_good, rows, searched

    x = (rows(1_500, D) * 1e30 if dtype == np.float64 else rows(1_500, D)).astype(dtype)
    with cd.set_options(quiet=True, threads=2, scratch=str(tmp_path / "scratch")):
        index = cd.build_index(
            x, "pynndescent", path=tmp_path / "i.zarr", cluster_rows=50, shard_rows=500,
            n_neighbors=30, distance="euclidean",
        )  # fmt: skip
        assert index.partition.n_shards >= 3
        assert_good(searched(x, index), x, 0.95)
        # Groups larger than the graph is wide.
        group = np.arange(1_500, dtype=np.int32) // 40
        crowded = searched(x, index, group=group, start_k=60)
    near = crowded.index[crowded.sample.rows]
    assert (group[near] != group[crowded.sample.rows, None]).all()
    lists = crowded.sample.exact.index, crowded.sample.approx.index
    hit = [np.isin(a, b).mean() for a, b in zip(*lists, strict=True)]
    assert np.mean(hit) > 0.95
