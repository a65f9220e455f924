"""What a random sample of rows tells of a mean over all rows, when most of its values are zero."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimate", "mean_of", "t_quantile"]

F64 = NDArray[np.float64]

NORMAL = 1.959964
"""97.5 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Estimate:
    """An estimated error: approximate value minus exact value.

    Attributes
    ----------
    error
        The estimate; NaN where the sample cannot tell.
    low, high
        95 % interval of the error; the exact value is between value - high and value - low.
    """

    error: float
    low: float
    high: float

    @classmethod
    def around(cls, error: float, half: float) -> Estimate:
        """Estimate with an interval of a half-width."""
        return cls(error, error - half, error + half)

    @classmethod
    def unknown(cls) -> Estimate:
        """Return NaN for all three."""
        return cls(math.nan, math.nan, math.nan)

    def within(self, value: float, least: float, most: float) -> Estimate:
        """Leave out errors that would put the exact value outside its range."""
        ends = [
            float(np.clip(e, value - most, value - least))
            for e in (self.error, self.low, self.high)
        ]
        return Estimate(*ends)


def t_quantile(df: float) -> float:
    """97.5 % quantile of Student's t, by Wallace's approximation turned round.

    Within 0.5 % from 4 degrees of freedom on, 4 % too large at 2.
    """
    z = NORMAL * (8.0 * df + 3.0) / (8.0 * df + 1.0)
    return math.sqrt(df * math.expm1(z * z / df))


def mean_of(values: F64, fraction: float, rare: F64) -> tuple[float, float]:
    """Mean over all rows and the half-width of its 95 % interval, from a sample of them.

    Parameters
    ----------
    values
        (s,) what is averaged, of rows drawn without replacement; may be zero for nearly all rows.
    fraction
        Share of all rows that was drawn.
    rare
        Sizes of differences that the sample could have missed by chance. They count like observed
        ones for the width, not for the mean.

    Notes
    -----
    Where few values differ from zero, the standard error rests on these few: its own uncertainty
    is that of a chi-square with 2 s / (kurtosis - 1) degrees of freedom, about two for each of
    them, and t has as many. Without any the rare ones alone make the interval, a little wider
    than by the rule of three.
    """
    n = values.shape[0]
    mean = float(values.mean())
    squares = np.concatenate([values - mean, rare]) ** 2
    total = float(squares.sum())
    if total == 0.0:
        return mean, 0.0
    count = squares.shape[0]
    kurtosis = count * float((squares**2).sum()) / total**2
    df = 2.0 * count / max(kurtosis - 1.0, 1e-9)
    return mean, t_quantile(df) * math.sqrt((1.0 - fraction) * total) / n
