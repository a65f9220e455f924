"""What a result is broken down by: names to columns, columns to codes, codes to cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask import memory
from croma_dask.errors import MemoryLimitError, SchemaError, SupportError
from croma_dask.schema_breakdown import AXES

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["LARGEST", "Axis", "Cells", "axes_of", "cells_of", "check_size", "column_of"]

LARGEST = 1 << 23
"""Numbers that a variable of a breakdown may hold: 64 MiB."""

_COLUMNS = {
    "label": "label", "confounder": "confounder", "subset": "sample_subset", "group": "group_id",
}  # fmt: skip
"""Axis -> coordinate of a result along `sample`."""

_NAMED_BY = {
    "label": "label_column", "confounder": "confounder_column", "group": "group_column",
}  # fmt: skip
"""Axis -> attribute that says which column of the manifest it was."""


@dataclass(frozen=True)
class Axis:
    """One thing to break down by.

    Attributes
    ----------
    name
        Dimension of the breakdown.
    levels
        Text of the levels that occur among the scored units, sorted.
    code
        (units,) level of each of these.
    """

    name: str
    levels: NDArray[np.object_]
    code: NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """Which cell every scored unit is in.

    Attributes
    ----------
    axes
        In the order that was asked for.
    unit
        (units,) position of each scored unit along `sample`; None where all are.
    code
        (units,) cell of each, in C order of the axes.
    """

    axes: tuple[Axis, ...]
    unit: NDArray[np.int64] | None
    code: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of levels of each axis."""
        return tuple(len(axis.levels) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(axis.name for axis in self.axes)

    def of_units(self, values: Any) -> Any:
        """Take the scored units of something along `sample`."""
        return values if self.unit is None else values[self.unit]


def axes_of(by: str | Sequence[str], attrs: dict[str, Any]) -> list[str]:
    """Read what to break down by.

    Parameters
    ----------
    by
        Names of :data:`~croma_dask.schema_breakdown.AXES`, or of the columns they came from.
    attrs
        Of the result, where these columns are named.

    Raises
    ------
    SchemaError
        A name is neither, or two mean the same; or `by` is neither a name nor several.
    """
    try:
        wanted = [by] if isinstance(by, str) else list(by)
    except TypeError:
        raise SchemaError(
            f"by= is one or several of {', '.join(AXES)}, or the names of their columns; found "
            f"{by!r}"
        ) from None
    if not wanted:
        raise SchemaError(f"by= names nothing; it is one or several of {', '.join(AXES)}")
    found = []
    for name in wanted:
        axis = _axis(name, attrs)
        if axis in found:
            raise SchemaError(f"by={by!r} names the {axis} twice; name each thing once")
        found.append(axis)
    return found


def _axis(name: Any, attrs: dict[str, Any]) -> str:
    if isinstance(name, str) and name in AXES:
        return name
    for axis, column in _COLUMNS.items():
        if name == column or (axis in _NAMED_BY and name == attrs.get(_NAMED_BY[axis])):
            return axis
    known = [
        f"{axis!r} (column {attrs[_NAMED_BY[axis]]!r})"
        if axis in _NAMED_BY and _NAMED_BY[axis] in attrs
        else repr(axis)
        for axis in AXES
    ]
    raise SchemaError(
        f"a result cannot be broken down by {name!r}: it holds {', '.join(known)}. For another "
        "column of the manifest score with it as confounder, or group sample_values yourself"
    )


def column_of(dataset: xr.Dataset, axis: str) -> NDArray[np.object_]:
    """Return the (samples,) text of what an axis is made of."""
    name = _COLUMNS[axis]
    if name not in dataset.coords or dataset[name].dims != ("sample",):
        raise SchemaError(
            f"this result has no coordinate {name!r} along `sample`, so it cannot be broken down "
            f"by {axis}; expected a result as score() returns it"
        )
    return np.asarray(dataset[name].values, dtype=object)


def cells_of(dataset: xr.Dataset, axes: Sequence[str]) -> Cells:
    """Put every scored unit of a result into its cell.

    Parameters
    ----------
    dataset
        One metric, as score() returns it; a panel or not.
    axes
        As :func:`axes_of` returns them.

    Raises
    ------
    SchemaError
        A coordinate is missing.
    SupportError
        No sample was scored.
    MemoryLimitError
        The dense table would be huge: its size, and what to do.
    """
    import pandas as pd

    unit = scored_units(dataset)
    found = []
    for axis in axes:
        column = column_of(dataset, axis)
        code, levels = pd.factorize(column if unit is None else column[unit], sort=True)
        found.append(Axis(axis, np.asarray(levels, dtype=object), code.astype(np.int64)))
    shape = [len(axis.levels) for axis in found]
    repeats = [dataset.sizes[dim] for dim in ("model", "m") if dim in dataset.dims]
    check_size(axes, shape, math.prod(repeats))
    code = np.zeros(found[0].code.shape[0], np.int64)
    for made in found:
        code = code * len(made.levels) + made.code
    return Cells(tuple(found), unit, code)


def scored_units(dataset: xr.Dataset) -> NDArray[np.int64] | None:
    """Positions of the samples that the design has scored; None where it has scored all.

    It is the same ones for every model and radius: subsets that were skipped are left out.
    """
    kind = dataset["undefined_type"]
    first = kind.isel({dim: 0 for dim in kind.dims if dim != "sample"}).values
    there = first >= 0
    if not there.any():
        raise SupportError("no sample of this result was scored; there is nothing to break down")
    return None if there.all() else np.flatnonzero(there).astype(np.int64)


def check_size(axes: Sequence[str], shape: Sequence[int], repeats: int) -> None:
    """Refuse a dense table that would be huge.

    Raises
    ------
    MemoryLimitError
        With the size, and what to do.
    """
    size = math.prod(shape) * max(repeats, 1)
    if size <= LARGEST:
        return
    counts = " x ".join(f"{n:,} {axis}s" for n, axis in zip(shape, axes, strict=True))
    times = f", {repeats} times (models and m)" if repeats > 1 else ""
    raise MemoryLimitError(
        f"a breakdown by {' x '.join(axes)} would have {counts}{times} = {size:,} numbers a "
        f"variable ({memory.format_bytes(8 * size)}), most of them of empty cells; at most "
        f"{LARGEST:,} are made. Break down by fewer things, choose one model or m first "
        "(result.sel(...)), or select samples: result['CRoMa'].isel(sample=...)"
    )
