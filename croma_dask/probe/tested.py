"""Test sets of a cohort's sweep: what a caller names becomes rows."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.align import Embedding, resolve
from croma_dask.cohort.manifest import read_columns
from croma_dask.cohort.open import cohort_of
from croma_dask.cohort.store import StoredCohort
from croma_dask.errors import SchemaError, name_items, name_rows
from croma_dask.probe.opened import Rows
from croma_dask.probe.slides import SlideArrangement, SlideCells

__all__ = ["Chooser", "by_manifest", "check_once", "stored_rows"]

I64 = NDArray[np.int64]


def stored_rows(embedding: Embedding, rows: I64, n_rows: int) -> I64 | None:
    """Look the stored row of each row up; None where they are all of them in order."""
    if embedding.tile_of_row is not None:
        return np.asarray(embedding.tile_of_row, np.int64)[rows]
    return None if rows.size == n_rows == embedding.n_tiles else rows


def check_once(stored: I64 | None, used: I64) -> None:
    """Refuse a sweep whose rows name a stored row twice: it would be trained and tested on.

    Raises
    ------
    SchemaError
        Naming the first rows of the manifest that repeat one.
    """
    if stored is None:
        return
    order = np.argsort(stored, kind="stable")
    twin = order[1:][np.diff(stored[order]) == 0]
    if twin.size:
        raise SchemaError(
            f"{name_rows(np.sort(used[twin])[:5], total=int(twin.size))} of the manifest repeat "
            "embedding rows that others name: a probe would be trained and tested on the same row; "
            "sweep a cohort in which each row stands once"
        )


def by_manifest(arrange: SlideArrangement, used: I64) -> SlideArrangement:
    """Let an arrangement see the rows of the manifest in place of those of the sweep."""

    def arranged(cells: SlideCells, rng: random.Random) -> SlideCells:
        named = [[[used[slide].tolist() for slide in cell] for cell in row] for row in cells]
        found = arrange(named, rng)
        return [[[_places(used, slide) for slide in cell] for cell in row] for row in found]

    return arranged


def _places(used: I64, slide: Any) -> list[int]:
    rows = np.asarray(slide, np.int64)
    at = np.minimum(np.searchsorted(used, rows), used.size - 1)
    # A row that is none of the sweep's is found out where arrangements are checked.
    return [int(a) if used[a] == row else -1 for a, row in zip(at, rows, strict=True)]


@dataclass(frozen=True)
class Chooser:
    """Makes rows of what a caller names as a test set."""

    embedding: Embedding
    frame: Any
    labels: I64
    used: I64
    label: str
    classes: list[str]

    def rows(self, name: str, given: Any) -> Rows:
        """Rows of one test set."""
        what = f"test set {name!r}"
        if isinstance(given, str | os.PathLike | StoredCohort) or hasattr(given, "data_vars"):
            return self._other(what, *resolve(cohort_of(given), None, (self.label,)))
        if isinstance(given, tuple) and len(given) == 2:
            return self._other(what, *resolve(given[0], given[1], (self.label,)))
        if isinstance(given, Mapping):
            chosen = self._by_columns(what, given)
        else:
            chosen = self._by_place(what, given)
        if chosen.size == 0:
            raise SchemaError(f"{what} has no rows")
        shared = chosen[np.isin(self._tiles(chosen), self._tiles(self.used))]
        if shared.size:
            raise SchemaError(
                f"{what} and the sweep share {name_rows(shared[:5], total=int(shared.size))}: what "
                "is trained on is no test; leave them out of one of the two (confounder_order= and "
                "label_order= say which rows the sweep uses)"
            )
        self._check_labels(what, self.labels[chosen])
        stored = stored_rows(self.embedding, chosen, self.labels.size)
        return Rows(self.embedding, stored, self.labels[chosen], what)

    def _other(self, what: str, embedding: Embedding, frame: Any) -> Rows:
        if embedding.n_features != self.embedding.n_features:
            raise SchemaError(
                f"{what} has {embedding.n_features} features, the cohort has "
                f"{self.embedding.n_features}; both must come from one model"
            )
        (column,) = read_columns(frame, [self.label])
        place = {level: at for at, level in enumerate(self.classes)}
        table = np.array([place.get(level, -1) for level in column.names], np.int64)
        labels = table[column.codes]
        same = embedding is self.embedding or (
            embedding.fingerprint and embedding.fingerprint == self.embedding.fingerprint
        )
        if same:
            tiles = embedding.tile_of_row
            mine = np.arange(labels.size) if tiles is None else tiles
            shared = np.flatnonzero(np.isin(mine, self._tiles(self.used)))
            if shared.size:
                raise SchemaError(
                    f"{what} is the same embedding as the cohort's, and its "
                    f"{name_rows(shared[:5], total=int(shared.size))} are rows of the sweep: what "
                    "is trained on is no test"
                )
        if labels.size == 0:
            raise SchemaError(f"{what} has no rows")
        self._check_labels(what, labels)
        return Rows(
            embedding, stored_rows(embedding, np.arange(labels.size), labels.size), labels, what
        )

    def _tiles(self, rows: I64) -> I64:
        tiles = self.embedding.tile_of_row
        return rows if tiles is None else np.asarray(tiles, np.int64)[rows]

    def _check_labels(self, what: str, labels: I64) -> None:
        other = np.flatnonzero(labels < 0)
        if other.size:
            raise SchemaError(
                f"{what}: {name_rows(other[:5], total=int(other.size))} of it have other labels "
                f"than the sweep's {name_items(self.classes)}; leave them out"
            )

    def _by_columns(self, what: str, given: Mapping[str, Any]) -> I64:
        keep = np.ones(self.labels.size, bool)
        for name, values in given.items():
            (column,) = read_columns(self.frame, [str(name)])
            wanted = [str(value) for value in np.atleast_1d(np.asarray(values, object))]
            absent = [value for value in wanted if value not in column.names]
            if absent:
                raise SchemaError(
                    f"{what}: column {name!r} has no {name_items(absent)}; it has "
                    f"{name_items(column.names, limit=20)}"
                )
            keep &= np.isin(column.codes, [column.names.index(value) for value in wanted])
        return np.flatnonzero(keep)

    def _by_place(self, what: str, given: Any) -> I64:
        n = self.labels.size
        if isinstance(given, slice):
            return np.arange(n)[given]
        places = np.asarray(given)
        if places.dtype == bool and places.shape == (n,):
            return np.flatnonzero(places)
        if places.ndim != 1 or places.dtype.kind not in "iu":
            raise SchemaError(
                f"{what} is a cohort, an (embedding, manifest) pair, a mask of {n} rows, row "
                f"positions, a slice, or a mapping of columns to values; found {type(given)}"
                + (f" of shape {places.shape}" if places.dtype == bool else "")
            )
        outside = np.flatnonzero((places < 0) | (places >= n))
        if outside.size:
            raise SchemaError(
                f"{what} names row {int(places[outside[0]])}; the cohort has rows 0 to {n - 1}"
            )
        return np.unique(places).astype(np.int64)
