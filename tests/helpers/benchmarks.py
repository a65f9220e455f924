"""Small embeddings for the embedding benchmark, and calls of it, as its tests need them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.spatial.distance import cdist

import croma_dask as cd
from croma_dask.embedding.accuracy import folds
from tests.helpers.embeddings import Embedding

__all__ = [
    "SAMPLE_VALUES", "about", "cells", "frame", "notes", "plain_accuracy", "score", "statuses",
    "values",
]  # fmt: skip

SAMPLE_VALUES = ("silhouette", "clisi", "knn_correct", "kbet", "bras", "ilisi", "cilisi")


def frame(label: Any, batch: Any) -> pd.DataFrame:
    """Manifest of rows with a label and a batch."""
    return pd.DataFrame(
        {
            "sample_id": [f"cell-{i:04d}" for i in range(len(label))],
            "cell_type": np.asarray(label, object),
            "batch_id": np.asarray(batch, object),
        }
    )


def cells(seed: int = 1, n: int = 240, *, n_features: int = 8) -> Embedding:
    """Rows of three labels and two batches that follow both; no two of them alike."""
    rng = np.random.default_rng([seed, 77])
    labels = rng.choice(np.array(["k", "L", "m"], object), n)
    batches = rng.choice(np.array(["u", "V"], object), n)
    shift = rng.normal(size=(5, n_features)) * np.linspace(2.0, 0.3, n_features)
    x = rng.normal(size=(n, n_features))
    x += 0.8 * shift[np.searchsorted(["L", "k", "m"], list(labels))]
    x += 0.3 * shift[3 + (batches == "u")]
    return Embedding(x, frame(labels, batches))


def score(data: Any, obs: Any = None, **arguments: Any) -> xr.Dataset:
    """Score an embedding with its batches, without progress."""
    if isinstance(data, Embedding):
        data, obs = data.x, data.obs
    arguments = {"batch": "batch_id", "quiet": True} | arguments
    return cd.embedding_benchmark(data, obs, **arguments)


def values(found: xr.Dataset) -> dict[str, float]:
    """Values of the only embedding of a result, by metric."""
    return dict(zip(found["metric"].values.tolist(), found["value"].values[0, 0], strict=True))


def statuses(found: xr.Dataset) -> dict[str, str]:
    """Status of each metric of the only embedding of a result."""
    return dict(zip(found["metric"].values.tolist(), found["status"].values[0, 0], strict=True))


def notes(found: xr.Dataset) -> dict[str, str]:
    """Note of each metric of the only embedding of a result."""
    return dict(zip(found["metric"].values.tolist(), found["note"].values[0, 0], strict=True))


def about(found: xr.Dataset) -> dict[str, Any]:
    """What the only embedding of a result says of its search."""
    said: dict[str, Any] = json.loads(found["about"].item())
    return said


def plain_accuracy(x: np.ndarray, label: np.ndarray) -> tuple[float, np.ndarray]:
    """Acc@kNN by measuring all pairs of rows: the value, and whether each row is right (or NaN)."""
    names, codes = np.unique(label.astype(str), return_inverse=True)
    fold = folds(codes.astype(np.int32))
    kept = np.flatnonzero(fold >= 0)
    distance = cdist(x, x)
    right = np.full(len(x), np.nan)
    for row in kept:
        others = kept[fold[kept] != fold[row]]
        near = others[np.lexsort((others, distance[row, others]))[:5]]
        right[row] = np.bincount(codes[near], minlength=len(names)).argmax() == codes[row]
    return float(np.mean([right[fold == f].mean() for f in range(5)])), right
