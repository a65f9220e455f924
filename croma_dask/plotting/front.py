"""The typical sample against the worst ones: which models no other model beats in both."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.errors import SchemaError, name_items
from croma_dask.panel.ranking import pareto_front
from croma_dask.plotting import inputs, theme

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

__all__ = ["pareto"]

F64 = NDArray[np.float64]

_NEAR = ((7, 5), (7, -12), (-7, 5), (-7, -12), (0, 10), (0, -18))
_FAR = tuple((dx, dy) for dy in (22, -30, 38, -46, 54, -62) for dx in (14, -14, 34, -34))
"""Where a name may stand, in points from its point; the first that is free is taken. From places
further away a thin line leads to the point."""


def pareto(
    panel: xr.Dataset | xr.DataTree,
    *,
    m: int | None = None,
    model: str | Sequence[str] | None = None,
    bootstrap: xr.Dataset | xr.DataTree | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the models of a panel by CRoMa value and lower-tail mean, with their Pareto front.

    A model is on the front if no other one drawn is at least as good in both and better in one.
    These are filled, and joined by steps: what lies left of and below the steps is beaten. The
    others are hollow and grey.

    Parameters
    ----------
    panel
        What :func:`croma_dask.score` or :func:`croma_dask.combine_results` returned of several
        models, or its CRoMa node.
    m
        Of CRoMa, where the panel has several.
    model
        Names; None for all. The front is that of the models chosen.
    bootstrap
        What :func:`croma_dask.bootstrap` or :func:`croma_dask.half_samples` returned of the same
        panel: intervals of both numbers are drawn, and the legend says what they are.
    ax
        Axes to draw into; None: those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn into. Dashed lines stand at the neutral values that are in view.

    Raises
    ------
    SchemaError
        (a ValueError) It is no panel, has no such model or m, has several m and none is asked for,
        no model has both numbers, or `bootstrap` lacks a model.
    ImportError
        matplotlib is not installed.
    """
    chosen = inputs.at_m(inputs.of_metric(panel, "CRoMa", model=model, need="ltm_alpha"), m)
    names = inputs.model_names(chosen)
    if names == [inputs.UNNAMED]:
        raise SchemaError(
            "a Pareto front compares models, and this result is of one: score([a, b]) or "
            "combine_results({'a': ..., 'b': ...}) makes a panel"
        )
    x, y = chosen["value"].values, chosen["ltm_alpha"].values
    front = pareto_front(x, y)
    if not front.any():
        raise SchemaError("no model has both a value and a lower-tail mean")
    drawn = None
    if bootstrap is not None:
        drawn = inputs.of_metric(
            bootstrap, "CRoMa", model=names, need="ltm_alpha_low", kind="bootstrap"
        )
        drawn = inputs.at_m(drawn, m)
    ours = ax is None
    if ax is None:
        ax = theme.new_axes(6.4, 4.8)
    color = theme.look_of(0).color
    _draw_steps(ax, x[front], y[front], color)
    if drawn is not None:
        _draw_intervals(ax, drawn, x, y, [color if there else theme.MUTED for there in front])
    looks: tuple[tuple[bool, dict[str, Any]], ...] = (
        (False, {"facecolors": "white", "edgecolors": theme.MUTED, "marker": "s"}),
        (True, {"facecolors": color, "edgecolors": color, "marker": "o"}),
    )
    for on_front, style in looks:
        rows = (front == on_front) & np.isfinite(x) & np.isfinite(y)
        if rows.any():
            label = "not beaten in both" if on_front else "beaten by another model"
            ax.scatter(x[rows], y[rows], s=46, zorder=3, label=label, **style)
    ax.margins(0.14)
    for at, axis in ((chosen["value"], "x"), (chosen["ltm_alpha"], "y")):
        neutral = inputs.neutral_of(at)
        if neutral is not None:
            theme.draw_neutral(ax, neutral, axis=axis, only_in_view=True)
    theme.write_labels(
        ax, x=theme.axis_label(chosen["value"].attrs, note=inputs.m_note(chosen)),
        y=theme.axis_label(chosen["ltm_alpha"].attrs),
    )  # fmt: skip
    theme.place_legend(ax, ncols=None if bootstrap is None else 2)
    figure = ax.get_figure()
    if ours and figure is not None and hasattr(figure, "draw_without_rendering"):
        # Names are put where there is room, and that is known when the axes have their place.
        figure.draw_without_rendering()
    _write_names(ax, names, x, y, front)
    return ax


def _draw_steps(ax: Axes, x: F64, y: F64, color: str) -> None:
    order = np.lexsort((-y, x))
    ax.step(
        x[order], y[order], where="pre", color=color, linewidth=1.2, alpha=0.7, zorder=2,
        label="Pareto front",
    )  # fmt: skip


def _draw_intervals(ax: Axes, drawn: xr.Dataset, x: F64, y: F64, colors: list[str]) -> None:
    style: dict[str, Any] = {"colors": colors, "linewidth": 1.1, "zorder": 2.5}
    # The long note on two lines: the legend is no wider than the axes.
    note = textwrap.fill(inputs.interval_note(drawn), 34)
    ax.hlines(y, drawn["value_low"].values, drawn["value_high"].values, label=note, **style)
    ax.vlines(x, drawn["ltm_alpha_low"].values, drawn["ltm_alpha_high"].values, **style)


def _write_names(ax: Axes, names: list[str], x: F64, y: F64, front: NDArray[np.bool_]) -> None:
    """Name the points, each where its name covers no other point or name if there is such a place.

    Sizes of text are estimated, which is good enough to choose among some places.
    """
    defined = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    scale = ax.figure.dpi / 72.0
    at = ax.transData.transform(np.column_stack([x, y]))
    view = ax.bbox
    taken = [(*(at[i] - 5 * scale), *(at[i] + 5 * scale)) for i in defined]
    for i in sorted(defined, key=lambda i: not front[i]):
        width, height = 5.2 * scale * len(names[i]), 9.0 * scale
        best = None
        for dx, dy in (*_NEAR, *_FAR):
            ha = "left" if dx > 0 else "right" if dx < 0 else "center"
            left = at[i][0] + dx * scale - width * {"left": 0.0, "right": 1.0, "center": 0.5}[ha]
            low = at[i][1] + dy * scale
            box = (left, low, left + width, low + height)
            hits = sum(_overlap(box, other) for other in taken)
            hits += 2 * (left < view.x0 or left + width > view.x1)
            hits += 2 * (low < view.y0 or low + height > view.y1)
            if best is None or hits < best[0]:
                best = (hits, dx, dy, ha, box)
            if not hits:
                break
        assert best is not None
        _, dx, dy, ha, box = best
        taken.append(box)
        far = (dx, dy) in _FAR
        line = {"arrowstyle": "-", "color": "0.7", "linewidth": 0.7, "shrinkB": 4.0}
        ax.annotate(
            theme.plain(names[i]), (x[i], y[i]), (dx, dy), textcoords="offset points",
            ha=ha, va="bottom", fontsize="small", color="black" if front[i] else "0.35", zorder=4,
            arrowprops=line if far else None,
        )  # fmt: skip
    if len(defined) < len(names):
        left_out = [name for at, name in enumerate(names) if at not in set(defined.tolist())]
        ax.annotate(
            f"not drawn, without a value: {name_items(left_out)}", (0.01, 0.01),
            xycoords="axes fraction", fontsize="x-small", color="0.35",
        )  # fmt: skip


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return (
        one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    )  # fmt: skip
