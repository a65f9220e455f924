"""CRoMa from the typed lists of a search: how much nearer biology is than the confounder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.design import Scope, block_rows
from croma_dask.index.neighbors import Neighbors

__all__ = ["MarginScore", "margins_of", "score_margin"]

F64 = NDArray[np.float64]


@dataclass
class MarginScore:
    """CRoMa of a cohort at one m.

    Attributes
    ----------
    value
        Median over subsets of their median margin.
    pair_values
        (subsets,) median margin of each, NaN where no unit is defined.
    sample_values
        (rows,) margins aligned to the manifest, NaN where undefined.
    undefined_type
        (rows,) int8: 0 defined, 1 fewer than m SO, 2 fewer than m OS, 3 fewer of both, 4 zero
        distance, -1 not scored.
    f0
        Fraction of defined units with margin <= 0.
    """

    value: float
    pair_values: F64
    sample_values: F64
    undefined_type: NDArray[np.int8]
    f0: float


def score_margin(
    scopes: Sequence[Scope], neighbors: Sequence[Neighbors], m_values: Sequence[int], n_rows: int
) -> list[MarginScore]:
    """Score every m from one search at the largest.

    Parameters
    ----------
    scopes, neighbors
        One each a scope.
    m_values
        Radii.
    n_rows
        Manifest rows.
    """
    margins = np.full((len(m_values), n_rows), np.nan)
    undefined = np.full((len(m_values), n_rows), -1, np.int8)
    for scope, found in zip(scopes, neighbors, strict=True):
        for block in found.typed_blocks():
            at = block_rows(scope, block.lo, block.hi)
            for number, m in enumerate(m_values):
                margins[number, at], undefined[number, at] = margins_of(block.so, block.os, m)
    return [_summary(scopes, margins[number], undefined[number]) for number in range(len(m_values))]


def margins_of(so: F64, os: F64, m: int) -> tuple[F64, NDArray[np.int8]]:
    """Score the typed lists of some rows.

    Parameters
    ----------
    so, os
        (n, at least m) distances of the nearest SO and OS rows, NaN behind the last.
    m
        Radius.

    Returns
    -------
    margins, undefined
        (n,) each, as in :class:`MarginScore`.
    """
    d_so, d_os = _mean(so, m), _mean(os, m)
    no_so, no_os = np.isnan(d_so), np.isnan(d_os)
    total = d_os + d_so
    zero = total == 0.0
    fine = ~(no_so | no_os | zero)
    margins = np.divide(d_os - d_so, total, out=np.full(total.shape, np.nan), where=fine)
    return margins, np.where(fine, 0, np.where(zero, 4, no_so + 2 * no_os)).astype(np.int8)


def _mean(distance: F64, m: int) -> F64:
    """Mean of the first m distances of every row; NaN where there are fewer."""
    if distance.shape[1] < m:
        return np.full(distance.shape[0], np.nan)
    # One after the other: the same bits however many more there are.
    mean: F64 = np.cumsum(distance[:, :m], axis=1)[:, -1] / m
    return mean


def _summary(scopes: Sequence[Scope], margins: F64, undefined: NDArray[np.int8]) -> MarginScore:
    medians = np.full(len(scopes), np.nan)
    for number, scope in enumerate(scopes):
        mine = margins if scope.rows is None else margins[scope.rows]
        mine = mine[~np.isnan(mine)]
        if mine.size:
            medians[number] = np.median(mine)
    defined = margins[~np.isnan(margins)]
    known = medians[~np.isnan(medians)]
    return MarginScore(
        value=float(np.median(known)) if known.size else float("nan"),
        pair_values=medians,
        sample_values=margins,
        undefined_type=undefined,
        f0=float(np.mean(defined <= 0.0)) if defined.size else float("nan"),
    )
