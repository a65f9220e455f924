"""ASW: the mean silhouette of all cells, with the labels as clusters.

For a cell of label c with n_c cells, a is its mean Euclidean distance to the other n_c - 1 cells
of c, b the least over the other labels of its mean distance to their cells, and its silhouette
(b - a) / max(a, b): in [-1, 1], 0 for the only cell of a label and where a and b are 0. ASW is the
mean over cells, not over labels, and not rescaled. It is undefined with one label, or no more cells
than labels. The source is scikit-learn's `silhouette_samples`.

Distances are as of :mod:`croma_dask.embedding.distance_sums`: equal rows are at exactly 0, and a
silhouette has the same bits whatever the ranges, the threads and the workers. A mean distance is
off by no more than 2^-b of the largest distance, b being 47 for 20,000 cells and 42 for a million:
a cell's silhouette is off by more than 1e-7 only where a and b are less than 2^-b * 2e7 of that.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from croma_dask.embedding.distance_sums import distance_sums
from croma_dask.embedding.outcome import Outcome
from croma_dask.index.source import RowSource
from croma_dask.kernels.silhouette import silhouettes
from croma_dask.kernels.typing import F64, I32
from croma_dask.options import Options

__all__ = ["asw", "is_defined", "silhouette"]

PROTOCOL = "distance=euclidean;average=cells"
"""What the note of ASW says of its definition."""


def is_defined(codes: I32) -> bool:
    """Whether labels have an ASW: two of them at least, and more cells than labels."""
    n_labels = int(np.unique(codes).size)
    return 2 <= n_labels < int(codes.shape[0])


def silhouette(
    source: RowSource, codes: I32, n_labels: int, *, options: Options, client: Any = None,
    n_tasks: int | None = None, key: str = "", fixed: int = 0,
) -> F64:  # fmt: skip
    """Silhouette of every cell.

    Parameters
    ----------
    source, codes, n_labels, options, client, n_tasks, key, fixed
        As of :func:`croma_dask.embedding.distance_sums.distance_sums`.

    Returns
    -------
    ndarray
        (n,) float64, NaN where ASW is undefined.

    Raises
    ------
    SchemaError
        Labels do not fit the rows, or a row holds NaN, inf or values beyond 1e150.
    MemoryLimitError
        The memory does not allow even the smallest ranges of rows.

    Notes
    -----
    Cohorts of more than 32,768 cells are streamed by ranges of rows; what an interrupted run has
    found is found again by the same call. Memory: see `lay_out_sums`.
    """
    found = np.full(source.n_rows, np.nan)
    if not is_defined(codes):
        return found
    with contextlib.ExitStack() as keep:
        sums = distance_sums(
            source, codes, n_labels, options=options, client=client, n_tasks=n_tasks, keep=keep,
            key=key, fixed=fixed,
        )  # fmt: skip
        for part in sums.pieces():
            values = np.empty(part.rows.size)
            silhouettes(part.total, part.label, sums.count, values)
            found[part.rows] = values
    return found


def asw(values: F64, codes: I32) -> Outcome:
    """Mean silhouette of all cells, rounded once, so that no order of the cells changes it.

    Parameters
    ----------
    values
        (n,) of :func:`silhouette`.
    codes
        (n,) label of each cell.
    """
    if not is_defined(codes):
        reason = "ASW needs two labels and more cells than labels"
        return Outcome.undefined(reason, f"insufficient_labels_or_cells;asw=exact;{PROTOCOL}")
    return Outcome(math.fsum(values.tolist()) / values.shape[0], f"asw=exact;{PROTOCOL}")
