"""A graph of tasks, run on threads of this process or on a cluster."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from croma_dask.cluster import known_workers
from croma_dask.cohort.sharing import share
from croma_dask.errors import MemoryLimitError, StoreError
from croma_dask.memory import format_bytes

__all__ = ["run_graph"]

log = logging.getLogger("croma_dask")

LOOK_SECONDS = 10.0
"""How often a cluster is looked at that finishes nothing."""

PATIENCE_SECONDS = 60.0
"""How long a cluster that does nothing may do so."""


def run_graph(
    graph: Mapping[str, Any],
    wanted: Sequence[str],
    *,
    client: Any = None,
    n_threads: int = 1,
    on_done: Callable[[str, Any], None] | None = None,
    on_stop: Callable[[], None] | None = None,
    terms: Mapping[str, int] | None = None,
) -> list[Any]:
    """Run a graph and return the results of some of its tasks.

    Parameters
    ----------
    graph
        A task is a tuple of a function and its arguments, in which keys stand for results; all
        else is data. Results should be small: numbers, paths.
    wanted
        Keys whose results to return.
    client
        `distributed.Client` to run on; None for threads of this process. Its keys are names for
        people, too: the dashboard groups them by what stands before the first word with a digit
        (``croma-pairs`` of ``croma-pairs-0f3a...-1-2``). They must not be used twice.
    n_threads
        Threads of this process.
    on_done
        Called with the key and the result of each task that is over, in this thread.
    on_stop
        Called when the run ends early, before tasks that are still under way are waited for.
    terms
        Bytes of what a task takes in memory, by name, for an error to name the largest.

    Returns
    -------
    list
        In the order of `wanted`.

    Raises
    ------
    MemoryLimitError
        A task has killed several workers, or all workers are paused because they are full.
    StoreError
        A worker does not find a file.
    ConnectionError
        The scheduler is gone.
    Exception
        Whatever a task raises.
    """
    tell = on_done or (lambda key, result: None)
    stop = on_stop or (lambda: None)
    if client is None:
        return _on_threads(graph, wanted, n_threads, tell, stop)
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    try:
        return _on_cluster(graph, wanted, client, tell, stop)
    except KilledWorker as err:
        what = f"a worker died several times in a row on one task ({err})"
        raise _too_large(what, terms) from err
    except _AllPaused as err:
        raise _too_large(str(err), terms) from err
    except FileNotFoundError as err:
        raise StoreError(
            f"a worker does not find {err.filename}: store and scratch folder must be seen by all "
            "workers; name a folder on a file system that they share as scratch= (--scratch)"
        ) from err
    except (CancelledError, CommClosedError) as err:
        told = " ".join(str(err).split())
        raise ConnectionError(
            f"the cluster gave the run up ({told}): its scheduler is gone, or somebody cancelled "
            "the tasks; what is done is kept and a new run resumes from it"
        ) from err


def _on_threads(
    graph: Mapping[str, Any], wanted: Sequence[str], n_threads: int,
    tell: Callable[[str, Any], None], stop: Callable[[], None],
) -> list[Any]:  # fmt: skip
    import dask.threaded
    from dask.callbacks import Callback

    def over(key: str, result: Any, *_: Any) -> None:
        # Callbacks are the process's: another thread's graph would be told of here, too.
        if isinstance(graph.get(key), tuple):
            tell(key, result)

    posttask: Callable[..., None] = over
    with ThreadPoolExecutor(n_threads, "croma") as pool, Callback(posttask=posttask):
        try:
            return list(dask.threaded.get(dict(graph), list(wanted), pool=pool))
        except BaseException:
            # Whoever interrupts does not want to wait for a task of minutes.
            stop()
            pool.shutdown(cancel_futures=True)
            raise


def _on_cluster(
    graph: Mapping[str, Any], wanted: Sequence[str], client: Any,
    tell: Callable[[str, Any], None], stop: Callable[[], None],
) -> list[Any]:  # fmt: skip
    # All tasks, not the wanted ones only: each is told of, and a task that nobody wants, behind
    # one that is cancelled, is more than the scheduler can take.
    keys = [key for key, task in graph.items() if isinstance(task, tuple)]
    share(client)
    futures = client.get(dict(graph), keys, sync=False)
    found = dict.fromkeys(wanted)
    try:
        for batch in _over(futures, client):
            for future, result in zip(batch, client.gather(batch), strict=True):
                if future.key in found:
                    found[future.key] = result
                tell(future.key, result)
    except BaseException:
        stop()
        # Without a scheduler there is nothing to cancel, and the first error counts.
        with contextlib.suppress(OSError, TimeoutError):
            client.cancel(futures)
        raise
    return [found[key] for key in wanted]


def _over(futures: Sequence[Any], client: Any) -> Iterator[list[Any]]:
    """Futures as they finish; looks at the workers while none does."""
    from distributed import as_completed

    pending = as_completed(futures, loop=client.loop)
    progress = look = time.monotonic()
    warned = False
    while not pending.is_empty():
        batch = pending.next_batch(block=False)
        now = time.monotonic()
        if batch:
            yield batch
            progress = now
            continue
        time.sleep(0.02)
        if now - look < LOOK_SECONDS:
            continue
        look = now
        workers = known_workers(client)
        if any(_works(worker) for worker in workers):
            progress = now
        elif now - progress > PATIENCE_SECONDS and workers:
            raise _AllPaused(
                f"all {len(workers)} workers are paused, because they are full, and none has done "
                f"anything for {now - progress:.0f} s"
            )
        elif now - progress > PATIENCE_SECONDS and not warned:
            log.warning("the cluster has no worker left; the run waits for one to join")
            warned = True


class _AllPaused(Exception):
    """No worker takes tasks any more."""


def _works(worker: Mapping[str, Any]) -> bool:
    """Whether a worker takes tasks, or still has one."""
    running = worker.get("metrics", {}).get("task_counts", {}).get("executing", 0)
    return worker.get("status") != "paused" or bool(running)


def _too_large(what: str, terms: Mapping[str, int] | None) -> MemoryLimitError:
    advice = "lower memory= (--memory) below two thirds of the workers' limit"
    told = ""
    if terms:
        worst = max(terms, key=lambda name: terms[name])
        each = ", ".join(f"{name} {format_bytes(size)}" for name, size in terms.items())
        told = f"; of what a worker holds ({each}) the largest term is {worst!r}"
        if worst == "lists":
            advice += ", ask for smaller k and m"
        elif worst == "libraries":
            advice = "no argument makes that smaller"
    return MemoryLimitError(
        f"{what}: most often its memory limit is below what a task takes{told}: {advice}, or give "
        "the workers more; what is done is kept and a new run resumes from it"
    )
