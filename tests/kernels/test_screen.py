"""Screening: rows as they are converted, and a bound that float32 really keeps."""

from __future__ import annotations

import numpy as np
import pytest

from croma_dask.kernels import dots_numpy, screen
from croma_dask.kernels.constants import U32, U64
from tests.helpers.marks import first

UNITS = {np.float32: U32, np.float64: U64}


def worst_excess(x: np.ndarray, precision: type) -> float:
    """Largest error of a screened distance over what the bound allows, in units of the bound."""
    x = screen.native(x)
    n = x.shape[0]
    norm = dots_numpy.squared_norms(x)
    mean = screen.unit_sum(x, norm) / n
    centred = np.empty(x.shape, precision)
    half, length = screen.centre(x, norm, mean, centred)
    pairs = np.array([(i, j) for i in range(n) for j in range(n)], np.int32)
    exact = np.empty(n * n)
    dots_numpy.pair_distances(x, norm, x, norm, pairs[:, 0], pairs[:, 1], exact)
    exact = exact.reshape(n, n)
    bound = screen.error_bound(
        x.shape[1], length, half, float(length.max()), float(half.max()), UNITS[precision]
    )
    narrow = half.astype(precision)
    worst = 0.0
    # Two ways to make the tile: BLAS may sum a sub-matrix in another order.
    for rows in (slice(None), slice(1, 2)):
        tile = np.matmul(centred[rows], centred.T)
        screened = (narrow[rows, None] + narrow[None, :] - tile).astype(np.float64)
        excess = np.abs(screened - exact[rows]) / bound[rows, None]
        worst = max(worst, float(excess.max()))
    return worst


def embeddings(d: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(d)
    n = 60
    isotropic = rng.normal(size=(n, d))
    one_sign = np.abs(rng.normal(size=(n, d)))  # sums without cancellation: the largest error
    found = {
        "isotropic": isotropic,
        "one sign": one_sign,
        "signs": rng.choice([-1.0, 1.0], (n, d)),
        "two poles": np.where(rng.random((n, 1)) < 0.5, 1.0, -1.0) * (5.0 + isotropic),
        "zero rows": np.where(rng.random((n, 1)) < 0.3, 0.0, isotropic),
        "duplicates": np.repeat(isotropic[: n // 3], 3, axis=0),
        "huge and tiny": isotropic * 10.0 ** rng.uniform(-30, 30, (n, 1)),
    }
    centre = rng.normal(size=d)
    # down to where distances are below 1e-14 and count as 0
    for spread in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        found[f"tight {spread:g}"] = centre + spread * isotropic
        apart = centre + spread * isotropic
        apart[0] = -centre  # one far row makes the mean useless for the others
        found[f"tight {spread:g} with an outlier"] = apart
    return found


@pytest.mark.parametrize("d", first(4, [2, 31, 257, 1024, 3, 8, 64]))
@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.float32, np.float64])
def test_error_bound__bounds_the_error(d: int, precision: type, stored: type) -> None:
    for name, x in embeddings(d).items():
        assert worst_excess(x.astype(stored), precision) <= 1.0, name


def test_error_bound__is_not_absurdly_wide() -> None:
    """A bound thousands of times the error would send every row to the second look."""
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(size=(60, 64)))
    assert worst_excess(x, np.float32) > 1e-3


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", "f8", ">f8", "i1", "u2", "i8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_native__is_c_ordered_and_of_the_right_width(
    dtype: str, order: str, rng: np.random.Generator
) -> None:
    raw = np.asarray(np.abs(rng.normal(size=(9, 5))) * 3, dtype=dtype, order=order)
    found = screen.native(raw)
    assert found.flags.c_contiguous
    assert found.dtype.isnative
    assert found.dtype == (np.float32 if dtype[-2:] in ("f2", "f4") else np.float64)
    scale = found.astype(float) / np.where(raw == 0, 1, raw.astype(float))
    for row, kept in zip(scale, raw != 0, strict=True):
        factor = np.unique(row[kept])
        assert factor.size <= 1
        assert (np.frexp(factor)[0] == 0.5).all(), "rows are only scaled by powers of two"


@pytest.mark.parametrize("exponent", [-300, -160, 0, 160, 300])
def test_native__keeps_squares_finite(exponent: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 6)) * 10.0**exponent
    norm = dots_numpy.squared_norms(screen.native(x))
    assert np.isfinite(norm).all()
    assert (norm > 0.1).all()


def test_native__leaves_the_caller_s_array_alone(rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 6))
    before = x.copy()
    screen.native(x)[:] = 0.0
    np.testing.assert_array_equal(x, before)


def test_centre__zero_rows_come_out_at_one(rng: np.random.Generator) -> None:
    x = rng.normal(size=(6, 5))
    x[[1, 4]] = 0.0
    norm = dots_numpy.squared_norms(x)
    centred = np.empty(x.shape)
    half, _ = screen.centre(x, norm, screen.unit_sum(x, norm) / 6, centred)
    d = half[:, None] + half[None, :] - centred @ centred.T
    np.testing.assert_allclose(np.delete(d[1], 1), 1.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(d[1, 4], 1.0, rtol=0, atol=1e-15)
