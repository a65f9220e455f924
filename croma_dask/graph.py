"""The Dask graph of a streamed search: built, run on threads or on a cluster, resumed."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from croma_dask import __version__, fingerprint
from croma_dask.errors import MemoryLimitError, StoreError
from croma_dask.index.neighbors import Neighbors, ScratchLists
from croma_dask.index.scratch import Scratch, private_root
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
from croma_dask.kernels.typing import F64
from croma_dask.layout import Layout
from croma_dask.memory import format_bytes
from croma_dask.options import Options
from croma_dask.progress import Progress

__all__ = ["pair_graph", "search_streamed"]

log = logging.getLogger("croma_dask")

FORMAT = 2
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
    mean: F64,
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
    mean
        (D,) mean of the unit vectors.
    identity
        Fingerprint of the embedding and name of the scope: what a resumed run is known by.
    client, n_tasks
        Cluster to run on (None: threads), and tasks at once in a process.
    keep
        Removes the scratch folder when the caller is done; leaves it to resume from on an error.
    """
    n = len(codes)
    spec = spec.clipped(n)
    key = _job_key(codes, tiles, spec, layout, identity)
    scratch = _take_scratch(options, key, layout.scratch, keep)
    job = Job(source, scratch, layout.edges, layout.per_block, spec, mean)
    for number in range(job.n_ranges):
        part = slice(job.edges[number], job.edges[number + 1])
        scratch.write_codes(number, codes.take(part), None if tiles is None else tiles[part])
    graph, last, work = pair_graph(job)
    with Progress("search", sum(work.values()), "row pairs", options.quiet) as progress:
        _run(graph, last, work, client, n_tasks, progress, scratch)
    failing = [scratch.n_failing(number) for number in range(job.n_ranges)]
    if None in failing:
        raise RuntimeError(f"range {failing.index(None)} was not finished: a defect")
    again = sum(n for n in failing if n is not None)
    lists = ScratchLists(scratch, job.edges, spec)
    return Neighbors(n, spec, lists, again, "streamed")


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
    work: dict[str, int] = {}
    sizes = [
        job.edges[job.members(b).stop] - job.edges[job.members(b).start]
        for b in range(job.n_blocks)
    ]
    for players in rounds(job.n_blocks):
        for i, j in players:
            key = f"croma-pairs-{token}-{i}-{j}"
            after = sorted({latest[b] for b in (i, j) if b in latest})
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


def _run(
    graph: dict[str, Any], last: list[str], work: dict[str, int], client: Any, n_tasks: int,
    progress: Progress, scratch: Scratch,
) -> None:  # fmt: skip
    """Run the graph on threads of this process or on a cluster, telling how far it is."""
    if client is None:
        import dask.threaded
        from dask.callbacks import Callback

        def over(key: str, result: Any, *_: Any) -> None:
            _tell(progress, work.get(key, 0), result)

        posttask: Callable[..., None] = over
        allow_tasks(scratch)
        with ThreadPoolExecutor(n_tasks, "croma") as pool, Callback(posttask=posttask):
            try:
                dask.threaded.get(graph, last, pool=pool)
            except BaseException:
                # Whoever interrupts does not want to wait for a task of minutes; the scratch
                # folder stays locked until all have ended.
                stop_tasks(scratch)
                pool.shutdown(cancel_futures=True)
                raise
        return
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    # All but the job itself: a task that nobody wants, behind one that is cancelled, is more than
    # the scheduler can take.
    wanted = [key for key, task in graph.items() if isinstance(task, tuple)]
    futures = client.get(graph, wanted, sync=False)
    try:
        try:
            for future in as_completed(futures, loop=client.loop):
                _tell(progress, work.get(future.key, 0), future.result())
        except BaseException:
            client.cancel(futures)
            raise
    except KilledWorker as err:
        raise MemoryLimitError(
            f"a worker died several times in a row on one task ({err}): most often its memory "
            "limit is below what a task takes. The largest terms are the rows and lists of two "
            "ranges: lower memory= (--memory) below the workers' limit so that ranges get shorter, "
            "or give the workers more; what is done is kept and a new run resumes from it"
        ) from err
    except FileNotFoundError as err:
        raise StoreError(
            f"a worker does not find {err.filename}: store and scratch folder must be seen by all "
            "workers; name a folder on a file system that they share as scratch= (--scratch)"
        ) from err


def _tell(progress: Progress, pairs: int, fresh: int) -> None:
    """Count a task that is over; what an interrupted run had done does not count for the rate."""
    if pairs:
        progress.advance(min(pairs, fresh))
        progress.skip(pairs - min(pairs, fresh))


def _job_key(
    codes: Codes, tiles: Any, spec: ListSpec, layout: Layout, identity: tuple[str, str]
) -> str:
    """Name a run: the same input cut the same way resumes, anything else starts anew."""
    cut = repr(
        (FORMAT, __version__, LANES, ZERO_BELOW, spec, spec.length.tolist(), layout.edges,
         layout.per_block)
    )  # fmt: skip
    arrays = [codes.label, codes.confounder, codes.group] + ([] if tiles is None else [tiles])
    contents = (np.ascontiguousarray(a).tobytes() for a in arrays)
    return fingerprint.text_digest(*identity, cut, *contents)


def _take_scratch(options: Options, key: str, needed: int, keep: contextlib.ExitStack) -> Scratch:
    root = Path(options.scratch or private_root())
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if free < needed and not (root / key[:32]).exists():
        raise MemoryLimitError(
            f"the lists of the search take {format_bytes(needed)} on disk, and {str(root)!r} has "
            f"{format_bytes(free)} free: name a folder with more room as scratch= (--scratch)"
        )
    scratch = Scratch(str(root / key[:32]))
    lock = scratch.lock()
    beside = lock is None
    if lock is None:
        # The same run goes on elsewhere: leave it alone and work beside it.
        log.warning("the same run goes on elsewhere (%s); working beside it", scratch.path)
        scratch = Scratch(tempfile.mkdtemp(prefix=key[:16], dir=root))
        lock = scratch.lock()
    elif any(Path(scratch.path).glob("range-*/lists-*.npz")):
        log.warning("resuming a run that was interrupted (%s)", scratch.path)
    if lock is not None:
        keep.callback(lock.close)

    def leave(exc_type: Any, *_: Any) -> None:
        # Interrupted or failed: what was found stays for the next try, where that can find it.
        if exc_type is None or beside:
            scratch.remove()
        elif any(Path(scratch.path).glob("range-*/lists-*.npz")):
            log.warning("what was found so far stays in %s: the same call resumes", scratch.path)

    keep.push(leave)
    return scratch
