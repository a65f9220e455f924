"""scib-metrics itself, in a process of its own.

A process that has loaded jax cannot fork without a warning any more, which other tests do.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["lisi_process"]


def lisi(index: Any, distance: Any, codes: Any, perplexity: float) -> np.ndarray:
    """(n,) LISI of rows, each with itself put in front of its list."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from scib_metrics.metrics import lisi_knn
        from scib_metrics.nearest_neighbors import NeighborsResults

        n = len(index)
        lists = NeighborsResults(
            indices=np.column_stack([np.arange(n), index]),
            distances=np.column_stack([np.zeros(n), distance]).astype(np.float32),
        )
        return np.asarray(lisi_knn(lists, codes, perplexity=perplexity), np.float64)


@contextmanager
def lisi_process() -> Iterator[Callable[..., np.ndarray]]:
    """Start the process; what is yielded does as :func:`lisi`, over there."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        yield lambda *args: pool.submit(lisi, *args).result()
