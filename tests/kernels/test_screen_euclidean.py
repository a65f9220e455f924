"""Screening of Euclidean distances: rows about their mean, a bound that float32 really keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from croma_dask.kernels import dots_numpy, screen_euclidean
from croma_dask.kernels.constants import U32, U64
from croma_dask.kernels.frame import Frame
from tests.helpers.marks import first

UNITS = {np.float32: U32, np.float64: U64}
N = 40


def all_distances(x: Any) -> Any:
    n = x.shape[0]
    query, other = (a.ravel().astype(np.int32) for a in np.indices((n, n)))
    d = np.empty(n * n)
    dots_numpy.pair_euclidean(x, x, query, other, d)
    return d.reshape(n, n)


def frame_of(x: Any) -> Frame:
    wide = x.astype(np.float64)
    return Frame.euclidean(wide.mean(axis=0), float(np.sqrt((wide * wide).sum(axis=1).max())))


def worst_excess(x: Any, precision: type) -> float:
    """Largest error of a screened distance over what the bound allows, in units of the bound.

    Each candidate is taken for the last one that belongs to the list: where the bound is tightest.
    """
    x = screen_euclidean.native(x)
    frame = frame_of(x)
    centred = np.empty(x.shape, precision)
    half, length = frame.centre(x, np.zeros(x.shape[0]), centred)
    exact = frame.screened(all_distances(x))
    narrow = half.astype(precision)
    bound = frame.error_bound(
        x.shape[1], length[:, None], narrow.astype(np.float64)[:, None], float(length.max()),
        float(narrow.max()), unit=UNITS[precision], last=exact,
    )  # fmt: skip
    worst = 0.0
    # Two ways to make the tile: BLAS may sum a sub-matrix in another order.
    for rows in (slice(None), slice(1, 2)):
        tile = np.matmul(centred[rows], centred.T)
        screened = (narrow[rows, None] + narrow[None, :] - tile).astype(np.float64)
        worst = max(worst, float((np.abs(screened - exact[rows]) / bound[rows]).max()))
    return worst


def embeddings(d: int) -> dict[str, Any]:
    rng = np.random.default_rng(d)
    isotropic = rng.normal(size=(N, d))
    unit = isotropic / np.linalg.norm(isotropic, axis=1, keepdims=True)
    found = {
        "isotropic": isotropic,
        "one sign": np.abs(isotropic),  # sums without cancellation: the largest error
        "signs": rng.choice([-1.0, 1.0], (N, d)),
        "two poles": np.where(rng.random((N, 1)) < 0.5, 1.0, -1.0) * (5.0 + isotropic),
        "zero rows": np.where(rng.random((N, 1)) < 0.3, 0.0, isotropic),
        "identical": np.repeat(isotropic[:1], N, axis=0),
        "lengths of all sizes": isotropic * 10.0 ** rng.uniform(-25, 12, (N, 1)),
        "features of all sizes": np.ldexp(isotropic, rng.integers(-40, 20, d)),
        "shell": unit * (1.0 + 1e-7 * rng.normal(size=(N, 1))),
        "line": np.arange(N)[:, None] * isotropic[:1],
    }
    for offset in (1e3, 1e8):
        found[f"about {offset:g}"] = offset + isotropic
    for far in (1e2, 1e6, 1e12):
        apart = isotropic.copy()
        apart[3] = far
        found[f"a row at {far:g}"] = apart
    for spread in (1e-3, 1e-7, 1e-12):
        found[f"tight {spread:g}"] = isotropic[0] + spread * isotropic
    return found


@pytest.mark.parametrize("d", first(4, [1, 31, 257, 2048, 2, 3, 64]))
@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.float32, np.float64])
def test_error_bound__bounds_the_error(d: int, precision: type, stored: type) -> None:
    for name, x in embeddings(d).items():
        assert worst_excess(x.astype(stored), precision) <= 1.0, name


@pytest.mark.parametrize("exponent", [-170, -163, -161, -158, -150, -40, 60, 140])
@pytest.mark.parametrize("d", [1, 3, 65])
def test_error_bound__holds_where_squares_are_hardly_numbers(exponent: int, d: int) -> None:
    """Below 1e-154 the squares of differences lose digits, and then vanish."""
    rng = np.random.default_rng(d)
    for x in (rng.normal(size=(N, d)), rng.integers(0, 9, (N, d)).astype(float)):
        for precision in UNITS:
            assert worst_excess(x * 10.0**exponent, precision) <= 1.0


def test_error_bound__holds_for_very_many_features() -> None:
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(size=(8, 16_384))).astype(np.float32)
    for rows in (x, x + np.float32(1e4), x * np.float32(1e-20)):
        assert worst_excess(rows, np.float32) <= 1.0


@given(st.integers(0, 1 << 32), st.sampled_from([1, 2, 5, 70]), st.floats(-18, 0))
def test_error_bound__of_near_ties(seed: int, d: int, spread: float) -> None:
    """A few points, each many times over but for the last digits, some of them far away."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(3, d)) * 10.0 ** rng.uniform(-3, 3, (3, 1)) + rng.normal() * 10
    x = points[rng.integers(0, 3, 24)] + 10.0**spread * rng.normal(size=(24, d))
    for precision in UNITS:
        assert worst_excess(x, precision) <= 1.0


def test_error_bound__is_not_absurdly_wide() -> None:
    """A bound thousands of times the error would send every row to the second look."""
    rng = np.random.default_rng(0)
    assert worst_excess(np.abs(rng.normal(size=(N, 64))), np.float32) > 1e-3
    assert worst_excess(1e6 + rng.normal(size=(N, 64)), np.float32) > 1e-3


def test_error_bound__far_rows_do_not_widen_that_of_near_ones() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 20))
    x -= x.mean(axis=0)
    frame = Frame(np.zeros(20), "euclidean", 2.0**-20)
    out = np.empty(x.shape, np.float32)
    half, length = frame.centre(x, np.zeros(N), out)
    last = frame.screened(np.full(N, 3.0))
    near = frame.error_bound(20, length, half, float(length.max()), float(half.max()), last=last)
    far = frame.error_bound(20, length, half, 1.0, 0.5, last=last)
    unknown = frame.error_bound(20, length, half, 1.0, 0.5, last=np.full(N, np.nan))
    assert (far < 10 * near).all()
    assert (unknown > 1e4 * near).all()


@pytest.mark.parametrize("largest", [2.0**k for k in (-500, -3, 0, 1, 40, 498)] + [3.0, 1e-30])
def test_unit_scale__is_a_power_of_two_that_makes_rows_at_most_one_long(largest: float) -> None:
    for mean in (np.zeros(3), np.array([0.0, largest, 0.0])):
        scale = screen_euclidean.unit_scale(mean, largest)
        assert np.frexp(scale)[0] == 0.5
        longest = (largest + np.linalg.norm(mean)) * scale
        assert 0.2 < longest <= 1.0


def test_unit_scale__of_nothing_is_one() -> None:
    assert screen_euclidean.unit_scale(np.zeros(4), 0.0) == 1.0


def test_centre__screening_distances_are_half_the_squared_ones() -> None:
    x = 1e5 + np.random.default_rng(0).normal(size=(30, 7))
    frame = frame_of(x)
    out = np.empty(x.shape)
    half, length = frame.centre(x, np.zeros(30), out)
    d = half[:, None] + half[None, :] - out @ out.T
    np.testing.assert_allclose(d, frame.screened(cdist(x, x)), rtol=0, atol=1e-10 * d.max())
    np.testing.assert_allclose(half, 0.5 * length**2, rtol=1e-14)
    assert length.max() <= 1.0


def test_screened__keeps_the_order_of_distances() -> None:
    frame = Frame(np.zeros(2), "euclidean", 2.0**-7)
    distance = np.nextafter(3.0, 9.0) + np.spacing(3.0) * np.arange(200)
    assert (np.diff(frame.screened(distance)) >= 0).all()
    assert Frame(np.zeros(2)).screened(distance) is distance, "cosine distances are what they are"


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", "f8", ">f8", "i1", "u2", "i8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_native__changes_no_value(dtype: str, order: Any) -> None:
    raw = np.asarray(np.random.default_rng(0).normal(size=(9, 5)) * 1e3 % 120, dtype, order=order)
    before = raw.copy()
    found = screen_euclidean.native(raw)
    assert found.flags.c_contiguous
    assert found.dtype == (np.float32 if dtype[-2:] in ("f2", "f4") else np.float64)
    np.testing.assert_array_equal(found, raw.astype(np.float64))
    np.testing.assert_array_equal(raw, before)


ROWS: dict[str, Callable[[np.random.Generator], Any]] = {
    "float64": lambda rng: rng.normal(size=(60, 20)),
    "float32": lambda rng: rng.normal(size=(60, 20)).astype(np.float32).astype(np.float64),
    "about 1e6": lambda rng: 1e6 + rng.normal(size=(60, 20)),
    "wide": lambda rng: rng.normal(size=(60, 200)),
}


@pytest.mark.parametrize("kind", ROWS)
def test_pair_euclidean__is_the_distance(kind: str) -> None:
    x = ROWS[kind](np.random.default_rng(5))
    np.testing.assert_allclose(all_distances(x), cdist(x, x), rtol=1e-13, atol=0)


def test_pair_euclidean__is_the_same_both_ways() -> None:
    d = all_distances(np.random.default_rng(0).normal(size=(50, 130)))
    np.testing.assert_array_equal(d, d.T)
    assert (np.diag(d) == 0).all()


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
