"""One pair of ranges: every pair of their rows met once, each offered to both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from croma_dask.index.lists import Lists
from croma_dask.index.ranges import Range
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.products import products
from croma_dask.kernels.typing import F32, F64

__all__ = ["TILE_COLUMNS", "TILE_ROWS", "exact_distances", "sweep", "tile_buffer"]

TILE_ROWS = 1024
TILE_COLUMNS = 2048
"""A tile of 8 MiB: large enough for BLAS's full rate, small enough to stay in a shared cache."""

_STRETCH = 256
"""Rows and gaps shorter than this are not worth a tile of their own."""

_PAIRS_AT_ONCE = 1 << 18
"""Pairs whose exact distance is computed in one call: 4 MiB of positions and distances."""


def tile_buffer() -> F32:
    """Room for one tile of products."""
    return np.empty(TILE_ROWS * TILE_COLUMNS, np.float32)


def sweep(
    range_i: Range,
    range_j: Range,
    lists_i: Lists,
    lists_j: Lists,
    spec: ListSpec,
    buffer: F32,
    *,
    take_i: bool = True,
    take_j: bool = True,
    check: Callable[[], None] | None = None,
) -> None:
    """Screen all pairs of two ranges (of one, when both are the same object).

    A side whose `take` is false has met this partner before (a run that was resumed). `check` is
    called before each tile and raises when the run was interrupted.
    """
    from croma_dask.kernels.select import scan_tile

    same = range_i is range_j
    if take_i:
        lists_i.meet(range_j)
    if take_j and not same:
        lists_j.meet(range_i)
    confounder_j = range_j.confounders(same_label=spec.same_label)
    tiles = (
        _typed_tiles(range_i, range_j, labels_only=spec.same_label)
        if spec.n_global == 0
        else _all_tiles(range_i, range_j)
    )
    for i0, i1, j0, j1 in tiles:
        if check is not None:
            check()
        if same and j1 <= i0 + 1:
            continue
        # A tile that crosses the diagonal is walked from there on: start it at the diagonal.
        first = max(j0, i0) if same else j0
        tile = buffer[: (i1 - i0) * (j1 - first)].reshape(i1 - i0, j1 - first)
        products(range_i.centred[i0:i1], range_j.centred[first:j1], tile)
        scan_tile(
            tile, same, i0, first, spec.length, spec.start,
            range_i.half, range_i.label, range_i.confounder, range_i.group, range_i.position,
            range_j.half, range_j.label, confounder_j, range_j.group, range_j.position,
            range_j.run_end,
            take_i, lists_i.keys, lists_i.fill, lists_i.threshold, lists_i.limit,
            take_j, lists_j.keys, lists_j.fill, lists_j.threshold, lists_j.limit,
        )  # fmt: skip


Tile: TypeAlias = tuple[int, int, int, int]


def _all_tiles(range_i: Range, range_j: Range) -> Iterator[Tile]:
    """Cut the rectangle of two ranges into tiles (i0, i1, j0, j1), those at its diagonal first.

    Rows are sorted by cell, so like labels meet there. Their distances are short, lists fill with
    them at once, and most of what the other tiles hold is then skipped.
    """
    tiles = [
        (i0, min(len(range_i), i0 + TILE_ROWS), j0, min(len(range_j), j0 + TILE_COLUMNS))
        for i0 in range(0, len(range_i), TILE_ROWS)
        for j0 in range(0, len(range_j), TILE_COLUMNS)
    ]

    def off_diagonal(tile: Tile) -> tuple[float, int]:
        i0, i1, j0, j1 = tile
        return abs((i0 + i1) / len(range_i) - (j0 + j1) / len(range_j)), i0

    yield from sorted(tiles, key=off_diagonal)


def _typed_tiles(range_i: Range, range_j: Range, *, labels_only: bool) -> Iterator[Tile]:
    """Cut out what typed lists alone need: columns that share the label or the confounder.

    Rows are sorted by cell, so a stretch of them has few labels and confounders, and what they
    need of the columns is a few stretches too. Short gaps are multiplied along.
    """
    i0 = 0
    while i0 < len(range_i):
        # Whole cells, as long as they fit a tile; a few small ones together.
        i1 = min(int(range_i.run_end[i0]), i0 + TILE_ROWS)
        while i1 < len(range_i) and range_i.run_end[i1] - i0 <= _STRETCH:
            i1 = int(range_i.run_end[i1])
        needed = np.isin(range_j.label, range_i.label[i0:i1])
        if not labels_only:
            needed |= np.isin(range_j.confounder, range_i.confounder[i0:i1])
        at = np.flatnonzero(needed)
        if at.size:
            breaks = np.flatnonzero(np.diff(at) > _STRETCH)
            starts = at[np.append(0, breaks + 1)]
            stops = at[np.append(breaks, at.size - 1)] + 1
            for start, stop in zip(starts, stops, strict=True):
                for j0 in range(int(start), int(stop), TILE_COLUMNS):
                    yield i0, i1, j0, min(int(stop), j0 + TILE_COLUMNS)
        i0 = i1


def exact_distances(home: Range, lists: Lists, spec: ListSpec, partners: list[Range]) -> F64:
    """Exact distances of all entries of settled lists, in the layout of the screened entries.

    Entries that the lists do not know yet must lie in one of the partner ranges.

    Returns
    -------
    distance
        (n, screened) float64, NaN where there is no entry.
    """
    from croma_dask.kernels.dots import pair_distances, pair_euclidean
    from croma_dask.kernels.rerank import collect_pairs, spread

    n = len(home)
    distance = np.full((n, spec.screened), np.nan)
    where = np.full((n, spec.screened), -1, np.int32)
    step = max(1, _PAIRS_AT_ONCE // max(spec.screened, 1))
    room = min(n, step) * spec.screened
    query, candidate = np.empty(room, np.int32), np.empty(room, np.int32)
    found = np.empty(room)
    for r0 in range(0, n, step):
        r1 = min(n, r0 + step)
        n_pairs = collect_pairs(
            lists.keys, lists.fill, spec.start, spec.length, r0, r1,
            lists.known_row, lists.known_distance, lists.known_count,
            distance, where, query, candidate,
        )  # fmt: skip
        if n_pairs == 0:
            continue
        q, c, d = query[:n_pairs], candidate[:n_pairs], found[:n_pairs]
        for partner in partners:
            mine = np.flatnonzero((c >= partner.lo) & (c < partner.hi))
            part = np.empty(d[mine].shape[0])
            rows, others = np.ascontiguousarray(q[mine]), partner.place[c[mine] - partner.lo]
            if home.frame.is_euclidean:
                pair_euclidean(home.x, partner.x, rows, others, part)
            else:
                pair_distances(home.x, home.norm, partner.x, partner.norm, rows, others, part)
            d[mine] = part
        spread(where, lists.fill, spec.length, r0, r1, d, distance)
    return distance
