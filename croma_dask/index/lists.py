"""The three lists of every row of a range while a search goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.index.ranges import Range
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.typing import F32, F64, I32, I64

__all__ = ["Lists"]


@dataclass
class Lists:
    """Screened candidates of the rows of one range, in the order in which the range holds them.

    Attributes
    ----------
    keys
        (n, 2 * screened) int64 entries, list after list.
    fill
        (3, n) entries in each list.
    threshold, limit
        (3, n) float32: below `threshold[q]` nothing of list q was dropped; `limit` is what a
        candidate of each type must beat to enter either of its lists.
    known_row, known_distance, known_count
        Exact distances found so far, `known_row` ascending within a row; (n, 0) when none are.
    longest, largest_half
        Over all candidates met so far: what the error bound needs.
    """

    keys: I64
    fill: I32
    threshold: F32
    limit: F32
    known_row: I32
    known_distance: F64
    known_count: I32
    longest: float = 0.0
    largest_half: float = 0.0

    @classmethod
    def empty(cls, n: int, spec: ListSpec) -> Lists:
        """Make lists that have met no candidate yet."""
        threshold = np.full((3, n), -np.inf, np.float32)
        threshold[spec.length > 0] = np.inf
        limit = np.maximum(threshold, threshold[0])
        return cls(
            keys=np.empty((n, 2 * spec.screened), np.int64),
            fill=np.zeros((3, n), np.int32),
            threshold=threshold,
            limit=limit,
            known_row=np.empty((n, 0), np.int32),
            known_distance=np.empty((n, 0)),
            known_count=np.zeros(n, np.int32),
        )

    def meet(self, partner: Range) -> None:
        """Note the candidates of a partner range for the error bound."""
        self.longest = max(self.longest, partner.longest)
        self.largest_half = max(self.largest_half, partner.largest_half)

    def settle(self, spec: ListSpec) -> None:
        """Cut every list to its screened length."""
        from croma_dask.kernels.select import settle

        settle(self.keys, self.fill, self.threshold, self.limit, spec.length, spec.start)

    def pack(self, spec: ListSpec, distance: F64) -> dict[str, Any]:
        """Settled lists with their exact distances as plain arrays, half the size of the buffer.

        Parameters
        ----------
        distance
            (n, screened) exact distances in the layout of the screened entries.
        """
        keys = np.concatenate(
            [
                self.keys[:, s : s + length]
                for s, length in zip(spec.start, spec.length, strict=True)
            ],
            axis=1,
        )
        return {
            "keys": keys,
            "fill": self.fill,
            "threshold": self.threshold,
            "distance": distance,
            "bounds": np.array([self.longest, self.largest_half]),
        }

    @classmethod
    def unpack(cls, packed: dict[str, Any], spec: ListSpec) -> Lists:
        """Take up lists where a former task left them."""
        lists = cls.empty(packed["keys"].shape[0], spec)
        lists.fill[:] = packed["fill"]
        lists.threshold[:] = packed["threshold"]
        lists.limit[:] = np.maximum(lists.threshold, lists.threshold[0])
        for s, b, length in zip(spec.start, spec.base, spec.length, strict=True):
            lists.keys[:, s : s + length] = packed["keys"][:, b : b + length]
        lists.longest, lists.largest_half = (float(v) for v in packed["bounds"])
        lists.know(packed["distance"], spec)
        return lists

    def know(self, distance: F64, spec: ListSpec) -> None:
        """Remember the exact distances of settled lists, so that none is measured again.

        Parameters
        ----------
        distance
            (n, screened) in the layout of the screened entries.
        """
        used = entries_used(self.fill, spec)
        row = np.full(used.shape, np.iinfo(np.int32).max, np.int32)
        for s, b, length in zip(spec.start, spec.base, spec.length, strict=True):
            row[:, b : b + length] = self.keys[:, s : s + length] & 0xFFFFFFFF
        row[~used] = np.iinfo(np.int32).max
        order = np.argsort(row, axis=1)
        self.known_row = np.take_along_axis(row, order, axis=1)
        self.known_distance = np.take_along_axis(distance, order, axis=1)
        self.known_count = used.sum(axis=1).astype(np.int32)


def entries_used(fill: I32, spec: ListSpec) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(n, screened) mask of the entries that hold a candidate."""
    parts = [
        np.arange(int(length))[None, :] < fill[q][:, None] for q, length in enumerate(spec.length)
    ]
    return np.concatenate(parts, axis=1)
