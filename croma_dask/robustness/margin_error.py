"""The error of CRoMa's values under an approximate search, from the margins of a sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from croma_dask.robustness.calibration import SampleLists
from croma_dask.robustness.margin import margins_of
from croma_dask.robustness.sampling import NORMAL, Estimate, Share, mean_of
from croma_dask.robustness.statistics import tail_of

__all__ = ["calibrate_margin"]

F64 = NDArray[np.float64]

_SAME = 1e-12
"""Margins that differ by less are the same: rounding, not another neighbour."""

_ONE_MISS = 0.1
"""A missed neighbour of five moves a margin by about this share of the margins' interquartile
range (measured: 0.08 to 0.13); used only where the sample holds no moved margin."""

_TAIL_MISS = 0.8
"""A moved margin of the tail counts for less: only as far as the quantile. Chosen by coverage."""


def calibrate_margin(
    approx: SampleLists, exact: SampleLists, m: int, alpha: float, margins: F64, share: Share
) -> dict[str, Estimate]:
    """Estimate the errors of CRoMa's value, lower-tail mean and F(0) under the design ``all``.

    Parameters
    ----------
    approx, exact
        Lists of the same sample.
    m, alpha
        As scored.
    margins
        (n,) margins of all rows, NaN where undefined: by the approximate lists, the known rows' by
        the exact ones.
    share
        How many rows the sample stands for.

    Returns
    -------
    dict
        ``value``, ``ltm_alpha`` and ``f0``.
    """
    if share.unknown == 0.0:
        return dict.fromkeys(("value", "ltm_alpha", "f0"), Estimate.around(0.0, 0.0))
    sides = [margins_of(lists.so, lists.os, m)[0] for lists in (approx, exact)]
    defined = np.sort(margins[~np.isnan(margins)])
    if not defined.size or np.isnan(sides[1]).all():
        return dict.fromkeys(("value", "ltm_alpha", "f0"), Estimate.unknown())
    pair = _MarginPair(*sides, n_rows=margins.shape[0], defined=defined, share=share)
    return {"value": pair.median(), "ltm_alpha": pair.tail(alpha), "f0": pair.f0()}


class _MarginPair:
    """Margins of a sample by approximate and by exact lists, and all approximate margins."""

    def __init__(self, approx: F64, exact: F64, *, n_rows: int, defined: F64, share: Share) -> None:
        self.approx, self.exact, self.all = approx, exact, defined
        self.n_rows, self.share = n_rows, share
        self.support = float((~np.isnan(exact)).mean())
        lower, upper = np.quantile(defined, [0.25, 0.75])
        # Silverman's rule for a flat window.
        self.width = float(upper - lower) * approx.shape[0] ** -0.2
        moved = np.abs(approx - exact)
        moved = moved[moved > _SAME]
        self.moved = (
            float(np.sqrt((moved**2).mean())) if moved.size else _ONE_MISS * float(upper - lower)
        )

    def f0(self) -> Estimate:
        value = self._below(0.0)
        return Estimate.around(*self._crossed(0.0)).within(value, 0.0, 1.0)

    def median(self) -> Estimate:
        """Median error: where the exact margins reach one half, on the approximate scale.

        If q more of the approximate margins than of the exact ones lie below the exact median, it
        is the (1/2 + q)-quantile of the approximate margins, which are all known.
        """
        value = self._quantile(0.0)
        q, _ = self._crossed(value)
        q, half = self._crossed(self._quantile(q))
        error, low, high = (value - self._quantile(p) for p in (q, q + half, q - half))
        return Estimate(error, low, high)

    def tail(self, alpha: float) -> Estimate:
        """Error of the lower-tail mean.

        The tail mean is the maximum over q of q - mean((q - x)+) / alpha, so that to first order
        it does not matter that the exact margins have another alpha-quantile.
        """
        tail = tail_of(self.all, alpha)
        share = self._below(tail.q_alpha)

        def contribution(x: F64) -> F64:
            part = np.minimum(x, tail.q_alpha) - tail.q_alpha
            return np.where(np.isnan(x), 0.0, part / share + tail.q_alpha - tail.ltm_alpha)

        difference = contribution(self.approx) - contribution(self.exact)
        rare = np.full(2, _TAIL_MISS * self.moved / share / self.support)
        mean, half = mean_of(difference / self.support, self.share, rare)
        return Estimate.around(mean, half).within(tail.ltm_alpha, -1.0, 1.0)

    def _below(self, at: float) -> float:
        return float(np.searchsorted(self.all, at, side="right") / self.all.shape[0])

    def _quantile(self, more: float) -> float:
        return float(np.quantile(self.all, min(max(0.5 + more, 0.0), 1.0)))

    def _crossed(self, at: float) -> tuple[float, float]:
        """Share of approximate less share of exact margins at or below a threshold, half-width.

        Few rows cross a threshold, but those that cross any threshold of a window around it tell
        how many cross this one: they predict the rows whose lists are not known.
        """
        level, width = self._below(at), self.width

        def below(x: F64) -> F64:
            part = x <= at if width == 0.0 else np.clip((at + width - x) / (2 * width), 0.0, 1.0)
            return np.where(np.isnan(x), 0.0, part - level)

        soft = (below(self.approx) - below(self.exact)) / self.support
        one = min(self.moved / (2 * width), 1.0) if width else 1.0
        mean, half = mean_of(soft, self.share, np.full(2, one / self.support))
        # How many of the unknown rows do cross scatters around what is predicted.
        unknown = self.share.unknown
        scatter = (
            NORMAL**2
            * unknown
            * float(np.abs(soft * self.share.weight).mean())
            / self.support
            / self.n_rows
        )
        return mean, float(np.sqrt(half**2 + scatter))
