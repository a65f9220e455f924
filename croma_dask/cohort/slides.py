"""Manifests for a folder of slides: one row a slide, spread over its tiles, or one row a tile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from croma_dask.cohort.text import match_keys, to_text
from croma_dask.errors import SchemaError, name_items

__all__ = ["with_slides"]

# Columns by which the rows of a manifest may name slides.
SLIDE_COLUMNS = ("slide_id", "slide", "group_id", "sample_id")


def with_slides(
    frame: pd.DataFrame, tiles: pd.DataFrame, slides: Sequence[str], group: str, sample_id: str
) -> tuple[pd.DataFrame, str | None]:
    """Bring a manifest to one row a tile.

    Parameters
    ----------
    frame
        What the user gave: one row a slide, or one row a tile.
    tiles
        What the folder tells: ``sample_id``, ``group_id`` and perhaps ``image_path`` of each tile.
    slides
        Names of the slides.
    group, sample_id
        Columns of `frame` that the user calls so.

    Returns
    -------
    frame
        One row a tile. Where it has no group column the slide is the group.
    key
        Column of the manifest that names slides; None for a manifest of tiles.

    Raises
    ------
    SchemaError
        The rows name neither all tiles nor all slides, or name a slide twice.
    """
    if sample_id in frame.columns:
        ids = match_keys(to_text(frame[sample_id], sample_id))
        slide_of = dict(zip(match_keys(tiles["sample_id"]), tiles["group_id"], strict=True))
        if any(key in slide_of for key in ids):
            return _with_groups(frame, [slide_of.get(key, "") for key in ids], group), None
    present = [c for c in dict.fromkeys((group, *SLIDE_COLUMNS, sample_id)) if c in frame.columns]
    wanted = set(match_keys(slides))
    for column in present:
        if set(match_keys(to_text(frame[column], column))) == wanted:
            return _spread(frame, column, tiles), column
    if not present:
        raise SchemaError(
            "the manifest has no column that names slides or tiles (slide_id, group_id or "
            f"sample_id); it has {', '.join(map(str, frame.columns))}"
        )
    raise _mismatch(frame, present, slides)


def _with_groups(frame: pd.DataFrame, slides: list[str], group: str) -> pd.DataFrame:
    if "group_id" in frame.columns or group != "group_id":
        return frame
    return frame.assign(group_id=np.array(slides, dtype=object))


def _spread(frame: pd.DataFrame, key: str, tiles: pd.DataFrame) -> pd.DataFrame:
    """Repeat the row of each slide for its tiles."""
    keys = match_keys(to_text(frame[key], key))
    if len(set(keys)) < len(keys):
        twice = sorted({name for name in keys if keys.count(name) > 1})
        raise SchemaError(
            f"the manifest names slides twice in column {key!r}: {name_items(twice)}; expected one "
            "row a slide, or the tiles' ids (slide/row) in sample_id"
        )
    row_of = {name: row for row, name in enumerate(keys)}
    codes, names = pd.factorize(tiles["group_id"].to_numpy(dtype=object))
    rows = np.array([row_of[name] for name in match_keys(names)], dtype=np.int64)[codes]
    spread = frame.take(rows).reset_index(drop=True)
    if key == "sample_id":
        spread = spread.rename(columns={"sample_id": "slide_id"} if "slide_id" not in frame else {})
        spread = spread.drop(columns="sample_id", errors="ignore")
    for column in reversed(tiles.columns):
        if column not in spread.columns:
            spread.insert(0, str(column), tiles[column].array)
    return spread


def _mismatch(frame: pd.DataFrame, present: list[str], slides: Sequence[str]) -> SchemaError:
    """Describe how the best matching column differs from the slides of the folder."""
    texts = {column: list(dict.fromkeys(to_text(frame[column], column))) for column in present}
    known = set(match_keys(slides))
    column = max(present, key=lambda name: len(known & set(match_keys(texts[name]))))
    listed = set(match_keys(texts[column]))
    only_manifest = [t for t in texts[column] if match_keys([t])[0] not in known]
    only_folder = [slide for slide in slides if match_keys([slide])[0] not in listed]
    sides = [
        f"{len(items):,} only in the {side} ({name_items(items)})"
        for side, items in (("folder", only_folder), ("manifest", only_manifest))
        if items
    ]
    return SchemaError(
        f"the folder's slides and the manifest's {column!r} are not the same: {'; '.join(sides)}"
    )
