"""Every name that the result of an embedding benchmark carries, declared once."""

from __future__ import annotations

from croma_dask.schema import Variable

__all__ = ["BENCHMARK", "BENCHMARK_COORDINATES", "BENCHMARK_SAMPLES", "METRIC_RANGES"]

_CELL = ("dataset", "method", "metric")

METRIC_RANGES: dict[str, tuple[str, float, float]] = {
    "NMI": ("normalised mutual information of clusters and labels", 0.0, 1.0),
    "HOM": ("homogeneity of the clusters", 0.0, 1.0),
    "COM": ("completeness of the clusters", 0.0, 1.0),
    "FMI": ("Fowlkes-Mallows index of clusters and labels", 0.0, 1.0),
    "ARI": ("adjusted Rand index of clusters and labels", -0.5, 1.0),
    "ASW": ("average silhouette width of the labels", -1.0, 1.0),
    "cLISI": ("separation of labels among the nearest rows", 0.0, 1.0),
    "Acc@kNN": ("accuracy of a vote of the five nearest rows of other folds", 0.0, 1.0),
    "GC": ("share of a label that hangs together in the neighbour graph", 0.0, 1.0),
    "kBET": ("share of rows whose neighbours have the batches of their label", 0.0, 1.0),
    "BRAS": ("overlap of batches within labels", 0.0, 1.0),
    "iLISI": ("mixing of batches among the nearest rows", 0.0, 1.0),
    "CiLISI": ("mixing of batches among the nearest rows of the label", 0.0, 1.0),
}
"""Metric -> what it is, and its range; cLISI and iLISI of very few rows may leave theirs."""

BENCHMARK: dict[str, Variable] = {
    "value": Variable(
        _CELL, "f", "value of the metric",
        "Higher is better. NaN where undefined or failed: see status. Ranges differ by metric.",
        -1.0, 1.0,
    ),
    "note": Variable(_CELL, "O", "how the value came about", "name=value parts joined by ';'."),
    "status": Variable(
        _CELL, "O", "whether there is a value",
        "ok; undefined: what the data lacks; failed: the error; not asked for; not computed, where "
        "an embedding is not there.",
    ),
    "n_cells": Variable(
        _CELL, "i", "rows that the metric was computed on", "0 where it was not.", 0
    ),
    "n_labels": Variable(_CELL, "i", "labels among these rows", valid_min=0),
    "n_batches": Variable(
        _CELL, "i", "batches among these rows", "0 for metrics that do not look at them.", 0
    ),
    "n_dims": Variable(("dataset", "method"), "i", "features of the embedding", valid_min=0),
    "about": Variable(
        ("dataset", "method"), "O", "what the search of the embedding says of itself",
        "JSON: fingerprint of the embedding, index, definition of LISI; recall and errors of an "
        "approximate search.",
    ),
}  # fmt: skip
"""Variables of a benchmark, one value for each embedding and metric."""

BENCHMARK_SAMPLES: dict[str, Variable] = {
    "silhouette": Variable(
        ("sample",), "f", "silhouette of each row by label",
        "(b - a) / max(a, b) of mean Euclidean distances; ASW is their mean.", -1.0, 1.0, 0.0,
    ),
    "clisi": Variable(
        ("sample",), "f", "effective number of labels around each row",
        "Inverse Simpson index at perplexity 30; cLISI is made of their median.",
    ),
    "knn_correct": Variable(
        ("sample",), "f", "whether the five nearest rows of other folds vote for the own label",
        "1 or 0; NaN for labels of fewer than five rows.", 0.0, 1.0,
    ),
    "kbet": Variable(
        ("sample",), "f", "whether kBET accepts the neighbourhood of each row",
        "1 or 0; NaN where it was not tested.", 0.0, 1.0,
    ),
    "bras": Variable(
        ("sample",), "f", "batch overlap of each row",
        "1 - |silhouette of its batch within its label|.", 0.0, 1.0,
    ),
    "ilisi": Variable(
        ("sample",), "f", "effective number of batches around each row",
        "Inverse Simpson index at perplexity 30; iLISI is made of their median.",
    ),
    "cilisi": Variable(
        ("sample",), "f", "mixing of batches around each row, within its label",
        "0 to 1; CiLISI is their mean.", 0.0, 1.0,
    ),
}  # fmt: skip
"""Variables of a benchmark along the rows of all embeddings, one behind the other."""

BENCHMARK_COORDINATES: dict[str, Variable] = {
    "dataset": Variable(("dataset",), "O", "what was embedded"),
    "method": Variable(("method",), "O", "what it was embedded by"),
    "metric": Variable(("metric",), "O", "metric"),
    "family": Variable(
        ("metric",), "O", "family of the metric in the ranking", "Empty for metrics without one."
    ),
    "long_name": Variable(("metric",), "O", "what the metric is"),
    "lowest": Variable(("metric",), "f", "lower end of the metric's range"),
    "highest": Variable(("metric",), "f", "upper end of the metric's range"),
    "sample_id": Variable(("sample",), "O", "sample"),
    "sample_dataset": Variable(("sample",), "O", "dataset of the row"),
    "sample_method": Variable(("sample",), "O", "method of the row"),
    "label": Variable(("sample",), "O", "label", "Empty where missing."),
    "batch": Variable(("sample",), "O", "batch", "Empty where missing, or not asked for."),
    "cluster": Variable(
        ("sample",), "i", "cluster of each row", "-1 where it was left out.", -1
    ),
}  # fmt: skip
"""Coordinates of a benchmark."""
