"""One partition by Leiden: igraph's, on the graph and with the random numbers that scanpy gives it.

Modularity, two iterations, igraph's own beta of 0.01; random numbers are those of numpy's
``RandomState``, begun afresh for every resolution. Vertices are the rows in their order, which
counts: another order gives another partition.

The reference has every edge of the graph twice, once in each direction. Here it is there once,
with twice its weight: the partition is the same, and the graph half as large. With its own weight
it would be another partition.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.embedding.extras import require
from croma_dask.kernels.typing import F64, I32

__all__ = ["Edges", "Network", "RandomNumbers", "igraph"]

_ITERATIONS = 2
_BETA = 0.01

_CHUNK = 1 << 16
"""Edges that are Python's numbers at a time."""

# igraph's source of random numbers is the process's, and between two of them another thread's
# call might begin.
_one_at_a_time = threading.Lock()


def igraph() -> Any:
    """Import igraph, or say how to get it."""
    return require("igraph", "embedding", "clustering by Leiden")


class RandomNumbers:
    """numpy's legacy generator as igraph asks for random numbers.

    igraph 1.0 asks for 32 bits and for uniform numbers only. Numbers that are drawn ahead in
    blocks have been no faster: a run needs a handful for each row.
    """

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed)

    def getrandbits(self, k: int) -> int:
        """Return k random bits, at most 63."""
        return int(self._state.tomaxint()) & ((1 << k) - 1)

    def randint(self, a: int, b: int) -> int:
        """Return one of the integers from a to b."""
        return int(self._state.randint(a, b + 1))

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._state.random_sample()

    def gauss(self, mu: float, sigma: float) -> float:
        """Return a number of a normal distribution."""
        return self._state.normal(mu, sigma)


@dataclass(frozen=True)
class Edges:
    """Edges of an undirected graph, each once, with twice its weight.

    Attributes
    ----------
    n_rows
        Vertices.
    source, target
        (m,) int32 ends, the smaller one first, ascending.
    weight
        (m,) float64.
    """

    n_rows: int
    source: I32
    target: I32
    weight: F64

    @classmethod
    def of(cls, graph: Any) -> Edges:
        """Take the edges of a symmetric CSR matrix without diagonal."""
        n = int(graph.shape[0])
        source = np.repeat(np.arange(n, dtype=np.int32), np.diff(graph.indptr))
        above = graph.indices > source
        weight = graph.data[above].astype(np.float64)
        return cls(n, source[above], graph.indices[above].astype(np.int32), 2.0 * weight)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the ends of each edge."""
        for lo in range(0, self.source.size, _CHUNK):
            part = slice(lo, lo + _CHUNK)
            yield from zip(self.source[part].tolist(), self.target[part].tolist(), strict=True)


class Network:
    """A graph as igraph has it, which any number of resolutions are tried on.

    Parameters
    ----------
    edges
        Its edges.
    """

    def __init__(self, edges: Edges) -> None:
        self._graph = igraph().Graph(edges.n_rows)
        # Taken one by one: an array would be turned into Python's numbers far more slowly, and a
        # list of pairs would be larger than the graph.
        self._graph.add_edges(edges.pairs())
        self._weight = edges.weight

    def clusters(self, resolution: float, seed: int) -> I32:
        """Cluster the rows.

        Parameters
        ----------
        resolution
            The larger, the more clusters.
        seed
            Of the random numbers.

        Returns
        -------
        clusters
            (n,) int32, numbered from 0 without gaps.
        """
        if threading.current_thread() is not threading.main_thread():
            return self._clusters(resolution, seed)
        # A signal reaches Python in its main thread, and there most probably where igraph calls
        # back for a random number: igraph drops the KeyboardInterrupt, takes some other number,
        # and goes on.
        with ThreadPoolExecutor(1, "croma-leiden") as pool:
            return pool.submit(self._clusters, resolution, seed).result()

    def _clusters(self, resolution: float, seed: int) -> I32:
        import random

        library = igraph()
        with _one_at_a_time:
            library.set_random_number_generator(RandomNumbers(seed))
            try:
                found = self._graph.community_leiden(
                    objective_function="modularity", weights=self._weight, resolution=resolution,
                    beta=_BETA, n_iterations=_ITERATIONS,
                )  # fmt: skip
            finally:
                library.set_random_number_generator(random)
        return np.array(found.membership, np.int32)
