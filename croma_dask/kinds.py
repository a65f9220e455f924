"""What an xarray object of this library is, told from its names and attributes alone."""

from __future__ import annotations

from typing import Any, Literal

from croma_dask.schema import METRICS

__all__ = ["KINDS", "Kind", "kind_of"]

Kind = Literal[
    "cohort", "result", "bootstrap", "breakdown", "explanation", "sweep", "benchmark", "ranks",
    "unknown",
]  # fmt: skip

KINDS: dict[Kind, str] = {
    "cohort": "a cohort",
    "result": "a result of score()",
    "bootstrap": "a resampling of a result (bootstrap or half samples)",
    "breakdown": "a breakdown of a result",
    "explanation": "an explanation of one sample",
    "sweep": "a probe sweep",
    "benchmark": "an embedding benchmark",
    "ranks": "a ranking of embeddings",
    "unknown": "no object of croma-dask",
}
"""What each kind is called in a sentence."""


def kind_of(data: Any) -> Kind:
    """Tell what an object is; reads no values.

    Parameters
    ----------
    data
        Anything; a DataTree is of the kind of its first node, and what is not of xarray is unknown.

    Returns
    -------
    str
        A key of :data:`KINDS`.
    """
    import xarray as xr

    if not isinstance(data, xr.Dataset | xr.DataTree):
        return "unknown"
    metric = str(data.attrs.get("metric", ""))
    if metric.startswith("embedding_rank") or "metric_rank" in data.variables:
        return "ranks"
    children = getattr(data, "children", None)
    if children:
        first = next(iter(children.values()))
        return kind_of(first.to_dataset()) if set(children) <= set(METRICS) else "unknown"
    if metric == "probe_sweep":
        return "sweep"
    if metric == "embedding_benchmark":
        return "benchmark"
    if metric == "bootstrap":
        return "bootstrap"
    if metric not in METRICS:
        if "embedding" in data.variables:
            return "cohort"
        return "explanation" if "neighbor_id" in data.variables else "unknown"
    if "n_samples" in data.variables:
        return "breakdown"
    return "result" if {"value", "sample_values"} & set(data.variables) else "unknown"
