"""A bootstrap as text for people: intervals, then models in pairs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import SchemaError
from croma_dask.outward import visible
from croma_dask.schema_uncertainty import RESAMPLED

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["bootstrap_text"]

_NAMES = {"value": "value", "ltm_alpha": "LTM", "f0": "F(0)"}

MOST_PAIRED = 20
"""Models of which every pair gets a line: of a hundred these would be thousands."""


def bootstrap_text(result: xr.DataTree) -> str:
    """Lay a bootstrap out.

    Parameters
    ----------
    result
        What :func:`croma_dask.bootstrap` returned.

    Returns
    -------
    str
        What was drawn; for each metric (and `m`) a line a model and statistic with its interval and
        rank; then, of several models, a line for every pair (of the 20 best, where there are more):
        the difference of the first and the second, its interval, and how often the first is better.

    Raises
    ------
    SchemaError
        It is no result of ``bootstrap``.
    """
    if result.attrs.get("metric") != "bootstrap" or not hasattr(result, "children"):
        raise SchemaError("expected a result of bootstrap(), as it returned it or it was saved")
    attrs = result.attrs
    what = "halves" if str(attrs["interval"]).startswith("half samples") else "draws"
    drawn = (
        f"{attrs['n_draws']} {what} of {attrs['n_groups']} groups ({attrs['resampled']}), seed "
        f"{attrs['seed']}; {100 * attrs['level']:g} % intervals ({attrs['interval']}); neighbours "
        f"{attrs['neighbors']}"
    )
    blocks = [visible(drawn)]
    pairs = []
    for title, metric, node in _parts(result):
        blocks.append("\n".join([title, *_intervals(metric, node)]))
        if "other" in node.dims:
            pairs.append("\n".join([f"{title}: first minus second", *_pairs(metric, node)]))
    return "\n\n".join([*blocks, *pairs])


def _parts(result: xr.DataTree) -> Iterator[tuple[str, str, xr.Dataset]]:
    """Title, metric and Dataset of every metric and radius."""
    for metric, child in result.children.items():
        node = child.to_dataset()
        if "m" not in node.dims:
            m = f", m = {int(node['m'])}" if "m" in node.coords else ""
            yield metric + m, metric, node
            continue
        for at, m in enumerate(node["m"].values):
            yield f"{metric}, m = {int(m)}", metric, node.isel(m=at)


def _models(node: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    if "model" not in node.dims:
        return [("", node)]
    return [(visible(name), node.isel(model=at)) for at, name in enumerate(node["model"].values)]


def _intervals(metric: str, node: xr.Dataset) -> Iterator[str]:
    models = _models(node)
    width = max(len(name) for name, _ in models)
    ranked = "other" in node.dims
    yield f"  {'':{width}}  {'':5}{'':>10}{'interval':>20}{'std error':>12}" + (
        f"{'rank':>7}{'interval':>11}" if ranked else ""
    )
    for statistic in RESAMPLED[metric]:
        for name, one in models:
            value, low, high, error = (
                float(one[statistic + part]) for part in ("", "_low", "_high", "_std_error")
            )
            line = f"  {name:{width}}  {_NAMES[statistic]:5}{value:>10.4f}"
            line += f"{_span(low, high):>20}{error:>12.4f}"
            if ranked:
                rank, first, last = (
                    float(one[f"{statistic}_rank{part}"]) for part in ("", "_low", "_high")
                )
                line += f"{rank:>7g}{f'{first:g} to {last:g}':>11}"
            empty = int(one[f"{statistic}_empty_draws"])
            yield line + (f"   {empty} draws without a value" if empty else "")


def _pairs(metric: str, node: xr.Dataset) -> Iterator[str]:
    names = [visible(name) for name in node["model"].values]
    width = max(map(len, names))
    yield f"  {'':{2 * width + 2}}  {'':5}{'':>10}{'interval':>20}{'first better':>14}"
    for statistic in RESAMPLED[metric]:
        apart, low, high, better = (
            node[statistic + part].transpose("model", "other").values
            for part in ("_difference", "_difference_low", "_difference_high", "_better")
        )
        rank = node[f"{statistic}_rank"].values
        best = np.sort(np.argsort(rank, kind="stable")[:MOST_PAIRED])
        for a, b in itertools.combinations(best, 2):
            yield (
                f"  {names[a]:{width}}  {names[b]:{width}}  {_NAMES[statistic]:5}"
                f"{apart[a, b]:>+10.4f}{_span(low[a, b], high[a, b], '+'):>20}"
                f"{better[a, b]:>14.3f}"
            )
    if len(names) > MOST_PAIRED:
        n = len(names) * (len(names) - 1) // 2
        yield f"  ... of the {MOST_PAIRED} best of each; all {n:,} pairs: --out"


def _span(low: Any, high: Any, sign: str = "") -> str:
    return f"{low:{sign}.4f} to {high:{sign}.4f}"
