"""Robustness metrics of embeddings, on cohorts larger than memory.

The names below are the whole public interface. They are looked up when first used, so that
``import croma_dask`` stays fast; at once it only registers the xarray accessor ``.croma``.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from croma_dask.breakdown import breakdown, explain, worst_groups
    from croma_dask.build import build_index, open_index
    from croma_dask.cohort import ingest, open_cohort, write_cohort
    from croma_dask.cohort.align import expand_features_to_manifest
    from croma_dask.embedding.benchmark import embedding_benchmark
    from croma_dask.embedding.plan import BenchmarkPlan, plan_embedding_benchmark
    from croma_dask.embedding.rank_statistics import rank_statistics
    from croma_dask.embedding.ranks import rank_embeddings
    from croma_dask.errors import (
        ChunkError,
        CromaDaskError,
        InputWarning,
        MemoryLimitError,
        RecallWarning,
        SchemaError,
        StoreError,
        SupportError,
        SupportWarning,
    )
    from croma_dask.index.kept import open_neighbors
    from croma_dask.options import set_options
    from croma_dask.panel.combine import combine_results
    from croma_dask.plan import PanelPlan, Plan, plan
    from croma_dask.probe.arrays import probe_sweep
    from croma_dask.probe.reduce import apd, nipd
    from croma_dask.report import report
    from croma_dask.results import open_result
    from croma_dask.robustness import (
        RI,
        CRoMa,
        CrossConfounderRobustnessMargin,
        MarginAwareRobustnessIndex,
        MaRI,
        RobustnessIndex,
    )
    from croma_dask.score import score
    from croma_dask.uncertainty import bootstrap, half_samples

__version__ = "0.1.0"

# Where each public name lives.
_HOME = {
    "RI": "robustness",
    "MaRI": "robustness",
    "CRoMa": "robustness",
    "RobustnessIndex": "robustness",
    "MarginAwareRobustnessIndex": "robustness",
    "CrossConfounderRobustnessMargin": "robustness",
    "bootstrap": "uncertainty",
    "breakdown": "breakdown",
    "build_index": "build",
    "combine_results": "panel.combine",
    "explain": "breakdown",
    "half_samples": "uncertainty",
    "open_cohort": "cohort",
    "open_index": "build",
    "open_neighbors": "index.kept",
    "open_result": "results",
    "worst_groups": "breakdown",
    "write_cohort": "cohort",
    "ingest": "cohort",
    "expand_features_to_manifest": "cohort.align",
    "score": "score",
    "embedding_benchmark": "embedding.benchmark",
    "BenchmarkPlan": "embedding.plan",
    "plan_embedding_benchmark": "embedding.plan",
    "rank_embeddings": "embedding.ranks",
    "rank_statistics": "embedding.rank_statistics",
    "apd": "probe.reduce",
    "nipd": "probe.reduce",
    "probe_sweep": "probe.arrays",
    "plan": "plan",
    "Plan": "plan",
    "PanelPlan": "plan",
    "report": "report",
    "set_options": "options",
    "CromaDaskError": "errors",
    "SchemaError": "errors",
    "StoreError": "errors",
    "ChunkError": "errors",
    "MemoryLimitError": "errors",
    "SupportError": "errors",
    "InputWarning": "errors",
    "RecallWarning": "errors",
    "SupportWarning": "errors",
}

# Modules that are used by name: ``croma_dask.plotting.margins``.
_MODULES = ("downstream", "plotting", "results")

__all__ = [
    "RI",
    "BenchmarkPlan",
    "CRoMa",
    "ChunkError",
    "CromaDaskError",
    "CrossConfounderRobustnessMargin",
    "InputWarning",
    "MaRI",
    "MarginAwareRobustnessIndex",
    "MemoryLimitError",
    "PanelPlan",
    "Plan",
    "RecallWarning",
    "RobustnessIndex",
    "SchemaError",
    "StoreError",
    "SupportError",
    "SupportWarning",
    "__version__",
    "apd",
    "bootstrap",
    "breakdown",
    "build_index",
    "combine_results",
    "embedding_benchmark",
    "expand_features_to_manifest",
    "explain",
    "half_samples",
    "ingest",
    "nipd",
    "open_cohort",
    "open_index",
    "open_neighbors",
    "open_result",
    "plan",
    "plan_embedding_benchmark",
    "probe_sweep",
    "rank_embeddings",
    "rank_statistics",
    "report",
    "score",
    "set_options",
    "worst_groups",
    "write_cohort",
]


def __getattr__(name: str) -> object:
    """Import the module of a public name when the name is first used."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List public names, imported or not."""
    return sorted({*globals(), *__all__, *_MODULES})


class _Package(ModuleType):
    """The package itself, in which ``score`` and ``plan`` always are the functions.

    Python binds a submodule to its package when it is imported, from wherever that happens. Two
    submodules are named as the function that they hold, and the public name is the function's.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and name in _HOME:
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

# Registers `.croma` on Datasets and DataTrees; it needs xarray and nothing else.
importlib.import_module(f"{__name__}.accessor")
