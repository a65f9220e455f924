"""The robustness metrics: whether an embedding follows biology or the confounder."""

from __future__ import annotations

from croma_dask.robustness.croma import CRoMa
from croma_dask.robustness.mari import MaRI
from croma_dask.robustness.ri import RI

RobustnessIndex = RI
MarginAwareRobustnessIndex = MaRI
CrossConfounderRobustnessMargin = CRoMa

__all__ = [
    "RI",
    "CRoMa",
    "CrossConfounderRobustnessMargin",
    "MaRI",
    "MarginAwareRobustnessIndex",
    "RobustnessIndex",
]
