"""Warnings of a report on support: for how many of the samples a metric speaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from croma_dask.report.pick import m_values, main_m, number
from croma_dask.report.words import Words, percent

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["support_cautions"]

MANY = 3
"""Models beyond which they share a warning."""

_OF_INDEX = {
    "ss_dominated_undefined_frac": "mostly neighbours that share {label} and {confounder}",
    "oo_dominated_undefined_frac": "mostly neighbours that share neither",
    "mixed_undefined_frac": "as many of the one as of the other, or none",
}
_OF_MARGIN = {
    "no_so_undefined_frac": "fewer than m {units} of the same {label} and another {confounder}",
    "no_os_undefined_frac": "fewer than m {units} of another {label} and the same {confounder}",
    "zero_distance_undefined_frac": "nearest {units} of both types that coincide with them",
}


@dataclass(frozen=True)
class _Lack:
    """Support of one model below 1, where, and why."""

    model: int
    support: float
    where: str
    text: str


def support_cautions(
    nodes: dict[str, xr.Dataset], names: list[str], words: Words
) -> Iterator[tuple[str, str]]:
    """Yield title and text of a warning for each model and metric without full support.

    RI and MaRI, which look at the same neighbours, share theirs; so do more than a few models.
    """
    lacks: dict[_Lack, list[str]] = {}
    for metric, dataset in nodes.items():
        for lack in _lacks(metric, dataset, len(names), words):
            lacks.setdefault(lack, []).append(metric)
    by_metrics: dict[tuple[str, ...], list[_Lack]] = {}
    for lack, metrics in lacks.items():
        by_metrics.setdefault(tuple(metrics), []).append(lack)
    for metrics_of, alike in by_metrics.items():
        who = " and ".join(metrics_of) + (" speak" if len(metrics_of) > 1 else " speaks")
        if len(alike) > MANY:
            each = ", ".join(f"{names[one.model]} {percent(one.support)}" for one in alike)
            yield (
                f"{who} for a part of the {words.units} only",
                f"The others have no value, and whether they would agree is not known: {each}.",
            )
            continue
        for one in alike:
            model = f"{names[one.model]}: " if len(names) > 1 else ""
            if one.support == 0:
                yield f"{model}{' and '.join(metrics_of)} without a value{one.where}", one.text
                continue
            share = f"{percent(one.support)} of the {words.units} only"
            yield f"{model}{who} for {share}{one.where}", one.text


def _lacks(metric: str, dataset: xr.Dataset, n_models: int, words: Words) -> Iterator[_Lack]:
    if metric != "CRoMa":
        for i in range(n_models):
            at = f"k = {number(dataset, 'k', model=i):.0f}"
            yield from _lack(dataset, _OF_INDEX, i, None, "", at, words)
        return
    every = m_values(dataset)
    main = main_m(every)
    for i in range(n_models):
        # At the m of the summary, or else at the one where most is missing.
        least = min(range(len(every)), key=lambda j: number(dataset, "support", model=i, m=j))
        j = main if number(dataset, "support", model=i, m=main) < 1 else least
        at = f"m = {every[j]}"
        yield from _lack(dataset, _OF_MARGIN, i, j, "" if j == main else f" at {at}", at, words)


def _lack(
    dataset: xr.Dataset, known: dict[str, str], i: int, m: int | None, where: str, at: str,
    words: Words,
) -> Iterator[_Lack]:  # fmt: skip
    support = number(dataset, "support", model=i, m=m)
    if not support < 1:
        return
    causes = [
        f"{percent(share)} of all have "
        + text.format(label=words.label, confounder=words.confounder, units=words.units)
        for name, text in known.items()
        if (share := number(dataset, name, model=i, m=m)) > 0
    ]
    text = f"The others have no value at {at}: {'; '.join(causes)}. Whether they would agree with "
    yield _Lack(i, support, where, text + "the rest is not known.")
