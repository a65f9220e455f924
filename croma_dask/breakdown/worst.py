"""The groups (slides, patients) in which a metric is worst."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.breakdown.cells import Cells, cells_of, column_of
from croma_dask.breakdown.table import metric_of, tabulate
from croma_dask.errors import SchemaError, SupportError, name_items
from croma_dask.panel.models import as_panel, drop_model
from croma_dask.schema import text_array
from croma_dask.schema_breakdown import BREAKDOWN, WORST, WORST_COORDINATES

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["worst_groups"]

_DEFAULT_ORDER = {"CRoMa": "ltm_alpha", "RI": "value", "MaRI": "value"}

_LARGER_IS_WORSE = ("f0",)


def worst_groups(
    result: xr.Dataset | xr.DataTree,
    n: int | None = 10,
    *,
    metric: str = "CRoMa",
    order: str | None = None,
    min_defined: int = 1,
    model: str | None = None,
    m: int | None = None,
) -> xr.Dataset:
    """List the groups that do worst.

    Parameters
    ----------
    result
        As in :func:`breakdown`.
    n
        How many; None for all.
    metric
        ``CRoMa``, ``RI`` or ``MaRI``.
    order
        Variable of the breakdown that tells which is worse: the lower, of ``f0`` the higher. By
        default ``ltm_alpha`` of CRoMa, and the pooled ``value`` of RI and MaRI (the tail of a few
        samples is nearly always 0 there).
    min_defined
        Groups with fewer defined samples are left out: the tail of three samples says little. With
        0 also those without a value are listed, behind all others.
    model
        Of a panel: order by this model. By default by the mean over the models that have a value,
        so that groups come first that are hard for all of them.
    m
        Of several m: order by this one. By default by the first of the result.

    Returns
    -------
    xarray.Dataset
        Dim `group`, worst first, ties by name; `model` and `m` as in the result. Variables of
        :func:`breakdown`, and `share`: of all scored samples, those in the group, and
        `tail_share`: of those at or below the cohort's `q_alpha`. Coordinates `label` and
        `confounder`: what occurs in the group, joined by ``", "``. ``attrs["ordered_by"]``,
        `ordered_by_m` and `ordered_by_model` say by what.

    Raises
    ------
    SchemaError, MemoryLimitError
        As :func:`breakdown`; or `order`, `model`, `m` or `n` is none that there is.
    SupportError
        No group has so many defined samples.

    Notes
    -----
    Memory and time: those of :func:`breakdown` by group.
    """
    whole = metric_of(result, metric)
    order = _DEFAULT_ORDER[metric] if order is None else order
    if order not in BREAKDOWN[metric]:
        known = name_items(BREAKDOWN[metric], limit=len(BREAKDOWN[metric]))
        raise SchemaError(f"groups cannot be ordered by {order!r}; {metric} has {known}")
    if n is not None and n < 1:
        raise SchemaError(f"n must be at least 1, or None for all groups; found {n}")
    panel = as_panel(whole)[metric].to_dataset()
    cells = cells_of(panel, ["group"])
    table = tabulate(panel, metric, cells)
    told = _selected(table, whole, model, m)
    defined = told["n_defined"].transpose("model", "group").values.min(axis=0)
    eligible = np.flatnonzero(defined >= min_defined)
    if not eligible.size and not defined.max():
        raise SupportError(
            f"no sample of {metric} is defined, so that no group is worse than another: lower m or "
            "raise k, and score again"
        )
    if not eligible.size:
        raise SupportError(
            f"none of {defined.size} groups has {min_defined} defined samples (the largest has "
            f"{int(defined.max())}); lower min_defined (--min-defined)"
        )
    key = _badness(told[order])
    # Stable: equal ones stay in the order of their names. NaN goes to the end.
    chosen = eligible[np.argsort(key[eligible], kind="stable")][:n]
    found = table.assign(_shares(panel, cells)).isel(group=chosen)
    found = found.assign_coords(_about(panel, cells, chosen))
    found.attrs |= {"ordered_by": order, "min_defined": int(min_defined)}
    if "m" in told.coords:
        found.attrs["ordered_by_m"] = int(told["m"])
    if "model" in whole.dims:
        found.attrs["ordered_by_model"] = "the mean over models" if model is None else model
    return found if "model" in whole.dims else drop_model(found)


def _selected(table: xr.Dataset, whole: xr.Dataset, model: str | None, m: int | None) -> xr.Dataset:
    """Take the model and the radius that tell the order."""
    if model is not None:
        models = table["model"].values.tolist() if "model" in whole.dims else []
        if model not in models:
            there = name_items(models) if models else "one model without a name"
            raise SchemaError(f"there is no model {model!r} in this result; it has {there}")
        table = table.isel(model=[models.index(model)])
    radii = np.atleast_1d(table["m"].values).tolist() if "m" in table.coords else []
    if m is not None and m not in radii:
        there = f"m = {name_items(radii)}" if radii else "no m"
        raise SchemaError(f"there is no m = {m} in this result; it has {there}")
    if "m" in table.dims:
        table = table.isel(m=0 if m is None else radii.index(m))
    return table


def _badness(values: xr.DataArray) -> NDArray[np.float64]:
    """Rate every group, lower for worse: the mean over models that have a value."""
    if "model" in values.dims:
        values = values.mean("model", skipna=True)
    key = np.asarray(values.values, np.float64)
    return -key if values.name in _LARGER_IS_WORSE else key


def _shares(panel: xr.Dataset, cells: Cells) -> dict[str, Any]:
    """Shares of all samples, and of the tail of the whole cohort, that lie in each group."""
    import xarray as xr

    limit = panel["q_alpha"]
    tail = np.empty((*limit.shape, cells.size))
    for at in np.ndindex(limit.shape):
        one = panel["sample_values"].isel(dict(zip(limit.dims, at, strict=True))).values
        inside = cells.code[cells.of_units(one) <= limit.values[at]]
        # Without a defined value there is no tail to have a share of.
        tail[at] = np.bincount(inside, minlength=cells.size) / (inside.size or np.nan)
    share = np.bincount(cells.code, minlength=cells.size) / cells.code.size
    return {
        "share": xr.Variable(("group",), share, WORST["share"].attrs()),
        "tail_share": xr.Variable((*limit.dims, "group"), tail, WORST["tail_share"].attrs()),
    }


def _about(panel: xr.Dataset, cells: Cells, chosen: NDArray[np.int64]) -> dict[str, Any]:
    """Name what occurs in the chosen groups."""
    import pandas as pd
    import xarray as xr

    place = np.full(cells.size, -1)
    place[chosen] = np.arange(chosen.size)
    at = place[cells.code]
    found = {}
    for name, declared in WORST_COORDINATES.items():
        column = cells.of_units(column_of(panel, name))[at >= 0]
        code, levels = pd.factorize(column, sort=True)
        # Every (group, level) once, by group and then by level.
        group, level = np.divmod(np.unique(at[at >= 0] * np.int64(len(levels)) + code), len(levels))
        pairs = zip(group.tolist(), levels[level].tolist(), strict=True)
        texts = [
            ", ".join(text for _, text in some) for _, some in groupby(pairs, key=itemgetter(0))
        ]
        found[name] = xr.Variable(("group",), text_array(texts), declared.attrs())
    return found
