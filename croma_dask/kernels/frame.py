"""Which distance a search is of, and where its screening has its origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from croma_dask.kernels import screen, screen_euclidean
from croma_dask.kernels.constants import U32
from croma_dask.kernels.typing import F32, F64, Floats

__all__ = ["Distance", "Frame"]

Distance: TypeAlias = Literal["cosine", "euclidean"]


@dataclass(frozen=True)
class Frame:
    """How rows are screened. Results depend on `distance` alone.

    Attributes
    ----------
    mean
        (D,) origin: the mean of the unit vectors (cosine) or of the rows (Euclidean).
    distance
        ``cosine`` or ``euclidean``.
    scale
        Power of two by which Euclidean rows become at most 1 long.
    """

    mean: F64
    distance: Distance = "cosine"
    scale: float = 1.0

    @classmethod
    def euclidean(cls, mean: F64, largest: float) -> Frame:
        """Frame of Euclidean distances of rows that are at most `largest` long."""
        return cls(mean, "euclidean", screen_euclidean.unit_scale(mean, largest))

    @property
    def is_euclidean(self) -> bool:
        """Whether distances are Euclidean."""
        return self.distance == "euclidean"

    def native(self, block: np.ndarray) -> Floats:
        """Rows as exact distances are computed from: float32 or float64, C order."""
        return screen_euclidean.native(block) if self.is_euclidean else screen.native(block)

    def centre(self, x: Floats, norm: F64, out: F32 | F64) -> tuple[F64, F64]:
        """Write the screening rows into `out`; return half-norm terms and lengths."""
        if self.is_euclidean:
            return screen_euclidean.centre(x, self.mean, self.scale, out)
        return screen.centre(x, norm, self.mean, out)

    def screened(self, distance: F64) -> F64:
        """Return distances in the units of the screening."""
        if self.is_euclidean:
            return screen_euclidean.screened(distance, self.scale)
        return distance

    def error_bound(
        self, n_features: int, length: F64, half: F64, longest: float, largest_half: float, *,
        unit: float = U32, last: F64,
    ) -> F64:  # fmt: skip
        """How far screening can err; `last` is the last distance of a list, in its units."""
        if self.is_euclidean:
            return screen_euclidean.error_bound(
                n_features, length, half, longest, largest_half, unit, last, self.scale
            )
        return screen.error_bound(n_features, length, half, longest, largest_half, unit, last=last)
