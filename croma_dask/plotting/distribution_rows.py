"""Rows of a plot of distributions: what is counted of every model or label, and in which bins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.breakdown import breakdown
from croma_dask.breakdown.cells import Cells, cells_of
from croma_dask.errors import SchemaError
from croma_dask.plotting import inputs, theme

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Row", "edges_of", "rows_of_groups", "rows_of_models", "shares_of"]

F64 = NDArray[np.float64]

_BINS = (12, 80)
"""Least and largest number of bins where none is asked for."""
_MAX_ROWS = 60


@dataclass(frozen=True)
class Row:
    """One distribution: its name, its look, how to get its values, and what is told of them."""

    name: str
    look: theme.Look
    values: Callable[[], F64]
    median: float
    q_alpha: float
    numbers: tuple[str, ...]


def rows_of_models(chosen: xr.Dataset, metric: str) -> tuple[list[Row], tuple[str, ...]]:
    """Make a row of every model, of what the result says of it; and the heads of the numbers.

    Parameters
    ----------
    chosen
        One metric at one m, with the dim `model`.
    metric
        Its name.

    Raises
    ------
    SchemaError
        There are too many of them.
    """
    check_rows(chosen.sizes["model"])
    named = ["value", "ltm_alpha", *(["f0"] if metric == "CRoMa" else []), "support"]
    rows = []
    for at, name in enumerate(inputs.model_names(chosen)):
        one = chosen.isel(model=at)
        rows.append(
            Row(
                name,
                theme.look_of(int(one["panel_position"])),
                _reader(one["sample_values"]),
                float(one["median_value"]),
                float(one["q_alpha"]),
                tuple(_written(key, float(one[key]), metric) for key in named),
            )
        )
    return rows, tuple(_HEADS[key] for key in named)


def rows_of_groups(one: xr.Dataset, metric: str, by: str) -> tuple[list[Row], tuple[str, ...]]:
    """Make a row of every label (or confounder level, or subset) of one model.

    Parameters
    ----------
    one
        One metric of one model at one m.
    metric, by
        Names of the metric, and of what tells the rows apart.

    Raises
    ------
    SchemaError
        There are too many of them.
    """
    # Of one model and m: what breakdown() is given has no `model`, as a plain result.
    plain = one.drop_vars([name for name in ("model", "panel_position") if name in one.coords])
    placed = cells_of(plain, [by])
    check_rows(placed.size)
    found = breakdown(plain, by, metric=metric)
    # RI and MaRI pool the neighbours of all samples; their median says little.
    named = (
        ["median_value", "ltm_alpha", "f0", "support"]
        if metric == "CRoMa"
        else ["value", "ltm_alpha", "support"]
    )
    look = theme.look_of(int(one["panel_position"]))
    rows = []
    for at, name in enumerate(placed.axes[0].levels):
        group = found.isel({by: at})
        numbers = [_written(key, float(group[key]), metric) for key in named]
        rows.append(
            Row(
                str(name),
                look,
                _reader(one["sample_values"], placed, at),
                float(group["median_value"]),
                float(group["q_alpha"]),
                (*numbers, f"{int(group['n_defined']):,}"),
            )
        )
    return rows, (*(_HEADS[key] for key in named), "n")


_HEADS = {
    "value": "value", "median_value": "median", "ltm_alpha": "LTM", "f0": "F(0)",
    "support": "support",
}  # fmt: skip


def check_rows(n_rows: int) -> None:
    """Check that somebody could read so many rows, before anything is read for them.

    Raises
    ------
    SchemaError
        They are more than 60.
    """
    if n_rows > _MAX_ROWS:
        raise SchemaError(
            f"{n_rows} rows are more than anybody can read (at most {_MAX_ROWS}): choose some by "
            "model=, or look at croma_dask.breakdown()"
        )


def _reader(values: xr.DataArray, placed: Cells | None = None, cell: int = 0) -> Callable[[], F64]:
    """Read the defined values when they are needed: those of all models need not fit at once."""

    def read() -> F64:
        found: F64 = values.values
        if placed is not None:
            found = placed.of_units(found)[placed.code == cell]
        return found[~np.isnan(found)]

    return read


def _written(name: str, value: float, metric: str) -> str:
    if name in ("f0", "support"):
        return theme.percent(value)
    return theme.number(value, signed=metric == "CRoMa")


def edges_of(rows: list[Row], bins: int | Sequence[float] | None, neutral: float | None) -> F64:
    """Choose bins for all rows.

    Parameters
    ----------
    rows
        Whose values are to be counted; read here for the first time.
    bins
        How many, or their edges; None for a number that suits the number of values.
    neutral
        Becomes an edge, so that no bin holds values of both sides.

    Returns
    -------
    ndarray of float64
        Ascending edges; all values and the neutral one lie within, unless edges were given.

    Raises
    ------
    SchemaError
        `bins` is neither, or no value is defined.
    """
    if bins is not None and not isinstance(bins, int | np.integer):
        given = np.asarray(bins, np.float64)
        if given.ndim != 1 or given.size < 2 or not (np.diff(given) > 0).all():
            raise SchemaError("bins: expected a number, or two or more edges in ascending order")
        return given
    if bins is not None and bins < 1:
        raise SchemaError(f"bins must be at least 1, found {bins}")
    ends, sizes = [], []
    for values in (row.values() for row in rows):
        if values.size:
            ends.append((values.min(), values.max()))
            sizes.append(values.size)
    if not ends:
        raise SchemaError("no sample value is defined, so there is nothing to draw")
    least, greatest = min(low for low, _ in ends), max(high for _, high in ends)
    if neutral is not None:
        least, greatest = min(least, neutral), max(greatest, neutral)
    if least == greatest:
        least, greatest = least - 0.05, greatest + 0.05
    if bins is None:
        bins = int(np.clip(3.0 * np.median(sizes) ** (1.0 / 3.0), *_BINS))
    width = (greatest - least) / bins
    start = least if neutral is None else neutral
    below, above = int(np.ceil((start - least) / width)), int(np.ceil((greatest - start) / width))
    # Rounding may leave the last value outside by a hair.
    below += int(start - below * width > least)
    above += int(start + above * width < greatest)
    edges: F64 = start + width * np.arange(-below, above + 1)
    return edges


def shares_of(values: F64, edges: F64, end: float) -> tuple[F64, F64]:
    """Share of the defined values in each bin, and of those up to `end`.

    Parameters
    ----------
    values
        Without NaN.
    edges
        Of the bins.
    end
        Of the lower tail; the values equal to it belong to it. NaN for no tail.

    Returns
    -------
    tuple of ndarray of float64
        Both are shares of all values; zeros where there are none.
    """
    even = np.allclose(np.diff(edges), edges[1] - edges[0], rtol=1e-9, atol=0.0)
    # A range is counted without sorting; for a million values that is ten times as fast.
    bins: Any = (edges.size - 1, (edges[0], edges[-1])) if even else (edges,)
    every, tail = (np.histogram(part, *bins)[0] for part in (values, values[values <= end]))
    n = max(values.size, 1)
    return every / n, tail / n
