"""Tests on aggregate ranks: Friedman over all methods, Wilcoxon against a baseline, Holm."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.embedding.rank_arrays import without_noise

__all__ = ["MIN_BLOCKS", "MIN_METHODS", "friedman", "holm", "signed_rank"]

F64 = NDArray[np.float64]

MIN_BLOCKS = 6
"""Data sets below which there is no p-value: with five, no two-sided one can be below 0.05."""

MIN_METHODS = 3
"""Methods below which there is no p-value: two ranks are one comparison, told twice."""

_MAX_EXACT = 50


def friedman(aggregate: F64) -> dict[str, Any]:
    """Test whether methods differ at all, with data sets as blocks.

    Parameters
    ----------
    aggregate
        (n_datasets, n_methods) aggregate ranks; a method that has none at all takes no part.

    Returns
    -------
    dict
        One entry for each variable of :data:`croma_dask.embedding.rank_schema.FRIEDMAN`.
    """
    ranked = ~np.isnan(aggregate)
    takes_part = ranked.any(axis=0)
    is_block = ranked[:, takes_part].all(axis=1) & takes_part.any()
    # The test ranks inside each block again, and would take the noise of sums for an order.
    blocks = without_noise(aggregate[is_block][:, takes_part])
    n_blocks, n_methods = blocks.shape
    found: dict[str, Any] = {
        "statistic": np.nan, "dof": max(n_methods - 1, 0), "p_value": np.nan, "kendall_w": np.nan,
        "n_blocks": n_blocks, "is_block": is_block,
        "reason": _too_few(n_methods, n_blocks, "that rank every method"),
    }  # fmt: skip
    if not found["reason"] and (blocks == blocks[:, :1]).all():
        found["reason"] = "all methods tie in every data set"
    if found["reason"]:
        return found
    from scipy.stats import friedmanchisquare  # type: ignore[import-untyped]

    test = friedmanchisquare(*blocks.T)
    # Where methods agree on nothing, or on everything, the last bit may lie beyond the range.
    highest = float(n_blocks * (n_methods - 1))
    statistic = min(max(float(test.statistic), 0.0), highest)
    return found | {
        "statistic": statistic, "p_value": float(test.pvalue), "kendall_w": statistic / highest,
    }  # fmt: skip


def signed_rank(aggregate: F64, baselines: list[int]) -> dict[str, Any]:
    """Compare each method with each baseline, paired by data set.

    Parameters
    ----------
    aggregate
        (n_datasets, n_methods) aggregate ranks.
    baselines
        Positions of the baselines among the methods.

    Returns
    -------
    dict
        One (n_baselines, n_methods) entry for each variable of
        :data:`croma_dask.embedding.rank_schema.WILCOXON`.
    """
    shape = (len(baselines), aggregate.shape[1])
    found: dict[str, Any] = {
        "n_pairs": np.zeros(shape, np.int64), "n_nonzero": np.zeros(shape, np.int64),
        "exact": np.zeros(shape, bool), "reason": np.full(shape, "", object),
        **{
            name: np.full(shape, np.nan)
            for name in ("median_difference", "statistic", "p_value", "p_adjusted")
        },
    }  # fmt: skip
    n_methods = int((~np.isnan(aggregate)).any(axis=0).sum())
    for b, baseline in enumerate(baselines):
        for m in range(shape[1]):
            difference = aggregate[:, m] - aggregate[:, baseline]
            one = _one(difference[~np.isnan(difference)], n_methods)
            if m == baseline:
                one["reason"] = "the baseline itself"
                one["p_value"] = np.nan
            for name, value in one.items():
                found[name][b, m] = value
        found["p_adjusted"][b] = holm(found["p_value"][b])
    return found


def _one(difference: F64, n_methods: int) -> dict[str, Any]:
    """One comparison."""
    # Differences that are equal or 0 have to be so for the test as well.
    difference = without_noise(difference)
    nonzero = difference[difference != 0.0]
    found: dict[str, Any] = {
        "n_pairs": difference.size, "n_nonzero": nonzero.size,
        "reason": _too_few(n_methods, difference.size, "that rank both"),
    }  # fmt: skip
    if difference.size:
        found["median_difference"] = float(np.median(difference))
    if not found["reason"] and not nonzero.size:
        found["reason"] = "both tie in every data set"
    if found["reason"]:
        return found
    from scipy.stats import wilcoxon

    exact = nonzero.size <= _MAX_EXACT and np.unique(np.abs(nonzero)).size == nonzero.size
    # Said, not left to "auto", whose rule differs between versions of scipy.
    with warnings.catch_warnings():
        # Older versions warn of fewer than ten differences; `exact` says what was done.
        warnings.filterwarnings("ignore", message="Sample size too small for normal approx")
        test = wilcoxon(nonzero, alternative="two-sided", method="exact" if exact else "approx")
    return found | {
        "statistic": float(test.statistic), "p_value": float(test.pvalue), "exact": exact,
    }  # fmt: skip


def holm(p_values: F64) -> F64:
    """Adjust p-values so that the chance of any false one stays at the level (Holm).

    The i-th smallest of n is multiplied by n - i + 1, at most 1, and is never below the one before.

    Parameters
    ----------
    p_values
        (n,); NaN is no comparison and stays NaN.

    References
    ----------
    Holm, https://www.jstor.org/stable/4615733
    """
    found = np.full(p_values.shape, np.nan)
    at = np.flatnonzero(~np.isnan(p_values))
    order = at[np.argsort(p_values[at], kind="stable")]
    scaled = p_values[order] * np.arange(order.size, 0, -1)
    found[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return found


def _too_few(n_methods: int, n_blocks: int, which: str) -> str:
    if n_methods < MIN_METHODS:
        return f"methods with ranks: {n_methods}; the test needs {MIN_METHODS}"
    if n_blocks < MIN_BLOCKS:
        return f"data sets {which}: {n_blocks}; the test needs {MIN_BLOCKS}"
    return ""
