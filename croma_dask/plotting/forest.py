"""Intervals of a bootstrap or of half samples, one model below the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import SchemaError
from croma_dask.plotting import inputs, theme

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

__all__ = ["intervals"]

_LOWER_IS_BETTER = ("f0",)


def intervals(
    bootstrap_result: xr.Dataset | xr.DataTree,
    statistic: str = "value",
    *,
    metric: str = "CRoMa",
    m: int | None = None,
    model: str | Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a statistic of every model with its interval, the best on top.

    The columns at the right say the value, the interval and, in a panel, the interval of the rank.
    The legend says what the interval is: of a bootstrap, neighbours were held fixed, and the
    intervals are too short for claims about another cohort. Whether two models differ is not told
    by whether their intervals overlap: the draws are paired, so look at
    ``{statistic}_difference`` of the bootstrap.

    Parameters
    ----------
    bootstrap_result
        What :func:`croma_dask.bootstrap` or :func:`croma_dask.half_samples` returned, or a node
        of it.
    statistic
        ``value``; of CRoMa also ``ltm_alpha`` and ``f0``.
    metric
        ``CRoMa``, ``RI`` or ``MaRI``.
    m
        Of CRoMa, where the result has several.
    model
        Name or names; None for all.
    ax
        Axes to draw into; None: those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn into. A dashed line stands at the neutral value, if it is in view.

    Raises
    ------
    SchemaError
        (a ValueError) It is no result of bootstrap() or half_samples(), has no such metric,
        statistic, model or m, or has several m and none is asked for.
    ImportError
        matplotlib is not installed.
    """
    chosen = inputs.of_metric(
        bootstrap_result, metric, model=model, need=f"{statistic}_low", kind="bootstrap"
    )
    chosen = inputs.at_m(chosen, m)
    if statistic not in chosen or f"{statistic}_high" not in chosen:
        raise SchemaError(f"{statistic!r} has no interval in this result")
    value = chosen[statistic].values
    sign = 1.0 if statistic in _LOWER_IS_BETTER else -1.0
    order = np.argsort(sign * value, kind="stable")  # NaN last
    rows = chosen.isel(model=order)
    names = inputs.model_names(rows)
    if ax is None:
        ax = theme.new_axes(8.4, 1.3 + 0.36 * len(names))
    low, high = rows[f"{statistic}_low"].values, rows[f"{statistic}_high"].values
    for at, name in enumerate(names):
        y, look = len(names) - 1 - at, theme.look_of(int(rows["panel_position"][at]))
        ax.plot(
            [low[at], high[at]], [y, y], color=look.color, linewidth=2.2, solid_capstyle="butt",
            gid=f"interval/{name}",
        )  # fmt: skip
        ax.plot(
            [value[order[at]]], [y], color=look.color, marker="o", markersize=8,
            markeredgecolor="white", linestyle="none", gid=f"value/{name}",
        )  # fmt: skip
    ax.set_ylim(-0.6, len(names) - 0.4)
    unnamed = names == [inputs.UNNAMED]
    ax.set_yticks(
        [] if unnamed else range(len(names))[::-1],
        [] if unnamed else [theme.plain(name) for name in names],
    )
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    neutral = inputs.neutral_of(rows[statistic])
    if neutral is not None:
        theme.draw_neutral(ax, neutral, axis="x", only_in_view=True)
    _write_numbers(ax, rows, statistic)
    theme.write_labels(ax, x=theme.axis_label(rows[statistic].attrs, note=inputs.m_note(chosen)))
    theme.place_legend(ax, [_handle(inputs.interval_note(rows))], lift=15.0)
    return ax


def _handle(note: str) -> Any:
    from matplotlib.lines import Line2D

    # Dark grey stands for the colour of every model.
    style: dict[str, Any] = {"marker": "o", "markersize": 8, "markeredgecolor": "white"}
    return Line2D([], [], color="0.3", linewidth=2.2, label=note, **style)


def _write_numbers(ax: Axes, rows: xr.Dataset, statistic: str) -> None:
    """Write value, interval and ranks at the right of the axes."""
    signed = inputs.neutral_of(rows[statistic]) == 0.0
    ranked = f"{statistic}_rank_low" in rows
    style: dict[str, Any] = {"fontsize": "small", "ha": "right", "annotation_clip": False}
    level = theme.percent(float(rows.attrs.get("level", 0.95)))
    heads = [("value", 44.0), (f"{level} interval", 136.0), *([("rank", 176.0)] if ranked else [])]
    for head, x in heads:
        ax.annotate(
            head, (1.0, 1.0), (x, 2.0), xycoords="axes fraction", textcoords="offset points",
            va="bottom", color="0.3", **style,
        )  # fmt: skip
    for at in range(rows.sizes["model"]):
        one = rows.isel(model=at)
        number = [
            theme.number(float(one[f"{statistic}{end}"]), signed=signed, digits=3)
            for end in ("", "_low", "_high")
        ]
        texts = [number[0], f"{number[1]} to {number[2]}"]
        if ranked:
            best, worst = (float(one[f"{statistic}_rank_{end}"]) for end in ("low", "high"))
            texts.append(f"{best:g}" if best == worst else f"{best:g}–{worst:g}")
        for text, (_, x) in zip(texts, heads, strict=True):
            ax.annotate(
                text, (1.0, rows.sizes["model"] - 1 - at), (x, 0.0), va="center",
                xycoords=("axes fraction", "data"), textcoords="offset points", **style,
            )  # fmt: skip
