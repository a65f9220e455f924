"""Draws of groups with replacement, block by block, on several threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Draws"]

I32 = NDArray[np.int32]

_BLOCK_DRAWS = 64
"""Draws of a block: some thirty blocks of the usual 2,000, so that every thread has its share."""

_BLOCK_ENTRIES = 2**20
"""Multiplicities of a block, with many groups: 8 MB while it is drawn, 4 MB while it is used."""


@dataclass(frozen=True)
class Draws:
    """Bootstrap draws: each takes as many groups as there are, with replacement.

    Attributes
    ----------
    n_draws, n_groups
        How many.
    seed
        Draw d takes the groups
        ``numpy.random.default_rng(seed).integers(n_groups, size=(n_draws, n_groups))[d]``, whose
        stream does not depend on how it is cut into blocks.
    """

    n_draws: int
    n_groups: int
    seed: int

    def blocks(self) -> Iterator[tuple[slice, I32]]:
        """Yield the draws of each block, and their (draws, groups) multiplicities."""
        rng = np.random.default_rng(self.seed)
        step = max(1, min(_BLOCK_DRAWS, _BLOCK_ENTRIES // self.n_groups))
        for start in range(0, self.n_draws, step):
            size = min(step, self.n_draws - start)
            drawn = rng.integers(self.n_groups, size=(size, self.n_groups))
            times = np.empty((size, self.n_groups), np.int32)
            for row, groups in zip(times, drawn, strict=True):
                row[:] = np.bincount(groups, minlength=self.n_groups)
            yield slice(start, start + size), times

    def each(self, work: Callable[[slice, I32], None], n_threads: int) -> None:
        """Call `work` on every block, from as many threads.

        Parameters
        ----------
        work
            Writes what it makes of a block to that block's place: nothing is added up across
            blocks, so that the result does not depend on threads.
        n_threads
            No more blocks are held than two a thread.
        """
        if n_threads == 1:
            for at, times in self.blocks():
                work(at, times)
            return
        pending: deque[Future[None]] = deque()
        with ThreadPoolExecutor(n_threads, "croma-draws") as pool:
            for at, times in self.blocks():
                pending.append(pool.submit(work, at, times))
                if len(pending) >= 2 * n_threads:
                    pending.popleft().result()
            for future in pending:
                future.result()
