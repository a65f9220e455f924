"""Ranks of models by value and by lower tail, and the Pareto front of the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.schema_panel import RANKS

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["pareto_front", "rank_models", "with_ranking"]


def rank_models(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank models, the highest value first.

    Parameters
    ----------
    values
        float64, shape (n_models, ...).

    Returns
    -------
    ndarray of float64, same shape
        1 is best; equal values share the mean of their ranks. NaN where the value is NaN: such a
        model takes no part, and the others are ranked among themselves.
    """
    # Here and not above: scipy.stats takes longer to import than all of this package.
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    return np.asarray(rankdata(-values, method="average", axis=0, nan_policy="omit"), np.float64)


def pareto_front(
    values: NDArray[np.float64], tails: NDArray[np.float64]
) -> NDArray[np.bool_]:  # fmt: skip
    """Tell which models no other one beats in both respects.

    Parameters
    ----------
    values, tails
        float64, shape (n_models, ...); higher is better in both.

    Returns
    -------
    ndarray of bool, same shape
        True where no other model is at least as good in both and better in one. Models that are
        equal in both are all on the front, or none is. False where one of the two is NaN.
    """
    value, tail = values[:, None], tails[:, None]
    # [a, b]: model b beats model a. Comparisons with NaN are False: it beats nobody.
    no_worse = (values[None] >= value) & (tails[None] >= tail)
    better = (values[None] > value) | (tails[None] > tail)
    beaten = (no_worse & better).any(axis=1)
    defined = np.isfinite(values) & np.isfinite(tails)
    return np.asarray(defined & ~beaten, np.bool_)


def with_ranking(margins: xr.Dataset) -> xr.Dataset:
    """Add the ranks to the CRoMa of a panel.

    Parameters
    ----------
    margins
        Has `value` and `ltm_alpha` with dims (model) or (model, m).

    Returns
    -------
    xarray.Dataset
        With the variables of :data:`croma_dask.schema_panel.RANKS`, each `m` by itself. Former
        ones are replaced.
    """
    import xarray as xr

    dims = margins["value"].dims
    values, tails = margins["value"].values, margins["ltm_alpha"].values
    by_value, by_tail = rank_models(values), rank_models(tails)
    found: dict[str, Any] = {
        "value_rank": by_value,
        "ltm_rank": by_tail,
        "mean_rank": (by_value + by_tail) / 2.0,
        "pareto_front": pareto_front(values, tails),
    }
    return margins.assign(
        {name: xr.Variable(dims, found[name], about.attrs()) for name, about in RANKS.items()}
    )
