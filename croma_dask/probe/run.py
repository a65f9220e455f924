"""A sweep from its rows to its numbers: orders, probes, hits, on threads or on a cluster."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask import __version__, fingerprint
from croma_dask.cluster import active_client, for_client, tasks_a_process, workers_of
from croma_dask.cohort.align import Embedding
from croma_dask.errors import SchemaError, name_rows
from croma_dask.first_pass import look_over, open_source
from croma_dask.index.resident import release
from croma_dask.index.scratch import Scratch
from croma_dask.index.source import RowSource
from croma_dask.options import Options
from croma_dask.probe.cut import Cut, check_schedule
from croma_dask.probe.fit import balanced_accuracy
from croma_dask.probe.job import Front, SweepJob, fit_split, read_fit, read_hits, score_span
from croma_dask.probe.layout import SweepLayout, lay_out_sweep, spans_of
from croma_dask.probe.schedule import SplitPlan
from croma_dask.probe.slides import SlideArrangement, arrange_replicates, group_rows
from croma_dask.progress import Progress
from croma_dask.resume import take_folder
from croma_dask.tasks import run_graph

__all__ = ["Protocol", "Rows", "Sweep", "plan_sweep", "run_sweep"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

FORMAT = 1
"""Raised when what a sweep keeps in scratch changes."""


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


@dataclass(frozen=True)
class Sweep:
    """What a sweep has found; arrays are (splits, iterations) unless said.

    Attributes
    ----------
    accuracy
        Balanced accuracy on each test set, `in_domain` first.
    C, validation_score, n_iter, converged, n_fits
        Of each probe.
    training
        (splits, confounders, classes) training rows.
    n_test
        Rows of each test set; of the held-out rows those of the first split.
    fingerprint
        Of the embedding.
    """

    accuracy: dict[str, F64]
    C: F64
    validation_score: F64
    n_iter: I64
    converged: NDArray[np.bool_]
    n_fits: I64
    training: I64
    n_test: dict[str, int]
    fingerprint: str


@dataclass(frozen=True)
class _Opened:
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
        return _open(rows, confounders, tests, how, options, client, keep, dry=True).layout


def _open(
    rows: Rows, confounders: I64, tests: Sequence[Rows], how: Protocol, options: Options,
    client: Any, keep: contextlib.ExitStack, *, dry: bool = False,
) -> _Opened:  # fmt: skip
    cells = group_rows(confounders, rows.labels)
    sizes = np.array([[cell.size for cell in level] for level in cells])
    cut = check_schedule(
        how.schedule, sizes, rows_per_slide=how.rows_per_slide, iterations=how.iterations,
        validation_fraction=how.validation_fraction,
    )  # fmt: skip
    client = active_client() if client is None else client
    options = for_client(options, client)
    n_tasks = tasks_a_process(client, options)
    embedding = rows.embedding
    n_workers = workers_of(client)
    in_memory = not embedding.stored and isinstance(embedding.data, np.ndarray)
    layout = lay_out_sweep(
        _Shape(rows), [_Shape(test) for test in tests], cut, sizes, options,
        iterations=how.iterations, n_tasks=n_tasks, n_workers=n_workers,
        step=embedding.data.chunk_rows if embedding.stored else 4096,
        itemsize=embedding.dtype.itemsize,
        # A memory map is read from disk like a store; what is held is held by the caller.
        resident=0 if not in_memory or client is not None else 1,
    )  # fmt: skip
    if dry:
        return _Opened(options, client, n_tasks, (), (), cut, layout)
    seen: dict[int, tuple[RowSource, str]] = {}
    for part in (rows, *tests):
        # Several test sets of one embedding are opened, and looked over, once.
        if id(part.embedding) not in seen:
            source = open_source(
                part.embedding, options, keep, streamed=True, workers=client is not None
            )
            seen[id(part.embedding)] = source, _check_finite(part, source, options, client)
    found = [seen[id(part.embedding)] for part in (rows, *tests)]
    return _Opened(
        options, client, n_tasks, tuple(source for source, _ in found),
        tuple(digest for _, digest in found), cut, layout,
    )  # fmt: skip


class _Shape:
    """Size of some rows."""

    def __init__(self, rows: Rows) -> None:
        self.n_rows = int(rows.labels.shape[0])
        self.n_features = rows.embedding.n_features


def run_sweep(
    rows: Rows, confounders: I64, tests: Mapping[str, Rows], how: Protocol, options: Options,
    client: Any = None,
) -> Sweep:  # fmt: skip
    """Run a sweep.

    Parameters
    ----------
    rows, confounders
        Rows of the sweep, their classes, and their confounder indices.
    tests
        Further test sets by name.
    how
        Schedule, slides, replicates.
    options, client
        Memory, threads, scratch, progress; cluster.

    Raises
    ------
    SchemaError
        As :func:`croma_dask.probe.cut.check_schedule` says; or a row is no finite numbers.
    MemoryLimitError
        A probe does not fit the allowed memory.
    """
    with contextlib.ExitStack() as keep:
        opened = _open(rows, confounders, list(tests.values()), how, options, client, keep)
        fronts = [
            Front.of(order, rows.labels, opened.cut)
            for order in arrange_replicates(
                confounders, rows.labels, rows_per_slide=how.rows_per_slide,
                iterations=how.iterations, seed=how.seed, arrange_slides=how.arrange_slides,
            )
        ]  # fmt: skip
        parts = (rows, *tests.values())
        scratch = take_folder(opened.options, _key(opened, parts, tests, fronts), keep, _has_fits)
        job = SweepJob(
            opened.sources, tuple(part.rows is not None for part in parts),
            tuple(part.labels.size for part in parts), scratch, opened.cut, how.iterations,
            int(rows.labels.max()) + 1, 1 + max(int(part.labels.max()) for part in parts),
            opened.layout.most,
        )  # fmt: skip
        _prepare(job, fronts, parts)
        try:
            _run_fits(job, opened)
            spans = _run_scores(job, opened)
        finally:
            release()
        training = _training(opened.cut, confounders, rows)
        return _collect(job, spans, list(tests), opened.digests[0], training)


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


def _key(
    opened: _Opened, parts: Sequence[Rows], names: Iterable[str], fronts: Sequence[Front]
) -> str:
    """Name a sweep by all that its numbers depend on."""
    import sklearn

    said = [FORMAT, __version__, sklearn.__version__, list(names), list(opened.digests)]
    found: list[str | bytes] = [json.dumps(said), repr(opened.cut)]
    for part in parts:
        found += [part.labels.tobytes(), b"" if part.rows is None else part.rows.tobytes()]
    found += [front.rows.tobytes() for front in fronts]
    return fingerprint.text_digest("probe sweep", *found)


def _has_fits(scratch: Scratch) -> bool:
    return any(Path(scratch.path).glob("fit-*.npz"))


def _prepare(job: SweepJob, fronts: Sequence[Front], parts: Sequence[Rows]) -> None:
    """Write what the tasks need to know of the rows."""
    for replicate, front in enumerate(fronts):
        job.scratch.write(f"order-{replicate:05d}.npz", dict(vars(front)))
    for which, part in enumerate(parts):
        part.labels.astype(np.int32).tofile(job.file("labels", which))
        if part.rows is not None:
            part.rows.astype(np.int64).tofile(job.file("rows", which))


def _run_fits(job: SweepJob, opened: _Opened) -> None:
    probes = [(s, r) for r in range(job.iterations) for s in range(job.cut.n_splits)]
    token = uuid.uuid4().hex
    # Replicate by replicate: what a process holds of one serves its probes one after the other.
    keys = [f"croma-fit-{token}-{r:05d}-{s:03d}" for s, r in probes]
    _run(job, token, {key: (fit_split, s, r) for key, (s, r) in zip(keys, probes, strict=True)},
         dict.fromkeys(keys, 1), "probes", opened)  # fmt: skip


def _run_scores(job: SweepJob, opened: _Opened) -> list[list[int]]:
    token = uuid.uuid4().hex
    tasks: dict[str, tuple[Any, ...]] = {}
    work: dict[str, int] = {}
    starts = []
    for which, n in enumerate(job.n_rows):
        starts.append(spans_of(n))
        for lo, hi in zip(starts[-1], [*starts[-1][1:], n], strict=True):
            key = f"croma-hits-{token}-{which:03d}-{lo:012d}"
            tasks[key], work[key] = (score_span, which, lo, hi), hi - lo
    _run(job, token, tasks, work, "test rows", opened)
    return starts


def _run(
    job: SweepJob, token: str, tasks: dict[str, tuple[Any, ...]], work: dict[str, int], unit: str,
    opened: _Opened,
) -> None:  # fmt: skip
    shared = f"croma-sweep-{token}"
    graph: dict[str, Any] = {shared: job}
    graph |= {key: (task[0], shared, *task[1:]) for key, task in tasks.items()}
    with Progress("probe sweep", sum(work.values()), unit, opened.options.quiet) as progress:
        run_graph(
            graph, list(tasks), client=opened.client, n_threads=opened.n_tasks,
            on_done=lambda key, _: progress.advance(work.get(key, 0)), terms=opened.layout.terms,
        )  # fmt: skip


def _training(cut: Cut, confounders: I64, rows: Rows) -> I64:
    shape = (cut.n_splits, int(confounders.max()) + 1, int(rows.labels.max()) + 1)
    training = np.zeros(shape, np.int64)
    for split, cells in enumerate(cut.cells):
        for cell in cells:
            training[split, cell.confounder, cell.label] = cell.take
    return training


def _collect(
    job: SweepJob, spans: list[list[int]], names: list[str], digest: str, training: I64
) -> Sweep:
    shape = (job.cut.n_splits, job.iterations)
    probes = [
        [read_fit(job, split, replicate) for replicate in range(job.iterations)]
        for split in range(job.cut.n_splits)
    ]
    accuracy, n_test = {}, {}
    for which, name in enumerate(["in_domain", *names]):
        hits, totals = read_hits(job, which, spans[which])
        found = np.empty(shape)
        for split, replicate in np.ndindex(shape):
            found[split, replicate] = balanced_accuracy(
                hits[replicate, split], totals[replicate, split]
            )
        accuracy[name], n_test[name] = found, int(totals[0, 0].sum())

    def of(field: str, dtype: Any) -> Any:
        return np.array([[getattr(p, field) for p in row] for row in probes], dtype)

    return Sweep(
        accuracy, of("C", np.float64), of("validation_score", np.float64), of("n_iter", np.int64),
        of("converged", bool), of("n_fits", np.int64), training, n_test, digest,
    )  # fmt: skip
