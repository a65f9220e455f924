"""What a search has to deliver, and the layout of the lists that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from croma_dask.kernels.constants import N_LISTS
from croma_dask.kernels.typing import I32

__all__ = ["ListSpec"]


def _screened(n: int, sketched: bool) -> int:
    """Candidates to screen for n wanted.

    Enough more that rounding rarely decides the last one; of sketched rows (index/sketch.py)
    enough that what was left out rarely does.
    """
    if not n:
        return 0
    return n + (max(16, n) if sketched else max(8, n // 8))


@dataclass(frozen=True)
class ListSpec:
    """Lengths of the three lists of every row.

    Parameters
    ----------
    n_global
        Nearest eligible rows of any type to deliver; 0 for none.
    n_typed
        Nearest SO and nearest OS rows to deliver, each; 0 for none.
    sketched
        Whether rows are screened by a sketch of them.
    same_label
        Whether the typed lists are one: of the nearest rows of the same label, whatever their
        confounder. Their positions are delivered, too.
    """

    n_global: int
    n_typed: int
    sketched: bool = False
    same_label: bool = False

    @cached_property
    def deliver(self) -> I32:
        """(3,) delivered length of the global, the SO (or same-label) and the OS list."""
        n_other = 0 if self.same_label else self.n_typed
        return np.array([self.n_global, self.n_typed, n_other], np.int32)

    @cached_property
    def length(self) -> I32:
        """(3,) screened length of each list."""
        return np.array([_screened(int(n), self.sketched) for n in self.deliver], np.int32)

    @cached_property
    def start(self) -> I32:
        """(3,) where each list starts in a row's buffer, which holds twice what is screened."""
        return self._from_lengths(2 * self.length)

    @cached_property
    def base(self) -> I32:
        """(3,) where each list starts among the screened entries of a row."""
        return self._from_lengths(self.length)

    @cached_property
    def offset(self) -> I32:
        """(3,) where each list starts among the delivered entries of a row."""
        return self._from_lengths(self.deliver)

    @cached_property
    def screened(self) -> int:
        """Screened entries of a row, over the three lists."""
        return int(self.length.sum())

    @cached_property
    def delivered(self) -> int:
        """Delivered entries of a row, over the three lists."""
        return int(self.deliver.sum())

    @property
    def indexed(self) -> int:
        """Delivered entries of a row whose positions are kept: the others have distances only."""
        return self.delivered if self.same_label else self.n_global

    def clipped(self, n_rows: int) -> ListSpec:
        """Lengths for a scope of n rows, which can never fill longer lists than n - 1."""
        most = max(n_rows - 1, 0)
        return replace(self, n_global=min(self.n_global, most), n_typed=min(self.n_typed, most))

    @staticmethod
    def _from_lengths(lengths: I32) -> I32:
        out = np.zeros(N_LISTS, np.int32)
        out[1:] = np.cumsum(lengths)[:-1]
        return out
