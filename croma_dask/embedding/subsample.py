"""Fewer cells for the metrics of batches: of each label and batch about the same share.

A stratum is a label and a batch; strata are numbered in the order in which they first appear, so
that the row order counts. Its quota is the share of the sample that its cells are of all, rounded
down; no stratum is left out as long as there are no more of them than cells to take. What rounding
left over goes to strata in the order of the fractions that were cut off, largest first, and each
takes as much of it as it has cells, before the next gets any.
"""

from __future__ import annotations

import numpy as np

from croma_dask.kernels.typing import F64, I32, I64

__all__ = ["SUBSAMPLE_SEED", "stratified_subsample", "subsample_note"]

SUBSAMPLE_SEED = 17


def stratified_subsample(
    label_codes: I32, batch_codes: I32, max_cells: int, *, seed: int = SUBSAMPLE_SEED
) -> I64:
    """Choose at most so many cells, stratified by label and batch.

    Parameters
    ----------
    label_codes, batch_codes
        (n,) of the cells in row order, none missing.
    max_cells
        How many to take; 0 or less for all.
    seed
        Of the draw.

    Returns
    -------
    rows
        (min(n, max_cells),) positions, ascending.

    Notes
    -----
    Of equal quotas and equal fractions the stratum that appears first comes first. The reference
    leaves that to a sort that keeps no order: of strata with equal fractions it may draw other
    cells, and other ones on another processor.

    Examples
    --------
    >>> import numpy as np
    >>> label = np.array([0, 0, 0, 0, 1, 1, 1, 0], np.int32)
    >>> stratified_subsample(label, np.zeros(8, np.int32), 4).size
    4
    """
    n = int(label_codes.shape[0])
    if max_cells <= 0 or n <= max_cells:
        return np.arange(n, dtype=np.int64)
    order, start = _strata(label_codes, batch_codes)
    quota = _quotas(np.diff(start), n, max_cells)
    rng = np.random.default_rng(seed)
    taken = [
        rng.choice(order[start[s] : start[s + 1]], size=int(quota[s]), replace=False)
        for s in np.flatnonzero(quota)
    ]
    return np.sort(np.concatenate(taken))


def subsample_note(full_n_cells: int, used_n_cells: int) -> str:
    """Say that cells were left out; nothing if none were."""
    if used_n_cells >= full_n_cells:
        return ""
    return (
        f"stratified_subsample=cell_type_x_batch;full_n_cells={full_n_cells};"
        f"used_n_cells={used_n_cells}"
    )


def _strata(label_codes: I32, batch_codes: I32) -> tuple[I64, I64]:
    """Cells stratum by stratum, each ascending, and (strata + 1,) where each begins."""
    pair = label_codes.astype(np.int64) * (int(batch_codes.max()) + 1) + batch_codes
    _, first, stratum = np.unique(pair, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    number = rank[stratum]
    start = np.concatenate([[0], np.cumsum(np.bincount(number))])
    return np.argsort(number, kind="stable"), start


def _quotas(count: I64, n: int, max_cells: int) -> I64:
    """(strata,) how many cells to take of each; their sum is `max_cells`."""
    share: F64 = count.astype(np.float64) * (max_cells / n)
    quota: I64 = np.minimum(np.floor(share).astype(np.int64), count)
    if count.size <= max_cells:
        quota[quota == 0] = 1
    else:
        quota[:] = 0
        quota[np.argsort(-count, kind="stable")[:max_cells]] = 1
    while quota.sum() > max_cells:
        least = np.where(quota > 0, share, np.inf)
        quota[least.argmin()] -= 1
    left = max_cells - int(quota.sum())
    for s in np.argsort(np.floor(share) - share, kind="stable"):
        more = min(left, int(count[s] - quota[s]))
        quota[s] += more
        left -= more
    return quota
