"""A pynndescent index as plain arrays: which ones there are, and the neighbour graph in them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from croma_dask.errors import StoreError, name_rows
from croma_dask.kernels.typing import F32, I32, I64

__all__ = [
    "ARRAYS", "METRIC", "SEARCH_ARRAYS", "Arrays", "DescentArrays", "clean", "damaged", "digest",
    "neighbors_of_own_rows", "parameter", "read",
]  # fmt: skip

METRIC = "euclidean"
"""Metric of every index. On unit rows its order is that of the cosine; pynndescent's own cosine is
no faster, copies the rows once more, and loses the edges between exact duplicates."""

SEARCH_ARRAYS: dict[str, Any] = {
    "vertex_order": np.int32,
    "search_start": np.int64,
    "search_index": np.int32,
    "tree_child": np.int32,
    "tree_offset": np.float32,
    "tree_plane": np.float32,
    "search_rng": np.int64,
}
"""Arrays that the search walks on, with their dtypes."""

ARRAYS: dict[str, Any] = {"graph_index": np.int32, "graph_distance": np.float32, **SEARCH_ARRAYS}
"""All arrays of a shard, with their dtypes."""


class Arrays(Protocol):
    """Arrays by name: a dict, or a Zarr group. A name that is missing raises ``KeyError``."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class DescentArrays:
    """Everything that an index over n rows of D features keeps, besides the rows themselves.

    Attributes
    ----------
    arrays
        By name. ``graph_index`` (n, n_neighbors) int32 and ``graph_distance`` (n, n_neighbors)
        float32: row ids, nearest first, without the row itself; -1 and NaN behind the last one.
        ``vertex_order`` (n,) int32: row id of each vertex. ``search_start`` (n + 1,) int64 and
        ``search_index`` (edges,) int32: the search graph by vertex. ``tree_child`` (nodes, 2)
        int32, ``tree_offset`` (nodes,) float32, ``tree_plane`` (inner nodes, D) float32: the
        search tree in preorder; a leaf holds minus the start and minus the end of its vertices.
        ``search_rng`` (3,) int64.
    params
        Numbers and text that fit JSON: ``library_version``, ``metric``, ``n_rows``,
        ``n_features``, ``n_neighbors``, ``seed``, ``n_jobs``, ``min_distance``, and a
        ``sha256_<array>`` for each array of :data:`SEARCH_ARRAYS`.
    """

    arrays: dict[str, NDArray[Any]]
    params: dict[str, int | float | str]


def digest(array: NDArray[Any]) -> str:
    """SHA-256 of an array's dtype, shape and little-endian bytes, as 64 hexadecimal digits."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    found = hashlib.sha256(f"{plain.dtype.str}{plain.shape}".encode())
    found.update(plain.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def parameter(params: Any, name: str, kind: type[int] | type[float] | type[str]) -> Any:
    """Value of a parameter.

    Raises
    ------
    StoreError
        It is missing, or of another kind.
    """
    value = params.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and kind is float:
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, kind):
        raise damaged(f"the parameter {name}", f"is {value!r}")
    return value


def neighbors_of_own_rows(
    arrays: Arrays, params: Any, lo: int = 0, hi: int | None = None
) -> tuple[I32, F32]:
    """Neighbours of the shard's own rows in the graph that building has found.

    Parameters
    ----------
    arrays, params
        Of a :class:`DescentArrays`; of the arrays only the rows wanted are read.
    lo, hi
        Rows wanted; all without.

    Returns
    -------
    index : (hi - lo, n_neighbors) int32
        Row ids in the shard, nearest first; never the row itself. -1 behind the last one.
    distance : (hi - lo, n_neighbors) float32
        Euclidean distances as the library computed them; NaN behind the last one.

    Raises
    ------
    StoreError
        The graph is damaged.
    """
    n, width = parameter(params, "n_rows", int), parameter(params, "n_neighbors", int)
    hi = n if hi is None else hi
    index = read(arrays, "graph_index", np.int32, (n, width), slice(lo, hi))
    distance = read(arrays, "graph_distance", np.float32, (n, width), slice(lo, hi))
    bad = ((index < -1) | (index >= n)).any(axis=1)
    if bad.any():
        raise damaged("graph_index", f"points outside of the shard in {_rows(bad, lo)}")
    bad = ((index >= 0) != np.isfinite(distance)).any(axis=1)
    if bad.any():
        raise damaged("graph_distance", f"does not go with graph_index in {_rows(bad, lo)}")
    # What was written is clean already. A chunk that was lost reads as its fill value throughout.
    cleaned = clean(index, distance, own=np.arange(lo, hi))
    bad = (cleaned[0] != index).any(axis=1)
    if bad.any():
        raise damaged("graph_index", f"holds a row itself, a repeat or a gap in {_rows(bad, lo)}")
    return cleaned


def clean(index: NDArray[Any], distance: NDArray[Any], own: I64 | None = None) -> tuple[I32, F32]:
    """Make lists of neighbours like ours: no gap, no repeat, -1 and NaN behind the last.

    Parameters
    ----------
    index, distance
        (q, k) as the library returns them, nearest first. It translates "none" into the id of some
        row (-1 counts from the end), so an entry is one only where its distance is finite.
    own
        (q,) id of each row itself, which is dropped wherever it stands; None where the rows are
        none of the shard's.
    """
    index = index.astype(np.int32)
    there = (index >= 0) & np.isfinite(distance)
    if own is not None:
        there &= index != own[:, None]
    ids = np.where(there, index, -1)
    by_id = np.argsort(ids, axis=1, kind="stable")
    sorted_ids = np.take_along_axis(ids, by_id, 1)
    repeat = np.zeros_like(there)
    repeat[:, 1:] = sorted_ids[:, 1:] == sorted_ids[:, :-1]
    np.put_along_axis(there, by_id, np.take_along_axis(there, by_id, 1) & ~repeat, 1)
    out = np.where(there, index, np.int32(-1))
    lengths = np.where(there, distance, np.float32(np.nan)).astype(np.float32)
    if not there.all():
        front = np.argsort(~there, axis=1, kind="stable")
        out, lengths = np.take_along_axis(out, front, 1), np.take_along_axis(lengths, front, 1)
    return out, lengths


def damaged(name: str, problem: str) -> StoreError:
    """Error that names an array and its problem."""
    return StoreError(f"the pynndescent index is damaged: {name} {problem}; build the index again")


def _rows(bad: NDArray[np.bool_], lo: int) -> str:
    rows = np.flatnonzero(bad)
    return name_rows(rows[:5] + lo, total=len(rows))


def read(
    arrays: Arrays, name: str, dtype: Any, shape: tuple[int, ...] | None = None,
    rows: slice = slice(None),
) -> NDArray[Any]:  # fmt: skip
    """Rows of an array, native and contiguous, once its dtype and shape have been checked.

    Raises
    ------
    StoreError
        It is missing, of another kind, or cannot be read.
    """
    try:
        array = arrays[name]
    except KeyError:
        raise damaged(name, "is missing") from None
    kind, n_dims = np.dtype(array.dtype), 1 + (name in _TWO_DIMS)
    if kind != dtype or array.ndim != n_dims:
        raise damaged(name, f"is {kind} of {array.ndim} dims, not {np.dtype(dtype)} of {n_dims}")
    if shape is not None and tuple(array.shape) != shape:
        raise damaged(name, f"has shape {tuple(array.shape)}, expected {shape}")
    try:
        return np.ascontiguousarray(array[rows], dtype)
    except (OSError, ValueError, TypeError, RuntimeError, MemoryError) as err:  # what codecs raise
        raise damaged(name, f"cannot be read ({err})") from err


_TWO_DIMS = {"graph_index", "graph_distance", "tree_child", "tree_plane"}
