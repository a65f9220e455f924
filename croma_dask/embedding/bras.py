"""BRAS: how well the batches of every label are mixed, by silhouettes of cosine distances.

For a cell of label c and batch b, a is its mean cosine distance to the other cells of (c, b), o
that to the cells of c in other batches, s = (o - a) / max(a, o), and its score 1 - |s|: in [0, 1],
and 1 for the only cell of (c, b) and where a and o are 0. BRAS is the mean over labels of the mean
over their cells; labels of one batch, or of as many batches as cells, are skipped. The source is
scib-metrics' `bras` with `metric="cosine"` and `between_cluster_distances="mean_other"`.

`other="pooled"`, the default and what that does, takes the mean o over all cells of c outside b;
`other="batches"` the mean over those batches of their mean distances.

No pair of cells is measured. Distances of unit vectors u are |u - w|^2 / 2, so the mean distance to
a (label, batch) follows from its mean vector and mean squared distance from that: two passes,
O(n D) time. They are summed in float64 about the first row of the label, and put together without
taking a large number off another one, so a narrow label is as exact anywhere as float64 unit
vectors allow: in a cone of width w a score is off by some 1e-16 / w. Sums are taken on a fixed grid
of rows: chunks, threads and workers cannot move a bit. Mean distances below 1e-12 are 0.

Memory: 16 (D + 2) bytes for every (label, batch) that occurs, see :func:`bras_bytes`.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from croma_dask.cluster import for_client, tasks_a_process, workers_of
from croma_dask.embedding.bras_cells import Cells, cell_means
from croma_dask.embedding.moments import moment_bytes, tasks_that_fit
from croma_dask.embedding.outcome import Outcome
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
from croma_dask.index.source import RowSource
from croma_dask.kernels.bras import merge_others, score_rows
from croma_dask.kernels.screen_euclidean import native
from croma_dask.kernels.typing import F64, I32
from croma_dask.options import Options

__all__ = ["BRAS_DEFINITION", "Other", "bras", "bras_bytes"]

Other: TypeAlias = Literal["pooled", "batches"]
"""How the other batches of a label count."""

BRAS_DEFINITION = "bras_definition=cosine_mean_other"
"""What every note of BRAS ends with: readers of the tables look for it."""

_CELL_OF_ROW = 56
"""Bytes a row of codes while they are sorted, or of scores while they are averaged."""


def bras(
    source: RowSource, labels: I32, batches: I32, *, other: Other = "pooled", options: Options,
    client: Any = None, n_tasks: int | None = None, fixed: int = 0,
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
        Memory, threads, progress; cluster to run on (None: threads), and tasks at once in a process
        (None: ask it).
    fixed
        Bytes that the process holds besides.

    Returns
    -------
    outcome, scores
        BRAS, undefined with fewer than two cells or batches, or where every label is skipped; and
        (n,) float64 score of each cell, NaN where its label is skipped.

    Raises
    ------
    SchemaError
        Labels or batches do not fit the rows, a row holds NaN or inf, or is no longer than 1e-12.
    MemoryLimitError
        The allowed memory does not hold the sums by label and batch, or not even one task.
    """
    n, d = source.n_rows, source.n_features
    if other not in ("pooled", "batches"):
        raise SchemaError(f"other={other!r}: expected 'pooled' or 'batches'")
    if labels.shape != (n,) or batches.shape != (n,):
        raise SchemaError(f"expected {n} labels and batches, found {labels.shape}, {batches.shape}")
    if n < 2:
        return _undefined("fewer than two cells", "insufficient_cells", other), np.full(n, np.nan)
    if np.unique(batches).size < 2:
        reason = _undefined("fewer than two batches", "insufficient_batches", other)
        return reason, np.full(n, np.nan)
    # What is one task is done here.
    client = client if n > SPAN_ROWS else None
    options = for_client(options, client)
    cells = Cells.of(labels, batches)
    n_cells, n_labels, n_workers = cells.size.size, cells.scored.size, workers_of(client)

    def bytes_of(n_tasks: int) -> dict[str, int]:
        return bras_bytes(
            n, d, n_cells, n_labels, source.dtype, step=source.step, n_tasks=n_tasks,
            n_workers=n_workers,
        )  # fmt: skip

    wanted = n_tasks or tasks_a_process(client, options)
    # Workers run as many tasks as they have threads.
    least = 1 if client is None else wanted
    n_tasks = tasks_that_fit("BRAS", bytes_of, options, wanted, least=least, fixed=fixed)
    run: dict[str, Any] = {"options": options, "client": client, "n_tasks": n_tasks}
    scores = np.empty(n)
    with contextlib.ExitStack() as keep:
        folder = folder_for(client, options, keep)
        rows, column = by_reference(source, folder), keep_column(cells.of_row, "cells", folder)
        mean, spread = cell_means(source, rows, labels, cells, column, folder, run, n_workers)
        weight = cells.size.astype(np.float64) if other == "pooled" else np.ones(n_cells)
        others, other_spread = np.empty_like(mean), np.empty(n_cells)
        merge_others(cells.label, weight, mean, spread, others, other_spread)
        tables = {
            "size": cells.size, "own_mean": mean, "own_spread": spread, "other_mean": others,
            "other_spread": other_spread,
        }  # fmt: skip
        kept = {name: keep_column(table, name, folder) for name, table in tables.items()}
        scoring = Scoring(rows, column, **kept)
        at = 0
        for part in over_spans(_score_span, scoring, n, name="BRAS", **run):
            scores[at : at + part.size] = part
            at += part.size
    scores[~cells.scored[labels]] = np.nan
    return _outcome(scores, labels, cells, other), scores


def bras_bytes(
    n_rows: int, n_features: int, n_cells: int, n_labels: int, dtype: Any = np.float32, *,
    step: int = 4096, n_tasks: int = 1, n_workers: int = 1,
) -> dict[str, int]:  # fmt: skip
    """Bytes that a process takes for BRAS, by name, beside the libraries.

    Parameters
    ----------
    n_rows, n_features, dtype, step
        Of the rows; `step` of them are read together.
    n_cells, n_labels
        Pairs of label and batch that occur (`Cells` of bras_cells.py), and labels.
    n_tasks, n_workers
        Tasks at once in a process, and processes.
    """
    terms = moment_bytes(
        n_rows, n_features, n_cells, dtype, step=step, n_tasks=n_tasks, n_workers=n_workers
    )
    first = terms.pop("sums of the tasks")
    return {
        "codes and scores": _CELL_OF_ROW * n_rows,
        # Spreads, weights and sizes, too.
        "sums by label and batch": n_cells * (8 * n_features + 64) + 8 * n_labels * n_features,
        "sums of the tasks, then of other batches": max(first, n_cells * (8 * n_features + 8)),
        **terms,
    }


@dataclass(frozen=True)
class Scoring:
    """What the second pass needs; tables as of :func:`croma_dask.kernels.bras.score_rows`."""

    rows: RowSource
    cells: Column
    size: Column
    own_mean: Column
    own_spread: Column
    other_mean: Column
    other_spread: Column


def _score_span(scoring: Scoring, lo: int, hi: int) -> F64:
    d = scoring.rows.n_features
    own, other = (t.whole().reshape(-1, d) for t in (scoring.own_mean, scoring.other_mean))
    found = np.empty(hi - lo)
    for a, b in blocks(lo, hi, rows_at_once(scoring.rows)):
        score_rows(
            native(scoring.rows.read(a, b)), scoring.cells.read(a, b), scoring.size.whole(), own,
            scoring.own_spread.whole(), other, scoring.other_spread.whole(), found[a - lo : b - lo],
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
    note = f"average=labels;other={other};skipped_labels={skipped};{BRAS_DEFINITION}"
    return Outcome(math.fsum(means) / len(means), note)


def _undefined(reason: str, word: str, other: Other) -> Outcome:
    note = f"{word};average=labels;other={other};{BRAS_DEFINITION}"
    return Outcome.undefined(f"BRAS: {reason}", note)
