"""What a benchmark will cost, before it runs: memory, disk and time of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask import markup
from croma_dask import memory as mem
from croma_dask.cluster import active_client, for_client, tasks_a_process, workers_of
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.store import StoredCohort
from croma_dask.cost import exact_seconds, product_rate
from croma_dask.embedding.bras import bras_bytes
from croma_dask.embedding.bras_cells import Cells
from croma_dask.embedding.budget import Budget, leiden_bytes
from croma_dask.embedding.clustering import kmeans_bytes
from croma_dask.embedding.distance_layout import SumsCost, lay_out_sums, task_bytes
from croma_dask.embedding.input_data import opened_h5ad
from croma_dask.embedding.inputs import EmbeddingInput
from croma_dask.embedding.jobs import check_jobs, jobs_of, open_job
from croma_dask.embedding.kbet_plan import label_bytes, labels_at_once
from croma_dask.embedding.needs import Needs
from croma_dask.embedding.request import Request
from croma_dask.embedding.rows import GroupRows, Rows, choose_rows
from croma_dask.embedding.silhouette_bounds import bounds_bytes
from croma_dask.errors import MemoryLimitError
from croma_dask.index.source import ArraySource
from croma_dask.layout import lay_out
from croma_dask.options import Options, merged

__all__ = ["BenchmarkPlan", "Step", "plan_embedding_benchmark", "plan_inputs"]

_DIFFERENCE = 1.1e-10
"""Seconds a core for one feature of one pair of rows, and"""

_PAIR = 1.5e-9
"""for the pair besides (benchmarks/README.md)."""

_LISI = 1e-5
"""Seconds a core and row for one LISI."""

_RESOLUTION = 2.1e-5
"""Seconds a core and row for one resolution of Leiden, of 30."""

_KMEANS = 3e-7
"""Seconds for k-means, a row, feature and cluster, ten initialisations of some thirty steps."""

_MOMENT = 2e-8
"""Seconds a core, row and feature for two passes that sum within labels."""

_BLOCK = 4096
"""Rows that are read together where there are no chunks."""

_EIGEN = 4e-4
"""Seconds a core and row of a label for kBET."""


@dataclass(frozen=True)
class Step:
    """One step of a benchmark.

    Attributes
    ----------
    name
        What it is.
    peak
        Bytes that a process takes above the bare one, at its worst moment.
    terms
        What the peak consists of.
    scratch
        Bytes on disk while it runs.
    seconds
        Estimate.
    """

    name: str
    peak: int
    terms: dict[str, int]
    scratch: int
    seconds: float


@dataclass(frozen=True, repr=False)
class BenchmarkPlan:
    """What a benchmark will cost.

    Attributes
    ----------
    embeddings
        For each its name, rows, features, and steps.
    allowed_memory
        Bytes that a process may take.
    too_large
        Names of steps that do not fit, and whose metrics would fail.
    """

    embeddings: tuple[tuple[str, int, int, tuple[Step, ...]], ...]
    allowed_memory: int

    @property
    def steps(self) -> list[Step]:
        """All steps of all embeddings."""
        return [step for _, _, _, steps in self.embeddings for step in steps]

    @property
    def peak_memory(self) -> int:
        """Bytes at the worst moment of all."""
        return max((step.peak for step in self.steps), default=0)

    @property
    def seconds(self) -> float:
        """Estimate of the whole, embedding after embedding."""
        return sum(step.seconds for step in self.steps)

    @property
    def scratch_bytes(self) -> int:
        """Bytes on disk at most."""
        return max((step.scratch for step in self.steps), default=0)

    @property
    def too_large(self) -> list[str]:
        """Steps that do not fit the allowed memory."""
        return [step.name for step in self.steps if step.peak > self.allowed_memory]

    def __repr__(self) -> str:
        # What an interactive prompt shows: the table, not eight hundred characters of fields.
        return str(self)

    def __str__(self) -> str:
        """Lay the plan out as a table for people."""
        lines = [f"allowed memory {mem.format_bytes(self.allowed_memory)} a process"]
        for name, n_rows, n_features, steps in self.embeddings:
            lines.append(f"{name}: {n_rows:,} x {n_features:,}")
            for step in steps:
                worst = max(step.terms, key=lambda term: step.terms[term])
                over = "  DOES NOT FIT" if step.peak > self.allowed_memory else ""
                lines.append(
                    f"  {step.name:<12}{mem.format_bytes(step.peak):>10}  (most: {worst})"
                    f"{_seconds(step.seconds):>12}"
                    + (f", scratch {mem.format_bytes(step.scratch)}" if step.scratch else "")
                    + over
                )
        return "\n".join([*lines, self._in_all()])

    def _in_all(self) -> str:
        return (
            f"in all: peak {mem.format_bytes(self.peak_memory)}, scratch "
            f"{mem.format_bytes(self.scratch_bytes)}, about {_seconds(self.seconds)}"
        )

    def _repr_html_(self) -> str:
        """Lay the plan out for a notebook."""
        head = ["step", "most of it", "memory", "time", "scratch"]
        tables = "".join(
            markup.table(
                head,
                [
                    [
                        step.name + " (does not fit)" * (step.peak > self.allowed_memory),
                        max(step.terms, key=lambda term: step.terms[term]),
                        mem.format_bytes(step.peak),
                        _seconds(step.seconds),
                        mem.format_bytes(step.scratch) if step.scratch else "",
                    ]
                    for step in steps
                ],
                n_text=2,
                caption=f"{name}: {n_rows:,} x {n_features:,}",
            )
            for name, n_rows, n_features, steps in self.embeddings
        )
        sentence = (
            f"{self._in_all()}; {mem.format_bytes(self.allowed_memory)} of memory allowed a "
            "process; nothing has been run."
        )
        return markup.block("Plan of an embedding benchmark", sentence, tables)


def _seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan_embedding_benchmark(
    cohort: Any, manifest: Any = None, *, label: str = "cell_type", batch: str | None = None,
    metrics: str | Sequence[str] | None = None, dataset: str | Sequence[str] | None = None,
    method: str | Sequence[str] | None = None, sample_id: str = "sample_id",
    batch_max_cells: int = 0, memory: int | str | None = None, threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None, client: Any = None, **readings: Any,
) -> BenchmarkPlan:  # fmt: skip
    """Tell what :func:`croma_dask.embedding_benchmark` with the same arguments will cost.

    Parameters
    ----------
    cohort, manifest, label, batch, metrics, dataset, method, sample_id, batch_max_cells, memory
        As of the benchmark.
    threads, storage_options, client
        As of the benchmark.
    **readings
        Its readings (``clustering=``, ``asw=``, ...).

    Returns
    -------
    BenchmarkPlan
        Printable.

    Raises
    ------
    SchemaError
        As the benchmark.
    MemoryLimitError
        Not even the search fits the allowed memory.

    Notes
    -----
    Reads the key columns only, and multiplies matrices for half a second. The search is the exact
    one.
    """
    request = Request.of(metrics, label, batch, sample_id, batch_max_cells, **readings)
    options = merged(memory=memory, threads=threads)
    client = client if client is not None else active_client()
    jobs = jobs_of(cohort, manifest, dataset, method, storage_options)
    check_jobs(jobs, request)
    found = []
    for job in jobs:
        embedding, _, rows = open_job(job, request)
        found.append((f"{job.dataset} by {job.method}", embedding, rows))
    return _plan(found, request, options, client)


def plan_inputs(
    inputs: Sequence[EmbeddingInput], request: Request, options: Options, client: Any = None, *,
    key: str | None = None, storage_options: Mapping[str, Any] | None = None,
) -> BenchmarkPlan:  # fmt: skip
    """Tell what scoring some files and stores will cost; reads their columns only."""
    found = []
    for one in inputs:
        name = f"{one.sample} by {one.method}"
        if not one.is_h5ad:
            store = StoredCohort(one.path, storage_options)
            rows = _rows(store, request)
            found.append((name, Embedding(store, None), rows))
            continue
        with opened_h5ad(one, key, storage_options) as (reader, _):
            shaped = _Shaped(reader.shape, np.dtype(reader.dtype))
            found.append((name, Embedding(shaped, None), _rows(reader.manifest, request)))
    return _plan(found, request, options, client)


@dataclass(frozen=True)
class _Shaped:
    """What is known of rows that are not a store yet."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]


def _rows(manifest: Any, request: Request) -> Rows:
    return choose_rows(
        manifest, request.label, request.batch, bio=request.bio, mixing=request.mixing,
        missing_batches=request.how.missing_batches, batch_max_cells=request.batch_max_cells,
    )  # fmt: skip


def _plan(
    found: Sequence[tuple[str, Embedding, Rows]], request: Request, options: Options, client: Any
) -> BenchmarkPlan:
    options = for_client(options, client)
    how = _Machine(options, tasks_a_process(client, options), workers_of(client))
    planned = tuple(
        (name, rows.n_rows, embedding.n_features, tuple(_steps(embedding, rows, request, how)))
        for name, embedding, rows in found
    )
    return BenchmarkPlan(planned, mem.allowed_bytes(options.memory))


@dataclass(frozen=True)
class _Machine:
    options: Options
    n_tasks: int
    n_workers: int

    @property
    def slots(self) -> int:
        return self.n_tasks * self.n_workers


def _steps(embedding: Embedding, rows: Rows, request: Request, how: _Machine) -> list[Step]:
    steps = []
    bio, mixing = rows.bio, rows.batch
    both = bio is not None and mixing is not None and bio.same_rows(mixing)
    groups = [(mixing, True, True)] if both else [(bio, True, False), (mixing, False, True)]
    for group, is_bio, is_mixing in groups:
        needs = Needs.of(request, bio=is_bio, mixing=is_mixing)
        if group is not None and needs.any and group.n_rows >= 2:
            steps += _of_lists(embedding, rows, group, needs, how)
    if mixing is not None and mixing.n_rows >= 2 and request.wants("BRAS"):
        steps.append(_of_moments("BRAS", embedding, rows, mixing, how))
    if bio is None or not bio.n_rows:
        return steps
    if request.wants("ASW") and request.how.asw == "exact":
        steps.append(_of_sums(embedding, rows, bio, how))
    elif request.wants("ASW"):
        steps.append(_of_moments("ASW interval", embedding, rows, bio, how))
    if request.clustered and request.how.clustering == "kmeans":
        n_labels = len(bio.label.names)
        terms = {
            "rows and clusters": kmeans_bytes(bio.n_rows, embedding.n_features, n_labels),
            "libraries": mem.LIBRARIES,
            "values": Budget.of(rows).search(bio.n_rows),
        }  # fmt: skip
        seconds = _KMEANS * bio.n_rows * embedding.n_features * n_labels
        steps.append(Step("k-means", sum(terms.values()), terms, 0, seconds))
    return steps


def _of_lists(
    embedding: Embedding, rows: Rows, group: GroupRows, needs: Needs, how: _Machine
) -> list[Step]:
    n, d = group.n_rows, embedding.n_features
    spec = needs.spec.clipped(n)
    budget = Budget.of(rows)
    layout = lay_out(
        embedding, n, spec, how.options, n_tasks=how.n_tasks, fixed=budget.search(n),
        n_workers=how.n_workers,
    )  # fmt: skip
    slots = how.slots if layout.engine == "streamed" else how.n_tasks
    product = product_rate(d, how.n_tasks) / how.n_tasks
    seconds = exact_seconds(layout, [n], d, spec, product, slots)
    seconds += _LISI * n * (needs.clisi + needs.ilisi + needs.cilisi) / slots
    steps = [Step("neighbours", layout.peak, layout.terms, layout.scratch, seconds)]
    if needs.kbet:
        terms = {
            "largest labels": _labels_at_once(group, budget.search(n), how),
            "libraries": mem.LIBRARIES, "values": budget.search(n),
        }  # fmt: skip
        steps.append(Step("kBET", sum(terms.values()), terms, 8 * 49 * n, _EIGEN * n / how.slots))
    if needs.leiden:
        terms = {**leiden_bytes(n), "libraries": mem.LIBRARIES, "values": budget.search(n)}
        steps.append(
            Step("Leiden", sum(terms.values()), terms, 0, 30 * _RESOLUTION * n / how.slots)
        )
    return steps


def _labels_at_once(group: GroupRows, held: int, how: _Machine) -> int:
    """Bytes of the labels that kBET works on side by side: as many as fit, at least one."""
    sizes = sorted((int(size) for size in np.bincount(group.label.codes)), reverse=True)
    room = mem.allowed_bytes(how.options.memory) - mem.LIBRARIES - held
    return sum(label_bytes(size) for size in sizes[: labels_at_once(sizes, room, how.n_tasks)])


def _of_moments(
    name: str, embedding: Embedding, rows: Rows, group: GroupRows, how: _Machine
) -> Step:
    """Tell what the passes over all rows take that sum within labels and batches."""
    n, d, n_labels = group.n_rows, embedding.n_features, len(group.label.names)
    step = embedding.data.chunk_rows if embedding.stored else _BLOCK
    shape: dict[str, Any] = {
        "dtype": embedding.dtype, "step": min(step, n), "n_tasks": how.n_tasks,
        "n_workers": how.n_workers,
    }  # fmt: skip
    if name == "BRAS":
        assert group.batch is not None
        cells = Cells.of(group.label.codes, group.batch.codes)
        terms = bras_bytes(n, d, cells.size.size, n_labels, **shape)
        seconds = _MOMENT * n * d
    else:
        terms = bounds_bytes(n, d, n_labels, **shape)
        seconds = _MOMENT * n * d * n_labels
    terms |= {"libraries": mem.LIBRARIES, "values": Budget.of(rows).search(n)}
    return Step(name, sum(terms.values()), terms, 0, seconds / how.slots)


def _of_sums(embedding: Embedding, rows: Rows, group: GroupRows, how: _Machine) -> Step:
    n, d = group.n_rows, embedding.n_features
    source = ArraySource(_Shaped((n, d), embedding.dtype))
    cost = SumsCost.of(source, len(group.label.names))
    seconds = 0.5 * n * n * (_DIFFERENCE * d + _PAIR) / how.slots
    held = Budget.of(rows).search(n)
    try:
        layout = lay_out_sums(
            cost, n, how.options, n_tasks=how.n_tasks, n_workers=how.n_workers, fixed=held
        )
    except MemoryLimitError:
        # ASW fails by itself: what the least of its tasks would take.
        terms = {
            name: size * how.n_tasks
            for name, size in task_bytes(cost, mem.SMALLEST_RANGE).items()
        }  # fmt: skip
        terms |= {"labels and results": held + 16 * n, "libraries": mem.LIBRARIES}
        return Step("ASW", sum(terms.values()), terms, 0, seconds)
    return Step("ASW", layout.peak, layout.terms, layout.scratch, seconds)
