"""How far the final order rests on single data sets: bootstrap, and leaving one out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.embedding.rank_arrays import mean_over_datasets, positions, without_noise

__all__ = ["INTERVAL", "bootstrap", "leave_one_out"]

F64 = NDArray[np.float64]

INTERVAL = 0.95
"""Share of the draws between the ends of the interval."""

# Entries of one block of draws: what is held at once stays below 200 MB.
_BLOCK_ENTRIES = 2**21


def bootstrap(aggregate: F64, *, n_draws: int, seed: int) -> dict[str, Any]:
    """Draw data sets with replacement, the same for all methods, and average again.

    Ranks are within a data set, so that they are not computed again.

    Parameters
    ----------
    aggregate
        (n_datasets, n_methods) aggregate ranks; data sets without any take no part.
    n_draws, seed
        Draws are ``default_rng(seed).integers(n, size=(n_draws, n))`` of n data sets.

    Returns
    -------
    dict
        One entry for each variable of :data:`croma_dask.embedding.rank_schema.BOOTSTRAP`.
    """
    aggregate = aggregate[_has_ranks(aggregate)]
    n_datasets, n_methods = aggregate.shape
    mean, count = mean_over_datasets(aggregate)
    found: dict[str, Any] = {
        "mean_rank": mean, "n_datasets": count, "reason": "",
        "interval_low": np.full(n_methods, np.nan), "interval_high": np.full(n_methods, np.nan),
        "position_probability": np.full((n_methods, n_methods), np.nan),
        "n_draws_ranked": np.zeros(n_methods, np.int64),
    }  # fmt: skip
    if n_datasets < 2:
        found["reason"] = f"data sets with ranks: {n_datasets}; drawing among them needs 2"
        return found | {"p_best": np.full(n_methods, np.nan)}
    rng = np.random.default_rng(seed)
    means = np.empty((n_draws, n_methods))
    ends = _Ends(n_methods)
    # The stream of a generator does not depend on how it is cut into blocks.
    step = max(1, _BLOCK_ENTRIES // max(n_datasets, n_methods))
    for start in range(0, n_draws, step):
        size = min(step, n_draws - start)
        block = _means(aggregate, rng.integers(n_datasets, size=(size, n_datasets)))
        means[start : start + size] = block
        ends.add(without_noise(block))
    tail = (1.0 - INTERVAL) / 2.0
    for m in range(n_methods):
        ranked = means[~np.isnan(means[:, m]), m]
        found["n_draws_ranked"][m] = ranked.size
        if ranked.size:
            low, high = np.percentile(ranked, [100.0 * tail, 100.0 * (1.0 - tail)])
            found["interval_low"][m], found["interval_high"][m] = low, high
    share = np.where(count[:, None] > 0, ends.counts() / n_draws, np.nan)
    return found | {"position_probability": share, "p_best": share[:, 0].copy()}


def _means(aggregate: F64, drawn: NDArray[np.int64]) -> F64:
    """(n_draws, n_methods) mean over the drawn data sets that have the method."""
    n_draws, n_datasets = drawn.shape
    flat = drawn + np.arange(n_draws)[:, None] * n_datasets
    times = np.bincount(flat.ravel(), minlength=n_draws * n_datasets).reshape(drawn.shape)
    there = ~np.isnan(aggregate)
    total = np.zeros((n_draws, aggregate.shape[1]))
    count = np.zeros((n_draws, aggregate.shape[1]), np.int64)
    # One data set after the other, in one order: a matrix product's depends on its threads.
    for t in range(n_datasets):
        total += times[:, t, None] * np.where(there[t], aggregate[t], 0.0)
        count += times[:, t, None] * there[t]
    found: F64 = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return found


class _Ends:
    """At which positions methods end, counted over draws."""

    def __init__(self, n_methods: int) -> None:
        self.n_methods = n_methods
        # By size of the tie, (method, first position of the tie): whole numbers, so that the order
        # of draws leaves no trace.
        self.by_size: dict[int, NDArray[np.int64]] = {}

    def add(self, means: F64) -> None:
        """Take (n_draws, n_methods) mean ranks; NaN ends nowhere."""
        m = self.n_methods
        order = np.argsort(means, axis=1, kind="stable")  # NaN comes last
        ordered = np.take_along_axis(means, order, axis=1)
        new = np.ones(ordered.shape, bool)
        new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        at = np.broadcast_to(np.arange(m), ordered.shape)
        first = np.maximum.accumulate(np.where(new, at, 0), axis=1)
        last = np.ones(ordered.shape, bool)
        last[:, :-1] = new[:, 1:]
        end = np.minimum.accumulate(np.where(last, at, m)[:, ::-1], axis=1)[:, ::-1]
        size = end - first + 1
        ranked = ~np.isnan(ordered)
        for tied in np.unique(size[ranked]).tolist():
            of_size = ranked & (size == tied)
            where = order[of_size] * m + first[of_size]
            counted = np.bincount(where, minlength=m * m).reshape(m, m)
            self.by_size[tied] = self.by_size.get(tied, 0) + counted

    def counts(self) -> F64:
        """(n_methods, n_methods) draws in which a method ended at a position, ties shared."""
        found = np.zeros((self.n_methods, self.n_methods))
        for tied in sorted(self.by_size):
            for ahead in range(tied):
                stop = self.n_methods - ahead
                found[:, ahead:] += self.by_size[tied][:, :stop] / tied
        return found


def leave_one_out(aggregate: F64) -> dict[str, Any]:
    """Leave each data set out in turn, and compare the order with that of all.

    Parameters
    ----------
    aggregate
        (n_datasets, n_methods) aggregate ranks; data sets without any are not left out.

    Returns
    -------
    dict
        One entry for each variable of :data:`croma_dask.embedding.rank_schema.LEAVE_ONE_OUT`.
    """
    n_datasets = len(aggregate)
    there = _has_ranks(aggregate)
    # Without one that ranks nothing the order is that of all, which would count as agreement.
    left_out = np.flatnonzero(there if there.sum() >= 2 else np.zeros_like(there))
    full, _ = mean_over_datasets(aggregate)
    place = positions(full)
    without = np.full(aggregate.shape, np.nan)
    agreement = {name: np.full(n_datasets, np.nan) for name in ("spearman", "kendall")}
    changed = {top: np.zeros(n_datasets, bool) for top in (1, 3)}
    for t in left_out:
        mean, _ = mean_over_datasets(np.delete(aggregate, t, axis=0))
        without[t] = positions(mean)
        agreement["spearman"][t], agreement["kendall"][t] = _agreement(place, without[t])
        for top, moved in changed.items():
            moved[t] = (_first(place, top) != _first(without[t], top)).any()
    shift = np.abs(without - place)
    found: dict[str, Any] = {
        **agreement,
        "position_without": without,
        # fmax leaves NaN out, and is NaN only where there is nothing else.
        "max_position_shift": np.fmax.reduce(shift, axis=0, initial=np.nan),
        "reason": ""
        if len(left_out)
        else f"data sets with ranks: {there.sum()}; leaving one out needs 2",
    }
    for name, values in agreement.items():
        defined = values[~np.isnan(values)]
        found[f"{name}_min"] = defined.min() if defined.size else np.nan
        found[f"{name}_mean"] = defined.mean() if defined.size else np.nan
    for top, moved in changed.items():
        found[f"top{top}_changed"] = moved
        found[f"top{top}_changes"] = int(moved.sum())
    return found


def _has_ranks(aggregate: F64) -> NDArray[np.bool_]:
    """Whether a data set ranks any method."""
    return np.asarray((~np.isnan(aggregate)).any(axis=1))


def _agreement(place: F64, other: F64) -> tuple[float, float]:
    """Spearman's and Kendall's correlation of two orders, over the methods that both have."""
    from scipy.stats import kendalltau, spearmanr  # type: ignore[import-untyped]

    both = ~np.isnan(place) & ~np.isnan(other)
    a, b = place[both], other[both]
    # scipy warns of orders that are all ties, of which there is no correlation.
    if a.size < 2 or (a == a[0]).all() or (b == b[0]).all():
        return np.nan, np.nan
    return float(spearmanr(a, b).statistic), float(kendalltau(a, b).statistic)


def _first(place: F64, top: int) -> NDArray[np.bool_]:
    """Methods that fewer than `top` others are ahead of."""
    ahead = (place[None, :] < place[:, None]).sum(axis=1)
    found: NDArray[np.bool_] = (ahead < top) & ~np.isnan(place)
    return found
