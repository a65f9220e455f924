"""What is odd about a manifest that is to be stored, said once, when it is written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import numpy as np

from croma_dask.cohort.layout import Column
from croma_dask.cohort.text import match_keys
from croma_dask.errors import InputWarning, name_items, warn

__all__ = ["absent_roles", "warn_alike"]

_MOST_LEVELS = 10_000
"""Levels of a column that are compared with each other."""

_BLANKS = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
"""Blanks, but for those between digits: "1 2" is not "12"."""

_ROLES = {"label": "--label", "group_id": "--group"}


def absent_roles(columns: Collection[str]) -> str:
    """Say in one line that scoring will miss a column, and what to do; "" where it will not.

    Parameters
    ----------
    columns
        Names of the columns of a store.
    """
    absent = [role for role in _ROLES if role not in columns]
    if not absent:
        return ""
    options = " ".join(f"{_ROLES[role]} COLUMN" for role in absent)
    return (
        f"no column {name_items(absent)} among {name_items(list(columns), limit=20)}: score with "
        f"{options}, or ingest again with {options} --overwrite"
    )


def warn_alike(columns: Iterable[Column], skip: Collection[str] = ()) -> None:
    """Warn of levels that a reader would take for the same one.

    Parameters
    ----------
    columns
        Of the manifest. Text, second names, and columns of more than 10,000 levels or of more
        levels than half the rows (they name rows) are not looked at.
    skip
        Names of columns that are not looked at either.

    Warns
    -----
    InputWarning
        Levels of a column differ only in case, in blanks, or in how accents are encoded: they are
        named, with their counts.

    Notes
    -----
    Levels are compared, and rows counted only where some are alike.
    """
    for column in columns:
        if column.kind != "category" or column.alias_of is not None or column.name in skip:
            continue
        if len(column.levels) > min(_MOST_LEVELS, max(2, len(column.codes) // 2)):
            continue
        alike: dict[str, list[int]] = {}
        for code, text in enumerate(match_keys(column.levels)):
            alike.setdefault(_BLANKS.sub("", text).casefold(), []).append(code)
        groups = [codes for codes in alike.values() if len(codes) > 1]
        if not groups:
            continue
        counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.levels))
        told = "; ".join(
            ", ".join(f"{column.levels[code]!r} ({counts[code]:,})" for code in codes)
            for codes in groups[:5]
        )
        more = f" and {len(groups) - 5} more such" if len(groups) > 5 else ""
        warn(
            f"column {column.name!r} has levels that differ only in case or blanks, and are "
            f"different ones (rows of each): {told}{more}; if they mean the same, write them alike",
            InputWarning,
        )
