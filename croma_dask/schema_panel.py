"""What a panel of models adds to a result: names, dimensions and meaning of each."""

from __future__ import annotations

from typing import Any

from croma_dask.schema import Variable

__all__ = ["FACTS", "MISSING", "MODEL", "RANKS", "SHARED", "TREE"]

MODEL = Variable(("model",), "O", "model", "Name of the embedding, in the order that was given.")
"""Coordinate that tells the models apart."""

SHARED = ("n_pairs",)
"""Data variables that depend on the rows alone: they have no dimension `model`."""

TREE = (
    "dataset", "evaluation_design", "confounder_column", "label_column", "group_column", "n_rows",
    "embedding_fingerprint", "manifest_fingerprint", "croma_dask_version", "created",
)  # fmt: skip
"""Attributes of a result that its root has as well (of a panel: those that all models share)."""

FACTS: dict[str, Variable] = {
    "embedding_fingerprint": Variable(("model",), "O", "fingerprint of the embedding"),
    "n_features": Variable(("model",), "i", "features of the embedding", valid_min=1),
    "n_tiles": Variable(("model",), "i", "stored rows of the embedding", valid_min=1),
    "dtype": Variable(("model",), "O", "dtype of the stored embedding"),
    "n_zero_rows": Variable(("model",), "i", "rows of the embedding that are zero", valid_min=0),
    "index": Variable(("model",), "O", "index that was searched through"),
    "recall": Variable(
        ("model",), "f", "recall of the search", "Share of exact neighbours found; 1 if exact.",
        0.0, 1.0,
    ),
    "neighbors_reused": Variable(("model",), "O", "kept neighbours that were taken over"),
    "index_parameters": Variable(("model",), "O", "parameters of the index", "JSON text."),
    "recall_wanted": Variable(
        ("model",), "f", "recall that was asked for", "NaN of an exact search.", 0.0, 1.0
    ),
    "probes": Variable(("model",), "i", "clusters that a row looks into", "0: exact.", 0),
    "n_clusters": Variable(("model",), "i", "clusters of the index", "0: exact.", 0),
    "so_radius": Variable(("model",), "i", "SO candidates that a row meets", "0: exact.", 0),
    "os_radius": Variable(("model",), "i", "OS candidates that a row meets", "0: exact.", 0),
    "calibration_seed": Variable(
        ("model",), "i", "seed of the rows searched exactly as well", "-1: exact.", -1
    ),
}  # fmt: skip
"""What a result of one model says in its attrs and a panel says along `model`."""

MISSING: dict[str, Any] = {
    **{name: {"O": "", "i": 0, "f": float("nan")}[v.kind] for name, v in FACTS.items()},
    "recall": 1.0,
    "calibration_seed": -1,
}
"""Value of a fact where only other models have it: those whose search was approximate."""

_TIES = "1 is best; ties share their mean rank; NaN where there is no value."

RANKS: dict[str, Variable] = {
    "value_rank": Variable(("model",), "f", "rank by value", _TIES, 1.0),
    "ltm_rank": Variable(("model",), "f", "rank by lower-tail mean", _TIES, 1.0),
    "mean_rank": Variable(("model",), "f", "mean of value_rank and ltm_rank", _TIES, 1.0),
    "pareto_front": Variable(
        ("model",), "b", "whether the model is on the Pareto front",
        "No other model is at least as good in both value and ltm_alpha, and better in one.",
    ),
}  # fmt: skip
"""Variables that the CRoMa of a panel has in addition."""
