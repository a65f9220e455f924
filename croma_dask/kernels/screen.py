"""What the screening needs of a row: its centred unit vector in float32 and how far it may err."""

from __future__ import annotations

from typing import Any

import numpy as np

from croma_dask.kernels.constants import U32, U64, ZERO_BELOW
from croma_dask.kernels.products import product_terms
from croma_dask.kernels.typing import F32, F64, Floats

_BLOCK = 256
"""Rows converted at once, so that the float64 copies stay in the cache."""


def native_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which rows are held: float32 for what fits it exactly, else float64."""
    small = dtype.newbyteorder("=") in (np.dtype(np.float16), np.dtype(np.float32))
    return np.dtype(np.float32 if small else np.float64)


def native(block: np.ndarray) -> Floats:
    """Rows as float32 or float64, native byte order, C order; anything else is upcast.

    float64 rows are scaled by a power of two, which changes no digit, so that squares of rows as
    large as 1e200 or as small as 1e-200 stay finite. Floats of 32 bits and less need no scaling:
    their products are summed in float64, where none of them can overflow.
    """
    if native_dtype(block.dtype) == np.float32:
        return np.ascontiguousarray(block, dtype=np.float32)
    x = np.array(block, dtype=np.float64, order="C", copy=True)
    largest = np.maximum(x.max(axis=1, initial=0.0), -x.min(axis=1, initial=0.0))
    _, exponent = np.frexp(largest)
    np.ldexp(x, -exponent[:, None], out=x)
    return x


def unit_sum(x: Floats, norm: F64) -> F64:
    """Sum of the unit vectors of `x`; `norm` holds `<x, x>`."""
    inverse = inverse_length(norm)
    total = np.zeros(x.shape[1])
    for lo in range(0, x.shape[0], _BLOCK):
        total += inverse[lo : lo + _BLOCK] @ x[lo : lo + _BLOCK].astype(np.float64, copy=False)
    return total


def inverse_length(norm: F64) -> F64:
    """`1 / ||x||`, 0 for zero rows."""
    length = np.sqrt(norm)
    with np.errstate(divide="ignore"):
        return np.where(norm > 0.0, 1.0 / length, 0.0)


def centre(x: Floats, norm: F64, mean: F64, out: F32 | F64) -> tuple[F64, F64]:
    """Write `x / ||x|| - mean` into `out`; return the half-norm terms and the lengths.

    With a the centred rows and h the half-norm terms, `1 - <u, v> = h_u + h_v - <a_u, a_v>`: of a
    tight embedding the digits that tell rows apart are then not lost in the product. A zero row
    comes out at 1 from everything.

    Returns
    -------
    half, length
        (n,) float64: h, and `||a||`.
    """
    inverse = inverse_length(norm)
    half = np.empty(x.shape[0])
    length = np.empty(x.shape[0])
    for lo in range(0, x.shape[0], _BLOCK):
        hi = min(x.shape[0], lo + _BLOCK)
        u = x[lo:hi].astype(np.float64)
        u *= inverse[lo:hi, None]
        u -= mean
        out[lo:hi] = u
        square = np.einsum("ij,ij->i", u, u)
        half[lo:hi] = 0.5 * square + np.where(norm[lo:hi] > 0.0, 0.0, 0.5)
        length[lo:hi] = np.sqrt(square)
    return half, length


def error_bound(
    n_features: int,
    length: F64,
    half: F64,
    longest: float,
    largest_half: float,
    unit: float = U32,
    *,
    last: F64 | None = None,
) -> F64:
    """How far the screened distance of a candidate that belongs to a list can lie from the exact.

    `gamma |a| |b|` for what `products` makes whatever the order in which it adds, the rounding of
    a, b and h to the screening precision, and what the exact distance itself may be off: its
    float64 error, and that it becomes 0 below `ZERO_BELOW`.

    Parameters
    ----------
    length, half
        ||a|| and h of the rows.
    longest, largest_half
        The largest ||a|| and h among all candidates.
    unit
        Unit roundoff of the screening precision.
    last
        (n,) largest distance that belongs to each row's list. A candidate b that belongs has
        |a - b|^2 <= 2 last, so |b| <= |a| + sqrt(2 last), and it is a zero row only where last
        reaches 1: so one outlier, or one zero row, does not loosen the bound of everybody else.
    """
    farthest: F64 | float = longest
    other_half: F64 | float = largest_half
    if last is not None:
        reach = np.where(np.isnan(last), np.inf, last * (1.0 + 1e-9) + 1e-12)
        farthest = np.minimum(longest, length + np.sqrt(2.0 * reach))
        other_half = np.minimum(
            largest_half,
            0.5 * farthest * farthest * (1.0 + 1e-6) + np.where(reach >= 1.0, 0.5, 0.0),
        )
    terms_added = product_terms(n_features)
    gamma = terms_added * unit / (1.0 - terms_added * unit)
    product = (gamma + 4.0 * unit) * length * farthest
    terms = (6.0 * unit + n_features * U64) * (half + other_half)
    exact = (2.0 * n_features + 32.0) * U64 + ZERO_BELOW
    return np.asarray(1.01 * (product + terms) + exact)
