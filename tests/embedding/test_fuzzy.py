"""The fuzzy graph, bit for bit that of umap-learn and of scanpy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.embedding.fuzzy import memberships, symmetric
from croma_dask.embedding.leiden import leiden_neighbors
from tests.helpers.plain_metrics import exact_lists

Lists = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def umap() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import umap.umap_

    return umap.umap_


@pytest.fixture(scope="module")
def scanpy() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import scanpy

    return scanpy


def cells(seed: int, n: int, d: int = 10, *, duplicates: int = 0) -> np.ndarray:
    """A mixture of Gaussians in float32."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(6, d)) * 1.5
    x = centres[rng.integers(0, 6, n)] + rng.normal(size=(n, d))
    x[:duplicates] = x[n // 2 : n // 2 + duplicates]
    x[n - duplicates :] = x[0]
    return x.astype(np.float32)


def lists(x: np.ndarray, k: int) -> Lists:
    """Lists of k entries, of which the row itself, the first one, is left out."""
    index, distance = exact_lists(x.astype(np.float64), k)
    return index[:, 1:].copy(), distance[:, 1:].copy()


def graph_of(x: np.ndarray, k: int) -> Any:
    index, distance = lists(x, k)
    return symmetric(index, memberships(index, distance), len(x))


@pytest.mark.parametrize("k", [15, 50])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("duplicates", [0, 40])
def test_symmetric__has_the_bits_of_umap(umap: Any, k: int, scale: float, duplicates: int) -> None:
    n = 300
    index, distance = lists(cells(1, n, duplicates=duplicates) * np.float32(scale), k)
    distance = distance.astype(np.float32).astype(np.float64)
    graph = symmetric(index, memberships(index, distance), n)
    itself = np.arange(n)[:, None]
    reference, _, _ = umap.fuzzy_simplicial_set(
        sp.coo_matrix((n, 1)),
        k,
        None,
        None,
        knn_indices=np.hstack([itself, index]),
        knn_dists=np.hstack([0.0 * itself, distance]).astype(np.float32),
    )
    assert graph.nnz == reference.nnz
    assert (graph != reference.tocsr().astype(np.float64)).nnz == 0


@pytest.mark.parametrize("n", [3, 8, 14, 15, 16, 600, 1500])
def test_symmetric__has_the_bits_of_scanpy(scanpy: Any, n: int) -> None:
    """For lists of `leiden_neighbors`, which scanpy shortens when there are few cells."""
    x = cells(n, n, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = scanpy.AnnData(x)
        scanpy.pp.neighbors(adata, n_neighbors=15, use_rep="X", metric="euclidean")
    reference = adata.obsp["connectivities"]
    graph = graph_of(x, leiden_neighbors(n))
    assert graph.nnz == reference.nnz
    assert (graph != reference.astype(np.float64)).nnz == 0


def test_symmetric__has_the_bits_of_scanpy_on_real_cells(scanpy: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = scanpy.datasets.pbmc68k_reduced()
        scanpy.pp.neighbors(adata, n_neighbors=15, use_rep="X_pca")
    graph = graph_of(np.asarray(adata.obsm["X_pca"], np.float32), 15)
    assert (graph != adata.obsp["connectivities"].astype(np.float64)).nnz == 0


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 10**6), st.booleans())
def test_symmetric__joins_as_probabilities_are(n: int, m: int, seed: int, some: bool) -> None:
    """Against the dense formula, whatever the weights, and where entries are missing."""
    rng = np.random.default_rng(seed)
    m = min(m, n - 1)
    index = np.full((n, m), -1, np.int32)
    for i in range(n):
        index[i] = rng.permutation(np.delete(np.arange(n), i))[:m]
    index[rng.random(index.shape) < 0.3 * some] = -1
    weight = rng.choice([0.0, 1e-30, 0.25, 1.0], index.shape).astype(np.float32)
    dense = np.zeros((n, n), np.float32)
    for i, e in zip(*np.nonzero(index >= 0), strict=True):
        dense[i, index[i, e]] = weight[i, e]
    graph = symmetric(index, weight, n)
    assert graph.dtype == np.float64
    expected = (dense + dense.T) - dense * dense.T
    assert np.array_equal(graph.toarray(), expected)
    assert graph.nnz == np.count_nonzero(expected)
    assert graph.has_sorted_indices
    assert (graph != graph.T).nnz == 0


def test_symmetric__of_some_rows_is_part_of_the_graph() -> None:
    """kBET's graph of a label is made of that label's lists alone."""
    x = cells(5, 200)
    index, distance = lists(x, 15)
    weight = memberships(index, distance)
    inside = np.flatnonzero(np.random.default_rng(0).random(200) < 0.4)
    place = np.full(200, -1, np.int32)
    place[inside] = np.arange(inside.size)
    part = symmetric(place[index[inside]], weight[inside], inside.size)
    whole = symmetric(index, weight, 200)[inside][:, inside]
    assert (part != whole).nnz == 0


def test_memberships__do_not_depend_on_other_rows() -> None:
    index, distance = lists(cells(3, 150, duplicates=20), 15)
    whole = memberships(index, distance)
    for lo in range(0, 150, 7):
        part = slice(lo, lo + 7)
        assert np.array_equal(memberships(index[part], distance[part]), whole[part])


def test_memberships__sum_up_to_the_logarithm_of_the_length() -> None:
    index, distance = lists(cells(4, 200), 15)
    weight = memberships(index, distance)
    assert np.allclose(weight.sum(axis=1), np.log2(15), atol=2e-5)
    assert (weight[:, 0] == 1.0).all()
    assert (np.diff(weight, axis=1) <= 0.0).all()


def test_memberships__of_neighbours_at_no_distance_are_1() -> None:
    """As is that of the first neighbour behind them; UMAP counts how near the others come to it."""
    index = np.tile(np.arange(1, 6, dtype=np.int32), (3, 1))
    distance = np.array([[0.0] * 5, [0.0, 0.0, 0.5, 0.6, 9.0], [2.0] * 5])
    weight = memberships(index, distance)
    assert weight[0].tolist() == [1.0] * 5
    assert weight[1, :3].tolist() == [1.0] * 3
    assert (weight[1, 3:] < 1.0).all()
    assert weight[2].tolist() == [1.0] * 5


def test_memberships__of_missing_neighbours_are_0() -> None:
    """A shorter list has the weights that it has among lists of its length."""
    index, distance = lists(cells(6, 100), 15)
    short = memberships(index[:, :6].copy(), distance[:, :6].copy())
    index[:, 6:], distance[:, 6:] = -1, np.nan
    weight = memberships(index, distance)
    assert np.array_equal(weight[:, :6], short)
    assert (weight[:, 6:] == 0.0).all()
    index[:], distance[:] = -1, np.nan
    assert (memberships(index, distance) == 0.0).all()


@pytest.mark.parametrize("exponent", [-150, -100, -60, 0, 60, 100, 150, 900, -900])
def test_memberships__hardly_depend_on_the_scale(exponent: int) -> None:
    """Where squares of distances are no float32 numbers any more, as well."""
    index, distance = lists(cells(7, 100, duplicates=5), 15)
    plain = memberships(index, distance)
    scaled = memberships(index, np.ldexp(distance, exponent))
    assert np.isfinite(scaled).all()
    assert np.allclose(scaled, plain, atol=2e-5)
