"""Between which two numbers ASW lies, without measuring pairs of cells.

With mu and V the centre of a label and the mean squared distance of its n rows from it, Jensen's
inequality gives for any x

    |x - mu| <= mean distance from x to the label <= sqrt(|x - mu|^2 + V),

and for a row of the label itself, whose n - 1 others count,

    n |x - mu| <= sum of distances to the others <= sqrt(n (n - 1) (|x - mu|^2 + V)).

A cell's silhouette falls with a and rises with b, which these bound. Everything that rounding can
do is added to the bounds, so the interval contains the ASW of real arithmetic: the centres' errors
follow from the terms summed, those of a distance from its features, and the rest is less than
1e-12.

Cost: two passes, O(n L D) for L labels. Memory: see :func:`bounds_bytes`.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.cluster import for_client, tasks_a_process, workers_of
from croma_dask.embedding.extent import find_bad, refuse_bad
from croma_dask.embedding.moments import (
    Adding,
    Bad,
    add_up,
    moment_bytes,
    span_rows,
    tasks_that_fit,
)
from croma_dask.embedding.outcome import Outcome
from croma_dask.embedding.silhouette import PROTOCOL, is_defined
from croma_dask.embedding.spans import (
    SPAN_ROWS,
    Column,
    blocks,
    by_reference,
    folder_for,
    keep_column,
    over_spans,
    rows_at_once,
)
from croma_dask.errors import SchemaError
from croma_dask.fingerprint import BLOCK_ROWS
from croma_dask.index.source import RowSource
from croma_dask.kernels.constants import U64
from croma_dask.kernels.screen_euclidean import native
from croma_dask.kernels.silhouette import add_moments, bound_rows
from croma_dask.kernels.typing import F64, I32, I64
from croma_dask.options import Options

__all__ = ["asw_interval", "bounds_bytes", "silhouette_bounds"]

_SLACK = 1e-12
"""What the arithmetic behind the bounds of a and b can be off, and more."""

_UNDERFLOW = 1e-150
"""Differences below this may have squares that vanish."""

_BOUNDS_OF_ROW = 48
"""Bytes a row of bounds, while they are put together or summed."""

_BAD = 1


def asw_interval(
    source: RowSource, codes: I32, n_labels: int, *, options: Options, client: Any = None,
    n_tasks: int | None = None, fixed: int = 0,
) -> Outcome:  # fmt: skip
    """Interval that contains ASW.

    Parameters
    ----------
    source, codes, n_labels, options, client, n_tasks, fixed
        As of :func:`silhouette_bounds`.

    Returns
    -------
    Outcome
        Value: the middle of the interval; note: ``asw=interval``, its ends as ``low`` and ``high``
        and that the value is their ``midpoint``. Undefined where ASW is.

    Raises
    ------
    SchemaError, MemoryLimitError
        As of :func:`silhouette_bounds`.
    """
    if not is_defined(codes):
        reason = "ASW needs two labels and more cells than labels"
        note = f"insufficient_labels_or_cells;asw=interval;{PROTOCOL}"
        return Outcome.undefined(reason, note)
    low, high = silhouette_bounds(
        source, codes, n_labels, options=options, client=client, n_tasks=n_tasks, fixed=fixed
    )
    ends = [math.fsum(bound.tolist()) / codes.size for bound in (low, high)]
    a, b = max(-1.0, ends[0] - _SLACK), min(1.0, ends[1] + _SLACK)
    note = f"asw=interval;low={a!r};high={b!r};value=midpoint;{PROTOCOL}"
    return Outcome(0.5 * (a + b), note)


def silhouette_bounds(
    source: RowSource, codes: I32, n_labels: int, *, options: Options, client: Any = None,
    n_tasks: int | None = None, fixed: int = 0,
) -> tuple[F64, F64]:  # fmt: skip
    """Bounds of the silhouette of every cell, to 1e-12.

    Parameters
    ----------
    source
        Rows of the scope: any real numbers.
    codes, n_labels
        (n,) label of each row, of which several have to occur; number of labels.
    options, client, n_tasks
        Memory, threads, progress; cluster to run on (None: threads), and tasks at once in a process
        (None: ask it).
    fixed
        Bytes that the process holds besides.

    Returns
    -------
    low, high
        (n,) float64.

    Raises
    ------
    SchemaError
        Labels do not fit the rows, or a row holds NaN, inf or values beyond 1e150.
    MemoryLimitError
        The allowed memory does not hold the sums by label, or not even one task.
    """
    n, d = source.n_rows, source.n_features
    if codes.shape != (n,):
        raise SchemaError(f"expected {n} labels, found {codes.shape}")
    # What is one task is done here.
    client = client if n > SPAN_ROWS else None
    options = for_client(options, client)
    n_workers = workers_of(client)

    def bytes_of(n_tasks: int) -> dict[str, int]:
        return bounds_bytes(
            n, d, n_labels, source.dtype, step=source.step, n_tasks=n_tasks, n_workers=n_workers
        )

    wanted = n_tasks or tasks_a_process(client, options)
    # Workers run as many tasks as they have threads.
    least = 1 if client is None else wanted
    n_tasks = tasks_that_fit("ASW's interval", bytes_of, options, wanted, least=least, fixed=fixed)
    run: dict[str, Any] = {"options": options, "client": client, "n_tasks": n_tasks}
    low, high = np.empty(n), np.empty(n)
    with contextlib.ExitStack() as keep:
        folder = folder_for(client, options, keep)
        rows, labels = by_reference(source, folder), keep_column(codes, "labels", folder)
        adding = AddingRows(rows, labels, _origin(rows))
        total, square, bad = add_up(
            adding, n_labels, name="ASW centres", n_workers=n_workers, **run
        )
        refused = bad.get(_BAD, Bad())
        refuse_bad(refused.first, refused.count, n)
        count = np.bincount(codes, minlength=n_labels).astype(np.int64)
        bounding = _bounding(adding, total, square, count, folder)
        at = 0
        for part in over_spans(_bound_span, bounding, n, name="ASW bounds", **run):
            to = at + part[0].size
            low[at:to], high[at:to] = part
            at = to
    return low, high


def bounds_bytes(
    n_rows: int, n_features: int, n_labels: int, dtype: Any = np.float32, *, step: int = 4096,
    n_tasks: int = 1, n_workers: int = 1,
) -> dict[str, int]:  # fmt: skip
    """Bytes that a process takes for the interval, by name, beside the libraries.

    Parameters
    ----------
    n_rows, n_features, dtype, step
        Of the rows; `step` of them are read together.
    n_labels
        Labels.
    n_tasks, n_workers
        Tasks at once in a process, and processes.
    """
    return {
        "bounds of the cells": _BOUNDS_OF_ROW * n_rows,
        # Sums, and the centres that come of them.
        "sums by label": n_labels * (16 * n_features + 64),
        **moment_bytes(
            n_rows, n_features, n_labels, dtype, step=step, n_tasks=n_tasks, n_workers=n_workers
        ),
    }


@dataclass(frozen=True)
class AddingRows(Adding):
    """What the first pass adds up: rows, less an origin."""

    origin: F64

    def add(
        self, x: np.ndarray[Any, Any], groups: I32, place: I32, total: F64, square: F64
    ) -> dict[int, I64]:
        """Add the rows of a block; see :class:`croma_dask.embedding.moments.Adding`."""
        bad = find_bad(x)
        if bad.size:
            return {_BAD: bad}
        add_moments(native(x), self.origin, place, total, square)
        return {}


@dataclass(frozen=True)
class Bounding:
    """What the second pass needs; arrays as of :func:`croma_dask.kernels.silhouette.bound_rows`."""

    rows: RowSource
    labels: Column
    origin: F64
    centres: Column
    spread: F64
    doubt: F64
    count: I64
    relative: float


def _origin(rows: RowSource) -> F64:
    """Mean of the first block: bounds hold about any origin, and are narrow about a near one."""
    x = rows.read(0, min(rows.n_rows, BLOCK_ROWS)).astype(np.float64)
    fine = np.ones(x.shape[0], bool)
    fine[find_bad(x)] = False
    return np.asarray(x[fine].mean(axis=0)) if fine.any() else np.zeros(x.shape[1])


def _bounding(
    adding: AddingRows, total: F64, square: F64, count: I64, folder: str | None
) -> Bounding:
    n, d, n_labels = adding.rows.n_rows, adding.rows.n_features, count.size
    some = np.maximum(count, 1)
    total /= some[:, None]
    mean_square = square / some
    # A sum of m terms is off by (m - 1) roundings of the sum of their sizes at most; these sums run
    # over a label's rows in a span, then over the spans, and in a square over the features.
    span = span_rows(n_labels, d)
    roundings = np.minimum(some, span) + (-(-n // span) + d + 16.0)
    gamma = roundings * U64 / (1.0 - roundings * U64)
    spread = mean_square - np.einsum("cf,cf->c", total, total)
    spread = np.maximum(spread, 0.0) + 8.0 * gamma * mean_square + _UNDERFLOW**2
    # A mean of sizes is no more than the root of the mean square.
    doubt = 4.0 * gamma * np.sqrt(mean_square) + 2.0 * _UNDERFLOW
    relative = (2.0 * d + 66.0) * U64
    return Bounding(
        adding.rows, adding.groups, adding.origin, keep_column(total.T, "centres", folder), spread,
        doubt, count, relative,
    )  # fmt: skip


def _bound_span(bounding: Bounding, lo: int, hi: int) -> tuple[F64, F64]:
    centres = bounding.centres.whole().reshape(-1, bounding.count.size)
    low, high = np.empty(hi - lo), np.empty(hi - lo)
    for a, b in blocks(lo, hi, rows_at_once(bounding.rows)):
        bound_rows(
            native(bounding.rows.read(a, b)), bounding.origin, bounding.labels.read(a, b), centres,
            bounding.spread, bounding.doubt, bounding.count, bounding.relative,
            low[a - lo : b - lo], high[a - lo : b - lo],
        )  # fmt: skip
    return low, high
