"""The robustness metrics: whether an embedding follows biology or the confounder."""

from __future__ import annotations

from croma_dask.robustness.api import RI, CRoMa, MaRI

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
