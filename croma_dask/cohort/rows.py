"""Which manifest row belongs to which embedding row: by id where both carry ids, else by position.

Embedding rows are never moved: the manifest's codes are permuted to the order of the file, and a
manifest that repeats tiles gets a map from its rows to the stored ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.text import match_keys, to_text
from croma_dask.errors import InputWarning, SchemaError, name_items, name_rows

__all__ = ["RowPlan", "check_unique", "composite_ids", "plan_rows"]


@dataclass(frozen=True)
class RowPlan:
    """How rows of file, store and manifest correspond.

    Attributes
    ----------
    n_tiles
        Number of embedding rows to store.
    file_tile
        Stored row of each row of the file, numbered by first occurrence; None where the file
        repeats nothing, so that row i is stored as row i.
    sample_tile
        Stored row of each sample; None where sample i is stored row i.
    order
        Manifest row of each sample; None for the manifest's own order.
    """

    n_tiles: int
    file_tile: NDArray[np.int64] | None = None
    sample_tile: NDArray[np.int64] | None = None
    order: NDArray[np.int64] | None = None


def composite_ids(
    parts: Sequence[NDArray[np.object_]], names: Sequence[str], separator: str = "/"
) -> NDArray[np.object_]:
    """Join the columns that identify a sample together into one id, ``a/b``.

    Raises
    ------
    SchemaError
        A part is empty, or two different tuples give one text ("a/b" + "c" and "a" + "b/c").
    """
    for part, name in zip(parts, names, strict=True):
        empty = np.flatnonzero(part == "")
        if len(empty):
            raise SchemaError(f"id column {name!r} is empty in {name_rows(empty)}")
    tuples = list(zip(*parts, strict=True))
    joined = np.empty(len(tuples), dtype=object)
    joined[:] = [separator.join(key) for key in tuples]
    seen: dict[str, tuple[str, ...]] = {}
    for text, key in zip(joined, tuples, strict=True):
        if seen.setdefault(text, key) != key:
            raise SchemaError(
                f"id columns {', '.join(names)}: {seen[text]} and {key} both become {text!r}; "
                "rename one of them"
            )
    return joined


def check_unique(
    ids: NDArray[np.object_],
    subset: NDArray[np.object_] | None,
    frame: pd.DataFrame,
    keys: Sequence[str] = ("sample_id",),
) -> bool:
    """Check that an id occurs once in the manifest, or once in each subset.

    Parameters
    ----------
    ids, subset
        Text of these roles, shape (n,).
    frame
        The manifest, whose columns may tell rows of one id apart.
    keys
        Columns that the ids were made of.

    Returns
    -------
    bool
        Whether ids repeat between subsets.

    Raises
    ------
    SchemaError
        An id occurs twice where it may not; the message suggests columns that would tell apart.
    """
    repeated = pd.Series(ids).duplicated(keep=False).to_numpy()
    if not repeated.any():
        return False
    where = ""
    if subset is not None:
        pairs = pd.DataFrame({"id": ids, "subset": subset})
        repeated = pairs.duplicated(keep=False).to_numpy()
        where = " within a subset"
        if not repeated.any():
            return True
    rows = np.flatnonzero(repeated)
    names = list(dict.fromkeys(str(ids[row]) for row in rows))
    raise SchemaError(
        f"sample ids repeat{where}: {name_items(names)} in {name_rows(rows)}; "
        + _advice(ids, subset, frame, rows, keys)
    )


def _advice(
    ids: NDArray[np.object_],
    subset: NDArray[np.object_] | None,
    frame: pd.DataFrame,
    rows: NDArray[np.int64],
    keys: Sequence[str],
) -> str:
    """Say what can be done about rows of one id: only what helps for these very rows."""
    known = pd.DataFrame({"id": ids[rows]})
    if subset is not None:
        known["subset"] = subset[rows]
    texts = {}
    for column in frame.columns:
        if column in keys or column in {"sample_id", "original_sample_id"}:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)
                texts[str(column)] = to_text(frame[column].iloc[rows], str(column))
        except SchemaError:
            continue  # what is no text cannot be part of an id; it is reported where it is read
    whole = known.assign(**{f"column {name}": text for name, text in texts.items()})
    equal = rows[whole.duplicated(keep=False).to_numpy()]
    if len(equal):
        return (
            f"{name_rows(equal)} are equal in every other column of the manifest too: either they "
            "are copies, so leave all but one out, or an id is wrong"
        )
    parts = ["leave all but one of each out"]
    for name, text in texts.items():
        apart = not known.assign(apart=text).duplicated().any() and (text != "").all()
        if apart and name not in {"label", "subset"}:
            example = ", ".join(f'"{part}"' for part in (*keys, name))
            parts.insert(
                0,
                "if several columns identify a sample together pass "
                f"id_columns=[{example}] (--id-columns)",
            )
            break
    if subset is None:
        parts.insert(-1, "if samples repeat between subsets name the subset column")
    return ", ".join(parts[:-1]) + (", or " if parts[:-1] else "") + parts[-1]


def plan_rows(
    n_file: int,
    file_ids: NDArray[np.object_] | None,
    sample_ids: NDArray[np.object_],
    image_paths: NDArray[np.object_] | None = None,
) -> RowPlan:
    """Plan the correspondence of rows.

    Parameters
    ----------
    n_file
        Rows of the embedding file.
    file_ids
        Ids that the file carries; None to match by position.
    sample_ids
        Ids of the manifest's rows, checked by :func:`check_unique`.
    image_paths
        Second half of a tile's identity, where the manifest has it.

    Raises
    ------
    SchemaError
        Numbers of rows (position) or sets of ids differ, or ids do not tell rows apart.
    """
    if file_ids is None:
        return _by_position(n_file, sample_ids, image_paths)
    return _by_id(file_ids, sample_ids, image_paths)


def _by_position(
    n_file: int, sample_ids: NDArray[np.object_], image_paths: NDArray[np.object_] | None
) -> RowPlan:
    if n_file != len(sample_ids):
        raise SchemaError(
            f"the embedding has {n_file:,} rows and the manifest {len(sample_ids):,}; row i of one "
            "belongs to row i of the other, so both need the same number"
        )
    tiles = _tile_codes(sample_ids, image_paths)
    n_tiles = int(tiles.max()) + 1 if len(tiles) else 0
    if n_tiles == n_file:
        return RowPlan(n_tiles)
    return RowPlan(n_tiles, file_tile=tiles, sample_tile=tiles)


def _tile_codes(
    sample_ids: NDArray[np.object_], image_paths: NDArray[np.object_] | None
) -> NDArray[np.int64]:
    """Return the number of each row's tile, by first occurrence."""
    codes = _first_seen(np.array(match_keys(sample_ids), dtype=object))
    if image_paths is None:
        return codes
    paths = _first_seen(image_paths)
    return _first_seen(codes * (int(paths.max(initial=0)) + 1) + paths)


def _first_seen(values: NDArray[np.object_] | NDArray[np.int64]) -> NDArray[np.int64]:
    codes: NDArray[np.int64] = pd.factorize(values)[0].astype(np.int64)
    return codes


def _by_id(
    file_ids: NDArray[np.object_],
    sample_ids: NDArray[np.object_],
    image_paths: NDArray[np.object_] | None,
) -> RowPlan:
    file_keys = np.array(match_keys(file_ids), dtype=object)
    sample_keys = np.array(match_keys(sample_ids), dtype=object)
    file_tile, tile_keys = pd.factorize(file_keys)
    file_tile = file_tile.astype(np.int64)
    position = pd.Index(tile_keys, dtype=object).get_indexer(pd.Index(sample_keys, dtype=object))
    sample_tile = position.astype(np.int64)
    _check_same_sets(file_ids, file_tile, sample_ids, sample_tile)
    n_tiles = len(tile_keys)
    repeats_in_file = n_tiles < len(file_keys)
    if len(sample_keys) > n_tiles:
        _check_one_image(sample_ids, sample_tile, image_paths)
        return RowPlan(n_tiles, file_tile if repeats_in_file else None, sample_tile)
    if repeats_in_file:
        rows = np.flatnonzero(pd.Series(file_keys).duplicated(keep=False).to_numpy())
        names = list(dict.fromkeys(str(file_ids[row]) for row in rows))
        raise SchemaError(
            f"the embedding names rows twice: {name_items(names)} in {name_rows(rows)}, but the "
            "manifest has each once"
        )
    if np.array_equal(sample_tile, np.arange(n_tiles)):
        return RowPlan(n_tiles)
    order = np.empty(n_tiles, dtype=np.int64)
    order[sample_tile] = np.arange(n_tiles)
    return RowPlan(n_tiles, order=order)


def _check_same_sets(
    file_ids: NDArray[np.object_],
    file_tile: NDArray[np.int64],
    sample_ids: NDArray[np.object_],
    sample_tile: NDArray[np.int64],
) -> None:
    only_manifest = sample_ids[sample_tile < 0]
    known = np.zeros(int(file_tile.max(initial=-1)) + 1, dtype=bool)
    known[sample_tile[sample_tile >= 0]] = True
    only_file = file_ids[~known[file_tile]]
    if not len(only_manifest) and not len(only_file):
        return
    sides = [
        f"{len(ids):,} only in the {side} ({name_items([str(i) for i in ids])})"
        for side, ids in (("embedding", only_file), ("manifest", only_manifest))
        if len(ids)
    ]
    raise SchemaError(
        f"embedding ({len(file_ids):,} rows) and manifest ({len(sample_ids):,} rows) do not have "
        f"the same sample ids: {'; '.join(sides)}; select the same ones on both sides"
    )


def _check_one_image(
    sample_ids: NDArray[np.object_],
    sample_tile: NDArray[np.int64],
    image_paths: NDArray[np.object_] | None,
) -> None:
    """Refuse one embedding row for several images: it cannot belong to more than one."""
    if image_paths is None:
        return
    pairs = pd.DataFrame({"tile": sample_tile, "path": image_paths}).drop_duplicates()
    twice = np.flatnonzero(pairs["tile"].duplicated(keep=False).to_numpy())
    if len(twice):
        rows = pairs.index.to_numpy()[twice]
        names = list(dict.fromkeys(str(sample_ids[row]) for row in rows))
        raise SchemaError(
            f"the manifest has several image paths for one sample id: {name_items(names)}; the "
            "embedding names rows by sample id alone, so pass id_columns that tell them apart"
        )
