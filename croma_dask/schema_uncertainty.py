"""Every name that the result of a bootstrap carries, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.schema import METRICS, Variable

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "OTHER",
    "RESAMPLED",
    "build_bootstrap",
    "higher_is_better",
    "uncertainty_of",
]

RESAMPLED: dict[str, tuple[str, ...]] = {
    "RI": ("value",),
    "MaRI": ("value",),
    "CRoMa": ("value", "ltm_alpha", "f0"),
}
"""Metric name -> statistics that are resampled."""

OTHER = Variable(("other",), "O", "model that is compared with", "The same names as model.")
"""Coordinate of comparisons; the others are those that the result has along `model` and `m`."""


def higher_is_better(statistic: str) -> bool:
    """Whether a higher value of a statistic speaks for the model."""
    return statistic != "f0"


def uncertainty_of(metric: str, *, compared: bool, draws: bool = False) -> dict[str, Variable]:
    """Declare the variables of a metric's bootstrap.

    Parameters
    ----------
    metric
        Key of :data:`RESAMPLED`.
    compared
        Whether there are several models, which are compared.
    draws
        Whether the draws themselves are kept.

    Returns
    -------
    dict
        Variable name to declaration. Of `dims` the result of one model lacks `model`, and one of
        several radii has `m` behind them.
    """
    found: dict[str, Variable] = {}
    for statistic in RESAMPLED[metric]:
        found |= _interval(metric, statistic)
        if draws:
            declared = METRICS[metric][statistic]
            found[f"{statistic}_draws"] = Variable(
                ("draw", "model"), "f", f"{statistic} of each draw",
                "NaN where the drawn groups have no unit with a value.",
                declared.valid_min, declared.valid_max, declared.neutral,
            )  # fmt: skip
        if compared:
            found |= _comparison(metric, statistic)
    return found


def _interval(metric: str, statistic: str) -> dict[str, Variable]:
    declared = METRICS[metric][statistic]
    low, high = declared.valid_min, declared.valid_max
    interval = "Percentile interval of the draws, at the level of the attrs."
    return {
        statistic: Variable(
            ("model",), "f", declared.long_name, "Of the cohort as it is.", low, high,
            declared.neutral,
        ),
        f"{statistic}_low": Variable(
            ("model",), "f", f"lower end of the interval of {statistic}", interval, low, high,
            declared.neutral,
        ),
        f"{statistic}_high": Variable(
            ("model",), "f", f"upper end of the interval of {statistic}", interval, low, high,
            declared.neutral,
        ),
        f"{statistic}_std_error": Variable(
            ("model",), "f", f"standard error of {statistic}",
            "Standard deviation of the draws.", 0.0,
        ),
        f"{statistic}_empty_draws": Variable(
            ("model",), "i", f"draws without a {statistic}",
            "No drawn group has a unit with a value: left out of everything else.", 0,
        ),
    }  # fmt: skip


def _comparison(metric: str, statistic: str) -> dict[str, Variable]:
    declared = METRICS[metric][statistic]
    assert declared.valid_min is not None
    assert declared.valid_max is not None
    span = declared.valid_max - declared.valid_min
    pair = ("model", "other")
    interval = "Percentile interval of the differences in the same draw."
    ranks = "1 is best; ties share their mean rank; NaN without a value."
    direction = "" if higher_is_better(statistic) else " Lower is better."

    def difference(long_name: str, comment: str) -> Variable:
        return Variable(pair, "f", long_name, comment, -span, span, 0.0)

    def rank(long_name: str, comment: str) -> Variable:
        return Variable(("model",), "f", long_name, comment, 1.0)

    return {
        f"{statistic}_difference": difference(
            f"difference in {statistic}", f"model minus other, in the cohort as it is.{direction}"
        ),
        f"{statistic}_difference_low": difference(
            f"lower end of the interval of the difference in {statistic}", interval
        ),
        f"{statistic}_difference_high": difference(
            f"upper end of the interval of the difference in {statistic}", interval
        ),
        f"{statistic}_better": Variable(
            pair, "f", f"share of the draws in which the model's {statistic} is better",
            f"Draws in which both are equal count half.{direction}", 0.0, 1.0, 0.5,
        ),
        f"{statistic}_rank": rank(
            f"rank by {statistic}", f"In the cohort as it is. {ranks}{direction}"
        ),
        f"{statistic}_rank_low": rank(
            f"lower end of the interval of the rank by {statistic}",
            "Quantile of the ranks in each draw, a rank that was taken.",
        ),
        f"{statistic}_rank_high": rank(
            f"upper end of the interval of the rank by {statistic}",
            "Quantile of the ranks in each draw, a rank that was taken.",
        ),
    }  # fmt: skip


def build_bootstrap(
    metric: str, values: Mapping[str, Any], coords: Mapping[str, Any], attrs: Mapping[str, Any]
) -> xr.Dataset:
    """Label the numbers of a metric's bootstrap.

    Parameters
    ----------
    metric
        Key of :data:`RESAMPLED`.
    values
        One array for every declared variable: all have the dim `model`, and all or none `m` behind
        the declared ones.
    coords
        Name to (dims, data, attrs) or variable.
    attrs
        What the result says of itself.

    Raises
    ------
    KeyError
        A declared variable is missing or an undeclared one is given: a defect of the caller.
    """
    import xarray as xr

    declared = uncertainty_of(
        metric,
        compared=any(name.endswith("_better") for name in values),
        draws=any(name.endswith("_draws") and not name.endswith("_empty_draws") for name in values),
    )
    if set(values) != set(declared):
        raise KeyError(f"{metric}: {sorted(set(values) ^ set(declared))} not as declared")
    data = {}
    for name, variable in declared.items():
        array = np.asarray(values[name])
        dims = variable.dims if array.ndim == len(variable.dims) else (*variable.dims, "m")
        data[name] = xr.Variable(dims, array, variable.attrs())
    return xr.Dataset(data, dict(coords), dict(attrs))
