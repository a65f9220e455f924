"""The first pass of BRAS: mean and spread of the unit vectors of every (label, batch).

Unit vectors are summed less that of the first row of their label: what is left of them is as small
as the label is narrow, and keeps the digits that tell its rows apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.embedding.moments import Adding, Bad, add_up
from croma_dask.embedding.spans import Column, blocks, keep_column
from croma_dask.errors import SchemaError, name_rows
from croma_dask.index.source import RowSource, TakenRows
from croma_dask.kernels.bras import NOT_FINITE, TOO_SHORT, add_units
from croma_dask.kernels.screen_euclidean import native
from croma_dask.kernels.typing import F64, I32, I64

__all__ = ["Cells", "cell_means"]

FAULTS = {NOT_FINITE: "NaN or inf in", TOO_SHORT: "no direction (a length of at most 1e-12) in"}


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
class AddingUnits(Adding):
    """What the first pass adds up: unit vectors, less an origin for each label.

    Attributes
    ----------
    origins, label
        (labels, D) origins, and (C,) label of each cell.
    """

    origins: Column
    label: Column

    def add(
        self, x: np.ndarray[Any, Any], groups: I32, place: I32, total: F64, square: F64
    ) -> dict[int, I64]:
        """Add the rows of a block; see :class:`croma_dask.embedding.moments.Adding`."""
        fault = np.empty(x.shape[0], np.int32)
        origins = self.origins.whole().reshape(-1, x.shape[1])
        add_units(native(x), origins, self.label.whole()[groups], place, total, square, fault)
        return {kind: np.flatnonzero(fault == kind) for kind in FAULTS}


def cell_means(
    source: RowSource, rows: RowSource, labels: I32, cells: Cells, column: Column,
    folder: str | None, run: Mapping[str, Any], n_workers: int,
) -> tuple[F64, F64]:  # fmt: skip
    """Compute mean and spread of the unit vectors of each cell.

    Parameters
    ----------
    source, rows
        Rows, as they are and as workers see them.
    labels, cells, column
        (n,) label of each row; the cells, and the cell of each row as workers see it.
    folder
        For what workers are to read; None where there are none.
    run, n_workers
        As of :func:`croma_dask.embedding.moments.add_up`.

    Returns
    -------
    mean, spread
        (C, D), and (C,) mean squared distance from it.

    Raises
    ------
    SchemaError
        A row holds NaN or inf, or is no longer than 1e-12.
    """
    origins = _first_units(source, labels, cells.scored.size)
    adding = AddingUnits(
        rows, column, keep_column(origins, "origins", folder),
        keep_column(cells.label.astype(np.int32), "labels", folder),
    )  # fmt: skip
    name, n_cells = "BRAS sums", cells.size.size
    total, square, bad = add_up(adding, n_cells, name=name, n_workers=n_workers, **run)
    _refuse(bad, source.n_rows)
    return _centred(total, square, origins, cells)


def _first_units(source: RowSource, labels: I32, n_labels: int) -> F64:
    """(labels, D) unit vector of the first row of each label; zeros where there is none."""
    found, first = np.unique(labels, return_index=True)
    if isinstance(source, TakenRows):
        # Straight from where they lie: a block of rows may be taken from everywhere.
        first = source.rows[first]
        source = source.source
    out = np.zeros((n_labels, source.n_features))
    taken = TakenRows(source, first)
    for a, b in blocks(0, first.size):
        # As the sum of a cell of its own.
        rows, none = np.zeros((b - a, source.n_features)), np.zeros(b - a, np.int32)
        each = np.arange(b - a, dtype=np.int32)
        x = native(taken.read(a, b))
        add_units(x, rows[:1].copy(), none, each, rows, np.zeros(b - a), none.copy())
        out[found[a:b]] = rows
    return out


def _refuse(bad: Mapping[int, Bad], n_rows: int) -> None:
    for kind, what in FAULTS.items():
        rows = bad.get(kind, Bad())
        if rows.count:
            raise SchemaError(
                f"the embedding has {what} {name_rows(rows.first, total=rows.count)} ({rows.count} "
                f"of {n_rows}), and cosine distances need directions; leave these rows out or "
                "embed them again"
            )


def _centred(total: F64, square: F64, origins: F64, cells: Cells) -> tuple[F64, F64]:
    """Mean unit vector of each cell, and mean squared distance from it; `total` is written over."""
    total /= cells.size[:, None]
    spread = square / cells.size - np.einsum("cf,cf->c", total, total)
    for a, b in blocks(0, spread.size):
        total[a:b] += origins[cells.label[a:b]]
    return total, np.maximum(spread, 0.0)
