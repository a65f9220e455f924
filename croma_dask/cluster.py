"""Which cluster a run uses: one that is started for it, one that is there, or none."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from croma_dask import __version__
from croma_dask.active import active_client
from croma_dask.errors import SchemaError
from croma_dask.memory import allowed_bytes, format_bytes, parse_bytes
from croma_dask.options import Options

__all__ = [
    "active_client",
    "connect",
    "for_client",
    "known_workers",
    "tasks_a_process",
    "workers_of",
]

log = logging.getLogger("croma_dask")

BARE_WORKER = 64 << 20
"""What a worker takes before it has done anything (65 MB measured)."""

PAUSED_ABOVE = 0.8
"""Share of its limit above which Dask lets a worker start no more tasks."""

SHARE = 0.6
"""Share of its limit that a run takes in a worker, as of a machine, when no memory is named."""

_ONE_THREAD = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)  # fmt: skip
"""A worker has as many threads as it runs tasks, whatever library a task calls. The nanny of a
worker sets three of these by itself, and none of them over what it finds in the environment."""


@contextlib.contextmanager
def connect(
    workers: int | None = None,
    scheduler: str | None = None,
    memory: int | str | None = None,
    threads_per_worker: int | None = None,
) -> Iterator[Any]:
    """Client of the cluster that is asked for; None where none is.

    Parameters
    ----------
    workers
        Start this many processes on this machine, for as long as the ``with`` block lasts.
    scheduler
        Use a cluster that is there: address of its scheduler, or the path of the file in which it
        left its address (``dask scheduler --scheduler-file``).
    memory
        What a run may take in a worker, as it is told to :func:`croma_dask.score`. Workers that
        are started get half as much again as their limit, since Dask pauses one that comes near.
        By default each has its part of the machine.
    threads_per_worker
        Tasks that a worker runs side by side; 1 by default.

    Yields
    ------
    distributed.Client or None
        Its dashboard's address is logged at level info.

    Raises
    ------
    SchemaError
        Arguments that exclude each other; no scheduler there; no worker within a minute; another
        version of this package, or none, on the workers.
    """
    if workers and scheduler:
        raise SchemaError("--workers starts a cluster and --scheduler names one: give either")
    if threads_per_worker and not workers:
        raise SchemaError("--threads-per-worker is for the workers that --workers starts")
    with contextlib.ExitStack() as keep:
        client = None
        if scheduler:
            client = keep.enter_context(_joined(scheduler))
        elif workers:
            client = keep.enter_context(_started(workers, memory, threads_per_worker or 1))
        if client is not None:
            log.info("dashboard: %s", client.dashboard_link)
        yield client


@contextlib.contextmanager
def _joined(scheduler: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(_address(scheduler), timeout=20)
    except (OSError, ValueError, KeyError) as err:
        raise SchemaError(f"no Dask scheduler answers at {scheduler!r}: {err}") from err
    with _silent_client(), client:
        try:
            client.wait_for_workers(1, timeout=60)
        except TimeoutError as err:
            raise SchemaError(f"the scheduler at {scheduler!r} has had no worker for 60 s") from err
        _check_versions(client)
        yield client


@contextlib.contextmanager
def _silent_client() -> Iterator[None]:
    """Keep a client from logging how it failed to find its scheduler again: that is raised."""
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _address(scheduler: str) -> str:
    """Read a scheduler file. A client would wait for one, and for ever."""
    if not os.path.isfile(scheduler):
        return scheduler
    with open(scheduler, encoding="utf-8") as file:
        return str(json.load(file)["address"])


def _check_versions(client: Any) -> None:
    """Refuse workers with another version of this package: they would do something else."""
    found = client.get_versions(packages=["croma_dask"])
    places = {"the scheduler": found["scheduler"], **found["workers"]}
    for place, about in places.items():
        version = about and about["packages"].get("croma_dask")
        if version != __version__:
            raise SchemaError(
                f"{place} has {f'croma-dask {version}' if version else 'no croma-dask'}, and this "
                f"process {__version__}: install the same on all machines of the cluster"
            )


@contextlib.contextmanager
def _started(workers: int, memory: int | str | None, threads: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    if memory is None:
        limit = int(allowed_bytes(None) / SHARE / workers)
    else:
        limit = int(1.5 * parse_bytes(memory)) + BARE_WORKER
    with contextlib.ExitStack() as keep:
        # Closing a cluster whose workers have only half started fails inside Dask.
        with _interrupts_wait():
            cluster = keep.enter_context(
                LocalCluster(
                    n_workers=workers,
                    threads_per_worker=threads,
                    processes=True,
                    memory_limit=limit,
                    dashboard_address="127.0.0.1:0",
                    env=dict.fromkeys(_ONE_THREAD, "1"),
                    # What goes wrong is raised; workers that are told to stop complain of one
                    # another.
                    silence_logs=logging.CRITICAL,
                )
            )
            client = keep.enter_context(Client(cluster))
        yield client


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let SIGINT (Ctrl-C) wait for the end of the block, and keep it from processes begun in it.

    A terminal sends it to all of them; this one tells the others to stop. Only in the main thread,
    where signals arrive, and only where Python's own handler is set.
    """
    came: list[int] = []

    def wait(number: int, frame: Any) -> None:
        came.append(number)

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    from multiprocessing import resource_tracker

    # Started later it would unblock the signal in the thread that starts the workers.
    resource_tracker.ensure_running()
    signal.signal(signal.SIGINT, wait)
    # Threads and processes inherit what is blocked, and what they start does.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            raise KeyboardInterrupt


def for_client(options: Options, client: Any) -> Options:
    """Fit the memory to a cluster's smallest worker: its share by default, never more than it has.

    With more the worker would be paused, and the run would wait for ever.
    """
    limits = [int(w["memory_limit"]) for w in known_workers(client) if w.get("memory_limit")]
    if not limits:
        return options
    least = min(limits)
    if options.memory is None:
        return replace(options, memory=int(SHARE * least))
    most = max(1, int(PAUSED_ABOVE * least) - BARE_WORKER)
    if parse_bytes(options.memory) <= most:
        return options
    log.warning(
        "the smallest worker is limited to %s, of which a run can take %s before Dask pauses it: "
        "the memory asked for is lowered to that",
        format_bytes(least), format_bytes(most),
    )  # fmt: skip
    return replace(options, memory=most)


def tasks_a_process(client: Any, options: Options) -> int:
    """Tasks that run side by side in one process."""
    if client is None:
        return options.n_threads
    return max((int(w["nthreads"]) for w in known_workers(client)), default=1)


def workers_of(client: Any) -> int:
    """Count the processes that work."""
    return max(1, len(known_workers(client)))


def known_workers(client: Any) -> list[Any]:
    """Return what a scheduler knows of each of its workers; nothing without a client.

    Raises
    ------
    ConnectionError
        The scheduler is gone.
    """
    if client is None:
        return []
    about = client.scheduler_info(n_workers=-1)
    # A client that has lost its scheduler says what it still knows: nothing.
    if "workers" not in about:
        raise ConnectionError(
            "the scheduler of the cluster is gone; what is done is kept and a new run resumes from "
            "it"
        )
    return list(about["workers"].values())
