"""Schedules: how many rows of every cell each split of a sweep trains on.

A cell is a confounder level and a class. The first split of a schedule is balanced; the later ones
tie the class to the confounder more and more, which Cramer's V measures from 0 to 1.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from croma_dask.errors import SchemaError

__all__ = [
    "PATHOROB_SPLITS",
    "SplitPlan",
    "as_count",
    "association",
    "linear_schedule",
    "pathorob_schedule",
    "schedule_cramers_v",
]

SplitPlan: TypeAlias = tuple[Sequence[tuple[int, int, int]], int]
"""One split: its cells ``(confounder i, class j, rows to train on)``, and ``max_train_slides``."""

PATHOROB_SPLITS: dict[str, int] = {"camelyon": 8, "tcga": 7, "tolkach_esca": 4}
"""Number of splits in PathoROB's schedule of each cohort."""


def as_count(value: Any, name: str, *, least: int = 1) -> int:
    """Return an argument as an int that is not too small.

    Parameters
    ----------
    value
        What the caller passed.
    name
        What a message calls it.
    least
        Smallest value allowed.

    Raises
    ------
    SchemaError
        It is no whole number, or below `least`.
    """
    try:
        number = operator.index(value)
    except TypeError as err:
        raise SchemaError(f"{name} must be a whole number, found {value!r}") from err
    if number < least:
        raise SchemaError(f"{name} must be {least} or larger, found {number}")
    return number


def _camelyon(s: int, i: int, j: int) -> int:
    return 7 - s if i == j else 7 + s


def _tcga(s: int, i: int, j: int) -> int:
    if i == j:
        return s + 2
    if i + j == 3:
        return 1 if s % 2 else 2 if s < 3 else 0
    return 2 if s < 2 else 1 if s < 5 else 0


def _tolkach_esca(s: int, i: int, j: int) -> int:
    return 3 - s if (i == 0) == (j < 3) else 3 + s


# Number of confounder levels, of classes, the most slides a cell trains, and slides of a cell.
_PATHOROB: dict[str, tuple[int, int, int, Callable[[int, int, int], int]]] = {
    "camelyon": (2, 2, 14, _camelyon),
    "tcga": (4, 4, 8, _tcga),
    "tolkach_esca": (2, 6, 6, _tolkach_esca),
}


def pathorob_schedule(
    dataset: str, *, rows_per_slide: int = 1, n_splits: int | None = None
) -> list[SplitPlan]:
    """Schedule that PathoROB runs on one of its three cohorts.

    Cells count confounder levels and classes in the order of
    :data:`croma_dask.probe.names.PATHOROB_ORDER`.

    Parameters
    ----------
    dataset
        ``camelyon`` (2 centres x 2 classes), ``tcga`` (4 x 4) or ``tolkach_esca`` (2 x 6).
    rows_per_slide
        Rows that a slide has in a cell; PathoROB has 300, 30 and 100.
    n_splits
        Only the first so many splits.

    Returns
    -------
    list of SplitPlan
        The balanced split first. Every cell is listed, in order, also where it trains nothing.

    Raises
    ------
    SchemaError
        `dataset` has no schedule, or the schedule has fewer splits than asked for.

    Examples
    --------
    >>> from croma_dask.probe.schedule import pathorob_schedule
    >>> pathorob_schedule("camelyon", rows_per_slide=300)[7]
    ([(0, 0, 0), (0, 1, 4200), (1, 0, 4200), (1, 1, 0)], 14)
    """
    if dataset not in _PATHOROB:
        known = ", ".join(map(repr, _PATHOROB))
        raise SchemaError(f"PathoROB has no schedule of {dataset!r}; it has {known}")
    rows = as_count(rows_per_slide, "rows_per_slide")
    splits = PATHOROB_SPLITS[dataset]
    if n_splits is not None:
        wanted = as_count(n_splits, "n_splits")
        if wanted > splits:
            raise SchemaError(
                f"the schedule of {dataset!r} has {splits} splits, n_splits asks for {wanted}: "
                "after the last one there is nothing left to confound"
            )
        splits = wanted
    n_confounders, n_classes, most, slides = _PATHOROB[dataset]
    return [
        (
            [
                (i, j, slides(s, i, j) * rows)
                for i in range(n_confounders)
                for j in range(n_classes)
            ],
            most,
        )
        for s in range(splits)
    ]


def association(tables: ArrayLike) -> NDArray[np.float64]:
    """Cramer's V of contingency tables of whole numbers.

    Parameters
    ----------
    tables
        (..., rows, columns) counts.

    Returns
    -------
    ndarray
        (...) values from 0 to 1. Rows and columns without a count are left out; with fewer than
        two of either left there is nothing that could be associated, and V is NaN.
    """
    n = np.asarray(tables).astype(np.int64)
    total = n.sum(axis=(-2, -1))
    row, column = n.sum(axis=-1), n.sum(axis=-2)
    product = row[..., :, None] * column[..., None, :]
    # Observed minus expected, times the total, in whole numbers: V of independent counts is 0, and
    # not the root of a rounding error.
    surplus = (n * total[..., None, None] - product).astype(np.float64)
    share = np.divide(surplus * surplus, product, out=np.zeros(n.shape), where=product > 0)
    freedom = np.minimum((row > 0).sum(axis=-1), (column > 0).sum(axis=-1)) - 1
    squared = np.full(total.shape, np.nan)
    scale = total.astype(np.float64) ** 2 * freedom
    np.divide(share.sum(axis=(-2, -1)), scale, out=squared, where=freedom > 0)
    v = np.sqrt(squared)
    # Sums of fractions may miss 1 by some units in the last place. No table that is less than
    # fully confounded comes that near: one row out of place in n costs about 1/n.
    return np.where(np.isclose(v, 1.0, rtol=0.0, atol=1e-12), 1.0, v)


def schedule_cramers_v(schedule: Sequence[SplitPlan]) -> NDArray[np.float64]:
    """Cramer's V between confounder and class in what each split trains on.

    Parameters
    ----------
    schedule
        As for the sweep.

    Returns
    -------
    ndarray
        (n_splits,) float64: exactly 0 for a balanced split, exactly 1 for a fully confounded one.
        NaN where a split trains on one confounder level or one class only, or on nothing: V is
        not defined there. That is no error, because such a sweep has accuracies and an
        :func:`~croma_dask.probe.reduce.apd`; only
        :func:`~croma_dask.probe.reduce.nipd` needs V, and refuses NaN.

    Raises
    ------
    SchemaError
        A cell is not three whole numbers of 0 or more.

    Examples
    --------
    >>> from croma_dask.probe.schedule import pathorob_schedule, schedule_cramers_v
    >>> schedule_cramers_v(pathorob_schedule("tolkach_esca")).round(2)
    array([0.  , 0.33, 0.67, 1.  ])
    """
    values = []
    for s, (cells, _) in enumerate(schedule):
        i, j, take = _columns(cells, s)
        # Levels that a split does not use have no row in its table, however large their index is.
        rows, at_row = np.unique(i, return_inverse=True)
        columns, at_column = np.unique(j, return_inverse=True)
        table = np.zeros((max(rows.size, 1), max(columns.size, 1)), np.int64)
        np.add.at(table, (at_row, at_column), take)
        values.append(float(association(table)))
    return np.array(values, dtype=np.float64)


def _columns(cells: Sequence[tuple[int, int, int]], split: int) -> NDArray[np.int64]:
    """(3, n_cells) the cells of a split as columns."""
    if not len(cells):
        return np.zeros((3, 0), np.int64)
    names = ("confounder", "class", "rows to train on")
    try:
        return np.array(
            [
                [
                    as_count(value, f"split {split}, cell {tuple(cell)}: {name}", least=0)
                    for name, value in zip(names, cell, strict=True)
                ]
                for cell in cells
            ],
            dtype=np.int64,
        ).T
    except (TypeError, ValueError) as err:
        if isinstance(err, SchemaError):
            raise
        raise SchemaError(
            f"split {split}: a cell is (confounder, class, rows to train on), found {cells!r}"
        ) from err


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
    >>> from croma_dask.probe.schedule import linear_schedule
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
