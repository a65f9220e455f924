"""Scores of embeddings as tables for people, and as a tidy frame."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from croma_dask.embedding.outcome import Scores
from croma_dask.outward import visible

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["benchmark_frame", "benchmark_summary", "result_summary"]


def benchmark_summary(scores: Scores) -> str:
    """Lay out the metrics of one embedding, with the reason where there is no value."""
    counts = scores.bio or scores.batch
    title = f"{scores.dataset} by {scores.method}"
    if counts is not None:
        title += f": {counts.n_cells:,} x {counts.n_dims:,}, {counts.n_labels:,} labels"
    if scores.batch is not None:
        title += f", {scores.batch.n_batches:,} batches"
    lines = [visible(title)]
    for name, outcome in scores.outcomes.items():
        lines.append(_line(name, outcome.value, outcome.status))
    return "\n".join(lines)


def result_summary(result: xr.Dataset) -> str:
    """Lay out the metrics of all embeddings of a benchmark."""
    lines: list[str] = []
    for dataset in result["dataset"].values:
        for method in result["method"].values:
            # As a mapping: method= is an argument of sel itself.
            one = result.sel({"dataset": dataset, "method": method})
            lines.append(visible(f"{dataset} by {method}"))
            for metric in result["metric"].values:
                at = one.sel(metric=metric)
                lines.append(_line(str(metric), float(at["value"]), str(at["status"].item())))
    return "\n".join(lines)


def _line(name: str, value: float, status: str) -> str:
    number = "-" if math.isnan(value) else f"{value:.4f}"
    return visible(f"  {name:<9}{number:>8}" + ("" if status == "ok" else f"   {status}"))


def benchmark_frame(result: xr.Dataset) -> pd.DataFrame:
    """Tidy frame of a benchmark: a row for each dataset, method and metric.

    Returns
    -------
    pandas.DataFrame
        Columns `dataset`, `method`, `metric`, `value`, `status`, `note`, `n_cells`, `n_labels`,
        `n_batches`, `n_dims`. Values of single rows are left out.
    """
    names = ["value", "status", "note", "n_cells", "n_labels", "n_batches", "n_dims"]
    frame = result[names].reset_coords(drop=True).to_dataframe().reset_index()
    return frame[["dataset", "method", "metric", *names]]
