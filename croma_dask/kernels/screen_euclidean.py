"""Screening of Euclidean distances: the same form as of cosine ones, about another origin.

With a = (x - mean) * scale and h = <a, a> / 2, half the squared distance is `h_u + h_v - <a_u,
a_v>`, in units in which no row is longer than 1, so that its float32 can neither overflow nor lose
the near rows to a far one.
"""

from __future__ import annotations

import numpy as np

from croma_dask.kernels.constants import U64
from croma_dask.kernels.products import product_terms
from croma_dask.kernels.typing import F32, F64, Floats

_BLOCK = 256

_TINIEST = 1e-36
"""What float32 may lose to gradual underflow, in screening units."""

_ROOT_OF_LEAST = 2.0**-537
"""Root of the least float64: a square that underflows errs by half the least one."""


def native(block: np.ndarray) -> Floats:
    """Rows as float32 or float64, native byte order, C order; anything else is upcast."""
    small = block.dtype.newbyteorder("=") in (np.dtype(np.float16), np.dtype(np.float32))
    return np.ascontiguousarray(block, dtype=np.float32 if small else np.float64)


def unit_scale(mean: F64, largest: float) -> float:
    """Power of two by which rows become at most 1 long.

    Parameters
    ----------
    mean
        (D,) origin.
    largest
        Length of the longest row.
    """
    bound = largest + float(np.sqrt(np.sum(np.square(mean))))
    if not bound > 0.0:
        return 1.0
    _, exponent = np.frexp(bound * (1.0 + 1e-9))
    return float(np.ldexp(1.0, -int(exponent)))


def centre(x: Floats, mean: F64, scale: float, out: F32 | F64) -> tuple[F64, F64]:
    """Write `(x - mean) * scale` into `out`; return the half-norm terms and the lengths."""
    half = np.empty(x.shape[0])
    length = np.empty(x.shape[0])
    for lo in range(0, x.shape[0], _BLOCK):
        hi = min(x.shape[0], lo + _BLOCK)
        u = x[lo:hi].astype(np.float64)
        u -= mean
        u *= scale
        out[lo:hi] = u
        square = np.einsum("ij,ij->i", u, u)
        half[lo:hi] = 0.5 * square
        length[lo:hi] = np.sqrt(square)
    return half, length


def screened(distance: F64, scale: float) -> F64:
    """Return distances in screening units."""
    moved = np.asarray(distance, np.float64) * scale
    return np.asarray(0.5 * moved * moved)


def error_bound(
    n_features: int, length: F64, half: F64, longest: float, largest_half: float, unit: float,
    last: F64, scale: float,
) -> F64:  # fmt: skip
    """How far the screened distance of a candidate that belongs to a list can lie from the exact.

    Parameters
    ----------
    length, half, longest, largest_half, unit
        As of :func:`croma_dask.kernels.screen.error_bound`.
    last
        (n,) largest distance that belongs to each row's list, in screening units. A candidate b
        that belongs has |a - b|^2 <= 2 last, so |b| <= |a| + sqrt(2 last).
    scale
        Screening units of a unit of the rows.
    """
    # Of rows so short that the squares of their differences underflow, exact distances are 0 or
    # wrong in all digits; they are what counts all the same.
    lost = n_features * (scale * _ROOT_OF_LEAST) ** 2
    reach = np.where(np.isnan(last), np.inf, last * (1.0 + 1e-9) + lost)
    farthest = np.minimum(longest, length + np.sqrt(2.0 * reach) * (1.0 + 1e-9))
    other_half = np.minimum(largest_half, 0.5 * farthest * farthest * (1.0 + 1e-6))
    terms_added = product_terms(n_features)
    gamma = terms_added * unit / (1.0 - terms_added * unit)
    product = (gamma + 4.0 * unit) * length * farthest
    terms = (6.0 * unit + n_features * U64) * (half + other_half)
    # The exact distance errs relative to itself, its differences are exact to a rounding each.
    largest = half + other_half + length * farthest
    exact = (2.0 * n_features + 32.0) * U64 * np.minimum(reach, largest)
    return np.asarray(1.01 * (product + terms + exact + lost) + _TINIEST)
