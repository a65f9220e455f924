"""Between which two numbers ASW lies, without measuring pairs of cells.

The rows of a label are taken in groups: one a label, or several where the caller names some
(batches, clusters of a k-means); more groups bring the bounds closer together. With mu and V the
centre of a group and the mean squared distance of its n rows from it, Jensen's inequality gives for
any x

    |x - mu| <= mean distance from x to the group <= sqrt(|x - mu|^2 + V),

and for a row of the group itself, whose n - 1 others count,

    n |x - mu| <= sum of distances to the others <= sqrt(n (n - 1) (|x - mu|^2 + V)).

Sums over the groups of a label bound a and b of a cell; its silhouette falls with a and rises with
b. Everything that rounding can do is added to the bounds, so the interval contains the ASW of real
arithmetic: the centres' errors follow from the terms summed, those of a distance from its features,
and the rest is less than 1e-12.

Cost: two passes, O(n G D) for G groups in all. Memory: 8 (D + 4) bytes a group, and 16 a cell.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.cluster import for_client
from croma_dask.embedding.extent import find_bad, refuse_bad
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
)
from croma_dask.errors import SchemaError
from croma_dask.fingerprint import BLOCK_ROWS
from croma_dask.index.source import RowSource
from croma_dask.kernels.constants import U64
from croma_dask.kernels.screen_euclidean import native
from croma_dask.kernels.silhouette import add_moments, bound_rows
from croma_dask.kernels.typing import F64, I32, I64
from croma_dask.options import Options

__all__ = ["asw_interval", "silhouette_bounds"]

_SLACK = 1e-12
"""What the arithmetic behind the bounds of a and b can be off, and more."""

_UNDERFLOW = 1e-150
"""Differences below this may have squares that vanish."""

_FIRST = 5


def asw_interval(
    source: RowSource, codes: I32, n_labels: int, *, parts: I32 | None = None, options: Options,
    client: Any = None, n_tasks: int | None = None,
) -> Outcome:  # fmt: skip
    """Interval that contains ASW.

    Parameters
    ----------
    source, codes, n_labels, parts, options, client, n_tasks
        As of :func:`silhouette_bounds`.

    Returns
    -------
    Outcome
        Value: the middle of the interval; note: ``asw=interval``, its ends as ``low`` and ``high``
        and that the value is their ``midpoint``. Undefined where ASW is.

    Raises
    ------
    SchemaError
        As of :func:`silhouette_bounds`.
    """
    if not is_defined(codes):
        reason = "ASW needs two labels and more cells than labels"
        note = f"insufficient_labels_or_cells;asw=interval;{PROTOCOL}"
        return Outcome.undefined(reason, note)
    low, high = silhouette_bounds(
        source, codes, n_labels, parts=parts, options=options, client=client, n_tasks=n_tasks
    )
    ends = [math.fsum(bound.tolist()) / codes.size for bound in (low, high)]
    a, b = max(-1.0, ends[0] - _SLACK), min(1.0, ends[1] + _SLACK)
    note = f"asw=interval;low={a!r};high={b!r};value=midpoint;{PROTOCOL}"
    return Outcome(0.5 * (a + b), note)


def silhouette_bounds(
    source: RowSource, codes: I32, n_labels: int, *, parts: I32 | None = None, options: Options,
    client: Any = None, n_tasks: int | None = None,
) -> tuple[F64, F64]:  # fmt: skip
    """Bounds of the silhouette of every cell, to 1e-12.

    Parameters
    ----------
    source
        Rows of the scope: any real numbers.
    codes, n_labels
        (n,) label of each row, of which several have to occur; number of labels.
    parts
        (n,) int codes of what labels are divided by; None for one group a label.
    options, client, n_tasks
        Progress, threads; cluster to run on (None: threads), and threads of this process.

    Returns
    -------
    low, high
        (n,) float64.

    Raises
    ------
    SchemaError
        Labels or parts do not fit the rows, or a row holds NaN, inf or values beyond 1e150.
    """
    n = source.n_rows
    if codes.shape != (n,) or (parts is not None and parts.shape != (n,)):
        raise SchemaError(f"expected {n} labels and parts, found {codes.shape}")
    # What is one task is done here.
    client = client if n > SPAN_ROWS else None
    options = for_client(options, client)
    keys = codes.astype(np.int64)
    width = 1
    if parts is not None:
        width = int(parts.max()) + 1
        keys = keys * width + parts
    found, of_row, size = np.unique(keys, return_inverse=True, return_counts=True)
    count = np.bincount(codes, minlength=n_labels).astype(np.int64)
    with contextlib.ExitStack() as keep:
        folder = folder_for(client, options, keep)
        rows = by_reference(source, folder)
        groups = keep_column(of_row.astype(np.int32), "groups", folder)
        run: dict[str, Any] = {"options": options, "client": client, "n_tasks": n_tasks}
        adding = Adding(rows, groups, _origin(rows))
        moments = over_spans(_add_span, adding, n, name="ASW centres", **run)
        refuse_bad(
            [row for part in moments for row in part.first_bad][:_FIRST],
            sum(part.n_bad for part in moments), n,
        )  # fmt: skip
        bounding = _bounding(adding, moments, size, (found // width).astype(np.int32), count)
        ends = over_spans(_bound_span, bounding, n, name="ASW bounds", **run)
    low, high = (np.concatenate([part[side] for part in ends]) for side in (0, 1))
    return low, high


@dataclass(frozen=True)
class Adding:
    """What the first pass needs: rows, the group of each, and the origin."""

    rows: RowSource
    groups: Column
    origin: F64


@dataclass
class Moments:
    """Sums over the rows of a span of each group that occurs in it; and rows that have none."""

    groups: I32
    total: F64
    square: F64
    n_bad: int
    first_bad: list[int]


@dataclass(frozen=True)
class Bounding:
    """What the second pass needs; arrays as of :func:`croma_dask.kernels.silhouette.bound_rows`."""

    rows: RowSource
    groups: Column
    origin: F64
    centres: F64
    spread: F64
    doubt: F64
    size: I64
    label_of: I32
    count: I64
    relative: float


def _origin(rows: RowSource) -> F64:
    """Mean of the first block: bounds hold about any origin, and are narrow about a near one."""
    x = rows.read(0, min(rows.n_rows, BLOCK_ROWS)).astype(np.float64)
    fine = np.ones(x.shape[0], bool)
    fine[find_bad(x)] = False
    return np.asarray(x[fine].mean(axis=0)) if fine.any() else np.zeros(x.shape[1])


def _add_span(adding: Adding, lo: int, hi: int) -> Moments:
    groups = np.unique(adding.groups.read(lo, hi))
    total = np.zeros((groups.size, adding.rows.n_features))
    seen = Moments(groups, total, np.zeros(groups.size), 0, [])
    for a, b in blocks(lo, hi):
        raw = adding.rows.read(a, b)
        bad = find_bad(raw)
        if bad.size:
            seen.n_bad += int(bad.size)
            seen.first_bad += [a + int(row) for row in bad[: _FIRST - len(seen.first_bad)]]
            continue
        place = np.searchsorted(groups, adding.groups.read(a, b)).astype(np.int32)
        add_moments(native(raw), adding.origin, place, seen.total, seen.square)
    return seen


def _bounding(
    adding: Adding, parts: list[Moments], size: I64, label_of: I32, count: I64
) -> Bounding:
    n_groups, d = size.size, adding.rows.n_features
    total, square = np.zeros((n_groups, d)), np.zeros(n_groups)
    for part in parts:
        total[part.groups] += part.total
        square[part.groups] += part.square
    centres, mean_square = total / size[:, None], square / size
    # A sum of m terms is off by (m - 1) roundings of the sum of their sizes at most; these sums run
    # over a group's rows in a span, then over the spans, and in a square over the features.
    roundings = np.minimum(size, SPAN_ROWS) + (len(parts) + d + 16.0)
    gamma = roundings * U64 / (1.0 - roundings * U64)
    spread = mean_square - np.einsum("gf,gf->g", centres, centres)
    spread = np.maximum(spread, 0.0) + 8.0 * gamma * mean_square + _UNDERFLOW**2
    # A mean of sizes is no more than the root of the mean square.
    doubt = 4.0 * gamma * np.sqrt(mean_square) + 2.0 * _UNDERFLOW
    relative = (2.0 * (d + n_groups) + 64.0) * U64
    return Bounding(
        adding.rows, adding.groups, adding.origin, np.ascontiguousarray(centres.T), spread, doubt,
        size, label_of, count, relative,
    )  # fmt: skip


def _bound_span(bounding: Bounding, lo: int, hi: int) -> tuple[F64, F64]:
    low, high = np.empty(hi - lo), np.empty(hi - lo)
    for a, b in blocks(lo, hi):
        bound_rows(
            native(bounding.rows.read(a, b)), bounding.origin, bounding.groups.read(a, b),
            bounding.centres, bounding.spread, bounding.doubt, bounding.size, bounding.label_of,
            bounding.count, bounding.relative, low[a - lo : b - lo], high[a - lo : b - lo],
        )  # fmt: skip
    return low, high
