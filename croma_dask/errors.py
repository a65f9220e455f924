"""Exceptions and warnings that the library raises on purpose, and the wording they share.

Every exception is a :class:`CromaDaskError`, and also the built-in class that a caller who does
not know this library would catch (``ValueError`` for bad input, ``RuntimeError`` where nothing is
left to score).
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

from croma_dask.outward import shortened

__all__ = [
    "ChunkError",
    "CromaDaskError",
    "InputWarning",
    "MemoryLimitError",
    "RecallWarning",
    "SchemaError",
    "StoreError",
    "SupportError",
    "SupportWarning",
    "collecting",
    "name_items",
    "name_rows",
    "warn",
]


class CromaDaskError(Exception):
    """Base class of every error that the library raises on purpose."""


class SchemaError(CromaDaskError, ValueError):
    """The structure or content of the input is not what it has to be."""


class StoreError(CromaDaskError, ValueError):
    """A store is unfinished, damaged, of another version, or not a cohort at all."""


class ChunkError(CromaDaskError, ValueError):
    """Chunks do not line up with what an operation needs."""


class MemoryLimitError(CromaDaskError, ValueError):
    """A run would not fit the allowed memory."""


class SupportError(CromaDaskError, RuntimeError):
    """Nothing in the cohort can be scored."""


class InputWarning(UserWarning):
    """The input is usable, but probably not what its owner thinks it is."""


class RecallWarning(UserWarning):
    """An approximate search has missed more neighbours than it should."""


class SupportWarning(RuntimeWarning):
    """A value rests on fewer samples than the cohort holds."""


def name_rows(rows: Iterable[int], *, total: int | None = None) -> str:
    """Name row positions for a message: the first five, and how many more there are.

    Parameters
    ----------
    rows
        Row positions, in the order in which they should be named.
    total
        Number of rows concerned when `rows` holds only the first ones.

    Returns
    -------
    str
        For example ``"row 3"`` or ``"rows 3, 8, 9, 12, 40 and 17 more"``.
    """
    positions = [int(row) for row in rows]
    count = len(positions) if total is None else total
    return ("row " if count == 1 else "rows ") + name_items(positions, total=count)


def name_items(items: Iterable[object], *, total: int | None = None, limit: int = 5) -> str:
    """List the first few items, and say how many more there are.

    Parameters
    ----------
    items
        Text is quoted, everything else is written as it is.
    total
        Number of items when `items` holds only the first ones.
    limit
        How many items are written out.

    Returns
    -------
    str
        For example ``"'a', 'b' and 3 more"``.
    """
    listed = list(items)
    count = len(listed) if total is None else total
    shown = [
        repr(shortened(item)) if isinstance(item, str) else shortened(str(item))
        for item in listed[:limit]
    ]
    text = ", ".join(shown)
    if count > len(shown):
        text += f" and {count - len(shown)} more"
    return text


_Said = list[tuple[str, type[Warning]]]

_collected: ContextVar[_Said | None] = ContextVar("collected", default=None)


@contextlib.contextmanager
def collecting() -> Iterator[_Said]:
    """Collect what :func:`warn` would say within a block, for the caller to say later.

    Yields
    ------
    list of (str, type)
        Messages and categories; it grows. Warnings of other libraries are given as ever.
    """
    said: _Said = []
    token = _collected.set(said)
    try:
        yield said
    finally:
        _collected.reset(token)


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the caller's own code that led here, however deep inside we are.

    Parameters
    ----------
    message, category
        As in :func:`warnings.warn`.
    """
    said = _collected.get()
    if said is not None:
        said.append((message, category))
        return
    # `skip_file_prefixes` of warnings.warn does this, from Python 3.12 on.
    level, frame = 2, sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).startswith("croma_dask"):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
