"""Euclidean lists, of any label and of the same one: exact, whatever the engine and the rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from croma_dask.cohort.align import Embedding
from croma_dask.cohort.design import Scope
from croma_dask.errors import SchemaError
from croma_dask.index.spec import ListSpec
from croma_dask.kernels import dots_numpy
from croma_dask.options import Options
from croma_dask.search import nearest_rows, search
from tests.helpers.engines import ENGINES, engine

N, K, SAME = 420, 9, 6


def _plain(rng: np.random.Generator) -> Any:
    return rng.normal(size=(N, 20))


def _lattice(rng: np.random.Generator) -> Any:
    return rng.integers(0, 4, (N, 3)).astype(float)


def _outlier(rng: np.random.Generator) -> Any:
    x = rng.normal(size=(N, 20))
    x[17] = 1e9
    return x


KINDS: dict[str, Callable[[np.random.Generator], Any]] = {
    "float64": _plain,
    "float32": lambda rng: _plain(rng).astype(np.float32),
    "one feature": lambda rng: rng.normal(size=(N, 1)),
    "wide": lambda rng: rng.normal(size=(N, 200)).astype(np.float32),
    "offset": lambda rng: 1e6 + _plain(rng),
    "tiny": lambda rng: 1e-25 * _plain(rng),
    "huge": lambda rng: 1e120 * _plain(rng),
    "ties": _lattice,
    "whole numbers": lambda rng: _lattice(rng).astype(np.uint8),
    "outlier": _outlier,
    "zero rows": lambda rng: np.where(np.arange(N)[:, None] % 50 == 0, 0.0, _plain(rng)),
    "identical": lambda rng: np.ones((N, 4)),
}


def _labels() -> Any:
    return np.random.default_rng(3).integers(0, 5, N).astype(np.int32)


def _search(x: Any, tmp_path: Path, **spec: Any) -> tuple[Any, Any]:
    label = _labels()
    nothing = np.zeros(N, np.int32)
    scope = Scope("dataset", None, label, nothing, np.arange(N, dtype=np.int32), 5)
    with contextlib.ExitStack() as keep:
        options = Options(threads=2, scratch=str(tmp_path), quiet=True)
        found = search(
            Embedding(x, None), [scope], ListSpec(**spec), options, keep=keep, distance="euclidean"
        )
        blocks = list(found.neighbors[0].blocks())
    return (
        np.concatenate([block.index for block in blocks]),
        np.concatenate([block.distance for block in blocks]),
    )


def _brute_force(x: Any, allowed: Any, k: int) -> tuple[Any, Any]:
    rows = x.astype(np.float32 if x.dtype == np.float32 else np.float64)
    query, other = (a.ravel().astype(np.int32) for a in np.indices((N, N)))
    d = np.empty(N * N)
    dots_numpy.pair_euclidean(rows, rows, query, other, d)
    d = np.where(allowed, d.reshape(N, N), np.inf)
    order = np.lexsort((np.broadcast_to(np.arange(N), d.shape), d), axis=-1)[:, :k]
    return order, np.take_along_axis(d, order, axis=1)


@pytest.mark.parametrize("kind", KINDS)
def test_search__euclidean_lists_are_the_brute_force_ones(kind: str, tmp_path: Path) -> None:
    x = KINDS[kind](np.random.default_rng(5))
    label = _labels()
    others = ~np.eye(N, dtype=bool)
    same = others & (label[:, None] == label[None, :])
    near, far = _brute_force(x, others, K)
    near_same, far_same = _brute_force(x, same, SAME)
    for name in ENGINES:
        with engine(name, range_rows=100):
            index, distance = _search(x, tmp_path, n_global=K, n_typed=SAME, same_label=True)
        np.testing.assert_array_equal(index[:, :K], near, err_msg=name)
        np.testing.assert_array_equal(distance[:, :K], far, err_msg=name)
        np.testing.assert_array_equal(index[:, K:], near_same, err_msg=name)
        np.testing.assert_array_equal(distance[:, K:], far_same, err_msg=name)


@pytest.mark.parametrize("name", ENGINES)
def test_search__same_label_lists_alone(name: str, tmp_path: Path) -> None:
    x, label = _plain(np.random.default_rng(5)), _labels()
    same = ~np.eye(N, dtype=bool) & (label[:, None] == label[None, :])
    with engine(name, range_rows=100):
        index, distance = _search(x, tmp_path, n_global=0, n_typed=SAME, same_label=True)
    near, far = _brute_force(x, same, SAME)
    np.testing.assert_array_equal(index, near)
    np.testing.assert_array_equal(distance, far)


@pytest.mark.parametrize("name", ENGINES)
def test_search__lists_longer_than_a_label_end_with_nobody(name: str, tmp_path: Path) -> None:
    x = _plain(np.random.default_rng(5))
    with engine(name, range_rows=100):
        index, distance = _search(x, tmp_path, n_global=2, n_typed=150, same_label=True)
    size = np.bincount(_labels())[_labels()]
    assert ((index[:, 2:] >= 0).sum(axis=1) == np.minimum(size - 1, 150)).all()
    np.testing.assert_array_equal(np.isnan(distance), index < 0)


@pytest.mark.parametrize("kind", ["float32", "float64", "offset", "wide"])
def test_pair_euclidean__is_the_distance(kind: str) -> None:
    x = KINDS[kind](np.random.default_rng(5)).astype(np.float64)
    query, other = (a.ravel().astype(np.int32) for a in np.indices((60, 60)))
    d = np.empty(3600)
    dots_numpy.pair_euclidean(x[:60], x[:60], query, other, d)
    np.testing.assert_allclose(d.reshape(60, 60), cdist(x[:60], x[:60]), rtol=1e-13, atol=0)


def test_pair_euclidean__compiled_and_numpy_have_the_same_bits() -> None:
    from croma_dask.kernels import dots

    rng = np.random.default_rng(0)
    query = rng.integers(0, 50, 300).astype(np.int32)
    other = rng.integers(0, 50, 300).astype(np.int32)
    for d in (1, 3, 64, 65, 130):
        for dtype in (np.float32, np.float64):
            x = rng.normal(size=(50, d)).astype(dtype)
            one, two = np.empty(300), np.empty(300)
            dots.pair_euclidean(x, x, query, other, one)
            dots_numpy.pair_euclidean(x, x, query, other, two)
            np.testing.assert_array_equal(one, two)


def test_search__euclidean_distances_that_overflow_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="longer than 1e150"):
        _search(1e160 * _plain(np.random.default_rng(0)), tmp_path, n_global=3, n_typed=0)


def test_nearest_rows__finds_the_other_rows() -> None:
    x = _plain(np.random.default_rng(5))
    near, far = _brute_force(x, ~np.eye(N, dtype=bool), 4)
    index, distance = nearest_rows(x, 4, n_threads=2)
    np.testing.assert_array_equal(index, near)
    np.testing.assert_array_equal(distance, far)
    assert nearest_rows(x[:3], 10)[0].shape == (3, 2)
