"""A panel as text for people: the models of each metric, then their ranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from croma_dask.outward import visible
from croma_dask.schema_panel import RANKS

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["panel_summary"]

_COLUMNS = {"value": "value", "ltm_alpha": "LTM", "f0": "F(0)", "support": "support"}


def panel_summary(nodes: Mapping[str, xr.Dataset]) -> str:
    """Lay a panel out.

    Parameters
    ----------
    nodes
        Metric name to Dataset with the dim `model`.

    Returns
    -------
    str
        For each metric (and `m`) a table of models: value, lower-tail mean, F(0), support and
        operating k. Then, where CRoMa is there, the ranking for each `m`, best mean rank first.
    """
    names = [visible(name) for dataset in nodes.values() for name in dataset["model"].values]
    width = max([len("mean rank"), *map(len, names)]) + 2
    blocks: list[str] = []
    for metric, dataset in nodes.items():
        for title, at in _by_radius(metric, dataset):
            blocks.append(_models(title, at, width))
    for metric, dataset in nodes.items():
        if all(name in dataset for name in RANKS):
            for title, at in _by_radius(metric, dataset):
                blocks.append(_ranking(title, at, width))
    return "\n\n".join(blocks)


def _by_radius(metric: str, dataset: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    if "m" not in dataset.coords:
        return [(visible(metric), dataset)]
    if dataset["m"].ndim == 0:
        return [(f"{visible(metric)}, m = {int(dataset['m'])}", dataset)]
    return [(f"{visible(metric)}, m = {int(m)}", dataset.sel(m=m)) for m in dataset["m"].values]


def _models(title: str, dataset: xr.Dataset, width: int) -> str:
    columns = {v: head for v, head in _COLUMNS.items() if v in dataset}
    head = "".join(f"{text:>10}" for text in columns.values())
    lines = [title, f"  {'model':<{width}}" + head + (f"{'k':>6}" if "k" in dataset else "")]
    for at, name in enumerate(dataset["model"].values):
        one = dataset.isel(model=at)
        cells = "".join(f"{float(one[v]):>10.4f}" for v in columns)
        k = f"{int(one['k']):>6}" if "k" in one.coords else ""
        lines.append(f"  {visible(name):<{width}}{cells}{k}")
    return "\n".join(lines)


def _ranking(title: str, dataset: xr.Dataset, width: int) -> str:
    mean = dataset["mean_rank"].values
    lines = [
        f"ranking by {title}",
        f"  {'model':<{width}}{'by value':>10}{'by tail':>10}{'mean rank':>11}   Pareto front",
    ]
    # Stable: models of the same rank stay in the order in which they were given, NaN last.
    for at in np.argsort(mean, kind="stable"):
        one = dataset.isel(model=at)
        cells = (
            f"{_rank(one['value_rank'].item()):>10}{_rank(one['ltm_rank'].item()):>10}"
            f"{_rank(one['mean_rank'].item()):>11}"
        )
        mark = "*" if bool(one["pareto_front"]) else ""
        name = visible(one["model"].item())
        lines.append(f"  {name:<{width}}{cells}   {mark}".rstrip())
    return "\n".join(lines)


def _rank(value: float) -> str:
    """3 and not 3.0, 2.5 and 2.25 where models share a rank, and - where there is none."""
    return "-" if value != value else f"{value:g}"
