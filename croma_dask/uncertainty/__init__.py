"""How sure a result is: groups of rows are drawn again, and everything is taken of the draws."""

from __future__ import annotations

from croma_dask.uncertainty.halves import half_samples
from croma_dask.uncertainty.run import bootstrap

__all__ = ["bootstrap", "half_samples"]
