"""The search through an index: exact sample, radius, probes, pairs, and the lists that come out."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.closer import CloserLook, ExactSearch
from croma_dask.cluster import workers_of
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.design import Scope
from croma_dask.errors import SchemaError
from croma_dask.graph import job_key, pair_graph
from croma_dask.index.finish import Delivered
from croma_dask.index.graphs import Widening
from croma_dask.index.neighbors import Cover, IndexedLists, Neighbors
from croma_dask.index.probed import write_scope
from croma_dask.index.probing import Radius, TypeCounts
from croma_dask.index.resident import release
from croma_dask.index.source import Codes
from croma_dask.index.spec import ListSpec
from croma_dask.index.stored import StoredIndex
from croma_dask.index.streamed import Job, allow_tasks, stop_tasks
from croma_dask.index.tune import Tuned, tune
from croma_dask.kernels.typing import I32, I64
from croma_dask.layout import lay_out_probed
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
    exact, approx
        Their exact lists, and what the approximate search had found before the exact ones took the
        place of its own.
    tuned
        The radius that was chosen, on other queries.
    known
        (n,) bool: rows of the scope that have their exact lists, those others among them.
    closer
        How more of them get theirs.
    """

    rows: I64
    exact: Delivered
    approx: Delivered
    tuned: Tuned
    known: NDArray[np.bool_]
    closer: CloserLook


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
    job = Job(index, scratch, edges, per_block, spec, index.frame)
    write_scope(job, codes, row)
    exactly = ExactSearch(job, codes, row, layout.terms, options, client, n_tasks)
    queries, tuned = _sample(exactly, index, how)
    job = replace(job, radius=tuned.radius)
    if index.kind == "pynndescent":
        job = replace(job, widening=Widening(how.start_k, how.k_growth_factor))
    graph, last, work = pair_graph(job)
    allow_tasks(job.scratch)
    with Progress("search", sum(work.values()), "row pairs", options.quiet) as progress:
        run_graph(
            graph, last, client=client, n_threads=n_tasks,
            on_done=lambda key, _: progress.advance(work.get(key, 0)),
            on_stop=lambda: stop_tasks(job.scratch), terms=layout.terms,
        )  # fmt: skip
    lists = IndexedLists(
        scratch, spec,
        tuple(scratch.read(f"range-{r:05d}/rows.npz")["row"] for r in range(job.n_ranges)),
        Cover(spec),
    )  # fmt: skip
    release()
    sample = _exchange(lists, queries, tuned, CloserLook(exactly, lists), n)
    return Neighbors(n, spec, lists, 0, index.kind), sample


@dataclass(frozen=True)
class _Queries:
    """Rows of the scope that were drawn, and their exact lists; the first were tuned on."""

    rows: I64
    exact: Delivered
    n_tuned: int


def _exchange(
    lists: IndexedLists, queries: _Queries, tuned: Tuned, closer: CloserLook, n: int
) -> Sample:
    """Give the rows that were searched exactly their exact lists; keep what they had before."""
    before = lists.found(queries.rows)
    lists.cover(queries.rows, queries.exact)
    known = np.zeros(n, bool)
    known[queries.rows] = True
    rest = queries.rows[queries.n_tuned :]
    at = queries.n_tuned + np.argsort(rest)
    return Sample(
        queries.rows[at], Delivered(queries.exact.index[at], queries.exact.distance[at]),
        Delivered(before.index[at], before.distance[at]), tuned, known, closer,
    )  # fmt: skip


def _identity(index: StoredIndex, scope: Scope, how: Approximation) -> tuple[str, str]:
    """Name what the lists depend on beside the rows: this very build, and how far rows look."""
    about = repr(replace(how, index=""))
    return f"{index.embedding_fingerprint} {index.kind} {index.build_id} {about}", scope.name


def _sample(exactly: ExactSearch, index: StoredIndex, how: Approximation) -> tuple[_Queries, Tuned]:
    """Search a sample exactly; choose the radius on a part of it, keep the rest to calibrate."""
    job, codes, row = exactly.job, exactly.codes, exactly.row
    n = row.shape[0]
    rng = np.random.default_rng([how.seed, 7])
    n_tuned = min(_TUNED_ON, n // 2)
    n_kept = min(how.calibration, n - n_tuned)
    drawn = rng.choice(n, n_tuned + n_kept, replace=False)
    kept = job.scratch.find("sample.npz")
    if kept is None:
        place = np.concatenate([np.sort(drawn[:n_tuned]), np.sort(drawn[n_tuned:])])
        exact, places = exactly.search(place, "sample")
        tuned = tune(
            index, index.frame, job.partition, codes,
            TypeCounts.of_arrays(job.scratch.read("counts.npz")),
            place[:n_tuned].astype(np.int64), places[:n_tuned], job.spec,
            recall=how.recall, start=how.start_k, growth=how.k_growth_factor, probes=how.probes,
        )  # fmt: skip
        kept = {
            "place": place, "index": exact.index, "distance": exact.distance,
            "tuned": np.array(
                [tuned.radius.probes, tuned.radius.so, tuned.radius.os, tuned.steps, tuned.recall,
                 tuned.recall_typed]
            ),
        }  # fmt: skip
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
    exact = Delivered(kept["index"], kept["distance"])
    return _Queries(row[kept["place"]].astype(np.int64), exact, n_tuned), tuned
