"""Processes of this machine that share a Leiden scan: igraph never lets two threads run at once.

They are plain child processes that are given one resolution a line, and not multiprocessing's:
those would import the caller's script again. One that loses its parent ends by itself, in the
middle of a resolution if need be.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from types import TracebackType
from typing import Any

from croma_dask.embedding.leiden_job import LeidenJob, cluster_at
from croma_dask.errors import MemoryLimitError
from croma_dask.index.scratch import Scratch

__all__ = ["LeidenProcesses", "serve"]

_DONE = "clusters "
_TOLD = 2000
_PATIENCE_SECONDS = 10.0


class LeidenProcesses:
    """Processes that cluster, one resolution at a time each.

    Parameters
    ----------
    job
        The scan.
    n
        Number of processes.
    """

    def __init__(self, job: LeidenJob, n: int) -> None:
        self._job = job
        self._n = n
        self._all: list[_Child] = []
        self._idle: queue.SimpleQueue[_Child] = queue.SimpleQueue()

    def __enter__(self) -> LeidenProcesses:
        """Start the processes."""
        try:
            for _ in range(self._n):
                self._all.append(_Child(self._job))
                self._idle.put(self._all[-1])
        except BaseException:
            self.kill()
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the processes and wait until they are gone."""
        for child in self._all:
            child.close()

    def cluster_at(self, resolution: float) -> int:
        """Have an idle process cluster; several threads may ask at once.

        Raises
        ------
        MemoryLimitError
            The process was killed, as Linux does where memory runs out.
        RuntimeError
            It has ended otherwise.
        """
        child = self._idle.get()
        try:
            return child.cluster_at(resolution)
        finally:
            self._idle.put(child)

    def kill(self) -> None:
        """End the processes at once; who waits for one of them gets an error."""
        for child in self._all:
            child.process.kill()


class _Child:
    """One process, seen from its parent."""

    def __init__(self, job: LeidenJob) -> None:
        # What it says when it dies: a pipe that nobody reads could fill up.
        self._said = tempfile.TemporaryFile()
        # Its own session: Ctrl-C in a terminal is for the parent, which then ends it.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c",
             "from croma_dask.embedding.leiden_processes import serve; serve()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True,
            start_new_session=True, env=_environment(),
        )  # fmt: skip
        self._ask(json.dumps([job.scratch.path, job.folder, job.seed]))

    def _ask(self, line: str) -> None:
        assert self.process.stdin is not None
        # One that is dead is found so when its answer does not come.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def cluster_at(self, resolution: float) -> int:
        self._ask(repr(resolution))
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(_DONE):
                return int(line.removeprefix(_DONE))
        raise self._died()

    def _died(self) -> Exception:
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return MemoryLimitError(
                "a process of the Leiden scan was killed, most often because memory ran out: ask "
                "for fewer of them as threads= (--threads); resolutions that are done are kept"
            )
        self._said.seek(0)
        told = self._said.read().decode(errors="replace")[-_TOLD:]
        return RuntimeError(f"a process of the Leiden scan has ended with code {code}: {told}")

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self._said.close()


def _environment() -> dict[str, str]:
    """Environment in which a process finds what this one can import."""
    path = os.pathsep.join(part or os.getcwd() for part in sys.path)
    return os.environ | {"PYTHONPATH": path}


def serve() -> None:
    """Cluster at each resolution that standard input names, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    path, folder, seed = json.loads(lines.get())
    job = LeidenJob(Scratch(path), folder, seed)
    while True:
        print(f"{_DONE}{cluster_at(job, float(lines.get()))}", flush=True)


def _listen(lines: Any) -> None:
    for line in sys.stdin:
        lines.put(line)
    # Parent done, or gone: then nobody wants the resolution that is under way.
    os._exit(0)
