"""How a sweep fits a memory: what its tasks hold, what is read, and what that leaves undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask import markup
from croma_dask.errors import MemoryLimitError
from croma_dask.memory import LIBRARIES, allowed_bytes, columns_bytes, format_bytes
from croma_dask.options import Options
from croma_dask.probe.cut import Cut
from croma_dask.probe.fit import C_GRID
from croma_dask.probe.job import BLOCK_ROWS

__all__ = ["SweepLayout", "lay_out_sweep", "spans_of"]

_SCIKIT = 60 << 20
"""scikit-learn and scipy, beside `LIBRARIES` (measured)."""

_SPAN = 16 * BLOCK_ROWS
"""Rows of a test set that a task scores; more in large ones, so that there are few tasks."""

_SPANS = 256

_SECONDS_A_BYTE = 3e-9
"""Of a training matrix, for one fit whose classes overlap (measured, benchmarks/README.md)."""

_SECONDS_A_FIT = 6e-3
"""Of the smallest ones (measured on the demo store)."""


@dataclass(frozen=True, repr=False)
class SweepLayout:
    """What a sweep will cost.

    Attributes
    ----------
    n_rows, n_features, n_splits, iterations, n_fits
        Rows of the sweep, length of a row, splits, replicates, and fits at most.
    most
        Replicates whose rows a process holds at once; 0: every probe reads its own rows.
    tasks_at_once
        Probes that a process fits at once.
    n_tasks
        Tasks of fitting and of scoring.
    bytes_read
        Bytes of embedding read.
    peak, allowed
        Bytes that a process takes above the bare one at the worst moment, and that it may take.
    terms
        What the peak consists of.
    seconds
        Rough estimate; an upper one where classes are easily told apart.
    """

    n_rows: int
    n_features: int
    n_splits: int
    iterations: int
    n_fits: int
    most: int
    tasks_at_once: int
    n_tasks: int
    bytes_read: int
    peak: int
    allowed: int
    terms: dict[str, int]
    seconds: float

    def _rows(self) -> list[tuple[str, str]]:
        terms = ", ".join(f"{k} {format_bytes(v)}" for k, v in self.terms.items())
        reading = (
            "the rows of a replicate once"
            if self.most
            else "each probe its own rows (little memory)"
        )
        return [
            ("rows", f"{self.n_rows:,} x {self.n_features:,}"),
            ("probes", f"{self.n_splits} splits x {self.iterations} replicates, "
                       f"{self.n_fits:,} fits at most"),
            ("tasks", f"{self.n_tasks:,}, {self.tasks_at_once} at once in a process"),
            ("disk", f"reads {format_bytes(self.bytes_read)}: {reading}, test rows once"),
            ("memory", f"{format_bytes(self.peak)} of {format_bytes(self.allowed)} allowed "
                       f"({terms})"),
            ("time", f"up to about {self.seconds:,.0f} s; less where C is settled early"),
        ]  # fmt: skip

    def __repr__(self) -> str:
        # What an interactive prompt shows: the table, not eight hundred characters of fields.
        return str(self)

    def __str__(self) -> str:
        """Lay the plan out as a table for people."""
        return "\n".join(f"{name:<9}{text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        """Lay the plan out for a notebook."""
        sentence = (
            f"{self.n_splits * self.iterations:,} probes: up to about {self.seconds:,.0f} s, "
            f"{format_bytes(self.peak)} of memory; nothing has been run."
        )
        return markup.facts(self._rows(), title="Plan of a probe sweep", sentence=sentence)


def spans_of(n_rows: int) -> list[int]:
    """Cut a test set into spans that are scored by a task each; no option moves them."""
    return list(range(0, n_rows, _span(n_rows)))


def _span(n_rows: int) -> int:
    return max(_SPAN, -(-n_rows // _SPANS // BLOCK_ROWS) * BLOCK_ROWS)


def lay_out_sweep(
    source: Any, tests: Sequence[Any], cut: Cut, sizes: Any, options: Options, *,
    iterations: int, n_tasks: int, n_workers: int, step: int, itemsize: int,
    in_memory: bool = False, n_columns: int = 0,
) -> SweepLayout:  # fmt: skip
    """Choose how many replicates' rows a process holds, and say what that takes.

    Parameters
    ----------
    source, tests
        Rows of the sweep and of its test sets; the first has `n_rows` and `n_features`.
    cut, sizes
        Rows of every split, and (n_confounders, n_classes) rows of every cell.
    options
        The allowed memory.
    iterations, n_tasks, n_workers
        Replicates; tasks at once in a process; processes.
    step, itemsize
        Rows of a chunk, and bytes of a value as it is read.
    in_memory
        Whether the caller holds the rows in memory: nothing is gained by holding them twice.
    n_columns
        Columns of the store, all of which are known once it is open.

    Raises
    ------
    MemoryLimitError
        A single probe does not fit.
    """
    d = int(source.n_features)
    rows = [sum(c.take + c.reserve for c in split) for split in cut.cells]
    reach: dict[tuple[int, int], int] = {}
    for split in cut.cells:
        for c in split:
            cell = (c.confounder, c.label)
            reach[cell] = max(reach.get(cell, 0), c.take + c.reserve)
    front = sum(reach.values())
    largest = max(rows)
    allowed = allowed_bytes(options.memory)
    classes = int(np.asarray(sizes).shape[1])
    chunk = min(step, source.n_rows) * d * itemsize
    each = largest * d * (8 + itemsize) + largest * (24 + 32 * classes)
    block = BLOCK_ROWS * d * (8 + itemsize) + chunk
    # The order of a replicate: rows and their classes, which this process holds of all of them, and
    # a task of one, with places and what of it is used.
    order = sum(min(max(cut.first_held_out), int(s)) for s in np.ravel(sizes))
    held = 16 * iterations * order
    probes = iterations * cut.n_splits * classes * d * 8
    marks = iterations * len(set(cut.first_held_out)) * min(_span(source.n_rows), source.n_rows)
    terms = {
        "libraries": LIBRARIES + _SCIKIT,
        "orders and labels": held + 48 * source.n_rows + 12 * sum(t.n_rows for t in tests),
        "columns": columns_bytes(n_columns),
        "training": n_tasks * (40 * order + max(each + chunk, block + probes + marks)),
        "replicates": 0,
    }
    most = 0
    if not in_memory:
        most = -(-n_tasks // cut.n_splits) + 1
        terms["replicates"] = most * front * d * itemsize
        if sum(terms.values()) > allowed:
            most, terms["replicates"] = 0, 0
    peak = sum(terms.values())
    if peak > allowed:
        worst = int(np.argmax(rows))
        raise MemoryLimitError(
            f"the sweep takes {format_bytes(peak)} above the bare process and may take "
            f"{format_bytes(allowed)}: the largest split ({worst}) trains and validates on "
            f"{largest} rows x {d} features in float64, {n_tasks} at once; raise memory= "
            f"(--memory) to {format_bytes(peak * 1.01)}, lower threads=, or train on fewer rows"
        )
    total = sum(rows) * iterations
    n_fits = cut.n_splits * iterations * C_GRID.size
    work = total * d * 8 * _SECONDS_A_BYTE * C_GRID.size + n_fits * _SECONDS_A_FIT
    n_scored = sum(len(spans_of(t.n_rows)) for t in (source, *tests))
    read = (front if most else sum(rows)) * iterations + source.n_rows
    return SweepLayout(
        n_rows=int(source.n_rows), n_features=d, n_splits=cut.n_splits, iterations=iterations,
        n_fits=n_fits, most=most, tasks_at_once=n_tasks,
        n_tasks=cut.n_splits * iterations + n_scored,
        bytes_read=(read + sum(t.n_rows for t in tests)) * d * itemsize,
        peak=peak, allowed=allowed, terms={k: v for k, v in terms.items() if v},
        seconds=work / (n_tasks * max(n_workers, 1)),
    )  # fmt: skip
