"""The Dask graph of a streamed search: built, run on threads or on a cluster, resumed."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import numpy as np

from croma_dask import __version__, fingerprint
from croma_dask.index.neighbors import Neighbors, ScratchLists
from croma_dask.index.probed import probe_range
from croma_dask.index.source import Codes, RowSource
from croma_dask.index.spec import ListSpec
from croma_dask.index.streamed import (
    Job,
    allow_tasks,
    count_tasks,
    finish_range,
    meet_blocks,
    stop_tasks,
)
from croma_dask.index.tournament import rounds
from croma_dask.kernels.constants import LANES, ZERO_BELOW
from croma_dask.kernels.frame import Frame
from croma_dask.layout import Layout
from croma_dask.options import Options
from croma_dask.progress import Progress
from croma_dask.resume import take_scratch
from croma_dask.tasks import run_graph

__all__ = ["job_key", "pair_graph", "search_streamed"]

FORMAT = 5
"""Raised when what a run keeps in scratch, or how it came about, changes: no run resumes from
the lists of another definition."""


def search_streamed(
    source: RowSource,
    codes: Codes,
    tiles: Any,
    spec: ListSpec,
    layout: Layout,
    options: Options,
    *,
    frame: Frame,
    identity: tuple[str, str],
    client: Any,
    n_tasks: int,
    keep: contextlib.ExitStack,
) -> Neighbors:
    """Search a scope as a Dask graph over blocks of ranges, with its lists in scratch.

    Parameters
    ----------
    source, codes, tiles
        Stored rows; codes of the rows of the scope; the stored row of each (None: in order).
    spec, layout, options
        Lists to deliver, the ranges, and where scratch lies.
    frame
        Distance, and origin of the screening.
    identity
        Fingerprint of the embedding and name of the scope: what a resumed run is known by.
    client, n_tasks
        Cluster to run on (None: threads), and tasks at once in a process.
    keep
        Removes the scratch folder when the caller is done; leaves it to resume from on an error.
    """
    n = len(codes)
    spec = spec.clipped(n)
    key = job_key(codes, tiles, spec, identity)
    scratch, (edges, per_block) = take_scratch(options, key, layout, keep)
    job = Job(source, scratch, edges, per_block, spec, frame)
    failing = _failing(job)
    if None in failing:
        for number in range(job.n_ranges):
            part = slice(job.edges[number], job.edges[number + 1])
            scratch.write_codes(number, codes.take(part), None if tiles is None else tiles[part])
        graph, last, work = pair_graph(job)
        allow_tasks(scratch)
        with Progress("search", sum(work.values()), "row pairs", options.quiet) as progress:
            run_graph(
                graph, last, client=client, n_threads=n_tasks,
                on_done=lambda key, fresh: _tell(progress, work.get(key, 0), fresh),
                # The folder stays locked until all tasks have ended.
                on_stop=lambda: stop_tasks(scratch), terms=layout.terms,
            )  # fmt: skip
        failing = _failing(job)
        if None in failing:
            raise RuntimeError(f"range {failing.index(None)} was not finished: a defect")
    again = sum(n for n in failing if n is not None)
    lists = ScratchLists(scratch, job.edges, spec)
    return Neighbors(n, spec, lists, again, "streamed")


def _failing(job: Job) -> list[int | None]:
    """How many rows of each range needed a second look; None where it is not finished."""
    return [job.scratch.n_failing(number) for number in range(job.n_ranges)]


def pair_graph(job: Job) -> tuple[dict[str, Any], list[str], dict[str, int]]:
    """Graph of a streamed search: a task a pair of blocks, then one a range.

    Returns
    -------
    graph, last, work
        The job is one node; a task names two blocks and the tasks that must be over. `last` are
        the final keys; `work` says how many pairs of rows each task stands for.
    """
    # A token of this run alone: a scheduler would take equal keys for equal tasks and skip them.
    token = uuid.uuid4().hex
    shared = f"croma-job-{token}"
    graph: dict[str, Any] = {shared: job}
    latest: dict[int, str] = {}
    first: list[str] = []
    if job.radius is not None:
        # What a pair of ranges has to do with each other is known when all have probed.
        probing = [f"croma-probe-{token}-{number}" for number in range(job.n_ranges)]
        graph |= {key: (probe_range, shared, n) for n, key in enumerate(probing)}
        first = [f"croma-probed-{token}"]
        graph[first[0]] = (count_tasks, *probing)
    work: dict[str, int] = {}
    sizes = [
        job.edges[job.members(b).stop] - job.edges[job.members(b).start]
        for b in range(job.n_blocks)
    ]
    for players in rounds(job.n_blocks):
        for i, j in players:
            key = f"croma-pairs-{token}-{i}-{j}"
            after = sorted({latest[b] for b in (i, j) if b in latest}) or first
            graph[key] = (meet_blocks, shared, i, j, *after)
            latest[i] = latest[j] = key
            work[key] = sizes[i] * sizes[j] // (2 if i == j else 1)
    last = []
    # One task that waits for all pairs: as edges of every finish task they would be most of the
    # graph.
    everything = f"croma-all-{token}"
    graph[everything] = (count_tasks, *sorted(set(latest.values())))
    for number in range(job.n_ranges):
        key = f"croma-finish-{token}-{number}"
        graph[key] = (finish_range, shared, number, everything)
        last.append(key)
    return graph, last, work


def _tell(progress: Progress, pairs: int, fresh: int) -> None:
    """Count a task that is over; what an interrupted run had done does not count for the rate."""
    if pairs:
        progress.advance(min(pairs, fresh))
        progress.skip(pairs - min(pairs, fresh))


def job_key(codes: Codes, tiles: Any, spec: ListSpec, identity: tuple[str, str]) -> str:
    """Name a run by all that its lists depend on: the same one resumes, any other starts anew.

    How the rows are cut into ranges is none of that: see :mod:`croma_dask.resume`.
    """
    sought = repr((FORMAT, __version__, LANES, ZERO_BELOW, spec, spec.length.tolist()))
    arrays = [codes.label, codes.confounder, codes.group] + ([] if tiles is None else [tiles])
    contents = (np.ascontiguousarray(a).tobytes() for a in arrays)
    return fingerprint.text_digest(*identity, sought, *contents)
