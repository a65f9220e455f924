"""Tables of metric values that somebody wrote, wide or long, as one array to rank.

Whatever is absent is NaN: a wide table that was pivoted has lost the rows and columns that were
NaN throughout. What is there twice, or is no number, is refused.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from croma_dask.embedding.outcome import BATCH_METRICS, BIO_METRICS, METRIC_NAMES
from croma_dask.embedding.rank_files import expanded, open_table, read_names
from croma_dask.embedding.rank_numbers import read_numbers
from croma_dask.errors import InputWarning, SchemaError, name_items, warn

__all__ = ["ScoreTable", "read_scores"]

_BESIDE = {
    "note", "status", "metric_group", "n_cells", "n_dims", "n_labels", "n_batches",
}  # fmt: skip
"""Columns of long tables that say how a value came about; nothing is ranked by them."""


@dataclass(frozen=True)
class ScoreTable:
    """Values of metrics, ready to be ranked.

    Attributes
    ----------
    datasets, methods
        Names in code point order, so that the order of files and rows changes nothing.
    metrics
        Names, in the order asked for.
    value
        (n_datasets, n_methods, n_metrics) float64; NaN where there is none.
    """

    datasets: list[str]
    methods: list[str]
    metrics: list[str]
    value: NDArray[np.float64]


def read_scores(
    table: Any, metrics: Sequence[str], storage_options: Mapping[str, Any] | None = None
) -> ScoreTable:
    """Bring the values of metrics together from whatever holds them.

    Parameters
    ----------
    table
        A benchmark's Dataset (variable `value`; dims dataset, method, metric); a data frame, long
        (columns sample_id, method, metric, value) or wide (sample_id, method, one column a
        metric); a path of such a table (CSV, TSV; also compressed) or of a saved Dataset (.nc,
        .zarr); or a sequence of these. `dataset` may stand for `sample_id`. Tables of several
        methods are stacked; those of batch metrics are joined to those of label metrics by
        (sample_id, method), and rows without a partner there are left out.
    metrics
        Names of the metrics that are wanted.
    storage_options
        Options of the fsspec file system of paths that are URLs; these may have ``*``, ``?`` and
        ``[...]``, which no shell expands.

    Raises
    ------
    SchemaError
        A table is empty or no table of metrics, a row is there twice, an id is missing, or a
        value is no finite number; the message says where.

    Warns
    -----
    InputWarning
        Columns or metrics are not known and ignored, or rows have no partner.
    """
    if isinstance(table, str | os.PathLike | pd.DataFrame | xr.Dataset | xr.DataArray):
        items = [table]
    elif isinstance(table, Iterable) and not isinstance(table, dict | xr.DataTree):
        items = list(table)
    else:
        raise SchemaError(
            f"expected a Dataset, a data frame, or paths of tables, found {type(table).__name__}"
        )
    if not items:
        raise SchemaError("there is no table to rank")
    cells = _Cells(frozenset(metrics) | frozenset(METRIC_NAMES))
    items = [one for item in items for one in expanded(item, storage_options)]
    for at, item in enumerate(items):
        name, frame = open_table(item, at, storage_options)
        add = _add_long if {"metric", "value"} <= set(frame.columns) else _add_wide
        add(cells, name, frame)
    return cells.joined(list(metrics))


@dataclass
class _Cells:
    """Values by (dataset, method, metric), and which table each is from."""

    known: frozenset[str]
    value: dict[tuple[str, str, str], float] = field(default_factory=dict)
    source: dict[tuple[str, str, str], str] = field(default_factory=dict)
    rows: set[tuple[str, str]] = field(default_factory=set)

    def add(
        self, name: str, keys: Sequence[tuple[str, str, str]], values: NDArray[np.float64]
    ) -> None:
        """Take values of distinct keys from one table."""
        twice = [key for key in keys if key in self.value]
        if twice:
            pairs = list(dict.fromkeys(key[:2] for key in twice))
            others = list(dict.fromkeys(self.source[key] for key in twice))
            raise SchemaError(
                f"(sample_id, method) rows are given twice: {name_items(pairs)}, in "
                f"{', '.join(others)} and {name}; keep one of each (tables of two clusterings are "
                "two: name those of one, such as *_leiden_metrics_wide.csv)"
            )
        self.value.update(zip(keys, values.tolist(), strict=True))
        self.source.update(dict.fromkeys(keys, name))
        self.rows.update(key[:2] for key in keys)

    def joined(self, metrics: list[str]) -> ScoreTable:
        """Lay the values out, batch metrics joined to label metrics."""
        of_labels = {key[:2] for key in self.value if key[2] in BIO_METRICS}
        of_batches = {key[:2] for key in self.value if key[2] in BATCH_METRICS}
        alone = sorted(of_batches - of_labels) if of_labels else []
        if alone:
            warn(
                "(sample_id, method) rows with batch metrics but no label metrics are left out: "
                f"{name_items(alone)}",
                InputWarning,
            )
        kept = sorted(self.rows - set(alone))
        if not kept:
            raise SchemaError("the tables have no row to rank")
        datasets = sorted({dataset for dataset, _ in kept})
        methods = sorted({method for _, method in kept})
        value = np.full((len(datasets), len(methods), len(metrics)), np.nan)
        t_of = {name: at for at, name in enumerate(datasets)}
        m_of = {name: at for at, name in enumerate(methods)}
        for dataset, method in kept:
            value[t_of[dataset], m_of[method]] = [
                self.value.get((dataset, method, metric), math.nan) for metric in metrics
            ]
        return ScoreTable(datasets, methods, metrics, value)


def _add_wide(cells: _Cells, name: str, frame: pd.DataFrame) -> None:
    if "metric" in frame:
        raise SchemaError(f"{name} has a column 'metric' but none named 'value'")
    columns = [column for column in frame if column in cells.known]
    unknown = _warn_unknown(name, frame, {"sample_id", "method", *columns, *_BESIDE})
    if len(frame) and unknown and not columns:
        raise SchemaError(
            f"{name} is no table of metrics: none of its columns is one of "
            f"{name_items(sorted(cells.known), limit=20)}"
        )
    pairs = list(zip(frame["sample_id"], frame["method"], strict=True))
    _refuse_repeats(name, pairs)
    cells.rows.update(pairs)
    for column in columns:
        values = read_numbers(frame[column], _naming(name, pairs, column))
        cells.add(name, [(*pair, column) for pair in pairs], values)


def _add_long(cells: _Cells, name: str, frame: pd.DataFrame) -> None:
    _warn_unknown(name, frame, {"sample_id", "method", "metric", "value", *_BESIDE})
    metric = read_names(name, frame, "metric")
    other = sorted(set(metric) - cells.known)
    if other:
        warn(f"{name}: metrics that are not known are ignored: {name_items(other)}", InputWarning)
    keys = list(zip(frame["sample_id"], frame["method"], metric, strict=True))
    cells.rows.update(key[:2] for key in keys)
    known = np.isin(metric, list(cells.known))
    values = read_numbers(frame["value"].where(known), _naming(name, keys, "value"))
    keys = [key for key, keep in zip(keys, known, strict=True) if keep]
    _refuse_repeats(name, keys)
    cells.add(name, keys, values[known])


def _warn_unknown(name: str, frame: pd.DataFrame, known: set[str]) -> list[str]:
    unknown = [str(column) for column in frame if column not in known]
    if unknown:
        warn(f"{name}: columns that are not known are ignored: {name_items(unknown)}", InputWarning)
    return unknown


def _naming(name: str, keys: Sequence[tuple[str, ...]], column: str) -> Callable[[int], str]:
    return lambda at: f"{name}, row {at + 1} below the header {keys[at]}, column {column!r}"


def _refuse_repeats(name: str, keys: Sequence[tuple[str, ...]]) -> None:
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if twice:
        raise SchemaError(f"{name} has rows more than once: {name_items(twice)}; keep one of each")
