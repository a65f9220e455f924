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
    if number > 1 << 53:
        raise SchemaError(f"{name} must be a number of rows or slides, found {number!r:.30}...")
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
