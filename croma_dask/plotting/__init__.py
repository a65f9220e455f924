"""Plots of results. Every function returns the axes that it has drawn into.

Nothing is shown, no setting of matplotlib is changed, and matplotlib is imported when something is
drawn: ``pip install 'croma-dask[plot]'``.
"""

from croma_dask.plotting.accessor import PlotAccessor
from croma_dask.plotting.cell_map import cells
from croma_dask.plotting.curves import k_curve, m_sweep
from croma_dask.plotting.degradation import degradation_curve
from croma_dask.plotting.distributions import margins
from croma_dask.plotting.forest import intervals
from croma_dask.plotting.front import pareto
from croma_dask.plotting.heat_table import metric_table

__all__ = [
    "PlotAccessor",
    "cells",
    "degradation_curve",
    "intervals",
    "k_curve",
    "m_sweep",
    "margins",
    "metric_table",
    "pareto",
]
