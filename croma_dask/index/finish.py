"""From settled lists to delivered ones: the last sort, the certificate, and the second look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from croma_dask.index.lists import Lists, entries_used
from croma_dask.index.ranges import Range
from croma_dask.index.spec import ListSpec
from croma_dask.index.sweep import TILE_COLUMNS, TILE_ROWS
from croma_dask.kernels.order import nearest_first
from croma_dask.kernels.products import products
from croma_dask.kernels.typing import F32, F64, I32

__all__ = [
    "Delivered",
    "Failing",
    "certify",
    "copied_at_once",
    "deliver",
    "in_scope_order",
    "replace_failing",
    "second_look",
]


_COPIED = 8 << 20
"""Bytes of failing rows that are copied to be searched again together."""

_FEWEST = 64
"""Of them, however long they are: each time all others are looked through."""


@dataclass
class Delivered:
    """The exact lists of a block of rows, in the order of the scope.

    Attributes
    ----------
    index, distance
        (n, delivered) global, SO and OS lists side by side, each by (distance, row); -1 and NaN
        behind the last neighbour.
    """

    index: I32
    distance: F64


@dataclass
class Failing:
    """Rows of a range whose lists could not be certified, as the range holds them.

    Attributes
    ----------
    rows
        (f,) places in the range.
    reach
        (3, f) screened distance up to which each list has to look again, -inf where it need not.
    """

    rows: I32
    reach: F64

    def parts(self, at_once: int) -> Iterator[Failing]:
        """Pieces of at most `at_once` rows."""
        for lo in range(0, self.rows.shape[0], at_once):
            hi = lo + at_once
            yield Failing(self.rows[lo:hi], np.ascontiguousarray(self.reach[:, lo:hi]))


def deliver(lists: Lists, distance: F64, spec: ListSpec, names: I32 | None = None) -> Delivered:
    """Sort settled lists by (exact distance, row), rows still in the order of the range.

    `names` are the rows that the positions in the lists stand for, where they are not the same.
    """
    used = entries_used(lists.fill, spec)
    index, out = [], []
    for q in range(3):
        s, b, length = int(spec.start[q]), int(spec.base[q]), int(spec.length[q])
        mine = used[:, b : b + length]
        found = np.where(mine, lists.keys[:, s : s + length] & 0xFFFFFFFF, 0).astype(np.int32)
        row = np.where(mine, found if names is None else names[found], -1).astype(np.int32)
        exact = np.where(mine, distance[:, b : b + length], np.inf)
        i, d = nearest_first(row, exact, int(spec.deliver[q]))
        index.append(i)
        out.append(d)
    return Delivered(np.concatenate(index, axis=1), np.concatenate(out, axis=1))


def certify(home: Range, lists: Lists, found: Delivered, spec: ListSpec) -> Failing:
    """Find the rows whose last delivered distance screening could have got wrong.

    A dropped candidate was screened at the threshold or beyond, so its exact distance is above
    threshold minus error. Where the last delivered distance lies below that, nothing is missing.
    """
    half = home.half.astype(np.float64)
    reach = np.full((3, len(home)), -np.inf)
    for q in range(3):
        n = int(spec.deliver[q])
        if n == 0:
            continue
        last = home.frame.screened(found.distance[:, int(spec.offset[q]) + n - 1])
        error = home.frame.error_bound(
            home.x.shape[1], home.length, half, lists.longest, lists.largest_half, last=last
        )
        dropped = np.isfinite(lists.threshold[q])
        with np.errstate(invalid="ignore"):
            safe = last < lists.threshold[q].astype(np.float64) - error
        failing = dropped & ~safe
        reach[q, failing] = (last + error)[failing]
    rows = np.flatnonzero((reach > -np.inf).any(axis=0)).astype(np.int32)
    return Failing(rows, np.ascontiguousarray(reach[:, rows]))


def copied_at_once(home: Range, room: int = _COPIED) -> int:
    """How many failing rows of a range are searched again together: `room` bytes of copies."""
    return max(_FEWEST, int(room // ((home.x.itemsize + 4) * home.x.shape[1] + 64)))


def second_look(
    home: Range,
    failing: Failing,
    partners: Iterable[Callable[[], Range]],
    spec: ListSpec,
    buffer: F32,
) -> tuple[Delivered, int]:
    """Search the failing rows again over the candidates in their error band, exactly.

    `partners` load the ranges of the scope, one at a time.

    Returns
    -------
    delivered, measured
        Lists of the failing rows (only lists that failed hold anything), and how many distances
        were measured for them.
    """
    from croma_dask.kernels.band import scan_band

    rows = failing.rows
    n = rows.shape[0]
    index = np.full((n, spec.delivered), -1, np.int32)
    distance = np.full((n, spec.delivered), np.nan)
    count = np.zeros((3, n), np.int32)
    x, norm, half = home.x[rows], home.norm[rows], home.half[rows]
    centred = home.centred[rows]
    label, confounder, group = home.label[rows], home.confounder[rows], home.group[rows]
    measured = 0
    for load in partners:
        partner = load()
        confounder_j = partner.confounders(same_label=spec.same_label)
        for i0 in range(0, n, TILE_ROWS):
            i1 = min(n, i0 + TILE_ROWS)
            for j0 in range(0, len(partner), TILE_COLUMNS):
                j1 = min(len(partner), j0 + TILE_COLUMNS)
                tile = buffer[: (i1 - i0) * (j1 - j0)].reshape(i1 - i0, j1 - j0)
                products(centred[i0:i1], partner.centred[j0:j1], tile)
                measured += scan_band(
                    tile, i0, j0,
                    x, norm, half, label, confounder, group,
                    partner.x, partner.norm, partner.half, partner.label, confounder_j,
                    partner.group, partner.position, failing.reach, spec.offset, spec.deliver,
                    index, distance, count, home.frame.is_euclidean,
                )  # fmt: skip
        # Or it would be there still while the next one is loaded.
        del partner
    return Delivered(index, distance), measured


def replace_failing(found: Delivered, failing: Failing, again: Delivered, spec: ListSpec) -> None:
    """Put the lists of the second look in the place of those that failed."""
    for q in range(3):
        part = slice(int(spec.offset[q]), int(spec.offset[q] + spec.deliver[q]))
        mine = np.flatnonzero(failing.reach[q] > -np.inf)
        rows = failing.rows[mine]
        found.index[rows, part] = again.index[mine, part]
        found.distance[rows, part] = again.distance[mine, part]


def in_scope_order(home: Range, found: Delivered) -> Delivered:
    """Rows as the scope has them instead of sorted by cell."""
    return Delivered(found.index[home.place], found.distance[home.place])
