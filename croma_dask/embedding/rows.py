"""Which rows of a cohort the metrics of labels and those of batches are computed on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.manifest import Coded, id_length
from croma_dask.cohort.store import StoredCohort
from croma_dask.cohort.text import factorize_text, to_text
from croma_dask.embedding.subsample import stratified_subsample, subsample_note
from croma_dask.errors import InputWarning, SchemaError, name_items, name_rows, warn

__all__ = ["GroupRows", "MissingBatches", "Rows", "check_columns", "choose_rows", "read_text"]

I64 = NDArray[np.int64]

MissingBatches: TypeAlias = Literal["batch_metrics", "all_metrics"]


@dataclass(frozen=True)
class GroupRows:
    """Rows that a group of metrics is computed on: the labelled ones, those with a batch, a sample.

    Attributes
    ----------
    rows
        (n,) rows of the manifest, ascending; None for all of them.
    label
        Labels of these rows; names are those that occur among them.
    batch
        Batches; None where no metric of the group looks at them.
    note
        How the rows were drawn, where they are a sample.
    """

    rows: I64 | None
    label: Coded
    batch: Coded | None = None
    note: str = ""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.label.codes.shape[0])

    def same_rows(self, other: GroupRows) -> bool:
        """Whether two groups are of the same rows."""
        if self.rows is None or other.rows is None:
            return self.rows is other.rows
        return np.array_equal(self.rows, other.rows)


@dataclass(frozen=True)
class Rows:
    """Rows of both groups.

    Attributes
    ----------
    n_rows
        Rows of the manifest.
    bio, batch
        Rows of the metrics of labels, and of batches; None where none was asked for.
    id_length, n_columns
        Characters of an id, on average, and columns, of a store.
    """

    n_rows: int
    bio: GroupRows | None
    batch: GroupRows | None
    id_length: float
    n_columns: int


def choose_rows(
    manifest: Any, label: str, batch: str | None, *, bio: bool, mixing: bool,
    missing_batches: MissingBatches = "batch_metrics", batch_max_cells: int = 0,
) -> Rows:  # fmt: skip
    """Choose the rows of both groups: labels are needed by all, batches by those that mix.

    Parameters
    ----------
    manifest
        Frame, mapping of columns, or a :class:`StoredCohort`.
    label, batch
        Columns; no batch where neither metrics nor `missing_batches` look at it.
    bio, mixing
        Which groups of metrics are wanted.
    missing_batches
        What a row without batch is left out of: the ``batch_metrics``, or ``all_metrics``.
    batch_max_cells
        Draw a sample of so many rows for the metrics of batches; 0 takes all.

    Raises
    ------
    SchemaError
        A column is not there, label and batch are one column, or no row has a label.

    Warns
    -----
    InputWarning
        Rows without label or batch are left out.
    """
    check_columns(manifest.columns, label, batch)
    labels, names = _codes(manifest, label)
    n = int(labels.shape[0])
    has_label = labels >= 0
    _tell(~has_label, label, "all metrics")
    batches = batch_names = None
    if batch is not None:
        batches, batch_names = _codes(manifest, batch)
        without = has_label & (batches < 0)
        what = "all metrics" if missing_batches == "all_metrics" else "the metrics of batches"
        _tell(without, batch, what)
    if not has_label.any():
        raise SchemaError(f"column {label!r} is missing or blank in all {n} rows")
    bio_rows = mixing_rows = None
    if bio:
        used = has_label
        if batches is not None and missing_batches == "all_metrics":
            used = used & (batches >= 0)
        bio_rows = GroupRows(_rows(used), _taken(labels, names, used))
    if mixing and batches is not None and batch_names is not None:
        used = has_label & (batches >= 0)
        mixing_rows = GroupRows(
            _rows(used), _taken(labels, names, used), _taken(batches, batch_names, used)
        )
        mixing_rows = _sampled(mixing_rows, batch_max_cells)
    n_columns = len(manifest.columns) if isinstance(manifest, StoredCohort) else 0
    return Rows(n, bio_rows, mixing_rows, id_length(manifest, "sample_id"), n_columns)


def read_text(
    manifest: Any, column: str | None, *, told: bool = False
) -> Callable[[int, int], NDArray[np.object_]]:
    """Return what reads a column of rows lo..hi as text; row numbers where there is no such column.

    Missing cells are ``""``. What a column has to be warned of is not said again where it was told.
    """
    stored = isinstance(manifest, StoredCohort)
    if column is None or column not in list(manifest.columns):

        def number(lo: int, hi: int) -> NDArray[np.object_]:
            return np.array([str(row) for row in range(lo, hi)], object)

        return number
    if stored:

        def read(lo: int, hi: int) -> NDArray[np.object_]:
            found: NDArray[np.object_] = manifest.text(column, lo, hi)
            return found

        return read
    with warnings.catch_warnings():
        if told:
            warnings.simplefilter("ignore", InputWarning)
        texts = to_text(manifest[column], column)
    return lambda lo, hi: texts[lo:hi]


def _sampled(group: GroupRows, most: int) -> GroupRows:
    assert group.batch is not None
    # Of one batch nothing is computed: its rows are counted as they are.
    if not 0 < most < group.n_rows or len(group.batch.names) < 2:
        return group
    taken = stratified_subsample(group.label.codes, group.batch.codes, most)
    used = np.zeros(group.n_rows, bool)
    used[taken] = True
    rows = taken if group.rows is None else group.rows[taken]
    return GroupRows(
        rows, _taken(group.label.codes, group.label.names, used),
        _taken(group.batch.codes, group.batch.names, used),
        subsample_note(group.n_rows, int(taken.size)),
    )  # fmt: skip


def check_columns(columns: Iterable[Any], label: str, batch: str | None, whose: str = "") -> None:
    """Refuse a manifest that lacks the columns of labels or batches.

    Parameters
    ----------
    columns
        Names of those that there are.
    label, batch
        Those that are needed.
    whose
        What the message begins with.

    Raises
    ------
    SchemaError
        A column is not there, or label and batch are one column.
    """
    names = [str(column) for column in columns]
    wanted = [label] if batch is None else [label, batch]
    if len(set(wanted)) < len(wanted):
        raise SchemaError(f"label and batch are columns of their own, found {name_items(wanted)}")
    absent = [column for column in wanted if column not in names]
    if absent:
        raise SchemaError(
            f"{whose}there is no column {name_items(absent)} (there are "
            f"{name_items(names, limit=20)}): name the columns as label= and batch= (--label-key, "
            "--batch-key)"
        )


def _codes(manifest: Any, column: str) -> tuple[NDArray[np.int32], list[str]]:
    if isinstance(manifest, StoredCohort):
        return manifest.codes(column)
    return factorize_text(manifest[column], column)


def _tell(missing: NDArray[np.bool_], column: str, what: str) -> None:
    rows = np.flatnonzero(missing)
    if rows.size:
        warn(
            f"column {column!r} is missing or blank in {name_rows(rows)} ({rows.size} of "
            f"{missing.size}): these rows are left out of {what}",
            InputWarning,
        )


def _rows(used: NDArray[np.bool_]) -> I64 | None:
    return None if used.all() else np.flatnonzero(used)


def _taken(codes: NDArray[np.int32], names: list[str], used: NDArray[np.bool_]) -> Coded:
    """Codes of some rows, numbered anew over the names that occur among them."""
    mine = codes[used]
    occurs = np.bincount(mine, minlength=len(names)) > 0
    renumbered = np.where(occurs, np.cumsum(occurs) - 1, -1).astype(np.int32)
    return Coded(
        renumbered[mine], [name for name, is_there in zip(names, occurs, strict=True) if is_there]
    )
