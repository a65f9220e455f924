"""One shard's pynndescent index, restored from plain arrays and queried.

The library's users pickle its index. Here its state is kept as arrays and numbers, and restored by
way of the class' own ``__setstate__``, with the attributes listed here and no others. Such a state
belongs to one release of the library.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from croma_dask.errors import CromaDaskError, SchemaError, StoreError
from croma_dask.index.descent import library_alone, library_version
from croma_dask.index.descent_arrays import METRIC, Arrays, clean, parameter
from croma_dask.index.descent_checks import SearchState, check_search
from croma_dask.kernels.typing import F32, I32

__all__ = ["DescentIndex"]

_BLOCK = 4096
"""Rows that are copied at once."""

_LEAST_EPSILON = 1e-6
"""With 0 the library's bound is 0 times infinity until k candidates are known, and as nothing is
nearer than NaN the search ends after the first few."""


class DescentIndex:
    """A shard's index, ready to be queried by any thread; get one from :meth:`load`.

    It cannot be pickled: each process loads its own.
    """

    def __init__(self, search: Any, n: int, n_features: int) -> None:
        self._search = search
        self.n_rows = n
        self.n_features = n_features
        # A query fills buffers that the index owns, and a second step reads them.
        self._lock = threading.Lock()

    @classmethod
    def load(cls, unit: F32 | Iterable[F32], arrays: Arrays, params: Any) -> DescentIndex:
        """Restore an index from what :func:`build_descent` returned.

        Parameters
        ----------
        unit
            (n, D) float32, the rows that it was built from, or blocks of them one after another,
            so that they need not be in memory twice: the index keeps a copy in its own order.
        arrays, params
            As built; arrays may be those of a Zarr group. The neighbour graph is not read.

        Returns
        -------
        DescentIndex
            Holds :func:`held_bytes`.

        Raises
        ------
        StoreError
            The index is of another release of the library, or damaged.
        CromaDaskError
            The library cannot be used here.
        """
        made_by, here = parameter(params, "library_version", str), library_version()
        if made_by != here or parameter(params, "metric", str) != METRIC:
            raise StoreError(
                f"the index was built with pynndescent {made_by}, here is {here}; build the index "
                "again"
            )
        state = check_search(arrays, params)
        n, n_features = len(state.vertex_order), state.tree_plane.shape[1]
        own = _in_order(unit, state.vertex_order, n_features)
        with library_alone(1) as (library, _):
            search = library.NNDescent.__new__(library.NNDescent)
            try:
                search.__setstate__(_attributes(state, own))
            except (AttributeError, KeyError) as err:
                raise CromaDaskError(f"pynndescent {here} is not supported: {err}") from err
        search._search_forest = ()  # the search has its own copy
        return cls(search, n, n_features)

    def query(self, rows: F32, k: int, epsilon: float) -> tuple[I32, F32]:
        """Nearest rows of the shard.

        The answer to a row depends on nothing but the row: they are asked one by one, because
        within a batch of the library each one moves the random numbers of the next. One thread
        searches at a time; between rows the interpreter is free for others.

        Parameters
        ----------
        rows
            (q, D) float32, finite unit rows.
        k
            Neighbours wanted.
        epsilon
            How far beyond the k-th candidate the search goes on, as a part of its distance. 0 is
            fastest; 0.1 and 0.2 find more.

        Returns
        -------
        index : (q, k) int32
            Row ids in the shard, nearest first. A row of the shard itself is among them wherever it
            comes to stand, if it is found. -1 behind the last one that was found.
        distance : (q, k) float32
            Euclidean distances as the library computed them; NaN behind the last one.

        Raises
        ------
        SchemaError
            The rows do not fit the index, or a number is out of range.
        """
        if (
            rows.ndim != 2 or rows.shape[1] != self.n_features or rows.dtype != np.float32
            or not np.isfinite(rows).all()
        ):  # fmt: skip
            raise SchemaError(
                f"queries must be finite float32 rows of {self.n_features} features, found "
                f"{rows.shape} {rows.dtype}"
            )
        if k < 1 or not 0 <= epsilon <= 1:
            raise SchemaError(f"k={k} must be at least 1, epsilon={epsilon} within 0 and 1")
        index = np.empty((len(rows), k), np.int32)
        distance = np.empty((len(rows), k), np.float32)
        epsilon = max(float(epsilon), _LEAST_EPSILON)
        with self._lock:
            for i in range(len(rows)):
                index[i], distance[i] = self._search.query(rows[i : i + 1], k, epsilon)
        return clean(index, distance)


def _in_order(unit: F32 | Iterable[F32], order: I32, n_features: int) -> F32:
    """Rows in the order of the vertices, copied block by block."""
    n = len(order)
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    own = np.empty((n, n_features), np.float32)
    at = 0
    for rows in [unit] if isinstance(unit, np.ndarray) else unit:
        if rows.ndim != 2 or rows.shape[1] != n_features or rows.dtype != np.float32:
            raise StoreError(
                f"the rows are {rows.shape} {rows.dtype}, the index was built from float32 rows of "
                f"{n_features} features; build the index again"
            )
        for lo in range(0, min(len(rows), n - at), _BLOCK):
            block = rows[lo : min(lo + _BLOCK, n - at)]
            if not np.isfinite(block).all():
                raise StoreError("rows of the index are not finite; build the index again")
            own[place[at + lo : at + lo + len(block)]] = block
        at += len(rows)
    if at != n:
        raise StoreError(
            f"there are {at} rows, the index was built from {n}; build the index again"
        )
    return own


def _attributes(state: SearchState, own: F32) -> dict[str, Any]:
    """State of the library's class: every attribute that restoring and querying read."""
    from pynndescent.rp_trees import FlatTree

    n, nodes = len(own), len(state.tree_child)
    planes = np.zeros((nodes, own.shape[1]), np.float32)
    planes[state.tree_child[:, 0] > 0] = state.tree_plane
    tree = FlatTree(planes, state.tree_offset, state.tree_child, np.arange(n, dtype=np.int32), 0)
    # The library keeps a sparse matrix; of it only these two are ever read.
    graph = SimpleNamespace(indptr=state.search_start, indices=state.search_index)
    return {
        "metric": METRIC, "n_neighbors": state.n_neighbors, "verbose": False, "quantization": None,
        "tree_init": True, "search_tree_leaf_budget": 1, "parallel_batch_queries": False,
        "compressed": True, "_compile_search": False, "_dist_args": (), "_is_sparse": False,
        "_bit_trees": False, "_angular_trees": False, "_normalized_data": False,
        "_distance_correction": None, "_raw_data": own, "_search_forest": (tuple(tree),),
        "_search_graph": graph,
        "_min_distance": state.min_distance, "_vertex_order": state.vertex_order,
        "_visited": np.zeros(n // 8 + 1, np.uint8), "search_rng_state": state.search_rng,
    }  # fmt: skip
