"""Distributions of sample values: a row a model, or a row a label, with median and lower tail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.breakdown.cells import axes_of
from croma_dask.errors import SchemaError
from croma_dask.plotting import inputs, theme
from croma_dask.plotting.distribution_rows import (
    Row,
    edges_of,
    rows_of_groups,
    rows_of_models,
    shares_of,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

__all__ = ["margins"]

F64 = NDArray[np.float64]

_BY = ("label", "confounder", "subset")
_ROW = 0.86
"""Height of the highest bin, in rows."""
_COLUMN = 38.0
"""Width of a column of numbers, in points."""


def margins(
    result: xr.Dataset | xr.DataTree,
    *,
    metric: str = "CRoMa",
    m: int | None = None,
    model: str | Sequence[str] | None = None,
    by: str | None = None,
    bins: int | Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how the values of the samples are distributed, with median and lower tail.

    One row a model, the first on top: a histogram of the defined sample values, with the part of
    each bin that is at or below the alpha quantile darker, and with a line at the median. Where
    values are tied at that quantile, more than alpha of them are dark; the lower-tail mean is that
    of the dark ones. All rows have the same bins, and
    each is as high as its highest bin: compare where values lie, not heights. The columns at the
    right say the result's value, the lower-tail mean, F(0) (of CRoMa) and the support. A dashed
    line is drawn where neither side wins.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` returned, of one model or of several, or a node of it.
    metric
        ``CRoMa``, ``RI`` or ``MaRI``.
    m
        Of CRoMa, where the result has several.
    model
        Name or names; None for all.
    by
        ``label``, ``confounder`` or ``subset``, or the name of the column that it was: a row for
        each of these of one model, with the numbers of :func:`croma_dask.breakdown` and the number
        of defined samples.
    bins
        Number of bins between the least and the greatest value (the neutral value is always an
        edge, so there may be one more), or edges. None: three times the cube root of the number
        of values in the middle row, from 12 to 80. Values outside of given edges are counted among
        all samples and not drawn.
    ax
        Axes to draw into; None: those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn into.

    Raises
    ------
    SchemaError
        (a ValueError) The result has no such metric, model or m, has several m and none is asked
        for, has no defined value, or has more than 60 rows.
    ImportError
        matplotlib is not installed.

    Notes
    -----
    Values are counted with numpy, model by model: a million samples draw as fast as a thousand.
    Memory: the values of one model, twice.
    """
    chosen = inputs.of_metric(result, metric, model=model, need="sample_values")
    if by is not None:
        by = _axis_of(by, chosen.attrs)
    chosen = inputs.at_m(chosen, m)
    alpha = float(chosen.attrs.get("alpha", 0.1))
    if by is None:
        rows, heads = rows_of_models(chosen, metric)
    else:
        rows, heads = rows_of_groups(inputs.one_model(chosen), metric, by)
    array = chosen["sample_values"]
    neutral = inputs.neutral_of(array)
    edges = edges_of(rows, bins, neutral)
    shares = [shares_of(row.values(), edges, row.q_alpha) for row in rows]
    single = len(rows) == 1 and by is None and rows[0].name == inputs.UNNAMED
    if ax is None:
        ax = theme.new_axes(8.0, 3.2 if single else max(2.6, 1.3 + 0.55 * len(rows)))
    for at, (row, (share, tail)) in enumerate(zip(rows, shares, strict=True)):
        highest = float(share.max())
        unit = 1.0 if single or not highest else _ROW / highest
        base = 0.0 if single else float(len(rows) - 1 - at)
        _draw_row(ax, row, edges, share * unit, tail * unit, base)
    if neutral is not None:
        theme.draw_neutral(ax, neutral, axis="x", label=f"neutral: {neutral:g}")
    ax.set_ylim(0.0 if single else -0.06, 1.1 * highest if single and highest else len(rows))
    if not single:
        ax.set_yticks(_middles(rows), [theme.plain(row.name) for row in rows])
        ax.tick_params(axis="y", length=0)
    for side in ("top", "right", *(() if single else ("left",))):
        ax.spines[side].set_visible(False)
    _write_numbers(ax, rows, heads, [highest] if single else _middles(rows))
    side, title = "share of the samples" if single else "", ""
    if by is not None:
        side = theme.plain(chosen.attrs.get(f"{by}_column", by))
        title = theme.plain(inputs.title_of(chosen.isel(model=0), metric))
    x = theme.axis_label(array.attrs, note=inputs.m_note(chosen))
    theme.write_labels(ax, x=x, y=side, title=title, lift=34.0)
    theme.place_legend(ax, _handles(rows, alpha, neutral), lift=15.0)
    return ax


def _axis_of(by: str, attrs: dict[Any, Any]) -> str:
    """Read `by` as :func:`croma_dask.breakdown` does: a name, or that of the column it came from.

    Raises
    ------
    SchemaError
        It is neither, or nothing that rows are drawn of.
    """
    columns = {axis: str(attrs.get(f"{axis}_column", axis)) for axis in _BY}
    if by in [*columns, *columns.values()]:
        axis = axes_of(by, attrs)[0]
        if axis in columns:  # and not the group, where a confounder is called "group"
            return axis
    named = [f"{axis} ({column})" if column != axis else axis for axis, column in columns.items()]
    raise SchemaError(f"by={by!r}: expected one of {', '.join(named)}, or None")


def _draw_row(ax: Axes, row: Row, edges: F64, heights: F64, tail: F64, base: float) -> None:
    x, top = np.repeat(edges, 2)[1:-1], base + np.repeat(heights, 2)
    pale = theme.tint(row.look.color, 0.35)
    ax.fill_between(x, base, top, facecolor=pale, linewidth=0, zorder=2.0)
    if tail.any():
        # In the bin of the quantile it is as high as what it holds of the bin.
        end = 2 * (int(np.flatnonzero(tail)[-1]) + 1)
        ax.fill_between(
            x[:end], base, base + np.repeat(tail, 2)[:end], facecolor=row.look.color, linewidth=0,
            zorder=2.1, gid="tail",
        )  # fmt: skip
    ax.plot(x, top, color=row.look.color, linewidth=1.0, zorder=2.2, gid=row.name)
    if not np.isnan(row.median):
        ax.vlines(
            row.median, base, base + float(heights.max()), color="black", linewidth=1.6,
            zorder=2.3, gid="median",
        )  # fmt: skip


def _middles(rows: list[Row]) -> list[float]:
    """Where the names and numbers of the rows stand."""
    return [len(rows) - 1 - at + _ROW / 2 for at in range(len(rows))]


def _write_numbers(ax: Axes, rows: list[Row], heads: tuple[str, ...], places: list[float]) -> None:
    """Write columns of numbers at the right of the axes, with headings."""
    style: dict[str, Any] = {"ha": "right", "fontsize": "small", "annotation_clip": False}
    for column, head in enumerate(heads):
        x = _COLUMN * (column + 1) + 4.0
        ax.annotate(
            head, (1.0, 1.0), (x, 2.0), xycoords="axes fraction", textcoords="offset points",
            va="bottom", color="0.3", **style,
        )  # fmt: skip
        for row, y in zip(rows, places, strict=True):
            ax.annotate(
                row.numbers[column], (1.0, y), (x, 0.0), va="center",
                xycoords=("axes fraction", "data"), textcoords="offset points", **style,
            )  # fmt: skip


def _handles(rows: list[Row], alpha: float, neutral: float | None) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    # Dark grey stands for the full colour of every row.
    color = rows[0].look.color if len({row.look for row in rows}) == 1 else "0.3"
    # Not "the lowest 10 %": where values are tied at the quantile, they are more.
    tail = f"up to the {theme.percent(alpha)} quantile (LTM: their mean)"
    found: list[Any] = [
        Line2D([], [], color="black", linewidth=1.6, label="median"),
        Patch(facecolor=color, label=tail),
    ]
    if neutral is not None:
        found.append(Line2D([], [], label=f"neutral ({neutral:g})", **theme.NEUTRAL))
    return found
