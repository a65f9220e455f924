"""Warnings of a report on values that rest on one group: the first to be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from croma_dask import schema
from croma_dask.report.pick import m_values, main_m
from croma_dask.report.words import Words, isolated, listed, percent, signed

if TYPE_CHECKING:
    import xarray as xr

    from croma_dask.breakdown.leaning import Leaning

__all__ = ["index_leaning", "leaning_cautions", "margin_leaning"]

MOST = 4
"""Groups that have a warning of their own; further ones share one."""

MODELS = 3
"""Models that such a warning speaks of one by one."""


def index_leaning(nodes: dict[str, xr.Dataset]) -> list[Leaning]:
    """Find the values of RI and MaRI that rest on one group, reading one model at a time.

    Results of earlier releases do not tell.
    """
    from croma_dask.breakdown.leaning import leaning_groups

    return [
        one
        for metric in ("RI", "MaRI")
        if metric in nodes and all(name in nodes[metric] for name in schema.EVIDENCE[metric])
        for i in range(nodes[metric].sizes["model"])
        for one in leaning_groups(nodes[metric].isel(model=[i]))
    ]


def margin_leaning(one: xr.Dataset) -> list[Leaning]:
    """Find whether the lower tail of CRoMa rests on one group, at the m of the summary."""
    from croma_dask.breakdown.leaning import leaning_groups

    return leaning_groups(one.isel(m=main_m(m_values(one))) if "m" in one.dims else one)


def leaning_cautions(
    found: Sequence[Leaning], names: Sequence[str], words: Words, alpha: float
) -> Iterator[tuple[str, str]]:
    """Yield title and text of a warning for each group that decides values.

    Parameters
    ----------
    found
        Of all metrics and models.
    names
        Of the models, as the page shows them.
    words
        Names of the columns.
    alpha
        Of CRoMa's lower tail.
    """
    by_group: dict[str, dict[str, list[Leaning]]] = {}
    for one in found:
        by_group.setdefault(one.group, {}).setdefault(isolated(one.model), []).append(one)
    # Those without which most changes come first.
    order = sorted(by_group, key=lambda group: -max(map(_moved, _all(by_group[group]))))
    for group in order[:MOST]:
        yield _caution(group, by_group[group], len(names) > 1, words, alpha)
    if further := order[MOST:]:
        yield (
            f"Further values are decided by one {words.group} each",
            "; ".join(
                f"{isolated(group)} decides {_values(by_group[group], len(names) > 1)}"
                for group in further[: 2 * MOST]
            )
            + (f"; and {len(further) - 2 * MOST} more" if len(further) > 2 * MOST else "")
            + ".",
        )


def _caution(
    group: str, by_model: dict[str, list[Leaning]], several: bool, words: Words, alpha: float
) -> tuple[str, str]:
    share = next(iter(by_model.values()))[0].share
    text = f"It holds {percent(share)} of the {words.units}."
    for model, values in list(by_model.items())[:MODELS]:
        said = "; ".join(_told(one, words, alpha) for one in values)
        text += f" {model}: {said}." if several else f" {said[0].upper()}{said[1:]}."
    if len(by_model) > MODELS:
        text += f" Likewise {listed(list(by_model)[MODELS:])}."
    title = f"{words.group} {isolated(group)} decides {_values(by_model, several)}"
    return title, text + " Look at it before you judge by these values."


def _told(one: Leaning, words: Words, alpha: float) -> str:
    """Say what a group brings to one value, and what that is without it."""
    if one.statistic == "ltm_alpha":
        brings = f"{percent(one.part)} of {words.worst(alpha)} are its own"
        name = f"the lower-tail mean at m = {one.m}"
    else:
        only = words.label if one.part_of == "SO evidence" else words.confounder
        weighted = " by weight" if one.metric == "MaRI" else ""
        brings = (
            f"of the neighbours that share only the {only}, its {words.units} bring "
            f"{percent(one.part)}{weighted}"
        )
        name = one.metric
    if np.isnan(one.without):
        return f"{brings}; without them {name} has no value"
    return f"{brings}; without them {name} is {signed(one.without)} instead of {signed(one.value)}"


def _values(by_model: dict[str, list[Leaning]], several: bool) -> str:
    """List values, those of models with the same ones together: RI and MaRI of a and b."""
    by_values: dict[tuple[str, ...], list[str]] = {}
    for model, values in by_model.items():
        named = tuple(
            "the lower tail" if one.statistic == "ltm_alpha" else one.metric for one in values
        )
        by_values.setdefault(named, []).append(model)
    return ", and ".join(
        listed(named) + (f" of {listed(models, 4)}" if several else "")
        for named, models in by_values.items()
    )


def _all(by_model: dict[str, list[Leaning]]) -> list[Leaning]:
    return [one for values in by_model.values() for one in values]


def _moved(one: Leaning) -> float:
    return 1.0 if np.isnan(one.without) else abs(one.without - one.value)
