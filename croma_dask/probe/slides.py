"""Slides of a cell, and the order in which each replicate takes them.

Rows of a cell are cut into slides of `rows_per_slide` rows, the last of which may be short, and
whole slides are shuffled. A replicate starts from the order of rows that the one before it has
left, and cuts that into slides anew.
"""

from __future__ import annotations

import operator
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from croma_dask.errors import SchemaError, name_items
from croma_dask.probe.schedule import as_count

__all__ = [
    "IN_DOMAIN",
    "CellOrder",
    "Slide",
    "SlideArrangement",
    "SlideCells",
    "arrange_replicates",
    "check_iterations",
    "group_rows",
    "replicate_seeds",
]

I64 = NDArray[np.int64]

Slide: TypeAlias = Sequence[int]
"""Rows of one slide."""

SlideCells: TypeAlias = Sequence[Sequence[Sequence[Slide]]]
"""Slides of every cell: [confounder][class][slide]."""

SlideArrangement: TypeAlias = Callable[[SlideCells, random.Random], SlideCells]
"""Gives the slides of every cell in the order in which a replicate takes them.

It gets lists that it may change, and the generator of the replicate, and returns the same slides:
whole, each in its own cell.
"""

CellOrder: TypeAlias = list[list[I64]]
"""Rows of every cell in the order of one replicate: [confounder][class]."""

IN_DOMAIN = "in_domain"
"""Name of the accuracies on the held-out rows of the cohort itself."""

MAX_ITERATIONS = 10_000
"""Seeds that replicates are drawn from, each once."""


def check_iterations(iterations: Any) -> int:
    """Return the number of replicates as an int from 1 to 10,000."""
    n = as_count(iterations, "iterations")
    if n > MAX_ITERATIONS:
        raise SchemaError(
            f"iterations must be {MAX_ITERATIONS} or less, since each replicate takes a seed of "
            f"its own out of so many; found {n}"
        )
    return n


def replicate_seeds(seed: int, iterations: int) -> list[int]:
    """Seeds of the replicates of a sweep.

    Parameters
    ----------
    seed
        Seed of the sweep.
    iterations
        Number of replicates, 1 to 10,000.

    Raises
    ------
    SchemaError
        Either is no whole number, or `iterations` is out of range.

    Examples
    --------
    >>> from croma_dask.probe.slides import replicate_seeds
    >>> replicate_seeds(1000, 3) == replicate_seeds(1000, 20)[:3]
    True
    """
    n = check_iterations(iterations)
    try:
        number = operator.index(seed)
    except TypeError as err:
        raise SchemaError(f"seed must be a whole number, found {seed!r}") from err
    return random.Random(number).sample(range(MAX_ITERATIONS), n)


def group_rows(confounders: I64, labels: I64) -> CellOrder:
    """Rows of every cell, in input order.

    Parameters
    ----------
    confounders, labels
        (n_rows,) indices from 0; see :func:`croma_dask.probe.cut.check_rows`.

    Returns
    -------
    list of list of ndarray
        [confounder][class] rows; cells that no row carries are empty.
    """
    n_confounders, n_classes = int(confounders.max()) + 1, int(labels.max()) + 1
    cell = confounders * n_classes + labels
    rows = np.argsort(cell, kind="stable").astype(np.int64, copy=False)
    ends = np.cumsum(np.bincount(cell, minlength=n_confounders * n_classes))
    cells = np.split(rows, ends[:-1])
    return [cells[i * n_classes : (i + 1) * n_classes] for i in range(n_confounders)]


def arrange_replicates(
    confounders: I64,
    labels: I64,
    *,
    rows_per_slide: int,
    iterations: int,
    seed: int,
    arrange_slides: SlideArrangement | None = None,
) -> Iterator[CellOrder]:
    """Order of the rows of every cell, replicate by replicate.

    Parameters
    ----------
    confounders, labels
        (n_rows,) indices from 0.
    rows_per_slide
        Rows of a cell that stay together.
    iterations
        Number of replicates.
    seed
        Seed of the sweep.
    arrange_slides
        Takes the place of the shuffle; see :data:`SlideArrangement`.

    Returns
    -------
    iterator of CellOrder
        One a replicate. Each follows from the one before, so they are made one after the other;
        their arrays are never written to again.

    Raises
    ------
    SchemaError
        An argument is out of range, or (while iterating) `arrange_slides` returns something else
        than the slides that it was given.

    Notes
    -----
    A shuffle takes about 0.7 s for a million slides, and 8 bytes a slide. A custom arrangement
    works on lists of Python numbers, about 40 bytes a row.
    """
    rows = as_count(rows_per_slide, "rows_per_slide")
    seeds = replicate_seeds(seed, iterations)
    return _replicates(group_rows(confounders, labels), rows, seeds, arrange_slides)


def _replicates(
    order: CellOrder, rows: int, seeds: list[int], arrange: SlideArrangement | None
) -> Iterator[CellOrder]:
    for replicate, seed in enumerate(seeds):
        rng = random.Random(seed)
        if arrange is None:
            order = [[_take(cell, rows, _shuffle(cell, rows, rng)) for cell in r] for r in order]
        else:
            returned = arrange([[_cut(cell, rows) for cell in level] for level in order], rng)
            order = _check(order, returned, rows, replicate)
        yield order


def _shuffle(cell: I64, rows: int, rng: random.Random) -> I64:
    """Numbers of a cell's slides, shuffled."""
    # The draws of a shuffle depend on the number of items alone. In an array they cost 8 bytes
    # each, and no object.
    slides = array("q", range(-(-cell.size // rows)))
    rng.shuffle(slides)
    return np.array(slides, dtype=np.int64)


def _take(cell: I64, rows: int, slides: I64) -> I64:
    """Rows of a cell with its slides in a given order."""
    if rows == 1:
        return cell[slides]
    at = (slides[:, None] * rows + np.arange(rows)).ravel()
    taken: I64 = cell[at[at < cell.size]]  # the last slide may be short
    return taken


def _cut(cell: I64, rows: int) -> list[list[int]]:
    """Slides of a cell, as lists."""
    flat: list[int] = cell.tolist()
    return [flat[at : at + rows] for at in range(0, len(flat), rows)]


def _check(order: CellOrder, returned: Any, rows: int, replicate: int) -> CellOrder:
    """Turn what an arrangement returned into an order of rows, if it is one."""
    where = f"arrange_slides, replicate {replicate}"
    levels = _parts(returned, f"{where}: the result", "confounder levels", len(order))
    checked: CellOrder = []
    for i, level in enumerate(levels):
        classes = _parts(level, f"{where}: confounder {i}", "classes", len(order[i]))
        checked.append([])
        for j, slides in enumerate(classes):
            name = f"{where}: cell ({i}, {j})"
            cell = order[i][j]
            slides = _parts(slides, name, "slides", None)
            checked[i].append(_take(cell, rows, _numbers(_cut(cell, rows), slides, name)))
    return checked


def _parts(value: Any, name: str, what: str, expected: int | None) -> list[Any]:
    if not isinstance(value, Iterable):
        raise SchemaError(f"{name} must be a sequence of {what}, found {type(value).__name__}")
    parts = list(value)
    if expected is not None and len(parts) != expected:
        raise SchemaError(
            f"{name} has {len(parts)} {what}, it was given {expected}; return the same slides "
            "reordered, cell by cell"
        )
    return parts


def _numbers(given: list[list[int]], returned: list[Any], name: str) -> I64:
    """Which of the given slides the returned ones are, each of them once."""
    number = {slide[0]: at for at, slide in enumerate(given)}
    numbers: list[int] = []
    strange: list[str] = []
    for slide in returned:
        rows = _parts(slide, f"{name}: a slide", "rows", None)
        at = number.get(rows[0]) if rows else None
        if at is None or rows != given[at]:
            strange.append(f"[{name_items(rows)}]")
        else:
            numbers.append(at)
    counts = Counter(numbers)
    missing = [f"[{name_items(s)}]" for at, s in enumerate(given) if at not in counts]
    twice = [f"[{name_items(given[at])}]" for at, count in counts.items() if count > 1]
    found = [
        f"{len(slides)} {what} ({', '.join(slides[:3])}{', ...' if len(slides) > 3 else ''})"
        for what, slides in (
            ("missing", missing),
            ("returned more than once", twice),
            ("that it was not given", strange),
        )
        if slides
    ]
    if found:
        raise SchemaError(
            f"{name} does not hold the {len(given)} slides it was given: {', '.join(found)}; "
            "return the same slides reordered, each of them whole"
        )
    return np.array(numbers, dtype=np.int64)
