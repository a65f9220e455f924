"""Clusters of real processes: a scheduler and workers as a user starts them, killed at the end."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

ROOT = Path(__file__).resolve().parents[2]

PATIENCE = 120.0
"""Seconds after which what a test waits for is not going to happen, on however slow a machine."""


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Ask again and again, and return what the condition says once that is true."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited for {what} in vain"
        time.sleep(0.01)
    return found


class Processes:
    """A scheduler and workers, each a process of its own with its own log.

    Parameters
    ----------
    folder
        For logs, the scheduler file and what workers spill.
    **config
        Of Dask, for all of them: ``scheduler__allowed_failures=0``.
    """

    def __init__(self, folder: Path, **config: object) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.started: list[subprocess.Popen[bytes]] = []
        self._config = {
            f"DASK_DISTRIBUTED__{name.upper()}": str(value) for name, value in config.items()
        }
        # Any free port for the dashboard: another cluster of the tests may be there meanwhile.
        self._start("scheduler", "--port", 0, "--dashboard-address", "127.0.0.1:0", "--no-show")
        wait_until(self._address, "the scheduler")

    def _address(self) -> str | None:
        try:
            return str(json.loads(self.file.read_text())["address"])
        except (OSError, ValueError, KeyError):
            return None

    def _start(self, kind: str, *options: object, **environment: str) -> None:
        log = self.folder / f"{kind}-{len(self.started)}.log"
        shared = ("--host", "127.0.0.1", "--scheduler-file", self.file)
        with log.open("wb") as out:
            self.started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dask", kind, *map(str, (*shared, *options))],
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    # A session of its own: what a nanny starts goes with it.
                    start_new_session=True,
                    env={**os.environ, **self._config, "PYTHONPATH": str(ROOT), **environment},
                )
            )

    def add_worker(
        self, *, memory: str = "2GiB", threads: int = 1, nanny: bool = True, preload: str = ""
    ) -> None:
        """Start a worker; its nanny starts it anew when it dies."""
        options: list[object] = ["--nthreads", threads, "--nworkers", 1, "--memory-limit", memory]
        options += ["--nanny" if nanny else "--no-nanny"]
        options += ["--no-dashboard", "--local-directory", self.folder]
        if preload:
            path = self.folder / f"preload-{len(self.started)}.py"
            path.write_text(preload)
            options += ["--preload", path]
        # What a careless environment says: tasks have one BLAS thread all the same.
        self._start("worker", *options, OPENBLAS_NUM_THREADS="2", OMP_NUM_THREADS="2")

    @contextlib.contextmanager
    def client(self, n_workers: int) -> Iterator[Client]:
        """Client that is nobody's default, once so many workers are there."""
        from distributed import Client

        with Client(scheduler_file=str(self.file), set_as_default=False, timeout=60) as client:
            client.wait_for_workers(n_workers, timeout=PATIENCE)
            yield client

    def logs(self) -> str:
        """Everything that was logged so far."""
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))

    def kill(self) -> None:
        """Kill everything that was started, whatever state it is in."""
        for process in reversed(self.started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def processes(folder: Path, **config: object) -> Iterator[Processes]:
    """Start a scheduler; kill it and all its workers at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Processes(folder, **config)
    try:
        yield cluster
    finally:
        cluster.kill()


def pids(client: Client) -> dict[str, int]:
    """Process of each worker, by address."""
    return dict(client.run(os.getpid))


def progress(scratch: Path) -> int:
    """Count the pairs of ranges that both sides know of: what a run has done so far."""
    newest: dict[str, int] = {}
    for path in scratch.glob("*/range-*/lists-*.npz"):
        done = int(path.stem.split("-")[1])
        newest[path.parent.name] = max(done, newest.get(path.parent.name, 0))
    return sum(newest.values())


class Driver:
    """The command line as a process that can be killed."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "croma_dask.cli", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; exit code, standard output, standard error."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err

    def kill(self) -> None:
        """Kill -9, and nothing else: whatever it has started has to notice by itself."""
        self.process.kill()
        self.process.communicate()


@functools.cache
def smallest_memory(place: str, **options: Any) -> str:
    """Return the least memory that a store can be streamed in, as the refusals name it."""
    import croma_dask as cd

    memory = "1B"
    while True:
        try:
            cd.plan(place, confounder="center", memory=memory, threads=1, **options)
        except cd.MemoryLimitError as refusal:
            (least,) = re.findall(r"at least ([\d.]+) MB", str(refusal))
            memory = f"{float(least) + 0.02:.2f}MB"
        else:
            return memory
