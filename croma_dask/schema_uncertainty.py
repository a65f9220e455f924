"""Every name that the result of a bootstrap carries, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.schema import METRICS, Variable, check_declared

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


@dataclass(frozen=True)
class _Told:
    """What a kind of resampling says of its variables."""

    interval: str
    differences: str
    error: str
    empty: str
    better: str
    ranks: str
    draws: str
    bounded: bool


_BOOTSTRAP = _Told(
    "Percentile interval of the draws, at the level of the attrs.",
    "Percentile interval of the differences in the same draw.",
    "Standard deviation of the draws.",
    "No drawn group has a unit with a value: left out of everything else.",
    "Share of the draws; those in which both are equal count half.",
    "Quantile of the ranks in each draw, a rank that was taken.",
    "NaN where the drawn groups have no unit with a value.",
    bounded=True,
)
_HALVES = _Told(
    "Student's t times the standard error to both sides, within the range of the value.",
    "Student's t times the standard error of the differences, within their range.",
    "Root mean square of what the halves differ from their mean by.",
    "A half has no unit with a value: left out of everything else.",
    "Probability by Student's t, of the difference and its standard error.",
    "Quantile of the ranks in each half, a rank that was taken.",
    "Of each half, moved so that their mean is the value of the cohort.",
    bounded=False,
)


def uncertainty_of(
    metric: str, *, compared: bool, draws: bool = False, halves: bool = False
) -> dict[str, Variable]:
    """Declare the variables of a metric's bootstrap, or of its half samples.

    Parameters
    ----------
    metric
        Key of :data:`RESAMPLED`.
    compared
        Whether there are several models, which are compared.
    draws
        Whether the draws themselves are kept.
    halves
        Whether the draws are halves that were scored by themselves.

    Returns
    -------
    dict
        Variable name to declaration. Of `dims` the result of one model lacks `model`, and one of
        several m has `m` behind them.
    """
    told = _HALVES if halves else _BOOTSTRAP
    found: dict[str, Variable] = {}
    for statistic in RESAMPLED[metric]:
        found |= _interval(metric, statistic, told)
        if draws:
            declared = METRICS[metric][statistic]
            low, high = declared.valid_min, declared.valid_max
            found[f"{statistic}_draws"] = Variable(
                ("draw", "model"), "f", f"{statistic} of each draw", told.draws,
                low if told.bounded else None, high if told.bounded else None, declared.neutral,
            )  # fmt: skip
        if compared:
            found |= _comparison(metric, statistic, told)
    return found


def _interval(metric: str, statistic: str, told: _Told) -> dict[str, Variable]:
    declared = METRICS[metric][statistic]
    low, high = declared.valid_min, declared.valid_max
    return {
        statistic: Variable(
            ("model",), "f", declared.long_name, "Of the cohort as it is.", low, high,
            declared.neutral,
        ),
        f"{statistic}_low": Variable(
            ("model",), "f", f"lower end of the interval of {statistic}", told.interval, low, high,
            declared.neutral,
        ),
        f"{statistic}_high": Variable(
            ("model",), "f", f"upper end of the interval of {statistic}", told.interval, low, high,
            declared.neutral,
        ),
        f"{statistic}_std_error": Variable(
            ("model",), "f", f"standard error of {statistic}", told.error, 0.0
        ),
        f"{statistic}_empty_draws": Variable(
            ("model",), "i", f"draws without a {statistic}", told.empty, 0
        ),
    }  # fmt: skip


def _comparison(metric: str, statistic: str, told: _Told) -> dict[str, Variable]:
    declared = METRICS[metric][statistic]
    assert declared.valid_min is not None
    assert declared.valid_max is not None
    span = declared.valid_max - declared.valid_min
    pair = ("model", "other")
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
            f"lower end of the interval of the difference in {statistic}", told.differences
        ),
        f"{statistic}_difference_high": difference(
            f"upper end of the interval of the difference in {statistic}", told.differences
        ),
        f"{statistic}_better": Variable(
            pair, "f", f"how often the model's {statistic} is better",
            f"{told.better}{direction}", 0.0, 1.0, 0.5,
        ),
        f"{statistic}_rank": rank(
            f"rank by {statistic}", f"In the cohort as it is. {ranks}{direction}"
        ),
        f"{statistic}_rank_low": rank(
            f"lower end of the interval of the rank by {statistic}",
            told.ranks,
        ),
        f"{statistic}_rank_high": rank(
            f"upper end of the interval of the rank by {statistic}",
            told.ranks,
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
        halves=str(attrs.get("interval", "")).startswith("half samples"),
    )
    check_declared(declared, values, f"{metric}: ")
    data = {}
    for name, variable in declared.items():
        array = np.asarray(values[name])
        dims = variable.dims if array.ndim == len(variable.dims) else (*variable.dims, "m")
        if array.dtype.kind == "f" and not name.endswith("_draws"):
            # No truth lies beyond: an interval to both sides of a value ends there.
            array = np.clip(array, variable.valid_min, variable.valid_max)
        data[name] = xr.Variable(dims, array, variable.attrs())
    return xr.Dataset(data, dict(coords), dict(attrs))
