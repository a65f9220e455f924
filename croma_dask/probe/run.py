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
from croma_dask.errors import SupportWarning, name_items, warn
from croma_dask.index.resident import release
from croma_dask.index.scratch import Scratch
from croma_dask.options import Options
from croma_dask.probe.cut import Cut
from croma_dask.probe.fit import balanced_accuracy
from croma_dask.probe.job import Front, SweepJob, fit_split, read_fit, read_hits, score_span
from croma_dask.probe.layout import spans_of
from croma_dask.probe.opened import Opened, Protocol, Rows, few_classes, in_store_order, open_sweep
from croma_dask.probe.slides import arrange_replicates
from croma_dask.progress import Progress
from croma_dask.resume import take_folder
from croma_dask.tasks import run_graph

__all__ = ["Sweep", "run_sweep"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

FORMAT = 1
"""Raised when what a sweep keeps in scratch changes."""


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
    tests = {name: in_store_order(few_classes(part, rows)) for name, part in tests.items()}
    with contextlib.ExitStack() as keep:
        opened = open_sweep(rows, confounders, list(tests.values()), how, options, client, keep)
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
            if opened.client is not None:
                # Their memory is the next run's, too; of a cluster that is gone it is nobody's.
                with contextlib.suppress(OSError, TimeoutError):
                    opened.client.run(release)
        training = _training(opened.cut, confounders, rows)
        return _collect(job, spans, list(tests), opened.digests[0], training)


def _key(
    opened: Opened, parts: Sequence[Rows], names: Iterable[str], fronts: Sequence[Front]
) -> str:
    """Name a sweep by all that its numbers depend on."""
    import scipy  # type: ignore[import-untyped]
    import sklearn

    versions = [__version__, sklearn.__version__, scipy.__version__, np.__version__]
    said = [FORMAT, versions, list(names), list(opened.digests)]
    found: list[str | bytes] = [json.dumps(said), repr(opened.cut)]
    for part in parts:
        found += [part.labels.tobytes(), b"" if part.rows is None else part.rows.tobytes()]
    # Where cells begin counts as well: the same rows in a row may be of other cells. Digested one
    # after the other, so that their bytes are not held side by side.
    found += [
        fingerprint.text_digest(front.rows.tobytes(), front.edges.tobytes()) for front in fronts
    ]
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


def _run_fits(job: SweepJob, opened: Opened) -> None:
    probes = [(s, r) for r in range(job.iterations) for s in range(job.cut.n_splits)]
    token = uuid.uuid4().hex
    # Replicate by replicate: what a process holds of one serves its probes one after the other.
    keys = [f"croma-fit-{token}-{r:05d}-{s:03d}" for s, r in probes]
    _run(job, token, {key: (fit_split, s, r) for key, (s, r) in zip(keys, probes, strict=True)},
         dict.fromkeys(keys, 1), "probes", opened)  # fmt: skip


def _run_scores(job: SweepJob, opened: Opened) -> list[list[int]]:
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
    opened: Opened,
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


def _warn_untested(totals: I64, training: I64) -> None:
    """Tell of classes that are trained and have no held-out row."""
    trained = np.flatnonzero(training.any(axis=(0, 1)))
    untested = [int(c) for c in trained if not totals[0, 0, c]]
    if untested:
        warn(
            f"classes {name_items(untested)} are trained and have no held-out row: balanced "
            "accuracy in domain is that of the others alone; train on fewer rows of their cells",
            SupportWarning,
        )


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
        if which == 0:
            _warn_untested(totals, training)
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
