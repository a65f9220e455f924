"""What a run will cost, before it runs: tasks, bytes, memory, time, and what cannot be scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask import markup
from croma_dask import memory as mem
from croma_dask.approximate import is_served
from croma_dask.build import find_built
from croma_dask.cluster import active_client, for_client, tasks_a_process, workers_of
from croma_dask.cohort.manifest import ColumnNames
from croma_dask.cohort.open import cohort_of
from croma_dask.cost import Choice, choose, estimate_exact
from croma_dask.index.partition import count_clusters
from croma_dask.index.recipe import KINDS
from croma_dask.index.stored import StoredIndex
from croma_dask.layout import Layout, lay_out_probed, sketched
from croma_dask.options import Options, merged
from croma_dask.panel.check import check_models
from croma_dask.panel.names import is_several, named_cohorts
from croma_dask.panel.told import Told
from croma_dask.robustness.preflight import Unscoreable, unscoreable
from croma_dask.robustness.request import Inputs, Request, prepare
from croma_dask.score import DEFAULT_K, DEFAULT_METRICS
from croma_dask.search import check_scopes

__all__ = ["PanelPlan", "Plan", "plan"]


@dataclass(frozen=True)
class Plan:
    """What a run will cost.

    Attributes
    ----------
    engine
        ``small``, ``direct`` or ``streamed``, or ``ivf`` for an approximate search.
    n_samples, n_tiles, n_features, n_scopes
        Manifest rows, stored rows, length of a row, scopes searched each by itself.
    n_ranges, n_tasks
        Ranges of rows of the largest scope, and pair tasks over all scopes.
    range_rows
        Rows of the longest range.
    bytes_read
        Bytes of embedding read over the whole run.
    peak_memory
        Bytes that a process takes above the bare one at the worst moment.
    allowed_memory
        Bytes it may take.
    scratch_bytes
        Bytes that the lists of a streamed run take in its scratch folder.
    memory_terms
        What the peak consists of.
    n_workers, tasks_at_once
        Processes, and tasks side by side in each.
    seconds
        Estimate, from the rates below.
    product_rate, read_rate
        Multiply-adds a second of this machine's float32 matrix product, with as many threads as the
        run uses; bytes a second read from the embedding. Measured just now.
    index
        Kind of the index that would be used.
    choice
        What ``index="auto"`` takes, with the seconds of each kind and the reason.
    unscoreable
        Which units CRoMa cannot score, for each m.
    """

    engine: str
    n_samples: int
    n_tiles: int
    n_features: int
    n_scopes: int
    n_ranges: int
    n_tasks: int
    range_rows: int
    bytes_read: int
    peak_memory: int
    allowed_memory: int
    scratch_bytes: int
    memory_terms: dict[str, int]
    n_workers: int
    tasks_at_once: int
    seconds: float
    product_rate: float
    read_rate: float
    index: str
    choice: Choice
    unscoreable: tuple[Unscoreable, ...]

    def _rows(self) -> list[tuple[str, str]]:
        terms = ", ".join(f"{k} {mem.format_bytes(v)}" for k, v in self.memory_terms.items())
        how = {
            "small": "in memory, numpy (too small for anything else to be faster)",
            "direct": "in memory, compiled kernels",
            "streamed": "streamed in ranges of rows",
        }.get(self.engine, "through an index, in ranges of clusters")
        exactness = "exact" if self.index == "exact" else f"approximate ({self.index})"
        lines = [
            ("samples", f"{self.n_samples:,} x {self.n_features:,} ({self.n_tiles:,} stored rows)"),
            ("search", f"{exactness}, {how}; {self.n_scopes:,} scope{'s' * (self.n_scopes != 1)}"),
            ("tasks", f"{self.n_tasks:,} on {self.n_workers} process"
                      f"{'es' * (self.n_workers != 1)} x {self.tasks_at_once} at once; "
                      f"{self.n_ranges:,} ranges of {self.range_rows:,} rows"),
            ("disk", f"reads {mem.format_bytes(self.bytes_read)}"
                     + (f", keeps {mem.format_bytes(self.scratch_bytes)} in scratch"
                        if self.scratch_bytes else "")),
            ("memory", f"{mem.format_bytes(self.peak_memory)} of "
                       f"{mem.format_bytes(self.allowed_memory)} allowed ({terms})"),
            ("time", f"about {_duration(self.seconds)} (products {self.product_rate / 1e9:.0f} G "
                     f"multiply-adds/s, reads {mem.format_bytes(self.read_rate)}/s)"),
            ("index", f"exact {_duration(self.choice.seconds['exact'])}, ivf about "
                      f"{_duration(self.choice.seconds['ivf'])}; auto takes {self.choice.kind}: "
                      f"{self.choice.why}"),
        ]  # fmt: skip
        return lines + [("support", str(found)) for found in self.unscoreable]

    def __str__(self) -> str:
        """Lay the plan out as a table for people."""
        return "\n".join(f"{name:<9}{text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        """Lay the plan out for a notebook."""
        sentence = (
            f"About {_duration(self.seconds)} and {mem.format_bytes(self.peak_memory)} of memory; "
            "nothing has been run."
        )
        return markup.facts(self._rows(), title="Plan of a run", sentence=sentence)


@dataclass(frozen=True)
class PanelPlan:
    """What scoring several models of the same rows will cost, one after the other.

    Attributes
    ----------
    plans
        Model name to the plan of scoring it alone.
    results_bytes
        Bytes of the per-sample values of all models but one: the others wait in memory.
    """

    plans: Mapping[str, Plan]
    results_bytes: int

    @property
    def peak_memory(self) -> int:
        """Bytes at the worst moment, of the model that takes most and the results of the others."""
        return max(one.peak_memory for one in self.plans.values()) + self.results_bytes

    @property
    def seconds(self) -> float:
        """Seconds of all models together."""
        return sum(one.seconds for one in self.plans.values())

    @property
    def bytes_read(self) -> int:
        """Bytes of embedding read for all models together."""
        return sum(one.bytes_read for one in self.plans.values())

    @property
    def scratch_bytes(self) -> int:
        """Bytes of lists in scratch at the worst moment, those of one model at a time."""
        return max(one.scratch_bytes for one in self.plans.values())

    def __str__(self) -> str:
        """Lay the plan out: a line a model, then what they take together."""
        first = next(iter(self.plans.values()))
        width = max(len("model"), *(len(name) for name in self.plans)) + 2
        lines = [
            f"{len(self.plans)} model{'s' * (len(self.plans) != 1)} of {first.n_samples:,} "
            "samples, one after the other",
            f"  {'model':<{width}}{'features':>9}{'engine':>13}{'reads':>12}{'memory':>12}"
            f"{'time':>10}",
        ]
        for name, one in self.plans.items():
            lines.append(
                f"  {name:<{width}}{one.n_features:>9,}{one.engine:>13}"
                f"{mem.format_bytes(one.bytes_read):>12}{mem.format_bytes(one.peak_memory):>12}"
                f"{_duration(one.seconds):>10}"
            )
        kept = self.results_bytes
        memory = (
            f"{mem.format_bytes(self.peak_memory)} (the largest"
            + (f", and {mem.format_bytes(kept)} of results of the others" if kept else "")
            + f"); {mem.format_bytes(first.allowed_memory)} allowed for one"
        )
        lines += [
            f"{name:<9}{text}"
            for name, text in [
                ("disk", f"reads {mem.format_bytes(self.bytes_read)}"
                         + (f", keeps {mem.format_bytes(self.scratch_bytes)} in scratch"
                            if self.scratch_bytes else "")),
                ("memory", memory),
                ("time", f"about {_duration(self.seconds)}"),
                *(("support", str(found)) for found in first.unscoreable),
            ]
        ]  # fmt: skip
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Lay the plan out for a notebook."""
        table = markup.table(
            ["model", "features", "engine", "reads", "memory", "time"],
            [
                [name, f"{one.n_features:,}", one.engine, mem.format_bytes(one.bytes_read),
                 mem.format_bytes(one.peak_memory), _duration(one.seconds)]
                for name, one in self.plans.items()
            ],
        )  # fmt: skip
        first = next(iter(self.plans.values()))
        sentence = (
            f"{first.n_samples:,} samples, one model after the other: about "
            f"{_duration(self.seconds)}, {mem.format_bytes(self.peak_memory)} of memory at the "
            f"worst moment, {mem.format_bytes(self.bytes_read)} read; nothing has been run."
        )
        notes = [str(found) for found in first.unscoreable]
        return markup.block("Plan of a panel", sentence, table, notes)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def plan(
    cohort: Any,
    manifest: Any = None,
    *,
    confounder: str,
    design: str = "all",
    metrics: Sequence[str] | str = DEFAULT_METRICS,
    k_candidates: Sequence[int] = DEFAULT_K,
    m: int | Sequence[int] = 5,
    skip_incomplete: bool = False,
    label: str = "label",
    group: str = "group_id",
    sample_id: str = "sample_id",
    subset: str = "subset",
    index: Any = "exact",
    memory: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
) -> Plan | PanelPlan:
    """Tell what :func:`croma_dask.score` with the same arguments will cost; run nothing.

    Parameters
    ----------
    cohort, manifest, confounder, design, metrics, k_candidates, m, skip_incomplete, label, group
        As in :func:`croma_dask.score`.
    sample_id, subset, index, memory, threads, client
        As in :func:`croma_dask.score`.

    Returns
    -------
    Plan or PanelPlan
        Printable. The latter of several cohorts: a list or a mapping, as for scoring.

    Raises
    ------
    SchemaError, StoreError, SupportError
        The cohort breaks the contract of scoring (that ids repeat is not looked for here); or
        several are not of the same rows.
    MemoryLimitError
        The run would not fit the allowed memory: names the largest term and what to change.

    Notes
    -----
    Reads the codes of the key columns, and for half a second rows of the embedding; for another
    half second it multiplies matrices.
    """
    request = Request.of(metrics, k_candidates=k_candidates, m=m, index=index)
    options = merged(memory=memory, threads=threads)
    client = client if client is not None else active_client()
    options = for_client(options, client)
    names = ColumnNames(confounder, label, group, sample_id, subset)

    def of(cohort: Any) -> Plan:
        inputs = prepare(
            cohort_of(cohort), manifest, names, design, skip_incomplete=skip_incomplete,
            check_ids=False,
        )  # fmt: skip
        return _plan_of(inputs, request, options, client)

    if not is_several(cohort):
        return of(cohort)
    cohorts = {name: cohort_of(one) for name, one in named_cohorts(cohort).items()}
    check_models(cohorts, manifest, names, design, request)
    told, plans = Told(), {}
    for name, one in cohorts.items():
        with told.of(name, alone=len(cohorts) == 1):
            plans[name] = of(one)
    told.tell(len(cohorts))
    n = next(iter(plans.values())).n_samples
    of_results = mem.manifest_bytes(n, n_scores=request.n_scores) - mem.manifest_bytes(
        n, n_scores=0
    )
    return PanelPlan(plans, (len(plans) - 1) * of_results)


def _plan_of(inputs: Inputs, request: Request, options: Options, client: Any) -> Plan:
    """Lay one cohort out."""
    n_tasks = tasks_a_process(client, options)
    n_workers = workers_of(client)
    fixed = mem.manifest_bytes(inputs.manifest.n_rows, n_scores=request.n_scores)
    exact = estimate_exact(
        inputs.embedding, [len(scope) for scope in inputs.scopes], request.spec, options,
        n_tasks=n_tasks, n_workers=n_workers, fixed=fixed,
    )  # fmt: skip
    choice = choose(
        exact, inputs.manifest.n_rows, inputs.embedding.n_features, request.spec,
        served=is_served(inputs.embedding, inputs.scopes),
        built=find_built(inputs.embedding) is not None,
    )  # fmt: skip
    layout, seconds, kind = exact.layout, exact.seconds, "exact"
    how = request.how
    if how is not None and (how.index != "auto" or choice.kind != "exact"):
        check_scopes(inputs.scopes)
        wanted = choice.kind if how.index == "auto" else how.index
        kind, layout = _of_index(wanted, inputs, request, options, n_tasks, n_workers, fixed)
        seconds = choice.seconds["ivf"]
    return Plan(
        engine=layout.engine,
        n_samples=inputs.manifest.n_rows,
        n_tiles=inputs.embedding.n_tiles,
        n_features=inputs.embedding.n_features,
        n_scopes=len(inputs.scopes),
        n_ranges=len(layout.edges) - 1,
        n_tasks=layout.n_tasks if kind != "exact" else exact.n_tasks,
        range_rows=int(np.diff(layout.edges).max()),
        bytes_read=layout.bytes_read if kind != "exact" else exact.bytes_read,
        peak_memory=layout.peak,
        allowed_memory=mem.allowed_bytes(options.memory),
        scratch_bytes=layout.scratch if kind != "exact" else exact.scratch,
        memory_terms=layout.terms,
        n_workers=exact.n_workers if kind == "exact" else n_workers,
        tasks_at_once=n_tasks,
        seconds=seconds,
        product_rate=exact.product_rate,
        read_rate=exact.read_rate,
        index=kind,
        choice=choice,
        unscoreable=tuple(unscoreable(inputs.manifest, inputs.scopes, request.m)),
    )


def _of_index(
    wanted: Any, inputs: Inputs, request: Request, options: Options, n_tasks: int, n_workers: int,
    fixed: int,
) -> tuple[str, Layout]:  # fmt: skip
    """Lay out a search through an index: as it is, or as it will most likely be clustered."""
    embedding = inputs.embedding
    if isinstance(wanted, str) and wanted in KINDS:
        index = find_built(embedding, wanted)
    else:
        index = wanted if isinstance(wanted, StoredIndex) else StoredIndex(str(wanted))
    spec = sketched(request.spec, embedding.n_features)
    n, shards = embedding.n_tiles, None
    if index is None:
        kind = str(wanted)
        edges = np.linspace(0, n, count_clusters(n, None) + 1).astype(np.int64)
    else:
        kind, edges = index.kind, index.partition.cluster_edges
        if kind == "pynndescent":
            shards = index.partition.shard_edges
    layout = lay_out_probed(
        embedding, kind, edges, spec, options, n_tasks=n_tasks, fixed=fixed,
        n_workers=n_workers, shard_edges=shards,
    )  # fmt: skip
    return kind, layout
