"""What a run will cost, before it runs: tasks, bytes, memory, time, and what cannot be scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from croma_dask import memory as mem
from croma_dask.approximate import is_served
from croma_dask.build import find_built, index_at
from croma_dask.cluster import active_client, for_client, tasks_a_process, workers_of
from croma_dask.cohort.manifest import ColumnNames
from croma_dask.cohort.open import cohort_of
from croma_dask.cost import choose, estimate_exact
from croma_dask.index.partition import count_clusters
from croma_dask.index.recipe import KINDS
from croma_dask.index.stored import StoredIndex
from croma_dask.layout import Layout, lay_out_probed, sketched
from croma_dask.options import Options, merged
from croma_dask.panel.check import check_models
from croma_dask.panel.names import is_several, named_cohorts
from croma_dask.panel.told import Told
from croma_dask.plans import PanelPlan, Plan
from croma_dask.robustness.preflight import unscoreable
from croma_dask.robustness.request import Inputs, Request, prepare
from croma_dask.score import DEFAULT_K, DEFAULT_METRICS
from croma_dask.search import check_scopes

__all__ = ["PanelPlan", "Plan", "plan"]


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
    storage_options: Mapping[str, Any] | None = None,
    client: Any = None,
) -> Plan | PanelPlan:
    """Tell what :func:`croma_dask.score` with the same arguments will cost; run nothing.

    Parameters
    ----------
    cohort, manifest, confounder, design, metrics, k_candidates, m, skip_incomplete, label, group
        As in :func:`croma_dask.score`.
    sample_id, subset, index, memory, threads, storage_options, client
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
    index = index_at(index, storage_options)
    request = Request.of(metrics, k_candidates=k_candidates, m=m, index=index)
    options = merged(memory=memory, threads=threads)
    client = client if client is not None else active_client()
    options = for_client(options, client)
    names = ColumnNames(confounder, label, group, sample_id, subset)

    def of(cohort: Any) -> Plan:
        inputs = prepare(
            cohort_of(cohort, storage_options), manifest, names, design,
            skip_incomplete=skip_incomplete, check_ids=False,
        )  # fmt: skip
        return _plan_of(inputs, request, options, client)

    if not is_several(cohort):
        return of(cohort)
    cohorts = {name: cohort_of(one, storage_options) for name, one in named_cohorts(cohort).items()}
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
    return PanelPlan(plans, (len(plans) - 1) * (of_results + mem.MODEL))


def _plan_of(inputs: Inputs, request: Request, options: Options, client: Any) -> Plan:
    """Lay one cohort out."""
    n_tasks = tasks_a_process(client, options)
    n_workers = workers_of(client)
    fixed = inputs.manifest.held_bytes(request.n_scores)
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
