"""Whether an HDF5 file can be opened without bringing the process down; tried in another one."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from croma_dask.errors import SchemaError

__all__ = ["vet"]

SECONDS = 1.0
"""Processor time that a file may take, beyond 10 ms an object; what is sound takes a tenth."""

_GRACE = 2.0
"""Seconds within which it ends once its input has."""


def vet(paths: Sequence[str]) -> None:
    """Let another process walk through HDF5 files before this one opens them.

    Parameters
    ----------
    paths
        Local files. Those that were vetted before, and have not changed since, cost nothing.

    Raises
    ------
    SchemaError
        The HDF5 library crashed or did not come back on one of them. A file that it refuses is for
        the reader to report.

    Notes
    -----
    The first file takes about 0.2 s, each further one 1 ms (measured). The other process holds
    45 MB, and ends with this one. Where no Python can be started nothing is vetted.
    """
    with _lock:
        for path in paths:
            mark = _mark(path)
            if mark not in _vetted and sys.executable:
                _walker().ask(path)
                _vetted.add(mark)


_Mark = tuple[str, int, int, int]


def _mark(path: str) -> _Mark:
    about = os.stat(path)
    return os.path.abspath(path), about.st_ino, about.st_size, about.st_mtime_ns


_lock = threading.Lock()
_vetted: set[_Mark] = set()
_running: dict[int, _Walker] = {}


def _walker() -> _Walker:
    """Return the process that walks; a forked process starts one of its own."""
    pid = os.getpid()
    if pid not in _running:
        _running.clear()
        _running[pid] = _Walker()
    return _running[pid]


class _Walker:
    """The other process."""

    def __init__(self) -> None:
        # -P: the folder of the script is none of its places to import from
        script = Path(__file__).with_name("hdf5_walk.py")
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(script), str(SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # an interrupt is for us: it waits for our next word
            start_new_session=True,
        )
        atexit.register(self.close)

    def ask(self, path: str) -> None:
        """Have one file walked through."""
        answer = ""
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(path) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        if answer:
            return
        _running.clear()
        fault = _FAULTS.get(self.close())
        if fault is not None:
            raise SchemaError(
                f"{os.path.basename(path)} is not a readable HDF5 file: the HDF5 library {fault} "
                "on it, so it is damaged; write it again"
            )

    def close(self) -> int:
        """End the process, and return its exit code."""
        atexit.unregister(self.close)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        try:
            return self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            # a forked process may hold the other end of its input open
            self._process.kill()
            return self._process.wait()


# Any other end of that process (there is no Python, or no memory for it) says nothing of the file.
_FAULTS = {
    -signal.SIGPROF: "does not come back",
    -signal.SIGSEGV: "crashes",
    -signal.SIGBUS: "crashes",
    -signal.SIGFPE: "crashes",
    -signal.SIGABRT: "aborts",
}
