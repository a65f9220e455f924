"""The resolutions of a Leiden scan as tasks: each in a file, so that a scan can be resumed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from croma_dask import fingerprint
from croma_dask.embedding.leiden_partition import Edges, Network, igraph
from croma_dask.index.resident import resident
from croma_dask.index.scratch import Scratch
from croma_dask.kernels.typing import I32

__all__ = ["LeidenJob", "cluster_at"]

FORMAT = 1
"""Raised when what a scan keeps in scratch changes."""


@dataclass(frozen=True)
class LeidenJob:
    """A scan as its tasks see it; it carries no edges.

    Attributes
    ----------
    scratch
        Where the edges are found, and clusters go.
    folder
        Name of the scan in there: it stands for the graph, the seed and the release of igraph.
    seed
        Of the random numbers of every resolution.
    """

    scratch: Scratch
    folder: str
    seed: int

    @classmethod
    def prepare(cls, scratch: Scratch, edges: Edges, seed: int) -> LeidenJob:
        """Write down the edges, unless the same scan has done so before."""
        said = repr((FORMAT, igraph().__version__, edges.n_rows, seed))
        parts = (edges.source, edges.target, edges.weight)
        digest = fingerprint.text_digest(said, *(part.tobytes() for part in parts))
        job = cls(scratch, f"leiden-{digest[:32]}", seed)
        if scratch.find(job._edges) is None:
            arrays = {"n_rows": np.array(edges.n_rows), "source": edges.source,
                      "target": edges.target, "weight": edges.weight}  # fmt: skip
            scratch.write(job._edges, arrays)
        return job

    @property
    def _edges(self) -> str:
        return f"{self.folder}/edges.npz"

    def network(self) -> Network:
        """Read the graph."""
        arrays = self.scratch.read(self._edges)
        return Network(Edges(**(arrays | {"n_rows": int(arrays["n_rows"])})))

    def find(self, resolution: float) -> I32 | None:
        """Read the clusters at a resolution; None where it was not tried yet."""
        kept = self.scratch.find(self._clusters(resolution))
        return None if kept is None else kept["clusters"]

    def keep(self, resolution: float, clusters: I32) -> None:
        """Write the clusters at a resolution."""
        self.scratch.write(self._clusters(resolution), {"clusters": clusters})

    def _clusters(self, resolution: float) -> str:
        return f"{self.folder}/resolution-{resolution!r}.npz"


def cluster_at(job: LeidenJob, resolution: float) -> int:
    """Cluster at one resolution, unless that was done before; return the number of clusters.

    The graph is built once a process, whatever the number of resolutions that come to it.
    """
    clusters = job.find(resolution)
    if clusters is None:
        with resident((job.scratch.path, job.folder), job.network) as network:
            clusters = network.clusters(resolution, job.seed)
        job.keep(resolution, clusters)
    return int(clusters.max()) + 1
