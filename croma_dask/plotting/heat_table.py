"""A table of methods by metrics, under the headings of their families, coloured by column."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.plotting import theme
from croma_dask.plotting.table_columns import Block, Column, table_of

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

__all__ = ["metric_table"]

F64 = NDArray[np.float64]

_GAP = 0.22
"""Between two families, in columns."""
_MAX_NOTES = 5
_PALE, _STRONG = 0.06, 0.80
"""Part of the colour map that is used: text is easy to read on all of it."""


def metric_table(
    benchmark_or_ranks: xr.Dataset | xr.DataTree,
    dataset: str | None = None,
    *,
    ranks: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the metrics of embeddings as a table: a row a method, a column a metric.

    Metrics stand under the heading of their family. Colours go from the worst to the best method
    of each column, whatever their distance: read that off the numbers. A dash is a missing value;
    its letter leads to the reason below the table.

    Parameters
    ----------
    benchmark_or_ranks
        What :func:`croma_dask.embedding_benchmark` returned: values, and family and aggregate
        ranks of several methods. Or what :func:`croma_dask.rank_embeddings` returned, alone or
        in a tree with its statistics: ranks, the mean over data sets.
    dataset
        Data set to show. A benchmark of several needs one; of ranks None is all of them.
    ranks
        Add the ranks (1 is the best) to the values of a benchmark, and order methods by them.
    ax
        Axes to draw into; None: those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn into; each family is an image on it.

    Raises
    ------
    SchemaError
        (a ValueError) It is neither, or the data set is not there or has to be named.
    ImportError
        matplotlib is not installed.
    """
    table = table_of(benchmark_or_ranks, dataset, ranks=ranks)
    n_columns = sum(len(block.columns) for block in table.blocks)
    if ax is None:
        ax = theme.new_axes(1.6 + 0.58 * n_columns, 1.7 + 0.34 * len(table.methods))
    notes = _Notes()
    left = 0.0
    for block in table.blocks:
        _draw_block(ax, block, left, notes)
        left += len(block.columns) + _GAP
    ax.set_xlim(0.0, left - _GAP)
    ax.set_ylim(len(table.methods), 0.0)
    ax.set_aspect("auto")
    ax.set_yticks(
        np.arange(len(table.methods)) + 0.5, [theme.plain(name) for name in table.methods]
    )
    ax.set_xticks([])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    # Below the table, where a title would run into the headings.
    theme.write_labels(ax, x=theme.plain(table.title))
    text = notes.text()
    if text:
        ax.annotate(
            theme.plain(text), (0.0, 0.0), (0.0, -22.0), xycoords="axes fraction",
            textcoords="offset points", va="top", fontsize="x-small", color="0.3",
            annotation_clip=False, gid="notes",
        )  # fmt: skip
    return ax


def _draw_block(ax: Axes, block: Block, left: float, notes: _Notes) -> None:
    n_columns, n_rows = len(block.columns), block.columns[0].values.size
    colors = np.stack([_colors(column) for column in block.columns], axis=1)
    ax.imshow(
        colors, extent=(left, left + n_columns, n_rows, 0.0), aspect="auto",
        interpolation="nearest", gid=block.head,
    )  # fmt: skip
    ax.hlines(np.arange(1, n_rows), left, left + n_columns, color="white", linewidth=1.5)
    ax.vlines(np.arange(1, n_columns) + left, 0.0, n_rows, color="white", linewidth=1.5)
    above: dict[str, Any] = {
        "xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "center",
        "va": "bottom", "annotation_clip": False,
    }  # fmt: skip
    for at, column in enumerate(block.columns):
        middle = left + at + 0.5
        ax.annotate(
            theme.plain(column.head), (middle, 1.0), (0.0, 3.0), fontsize="small",
            fontstyle="italic" if column.is_rank and column.head == "rank" else "normal", **above,
        )  # fmt: skip
        for row, value in enumerate(column.values.tolist()):
            text = theme.number(value, digits=2 if column.is_rank else 3)
            if np.isnan(value) and column.reasons[row]:
                text += f" {notes.letter(column.reasons[row], column.head)}"
            ax.text(
                middle, row + 0.5, text, ha="center", va="center", fontsize="small",
                color=theme.ink_on(colors[row, at, :3]),
            )  # fmt: skip
    head = textwrap.fill(theme.plain(block.head), max(10, 8 * n_columns))
    ax.annotate(
        head, (left + n_columns / 2, 1.0), (0.0, 19.0), fontsize="small", color="0.25", **above
    )
    # The line that says which columns a heading is of.
    ax.annotate(
        "", (left + 0.06, 1.0), (left + n_columns - 0.06, 1.0), xycoords=_raised(ax, 17.0),
        textcoords=_raised(ax, 17.0), arrowprops={"arrowstyle": "-", "color": "0.5"},
        annotation_clip=False,
    )  # fmt: skip


def _raised(ax: Axes, points: float) -> Any:
    """Coordinates: x of the data, y in the height of the axes and so many points above."""
    from matplotlib.transforms import ScaledTranslation

    figure = ax.figure
    return ax.get_xaxis_transform() + ScaledTranslation(
        0.0, points / 72.0, figure.dpi_scale_trans
    )  # fmt: skip


def _colors(column: Column) -> F64:
    """(n_methods, 4) colours; the best of the column is the strongest one, missing ones grey."""
    from matplotlib import colormaps

    values = -column.values if column.is_rank else column.values
    known = np.isfinite(values)
    place = np.full(values.shape, 0.5)
    if known.any():
        low, high = values[known].min(), values[known].max()
        if high > low:
            place[known] = (values[known] - low) / (high - low)
    found = np.asarray(
        colormaps["Greys" if column.is_rank else "Blues"](_PALE + (_STRONG - _PALE) * place)
    )
    found[~known] = (0.95, 0.95, 0.95, 1.0)
    return found


class _Notes:
    """Reasons of missing values, a letter each."""

    def __init__(self) -> None:
        self._columns: dict[str, list[str]] = {}

    def letter(self, reason: str, column: str) -> str:
        """Return the letter of a reason."""
        columns = self._columns.setdefault(reason, [])
        if column not in columns:
            columns.append(column)
        at = list(self._columns).index(reason)
        return chr(ord("a") + at) if at < 26 else str(at)

    def text(self) -> str:
        """One line a reason, the first five."""
        lines = [
            f"{self.letter(reason, columns[0])}  {', '.join(columns)}: "
            + textwrap.shorten(reason, 110, placeholder=" ...")
            for reason, columns in list(self._columns.items())[:_MAX_NOTES]
        ]
        if len(self._columns) > _MAX_NOTES:
            lines.append(f"and {len(self._columns) - _MAX_NOTES} more reasons: see status")
        return "\n".join(lines)
