"""The confounder-biased probe sweep: what a confounder costs a downstream probe.

The names of `croma.downstream`, with its arguments, and what goes with them.
"""

from __future__ import annotations

from croma_dask.probe.arrays import probe_sweep, probe_sweep_over_test_sets
from croma_dask.probe.linear import linear_schedule
from croma_dask.probe.names import PATHOROB_ORDER, names_to_indices
from croma_dask.probe.reduce import Aggregate, aggregate_drops, apd, nipd
from croma_dask.probe.schedule import (
    PATHOROB_SPLITS,
    SplitPlan,
    pathorob_schedule,
    schedule_cramers_v,
)
from croma_dask.probe.slides import IN_DOMAIN, SlideArrangement
from croma_dask.probe.tolkach import tolkach_arrangement

__all__ = [
    "IN_DOMAIN",
    "PATHOROB_ORDER",
    "PATHOROB_SPLITS",
    "Aggregate",
    "SlideArrangement",
    "SplitPlan",
    "aggregate_drops",
    "apd",
    "linear_schedule",
    "names_to_indices",
    "nipd",
    "pathorob_schedule",
    "probe_sweep",
    "probe_sweep_over_test_sets",
    "schedule_cramers_v",
    "tolkach_arrangement",
]
