"""What is told of a vector of sample values: median, tail, spread over subsets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["GridSum", "Tail", "population_std", "tail_of"]

F64 = NDArray[np.float64]


class Tail:
    """Median, alpha-quantile and lower-tail mean of the defined values; NaN without any."""

    def __init__(self, values: F64, alpha: float) -> None:
        self.median = self.q_alpha = self.ltm_alpha = float("nan")
        if values.size:
            self.median = float(np.median(values))
            self.q_alpha = float(np.quantile(values, alpha))
            self.ltm_alpha = float(values[values <= self.q_alpha].mean())


def tail_of(values: F64, alpha: float) -> Tail:
    """Tail statistics of the values that are not NaN."""
    return Tail(values[~np.isnan(values)], alpha)


def population_std(values: F64) -> float:
    """Compute the population standard deviation of the values that are not NaN; NaN for none."""
    defined = values[~np.isnan(values)]
    return float(np.std(defined)) if defined.size else float("nan")


class GridSum:
    """Sum of a vector that arrives in pieces, the same bits however it was cut.

    Values are added up in blocks of a fixed grid of 4,096, and the blocks in their order.
    """

    GRID = 4096

    def __init__(self) -> None:
        self._total = 0.0
        self._open = np.empty(self.GRID)
        self._filled = 0

    def add(self, values: F64) -> None:
        """Append values to the vector."""
        done = 0
        while done < values.shape[0]:
            part = values[done : done + self.GRID - self._filled]
            self._open[self._filled : self._filled + part.shape[0]] = part
            self._filled += part.shape[0]
            done += part.shape[0]
            if self._filled == self.GRID:
                self._total += float(self._open.sum())
                self._filled = 0

    def value(self) -> float:
        """Return the sum of all values so far."""
        return self._total + float(self._open[: self._filled].sum())
