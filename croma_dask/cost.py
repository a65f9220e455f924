"""What searches cost in time: rates measured on the spot, and constants measured once."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from croma_dask.cohort.align import Embedding
from croma_dask.errors import CromaDaskError
from croma_dask.index.partition import count_clusters
from croma_dask.index.spec import ListSpec
from croma_dask.index.threads import one_blas_thread
from croma_dask.layout import Layout, is_compiled, lay_out, lay_out_batches
from croma_dask.options import Options

__all__ = ["Choice", "Exact", "choose", "estimate_exact"]

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

_HOLDS = 60.0
"""Seconds for which a measured rate of products is used again."""

_MET = 25_000
"""Candidates that a row of a large clustered cohort is multiplied with at a recall of 0.98
(benchmarks/README.md). Embeddings without structure take several times that."""

_MEET = 3e-9
"""Seconds a core to walk one probed pair."""

_WALK = 8e-9
"""Seconds a core, a row and a cluster to choose what the row probes."""

_WORTH = 2.0
_PATIENCE = 60.0
"""`auto` leaves the exact search only where that would take longer than this many seconds, and this
many times as long as the approximate one."""


def exact_seconds(
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


def product_rate(n_features: int, n_threads: int) -> float:
    """Multiply-adds a second of float32 products of the tiles' shape, on all threads together.

    What was measured in the last minute holds: the models of a panel are not measured one by one.
    """
    return _measured_rate(n_features, n_threads, int(time.monotonic() // _HOLDS))


@functools.lru_cache(maxsize=64)
def _measured_rate(n_features: int, n_threads: int, minute: int) -> float:
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


def read_rate(embedding: Embedding) -> float:
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


def index_seconds(
    n_rows: int, n_features: int, spec: ListSpec, product: float, slots: int, *, built: bool
) -> float:
    """Estimate an approximate search, its index and its sample included.

    Parameters
    ----------
    n_rows, n_features, spec
        What is searched for what.
    product
        Multiply-adds a second of one core.
    slots
        Cores.
    built
        Whether the index is there.
    """
    clusters = count_clusters(n_rows, None)
    met = min(n_rows, _MET)
    compiling = 0.0 if is_compiled() else 2 * _COMPILE
    near = n_rows * clusters * (n_features / product + _WALK)
    building = 0.0 if built else n_rows * clusters * n_features / product + 4e-6 * n_rows
    sample = 1256.0 * n_rows * (n_features / product + _SELECT)
    pairs = n_rows * met * (n_features / product + _MEET)
    measured = 4.0 * _MEASURE * n_features * n_rows * spec.clipped(n_rows).screened
    cores = near + building + sample + pairs + measured
    return float(_ROW * n_rows + compiling + cores / slots)


@dataclass(frozen=True)
class Choice:
    """Which index `auto` takes, and why.

    Attributes
    ----------
    kind
        ``exact`` or ``ivf``.
    seconds
        Estimate of each kind.
    why
        The reason in words.
    """

    kind: str
    seconds: dict[str, float]
    why: str


@dataclass(frozen=True)
class Exact:
    """What an exact search costs.

    Attributes
    ----------
    layout
        Of the largest scope, or of the batches.
    bytes_read, n_tasks, scratch
        Over all scopes.
    n_workers
        Processes that share the work.
    seconds
        Estimate.
    product_rate, read_rate
        Multiply-adds and bytes a second, as measured.
    slots
        Tasks at once over all processes that there are.
    processes
        Those processes.
    """

    layout: Layout
    bytes_read: int
    n_tasks: int
    scratch: int
    n_workers: int
    seconds: float
    product_rate: float
    read_rate: float
    slots: int
    processes: int


def estimate_exact(
    embedding: Embedding, sizes: Sequence[int], spec: ListSpec, options: Options, *,
    n_tasks: int, n_workers: int, fixed: int,
) -> Exact:  # fmt: skip
    """Lay out the exact search of scopes of these sizes, and estimate its time.

    Raises
    ------
    MemoryLimitError
        It does not fit the allowed memory.
    """
    by_size = {
        n: lay_out(embedding, n, spec, options, n_tasks=n_tasks, fixed=fixed, n_workers=n_workers)
        for n in sorted(set(sizes))
    }
    largest = by_size[max(sizes)]
    bytes_read = sum(by_size[n].bytes_read for n in sizes)
    tasks = sum(by_size[n].n_tasks for n in sizes)
    scratch = largest.scratch
    if largest.engine == "streamed":
        scratch = sum(by_size[n].scratch for n in sizes)
    elif len(sizes) > 1:
        largest = lay_out_batches(
            embedding, sizes, spec, options, n_threads=n_tasks, fixed=fixed
        ).layout
        bytes_read, tasks, scratch = largest.bytes_read, largest.n_tasks, largest.scratch
    # What fits memory is searched where it is called.
    sharing = n_workers if largest.engine == "streamed" else 1
    product, read = product_rate(embedding.n_features, n_tasks), read_rate(embedding)
    seconds = exact_seconds(
        largest, list(sizes), embedding.n_features, spec, product / n_tasks, n_tasks * sharing
    )
    seconds += bytes_read / read / max(1, n_tasks * sharing)
    return Exact(
        largest,
        bytes_read,
        tasks,
        scratch,
        sharing,
        seconds,
        product,
        read,
        n_tasks * n_workers,
        n_workers,
    )


def choose(
    exact: Exact, n_rows: int, n_features: int, spec: ListSpec, *, served: bool, built: bool
) -> Choice:
    """Choose between the exact search and the index.

    Parameters
    ----------
    exact
        What the exact search costs.
    n_rows, n_features, spec
        What is searched for what.
    served
        Whether an approximate index serves the cohort at all.
    built
        Whether it is there already.
    """
    core = exact.product_rate / max(1, exact.slots // max(1, exact.processes))
    approximate = index_seconds(n_rows, n_features, spec, core, exact.slots, built=built)
    seconds = {"exact": exact.seconds, "ivf": approximate}
    if not served:
        why = "an approximate index serves the design 'all' with one row a tile"
        return Choice("exact", seconds, why)
    if exact.seconds <= _PATIENCE:
        return Choice("exact", seconds, f"exact takes less than {_PATIENCE:.0f} s")
    times = exact.seconds / approximate
    if times <= _WORTH:
        return Choice("exact", seconds, f"approximate would be but {times:.1f} times as fast")
    return Choice("ivf", seconds, f"{times:.1f} times as fast as exact")
