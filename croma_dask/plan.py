"""What a run will cost, before it runs: tasks, bytes, memory, time, and what cannot be scored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask import memory as mem
from croma_dask.cluster import active_client, for_client, tasks_a_process, workers_of
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.manifest import ColumnNames
from croma_dask.errors import CromaDaskError
from croma_dask.index.spec import ListSpec
from croma_dask.index.threads import one_blas_thread
from croma_dask.layout import (
    Layout,
    is_compiled,
    lay_out,
    lay_out_batches,
)
from croma_dask.options import merged
from croma_dask.robustness.preflight import Unscoreable, unscoreable
from croma_dask.robustness.request import Request, prepare
from croma_dask.score import DEFAULT_K, DEFAULT_METRICS, cohort_of

__all__ = ["Plan", "plan"]

_SELECT = 4e-9
"""Seconds a core to walk one pair of rows of a tile, selection included (benchmarks/README.md)."""

_MEASURE = 3.5e-10
"""Seconds a core and feature to measure one pair exactly."""

_ROW = 1.5e-5
"""Seconds to score and label a row from its lists."""

_SMALL_PAIR = 1.5e-7
_SMALL_SCOPE = 2e-3
_SMALL_ENTRY = 6e-7
"""Seconds a pair of rows, a scope, and an entry of a list, of the numpy search."""

_COMPILE = 5.0
"""Seconds to compile the kernels, once a process."""

_CALIBRATION_SECONDS = 0.5


@dataclass(frozen=True)
class Plan:
    """What a run will cost.

    Attributes
    ----------
    engine
        ``small``, ``direct`` or ``streamed``.
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
    unscoreable: tuple[Unscoreable, ...]

    def __str__(self) -> str:
        """Lay the plan out as a table for people."""
        terms = ", ".join(f"{k} {mem.format_bytes(v)}" for k, v in self.memory_terms.items())
        how = {
            "small": "in memory, numpy (too small for anything else to be faster)",
            "direct": "in memory, compiled kernels",
            "streamed": "streamed in ranges of rows",
        }[self.engine]
        lines = [
            ("samples", f"{self.n_samples:,} x {self.n_features:,} ({self.n_tiles:,} stored rows)"),
            ("search", f"exact, {how}; {self.n_scopes:,} scope{'s' * (self.n_scopes != 1)}"),
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
        ]  # fmt: skip
        lines += [("support", str(found)) for found in self.unscoreable]
        return "\n".join(f"{name:<9}{text}" for name, text in lines)


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
    memory: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
) -> Plan:
    """Tell what :func:`croma_dask.score` with the same arguments will cost; run nothing.

    Parameters
    ----------
    cohort, manifest, confounder, design, metrics, k_candidates, m, skip_incomplete, label, group
        As in :func:`croma_dask.score`.
    sample_id, subset, memory, threads, client
        As in :func:`croma_dask.score`.

    Returns
    -------
    Plan
        Printable.

    Raises
    ------
    SchemaError, StoreError, SupportError
        The cohort breaks the contract of scoring (ids are not compared here).
    MemoryLimitError
        The run would not fit the allowed memory: names the largest term and what to change.

    Notes
    -----
    Reads the codes of the key columns, and for half a second rows of the embedding; for another
    half second it multiplies matrices.
    """
    request = Request.of(metrics, k_candidates=k_candidates, m=m)
    options = merged(memory=memory, threads=threads)
    inputs = prepare(
        cohort_of(cohort), manifest, ColumnNames(confounder, label, group, sample_id, subset),
        design, skip_incomplete=skip_incomplete, check_ids=False,
    )  # fmt: skip
    client = client if client is not None else active_client()
    options = for_client(options, client)
    n_tasks = tasks_a_process(client, options)
    n_workers = workers_of(client)
    fixed = mem.manifest_bytes(inputs.manifest.n_rows, n_scores=request.n_scores)
    sizes = [len(scope) for scope in inputs.scopes]
    layouts = [
        lay_out(
            inputs.embedding, n, request.spec, options, n_tasks=n_tasks, fixed=fixed,
            n_workers=n_workers,
        )
        for n in sorted(set(sizes))
    ]  # fmt: skip
    by_size = {layout.n_rows: layout for layout in layouts}
    largest = layouts[-1]
    bytes_read = sum(by_size[n].bytes_read for n in sizes)
    n_pair_tasks = sum(by_size[n].n_tasks for n in sizes)
    if len(sizes) > 1 and largest.engine != "streamed":
        largest = lay_out_batches(
            inputs.embedding, sizes, request.spec, options, n_threads=n_tasks, fixed=fixed
        ).layout
        bytes_read, n_pair_tasks = largest.bytes_read, largest.n_tasks
    scratch = largest.scratch
    if largest.engine == "streamed":
        scratch = sum(by_size[n].scratch for n in sizes)
    if largest.engine != "streamed":
        # What fits memory is searched where it is called.
        n_workers = 1
    product = _product_rate(inputs.embedding.n_features, n_tasks)
    read = _read_rate(inputs.embedding)
    seconds = _seconds(
        largest,
        sizes,
        inputs.embedding.n_features,
        request.spec,
        product / n_tasks,
        n_tasks * n_workers,
    )
    seconds += bytes_read / read / max(1, n_tasks * n_workers)
    return Plan(
        engine=largest.engine,
        n_samples=inputs.manifest.n_rows,
        n_tiles=inputs.embedding.n_tiles,
        n_features=inputs.embedding.n_features,
        n_scopes=len(inputs.scopes),
        n_ranges=len(largest.edges) - 1,
        n_tasks=n_pair_tasks,
        range_rows=int(np.diff(largest.edges).max()),
        bytes_read=bytes_read,
        peak_memory=largest.peak,
        allowed_memory=mem.allowed_bytes(options.memory),
        scratch_bytes=scratch,
        memory_terms=largest.terms,
        n_workers=n_workers,
        tasks_at_once=n_tasks,
        seconds=seconds,
        product_rate=product,
        read_rate=read,
        unscoreable=tuple(unscoreable(inputs.manifest, inputs.scopes, request.m)),
    )


def _seconds(
    layout: Layout, sizes: list[int], n_features: int, spec: ListSpec, product: float, slots: int
) -> float:
    """Estimate a run without its reading, from what was measured of its parts."""
    pairs = float(sum(n * n for n in sizes))
    rows = sum(sizes)
    scoring = _ROW * rows
    if layout.engine == "small":
        listed = _SMALL_ENTRY * rows * spec.clipped(layout.n_rows).screened
        return scoring + listed + _SMALL_PAIR * pairs + _SMALL_SCOPE * len(sizes)
    n_ranges = len(layout.edges) - 1
    # Tasks of one round work side by side, and a block of ranges is in one of them.
    busy = min(slots, max(1, -(-n_ranges // layout.per_block) // 2)) if n_ranges > 1 else slots
    screened = spec.clipped(layout.n_rows).screened
    # Each partner of a range brings entries that have to be measured, ever fewer of them.
    measured = rows * screened * (1.0 + np.log(n_ranges))
    cores = _SELECT * pairs / 2 + _MEASURE * n_features * measured
    compiling = 0.0 if is_compiled() else _COMPILE
    products = pairs / 2 * n_features / product
    return float(scoring + compiling + (cores + products) / busy)


def _product_rate(n_features: int, n_threads: int) -> float:
    """Multiply-adds a second of float32 products of the tiles' shape, on all threads together."""
    from concurrent.futures import ThreadPoolExecutor

    a = np.ones((512, n_features), np.float32)
    b = np.ones((1024, n_features), np.float32)

    def work(_: int) -> int:
        out = np.empty((512, 1024), np.float32)
        done, until = 0, time.perf_counter() + _CALIBRATION_SECONDS
        while time.perf_counter() < until:
            np.matmul(a, b.T, out=out)
            done += 1
        return done

    started = time.perf_counter()
    with one_blas_thread(), ThreadPoolExecutor(n_threads) as pool:
        done = sum(pool.map(work, range(n_threads)))
    return done * 512 * 1024 * n_features / (time.perf_counter() - started)


def _read_rate(embedding: Embedding) -> float:
    """Bytes a second of reading chunks from all over the embedding."""
    if not embedding.stored:
        return 5e9
    store = embedding.data
    step = int(store.chunk_rows)
    starts = np.linspace(0, max(store.n_tiles - step, 0), 16).astype(int) // step * step
    size, started = 0, time.perf_counter()
    for lo in starts:
        try:
            size += store.read_tiles(int(lo), min(int(lo) + step, store.n_tiles)).nbytes
        except (CromaDaskError, OSError):
            continue
        if time.perf_counter() - started > _CALIBRATION_SECONDS:
            break
    # Nothing could be read (a store whose chunks are not there yet): assume a plain disk.
    return size / (time.perf_counter() - started) if size else 1e9
