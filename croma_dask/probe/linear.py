"""A schedule for a cohort of one's own: from balanced to fully confounded in whole slides."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from croma_dask.errors import SchemaError
from croma_dask.probe.schedule import SplitPlan, as_count, association

__all__ = ["linear_schedule"]

_CANDIDATES = 10_000
"""Training tables looked at for the steps of a schedule: V is then linear to 1e-4."""

_CELLS = 4_000_000
"""Cells of all these tables: 32 MiB."""


def linear_schedule(
    n_confounders: int, n_classes: int, slides: ArrayLike, splits: int, *, rows_per_slide: int = 1
) -> list[SplitPlan]:
    """Schedule for a cohort of one's own: V rises from 0 to 1 as evenly as whole slides allow.

    The first split trains on equally many slides of every cell. The last one is fully confounded:
    classes are dealt to confounder levels in order (of 2 x 6, classes 0 to 2 belong to level 0),
    or levels to classes where there are more levels than classes, and only cells that belong
    together are trained on. In between, slides move towards those cells. Every split trains on the
    same number of slides of each class, so that neither the amount of training data nor the balance
    of the classes changes with V.

    Parameters
    ----------
    n_confounders, n_classes
        Size of the cohort's table, 2 or more each.
    slides
        Slides that every cell can give for training: a number, or (n_confounders, n_classes)
        numbers. Keep some back: the sweep tests on what comes after `max_train_slides`, the
        validation slides and one slide more.
    splits
        Number of splits, 2 or more.
    rows_per_slide
        Rows that a slide has in a cell.

    Returns
    -------
    list of SplitPlan
        The balanced split first; :func:`schedule_cramers_v` is strictly increasing over it. As many
        slides are used as `slides` allows.

    Raises
    ------
    SchemaError
        A cell cannot give what the first or the last split needs, or whole slides do not give
        enough different values of V.

    Examples
    --------
    >>> from croma_dask.probe.linear import linear_schedule
    >>> for cells, max_train_slides in linear_schedule(2, 2, 4, 3):
    ...     print(cells, max_train_slides)
    [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2)] 4
    [(0, 0, 3), (0, 1, 1), (1, 0, 1), (1, 1, 3)] 4
    [(0, 0, 4), (0, 1, 0), (1, 0, 0), (1, 1, 4)] 4
    """
    shape = (
        as_count(n_confounders, "n_confounders", least=2),
        as_count(n_classes, "n_classes", least=2),
    )
    n_splits = as_count(splits, "splits", least=2)
    rows = as_count(rows_per_slide, "rows_per_slide")
    together = _deal(*shape)
    base, last = _ends(together, _capacity(slides, shape), n_splits)
    moves = int(np.maximum(last - base, 0).sum())
    looked_at = max(10 * n_splits, min(_CANDIDATES, _CELLS // last.size))
    moved = np.unique(np.linspace(0, moves, min(moves + 1, looked_at)).round().astype(np.int64))
    tables = _between(together, base, last, moved)
    v = association(tables)
    # Values that differ by rounding only are one value.
    order = np.argsort(v, kind="stable")
    order = order[np.concatenate([[True], np.diff(v[order]) > 1e-9])]
    if order.size < n_splits:
        raise SchemaError(
            f"splits={n_splits}, but {last.max()} slides in the largest cell of the last split "
            f"give only {order.size} different values of V; ask for fewer splits or raise slides"
        )
    chosen = order[_nearest_rising(v[order], n_splits)]
    return [
        ([(i, j, int(table[i, j]) * rows) for i, j in np.ndindex(shape)], int(last.max()))
        for table in tables[chosen]
    ]


def _deal(n_confounders: int, n_classes: int) -> NDArray[np.bool_]:
    """Which confounder levels and classes belong together when V is 1."""
    i, j = np.arange(n_confounders)[:, None], np.arange(n_classes)[None, :]
    if n_classes >= n_confounders:
        return np.equal(i, j * n_confounders // n_classes)
    return np.equal(j, i * n_classes // n_confounders)


def _capacity(slides: ArrayLike, shape: tuple[int, int]) -> NDArray[np.int64]:
    found = np.asarray(slides)
    if found.dtype.kind not in "iu" or found.shape not in ((), shape):
        raise SchemaError(
            f"slides is one whole number or {shape[0]} x {shape[1]} of them, found "
            f"{found.dtype} of shape {found.shape}"
        )
    return np.broadcast_to(found.astype(np.int64), shape)


def _ends(
    together: NDArray[np.bool_], capacity: NDArray[np.int64], splits: int
) -> tuple[int, NDArray[np.int64]]:
    """Slides of every cell in the balanced split, and (levels, classes) slides in the last one."""
    levels = together.shape[0]
    sharing = together.sum(axis=0)
    # A class spreads over the levels that it has in the last split; the first ones take the rest.
    place = np.cumsum(together, axis=0) - 1
    most = np.where(together, (capacity * sharing + place) // levels, capacity)
    base = int(most.min())
    if base < 1:
        i, j = (int(at) for at in np.unravel_index(np.argmin(most), most.shape))
        split, need = (0, 1)
        if capacity[i, j] > 0:
            split, need = splits - 1, -(-levels // int(sharing[j]))
        raise SchemaError(
            f"split {split}: cell ({i}, {j}) has to train on {need} slides or more, and slides "
            f"gives it {capacity[i, j]}; a cell that is in the last split takes over the slides of "
            "the others of its class"
        )
    spread = (levels * base + sharing - 1 - place) // sharing
    return base, np.where(together, spread, 0)


def _between(
    together: NDArray[np.bool_], base: int, last: NDArray[np.int64], moved: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(n, levels, classes) tables with so many slides moved, evenly over classes and levels."""
    levels, classes = together.shape
    tables = np.full((moved.size, levels, classes), base, dtype=np.int64)
    leaving = np.full(classes, base) * (levels - together.sum(axis=0))
    of_class = _apportion(moved, leaving)
    for j in range(classes):
        home = np.flatnonzero(together[:, j])
        # Classes start at different levels, or the same level would be emptied first by all.
        turn = home[0] + 1 + int((together[home[0], :j]).sum())
        away = np.roll(np.arange(levels), -turn)
        away = away[~together[away, j]]
        tables[:, away, j] -= _apportion(of_class[:, j], np.full(away.size, base))
        tables[:, home, j] += _apportion(of_class[:, j], last[home, j] - base)
    return tables


def _apportion(amount: NDArray[np.int64], weight: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n, parts) whole shares of each amount in proportion to the weights, at most the weight."""
    ends = np.concatenate([[0], np.cumsum(weight)])
    shares: NDArray[np.int64] = np.diff(amount[:, None] * ends // ends[-1], axis=1)
    return shares


def _nearest_rising(values: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Positions of `n` rising values, from the first to the last, nearest to even steps."""
    cost = (values - np.linspace(0.0, 1.0, n)[:, None]) ** 2
    best = np.full(values.size, np.inf)
    best[0] = cost[0, 0]
    came_from = np.zeros(cost.shape, dtype=np.int64)
    for s in range(1, n):
        least = np.minimum.accumulate(best)
        at = np.maximum.accumulate(np.where(best == least, np.arange(values.size), 0))
        came_from[s, 1:] = at[:-1]
        best = np.concatenate([[np.inf], cost[s, 1:] + least[:-1]])
    chosen = np.zeros(n, dtype=np.int64)
    chosen[-1] = values.size - 1
    for s in range(n - 1, 0, -1):
        chosen[s - 1] = came_from[s, chosen[s]]
    return chosen
