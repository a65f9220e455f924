"""Whether two cohorts, or two results, are of the same rows in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.manifest import Coded, Manifest
from croma_dask.errors import InputWarning, SchemaError, name_items, warn
from croma_dask.schema import text_array

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Rows",
    "check_same_rows",
    "rows_of_manifest",
    "rows_of_result",
    "same_embeddings",
    "warn_same_embeddings",
]

Text = Callable[[int, int], NDArray[np.object_]]
"""Reads a column of rows lo..hi as text."""

_BLOCK = 1 << 18
"""Rows that are compared at once: ids of ten million are never held together."""

_SHOWN = 5

_ADVICE = "all models of a panel are scored on the same rows in the same order"


@dataclass(frozen=True)
class Rows:
    """What names and types the rows of a cohort or of a result.

    Attributes
    ----------
    name
        What its model is called.
    n_rows
        Number of rows.
    columns
        Column name (as its owner knows it) to what reads its text; the ids come first.
    fingerprints
        Column name to a fingerprint of that column; "" or absent where there is none. Columns of
        equal fingerprint are equal; those of different ones may still be.
    """

    name: str
    n_rows: int
    columns: Mapping[str, Text]
    fingerprints: Mapping[str, str] = field(default_factory=dict)


def rows_of_manifest(name: str, manifest: Manifest, fingerprint: str = "") -> Rows:
    """Rows of a cohort that is open.

    Parameters
    ----------
    name
        What its model is called.
    manifest
        Its manifest, as it will be scored.
    fingerprint
        Of all columns together, where the store has one.
    """
    names = manifest.names
    columns: dict[str, Text] = {names.sample_id: manifest.sample_id}
    for column, coded in (
        (names.label, manifest.label), (names.group, manifest.group),
        (names.confounder, manifest.confounder), (names.subset, manifest.subset),
    ):  # fmt: skip
        if coded is not None and column not in columns:
            columns[column] = _text_of(coded)
    return Rows(name, manifest.n_rows, columns, dict.fromkeys(columns, fingerprint))


def rows_of_result(name: str, dataset: xr.Dataset) -> Rows:
    """Rows of a result of one metric, whose ids may be lazy."""

    def reader(coordinate: str) -> Text:
        data = dataset[coordinate].variable

        def read(lo: int, hi: int) -> NDArray[np.object_]:
            return np.asarray(data[lo:hi].values).astype(object)

        return read

    attrs = dataset.attrs
    known = {
        "sample_id": "sample_id",
        "label": str(attrs.get("label_column", "label")),
        "group_id": str(attrs.get("group_column", "group_id")),
        "confounder": str(attrs.get("confounder_column", "confounder")),
        "sample_subset": "subset",
    }
    # Two columns may have been one: every sample its own group.
    columns: dict[str, Text] = {}
    for coordinate, column in known.items():
        if coordinate in dataset.coords:
            columns.setdefault(column, reader(coordinate))
    typed = str(attrs.get("manifest_fingerprint", ""))
    fingerprints = {c: typed for c in columns if c not in ("sample_id", known["sample_subset"])}
    if attrs.get("evaluation_design") == "paired_2x2":
        fingerprints["subset"] = typed
    return Rows(name, int(dataset.sizes["sample"]), columns, fingerprints)


def check_same_rows(first: Rows, other: Rows) -> None:
    """Refuse rows that are not the same, or stand in another order.

    Parameters
    ----------
    first, other
        With the same columns.

    Raises
    ------
    SchemaError
        Names what differs: the numbers of rows; ids, or the same ids in another order; or the
        first column in which cells differ, with the first five rows and how many there are.

    Notes
    -----
    Reads what no fingerprint settles, in blocks. Memory: two blocks of 262,144 texts; 16 bytes a
    row where ids differ, to tell whether only their order does.
    """
    pair = f"{other.name!r} is not of the same rows as {first.name!r}"
    if first.n_rows != other.n_rows:
        raise SchemaError(
            f"{pair}: {first.name!r} has {first.n_rows:,} rows and {other.name!r} "
            f"{other.n_rows:,}; {_ADVICE}"
        )
    ids = next(iter(first.columns))
    for column, read in first.columns.items():
        known = first.fingerprints.get(column, "")
        if known and known == other.fingerprints.get(column, ""):
            continue
        if column not in other.columns:
            raise SchemaError(f"{pair}: {other.name!r} has no column {column!r}")
        shown, count = _differences(read, other.columns[column], first.n_rows)
        if not count:
            continue
        cells = ", ".join(
            f"row {row} ({mine!r} in {first.name!r}, {theirs!r} in {other.name!r})"
            for row, mine, theirs in shown
        )
        if count > len(shown):
            cells += f" and {count - len(shown):,} more"
        how = f"column {column!r} differs in {count:,} of {first.n_rows:,} rows: {cells}"
        if column == ids and _same_set(read, other.columns[column], first.n_rows):
            raise SchemaError(
                f"{pair}: it has the same ids in another order; {how}; bring its rows into the "
                f"order of {first.name!r}: {_ADVICE}"
            )
        raise SchemaError(f"{pair}: {how}; {_ADVICE}")


def same_embeddings(fingerprints: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Find groups of models whose embeddings are one and the same.

    Parameters
    ----------
    fingerprints
        Model name to the fingerprint of its embedding; "" where it is not known.
    """
    groups: dict[str, list[str]] = {}
    for name, fingerprint in fingerprints.items():
        if fingerprint:
            groups.setdefault(fingerprint, []).append(name)
    return [tuple(names) for names in groups.values() if len(names) > 1]


def warn_same_embeddings(groups: Iterable[tuple[str, ...]]) -> None:
    """Warn of models that are one embedding under several names.

    Warns
    -----
    InputWarning
        Once a group.
    """
    for names in groups:
        warn(
            f"the models {name_items(names)} have the same embedding (equal fingerprints): their "
            "results are the same, and so are their ranks",
            InputWarning,
        )


def _text_of(coded: Coded) -> Text:
    table = text_array(coded.names)

    def read(lo: int, hi: int) -> NDArray[np.object_]:
        found: NDArray[np.object_] = table[coded.codes[lo:hi]]
        return found

    return read


def _differences(
    mine: Text, theirs: Text, n_rows: int
) -> tuple[list[tuple[int, str, str]], int]:  # fmt: skip
    """First differing rows with both cells, and how many rows differ."""
    shown: list[tuple[int, str, str]] = []
    count = 0
    for lo in range(0, n_rows, _BLOCK):
        hi = min(n_rows, lo + _BLOCK)
        a, b = mine(lo, hi), theirs(lo, hi)
        rows = np.flatnonzero(a != b)
        count += rows.size
        for row in rows[: _SHOWN - len(shown)]:
            shown.append((lo + int(row), str(a[row]), str(b[row])))
    return shown, count


def _same_set(mine: Text, theirs: Text, n_rows: int) -> bool:
    """Whether two columns hold the same values as often, by 64-bit hashes."""
    import pandas as pd

    hashes = np.empty((2, n_rows), np.uint64)
    for at, read in enumerate((mine, theirs)):
        for lo in range(0, n_rows, _BLOCK):
            hi = min(n_rows, lo + _BLOCK)
            hashes[at, lo:hi] = pd.util.hash_array(read(lo, hi), categorize=False)
    hashes.sort(axis=1)
    return bool(np.array_equal(hashes[0], hashes[1]))
