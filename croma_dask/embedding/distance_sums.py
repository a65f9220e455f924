"""Sums of the Euclidean distances from every row to the rows of every label, whatever the size.

Every unordered pair of rows is measured once, by direct differences in float64, and counted for
both of its rows. Distances are rounded to a grid on which sums are exact, so that no cut into
ranges, no order, no threads and no workers can change a bit. The grid follows from the rows alone:
its step is at most 2^-b of the bound on the distances (at most twice the largest one), with
b = min(51, 62 - bits of n): 2^-47 for 20,000 rows and 2^-42 for a million. A distance is off by
half a step at most, and by what float64 loses in summing D squares.

Cost: n^2 D / 2 steps of a subtraction and a fused multiply-add. Memory: two ranges of rows a task,
each with 8 bytes a label and row; scratch: twice 8 bytes a label and row of the cohort.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask import __version__
from croma_dask.cluster import for_client, tasks_a_process, workers_of
from croma_dask.embedding.distance_layout import SumsCost, lay_out_sums
from croma_dask.embedding.distance_tasks import (
    InMemory,
    InScratch,
    SumsJob,
    allow,
    meet_blocks,
    stop,
)
from croma_dask.embedding.extent import measure
from croma_dask.embedding.spans import by_reference, folder_for, keep_column
from croma_dask.errors import SchemaError
from croma_dask.fingerprint import text_digest
from croma_dask.index.source import RowSource, TakenRows
from croma_dask.index.tournament import rounds
from croma_dask.kernels.typing import I32, I64
from croma_dask.layout import Layout
from croma_dask.options import Options
from croma_dask.progress import Progress
from croma_dask.resume import take_scratch
from croma_dask.tasks import run_graph

__all__ = ["DistanceSums", "distance_sums", "grid_of"]

FORMAT = 1
"""Raised when what a run keeps in scratch changes."""


@dataclass(frozen=True)
class Sums:
    """Sums of some rows.

    Attributes
    ----------
    rows, label
        (m,) positions in the scope and labels, sorted by label.
    total
        (L, m) sums of the distances to all rows of a label, in steps of the grid.
    """

    rows: I64
    label: I32
    total: I64


@dataclass(frozen=True)
class DistanceSums:
    """Sums of all rows, which may lie in scratch: read them before that is closed.

    Attributes
    ----------
    n_rows, count
        Rows of the scope, and (L,) of each label.
    step
        Step of the grid in the units of the embedding.
    engine
        ``direct`` or ``streamed``.
    """

    n_rows: int
    count: I64
    step: float
    engine: str
    _job: SumsJob

    def pieces(self) -> Iterator[Sums]:
        """Give the sums of one range of rows after the other."""
        for number in range(self._job.n_ranges):
            found = self._job.kept.read(number)
            if found is None or not found[1].all():
                raise RuntimeError(f"range {number} has not met all others")
            order, label = self._job.order(number)
            yield Sums(self._job.edges[number] + order, label, found[0])


def grid_of(bound: float, n_rows: int) -> tuple[float, float, float]:
    """Scale, magic constant (:mod:`croma_dask.kernels.pairwise`) and step of the grid.

    Parameters
    ----------
    bound
        No distance is larger.
    n_rows
        Distances that are summed.
    """
    # A little more than the bound, which is itself rounded: then every distance is below 1.
    exponent = math.frexp(bound * (1.0 + 1e-9))[1] if bound > 0.0 else 0
    exponent = max(exponent, -1000)  # 2^1000 is a number, too
    bits = min(51, 62 - int(n_rows).bit_length())
    return math.ldexp(1.0, -exponent), math.ldexp(1.0, 52 - bits), math.ldexp(1.0, exponent - bits)


def distance_sums(
    source: RowSource, codes: I32, n_labels: int, *, options: Options, client: Any = None,
    n_tasks: int | None = None, keep: contextlib.ExitStack, key: str = "", fixed: int = 0,
) -> DistanceSums:  # fmt: skip
    """Sum the distances from every row to the rows of every label.

    Parameters
    ----------
    source
        Rows of the scope: any real numbers.
    codes, n_labels
        (n,) label of each row; number of labels.
    options
        Memory, threads, scratch, progress, whether to resume.
    client, n_tasks
        Cluster to run on (None: threads), and tasks at once in a process (None: ask it).
    keep
        Removes the scratch folder when the caller is done; leaves it to resume from on an error.
    key
        Fingerprint of the rows, or of those that `source` takes its rows from, if it is known: what
        a resumed run is known by. Without one it is computed.
    fixed
        Bytes that the process holds besides.

    Raises
    ------
    SchemaError
        Labels do not fit the rows, or a row holds NaN, inf or values beyond 1e150.
    MemoryLimitError
        The memory does not allow even the smallest ranges.
    """
    n = source.n_rows
    codes = np.ascontiguousarray(codes, np.int32)
    if codes.shape != (n,) or (n and not 0 <= int(codes.min()) <= int(codes.max()) < n_labels):
        raise SchemaError(f"expected {n} labels from 0 to {n_labels - 1}, found {codes.shape}")
    options = for_client(options, client)
    n_tasks = tasks_a_process(client, options) if n_tasks is None else n_tasks
    layout = lay_out_sums(
        SumsCost.of(source, n_labels), n, options, n_tasks=n_tasks, n_workers=workers_of(client),
        fixed=fixed,
    )  # fmt: skip
    streamed = layout.engine == "streamed"
    if not streamed:
        client, n_tasks = None, options.n_threads
    folder = folder_for(client, options, keep)
    rows, labels = by_reference(source, folder), keep_column(codes, "labels", folder)
    bound, digest = measure(
        rows, digest=streamed and not key, options=options, client=client, n_tasks=n_tasks
    )
    scale, magic, step = grid_of(bound, n)
    edges, per_block = layout.edges, layout.per_block
    kept: InMemory | InScratch = InMemory(len(edges) - 1)
    if streamed:
        named = repr((FORMAT, __version__, n_labels, scale, magic, source.n_features))
        taken = source.rows.tobytes() if isinstance(source, TakenRows) else b""
        name = text_digest("distance sums", key or digest, named, codes.tobytes(), taken)
        scratch, (edges, per_block) = take_scratch(options, name, layout, keep)
        kept = InScratch(len(edges) - 1, scratch)
    job = SumsJob(rows, labels, n_labels, kept, edges, per_block, scale, magic, uuid.uuid4().hex)
    _run(job, layout, options, client, n_tasks)
    count = np.bincount(codes, minlength=n_labels).astype(np.int64)
    return DistanceSums(n, count, step, layout.engine, job)


def _run(job: SumsJob, layout: Layout, options: Options, client: Any, n_tasks: int) -> None:
    """Let all ranges meet that have not met yet."""
    if all(job.kept.met(number).all() for number in range(job.n_ranges)):
        return
    graph, last, work = _pair_graph(job)
    try:
        with Progress("ASW", sum(work.values()), "row pairs", options.quiet) as progress:

            def tell(key: str, fresh: Any) -> None:
                if key in work:
                    # What an interrupted run had done does not count for the rate.
                    new = min(work[key], int(fresh))
                    progress.advance(new)
                    progress.skip(work[key] - new)

            run_graph(
                graph, last, client=client, n_threads=n_tasks, on_done=tell,
                # The folder stays locked until all tasks have ended.
                on_stop=lambda: stop(job), terms=layout.terms,
            )  # fmt: skip
    finally:
        allow(job)


def _pair_graph(job: SumsJob) -> tuple[dict[str, Any], list[str], dict[str, int]]:
    """One task a pair of blocks, each after the last ones of its two blocks; keys, work of each."""
    shared = f"croma-asw-job-{job.token}"
    graph: dict[str, Any] = {shared: job}
    latest: dict[int, str] = {}
    work: dict[str, int] = {}
    for players in rounds(job.n_blocks):
        for i, j in players:
            key = f"croma-asw-{job.token}-{i}-{j}"
            after = sorted({latest[b] for b in (i, j) if b in latest})
            graph[key] = (meet_blocks, shared, i, j, *after)
            latest[i] = latest[j] = key
            work[key] = job.rows_of(i) * job.rows_of(j) // (2 if i == j else 1)
    return graph, list(work), work
