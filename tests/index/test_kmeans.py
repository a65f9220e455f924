"""The centres of an index: Lloyd's iteration, the same on any number of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import croma_dask as cd
from croma_dask.index import kmeans as module
from croma_dask.index.kmeans import kmeans


def clouds(rng: np.random.Generator, n: int = 900, d: int = 5, k: int = 12) -> Any:
    centre = 6.0 * rng.normal(size=(k, d))
    return (centre[rng.integers(0, k, n)] + rng.normal(size=(n, d))).astype(np.float32)


def spread(x: Any, centres: Any) -> float:
    """Mean squared distance to the nearest centre."""
    distance = ((x[:, None].astype(np.float64) - centres[None]) ** 2).sum(axis=2)
    return float(distance.min(axis=1).mean())


@pytest.mark.parametrize("entries", [1, 5_000, 4 << 20])
def test_kmeans__is_the_same_on_any_number_of_threads(
    entries: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of any size; of one size the bits are the same, too."""
    monkeypatch.setattr(module, "_ENTRIES", entries)
    x = clouds(rng)
    found = {kmeans(x, 30, seed=2, iterations=6, n_threads=k).tobytes() for k in (1, 2, 5, 5)}
    assert len(found) == 1
    assert found != {kmeans(x, 30, seed=3, iterations=6, n_threads=1).tobytes()}


def test_kmeans__takes_each_centre_to_the_mean_of_its_rows(rng: np.random.Generator) -> None:
    x = clouds(rng)
    begun = kmeans(x, 20, seed=0, iterations=0, n_threads=1)
    assert {row.tobytes() for row in begun} <= {row.tobytes() for row in x}
    assert len(begun) == len({row.tobytes() for row in begun}) == 20
    nearest = ((x[:, None] - begun[None]) ** 2).sum(axis=2).argmin(axis=1)
    once = kmeans(x, 20, seed=0, iterations=1, n_threads=2)
    for c in range(20):
        mean = x[nearest == c].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(once[c], mean, rtol=0, atol=1e-6)
    gained = [spread(x, kmeans(x, 20, seed=0, iterations=i, n_threads=2)) for i in range(7)]
    assert gained == sorted(gained, reverse=True)
    assert gained[-1] < 0.7 * gained[0]


def test_kmeans__ends_where_nothing_moves(rng: np.random.Generator) -> None:
    x = clouds(rng, 200)
    settled = kmeans(x, 5, seed=1, iterations=300, n_threads=1)
    np.testing.assert_array_equal(settled, kmeans(x, 5, seed=1, iterations=400, n_threads=1))
    own = kmeans(x, len(x), seed=1, iterations=5, n_threads=1)
    assert spread(x, own) < 1e-10


def test_kmeans__of_equal_rows_finds_the_others(rng: np.random.Generator) -> None:
    """Half of the centres begin in one place; those that get no row begin again elsewhere."""
    x = clouds(rng, 600)
    x[:300] = x[0]
    centres = kmeans(x, 40, seed=5, iterations=8, n_threads=2)
    nearest = ((x[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert len(np.unique(nearest)) > 35
    same = kmeans(np.ones((50, 3), np.float32), 7, seed=0, iterations=4, n_threads=1)
    assert (same == 1.0).all()


@pytest.mark.parametrize("d", [6, 150])
def test_build_index__is_the_same_on_any_number_of_threads(
    d: int, rng: np.random.Generator, tmp_path: Path
) -> None:
    """With and without a sketch of the rows."""
    x = clouds(rng, 2_300, d) * (1.0 + np.arange(d)) ** -1.5
    found = [
        cd.build_index(x, "ivf", path=tmp_path / f"{k}.zarr", cluster_rows=40, threads=k).partition
        for k in (1, 2, 4)
    ]
    assert bool(found[0].basis.shape[1]) == (d > 100)
    for other in found[1:]:
        for name in ("order", "cluster_edges", "centres", "mean", "basis"):
            np.testing.assert_array_equal(getattr(other, name), getattr(found[0], name))
