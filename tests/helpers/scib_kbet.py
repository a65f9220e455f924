"""kBET of scib-metrics itself, in a process of its own, with exact neighbours.

A process that has loaded jax cannot fork without a warning any more, which other tests do. The
graph is given, and the search in diffusion space is by brute force: umap-learn and pynndescent
take long to compile, and our graph is compared with theirs elsewhere.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from tests.helpers.plain_metrics import exact_lists

__all__ = ["kbet_process"]

# Every label is another shape to jax, which compiles for it: without taking its time over it.
_FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def kbet(graph: Any, batches: Any, labels: Any) -> tuple[float, dict[str, float]]:
    """Value, and score of each label, from the fuzzy graph of all rows."""
    os.environ.setdefault("XLA_FLAGS", _FLAGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import scib_metrics
        from scib_metrics import nearest_neighbors
        from scib_metrics.nearest_neighbors import NeighborsResults

        def search(x: np.ndarray, n_neighbors: int) -> Any:
            found = exact_lists(x, min(n_neighbors, len(x)))
            return NeighborsResults(indices=found[0], distances=found[1])

        with mock.patch.object(nearest_neighbors, "pynndescent", search):
            rows = np.arange(len(labels))[:, None]
            lists = NeighborsResults(indices=rows, distances=np.zeros(rows.shape))
            vars(lists)["knn_graph_connectivities"] = graph.astype(np.float32)
            value, table = scib_metrics.kbet_per_label(
                lists, batches, labels, alpha=0.05, diffusion_n_comps=100, return_df=True
            )
    scores = {str(c): float(s) for c, s in zip(table["cluster"], table["kBET"], strict=True)}
    return float(value), scores


@contextmanager
def kbet_process() -> Iterator[Callable[..., tuple[float, dict[str, float]]]]:
    """Start the process; what is yielded does as :func:`kbet`, over there."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        yield lambda *args: pool.submit(kbet, *args).result()
