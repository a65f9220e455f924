"""Sections of a report on probe sweeps and embedding benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import SchemaError
from croma_dask.report.pick import UNNAMED
from croma_dask.report.words import listed

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["benchmark_section", "sweep_section"]

_BAND = (0.025, 0.975)

_FACTS = {
    "dataset": "Data set",
    "label_column": "Label column",
    "confounder_column": "Confounder column",
    "batch_column": "Batch column",
    "schedule": "Schedule",
    "seed": "Seed",
    "embedding_fingerprint": "Fingerprint of the embedding",
    "croma_dask_version": "croma_dask",
    "created": "Computed",
}
"""Attribute -> what it is called on the page."""


def sweep_section(name: str, sweep: xr.Dataset) -> dict[str, Any]:
    """Accuracy of the probes against how confounded their training rows were."""
    from croma_dask.probe.reduce import apd, nipd

    sets = [str(variable) for variable in sweep.data_vars]
    v = np.asarray(sweep["cramers_v"].values, np.float64)
    order = np.argsort(v, kind="stable")
    series, chance = [], []
    columns: list[dict[str, Any]] = [
        {"title": "Split", "kind": "integer"},
        {"title": "Cramer's V", "kind": "number"},
        {"title": "Training rows", "kind": "integer"},
    ]
    cells = [
        sweep["split"].values[order], v[order], sweep["training_rows"].values[order],
    ]  # fmt: skip
    for one in sets:
        accuracy = sweep[one].transpose("split", "iteration").values[order]
        mean = accuracy.mean(axis=1)
        low, high = np.quantile(accuracy, _BAND, axis=1)
        series.append({"name": one, "x": v[order], "y": mean, "low": low, "high": high})
        columns.append({"title": one, "kind": "interval"})
        cells.append(np.stack([mean, low, high], axis=1))
        if "n_classes" in sweep[one].attrs:
            chance.append(1 / int(sweep[one].attrs["n_classes"]))
    drops = [
        [title, *(_reduced(reduce, sweep[one]) for one in sets)]
        for title, reduce in (
            ("APD, average performance drop", apd), ("nIPD, integral of the lost skill", nipd),
        )
    ]  # fmt: skip
    missed, n_probes = int((~sweep["converged"].values).sum()), sweep["converged"].size
    text = (
        "Probes learn the label while label and confounder get entangled in what they are trained "
        f"on (Cramer's V, 0: balanced, 1: fully). {sweep.sizes['iteration']} replicates; below a "
        "mean is the range of the middle 95 % of them."
    )
    if missed:
        text += f" {missed} of {n_probes} probes stopped before they had converged."
    return {
        "title": f"Probe sweep: {name}" if name != "probe sweep" else "Probe sweep",
        "text": text,
        "figures": [
            {
                "title": "Accuracy as confounding grows", "series": series,
                "chance": chance[0] if chance else None,
                "text": "Mean balanced accuracy; a bar spans the middle 95 % of the replicates.",
            }
        ],
        "tables": [
            {
                "caption": "Balanced accuracy at each split", "columns": columns,
                "rows": [list(row) for row in zip(*cells, strict=True)],
            },
            {
                "caption": "What confounding costs",
                "columns": [
                    {"title": "Measure", "kind": "text"},
                    *({"title": s, "kind": "number"} for s in sets),
                ],
                "rows": drops,
            },
        ],
        "facts": _facts(sweep),
    }  # fmt: skip


def _reduced(reduce: Callable[[Any], float], accuracies: Any) -> float:
    try:
        return float(reduce(accuracies))
    except SchemaError:
        # No V from 0 to 1, or no skill to lose: the table says what there is.
        return float("nan")


def benchmark_section(name: str, benchmark: xr.Dataset) -> dict[str, Any]:
    """Metric table of the embeddings of an embedding benchmark."""
    metrics = [str(metric) for metric in benchmark["metric"].values]
    datasets, methods = (
        [str(text) for text in benchmark[dim].values] for dim in ("dataset", "method")
    )
    values = benchmark["value"].transpose("dataset", "method", "metric").values
    status = benchmark["status"].transpose("dataset", "method", "metric").values
    long_names = benchmark["long_name"].values if "long_name" in benchmark.coords else metrics
    several = len(datasets) > 1
    columns: list[dict[str, Any]] = [
        *([{"title": "Data set", "kind": "text"}] if several else []),
        {"title": "Method", "kind": "text"},
        *(
            {"title": metric, "kind": "number", "hint": str(long_names[j]), "shade": True}
            for j, metric in enumerate(metrics)
        ),
    ]
    rows, missing = [], []
    for d, dataset in enumerate(datasets):
        for i, method in enumerate(methods):
            if (status[d, i] == "not computed").all():
                continue
            rows.append([*([dataset] if several else []), method, *values[d, i]])
            missing += [
                f"{metric} of {method}{f' in {dataset}' if several else ''}: {status[d, i, j]}"
                for j, metric in enumerate(metrics)
                if status[d, i, j] not in ("ok", "not asked for", "not computed")
            ]
    text = (
        "All metrics are better when higher, but their ranges differ: shades compare the methods "
        "by one metric, column by column, darker is better."
    )
    if not several and datasets and datasets[0] != UNNAMED:
        text = f"Data set {datasets[0]}. {text}"
    if missing:
        text += f" Without a value: {listed(missing)}."
    return {
        "title": (
            f"Embedding benchmark: {name}"
            if name != "embedding benchmark"
            else "Embedding benchmark"
        ),
        "text": text,
        "figures": [],
        "tables": [{"caption": "Metrics by method", "columns": columns, "rows": rows}],
        "facts": _facts(benchmark),
    }


def _facts(result: xr.Dataset) -> list[list[str]]:
    """List what a result says of how it came about."""
    return [
        [title, str(result.attrs[name])]
        for name, title in _FACTS.items()
        if result.attrs.get(name) not in (None, "", *([UNNAMED] if name == "dataset" else []))
    ]
