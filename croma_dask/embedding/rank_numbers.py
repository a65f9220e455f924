"""Cells of a table as numbers, or a message that says which cell is none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.errors import SchemaError, name_items

__all__ = ["read_numbers"]

_MISSING = {"", "nan", "na", "n/a", "<na>", "null", "none"}
# float() would also take "1_000" and the digits of other scripts.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INFINITE = {"inf", "infinity"}


def read_numbers(column: pd.Series, where: Callable[[int], str]) -> NDArray[np.float64]:
    """Read a column of values.

    Parameters
    ----------
    column
        Numbers of any dtype, or text: an empty cell, nan, NA, N/A, null and None are missing.
    where
        Says what to call the cell of a row in a message.

    Returns
    -------
    ndarray of float64, shape (n_rows,)
        NaN where missing.

    Raises
    ------
    SchemaError
        A cell is no number, or not finite.
    """
    if column.dtype.kind in "iuf":
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = np.array([_number(cell, at, where) for at, cell in enumerate(column)], float)
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size:
        at = int(infinite[0])
        raise SchemaError(f"{where(at)}: {name_items([column.iloc[at]])} is not finite")
    return values


def _number(cell: object, at: int, where: Callable[[int], str]) -> float:
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return math.nan
    if isinstance(cell, str):
        text = cell.strip().lower()
        if text in _MISSING:
            return math.nan
        if _NUMBER.fullmatch(text) or text.lstrip("+-") in _INFINITE:
            return float(text)
    elif isinstance(cell, int | float | np.integer | np.floating) and not isinstance(cell, bool):
        return float(cell)
    raise SchemaError(f"{where(at)}: {cell!r} is no number")
