"""From the scores of embeddings to one labelled result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask import schema_benchmark as declared
from croma_dask.embedding.outcome import BIO_METRICS, METRIC_NAMES, Scores
from croma_dask.embedding.rank_families import FAMILIES
from croma_dask.memory import ID_LENGTH, holds_ids

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Evaluated", "Texts", "label_scores"]

Texts = Callable[[int, int], NDArray[np.object_]]
"""Reads the text of rows lo..hi."""

NOT_ASKED = "not asked for"


@dataclass(frozen=True)
class Evaluated:
    """Scores of one embedding, and what names its rows.

    Attributes
    ----------
    scores
        The numbers.
    n_rows
        Rows of its manifest.
    sample_id, label, batch
        Text of rows lo..hi; `batch` is None where no metric looked at batches.
    id_length
        Characters of an id, on average.
    """

    scores: Scores
    n_rows: int
    sample_id: Texts
    label: Texts
    batch: Texts | None
    id_length: float = ID_LENGTH


def label_scores(
    found: Sequence[Evaluated], attrs: Mapping[str, Any], *, samples: bool = True
) -> xr.Dataset:
    """Label the scores of some embeddings.

    Parameters
    ----------
    found
        Each embedding's; datasets and methods in the order in which they occur.
    attrs
        What the result says of itself.
    samples
        Whether the values of single rows are part of it.

    Returns
    -------
    xarray.Dataset
        As declared in :mod:`croma_dask.schema_benchmark`. A metric that was not asked for of any
        embedding has no place along `metric`; an embedding that is not there has the status
        ``not computed``.
    """
    import xarray as xr

    from croma_dask import __version__

    datasets = list(dict.fromkeys(one.scores.dataset for one in found))
    methods = list(dict.fromkeys(one.scores.method for one in found))
    metrics = [m for m in METRIC_NAMES if any(m in one.scores.outcomes for one in found)]
    values = _values(found, datasets, methods, metrics)
    variables = {
        name: xr.Variable(about.dims, values[name], about.attrs())
        for name, about in declared.BENCHMARK.items()
    }
    ranges = [declared.METRIC_RANGES[m] for m in metrics]
    family = {metric: name for name, members in FAMILIES.items() for metric in members}
    coordinates: dict[str, Any] = {
        "dataset": _texts(datasets), "method": _texts(methods), "metric": _texts(metrics),
        "family": _texts([family.get(m, "") for m in metrics]),
        "long_name": _texts([about[0] for about in ranges]),
        "lowest": np.array([about[1] for about in ranges]),
        "highest": np.array([about[2] for about in ranges]),
    }  # fmt: skip
    if samples:
        along, names = _along_samples(found)
        coordinates |= names
        variables |= {
            name: xr.Variable(about.dims, along[name], about.attrs())
            for name, about in declared.BENCHMARK_SAMPLES.items()
            if name in along
        }
    coords = {
        name: xr.Variable(about.dims, coordinates[name], about.attrs())
        for name, about in declared.BENCHMARK_COORDINATES.items()
        if name in coordinates
    }
    said = {
        "metric": "embedding_benchmark",
        **attrs,
        "croma_dask_version": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return xr.Dataset(variables, coords, said)


def _values(
    found: Sequence[Evaluated], datasets: list[str], methods: list[str], metrics: list[str]
) -> dict[str, Any]:
    shape = (len(datasets), len(methods), len(metrics))
    values: dict[str, Any] = {
        "value": np.full(shape, np.nan),
        "note": np.full(shape, "", object),
        "status": np.full(shape, "not computed", object),
        "n_cells": np.zeros(shape, np.int64),
        "n_labels": np.zeros(shape, np.int64),
        "n_batches": np.zeros(shape, np.int64),
        "n_dims": np.zeros(shape[:2], np.int64),
        "about": np.full(shape[:2], "", object),
    }
    for one in found:
        scores = one.scores
        at = datasets.index(scores.dataset), methods.index(scores.method)
        values["about"][at] = json.dumps(dict(scores.attrs), sort_keys=True)
        for k, metric in enumerate(metrics):
            if metric not in scores.outcomes:
                values["status"][*at, k] = NOT_ASKED
                continue
            outcome = scores.outcomes[metric]
            values["value"][*at, k] = outcome.value
            values["note"][*at, k] = outcome.note
            values["status"][*at, k] = outcome.status
            counts = scores.bio if metric in BIO_METRICS else scores.batch
            if counts is not None:
                values["n_cells"][*at, k] = counts.n_cells
                values["n_labels"][*at, k] = counts.n_labels
                values["n_batches"][*at, k] = counts.n_batches or 0
                values["n_dims"][at] = counts.n_dims
    return values


def _along_samples(found: Sequence[Evaluated]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values and names of the rows of all embeddings, one behind the other."""
    total = sum(one.n_rows for one in found)
    present = [
        name
        for name in declared.BENCHMARK_SAMPLES
        if any(name in one.scores.sample_values for one in found)
    ]
    values = {name: np.full(total, np.nan) for name in present}
    names: dict[str, Any] = {
        name: np.empty(total, object) for name in ("sample_dataset", "sample_method", "label")
    }
    # Ids are each their own text: of very many rows they stay where they are.
    with_ids = holds_ids(total, max(one.id_length for one in found))
    if with_ids:
        names["sample_id"] = np.empty(total, object)
    if any(one.batch is not None for one in found):
        names["batch"] = np.full(total, "", object)
    if any(one.scores.predictions is not None for one in found):
        names["cluster"] = np.full(total, -1, np.int32)
    lo = 0
    for one in found:
        hi = lo + one.n_rows
        for name in present:
            if name in one.scores.sample_values:
                values[name][lo:hi] = one.scores.sample_values[name]
        names["sample_dataset"][lo:hi] = one.scores.dataset
        names["sample_method"][lo:hi] = one.scores.method
        names["label"][lo:hi] = one.label(0, one.n_rows)
        if with_ids:
            names["sample_id"][lo:hi] = one.sample_id(0, one.n_rows)
        if one.batch is not None:
            names["batch"][lo:hi] = one.batch(0, one.n_rows)
        if one.scores.predictions is not None:
            names["cluster"][lo:hi] = one.scores.predictions
        lo = hi
    return values, names


def _texts(names: Sequence[str]) -> NDArray[np.object_]:
    array = np.empty(len(names), object)
    array[:] = names
    return array
