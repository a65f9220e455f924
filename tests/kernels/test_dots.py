"""Distances: one fixed order of summation, the same bits compiled and in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from croma_dask.kernels import dots, dots_numpy
from croma_dask.kernels.constants import LANES, ZERO_BELOW


def rows(rng: np.random.Generator, n: int, d: int, dtype: type) -> np.ndarray:
    return (rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-8, 8, (n, 1))).astype(dtype)


def both(x: np.ndarray, query: np.ndarray, candidate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    norm = dots_numpy.squared_norms(x)
    compiled, plain = np.empty(query.size), np.empty(query.size)
    dots.pair_distances(x, norm, x, norm, query, candidate, compiled)
    dots_numpy.pair_distances(x, norm, x, norm, query, candidate, plain)
    return compiled, plain


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 3, 63, 64, 65, 128, 200, 1024])
def test_compiled_and_plain__have_the_same_bits(
    d: int, dtype: type, rng: np.random.Generator
) -> None:
    x = rows(rng, 30, d, dtype)
    x[3] = 0.0
    norm = np.empty(30)
    dots.squared_norms(x, norm)
    assert norm.tobytes() == dots_numpy.squared_norms(x).tobytes()
    # 4 pairs go side by side, so try remainders of 0 to 3
    for n_pairs in (1, 2, 3, 4, 5, 251):
        query, candidate = rng.integers(0, 30, (2, n_pairs)).astype(np.int32)
        compiled, plain = both(x, query, candidate)
        assert compiled.tobytes() == plain.tobytes()


@pytest.mark.parametrize("d", [3, 64, 100])
def test_distance__does_not_depend_on_the_side(d: int, rng: np.random.Generator) -> None:
    x = rows(rng, 40, d, np.float32)
    query, candidate = rng.integers(0, 40, (2, 300)).astype(np.int32)
    there, _ = both(x, query, candidate)
    back, _ = both(x, candidate, query)
    assert there.tobytes() == back.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [2, 17, 512])
def test_distance__is_the_cosine_distance(d: int, dtype: type, rng: np.random.Generator) -> None:
    x = rows(rng, 20, d, dtype)
    pairs = np.array([(i, j) for i in range(20) for j in range(20)], np.int32)
    found, _ = both(x, pairs[:, 0].copy(), pairs[:, 1].copy())
    for (i, j), value in zip(pairs, found, strict=True):
        a, b = x[i].astype(float), x[j].astype(float)
        exact = 1.0 - math.fsum(a * b) / math.sqrt(math.fsum(a * a) * math.fsum(b * b))
        assert value == pytest.approx(min(max(exact, 0.0), 2.0), abs=d * 2.0**-52 + ZERO_BELOW)


def test_distance__of_equal_and_opposite_and_zero_rows(rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 37))
    x[1] = 3.0 * x[0]
    x[2] = -x[0]
    x[3] = 0.0
    query = np.array([0, 0, 0, 3, 3], np.int32)
    found, _ = both(x, query, np.array([1, 2, 3, 3, 1], np.int32))
    assert found[0] == 0.0
    assert found[1] == pytest.approx(2.0, abs=1e-15)
    assert found[1] <= 2.0
    assert found[2:].tolist() == [1.0, 1.0, 1.0]


def test_lanes__are_a_power_of_two() -> None:
    assert LANES & (LANES - 1) == 0
