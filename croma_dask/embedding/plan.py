"""What a benchmark will cost, before it runs: memory, disk and time of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask import memory as mem
from croma_dask.cluster import active_client, for_client, tasks_a_process, workers_of
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.store import StoredCohort
from croma_dask.cost import exact_seconds, product_rate
from croma_dask.embedding.benchmark import jobs_of, open_job
from croma_dask.embedding.budget import Budget, leiden_bytes
from croma_dask.embedding.clustering import kmeans_bytes
from croma_dask.embedding.distance_layout import SumsCost, lay_out_sums
from croma_dask.embedding.input_data import open_h5ad
from croma_dask.embedding.inputs import EmbeddingInput
from croma_dask.embedding.kbet_plan import label_bytes
from croma_dask.embedding.needs import Needs
from croma_dask.embedding.request import Request
from croma_dask.embedding.rows import GroupRows, Rows, choose_rows
from croma_dask.index.source import ArraySource
from croma_dask.layout import lay_out
from croma_dask.options import Options, merged

__all__ = ["BenchmarkPlan", "Step", "plan_embedding_benchmark", "plan_inputs"]

_DIFFERENCE = 1.1e-10
"""Seconds a core for one feature of one pair of rows, and"""

_PAIR = 1.5e-9
"""for the pair besides (benchmarks/README.md)."""

_LISI = 4e-5
"""Seconds a core and row for one LISI."""

_RESOLUTION = 4e-5
"""Seconds a core and row for one resolution of Leiden, of 30."""

_KMEANS = 3e-7
"""Seconds for k-means, a row, feature and cluster, ten initialisations of some thirty steps."""

_EIGEN = 3e-3
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


@dataclass(frozen=True)
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
        lines.append(
            f"in all: peak {mem.format_bytes(self.peak_memory)}, scratch "
            f"{mem.format_bytes(self.scratch_bytes)}, about {_seconds(self.seconds).strip()}"
        )
        return "\n".join(lines)


def _seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan_embedding_benchmark(
    cohort: Any, manifest: Any = None, *, label: str = "cell_type", batch: str | None = None,
    metrics: str | Sequence[str] | None = None, sample_id: str = "sample_id",
    batch_max_cells: int = 0, memory: int | str | None = None, threads: int | None = None,
    client: Any = None, **readings: Any,
) -> BenchmarkPlan:  # fmt: skip
    """Tell what :func:`croma_dask.embedding_benchmark` with the same arguments will cost.

    Parameters
    ----------
    cohort, manifest, label, batch, metrics, sample_id, batch_max_cells, memory, threads, client
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
    Reads the key columns only, and multiplies matrices for half a second.
    """
    request = Request.of(metrics, label, batch, sample_id, batch_max_cells, **readings)
    options = merged(memory=memory, threads=threads)
    client = client if client is not None else active_client()
    found = []
    for job in jobs_of(cohort, manifest, None, None):
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
        if not one.path.endswith(".h5ad"):
            store = StoredCohort(one.path, storage_options)
            rows = _rows(store, request)
            found.append((name, Embedding(store, None), rows))
            continue
        reader = open_h5ad(one.path, key)
        try:
            shaped = _Shaped(reader.shape, np.dtype(reader.dtype))
            found.append((name, Embedding(shaped, None), _rows(reader.manifest, request)))
        finally:
            reader.close()
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
    if bio is not None and request.wants("ASW") and request.how.asw == "exact":
        steps.append(_of_sums(embedding, rows, bio, how))
    if bio is not None and request.clustered and request.how.clustering == "kmeans":
        n_labels = len(bio.label.names)
        n_bytes = kmeans_bytes(bio.n_rows, embedding.n_features, n_labels)
        seconds = _KMEANS * bio.n_rows * embedding.n_features * n_labels
        steps.append(Step("k-means", n_bytes + mem.LIBRARIES, {"rows": n_bytes}, 0, seconds))
    return steps


def _of_lists(
    embedding: Embedding, rows: Rows, group: GroupRows, needs: Needs, how: _Machine
) -> list[Step]:
    n, d = group.n_rows, embedding.n_features
    spec = needs.spec.clipped(n)
    budget = Budget(rows.n_rows)
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
        sizes = np.bincount(group.label.codes)
        largest = label_bytes(int(sizes.max()))
        terms = {"largest label": largest, "libraries": mem.LIBRARIES, "values": budget.search(n)}
        steps.append(Step("kBET", sum(terms.values()), terms, 8 * 49 * n, _EIGEN * n / how.slots))
    if needs.leiden:
        terms = {**leiden_bytes(n), "libraries": mem.LIBRARIES, "values": budget.search(n)}
        steps.append(
            Step("Leiden", sum(terms.values()), terms, 0, 30 * _RESOLUTION * n / how.slots)
        )
    return steps


def _of_sums(embedding: Embedding, rows: Rows, group: GroupRows, how: _Machine) -> Step:
    n, d = group.n_rows, embedding.n_features
    source = ArraySource(_Shaped((n, d), embedding.dtype))
    cost = SumsCost.of(source, len(group.label.names))
    layout = lay_out_sums(
        cost, n, how.options, n_tasks=how.n_tasks, n_workers=how.n_workers,
        fixed=Budget(rows.n_rows).search(n),
    )  # fmt: skip
    seconds = 0.5 * n * n * (_DIFFERENCE * d + _PAIR) / how.slots
    return Step("ASW", layout.peak, layout.terms, layout.scratch, seconds)
