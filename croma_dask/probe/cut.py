"""Which rows a split trains, validates and is tested on, checked before anything is fitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from croma_dask.errors import SchemaError, name_items, name_rows
from croma_dask.probe.schedule import SplitPlan, as_count
from croma_dask.probe.slides import CellOrder, check_iterations

__all__ = ["CellCut", "Cut", "check_rows", "check_schedule"]

I64 = NDArray[np.int64]

_MAX_CELLS = 1_000_000
"""Cells of a cohort. Indices so large are not counted from 0 in all likelihood."""


class CellCut(NamedTuple):
    """What one split takes of one cell, from the front: training rows, then validation rows."""

    confounder: int
    label: int
    take: int
    reserve: int


@dataclass(frozen=True)
class Cut:
    """A schedule that the cohort can carry.

    Attributes
    ----------
    cells
        Of every split, its cells in the order of the schedule.
    first_held_out
        Of every split, the position in each cell from which on rows are tested on. It is the same
        for all splits of one `max_train_slides`, and the same rows are then tested on.
    """

    cells: tuple[tuple[CellCut, ...], ...]
    first_held_out: tuple[int, ...]

    @property
    def n_splits(self) -> int:
        """Number of splits."""
        return len(self.cells)

    def training(self, split: int, order: CellOrder) -> I64:
        """Rows that a split trains on.

        Parameters
        ----------
        split
            Number of the split.
        order
            Rows of every cell in the order of the replicate.
        """
        return np.concatenate([order[c.confounder][c.label][: c.take] for c in self.cells[split]])

    def validation(self, split: int, order: CellOrder) -> I64:
        """Rows that choose the C of a split's probe; parameters as of :meth:`training`."""
        return np.concatenate(
            [order[c.confounder][c.label][c.take : c.take + c.reserve] for c in self.cells[split]]
        )

    def held_out(self, split: int, order: CellOrder) -> I64:
        """Rows of all cells that a split is tested on; parameters as of :meth:`training`."""
        first = self.first_held_out[split]
        return np.concatenate([cell[first:] for level in order for cell in level])


def check_rows(confounders: ArrayLike, labels: ArrayLike, n_rows: int) -> tuple[I64, I64]:
    """Return the indices of all rows as int64.

    Parameters
    ----------
    confounders, labels
        (n_rows,) whole numbers from 0.
    n_rows
        Rows of the embedding.

    Raises
    ------
    SchemaError
        They are no whole numbers, below 0, not one a row, or there is no row at all.
    """
    if n_rows < 1:
        raise SchemaError("the embedding has no rows; a sweep needs rows of every cell")
    checked = [
        _indices(confounders, "confounders", n_rows),
        _indices(labels, "labels", n_rows),
    ]
    levels, classes = (int(values.max()) + 1 for values in checked)
    if levels * classes > _MAX_CELLS:
        raise SchemaError(
            f"confounders go up to {levels - 1} and labels up to {classes - 1}, which makes "
            f"{levels * classes} cells of {n_rows} rows; number both from 0, for example with "
            "names_to_indices"
        )
    return checked[0], checked[1]


def _indices(values: ArrayLike, name: str, n_rows: int) -> I64:
    array = np.asarray(values)
    if array.ndim != 1:
        raise SchemaError(f"{name} must be one index a row, found an array of shape {array.shape}")
    if array.shape[0] != n_rows:
        raise SchemaError(f"{name} has {array.shape[0]} rows, the embedding has {n_rows}")
    if array.dtype.kind not in "iu":
        raise SchemaError(
            f"{name} must be whole numbers that count from 0, found {array.dtype}; "
            "names_to_indices makes them of names"
        )
    negative = np.flatnonzero(array < 0)
    if negative.size:
        raise SchemaError(
            f"{name} must be 0 or larger, found {array[negative[0]]} in "
            f"{name_rows(negative[:5], total=negative.size)}"
        )
    if int(array.max()) > np.iinfo(np.int64).max // 2:
        raise SchemaError(f"{name} must count from 0, found {array.max()}")
    return array.astype(np.int64, copy=False)


def check_schedule(
    schedule: Sequence[SplitPlan],
    cell_sizes: ArrayLike,
    *,
    rows_per_slide: int,
    iterations: int,
    validation_fraction: float | None,
) -> Cut:
    """Check that a cohort can carry a schedule, and say which rows every split takes.

    Parameters
    ----------
    schedule
        The balanced split first, and at least one more.
    cell_sizes
        (n_confounders, n_classes) rows of every cell.
    rows_per_slide, iterations
        As of the sweep.
    validation_fraction
        Validation rows as a share of the training rows of a cell, in [0, 1). None takes
        ``1 / max_train_slides`` of them, rounded down.

    Returns
    -------
    Cut
        The rows of every split.

    Raises
    ------
    SchemaError
        An argument is out of range; a split names a cell that no row carries, or the same cell
        twice; a cell is asked for more rows than it has or than `max_train_slides` allows; a split
        has no training, validation or test rows, or trains on one class only.
    """
    rows = as_count(rows_per_slide, "rows_per_slide")
    check_iterations(iterations)
    fraction = _fraction(validation_fraction)
    sizes = np.asarray(cell_sizes).astype(np.int64)
    plans = _plans(schedule)
    cells = []
    first_held_out = []
    for s, (plan, max_train_slides) in enumerate(plans):
        most = as_count(max_train_slides, f"split {s}: max_train_slides")
        taken = _cells(plan, s)
        cuts = tuple(
            CellCut(i, j, take, int(take / most) if fraction is None else round(fraction * take))
            for i, j, take in taken
        )
        for cut in cuts:
            _check_cell(cut, s, sizes, most, rows)
        gap = 1 if fraction is None else round(fraction * most) + 1
        first = (most + gap) * rows
        _check_split(cuts, s, sizes, first, most, rows, fraction)
        cells.append(cuts)
        first_held_out.append(first)
    return Cut(tuple(cells), tuple(first_held_out))


def _fraction(validation_fraction: float | None) -> float | None:
    if validation_fraction is None:
        return None
    try:
        fraction = float(validation_fraction)
    except (TypeError, ValueError) as err:
        raise SchemaError(
            f"validation_fraction must be None or a number in [0, 1), found {validation_fraction!r}"
        ) from err
    if not 0.0 <= fraction < 1.0:
        raise SchemaError(f"validation_fraction must be in [0, 1), found {validation_fraction!r}")
    return fraction


def _plans(schedule: Any) -> list[tuple[Any, Any]]:
    plans = list(schedule) if isinstance(schedule, Iterable) else [schedule]
    for s, plan in enumerate(plans):
        if isinstance(plan, str) or not isinstance(plan, Sequence) or len(plan) != 2:
            raise SchemaError(f"split {s} must be (cells, max_train_slides), found {plan!r}")
    if len(plans) < 2:
        raise SchemaError(
            f"schedule has {len(plans)} split(s); it needs the balanced one and one more at least"
        )
    return plans


def _cells(plan: Any, s: int) -> list[tuple[int, int, int]]:
    """Cells of a split as whole numbers, each cell once."""
    expected = f"split {s}: cells are (confounder, class, rows to train on)"
    if isinstance(plan, str) or not isinstance(plan, Iterable):
        raise SchemaError(f"{expected}, found {plan!r}")
    cells: dict[tuple[int, int], int] = {}
    for entry in plan:
        parts = tuple(entry) if isinstance(entry, Iterable) else ()
        if len(parts) != 3:
            raise SchemaError(f"{expected}, found {entry!r}")
        i, j, take = parts
        cell = (
            as_count(i, f"split {s}: the confounder of cell {entry!r}", least=0),
            as_count(j, f"split {s}: the class of cell {entry!r}", least=0),
        )
        if cell in cells:
            # Its rows would be trained on twice, and validated on after training.
            raise SchemaError(
                f"split {s} names cell {cell} twice, with {cells[cell]} and {take} rows; "
                "give every cell one entry"
            )
        cells[cell] = as_count(take, f"split {s}: the training rows of cell {cell}", least=0)
    return [(i, j, take) for (i, j), take in cells.items()]


def _check_cell(cut: CellCut, s: int, sizes: I64, most: int, rows: int) -> None:
    i, j, take, reserve = cut
    where = f"split {s}: cell ({i}, {j})"
    if i >= sizes.shape[0] or j >= sizes.shape[1] or sizes[i, j] == 0:
        present = [(int(a), int(b)) for a, b in np.argwhere(sizes > 0)]
        raise SchemaError(
            f"{where} is carried by no row; rows carry {name_items(present, limit=20)}; number "
            "confounders and labels as the schedule does"
        )
    if take > most * rows:
        raise SchemaError(
            f"{where} asks for {take} training rows, more than max_train_slides={most} slides of "
            f"rows_per_slide={rows} rows allow ({most * rows}); make the schedule for the same "
            "rows_per_slide, or raise max_train_slides"
        )
    if take + reserve > sizes[i, j]:
        raise SchemaError(
            f"{where} has {sizes[i, j]} rows, too few for {take} training and {reserve} validation "
            "rows; train on fewer rows of it"
        )


def _check_split(
    cuts: tuple[CellCut, ...],
    s: int,
    sizes: I64,
    first: int,
    most: int,
    rows: int,
    fraction: float | None,
) -> None:
    trained = sorted({cut.label for cut in cuts if cut.take})
    if not trained:
        raise SchemaError(
            f"split {s} trains on no rows: {len(cuts)} cells, all with 0 rows; give two classes "
            "rows to train on"
        )
    if len(trained) == 1:
        raise SchemaError(
            f"split {s} trains on class {trained[0]} only "
            f"({sum(cut.take for cut in cuts)} rows); a probe needs rows of two classes or more"
        )
    if not any(cut.reserve for cut in cuts):
        largest = max(cuts, key=lambda cut: cut.take)
        share = (
            f"1/{most} of the training rows of each cell, rounded down; with "
            f"rows_per_slide={rows} pass a validation_fraction"
            if fraction is None
            else f"validation_fraction={fraction} of the training rows of each cell, rounded; "
            "raise it, or train on more rows"
        )
        raise SchemaError(
            f"split {s} has no validation rows: cell ({largest.confounder}, {largest.label}) "
            f"trains on the most rows, {largest.take}, and validation takes {share}"
        )
    if sizes.max() <= first:
        i, j = (int(at) for at in np.unravel_index(np.argmax(sizes), sizes.shape))
        raise SchemaError(
            f"split {s} has no test rows: they start after {first} rows of a cell "
            f"(max_train_slides={most}, rows_per_slide={rows}), and the largest cell ({i}, {j}) "
            f"has {sizes[i, j]}; lower max_train_slides or bring more rows"
        )
