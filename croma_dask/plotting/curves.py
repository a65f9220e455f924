"""Curves over what a metric was asked for: m of CRoMa, candidates for k of RI and MaRI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import SchemaError, name_items
from croma_dask.kinds import kind_of
from croma_dask.plotting import inputs, theme

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

__all__ = ["k_curve", "m_sweep"]

_METRIC_LINES: dict[str, Any] = {"RI": "-", "MaRI": "--"}


def m_sweep(
    result: xr.Dataset | xr.DataTree,
    variable: str = "value",
    *,
    model: str | Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a number of CRoMa against m, one line a model.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` returned for several `m`, or its CRoMa node.
    variable
        ``value``, ``ltm_alpha``, ``f0``, or another variable along `m` alone.
    model
        Name or names; None for all.
    ax
        Axes to draw into; None: those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn into. A dashed line stands at the neutral value, where there is one.

    Raises
    ------
    SchemaError
        (a ValueError) The result has one m only, no CRoMa, or no such variable or model.
    ImportError
        matplotlib is not installed.
    """
    chosen = inputs.of_metric(result, "CRoMa", model=model, need=variable)
    array = chosen[variable]
    if "m" not in chosen.dims or chosen.sizes["m"] < 2:
        only = name_items(np.atleast_1d(chosen["m"].values).tolist())
        raise SchemaError(
            f"a curve over m needs two m or more, and the result has m={only} only: "
            "score(..., m=[1, 3, 5, 10])"
        )
    if set(array.dims) != {"model", "m"}:
        possible = [str(name) for name in chosen if set(chosen[name].dims) == {"model", "m"}]
        raise SchemaError(
            f"{variable!r} is not one number at each m; expected one of "
            f"{name_items(possible, limit=20)}"
        )
    if ax is None:
        ax = theme.new_axes(6.4 if chosen.sizes["model"] < 4 else 7.8)
    order = np.argsort(chosen["m"].values, kind="stable")
    m = chosen["m"].values[order]
    values = array.transpose("model", "m").values[:, order]
    names = inputs.model_names(chosen)
    # From the highest line at the right end downwards, as the legend is read; NaN last.
    for at in np.argsort(-values[:, -1], kind="stable"):
        name = names[at]
        look = theme.look_of(int(chosen["panel_position"][at]))
        ax.plot(
            m, values[at], color=look.color, linestyle=look.linestyle, marker=look.marker,
            markersize=5, label=theme.plain(name) or None,
        )  # fmt: skip
    neutral = inputs.neutral_of(array)
    if neutral is not None:
        theme.draw_neutral(ax, neutral, axis="y", label=f"neutral ({neutral:g})")
    ax.set_xticks(m)
    theme.write_labels(
        ax, x=theme.axis_label(chosen["m"].attrs, note="m"), y=theme.axis_label(array.attrs)
    )  # fmt: skip
    theme.place_legend(ax)
    return ax


def k_curve(
    result: xr.Dataset | xr.DataTree,
    metrics: Sequence[str] | str = ("RI", "MaRI"),
    *,
    balanced_accuracy: bool = False,
    model: str | Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw RI and MaRI against the candidate k, with the operating k of each model marked.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` returned, or a node of it.
    metrics
        ``RI`` (solid lines), ``MaRI`` (dashed lines) or both; of the default, those that the
        result has.
    balanced_accuracy
        Draw, dotted and on the same axis, what the operating k was chosen by.
    model
        Name or names; None for all.
    ax
        Axes to draw into; None: those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn into. A large ring marks the operating k; a dashed line stands at 0.5.

    Raises
    ------
    SchemaError
        (a ValueError) The result has none of the metrics, or no such model.
    ImportError
        matplotlib is not installed.
    """
    panels = _panels(result, metrics, model)
    if ax is None:
        ax = theme.new_axes(7.6)
    first = next(iter(panels.values()))
    named = inputs.model_names(first) != [inputs.UNNAMED]
    for at in range(first.sizes["model"]):
        look = theme.look_of(int(first["panel_position"][at]))
        for metric, panel in panels.items():
            _draw_curve(ax, panel.isel(model=at), metric, look, distinct=named)
        if balanced_accuracy:
            # Of the label, by all neighbours: the same for RI and MaRI.
            one = first.isel(model=at)
            ax.plot(
                one["k_candidate"].values, one["balanced_accuracy"].values, color=look.color,
                linestyle=":", linewidth=1.2, gid=f"balanced_accuracy/{one['model'].item()}",
            )  # fmt: skip
    neutral = inputs.neutral_of(first["curve"])
    if neutral is not None:
        theme.draw_neutral(ax, neutral, axis="y")
    ax.set_xticks(np.unique(np.concatenate([p["k_candidate"].values for p in panels.values()])))
    what = [str(p["curve"].attrs.get("long_name", name)) for name, p in panels.items()]
    label = what[0] if len(what) == 1 else f"{' and '.join(panels)} at every candidate k"
    units = {"units": first["curve"].attrs.get("units", "1")}
    theme.write_labels(
        ax, x=theme.axis_label(first["k_candidate"].attrs),
        y=theme.axis_label({"long_name": label, **units}),
    )  # fmt: skip
    theme.place_legend(ax, _handles(panels, neutral, named, balanced_accuracy))
    return ax


def _panels(
    result: Any, metrics: Sequence[str] | str, model: str | Sequence[str] | None
) -> dict[str, xr.Dataset]:
    asked = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    foreign = [name for name in asked if name not in _METRIC_LINES]
    if foreign or not asked:
        raise SchemaError(f"metrics={name_items(foreign) or 'none'}: RI and MaRI have a curve")
    if kind_of(result) == "result" and asked == ("RI", "MaRI"):
        there = set(getattr(result, "children", ())) or {result.attrs.get("metric")}
        asked = tuple(name for name in asked if name in there) or asked
    found = {name: inputs.of_metric(result, name, model=model, need="curve") for name in asked}
    # A line goes from left to right, in whatever order the candidates were given.
    return {name: panel.sortby("k_candidate") for name, panel in found.items()}


def _draw_curve(
    ax: Axes, one: xr.Dataset, metric: str, look: theme.Look, *, distinct: bool
) -> None:
    k, values = one["k_candidate"].values, one["curve"].values
    color = look.color if distinct or metric == "RI" else theme.look_of(1).color
    gid = f"{metric}/{one['model'].item()}"
    ax.plot(
        k, values, color=color, linestyle=_METRIC_LINES[metric], marker=look.marker,
        markersize=4, gid=gid,
    )  # fmt: skip
    operating = k == int(one["k"])
    ax.plot(
        k[operating], values[operating], color=color, linestyle="none", marker="o",
        markersize=11, markerfacecolor="none", markeredgewidth=1.8, gid=f"operating_k/{gid}",
    )  # fmt: skip


def _handles(
    panels: dict[str, xr.Dataset], neutral: float | None, named: bool, accuracy: bool
) -> list[Any]:
    from matplotlib.lines import Line2D

    first = next(iter(panels.values()))
    found = []
    if named:
        for at, name in enumerate(inputs.model_names(first)):
            look = theme.look_of(int(first["panel_position"][at]))
            found.append(
                Line2D([], [], color=look.color, marker=look.marker, label=theme.plain(name))
            )
    for metric in panels:
        color = "black" if named else theme.look_of(0 if metric == "RI" else 1).color
        if len(panels) > 1 or not named:
            found.append(Line2D([], [], color=color, linestyle=_METRIC_LINES[metric], label=metric))
    ring: dict[str, Any] = {
        "marker": "o",
        "markersize": 9,
        "markerfacecolor": "none",
        "linestyle": "none",
    }
    found.append(Line2D([], [], color="black", label="operating k", **ring))
    if accuracy:
        found.append(
            Line2D([], [], color="black", linestyle=":", label="balanced accuracy of the label")
        )
    if neutral is not None:
        found.append(Line2D([], [], label=f"neutral ({neutral:g})", **theme.NEUTRAL))
    return found
