"""Building one shard's pynndescent index, and the one way to the library.

Whatever can enter a parallel region of numba runs under one lock of the process: where numba has no
better threads than its work queue, two regions at once abort the process.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from croma_dask.errors import CromaDaskError, SchemaError
from croma_dask.index.descent_arrays import METRIC, SEARCH_ARRAYS, DescentArrays, clean, digest
from croma_dask.kernels.typing import F32

__all__ = ["build_bytes", "build_descent", "held_bytes", "library_alone", "library_version"]

_one_at_a_time = threading.Lock()

_CANDIDATES = 30
"""Candidates a row that are compared with one another in each round. The library's own choice of up
to 60 finds 0.4 % more of the neighbours, for a fifth more time and up to twice the memory."""

_BLOCK = 4096
"""Rows that are copied or cleaned at once."""


def library_version() -> str:
    """Version of the pynndescent that is installed."""
    from importlib.metadata import version

    return version("pynndescent")


@contextmanager
def library_alone(n_jobs: int) -> Iterator[tuple[Any, int]]:
    """Import the library and keep others of this process from it meanwhile.

    Parameters
    ----------
    n_jobs
        Threads of its parallel regions; never more than numba was started with.

    Yields
    ------
    module, int
        pynndescent, and the number of threads.

    Raises
    ------
    CromaDaskError
        It finds no place to keep compiled functions.
    """
    with _one_at_a_time:
        try:
            import numba
            import pynndescent
        except RuntimeError as err:
            if "no locator" not in str(err):
                raise
            raise CromaDaskError(
                "pynndescent keeps its compiled functions on disk and can write neither beside "
                "itself nor in the home directory; set NUMBA_CACHE_DIR to a folder it may use"
            ) from err
        before = numba.get_num_threads()
        threads = min(n_jobs, int(vars(numba.config)["NUMBA_NUM_THREADS"]))
        numba.set_num_threads(threads)
        try:
            yield pynndescent, threads
        finally:
            numba.set_num_threads(before)


def build_bytes(n: int, d: int, n_neighbors: int, n_jobs: int = 2) -> int:
    """Memory that building takes at its peak, the rows given to it not counted.

    Parameters
    ----------
    n, d, n_neighbors, n_jobs
        Rows, features, neighbours a row, and threads.

    Returns
    -------
    int
        Bytes. Measured peaks come within 25 % where most rows have as many near ones as the graph
        is wide, or where the rows themselves are most of it; elsewhere they stay below.
    """
    candidates = min(_CANDIDATES, n_neighbors)
    # Heap, candidates and the leaves of the first trees; and the changes to the graph that 16,384
    # rows propose at once, more of them the more groups there are to be found: once for one
    # thread, and sorted by owner besides for more of them.
    descent = n * (9 * n_neighbors + 16 * candidates + 160)
    descent += min(n, 16_384) * (8 if n_jobs == 1 else 16) * n_neighbors * candidates
    # The rows in another order and the planes of the tree, the graph twice, edges both ways.
    prepare = n * (44 * d // 10 + 18 * n_neighbors + 500)
    return max(descent, prepare)


def held_bytes(n: int, d: int, n_neighbors: int) -> int:
    """Memory that loading takes at its peak, a tenth more than what stays.

    Parameters
    ----------
    n, d, n_neighbors
        Rows, features and neighbours a row.

    Returns
    -------
    int
        Bytes, the index' own copy of the rows and its part of the saved arrays included; measured
        peaks were within 25 %.
    """
    return n * (48 * d // 10 + 2 * n_neighbors + 60)


def build_descent(unit: F32, *, n_neighbors: int, seed: int, n_jobs: int) -> DescentArrays:
    """Build the index of a shard.

    The same rows, arguments and number of threads give the same arrays on one machine; another
    number of threads gives others, of the same quality.

    Parameters
    ----------
    unit
        (n, D) unit rows, C-contiguous float32, finite.
    n_neighbors
        Neighbours of a row in the graph; n - 1 where the shard has no more.
    seed
        Of the random trees and candidates.
    n_jobs
        Threads; never more than numba was started with. The number used is among the parameters.

    Returns
    -------
    DescentArrays
        Everything but the rows.

    Raises
    ------
    SchemaError
        The rows are no finite float32 matrix, or a number is out of range.
    CromaDaskError
        The library cannot be used here.

    Notes
    -----
    The first call of a process compiles for half a minute, which no cache saves; the very first one
    after the library was installed a minute longer. :func:`build_bytes` says how much memory it
    takes.
    """
    if unit.ndim != 2 or unit.dtype != np.float32 or 0 in unit.shape or not np.isfinite(unit).all():
        raise SchemaError(f"unit rows must be finite float32, found {unit.shape} {unit.dtype}")
    if n_neighbors < 1 or n_jobs < 1 or not 0 <= seed < 2**32:
        raise SchemaError(
            f"n_neighbors={n_neighbors} and n_jobs={n_jobs} must be at least 1, seed={seed} must "
            "be at least 0 and below 2**32"
        )
    n, width = len(unit), max(1, min(n_neighbors, len(unit) - 1))
    with library_alone(n_jobs) as (library, threads), warnings.catch_warnings():
        # Said of rows with fewer neighbours than asked for, which the graph shows.
        warnings.filterwarnings("ignore", message="Failed to correctly find n_neighbors")
        # Tree, rows and edges are put in the same order by prepare(); it works on copies.
        index = library.NNDescent(
            np.ascontiguousarray(unit), metric=METRIC, n_neighbors=width, random_state=seed,
            max_candidates=min(_CANDIDATES, width),
        )  # fmt: skip
        index.prepare()
        arrays, least = _taken(index, n)
    params = {
        "library_version": library_version(), "metric": METRIC, "n_rows": n,
        "n_features": unit.shape[1], "n_neighbors": width, "seed": seed, "n_jobs": threads,
        "min_distance": least,
    }  # fmt: skip
    digests = {f"sha256_{name}": digest(arrays[name]) for name in SEARCH_ARRAYS}
    return DescentArrays(arrays, params | digests)


def _taken(index: Any, n: int) -> tuple[dict[str, Any], float]:
    """Arrays of a prepared index of the library, and the least distance of its graph."""
    (tree,) = index._search_forest
    if not np.array_equal(tree.indices, np.arange(n)):
        raise CromaDaskError(f"pynndescent {library_version()} is not supported: unknown tree")
    graph, squared = index._neighbor_graph
    distance = np.empty((n, graph.shape[1]), np.float32)
    for lo in range(0, n, _BLOCK):
        hi = min(n, lo + _BLOCK)
        graph[lo:hi], distance[lo:hi] = clean(
            graph[lo:hi], np.sqrt(squared[lo:hi]), own=np.arange(lo, hi)
        )
    return {
        "graph_index": graph, "graph_distance": distance,
        "vertex_order": index._vertex_order.astype(np.int32),
        "search_start": index._search_graph.indptr.astype(np.int64),
        "search_index": index._search_graph.indices.astype(np.int32),
        "tree_child": tree.children.astype(np.int32),
        "tree_offset": tree.offsets.astype(np.float32),
        "tree_plane": tree.hyperplanes[tree.children[:, 0] > 0],  # those of leaves are zeros
        "search_rng": index.search_rng_state.astype(np.int64),
    }, float(index._min_distance)  # fmt: skip
