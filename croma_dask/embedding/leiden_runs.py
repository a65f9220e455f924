"""Where the resolutions of a Leiden scan are run: here, in processes of this machine, on a cluster.

A small graph is clustered by this process, which is done before another one would have started. Of
larger ones the clusters go to files of the scratch folder, and are not made again when the same
scan is run again after an interruption.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from croma_dask.embedding.leiden_job import LeidenJob, cluster_at
from croma_dask.embedding.leiden_partition import Edges, Network, igraph
from croma_dask.embedding.leiden_processes import LeidenProcesses
from croma_dask.index.resident import release
from croma_dask.index.scratch import Scratch
from croma_dask.kernels.typing import I32
from croma_dask.options import current
from croma_dask.progress import Progress
from croma_dask.resume import own_folder
from croma_dask.tasks import run_graph

__all__ = ["FEW_EDGES", "Partitions", "partitions", "process_bytes"]

FEW_EDGES = 60_000
"""A graph with fewer edges is small."""


class Partitions(Protocol):
    """Clusters at any resolution.

    Attributes
    ----------
    width
        How many resolutions are best made together.
    """

    width: int

    def make(self, resolutions: Sequence[float]) -> None:
        """Cluster at some resolutions."""

    def clusters(self, resolution: float) -> I32:
        """Give the clusters at a resolution that was made."""


@contextlib.contextmanager
def partitions(
    edges: Edges, seed: int, *, n_processes: int = 1, client: Any = None,
    scratch: Scratch | None = None, quiet: bool = True,
) -> Iterator[Partitions]:  # fmt: skip
    """Choose where to run; arguments are those of :func:`croma_dask.embedding.leiden.leiden_scan`.

    Yields
    ------
    Partitions
        As long as the block lasts.
    """
    igraph()  # Missing, it is told of at once.
    if edges.source.size < FEW_EDGES:
        yield _Here(edges, seed, quiet)
        return
    with contextlib.ExitStack() as keep:
        if scratch is None:
            scratch = Scratch(own_folder(current(), "leiden-", keep))
        job = LeidenJob.prepare(scratch, edges, seed)
        memory = process_bytes(edges.n_rows, edges.source.size)
        if client is None:
            yield _Processes(job, n_processes, quiet, keep)
        else:
            keep.callback(_release, client)
            yield _Cluster(job, client, memory, quiet)


def process_bytes(n_rows: int, n_edges: int) -> int:
    """Memory that a process takes for a graph and its clusters, above its libraries.

    Measured on graphs of 15 neighbours: 158 MB for 0.85 million edges, 436 MB for 2.5 million.
    """
    return 100 * n_rows + 180 * n_edges


class _Here:
    """In this process, one after the other."""

    width = 1

    def __init__(self, edges: Edges, seed: int, quiet: bool) -> None:
        self._network = Network(edges)
        self._seed = seed
        self._quiet = quiet
        self._made: dict[float, I32] = {}

    def make(self, resolutions: Sequence[float]) -> None:
        with _progress(resolutions, self._quiet) as progress:
            for resolution in resolutions:
                self._made[resolution] = self._network.clusters(resolution, self._seed)
                progress.advance(1)

    def clusters(self, resolution: float) -> I32:
        return self._made[resolution]


class _Processes:
    """In processes of this machine, which start when there is something to do."""

    def __init__(self, job: LeidenJob, n: int, quiet: bool, keep: contextlib.ExitStack) -> None:
        self.width = n
        self._job = job
        self._quiet = quiet
        self._keep = keep
        self._processes: LeidenProcesses | None = None

    def make(self, resolutions: Sequence[float]) -> None:
        missing = [r for r in resolutions if self._job.find(r) is None]
        if not missing:
            return
        if self._processes is None:
            self._processes = self._keep.enter_context(LeidenProcesses(self._job, self.width))
        tasks = {f"croma-leiden-{r!r}": (self._processes.cluster_at, r) for r in missing}
        with _progress(resolutions, self._quiet) as progress:
            progress.skip(len(resolutions) - len(missing))
            run_graph(
                tasks, list(tasks), n_threads=self.width,
                on_done=lambda *_: progress.advance(1), on_stop=self._processes.kill,
            )  # fmt: skip

    def clusters(self, resolution: float) -> I32:
        return _there(self._job, resolution)


class _Cluster:
    """On a cluster of Dask's."""

    width = 8  # as many as there can be beyond the grid: other workers would have nothing to do

    def __init__(self, job: LeidenJob, client: Any, memory: int, quiet: bool) -> None:
        self._job = job
        self._client = client
        self._memory = memory
        self._quiet = quiet

    def make(self, resolutions: Sequence[float]) -> None:
        token = uuid.uuid4().hex
        shared = f"croma-leiden-job-{token}"
        graph: dict[str, Any] = {shared: self._job}
        keys = [f"croma-leiden-{token}-{r!r}" for r in resolutions]
        graph |= {key: (cluster_at, shared, r) for key, r in zip(keys, resolutions, strict=True)}
        with _progress(resolutions, self._quiet) as progress:
            run_graph(
                graph, keys, client=self._client, on_done=lambda *_: progress.advance(1),
                terms={"graph": self._memory},
            )  # fmt: skip

    def clusters(self, resolution: float) -> I32:
        return _there(self._job, resolution)


def _there(job: LeidenJob, resolution: float) -> I32:
    clusters = job.find(resolution)
    assert clusters is not None
    return clusters


def _progress(resolutions: Sequence[float], quiet: bool) -> Progress:
    return Progress("leiden", len(resolutions), "resolutions", quiet)


def _release(client: Any) -> None:
    """Let the workers forget the graph; those of a cluster that is gone have done so."""
    release()
    with contextlib.suppress(OSError, TimeoutError):
        client.run(release)
