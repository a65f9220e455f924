"""Scores as tables: one row a metric, or one row an embedding, and the text that they are kept as.

Columns, names and order of rows are those that the tables of scfoundry's scorer have, so that what
reads those reads these. Two things differ on purpose: no row and no column goes missing where
values are NaN, and the bytes depend neither on the version of pandas nor on that of Python.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.embedding.outcome import BATCH_METRICS, BIO_METRICS, Counts, Scores
from croma_dask.errors import SchemaError
from croma_dask.outward import guarded

__all__ = [
    "CONTROLS", "GROUPS", "LONG_COLUMNS", "Group", "counts_of", "frame_lines", "long_table",
    "table_lines", "wide_table",
]  # fmt: skip

Group = Literal["bio_conservation", "batch_mixing"]
"""What the column `metric_group` says."""

GROUPS: dict[Group, tuple[str, ...]] = {
    "bio_conservation": BIO_METRICS,
    "batch_mixing": BATCH_METRICS,
}
"""Metrics of each group, in the order of the long tables."""

LONG_COLUMNS = (
    "sample_id", "method", "metric", "value", "note", "metric_group", "n_cells", "n_dims",
    "n_labels", "n_batches",
)  # fmt: skip
"""Columns of the long tables."""

CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
"""Control characters, and what else some readers take for the end of a line."""


def counts_of(scores: Scores, group: Group) -> Counts | None:
    """Rows that a group of metrics is of."""
    return scores.bio if group == "bio_conservation" else scores.batch


def long_table(scores: Scores, group: Group) -> pd.DataFrame:
    """Lay out the metrics of a group as rows.

    Returns
    -------
    pandas.DataFrame
        :data:`LONG_COLUMNS`; a row for each metric of the group that `scores` has, in the order of
        :data:`GROUPS`; `n_batches` is NaN for the metrics of the labels. No rows where `scores` has
        none of the group.
    """
    names = [name for name in GROUPS[group] if name in scores.outcomes]
    counts = counts_of(scores, group)
    if counts is None:
        if names:
            raise ValueError(f"scores of {names} without the rows that they are of")
        counts = Counts(0, 0, 0, 0)
    if group == "batch_mixing" and counts.n_batches is None:
        raise ValueError("scores of batches without their number")
    outcomes = [scores.outcomes[name] for name in names]
    n = len(names)
    return pd.DataFrame(
        {
            "sample_id": _texts([scores.dataset] * n),
            "method": _texts([scores.method] * n),
            "metric": _texts(names),
            "value": np.array([outcome.value for outcome in outcomes], np.float64),
            "note": _texts([CONTROLS.sub(" ", outcome.note) for outcome in outcomes]),
            "metric_group": _texts([group] * n),
            "n_cells": np.full(n, counts.n_cells, np.int64),
            "n_dims": np.full(n, counts.n_dims, np.int64),
            "n_labels": np.full(n, counts.n_labels, np.int64),
            "n_batches": (
                np.full(n, counts.n_batches, np.int64)
                if group == "batch_mixing"
                else np.full(n, np.nan)
            ),
        }
    )


def wide_table(frames: Iterable[pd.DataFrame], group: Group) -> pd.DataFrame:
    """Lay out the metrics of a group as columns.

    Parameters
    ----------
    frames
        Long tables of the group. Ids may have been read as numbers: they become text.

    Returns
    -------
    pandas.DataFrame
        `sample_id`, `method` and every metric of the group in code-point order; a row for every
        sample and method, sorted. NaN where there is no value: no row and no column is left out.

    Raises
    ------
    SchemaError
        A table holds a metric of another group, or one metric of an embedding twice.
    """
    metrics = sorted(GROUPS[group])
    found: dict[tuple[str, str], dict[str, float]] = {}
    for frame in frames:
        columns = (frame[name].tolist() for name in ("sample_id", "method", "metric", "value"))
        for sample, method, metric, value in zip(*columns, strict=True):
            values = found.setdefault((str(sample), str(method)), {})
            if metric not in metrics:
                raise SchemaError(f"{metric!r} is no metric of {group}, which has {metrics}")
            if metric in values:
                raise SchemaError(f"{metric} of sample {sample!r} of {method!r} is there twice")
            values[metric] = float(value)
    keys = sorted(found)
    return pd.DataFrame(
        {
            "sample_id": _texts([sample for sample, _ in keys]),
            "method": _texts([method for _, method in keys]),
            **{
                metric: np.array([found[key].get(metric, math.nan) for key in keys], np.float64)
                for metric in metrics
            },
        }
    )


def _texts(values: Sequence[str]) -> NDArray[np.object_]:
    """Plain text: what pandas infers depends on its version and on whether there are any rows."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def frame_lines(frame: pd.DataFrame) -> Iterator[str]:
    """Write a frame as the lines of a csv table, as :func:`table_lines` does."""
    return table_lines(list(frame.columns), frame.itertuples(index=False, name=None))


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], separator: str = ","
) -> Iterator[str]:
    r"""Write rows as the lines of a table.

    Floats are written so that ``float`` reads them back as the same bits (pandas before 3 does so
    with ``float_precision="round_trip"`` only); NaN, None and NA as nothing. A text that a
    spreadsheet would take for a formula has an apostrophe before it
    (:func:`croma_dask.outward.guarded`). A text is in quotes only where it holds the separator, a
    quote or the end of a line; Python's own writer leaves a lone ``\r`` bare in some versions (3.11
    does, 3.13 does not), and readers take that for the end of the row.

    Yields
    ------
    str
        The header, then a line for every row, each ending in a line feed.
    """
    special = re.compile(f'[{separator}"\r\n]')

    def cell(value: Any) -> str:
        if isinstance(value, str):
            text = guarded(value)
            return '"' + text.replace('"', '""') + '"' if special.search(text) else text
        if isinstance(value, float):
            return "" if math.isnan(value) else float.__repr__(value)
        return "" if value is None or value is pd.NA else str(value)

    yield separator.join(map(cell, columns)) + "\n"
    for row in rows:
        yield separator.join(map(cell, row)) + "\n"
