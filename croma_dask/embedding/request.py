"""What a benchmark is asked for, checked before anything runs."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from croma_dask.embedding.outcome import BATCH_METRICS, BIO_METRICS, METRIC_NAMES
from croma_dask.errors import SchemaError, name_items

__all__ = ["CLUSTERED", "Readings", "Request"]

CLUSTERED = ("NMI", "HOM", "COM", "FMI", "ARI")
"""Metrics that compare clusters with labels."""

_SETS = {"all": METRIC_NAMES, "bio": BIO_METRICS, "batch": BATCH_METRICS}


@dataclass(frozen=True)
class Readings:
    """Which of several readings of a metric is computed; the first of each is the default.

    Attributes
    ----------
    clustering
        ``leiden``: the scan of resolutions; ``kmeans``.
    selection
        Resolution whose number of clusters is nearest to that of the labels
        (``match_n_labels``), or with the highest NMI (``best_nmi``).
    asw
        ``exact``, or ``interval``: the middle of a certified interval, without any pair of rows.
    gc_components
        ``strong`` or ``weak`` components of the directed graph.
    cilisi_average
        Over all ``samples``, or over ``labels``.
    bras_other
        Other batches of a label ``pooled``, or the mean over ``batches``.
    kbet_expected
        Batches expected as in the ``label``, or as in the whole ``dataset``.
    kbet_components
        Diffusion components ``carried`` over from a small label to later ones, or
        ``independent``.
    missing_batches
        Rows without batch are left out of the ``batch_metrics``, or of ``all_metrics``.
    lisi_compat
        None, or ``scib-metrics``: LISI of -1 where that library has it.
    """

    clustering: Literal["leiden", "kmeans"] = "leiden"
    selection: Literal["match_n_labels", "best_nmi"] = "match_n_labels"
    asw: Literal["exact", "interval"] = "exact"
    gc_components: Literal["strong", "weak"] = "strong"
    cilisi_average: Literal["samples", "labels"] = "samples"
    bras_other: Literal["pooled", "batches"] = "pooled"
    kbet_expected: Literal["label", "dataset"] = "label"
    kbet_components: Literal["carried", "independent"] = "carried"
    missing_batches: Literal["batch_metrics", "all_metrics"] = "batch_metrics"
    lisi_compat: Literal["scib-metrics"] | None = None


_CHOICES: dict[str, tuple[Any, ...]] = {
    "clustering": ("leiden", "kmeans"),
    "selection": ("match_n_labels", "best_nmi"),
    "asw": ("exact", "interval"),
    "gc_components": ("strong", "weak"),
    "cilisi_average": ("samples", "labels"),
    "bras_other": ("pooled", "batches"),
    "kbet_expected": ("label", "dataset"),
    "kbet_components": ("carried", "independent"),
    "missing_batches": ("batch_metrics", "all_metrics"),
    "lisi_compat": (None, "scib-metrics"),
}


@dataclass(frozen=True)
class Request:
    """Metrics, columns and readings of a benchmark.

    Attributes
    ----------
    metrics
        In the order of :data:`croma_dask.embedding.outcome.METRIC_NAMES`.
    label, batch, sample_id
        Columns; `batch` is None where nothing looks at it.
    batch_max_cells
        Rows of the sample for the metrics of batches; 0 for all rows.
    how
        Readings.
    """

    metrics: tuple[str, ...]
    label: str
    batch: str | None
    sample_id: str
    batch_max_cells: int
    how: Readings

    @classmethod
    def of(
        cls, metrics: str | Sequence[str] | None, label: str, batch: str | None, sample_id: str,
        batch_max_cells: int, **readings: Any,
    ) -> Request:  # fmt: skip
        """Check what was asked for.

        Raises
        ------
        SchemaError
            A metric or a choice is not known, batches are needed and not named, or the sample is
            no size.
        """
        for name, column in (("label", label), ("batch", batch), ("sample_id", sample_id)):
            if not isinstance(column, str) and not (name == "batch" and column is None):
                raise SchemaError(f"{name} is the name of one column, found {column!r}")
        chosen = _metrics(metrics, batch)
        known = {field.name for field in fields(Readings)}
        for name, value in readings.items():
            if name not in known:
                raise SchemaError(f"no reading is called {name!r}; there are {sorted(known)}")
            if value not in _CHOICES[name]:
                said = " or ".join(repr(choice) for choice in _CHOICES[name])
                raise SchemaError(f"{name} is {said}, found {value!r}")
        if isinstance(batch_max_cells, bool) or not isinstance(batch_max_cells, numbers.Integral):
            raise SchemaError(f"batch_max_cells is a whole number, found {batch_max_cells!r}")
        if batch_max_cells < 0:
            raise SchemaError(f"batch_max_cells is 0 (all rows) or more, found {batch_max_cells}")
        # Rows without batch are to be left out of all metrics, whichever these are.
        needed = readings.get("missing_batches") == "all_metrics" or any(
            name in BATCH_METRICS for name in chosen
        )
        return cls(
            chosen, label, batch if needed else None, sample_id, int(batch_max_cells),
            Readings(**readings),
        )  # fmt: skip

    @property
    def bio(self) -> bool:
        """Whether any metric of the labels is asked for."""
        return any(name in BIO_METRICS for name in self.metrics)

    @property
    def mixing(self) -> bool:
        """Whether any metric of the batches is asked for."""
        return any(name in BATCH_METRICS for name in self.metrics)

    @property
    def clustered(self) -> bool:
        """Whether clusters are needed."""
        return any(name in CLUSTERED for name in self.metrics)

    def wants(self, *names: str) -> bool:
        """Whether any of these metrics is asked for."""
        return any(name in self.metrics for name in names)


def _metrics(metrics: str | Sequence[str] | None, batch: str | None) -> tuple[str, ...]:
    if metrics is None:
        return METRIC_NAMES if batch is not None else BIO_METRICS
    if not isinstance(metrics, Iterable):
        raise SchemaError(f"metrics are a name, or a list of names, found {metrics!r}")
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    wanted: list[str] = []
    for name in names:
        wanted += _SETS.get(name, (name,))
    unknown = [name for name in wanted if name not in METRIC_NAMES]
    if not wanted:
        raise SchemaError("no metric is asked for")
    if unknown:
        raise SchemaError(
            f"no metric is called {name_items(unknown)}; there are "
            f"{name_items(METRIC_NAMES, limit=20)}, and the sets 'all', 'bio' and 'batch'"
        )
    mixing = [name for name in wanted if name in BATCH_METRICS]
    if mixing and batch is None:
        raise SchemaError(
            f"{name_items(mixing)} compare batches: name their column as batch= (--batch-key)"
        )
    return tuple(name for name in METRIC_NAMES if name in wanted)
