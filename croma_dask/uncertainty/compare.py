"""From draws to intervals, differences and ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from croma_dask.panel.ranking import rank_models

__all__ = ["compare_models", "compare_spread", "intervals", "spread"]

F64 = NDArray[np.float64]


def intervals(values: F64, draws: F64, level: float) -> dict[str, NDArray[np.generic]]:
    """Percentile intervals and standard errors.

    Parameters
    ----------
    values
        (models, radii) of the cohort as it is: not looked at.
    draws
        (draws, models, radii); NaN is left out.
    level
        Share of the draws within the interval, in (0, 1).

    Returns
    -------
    dict
        Suffix of the variable to (models, radii): ``_low``, ``_high``, ``_std_error`` (NaN of fewer
        than two draws), ``_empty_draws`` (int64).
    """
    low, high = _ends(draws, level)
    known = ~np.isnan(draws)
    count = known.sum(axis=0)
    mean = np.where(known, draws, 0.0).sum(axis=0) / np.maximum(count, 1)
    square = np.where(known, (draws - mean) ** 2, 0.0).sum(axis=0)
    variance = np.where(count > 1, square / np.maximum(count - 1, 1), np.nan)
    return {
        "_low": low, "_high": high, "_std_error": np.sqrt(variance),
        "_empty_draws": (draws.shape[0] - count).astype(np.int64),
    }  # fmt: skip


def compare_models(
    values: F64, draws: F64, level: float, *, higher_is_better: bool
) -> dict[str, NDArray[np.generic]]:
    """Compare models within the same draws.

    Parameters
    ----------
    values
        (models, radii) of the cohort as it is.
    draws
        (draws, models, radii); a draw in which either model is NaN is left out of their comparison.
    level
        Share of the draws within an interval.
    higher_is_better
        Of the statistic.

    Returns
    -------
    dict
        Suffix to (models, others, radii): ``_difference``, ``_difference_low``,
        ``_difference_high``, ``_better``; and to (models, radii): ``_rank``, ``_rank_low``,
        ``_rank_high``.
    """
    sign = 1.0 if higher_is_better else -1.0
    n_models, n_radii = values.shape
    low, high, better = (np.full((n_models, n_models, n_radii), np.nan) for _ in range(3))
    for at in range(n_models):
        # One model against all others at a time: what is held grows with the models once.
        apart = draws[:, at, None] - draws
        low[at], high[at] = _ends(apart, level)
        known = (~np.isnan(apart)).sum(axis=0)
        won = (sign * apart > 0.0).sum(axis=0) + 0.5 * (apart == 0.0).sum(axis=0)
        better[at] = np.divide(won, known, out=better[at], where=known > 0)
    # (models, draws, radii): ranks are among the models of a draw.
    ranks = rank_models(sign * np.swapaxes(draws, 0, 1))
    rank_low, rank_high = _ends(np.swapaxes(ranks, 0, 1), level, "inverted_cdf")
    return {
        "_difference": values[:, None] - values[None], "_difference_low": low,
        "_difference_high": high, "_better": better, "_rank": rank_models(sign * values),
        "_rank_low": rank_low, "_rank_high": rank_high,
    }  # fmt: skip


def _ends(draws: F64, level: float, method: str = "linear") -> tuple[F64, F64]:
    """Quantiles over the first axis at both ends of an interval, NaN left out."""
    tail = (1.0 - level) / 2.0
    ends = (tail, 1.0 - tail)
    known = ~np.isnan(draws)
    if known.all():
        low, high = np.quantile(draws, ends, axis=0, method=method)  # type: ignore[call-overload]
        return low, high
    both = np.full((2, *draws.shape[1:]), np.nan)
    for at in np.ndindex(draws.shape[1:]):
        column = draws[(slice(None), *at)]
        column = column[~np.isnan(column)]
        if column.size:
            both[(slice(None), *at)] = np.quantile(column, ends, method=method)  # type: ignore[call-overload]
    return both[0], both[1]


def spread(values: F64, draws: F64, level: float) -> dict[str, NDArray[np.generic]]:
    """Symmetric intervals from the spread of few draws, which are pairs of complementary halves.

    What one half of a pair is above the whole the other is mostly below it: a pair is one degree of
    freedom, and not two.

    Parameters
    ----------
    values
        (models, radii) of the cohort as it is.
    draws
        (draws, models, radii), pair by pair; NaN is left out.
    level
        Probability of the interval.

    Returns
    -------
    dict
        As :func:`intervals`: the value, and Student's t times the standard error to both sides.
    """
    error, known = _root_mean_square(draws - values)
    half = _t_quantile(_pairs(known), level) * error
    return {
        "_low": values - half, "_high": values + half, "_std_error": error,
        "_empty_draws": (draws.shape[0] - known).astype(np.int64),
    }  # fmt: skip


def compare_spread(
    values: F64, draws: F64, level: float, *, higher_is_better: bool
) -> dict[str, NDArray[np.generic]]:
    """Compare models by the spread of their differences in few draws.

    Parameters and result are those of :func:`compare_models`; `_better` is the probability that
    Student's t gives a difference of the right sign.
    """
    from scipy.special import stdtr  # type: ignore[import-untyped]

    found = compare_models(values, draws, level, higher_is_better=higher_is_better)
    apart = values[:, None] - values[None]
    error, known = _root_mean_square(draws[:, :, None] - draws[:, None] - apart)
    half = _t_quantile(_pairs(known), level) * error
    sign = 1.0 if higher_is_better else -1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        better = stdtr(_pairs(known), sign * apart / error)
    # Models that never differ, such as a model and itself, are equal.
    better = np.where((error == 0.0) & (apart == 0.0), 0.5, better)
    better = np.where(np.isnan(apart) | (known < 2), np.nan, better)
    return found | {
        "_difference_low": apart - half, "_difference_high": apart + half, "_better": better,
    }  # fmt: skip


def _root_mean_square(deviations: F64) -> tuple[F64, NDArray[np.int64]]:
    """Root mean square over the first axis, NaN left out, and how many there are."""
    there = ~np.isnan(deviations)
    known = there.sum(axis=0)
    square = np.where(there, deviations, 0.0) ** 2
    mean = square.sum(axis=0) / np.maximum(known, 1)
    return np.where(known > 1, np.sqrt(mean), np.nan), known


def _pairs(known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Degrees of freedom of so many halves: their pairs, about a mean that is known."""
    return np.maximum((known + 1) // 2, 1)


def _t_quantile(freedom: NDArray[np.int64], level: float) -> F64:
    from scipy.special import stdtrit

    quantile: F64 = stdtrit(freedom, 0.5 + level / 2.0)
    return quantile
