"""The manifest contract of scoring: which columns there must be, and what they may hold."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask import memory
from croma_dask.cohort.store import StoredCohort
from croma_dask.cohort.text import as_frame, factorize_text, to_text
from croma_dask.errors import SchemaError, name_items, name_rows

__all__ = [
    "Coded",
    "ColumnNames",
    "Manifest",
    "id_blocks",
    "id_length",
    "read_columns",
    "read_manifest",
]

_HASH_BLOCK = 1 << 18
"""Ids that are looked at together, unless they are long."""

_LENGTH_OF = 256
"""Ids whose length is looked at."""

_ENOUGH = 1000
"""Repeated ids after which no more are looked for."""


@dataclass(frozen=True)
class ColumnNames:
    """Which columns of a manifest hold what.

    Attributes
    ----------
    confounder
        The confounder column; it has no default.
    label, group, sample_id, subset
        The other key columns.
    """

    confounder: str
    label: str = "label"
    group: str = "group_id"
    sample_id: str = "sample_id"
    subset: str = "subset"


@dataclass(frozen=True)
class Coded:
    """A complete text column: codes with names.

    Attributes
    ----------
    codes
        (n,) int32, none missing.
    names
        Observed values, sorted.
    """

    codes: NDArray[np.int32]
    names: list[str]

    def text(self) -> NDArray[np.object_]:
        """Return (n,) text; equal values share one string."""
        table = np.empty(len(self.names), dtype=object)
        table[:] = self.names
        found: NDArray[np.object_] = table[self.codes]
        return found


@dataclass(frozen=True)
class Manifest:
    """A manifest that has passed the contract.

    Attributes
    ----------
    n_rows
        Manifest rows; under ``paired_2x2`` one row is one occurrence.
    label, confounder, group
        Key columns.
    subset
        Subset of each row, None under the design ``all``.
    sample_id
        Ids of rows lo..hi as text, read when asked for.
    names
        Where the columns came from.
    dataset
        What the manifest calls the cohort.
    id_length
        Characters of an id: the mean of the first ones of a store. Those of a frame are held by
        whoever has the frame, and count as short.
    n_columns
        Columns of the store, all of which are known once it is open; 0 of a frame.
    """

    n_rows: int
    label: Coded
    confounder: Coded
    group: Coded
    subset: Coded | None
    sample_id: Callable[[int, int], NDArray[np.object_]]
    names: ColumnNames
    dataset: str
    id_length: float = memory.ID_LENGTH
    n_columns: int = 0

    def held_bytes(self, n_scores: int) -> int:
        """Bytes that the driver holds of the manifest and of so many values of every row."""
        return memory.manifest_bytes(
            self.n_rows, n_scores=n_scores, id_length=self.id_length, n_columns=self.n_columns
        )

    def id_blocks(self) -> Iterator[tuple[int, int]]:
        """Rows lo..hi whose ids are read together."""
        return id_blocks(self.n_rows, self.id_length)


def id_length(frame: Any, column: str) -> float:
    """Characters of an id: the mean of the first ones of a store."""
    if not isinstance(frame, StoredCohort) or column not in frame.columns or not frame.n_samples:
        return memory.ID_LENGTH
    first = frame.text(column, 0, min(frame.n_samples, _LENGTH_OF))
    return sum(map(len, first)) / len(first)


def id_blocks(n_rows: int, id_length: float, most: int = _HASH_BLOCK) -> Iterator[tuple[int, int]]:
    """Cut rows into parts of `most`, or of so many that their ids take `memory.TEXT_BLOCK`."""
    step = max(1, min(most, memory.TEXT_BLOCK // memory.id_bytes(1, id_length)))
    return ((lo, min(n_rows, lo + step)) for lo in range(0, n_rows, step))


def read_manifest(
    manifest: Any, names: ColumnNames, *, paired: bool, check_ids: bool = True
) -> Manifest:
    """Check a manifest and take what scoring needs of it.

    Parameters
    ----------
    manifest
        Data frame, anything that exports arrow, a mapping of columns, or a :class:`StoredCohort`.
    names
        Names of the key columns.
    paired
        Whether the design needs a subset column.
    check_ids
        Whether ids are read and checked; of ten million that takes a while.

    Raises
    ------
    SchemaError
        A column is not there, a key cell is missing (first five rows and how many), ids repeat,
        there are no rows, or all rows share one label or one confounder level.
    """
    stored = isinstance(manifest, StoredCohort)
    frame: Any = manifest if stored else as_frame(manifest)
    columns = list(frame.columns)
    n_rows = int(frame.n_samples if stored else len(frame))
    wanted = [names.sample_id, names.label, names.group, names.confounder]
    _check_present(columns, [*wanted, names.subset] if paired else wanted, names)
    if n_rows == 0:
        raise SchemaError("the manifest has 0 rows; nothing can be scored")

    if names.confounder in (names.label, names.group):
        what = "label" if names.confounder == names.label else "group"
        raise SchemaError(
            f"column {names.confounder!r} is named as confounder and as {what}; the confounder "
            "is a column of its own"
        )

    label, group = _coded(frame, names.label), _coded(frame, names.group)
    confounder = _coded(frame, names.confounder)
    subset = _coded(frame, names.subset) if paired else None
    sample_id = _ids_of(frame, names.sample_id, stored)
    length = id_length(frame, names.sample_id)
    if check_ids:
        _check_ids(sample_id, subset, n_rows, names, length)
    for what, column, name in (
        ("label", label, names.label),
        ("confounder level", confounder, names.confounder),
    ):
        if len(column.names) < 2:
            raise SchemaError(
                f"every row has the {what} {name_items(column.names)} (column {name!r}): with only "
                f"one {what} no neighbour can tell biology from the confounder; at least 2 are "
                "needed"
            )
    return Manifest(
        n_rows, label, confounder, group, subset, sample_id, names,
        _dataset(frame, columns, stored), length, len(columns) if stored else 0,
    )  # fmt: skip


def read_columns(manifest: Any, columns: Sequence[str]) -> list[Coded]:
    """Read some complete columns of a manifest.

    Raises
    ------
    SchemaError
        A column is not there, or a cell of it is missing.
    """
    frame: Any = manifest if isinstance(manifest, StoredCohort) else as_frame(manifest)
    _check_present(list(frame.columns), columns, ColumnNames(""))
    return [_coded(frame, column) for column in columns]


def _coded(frame: Any, column: str) -> Coded:
    stored = isinstance(frame, StoredCohort)
    codes, levels = frame.codes(column) if stored else factorize_text(frame[column], column)
    missing = np.flatnonzero(codes < 0)
    if missing.size:
        raise SchemaError(
            f"column {column!r} is missing or blank in {name_rows(missing)} "
            f"({missing.size} of {codes.shape[0]}); fill the cells or leave these rows out"
        )
    return Coded(codes, levels)


def _ids_of(frame: Any, column: str, stored: bool) -> Callable[[int, int], NDArray[np.object_]]:
    """Return what reads the ids of rows lo..hi: from the store, or from memory."""
    if stored:
        return functools.partial(frame.text, column)
    ids = to_text(frame[column], column)

    def read(lo: int, hi: int) -> NDArray[np.object_]:
        return ids[lo:hi]

    return read


def _check_present(columns: Sequence[str], wanted: Sequence[str], names: ColumnNames) -> None:
    # A column may be wanted twice, as when the label's is named as confounder.
    absent = [column for column in dict.fromkeys(wanted) if column not in columns]
    if not absent:
        return
    roles = [
        f"the {role} ({role}=, --{role})"
        for role, column in (("label", names.label), ("group", names.group))
        if column in absent
    ]
    hint = (
        f"; say which column is {' and which is '.join(roles)}, or rename it; a store may be "
        "ingested again with that and overwrite=True (--overwrite)"
        if roles
        else ""
    )
    if names.group in absent and names.label not in absent and "slide_id" in columns:
        hint = (
            "; it has 'slide_id': rename that column to "
            f"{names.group!r} or name it with group='slide_id' (--group slide_id)"
        )
    raise SchemaError(
        f"the manifest has no column {name_items(absent)} (it has {name_items(columns, limit=20)})"
        + hint
    )


def _check_ids(
    sample_id: Callable[[int, int], NDArray[np.object_]],
    subset: Coded | None,
    n_rows: int,
    names: ColumnNames,
    id_length: float,
) -> None:
    """Refuse empty ids, and ids that repeat within a subset (or at all).

    Ids are compared by 64-bit hashes first, so that ten million of them cost 80 MB and not a
    set of strings; only rows whose hashes collide are compared as text.
    """
    import pandas as pd

    hashes = np.empty(n_rows, np.uint64)
    for lo, hi in id_blocks(n_rows, id_length):
        ids = sample_id(lo, hi)
        blank = np.flatnonzero(ids == "")
        if blank.size:
            raise SchemaError(
                f"column {names.sample_id!r} is missing or blank in {name_rows(lo + blank)}"
            )
        hashes[lo:hi] = pd.util.hash_array(ids, categorize=False)
    if subset is not None:
        # A multiplication by an odd constant keeps the hashes of one subset apart from another's.
        with np.errstate(over="ignore"):
            hashes += subset.codes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    order = np.argsort(hashes, kind="stable")
    twin = hashes[order][1:] == hashes[order][:-1]
    if not twin.any():
        return
    suspects = np.unique(np.concatenate([order[1:][twin], order[:-1][twin]]))
    seen: set[tuple[str, int]] = set()
    repeated: dict[str, int] = {}
    for lo, hi in id_blocks(n_rows, id_length):
        mine = suspects[(suspects >= lo) & (suspects < hi)]
        if not mine.size:
            continue
        ids = sample_id(lo, hi)
        for row in mine:
            key = (str(ids[row - lo]), int(subset.codes[row]) if subset is not None else 0)
            if key in seen:
                repeated.setdefault(key[0], int(row))
            seen.add(key)
        if len(repeated) > _ENOUGH:
            break
    if repeated:
        where = "within a subset" if subset is not None else "in the manifest"
        advice = (
            "every occurrence in a subset must be one row"
            if subset is not None
            else "under the design 'all' a sample is one row (did you mean design='paired_2x2'?)"
        )
        raise SchemaError(
            f"column {names.sample_id!r} repeats {name_items(sorted(repeated))} {where} "
            f"({name_rows(sorted(repeated.values()))}); {advice}"
        )


def _dataset(frame: Any, columns: Sequence[str], stored: bool) -> str:
    """Name of the cohort: the `dataset` column where it says one thing."""
    if "dataset" not in columns:
        return "dataset"
    _, names = frame.codes("dataset") if stored else factorize_text(frame["dataset"], "dataset")
    return ", ".join(names[:5]) if names else "dataset"
