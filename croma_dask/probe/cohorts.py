"""The probe sweep on cohorts: named columns, slides by column, test sets by rows or by cohort."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.align import resolve
from croma_dask.cohort.manifest import Coded, read_columns
from croma_dask.cohort.open import cohort_of
from croma_dask.errors import SchemaError, name_items
from croma_dask.options import Options, merged
from croma_dask.probe.label import check_names, label_sweep
from croma_dask.probe.layout import SweepLayout
from croma_dask.probe.names import PATHOROB_ORDER
from croma_dask.probe.opened import Protocol, Rows, plan_sweep
from croma_dask.probe.run import run_sweep
from croma_dask.probe.schedule import SplitPlan, pathorob_schedule
from croma_dask.probe.slide_column import slide_rows
from croma_dask.probe.slides import SlideArrangement
from croma_dask.probe.tested import Chooser, by_manifest, check_once, stored_rows

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plan_probe_sweep", "sweep_cohort"]

log = logging.getLogger("croma_dask")

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class _Asked:
    """A sweep of a cohort, checked."""

    rows: Rows
    confounders: I64
    tests: dict[str, Rows]
    how: Protocol
    options: Options
    names: tuple[list[str], list[str]]
    attrs: dict[str, Any]


def sweep_cohort(
    cohort: Any,
    manifest: Any = None,
    *,
    confounder: str,
    label: str = "label",
    schedule: str | Sequence[SplitPlan],
    rows_per_slide: int | None = None,
    slide: str | None = None,
    confounder_order: Sequence[str] | None = None,
    label_order: Sequence[str] | None = None,
    test_sets: Mapping[str, Any] | None = None,
    iterations: int = 20,
    seed: int = 1000,
    validation_fraction: float | None = None,
    arrange_slides: SlideArrangement | None = None,
    client: Any = None,
    **options: Any,
) -> xr.Dataset:
    """Train probes on a cohort from balanced to confounded, and score them on its held-out rows.

    Parameters
    ----------
    cohort, manifest
        A cohort (Dataset of :func:`croma_dask.open_cohort`, its place), or an array and a manifest.
    confounder, label
        Columns.
    schedule
        Name of one of PathoROB's (``camelyon``, ``tcga``, ``tolkach_esca``), or a sequence of
        splits as of :func:`croma_dask.downstream.probe_sweep`, in rows.
    rows_per_slide
        Rows of a slide, which are shuffled as one: consecutive rows of a cell. Without it 1, or the
        size of the slides of `slide`.
    slide
        Column that names the slide of each row; slides are checked to have `rows_per_slide` rows
        that follow one another.
    confounder_order, label_order
        Names in the order of the schedule's indices; rows of other names are left out. Default: of
        a named schedule PathoROB's order where the columns have these names, else all names sorted.
    test_sets
        Name to rows that the probes are scored on as well: another cohort, an (embedding, manifest)
        pair, a selection of this cohort's rows (a mask, positions, a slice), or a mapping of a
        column to the value or values of the rows meant, e.g. ``{"center": "UMCU"}``. Rows that the
        sweep itself uses may not be among them.
    iterations, seed, validation_fraction, arrange_slides, client, **options
        As of :func:`croma_dask.downstream.probe_sweep_over_test_sets`; an arrangement gets the rows
        of the manifest.

    Returns
    -------
    xarray.Dataset
        Variables ``in_domain`` and one a test set, (split, iteration); see
        :data:`croma_dask.schema.SWEEP` for its coordinates.

    Raises
    ------
    SchemaError
        (a ValueError) A column or name is not there, slides are not as they should be, the schedule
        does not fit the cohort (naming split, cell and counts), or a test set cannot be used.
    MemoryLimitError
        The largest split does not fit the allowed memory.

    Notes
    -----
    Reads the rows that are trained on, once a replicate and process, and the test rows once;
    :func:`plan_probe_sweep` says what that takes.
    """
    asked = _ask(
        cohort, manifest, confounder=confounder, label=label, schedule=schedule,
        rows_per_slide=rows_per_slide, slide=slide, confounder_order=confounder_order,
        label_order=label_order, test_sets=test_sets, iterations=iterations, seed=seed,
        validation_fraction=validation_fraction, arrange_slides=arrange_slides, options=options,
    )  # fmt: skip
    found = run_sweep(asked.rows, asked.confounders, asked.tests, asked.how, asked.options, client)
    return label_sweep(
        found, asked.how, confounders=asked.names[0], labels=asked.names[1], attrs=asked.attrs
    )


def plan_probe_sweep(
    cohort: Any, manifest: Any = None, *, client: Any = None, **arguments: Any
) -> SweepLayout:
    """Tell what :func:`sweep_cohort` with the same arguments will cost; reads columns only.

    Returns
    -------
    SweepLayout
        Printable.

    Raises
    ------
    SchemaError, MemoryLimitError
        As :func:`sweep_cohort`.
    """
    defaults: dict[str, Any] = {
        "label": "label", "rows_per_slide": None, "slide": None, "confounder_order": None,
        "label_order": None, "test_sets": None, "iterations": 20, "seed": 1000,
        "validation_fraction": None, "arrange_slides": None,
    }  # fmt: skip
    given = {name: arguments.pop(name, value) for name, value in defaults.items()}
    absent = [name for name in ("confounder", "schedule") if name not in arguments]
    if absent:
        raise TypeError(f"plan_probe_sweep misses the argument {absent[0]!r}")
    needed = {name: arguments.pop(name) for name in ("confounder", "schedule")}
    asked = _ask(cohort, manifest, **needed, **given, options=arguments)
    return plan_sweep(
        asked.rows, asked.confounders, list(asked.tests.values()), asked.how, asked.options, client
    )


def _ask(
    cohort: Any, manifest: Any, *, confounder: str, label: str, schedule: Any,
    rows_per_slide: int | None, slide: str | None, confounder_order: Any, label_order: Any,
    test_sets: Mapping[str, Any] | None, iterations: int, seed: int,
    validation_fraction: float | None, arrange_slides: Any, options: Mapping[str, Any],
) -> _Asked:  # fmt: skip
    if test_sets is not None and not isinstance(test_sets, Mapping):
        raise SchemaError(f"test_sets maps names to rows, found {type(test_sets)}")
    settings = merged(**options)
    columns = [label, confounder, *([] if slide is None else [slide])]
    if len(set(columns)) < len(columns):
        raise SchemaError(
            f"label, confounder and slide are columns of their own, found {name_items(columns)}"
        )
    picked = _columns_of(test_sets)
    embedding, frame = resolve(
        cohort_of(cohort), manifest, tuple(dict.fromkeys([*columns, *picked]))
    )
    coded = read_columns(frame, columns)
    of_dataset: tuple[Any, Any] = (None, None)
    if isinstance(schedule, str):
        # Refuses names that are not known.
        pathorob_schedule(schedule)
        of_dataset = PATHOROB_ORDER[schedule]
    confounders, levels = _indices(
        coded[1], confounder, confounder_order, of_dataset[0], "confounder_order"
    )
    labels, classes = _indices(coded[0], label, label_order, of_dataset[1], "label_order")
    if isinstance(schedule, str):
        _check_named(schedule, levels, classes)
    used = np.flatnonzero((confounders >= 0) & (labels >= 0))
    if used.size == 0:
        raise SchemaError(
            f"no row has both one of the confounder levels {name_items(levels)} and one of the "
            f"labels {name_items(classes)}"
        )
    left_out = int(labels.size - used.size)
    if left_out:
        log.info(
            "%d of %d rows are of other names and left out of the sweep", left_out, labels.size
        )
    n_rows = 1 if rows_per_slide is None else rows_per_slide
    if slide is not None:
        n_rows = slide_rows(
            coded[2], used, confounders[used] * len(classes) + labels[used], rows_per_slide, slide
        )
    if isinstance(schedule, str):
        schedule = pathorob_schedule(schedule, rows_per_slide=n_rows)
    stored = stored_rows(embedding, used, labels.size)
    check_once(stored, used)
    rows = Rows(embedding, stored, labels[used], "the cohort")
    check_names(list(test_sets or {}))
    chooser = Chooser(embedding, frame, labels, used, label, classes)
    tests = {name: chooser.rows(name, given) for name, given in (test_sets or {}).items()}
    arrange = None if arrange_slides is None else by_manifest(arrange_slides, used)
    how = Protocol(schedule, n_rows, iterations, seed, validation_fraction, arrange)
    attrs = {
        "confounder_column": confounder, "label_column": label, "n_rows": int(labels.size),
        "n_rows_used": int(used.size), "n_rows_left_out": left_out,
        **({} if slide is None else {"slide_column": slide}),
    }  # fmt: skip
    return _Asked(rows, confounders[used], tests, how, settings, (levels, classes), attrs)


def _check_named(schedule: str, levels: list[str], classes: list[str]) -> None:
    wanted = [len(names) for names in PATHOROB_ORDER[schedule]]
    if [len(levels), len(classes)] != wanted:
        raise SchemaError(
            f"schedule {schedule!r} is for {wanted[0]} confounder levels and {wanted[1]} labels, "
            f"the cohort has {len(levels)} and {len(classes)}: choose as many with "
            "confounder_order= and label_order="
        )


def _columns_of(test_sets: Mapping[str, Any] | None) -> list[str]:
    """Columns by which test sets choose rows."""
    return [
        str(column)
        for given in (test_sets or {}).values()
        if isinstance(given, Mapping) and not hasattr(given, "data_vars")
        for column in given
    ]


def _indices(
    column: Coded, name: str, order: Any, usual: Any, argument: str
) -> tuple[I64, list[str]]:
    """Index of every row's name, -1 of names that are not in the order; and the order."""
    if order is None and usual is not None and not set(usual) <= set(column.names):
        # Sorted names would confound other cells than the schedule was written for.
        raise SchemaError(
            f"column {name!r} has {name_items(column.names, limit=20)} and not the schedule's "
            f"{name_items(usual, limit=20)}: say as {argument}= which name is which of these, in "
            "their order"
        )
    if order is None:
        order = column.names if usual is None else usual
    if not isinstance(order, list | tuple | np.ndarray):
        raise SchemaError(f"{argument} is a list of names, found {order!r}")
    names = [str(level) for level in order]
    if len(set(names)) < len(names):
        twice = sorted({level for level in names if names.count(level) > 1})
        raise SchemaError(f"{argument} names {name_items(twice)} twice")
    absent = [level for level in names if level not in column.names]
    if absent or not names:
        raise SchemaError(
            f"{argument} names {name_items(absent) if absent else 'nothing'}; column {name!r} has "
            f"{name_items(column.names, limit=20)}"
        )
    place = {level: at for at, level in enumerate(names)}
    table = np.array([place.get(level, -1) for level in column.names], np.int64)
    return table[column.codes], names
