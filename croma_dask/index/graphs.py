"""Neighbours of any type from the pynndescent graph of a shard: its own rows' part of a search.

The graph is of all rows, so a row's own group takes places in its list. Rows that keep too few
eligible neighbours ask again for more; where they are many, or still too few, the shard is scanned
for them, which a matrix product does faster than the graph can be walked (docs/adr/0011).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.index.descent_arrays import neighbors_of_own_rows
from croma_dask.index.lists import Lists
from croma_dask.index.ranges import Range
from croma_dask.index.resident import resident
from croma_dask.index.spec import ListSpec
from croma_dask.index.stored import StoredIndex
from croma_dask.kernels.frame import Frame
from croma_dask.kernels.typing import F32, I32

__all__ = ["Widening", "offer_graph"]

_BLOCK = 4096
_FEW = 50
"""One row in so many may ask the graph again; of more the shard is scanned."""

_STEPS = 3
_EPSILON = 0.1


@dataclass(frozen=True)
class Widening:
    """How rows ask the graph again.

    Attributes
    ----------
    start_k, growth
        Neighbours asked for first, and the factor by which that grows.
    """

    start_k: int
    growth: float


def offer_graph(
    index: StoredIndex, shard: int, home: Range, lists: Lists, spec: ListSpec, widening: Widening,
    buffer: F32,
) -> int:  # fmt: skip
    """Offer to the rows of a shard their neighbours in its graph.

    Parameters
    ----------
    index, shard
        The index, and which shard the range is.
    home, lists
        The shard's rows, and their lists.
    spec
        Lengths of the lists.
    widening
        How rows with too few eligible neighbours go on.
    buffer
        Room for one tile.

    Returns
    -------
    int
        Rows that the graph alone could not serve.
    """
    wanted = int(spec.deliver[0])
    if not wanted:
        return 0
    arrays, params = index.descent(shard)
    short = []
    for lo in range(0, len(home), _BLOCK):
        hi = min(len(home), lo + _BLOCK)
        found, _ = neighbors_of_own_rows(arrays, params, lo, hi)
        rows = home.place[lo:hi]
        candidates = _places(home, found)
        enough = _eligible(home, rows, candidates) >= wanted
        _offer(rows[enough], candidates[enough], home, lists, spec)
        short.append(rows[~enough])
    left = np.concatenate(short)
    n_short = int(left.size)
    if 0 < n_short <= len(home) // _FEW:
        left = _ask_again(index, shard, left, home, lists, spec, widening)
    _scan(left, home, lists, spec, buffer)
    return n_short


def _places(home: Range, ids: I32) -> I32:
    """Places in the range of rows of the shard; -1 stays."""
    return np.where(ids >= 0, home.place[ids], -1).astype(np.int32)


def _eligible(home: Range, rows: I32, candidates: I32) -> Any:
    own = home.group[rows][:, None]
    return ((candidates >= 0) & (home.group[candidates] != own)).sum(axis=1)


def _offer(rows: I32, candidates: I32, home: Range, lists: Lists, spec: ListSpec) -> None:
    from croma_dask.kernels.probe import offer_listed

    offer_listed(
        np.ascontiguousarray(rows), np.ascontiguousarray(candidates), home.centred, home.half,
        home.label, home.confounder, home.group, home.position, spec.length, spec.start,
        lists.keys, lists.fill, lists.threshold, lists.limit,
    )  # fmt: skip


def _ask_again(
    index: StoredIndex, shard: int, rows: I32, home: Range, lists: Lists, spec: ListSpec,
    widening: Widening,
) -> I32:  # fmt: skip
    """Ask the graph for more and more neighbours; return the rows that still have too few."""
    from croma_dask.index.descent_search import DescentIndex

    def load() -> DescentIndex:
        edges = index.partition.shard_edges
        lo, hi = int(edges[shard]), int(edges[shard + 1])
        blocks = (graph_rows(part, index.frame) for _, part in index.pieces(lo, hi))
        return DescentIndex.load(blocks, *index.descent(shard))

    k = widening.start_k
    with resident((index.url, index.build_id, shard), load) as descent:
        for _ in range(_STEPS):
            k = min(k, len(home))
            found, _ = descent.query(graph_rows(home.x[rows], home.frame), k, _EPSILON)
            candidates = _places(home, found)
            enough = _eligible(home, rows, candidates) >= int(spec.deliver[0])
            _offer(rows[enough], candidates[enough], home, lists, spec)
            rows = rows[~enough]
            if not rows.size or k == len(home):
                break
            k = int(np.ceil(k * widening.growth))
    return rows


def _scan(rows: I32, home: Range, lists: Lists, spec: ListSpec, buffer: F32) -> None:
    """Offer to some rows all rows of the shard."""
    width = min(len(home), 2048)
    step = max(1, min(1024, buffer.size // width))
    for lo in range(0, rows.size, step):
        some = rows[lo : lo + step]
        for j0 in range(0, len(home), width):
            columns = np.arange(j0, min(len(home), j0 + width), dtype=np.int32)
            near = home.half[some][:, None] + home.half[columns][None, :]
            near -= home.centred[some] @ home.centred[columns].T
            _offer(some, _below(near, lists.threshold[0, some], columns), home, lists, spec)


def _below(near: F32, threshold: F32, columns: I32) -> I32:
    """Columns that may enter each row's list, -1 in the place of the others."""
    may = near < threshold[:, None] + np.float32(1e-5)
    width = max(1, int(may.sum(axis=1).max(initial=0)))
    order = np.argsort(~may, axis=1, kind="stable")[:, :width]
    taken = np.take_along_axis(may, order, axis=1)
    return np.where(taken, columns[order], -1).astype(np.int32)


def graph_rows(x: np.ndarray, frame: Frame) -> F32:
    """Make the float32 rows whose Euclidean distances a graph is of.

    Unit vectors for the cosine distance (zero rows stay zero), centred rows for the Euclidean.
    """
    from croma_dask.kernels import dots_numpy, screen

    native = frame.native(x)
    if frame.is_euclidean:
        centred = np.empty(native.shape, np.float32)
        frame.centre(native, np.zeros(native.shape[0]), centred)
        return centred
    inverse = screen.inverse_length(dots_numpy.squared_norms(native))
    return (native * inverse[:, None]).astype(np.float32)
