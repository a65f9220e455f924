"""What is told of a vector of sample values: median, tail, spread over subsets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tail", "population_std", "tail_of"]

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
