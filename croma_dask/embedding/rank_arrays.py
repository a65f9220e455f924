"""Ranks as plain arrays; :mod:`croma_dask.embedding.ranks` labels them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.embedding.rank_families import Families

__all__ = ["all_ranks", "mean_over_datasets", "positions", "without_noise"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_NOISE_DECIMALS = 12


def all_ranks(value: F64, how: Families) -> dict[str, Any]:
    """Rank methods by metric, by family, and over everything.

    Parameters
    ----------
    value
        (n_datasets, n_methods, n_metrics), metrics as in `how`; NaN where there is none.
    how
        Families and weights.

    Returns
    -------
    dict
        One entry for each variable of :data:`croma_dask.embedding.rank_schema.RANKS`.
    """
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    metric_rank: F64 = rankdata(-value, axis=1, nan_policy="omit")
    there = ~np.isnan(value)
    # Ranks are halves of whole numbers, so that twice their sum is exact.
    twice = np.stack(
        [2.0 * np.nan_to_num(metric_rank[:, :, list(of)]).sum(axis=2) for of in how.members], axis=2
    ).astype(np.int64)
    count = np.stack([there[:, :, list(of)].sum(axis=2) for of in how.members], axis=2)
    family_rank = np.divide(
        twice, 2 * count, out=np.full(count.shape, np.nan), where=count > 0
    )  # fmt: skip
    aggregate, share = _aggregate(twice, count, how.weights)
    mean, n_datasets = mean_over_datasets(aggregate)
    return {
        "metric_rank": metric_rank,
        "n_ranked": there.sum(axis=1),
        "family_rank": family_rank,
        "n_metrics": count,
        "family_weight": share,
        "aggregate_rank": aggregate,
        "mean_rank": mean,
        "n_datasets": n_datasets,
        "position": positions(mean),
    }


def _aggregate(twice: I64, count: I64, weights: tuple[float, ...]) -> tuple[F64, F64]:
    """Weighted mean of the family ranks ``twice / (2 count)``, and the share of each weight.

    In whole numbers, with the weights as they are written in decimals, and divided once. So a
    method that is third by everything is third, and not 2.9999999999999996th, methods that tie do
    so to the last bit, and the order of the families leaves no trace.
    """
    exact = [Fraction(repr(weight)) for weight in weights]
    unit = math.lcm(*(weight.denominator for weight in exact))
    # Python's whole numbers: weights of sixteen digits are beyond 64 bits.
    whole = np.array([int(weight * unit) for weight in exact], object)
    weight = np.where(count > 0, whole, 0)
    total = weight.sum(axis=2)
    common = math.lcm(*np.unique(count[count > 0]).tolist())
    ranks = twice.astype(object) * (common // np.maximum(count, 1).astype(object))
    aggregate = _divided((weight * ranks).sum(axis=2), total * (2 * common))
    share = _divided(weight, np.broadcast_to(total[:, :, None], weight.shape))
    return aggregate, np.nan_to_num(share)


def _divided(numbers: NDArray[np.object_], by: NDArray[np.object_]) -> F64:
    """Quotients of whole numbers, each the nearest float64; NaN where divided by 0."""
    pairs = zip(numbers.ravel().tolist(), by.ravel().tolist(), strict=True)
    found = np.array([a / b if b else math.nan for a, b in pairs], np.float64)
    return found.reshape(numbers.shape)


def positions(mean: F64) -> F64:
    """Order mean ranks along the last axis.

    Returns
    -------
    ndarray of float64, shape of `mean`
        1 for the lowest; ties share the average position; NaN where `mean` is NaN.
    """
    from scipy.stats import rankdata

    found: F64 = rankdata(without_noise(mean), axis=-1, nan_policy="omit")
    return found


def without_noise(ranks: F64) -> F64:
    """Round means and differences of ranks, so that those that are equal compare as equal.

    ``(1.1 + 2.2) / 2`` and ``(1 + 2.3) / 2`` differ in the last bit, which would order methods that
    tie.
    """
    return np.round(ranks, _NOISE_DECIMALS)


def mean_over_datasets(aggregate: F64) -> tuple[F64, I64]:
    """Mean of aggregate ranks over the data sets in which a method has one.

    Parameters
    ----------
    aggregate
        (n_datasets, n_methods).

    Returns
    -------
    mean : ndarray of float64, shape (n_methods,)
        NaN where a method has none.
    count : ndarray of int64, shape (n_methods,)
        Data sets that it is the mean of.
    """
    there = ~np.isnan(aggregate)
    count = there.sum(axis=0)
    total = np.where(there, aggregate, 0.0).sum(axis=0)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0), count
