"""BRAS: how well the batches of every label are mixed, by silhouettes of cosine distances.

For a cell of label c and batch b, a is its mean cosine distance to the other cells of (c, b), o
that to the cells of c in other batches, s = (o - a) / max(a, o), and its score 1 - |s|: in [0, 1],
and 1 for the only cell of (c, b) and where a and o are 0. BRAS is the mean over labels of the mean
over their cells; labels of one batch, or of as many batches as cells, are skipped. The source is
scib-metrics' `bras` with `metric="cosine"` and `between_cluster_distances="mean_other"`.

`other="pooled"`, the default and what that does, takes the mean o over all cells of c outside b;
`other="batches"` the mean over those batches of their mean distances.

No pair of cells is measured. Distances of unit vectors u are |u - w|^2 / 2, so mean distances
follow from the sums of u - origin and of their squares over every (label, batch): two passes,
O(n D) time, and some 48 (D + 1) bytes for every (label, batch) that occurs. Sums are taken on a
fixed grid of rows in float64, so chunks, threads and workers cannot move a bit. Mean distances
below 1e-12 are 0.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from croma_dask.cluster import for_client
from croma_dask.embedding.outcome import Outcome
from croma_dask.embedding.spans import (
    SPAN_ROWS,
    Column,
    blocks,
    by_reference,
    folder_for,
    keep_column,
    over_spans,
)
from croma_dask.errors import SchemaError, name_rows
from croma_dask.fingerprint import BLOCK_ROWS
from croma_dask.index.source import RowSource
from croma_dask.kernels.bras import NOT_FINITE, TOO_SHORT, add_units, score_rows
from croma_dask.kernels.screen_euclidean import native
from croma_dask.kernels.typing import F64, I32, I64
from croma_dask.options import Options

__all__ = ["Other", "bras"]

Other: TypeAlias = Literal["pooled", "batches"]
"""How the other batches of a label count."""

DEFINITION = "bras_definition=cosine_mean_other"
"""What every note of BRAS ends with."""

FAULTS = {NOT_FINITE: "NaN or inf in", TOO_SHORT: "no direction (a length of at most 1e-12) in"}

_FIRST = 5


def bras(
    source: RowSource, labels: I32, batches: I32, *, other: Other = "pooled", options: Options,
    client: Any = None, n_tasks: int | None = None,
) -> tuple[Outcome, F64]:  # fmt: skip
    """Compute BRAS.

    Parameters
    ----------
    source
        Rows of the scope: any real numbers.
    labels, batches
        (n,) codes of each row.
    other
        How the other batches of a label count, see the module.
    options, client, n_tasks
        Progress, threads; cluster to run on (None: threads), and threads of this process.

    Returns
    -------
    outcome, scores
        BRAS, undefined with fewer than two cells or batches, or where every label is skipped; and
        (n,) float64 score of each cell, NaN where its label is skipped.

    Raises
    ------
    SchemaError
        Labels or batches do not fit the rows, a row holds NaN or inf, or is no longer than 1e-12.
    """
    n = source.n_rows
    if other not in ("pooled", "batches"):
        raise SchemaError(f"other={other!r}: expected 'pooled' or 'batches'")
    if labels.shape != (n,) or batches.shape != (n,):
        raise SchemaError(f"expected {n} labels and batches, found {labels.shape}, {batches.shape}")
    nothing = np.full(n, np.nan)
    if n < 2:
        return _undefined("fewer than two cells", "insufficient_cells", other), nothing
    if np.unique(batches).size < 2:
        return _undefined("fewer than two batches", "insufficient_batches", other), nothing
    # What is one task is done here.
    client = client if n > SPAN_ROWS else None
    options = for_client(options, client)
    cells = Cells.of(labels, batches)
    with contextlib.ExitStack() as keep:
        folder = folder_for(client, options, keep)
        rows = by_reference(source, folder)
        column = keep_column(cells.of_row, "cells", folder)
        run: dict[str, Any] = {"options": options, "client": client, "n_tasks": n_tasks}
        adding = Adding(rows, column, _origin(rows))
        mean, square = _moments(over_spans(_add_span, adding, n, name="BRAS sums", **run), cells)
        others = _others(mean, square, cells, other)
        scoring = Scoring(rows, column, adding.origin, cells.size, mean, square, *others)
        found = over_spans(_score_span, scoring, n, name="BRAS", **run)
    scores = np.concatenate(found)
    scores[~cells.scored[labels]] = np.nan
    return _outcome(scores, labels, cells, other), scores


@dataclass(frozen=True)
class Cells:
    """The (label, batch) cells that occur.

    Attributes
    ----------
    of_row
        (n,) cell of each row, numbered by label, then batch.
    size, label
        (C,) rows and label of each cell.
    scored
        (labels,) whether a label is scored: of several batches, and fewer batches than rows.
    """

    of_row: I32
    size: I64
    label: I64
    scored: np.ndarray[Any, np.dtype[np.bool_]]

    @classmethod
    def of(cls, labels: I32, batches: I32) -> Cells:
        """Find the cells of labels and batches."""
        n_batches = int(batches.max()) + 1
        keys = labels.astype(np.int64) * n_batches + batches
        found, of_row, size = np.unique(keys, return_inverse=True, return_counts=True)
        label = found // n_batches
        n_cells = np.bincount(label)
        n_rows = np.bincount(labels, minlength=n_cells.size)
        return cls(of_row.astype(np.int32), size, label, (n_cells > 1) & (n_cells < n_rows))


@dataclass(frozen=True)
class Adding:
    """What the first pass needs: rows, the cell of each, and the origin."""

    rows: RowSource
    cells: Column
    origin: F64


@dataclass(frozen=True)
class Scoring:
    """What the second pass needs; arrays as of :func:`croma_dask.kernels.bras.score_rows`."""

    rows: RowSource
    cells: Column
    origin: F64
    size: I64
    own_mean: F64
    own_square: F64
    other_mean: F64
    other_square: F64


@dataclass
class Bad:
    """Rows of one fault: how many, and the first few."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, count: int, rows: Iterable[int]) -> None:
        """Append rows that come behind."""
        self.count += count
        self.first += itertools.islice(rows, _FIRST - len(self.first))


@dataclass
class Moments:
    """Sums over the rows of a span of each cell that occurs in it; and rows that have none."""

    cells: I32
    total: F64
    square: F64
    bad: dict[int, Bad]


def _origin(rows: RowSource) -> F64:
    """Mean of the unit vectors of the first block, without those of bad rows."""
    x = native(rows.read(0, min(rows.n_rows, BLOCK_ROWS)))
    total, fault = np.zeros((1, rows.n_features)), np.zeros(x.shape[0], np.int32)
    cell = np.zeros(x.shape[0], np.int32)
    add_units(x, np.zeros(rows.n_features), cell, total, np.zeros(1), fault)
    mean: F64 = total[0] / x.shape[0]
    return mean


def _add_span(adding: Adding, lo: int, hi: int) -> Moments:
    cells = np.unique(adding.cells.read(lo, hi))
    shape = (cells.size, adding.rows.n_features)
    seen = Moments(cells, np.zeros(shape), np.zeros(cells.size), {k: Bad() for k in FAULTS})
    for a, b in blocks(lo, hi):
        here, cell = np.unique(adding.cells.read(a, b), return_inverse=True)
        total, square = np.zeros((here.size, shape[1])), np.zeros(here.size)
        fault = np.empty(b - a, np.int32)
        x = native(adding.rows.read(a, b))
        add_units(x, adding.origin, cell.astype(np.int32), total, square, fault)
        place = np.searchsorted(cells, here)
        seen.total[place] += total
        seen.square[place] += square
        for kind, bad in seen.bad.items():
            rows = np.flatnonzero(fault == kind)
            bad.add(rows.size, (a + int(row) for row in rows))
    return seen


def _moments(parts: list[Moments], cells: Cells) -> tuple[F64, F64]:
    """Means over the rows of each cell; refuses bad rows."""
    for kind, what in FAULTS.items():
        bad = Bad()
        for part in parts:
            bad.add(part.bad[kind].count, part.bad[kind].first)
        if bad.count:
            raise SchemaError(
                f"the embedding has {what} {name_rows(bad.first, total=bad.count)} ({bad.count} of "
                f"{cells.of_row.size}), and cosine distances need directions; leave these rows out "
                "or embed them again"
            )
    total, square = np.zeros((cells.size.size, parts[0].total.shape[1])), np.zeros(cells.size.size)
    for part in parts:
        total[part.cells] += part.total
        square[part.cells] += part.square
    return total / cells.size[:, None], square / cells.size


def _others(mean: F64, square: F64, cells: Cells, other: Other) -> tuple[F64, F64]:
    """Means over the other batches of each cell's label, as sums of what lies before and behind.

    (Taking a cell off the sum over its label would leave little of the digits of a small rest.)
    """
    weight = cells.size.astype(np.float64) if other == "pooled" else np.ones(cells.size.size)
    both = np.column_stack([mean, square, np.ones(square.size)]) * weight[:, None]
    rest = np.zeros_like(both)
    edges = np.flatnonzero(np.diff(cells.label, prepend=-1, append=-1))
    for lo, hi in zip(edges[:-1], edges[1:], strict=True):
        rest[lo + 1 : hi] = np.cumsum(both[lo : hi - 1], axis=0)
        rest[lo : hi - 1] += np.cumsum(both[hi - 1 : lo : -1], axis=0)[::-1]
    rest[:, :-1] /= np.maximum(rest[:, -1:], 1.0)
    return np.ascontiguousarray(rest[:, :-2]), np.ascontiguousarray(rest[:, -2])


def _score_span(scoring: Scoring, lo: int, hi: int) -> F64:
    found = np.empty(hi - lo)
    for a, b in blocks(lo, hi):
        score_rows(
            native(scoring.rows.read(a, b)), scoring.origin, scoring.cells.read(a, b),
            scoring.size, scoring.own_mean, scoring.own_square, scoring.other_mean,
            scoring.other_square, found[a - lo : b - lo],
        )  # fmt: skip
    return found


def _outcome(scores: F64, labels: I32, cells: Cells, other: Other) -> Outcome:
    """Mean over labels of the mean over their cells; each sum is rounded once."""
    scored = np.flatnonzero(cells.scored)
    if not scored.size:
        reason = "every label lies in one batch, or has a batch for each of its cells"
        return _undefined(reason, "insufficient_labels", other)
    order = np.argsort(labels, kind="stable")
    edges = np.searchsorted(labels[order], [scored, scored + 1])
    means = [math.fsum(scores[order[a:b]].tolist()) / int(b - a) for a, b in edges.T]
    skipped = int(np.unique(labels).size - scored.size)
    note = f"average=labels;other={other};skipped_labels={skipped};{DEFINITION}"
    return Outcome(math.fsum(means) / len(means), note)


def _undefined(reason: str, word: str, other: Other) -> Outcome:
    note = f"{word};average=labels;other={other};{DEFINITION}"
    return Outcome.undefined(f"BRAS: {reason}", note)
