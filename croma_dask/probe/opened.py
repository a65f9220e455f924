"""What a sweep is asked to do, opened and checked: rows by reference, and which a split takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.cluster import active_client, for_client, tasks_a_process, workers_of
from croma_dask.cohort.align import Embedding
from croma_dask.errors import SchemaError, name_rows
from croma_dask.first_pass import look_over, open_source
from croma_dask.index.source import RowSource
from croma_dask.options import Options
from croma_dask.probe.cut import Cut, check_schedule
from croma_dask.probe.layout import SweepLayout, lay_out_sweep
from croma_dask.probe.schedule import SplitPlan
from croma_dask.probe.slides import SlideArrangement, group_rows, replicate_seeds

__all__ = [
    "Opened",
    "Protocol",
    "Rows",
    "few_classes",
    "in_store_order",
    "open_sweep",
    "plan_sweep",
]

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Rows with their classes.

    Attributes
    ----------
    embedding
        Stored rows.
    rows
        (n,) stored row of each, or None where they are all in order.
    labels
        (n,) int64 class.
    name
        What errors call them.
    """

    embedding: Embedding
    rows: I64 | None
    labels: I64
    name: str


@dataclass(frozen=True)
class Protocol:
    """What is done with the rows; arguments as of `probe_sweep_over_test_sets`."""

    schedule: Sequence[SplitPlan]
    rows_per_slide: int = 1
    iterations: int = 20
    seed: int = 1000
    validation_fraction: float | None = None
    arrange_slides: SlideArrangement | None = None

    def __post_init__(self) -> None:
        """Keep the splits: an iterator would be used up by the first look."""
        given: Any = self.schedule
        if isinstance(given, Iterable) and not isinstance(given, str):
            object.__setattr__(self, "schedule", list(given))


@dataclass(frozen=True)
class Opened:
    """Rows by reference, and how they would be worked on."""

    options: Options
    client: Any
    n_tasks: int
    sources: tuple[RowSource, ...]
    digests: tuple[str, ...]
    cut: Cut
    layout: SweepLayout


def plan_sweep(
    rows: Rows, confounders: I64, tests: Sequence[Rows], how: Protocol, options: Options,
    client: Any = None,
) -> SweepLayout:  # fmt: skip
    """Tell what a sweep will cost; read nothing."""
    with contextlib.ExitStack() as keep:
        return open_sweep(rows, confounders, tests, how, options, client, keep, dry=True).layout


def open_sweep(
    rows: Rows, confounders: I64, tests: Sequence[Rows], how: Protocol, options: Options,
    client: Any, keep: contextlib.ExitStack, *, dry: bool = False,
) -> Opened:  # fmt: skip
    """Open the rows of a sweep and check them against its schedule.

    Parameters
    ----------
    rows, confounders, tests, how, options, client
        As of :func:`croma_dask.probe.run.run_sweep`.
    keep
        Removes what had to be spooled when the caller is done.
    dry
        Open and read nothing: a layout is all that is wanted.
    """
    cells = group_rows(confounders, rows.labels)
    sizes = np.array([[cell.size for cell in level] for level in cells])
    cut = check_schedule(
        how.schedule, sizes, rows_per_slide=how.rows_per_slide, iterations=how.iterations,
        validation_fraction=how.validation_fraction,
    )  # fmt: skip
    replicate_seeds(how.seed, how.iterations)
    client = active_client() if client is None else client
    options = for_client(options, client)
    n_tasks = tasks_a_process(client, options)
    embedding = rows.embedding
    n_workers = workers_of(client)
    data = embedding.data
    in_memory = isinstance(data, np.ndarray) and not isinstance(data, np.memmap) and client is None
    layout = lay_out_sweep(
        _Shape(rows), [_Shape(test) for test in tests], cut, sizes, options,
        iterations=how.iterations, n_tasks=n_tasks, n_workers=n_workers,
        step=embedding.data.chunk_rows if embedding.stored else 4096,
        itemsize=embedding.dtype.itemsize,
        in_memory=in_memory, n_columns=len(embedding.data.columns) if embedding.stored else 0,
    )  # fmt: skip
    if dry:
        return Opened(options, client, n_tasks, (), (), cut, layout)
    seen: dict[int, tuple[RowSource, str]] = {}
    for part in (rows, *tests):
        # Several test sets of one embedding are opened, and looked over, once.
        if id(part.embedding) not in seen:
            source = open_source(
                part.embedding, options, keep, streamed=True, workers=client is not None
            )
            seen[id(part.embedding)] = source, _check_finite(part, source, options, client)
    found = [seen[id(part.embedding)] for part in (rows, *tests)]
    return Opened(
        options, client, n_tasks, tuple(source for source, _ in found),
        tuple(digest for _, digest in found), cut, layout,
    )  # fmt: skip


class _Shape:
    """Size of some rows."""

    def __init__(self, rows: Rows) -> None:
        self.n_rows = int(rows.labels.shape[0])
        self.n_features = rows.embedding.n_features


def in_store_order(part: Rows) -> Rows:
    """Order the rows of a test set as they are stored: hits are counts, and reading is cheaper."""
    if part.rows is None:
        return part
    order = np.argsort(part.rows, kind="stable")
    return replace(part, rows=part.rows[order], labels=part.labels[order])


def few_classes(part: Rows, rows: Rows) -> Rows:
    """Give the classes that no probe knows the numbers behind the known ones, in their order.

    Each of them counts as missed; hits are counted in arrays as long as the largest number.
    """
    n_classes = int(rows.labels.max()) + 1
    other = part.labels >= n_classes
    if not other.any():
        return part
    labels = part.labels.copy()
    labels[other] = n_classes + np.unique(labels[other], return_inverse=True)[1]
    return replace(part, labels=labels)


def _check_finite(part: Rows, source: RowSource, options: Options, client: Any) -> str:
    """Look at all rows once; return their fingerprint."""
    profile, digest = look_over(source, part.embedding, options, client)
    if profile.n_bad:
        named = name_rows(profile.first_bad, total=profile.n_bad)
        raise SchemaError(
            f"{part.name} holds NaN or infinite values in {named} ({profile.n_bad} of "
            f"{profile.n_rows}); leave these rows out or mend them"
        )
    return digest
