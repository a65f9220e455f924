"""The search in memory: all ranges resident, threads of this process, no scheduler."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from croma_dask.index.finish import (
    Delivered,
    certify,
    copied_at_once,
    deliver,
    in_scope_order,
    replace_failing,
    second_look,
)
from croma_dask.index.lists import Lists
from croma_dask.index.ranges import Range, load_range
from croma_dask.index.source import Codes, RowSource
from croma_dask.index.spec import ListSpec
from croma_dask.index.sweep import exact_distances, sweep, tile_buffer
from croma_dask.index.threads import one_blas_thread
from croma_dask.index.tournament import rounds
from croma_dask.kernels.frame import Frame

__all__ = ["search_resident"]


def search_resident(
    source: RowSource,
    codes: Codes,
    spec: ListSpec,
    frame: Frame,
    *,
    n_threads: int = 1,
    n_ranges: int | None = None,
) -> tuple[Delivered, int]:
    """Exact lists of all rows of a scope that fits memory.

    Parameters
    ----------
    source, codes
        Rows of the scope and their codes.
    spec
        Lists to deliver.
    frame
        Distance, and origin of the screening.
    n_threads
        Threads that share the work; BLAS runs on one thread in each.
    n_ranges
        Ranges that the rows are cut into; by default as many as keep the threads busy.

    Returns
    -------
    delivered, failing
        (n, delivered) lists in the order of the scope, and how many rows needed a second look.
    """
    n = source.n_rows
    spec = spec.clipped(n)
    if n_ranges is None:
        n_ranges = 1 if n_threads == 1 else 2 * n_threads
    edges = np.linspace(0, n, max(1, min(n_ranges, n)) + 1).astype(int)
    bounds = list(zip(edges[:-1], edges[1:], strict=True))
    buffers: dict[int, Any] = {}

    def buffer() -> Any:
        mine = threading.get_ident()
        if mine not in buffers:
            buffers[mine] = tile_buffer()
        return buffers[mine]

    def load(bound: tuple[int, int]) -> Range:
        lo, hi = int(bound[0]), int(bound[1])
        return load_range(source, codes.take(slice(lo, hi)), lo, hi, frame)

    with one_blas_thread(), ThreadPoolExecutor(n_threads) as pool:
        ranges = list(pool.map(load, bounds))
        lists = [Lists.empty(len(r), spec) for r in ranges]

        def meet(pair: tuple[int, int]) -> None:
            i, j = pair
            sweep(ranges[i], ranges[j], lists[i], lists[j], spec, buffer())

        for players in rounds(len(ranges)):
            list(pool.map(meet, players))

        def finish(i: int) -> tuple[Delivered, int]:
            lists[i].settle(spec)
            distance = exact_distances(ranges[i], lists[i], spec, ranges)
            found = deliver(lists[i], distance, spec)
            failing = certify(ranges[i], lists[i], found, spec)
            loaders = [functools.partial(ranges.__getitem__, j) for j in range(len(ranges))]
            for part in failing.parts(copied_at_once(ranges[i])):
                again, _ = second_look(ranges[i], part, loaders, spec, buffer())
                replace_failing(found, part, again, spec)
            return in_scope_order(ranges[i], found), int(failing.rows.size)

        parts = list(pool.map(finish, range(len(ranges))))
    return (
        Delivered(
            np.concatenate([p.index for p, _ in parts]),
            np.concatenate([p.distance for p, _ in parts]),
        ),
        sum(count for _, count in parts),
    )
