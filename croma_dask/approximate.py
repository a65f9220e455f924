"""The search through an index: exact sample, radius, probes, pairs, and the lists that come out."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from croma_dask.cluster import workers_of
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.design import Scope
from croma_dask.errors import SchemaError
from croma_dask.graph import job_key, pair_graph
from croma_dask.index.finish import Delivered
from croma_dask.index.graphs import Widening
from croma_dask.index.neighbors import IndexedLists, Neighbors
from croma_dask.index.probed import merge_samples, sample_range, write_scope
from croma_dask.index.probing import Radius, TypeCounts
from croma_dask.index.ranges import read_native
from croma_dask.index.resident import release
from croma_dask.index.source import Codes, TakenRows
from croma_dask.index.spec import ListSpec
from croma_dask.index.stored import StoredIndex
from croma_dask.index.streamed import Job, allow_tasks, stop_tasks
from croma_dask.index.tune import Tuned, tune
from croma_dask.kernels.typing import I32, I64
from croma_dask.layout import Layout, lay_out_probed
from croma_dask.options import Options
from croma_dask.progress import Progress
from croma_dask.resume import take_scratch
from croma_dask.tasks import run_graph

__all__ = ["Approximation", "Sample", "is_served", "search_index"]

log = logging.getLogger("croma_dask")

_TUNED_ON = 256
"""Queries on which the radius is chosen; others than those that calibrate."""


@dataclass(frozen=True)
class Approximation:
    """How far an approximate search goes, and how it is checked.

    Attributes
    ----------
    index
        Kind of the index, its path, or the index itself.
    recall
        Share of the neighbours of a sample that the radius has to reach.
    probes
        Clusters that a row probes; None leaves it to `recall`.
    start_k, k_growth_factor
        First typed radius, in candidates, and its growth.
    calibration, seed
        Queries that are searched exactly as well, and the seed that draws them.
    """

    index: Any
    recall: float = 0.98
    probes: int | None = None
    start_k: int = 200
    k_growth_factor: float = 2.0
    calibration: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Sample:
    """Queries whose exact lists are known.

    Attributes
    ----------
    rows
        (s,) int64 rows of the scope, ascending.
    exact
        Their exact lists.
    tuned
        The radius that was chosen, on other queries.
    """

    rows: I64
    exact: Delivered
    tuned: Tuned


def is_served(embedding: Embedding, scopes: Sequence[Scope]) -> bool:
    """Whether an index can serve these scopes: all rows at once, each with a tile of its own."""
    if len(scopes) > 1 or scopes[0].rows is not None:
        return False
    tiles = embedding.tile_of_row
    return len(scopes[0]) == embedding.n_tiles and (
        tiles is None or np.unique(tiles).size == embedding.n_tiles
    )


def _check_graph(index: StoredIndex, spec: ListSpec) -> None:
    """Refuse a graph whose lists are shorter than what is asked for."""
    width = int(index.parameters.get("n_neighbors", spec.n_global))
    if spec.n_global > width:
        raise SchemaError(
            f"k = {spec.n_global} is more than the {width} neighbours that {index.url} keeps of a "
            f"row: build it again with n_neighbors={spec.n_global + 9} (--n-neighbors), or use "
            "index='ivf'"
        )


def rows_of_places(index: StoredIndex, embedding: Embedding, n_rows: int) -> I32:
    """Row of the manifest at each place of an index.

    Raises
    ------
    SchemaError
        The manifest names a tile twice, or not at all: an index is of tiles.
    """
    order = index.partition.order
    tiles = embedding.tile_of_row
    if tiles is None and n_rows == index.n_rows:
        return order.astype(np.int32)
    seen = np.full(index.n_rows, -1, np.int64)
    if tiles is not None:
        seen[tiles] = np.arange(n_rows)
    if tiles is None or n_rows != index.n_rows or (seen < 0).any():
        raise SchemaError(
            f"the manifest has {n_rows} rows for {index.n_rows} tiles, some of them several times "
            "or not at all; an approximate index serves cohorts with one row a tile: use "
            "index='exact' (--index exact)"
        )
    return seen[order].astype(np.int32)


def search_index(
    index: StoredIndex, embedding: Embedding, scope: Scope, spec: ListSpec, how: Approximation,
    options: Options, *, client: Any, n_tasks: int, fixed: int, keep: contextlib.ExitStack,
) -> tuple[Neighbors, Sample]:  # fmt: skip
    """Search a scope through an index.

    Parameters
    ----------
    index
        Index of the rows of `embedding`.
    embedding, scope, spec
        What is searched for what.
    how
        How far, and how it is checked.
    options, client, n_tasks, fixed, keep
        As in `croma_dask.search.search`.

    Returns
    -------
    neighbors, sample
        The lists, with exact distances, of the candidates that were met; and queries that were
        searched exactly.
    """
    n = len(scope)
    partition = index.partition
    _check_graph(index, spec)
    spec = replace(spec, sketched=bool(partition.basis.shape[1])).clipped(n)
    row = rows_of_places(index, embedding, n)
    codes = Codes(scope.label, scope.confounder, scope.group).take(row)
    layout = lay_out_probed(
        embedding, index.kind, partition.cluster_edges, spec, options, n_tasks=n_tasks,
        fixed=fixed, n_workers=workers_of(client),
        shard_edges=partition.shard_edges if index.kind == "pynndescent" else None,
    )  # fmt: skip
    key = job_key(codes, row, spec, _identity(index, scope, how))
    scratch, (edges, per_block) = take_scratch(options, key, layout, keep)
    job = Job(index, scratch, edges, per_block, spec, partition.mean)
    write_scope(job, codes, row)
    sample = _sample(job, index, codes, row, how, layout, options, client, n_tasks)
    job = replace(job, radius=sample.tuned.radius)
    if index.kind == "pynndescent":
        job = replace(job, widening=Widening(how.start_k, how.k_growth_factor))
    graph, last, work = pair_graph(job)
    with Progress("search", sum(work.values()), "row pairs", options.quiet) as progress:
        _run(job, graph, last, work, progress, layout, client, n_tasks)
    lists = IndexedLists(
        scratch, spec,
        tuple(scratch.read(f"range-{r:05d}/rows.npz")["row"] for r in range(job.n_ranges)),
    )  # fmt: skip
    release()
    return Neighbors(n, spec, lists, 0, index.kind), sample


def _identity(index: StoredIndex, scope: Scope, how: Approximation) -> tuple[str, str]:
    """Name what the lists depend on beside the rows: this very build, and how far rows look."""
    about = repr(replace(how, index=""))
    return f"{index.embedding_fingerprint} {index.kind} {index.build_id} {about}", scope.name


def _sample(
    job: Job, index: StoredIndex, codes: Codes, row: I32, how: Approximation, layout: Layout,
    options: Options, client: Any, n_tasks: int,
) -> Sample:  # fmt: skip
    """Search a sample exactly; choose the radius on a part of it, keep the rest to calibrate."""
    n = row.shape[0]
    rng = np.random.default_rng([how.seed, 7])
    n_tuned = min(_TUNED_ON, n // 2)
    n_kept = min(how.calibration, n - n_tuned)
    drawn = rng.choice(n, n_tuned + n_kept, replace=False)
    kept = job.scratch.find("sample.npz")
    if kept is None:
        kept = _search_sample(job, codes, row, drawn, n_tuned, layout, options, client, n_tasks)
        queries = kept["place"]
        tuned = tune(
            index, job.partition, codes, TypeCounts.of_arrays(job.scratch.read("counts.npz")),
            queries[:n_tuned].astype(np.int64), kept["places"][:n_tuned], job.spec,
            recall=how.recall, start=how.start_k, growth=how.k_growth_factor, probes=how.probes,
        )  # fmt: skip
        kept["tuned"] = np.array(
            [tuned.radius.probes, tuned.radius.so, tuned.radius.os, tuned.steps, tuned.recall,
             tuned.recall_typed]
        )  # fmt: skip
        job.scratch.write("sample.npz", kept)
    probes, so, os, steps, recall, recall_typed = kept["tuned"]
    tuned = Tuned(
        Radius(int(probes), int(so), int(os)), float(recall), float(recall_typed), int(steps)
    )
    log.info(
        "%s: rows probe %d of %d clusters, and on to %d SO and %d OS candidates; the sample finds "
        "%.3f of its neighbours there, %.3f of its SO and OS neighbours",
        index.url, tuned.radius.probes, job.partition.n_clusters, tuned.radius.so, tuned.radius.os,
        tuned.recall, tuned.recall_typed,
    )  # fmt: skip
    rows = row[kept["place"][n_tuned:]].astype(np.int64)
    order = np.argsort(rows)
    exact = Delivered(kept["index"][n_tuned:][order], kept["distance"][n_tuned:][order])
    return Sample(rows[order], exact, tuned)


def _search_sample(
    job: Job, codes: Codes, row: I32, drawn: I64, n_tuned: int, layout: Layout, options: Options,
    client: Any, n_tasks: int,
) -> dict[str, Any]:  # fmt: skip
    place = np.concatenate([np.sort(drawn[:n_tuned]), np.sort(drawn[n_tuned:])])
    mine = codes.take(place)
    x = read_native(TakenRows(job.source, place.astype(np.int64)), 0, place.size)
    job.scratch.write(
        "queries.npz",
        {"x": x, "label": mine.label, "confounder": mine.confounder, "group": mine.group},
    )
    token = uuid.uuid4().hex
    # Ranges are read in the order of the index: any radius will do for that.
    shared = f"croma-job-{token}"
    graph: dict[str, Any] = {shared: replace(job, radius=Radius(0, 0, 0))}
    last = [f"croma-sample-{token}-{number}" for number in range(job.n_ranges)]
    graph |= {key: (sample_range, shared, number) for number, key in enumerate(last)}
    pairs = place.size * row.shape[0]
    work = {key: pairs // job.n_ranges for key in last}
    with Progress("sample", pairs, "row pairs", options.quiet) as progress:
        parts = _run(job, graph, last, work, progress, layout, client, n_tasks)
    exact, places = merge_samples(parts, job.spec, row)
    return {
        "place": place, "places": places, "index": exact.index, "distance": exact.distance,
    }  # fmt: skip


def _run(
    job: Job, graph: dict[str, Any], last: list[str], work: dict[str, int], progress: Progress,
    layout: Layout, client: Any, n_tasks: int,
) -> list[Any]:  # fmt: skip
    allow_tasks(job.scratch)
    return run_graph(
        graph, last, client=client, n_threads=n_tasks,
        on_done=lambda key, _: progress.advance(work.get(key, 0)),
        on_stop=lambda: stop_tasks(job.scratch), terms=layout.terms,
    )  # fmt: skip
