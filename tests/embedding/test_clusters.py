"""k-means against scikit-learn's as the scorer calls it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.cluster
from threadpoolctl import threadpool_info, threadpool_limits

from croma_dask.embedding.clusters import kmeans_clusters, kmeans_note


def cells(seed: int, n: int = 900) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(6, 15)) * rng.uniform(0.2, 2.0)
    return centres[rng.integers(0, 6, n)] + rng.normal(size=(n, 15))


@pytest.mark.parametrize("seed", range(6))
def test_kmeans_clusters__are_those_of_the_reference(seed: int) -> None:
    x = cells(seed)
    expected = sklearn.cluster.KMeans(n_clusters=6, random_state=1, n_init=10).fit(x).labels_
    found = kmeans_clusters(x, 6)
    assert found.dtype == np.int32
    assert found.tolist() == expected.tolist()


def test_kmeans_clusters__are_made_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is allowed: the sums of several would be added in the order in which they end."""
    seen: list[int] = []
    fit = sklearn.cluster.KMeans.fit

    def watched(self: Any, *args: Any) -> Any:
        seen.extend(
            pool["num_threads"]
            for pool in threadpool_info()
            if pool["user_api"] == "openmp" or "numpy" in pool["filepath"]
        )
        return fit(self, *args)

    monkeypatch.setattr(sklearn.cluster.KMeans, "fit", watched)
    with threadpool_limits(limits=4, user_api="openmp"):
        kmeans_clusters(cells(0, 100), 3)
    assert seen
    assert set(seen) == {1}


def test_kmeans_clusters__take_any_numbers_and_leave_them() -> None:
    x = cells(1, 200).astype(np.float32)
    before = x.copy()
    assert np.array_equal(kmeans_clusters(x, 4), kmeans_clusters(x.astype(np.float64), 4))
    assert np.array_equal(x, before)


def test_kmeans_clusters__are_fewer_where_rows_are_equal() -> None:
    found = kmeans_clusters(np.repeat([[0.0, 1.0], [5.0, 1.0]], 10, axis=0), 4)
    assert np.unique(found).size == 2
    assert kmeans_clusters(np.ones((1, 3)), 1).tolist() == [0]


def test_kmeans_note__says_how() -> None:
    assert kmeans_note(7) == "clustering=kmeans;k=7;random_state=1;n_init=10"


@pytest.mark.parametrize("factor", [1e-170, 1e-20, 1e100])
def test_by_kmeans__is_that_of_the_rows_in_any_unit(factor: float) -> None:
    import croma_dask as cd

    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 200)
    x = rng.normal(size=(200, 5)) + 2.0 * np.eye(5)[kind]
    frame = pd.DataFrame({"cell_type": kind.astype(str)})
    found = [
        cd.embedding_benchmark(rows, frame, metrics=["ARI"], clustering="kmeans").value.item()
        for rows in (x, factor * x)
    ]
    assert found[0] == found[1] > 0.5
