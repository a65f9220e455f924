"""Label by confounder: which cells of the cohort a model handles well, and which it does not."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.breakdown import breakdown
from croma_dask.errors import SchemaError, name_items
from croma_dask.plotting import inputs, theme

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

__all__ = ["cells"]

F64 = NDArray[np.float64]

_SHARES = ("f0", "support")


def cells(
    result: xr.Dataset | xr.DataTree,
    variable: str = "median_value",
    *,
    metric: str = "CRoMa",
    m: int | None = None,
    model: str | None = None,
    numbers: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw a number of every label x confounder cell as a heat map.

    Colours are centred at the neutral value where the variable has one: blue where biology wins,
    red where the confounder does. Cells without samples are hatched; those with samples
    and without a number, as none is defined, are dotted, with their count.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` returned, or a node of it.
    variable
        Of :func:`croma_dask.breakdown`: ``median_value``, ``ltm_alpha``, ``f0`` (CRoMa),
        ``value`` (RI, MaRI), ``support`` and others.
    metric
        ``CRoMa``, ``RI`` or ``MaRI``.
    m
        Of CRoMa, where the result has several.
    model
        Name, where the result has several models.
    numbers
        Write the number and, below it, the count of defined samples into each cell.
    ax
        Axes to draw into; a colour bar takes some of their room. None: those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn into: rows are labels, columns are confounder levels.

    Raises
    ------
    SchemaError
        (a ValueError) The result has no such metric, variable, model or m, or has several models
        or m and none is asked for.
    ImportError
        matplotlib is not installed.
    """
    chosen = inputs.of_metric(result, metric, model=model, need="sample_values")
    one = inputs.at_m(inputs.one_model(chosen), m)
    title = inputs.title_of(one, metric)
    one = one.drop_vars([name for name in ("model", "panel_position") if name in one.coords])
    found = breakdown(one, ("label", "confounder"), metric=metric)
    if variable not in found:
        raise SchemaError(
            f"variable={variable!r}: a breakdown of {metric} has "
            f"{name_items([str(name) for name in found.data_vars], limit=20)}"
        )
    array = found[variable].transpose("label", "confounder")
    if ax is None:
        ax = theme.new_axes(2.6 + 0.95 * array.shape[1], 1.5 + 0.5 * array.shape[0])
    everyone = found["n_samples"].transpose("label", "confounder").values
    # No sample is no result: of `n_samples` itself, too, the cell is empty and no 0.
    values = np.ma.masked_invalid(array.values.astype(np.float64))
    values[everyone == 0] = np.ma.masked
    neutral = inputs.neutral_of(array)
    image = ax.imshow(values, aspect="auto", **_colors(values, neutral, variable))
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.9, pad=0.02)
    # As many characters as the bar is high; some nine go into an inch.
    room = int(9.0 * ax.bbox.height / ax.figure.dpi)
    bar.set_label(textwrap.fill(theme.axis_label(array.attrs), max(room, 18)))
    if neutral is not None:
        bar.ax.axhline(neutral, color="black", linewidth=1.0)
    _hatch(ax, everyone == 0, "///", "empty")
    _hatch(ax, np.ma.getmaskarray(values) & (everyone > 0), "..", "undefined")
    if numbers:
        counts = found["n_defined"].transpose("label", "confounder").values
        _write(ax, image, values, counts, everyone, variable, signed=neutral == 0.0)
    ax.set_yticks(range(array.shape[0]), [theme.plain(name) for name in found["label"].values])
    columns = [theme.plain(name) for name in found["confounder"].values]
    ax.set_xticks(range(array.shape[1]), columns)
    if max(map(len, columns)) > 9:
        ax.tick_params(axis="x", labelrotation=30)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    theme.write_labels(
        ax, x=theme.plain(one.attrs.get("confounder_column", "confounder")),
        y=theme.plain(one.attrs.get("label_column", "label")), title=theme.plain(title),
    )  # fmt: skip
    return ax


def _colors(values: Any, neutral: float | None, variable: str) -> dict[str, Any]:
    """Colour map and range: diverging around the neutral value, or else from low to high."""
    defined = values.compressed()
    if neutral is not None:
        reach = float(np.abs(defined - neutral).max()) if defined.size else 1.0
        reach = reach or 1.0
        return {"cmap": "RdBu", "vmin": neutral - reach, "vmax": neutral + reach}
    # Much of it is bad for F(0), good for all else.
    cmap = "Oranges" if variable == "f0" else "Blues"
    if variable in _SHARES:
        return {"cmap": cmap, "vmin": 0.0, "vmax": 1.0}
    return {"cmap": cmap}


def _hatch(ax: Axes, where: NDArray[np.bool_], hatch: str, gid: str) -> None:
    from matplotlib.patches import Rectangle

    style: dict[str, Any] = {"facecolor": "0.95", "edgecolor": "0.75", "linewidth": 0.0}
    for row, column in zip(*np.nonzero(where), strict=True):
        corner = (column - 0.5, row - 0.5)
        ax.add_patch(Rectangle(corner, 1.0, 1.0, hatch=hatch, gid=gid, **style))


def _write(
    ax: Axes, image: Any, values: Any, counts: Any, everyone: Any, variable: str, *, signed: bool
) -> None:
    mask = np.ma.getmaskarray(values)
    for row, column in np.ndindex(values.shape):
        if mask[row, column]:
            if everyone[row, column]:
                ax.text(
                    column, row, f"0 of {int(everyone[row, column]):,}", ha="center", va="center",
                    fontsize="x-small", color="0.25", backgroundcolor="0.95",
                )  # fmt: skip
            continue
        value = float(values[row, column])
        ink = theme.ink_on(image.cmap(image.norm(value))[:3])
        if variable in _SHARES:
            text = theme.percent(value)
        elif variable.startswith("n_"):
            text = f"{int(value):,}"
        else:
            text = theme.number(value, signed=signed)
        ax.text(
            column, row - 0.15, text, ha="center", va="center", color=ink, fontsize="small"
        )  # fmt: skip
        ax.text(
            column, row + 0.27, f"n = {int(counts[row, column]):,}", ha="center", va="center",
            color=ink, fontsize="x-small",
        )  # fmt: skip
