"""Statistics of every draw: pooled values from sums of groups, margins from sorted rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from croma_dask.robustness.pooling import Evidence
from croma_dask.uncertainty.draws import Draws
from croma_dask.uncertainty.groups import Groups

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["draw_index", "draw_margin"]

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]

_FADED = 1e-250
"""Evidence below which a draw is added up on a scale of its own, long before numbers underflow."""


def draw_index(
    dataset: xr.Dataset, metric: str, groups: Groups, draws: Draws, threads: int
) -> dict[str, F64]:
    """Pooled RI or MaRI of every draw.

    Parameters
    ----------
    dataset, metric
        RI or MaRI of a panel, and which of them.
    groups, draws
        Of its rows.
    threads
        Threads to use.

    Returns
    -------
    dict
        ``value``: (draws, models, 1); NaN where a draw has no evidence. Of RI exact; of MaRI the
        sums of the groups are added in the order of the groups.

    Notes
    -----
    All draws share the scale of the nearest group, which makes them one product of matrices. A
    draw whose own groups all lie so far behind it (tau is tiny then) that little is left of them is
    added up again on the scale of the nearest drawn one: a group's evidence is at least 1 on its
    own scale, so nothing that counts has been lost before that.
    """
    from croma_dask.kernels.resampled import resampled_sums

    n_models = dataset.sizes["model"]
    scored = groups.code >= 0
    code = groups.code[scored]
    parts = [
        Evidence.of(dataset.isel(model=at), metric).rows(scored).by_part(code, groups.count)
        for at in range(n_models)
    ]
    sums = np.column_stack([side for part in parts for side in part.scaled_to(part.nearest.min())])
    found = np.empty((draws.n_draws, 2 * n_models))

    def add(at: slice, times: I32) -> None:
        resampled_sums(times, sums, found[at])
        for model, part in enumerate(parts):
            _add_faded(times, part, found[at, 2 * model : 2 * model + 2])

    draws.each(add, threads)
    so, os = found[:, 0::2], found[:, 1::2]
    value = np.divide(so, so + os, out=np.full(so.shape, np.nan), where=so + os > 0.0)
    return {"value": value[:, :, None]}


def _add_faded(times: I32, part: Evidence, found: F64) -> None:
    """Add draws up again of whose evidence too little was left, each on its own scale.

    Parameters
    ----------
    times
        (draws, groups) how often each group was drawn.
    part
        Evidence of the groups.
    found
        (draws, 2) sums of SO and OS, which are replaced where they are small.
    """
    from croma_dask.kernels.resampled import resampled_sums

    again = np.empty((1, 2))
    for draw in np.flatnonzero(found.sum(axis=1) < _FADED):
        drawn = np.flatnonzero(times[draw])
        mine = part.rows(drawn)
        nearest = mine.nearest.min()
        if np.isfinite(nearest):
            sums = np.column_stack(mine.scaled_to(nearest))
            resampled_sums(times[draw, drawn][None], sums, again)
            found[draw] = again


def draw_margin(dataset: xr.Dataset, groups: Groups, draws: Draws, threads: int) -> dict[str, F64]:
    """CRoMa of every draw: value, lower-tail mean and F(0).

    Parameters
    ----------
    dataset
        CRoMa of a panel.
    groups, draws, threads
        As of :func:`draw_index`.

    Returns
    -------
    dict
        ``value``, ``ltm_alpha``, ``f0``: (draws, models, radii) each; NaN where a draw has no
        defined unit. Holds the sorted margins of one model and radius at a time.
    """
    from croma_dask.kernels.resampled import resampled_medians, resampled_tails

    subset, n_subsets = _subsets(dataset)
    alpha = float(dataset.attrs["alpha"])
    margins = dataset["sample_values"]
    n_models, n_radii = dataset.sizes["model"], dataset.sizes.get("m", 1)
    found = {
        name: np.empty((draws.n_draws, n_models, n_radii)) for name in ("value", "ltm_alpha", "f0")
    }
    for model, radius in np.ndindex(n_models, n_radii):
        one = margins.isel(model=model)
        values = np.asarray(one.isel(m=radius) if "m" in one.dims else one, np.float64)
        defined = np.flatnonzero(~np.isnan(values) & (groups.code >= 0))
        value, code = values[defined], groups.code[defined]
        # Equal margins by group: then the order of the rows decides nothing.
        order = np.lexsort((code, value))
        value, code = value[order], code[order]
        of_subset, group_of_subset, first = value, code, np.array([0, value.size])
        if n_subsets > 1:
            mine = subset[defined[order]]
            by_subset = np.argsort(mine, kind="stable")
            of_subset, group_of_subset = value[by_subset], code[by_subset]
            first = np.r_[0, np.cumsum(np.bincount(mine, minlength=n_subsets))]

        def add(at: slice, times: I32) -> None:
            medians = np.empty((times.shape[0], n_subsets))
            tails = np.empty((times.shape[0], 2))
            resampled_medians(times, group_of_subset, of_subset, first, medians)  # noqa: B023
            resampled_tails(times, code, value, alpha, tails)  # noqa: B023
            found["value"][at, model, radius] = _median_of_known(medians)  # noqa: B023
            found["ltm_alpha"][at, model, radius] = tails[:, 0]  # noqa: B023
            found["f0"][at, model, radius] = tails[:, 1]  # noqa: B023

        draws.each(add, threads)
    return found


def _median_of_known(values: F64) -> F64:
    """(draws,) median of each row, NaN left out."""
    if values.shape[1] == 1:
        return values[:, 0]
    ordered = np.sort(values, axis=1)  # NaN comes last
    known = (~np.isnan(values)).sum(axis=1)
    row = np.arange(values.shape[0])
    # Without any known value both positions hold NaN.
    low, high = np.maximum(known - 1, 0) // 2, np.minimum(known // 2, values.shape[1] - 1)
    median: F64 = (ordered[row, low] + ordered[row, high]) / 2.0
    return median


def _subsets(dataset: xr.Dataset) -> tuple[NDArray[np.int64], int]:
    """Subset of each row as a code, and how many there are."""
    import pandas as pd

    if dataset.sizes["subset"] == 1:
        return np.zeros(0, np.int64), 1
    codes, names = pd.factorize(np.asarray(dataset["sample_subset"].values, dtype=object))
    return codes.astype(np.int64), len(names)
