"""What all plots share: axes, colours, labels and numbers. No setting of matplotlib is changed."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "MUTED",
    "NEUTRAL",
    "Look",
    "axis_label",
    "draw_neutral",
    "ink_on",
    "look_of",
    "new_axes",
    "number",
    "percent",
    "place_legend",
    "plain",
    "tint",
    "write_labels",
]

# Of the palette of Okabe and Ito, which people of any colour vision tell apart. Its yellow is too
# light for a line on white, and black is kept for text; dark grey stands for both.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X")

_LINE = 60
"""Characters of an axis label that fit along axes of the usual size."""

NEUTRAL: dict[str, Any] = {"color": "0.35", "linestyle": (0, (4, 3)), "linewidth": 1.0}
"""Look of the lines that say where an embedding favours neither side."""

MUTED = "0.55"
"""Colour of what is there to be compared with."""


@dataclass(frozen=True)
class Look:
    """How a model is drawn, the same in every plot.

    Attributes
    ----------
    color
        One of seven.
    linestyle
        Another one for every further seven, so that no two of 28 models look alike.
    marker
        Tells neighbours apart where there is no colour.
    """

    color: str
    linestyle: str
    marker: str


def look_of(position: int) -> Look:
    """Return the look of the model at a position of its panel."""
    turn, at = divmod(position, len(_COLORS))
    # Another marker for the same colour, too: points have no line style.
    return Look(
        _COLORS[at], _LINES[turn % len(_LINES)], _MARKERS[(at + 3 * turn) % len(_MARKERS)]
    )  # fmt: skip


def new_axes(width: float = 6.4, height: float = 4.8) -> Axes:
    """Make a figure with one axes, of a size in inches.

    Raises
    ------
    ImportError
        matplotlib is not installed; says how to install it.
    """
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as err:
        if (err.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ImportError(
            "plots are drawn by matplotlib, which is not installed: "
            "pip install 'croma-dask[plot]' (or pip install matplotlib)"
        ) from err
    # Constrained: what stands beside the axes (names, columns of numbers) gets its place.
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def axis_label(attrs: Mapping[Any, Any], *, note: str = "") -> str:
    """Name and unit of a variable, as its attrs say; of a bare number (``1``) the name alone."""
    name = str(attrs.get("long_name", ""))
    unit = f" [{attrs['units']}]" if attrs.get("units", "1") != "1" else ""
    return f"{name}{', ' if name and note else ''}{note}{unit}"


def write_labels(
    ax: Axes, *, x: str = "", y: str = "", title: str = "", lift: float | None = None
) -> None:
    """Label axes where nobody has: what somebody has written stays.

    `lift` is the distance of the title from the axes in points; None for the usual one.
    """
    if x and not ax.get_xlabel():
        ax.set_xlabel(textwrap.fill(x, _LINE))
    if y and not ax.get_ylabel():
        ax.set_ylabel(textwrap.fill(y, _LINE))
    if title and not any(ax.get_title(loc=side) for side in ("left", "center", "right")):
        ax.set_title(title, loc="left", fontsize="medium", pad=lift)


def draw_neutral(
    ax: Axes, at: float, *, axis: str, label: str | None = None, only_in_view: bool = False
) -> None:
    """Draw a neutral line, once; `axis` is the one that it stands on.

    With `only_in_view` the limits of the axes stay, and a line outside of them is left out.
    """
    mark = f"neutral-{axis}-{at}"
    if any(line.get_gid() == mark for line in ax.lines):
        return
    if only_in_view:
        limits = ax.get_xlim() if axis == "x" else ax.get_ylim()
        if not min(limits) <= at <= max(limits):
            return
    draw = ax.axvline if axis == "x" else ax.axhline
    draw(at, zorder=1.2, gid=mark, label=label, **NEUTRAL)


def place_legend(
    ax: Axes, handles: Sequence[Any] | None = None, *, lift: float = 2.0, ncols: int | None = None
) -> None:
    """Put a legend where it covers no data: above the axes, or beside them if it is long.

    A legend that is there already stays. `lift` is the distance above the axes in points;
    `ncols` the number of columns there, None for a single row.
    """
    if ax.get_legend() is not None:
        return
    found = list(ax.get_legend_handles_labels()[0] if handles is None else handles)
    if not found:
        return
    style: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 2.0}
    if len(found) > 4 and ncols is None:
        ax.legend(handles=found, loc="center left", bbox_to_anchor=(1.0, 0.5), **style)
        return
    ax.legend(
        handles=found, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=ncols or len(found),
        borderaxespad=lift / 8.0, columnspacing=1.4, **style,
    )  # fmt: skip


def tint(color: str, strength: float = 0.3) -> tuple[float, float, float]:
    """Mix a colour with white: 1 is the colour, 0 is white."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1.0 - strength * (1.0 - part) for part in to_rgb(color))
    return red, green, blue


def ink_on(background: Any) -> str:
    """Black or white, whichever is easier to read on a colour (contrast as WCAG 2 defines it)."""
    from matplotlib.colors import to_rgb

    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(background)
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # Contrast with black is (L + 0.05) / 0.05, with white 1.05 / (L + 0.05).
    return "black" if (luminance + 0.05) ** 2 >= 0.05 * 1.05 else "white"


def number(value: float, *, signed: bool = False, digits: int = 2) -> str:
    """Write a number for people: a true minus, a dash for NaN, no minus before zeros."""
    if math.isnan(value):
        return "–"
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    if not text.strip("+-0."):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def plain(name: Any) -> str:
    """Write a name as it stands: matplotlib sets text between two $ as a formula.

    It also leaves names that begin with an underscore out of legends; they get a space.
    """
    text = str(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def percent(value: float) -> str:
    """Write a share in percent; what is not all or nothing is never rounded to it."""
    if math.isnan(value):
        return "–"
    text = f"{100 * value:.0f}"
    if text == "0" and value > 0:
        return "<1 %"
    if text == "100" and value < 1:
        return ">99 %"
    return f"{text} %"
