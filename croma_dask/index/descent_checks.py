"""Checks of what a restored search will walk on.

What is read may come from somebody else, and the compiled search checks no bounds: a number out of
place would read memory that is not its own, or never end. So all of it is checked before it gets
there, and compared with the digests noted when it was built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.index.descent_arrays import SEARCH_ARRAYS, Arrays, damaged, digest, parameter, read
from croma_dask.kernels.typing import F32, I32, I64

__all__ = ["SearchState", "check_search"]


@dataclass(frozen=True)
class SearchState:
    """Checked arrays and numbers that a search needs, besides the rows."""

    vertex_order: I32
    search_start: I32
    search_index: I32
    tree_child: I32
    tree_offset: F32
    tree_plane: F32
    search_rng: I64
    n_neighbors: int
    min_distance: np.float32


def check_search(arrays: Arrays, params: Any) -> SearchState:
    """Read the arrays that a search walks on, and check all of them.

    Raises
    ------
    StoreError
        One is missing, of another shape or dtype, points out of bounds, contradicts itself, or
        holds other bytes than were written. The message names it.
    """
    n, features = parameter(params, "n_rows", int), parameter(params, "n_features", int)
    n_neighbors = parameter(params, "n_neighbors", int)
    if n < 1 or features < 1 or n_neighbors < 1:
        raise damaged("the parameters", f"name {n} x {features} rows, {n_neighbors} neighbours")
    least = parameter(params, "min_distance", float)
    if not 0 <= least < np.inf:
        raise damaged("the parameter min_distance", f"is {least}")
    found = {name: read(arrays, name, dtype) for name, dtype in SEARCH_ARRAYS.items()}
    nodes, edges = len(found["tree_child"]), len(found["search_index"])
    inner = found["tree_child"][:, :1].ravel() > 0
    for name, shape in {
        "vertex_order": (n,), "search_start": (n + 1,), "search_index": (edges,),
        "tree_child": (nodes, 2), "tree_offset": (nodes,),
        "tree_plane": (int(inner.sum()), features), "search_rng": (3,),
    }.items():  # fmt: skip
        if found[name].shape != shape:
            raise damaged(name, f"has shape {found[name].shape}, expected {shape}")
    _check_order(found["vertex_order"], n)
    _check_graph(found["search_start"], found["search_index"], n)
    _check_tree(found["tree_child"].astype(np.int64), inner, n)
    for name, array in found.items():
        if digest(array) != parameter(params, f"sha256_{name}", str):
            raise damaged(name, "holds other bytes than were written")
    # The compiled search takes 32 bits; the check above has kept the edges below.
    found["search_start"] = found["search_start"].astype(np.int32)
    return SearchState(n_neighbors=n_neighbors, min_distance=np.float32(least), **found)


def _check_order(order: I32, n: int) -> None:
    seen = np.zeros(n, bool)
    seen[order[(order >= 0) & (order < n)]] = True
    if not seen.all():
        raise damaged("vertex_order", f"does not name each of {n} rows once")


def _check_graph(start: I64, index: I32, n: int) -> None:
    if len(index) > np.iinfo(np.int32).max:
        raise damaged("search_index", f"has {len(index):,} edges, more than 32 bits count")
    if start[0] != 0 or start[-1] != len(index) or (start[1:] < start[:-1]).any():
        raise damaged("search_start", f"does not rise from 0 to {len(index)}")
    if len(index) and (index.min() < 0 or index.max() >= n):
        raise damaged("search_index", f"points outside of the {n} rows of the shard")


def _check_tree(child: I64, inner: NDArray[np.bool_], n: int) -> None:
    """See that a walk from the root always ends, and at vertices that exist."""
    nodes = len(child)
    below = child[inner]
    if nodes == 0 or not np.array_equal(np.sort(below, axis=None), np.arange(1, nodes)):
        raise damaged("tree_child", "is no tree: a node has no parent, or two")
    if (below <= np.flatnonzero(inner)[:, None]).any():
        raise damaged("tree_child", "is no tree: a child comes before its parent")
    leaves = -child[~inner]
    start, end = leaves[:, 0], leaves[:, 1]
    if start[0] != 0 or end[-1] != n or (start[1:] != end[:-1]).any() or (end < start).any():
        raise damaged("tree_child", f"does not divide the {n} rows among its leaves")
