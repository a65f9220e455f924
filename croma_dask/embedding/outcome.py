"""What a metric says: a value, a note on how it came about, and whether it is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["BATCH_METRICS", "BIO_METRICS", "METRIC_NAMES", "Counts", "Outcome", "Scores"]

BIO_METRICS = ("NMI", "HOM", "COM", "FMI", "ARI", "ASW", "cLISI", "Acc@kNN", "GC")
"""Metrics of the labels, in the order of the long tables."""

BATCH_METRICS = ("kBET", "BRAS", "iLISI", "CiLISI")
"""Metrics of the batches, in that order."""

METRIC_NAMES = (*BIO_METRICS, *BATCH_METRICS)


@dataclass(frozen=True)
class Outcome:
    """One metric of one embedding.

    Attributes
    ----------
    value
        The number; NaN where there is none.
    note
        How it came about: ``name=value`` parts joined by ``;``.
    status
        ``ok``; ``undefined: ...`` where the data does not have what the metric needs;
        ``failed: Type: message`` where it raised.
    """

    value: float
    note: str = ""
    status: str = "ok"

    @classmethod
    def undefined(cls, reason: str, note: str) -> Outcome:
        """Make the outcome of a metric that the data does not define."""
        return cls(float("nan"), note, f"undefined: {reason}")

    @classmethod
    def failed(cls, error: BaseException, note: str = "") -> Outcome:
        """Make the outcome of a metric that raised, with its reason in status and note."""
        text = f"{type(error).__name__}:{str(error).replace(';', ',')}"
        parts = [f"metric_failed={text}", *([note] if note else [])]
        return cls(float("nan"), ";".join(parts), f"failed: {type(error).__name__}: {error}")


@dataclass(frozen=True)
class Counts:
    """Rows that a group of metrics was computed on.

    Attributes
    ----------
    n_cells, n_dims, n_labels
        Rows, features, labels.
    n_batches
        Batches; None for the metrics of the labels.
    """

    n_cells: int
    n_dims: int
    n_labels: int
    n_batches: int | None = None


@dataclass
class Scores:
    """All metrics of one embedding.

    Attributes
    ----------
    dataset, method
        Names: what was embedded, and by what.
    outcomes
        One for every metric that was asked for, by name.
    bio, batch
        Rows that they are of; None where no metric of the group was asked for.
    sample_values
        By name (:data:`croma_dask.schema.BENCHMARK_SAMPLES`), (n_rows,) float64 along the rows of
        the manifest, NaN where a row was not scored.
    predictions
        (n_rows,) int32 cluster of each row of the manifest, -1 where it was left out; None where
        nothing was clustered.
    attrs
        What was used: definitions, versions, fingerprints.
    """

    dataset: str
    method: str
    outcomes: dict[str, Outcome]
    bio: Counts | None = None
    batch: Counts | None = None
    sample_values: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    predictions: NDArray[np.int32] | None = None
    attrs: Mapping[str, str | int | float] = field(default_factory=dict)
