"""exp in additions and multiplications only: the same bits on every machine.

That of numpy has other last bits where the processor has AVX-512 than where it has not, that of the
C library others from release to release. A weight that is summed, compared and published has one
value instead.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["exp"]

F64 = NDArray[np.float64]

# Written out: the logarithm of a C library is no constant either.
_TO_BINARY = float.fromhex("0x1.71547652b82fep+0")  # 1 / ln 2
# ln 2 in two parts. The first has 32 bits, so that its product with any exponent is exact.
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_LOWEST, _HIGHEST = -746.0, 710.0
"""Below and above these exp is 0 and infinite."""

# 1/2!, 1/3!, ..., 1/14!: the rest is below 2^-58 of the sum where |x| <= ln(2) / 2.
_TERMS = tuple(1.0 / math.factorial(k) for k in range(2, 15))


def exp(x: F64) -> F64:
    """Exponential of every entry, within one unit in the last place.

    Parameters
    ----------
    x
        Any shape, float64. Infinities give 0 and infinity, NaN gives NaN.

    Returns
    -------
    numpy.ndarray
        The same shape. Memory: five arrays like it, for as long as it takes.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        # Comparisons with NaN are false: it goes through as it is.
        bounded = np.minimum(np.maximum(x, _LOWEST), _HIGHEST)
        exponent = np.rint(bounded * _TO_BINARY)
        high = bounded - exponent * _LN2_HIGH
        low = exponent * _LN2_LOW
        rest = high - low
        total = np.full_like(rest, _TERMS[-1])
        for term in reversed(_TERMS[:-1]):
            total *= rest
            total += term
        total *= rest
        total *= rest
        total -= low
        total += high
        total += 1.0
        # A power of two: exact, but where the result has fewer bits, and then rounded once.
        return np.ldexp(total, np.nan_to_num(exponent).astype(np.int32))
