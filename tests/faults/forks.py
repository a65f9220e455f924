"""Processes that are forked from this one, which has compiled everything: cheap to start and kill.

A command of its own interpreter compiles its kernels for seconds before there is anything to
disturb. A child of this process has them, is a process like any other to the kernel, and prints to
files. It must not be forked while this process runs anything in threads.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 300.0
"""Seconds after which what has not ended hangs."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes
    ----------
    code
        Exit code; negative: the signal; None: it hung, and was killed.
    out, err
        What it printed.
    """

    code: int | None
    out: str
    err: str

    @property
    def killed(self) -> bool:
        """Whether a kill -9 ended it."""
        return self.code == -signal.SIGKILL

    def complaint(self) -> str:
        """What is wrong with a refusal; "" of a clear one: one error, no traceback, a code."""
        errors = [line for line in self.err.splitlines() if line.lower().startswith("error: ")]
        if self.code is None:
            return f"it hung for {PATIENCE:.0f} s"
        if "Traceback" in self.err:
            return "a traceback: " + self.err.strip().splitlines()[-1][:300]
        if self.code <= 0:
            return f"exit code {self.code}"
        if len(errors) != 1:
            return f"{len(errors)} errors are told: {self.err[-300:]!r}"
        return ""


class Child:
    """A forked process with its output in files.

    Parameters
    ----------
    function
        What it runs; it exits with what that raises as `SystemExit`, and with 1 and a traceback
        for any other exception.
    folder
        For its output.
    """

    def __init__(self, function: Callable[[], object], folder: Path) -> None:
        name = uuid.uuid4().hex[:8]
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        self.begun = time.monotonic()
        self._status: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _be_child(function, self._out, self._err)
        # Both do this: whoever comes first.
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)

    def over(self) -> bool:
        """Whether it has ended."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
        return self._status is not None

    def signal(self, number: int) -> None:
        """Send a signal to this process, and to none that it has started."""
        if not self.over():
            os.kill(self.pid, number)

    def end(self, patience: float = PATIENCE) -> Ended:
        """Wait for the end; of what does not end, make one."""
        deadline = time.monotonic() + patience
        while not self.over() and time.monotonic() < deadline:
            time.sleep(0.002)
        hung = not self.over()
        self.bury()
        assert self._status is not None
        code = None if hung else os.waitstatus_to_exitcode(self._status)
        return Ended(code, _text(self._out), _text(self._err))

    def bury(self) -> None:
        """Kill what is left of it, and of what it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        while not self.over():
            time.sleep(0.002)


def _be_child(function: Callable[[], object], out: Path, err: Path) -> None:
    """What the child does in place of going on; it never returns."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        for path, number in ((out, 1), (err, 2)):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            os.dup2(handle, number)
            os.close(handle)
        _forget_threads()
        sys.stdout = open(1, "w", closefd=False)
        sys.stderr = open(2, "w", closefd=False)
        function()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _forget_threads() -> None:
    """Let go of pools whose threads are the parent's: a child has none of them."""
    if "dask.threaded" in sys.modules:
        dask_threaded: Any = sys.modules["dask.threaded"]
        dask_threaded.default_pool = None
        dask_threaded.pools.clear()


def ask(question: Callable[[], Any], folder: Path) -> Any:
    """Let a child find something out: what it opens and starts goes with it. JSON comes back."""
    answer = folder / f"{uuid.uuid4().hex[:8]}.json"
    done = Child(lambda: answer.write_text(json.dumps(question())), folder).end()
    if done.code != 0:
        raise RuntimeError(f"the harness could not find out: {done.err[-2000:]}")
    found = json.loads(answer.read_text())
    answer.unlink()
    return found


def command(arguments: Sequence[str]) -> None:
    """Run a command as its entry point does."""
    from croma_dask.cli import main

    main(args=list(arguments), prog_name="croma-dask")


def die_at(change: int, below: Path, delay: float = 0.0) -> None:
    """Kill this process at its n-th change of files below a folder, or some time after it.

    Parameters
    ----------
    change
        Opening for writing, renaming, deleting, making and deleting folders each count one; the
        process dies before the change is made, so between any two of them.
    below
        Nothing elsewhere counts.
    delay
        Seconds from the change to the end, for deaths in the middle of what is written then.
    """
    left = iter(range(change - 1, -1, -1))

    def meet(path: str) -> None:
        if next(left, -1) == 0:
            if delay:
                threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    on_change(meet, below)


def die_at_place(renaming: int, folder: Path) -> None:
    """Kill this process before it gives something its name in a folder, or takes it, n-th time."""
    left = iter(range(renaming - 1, -1, -1))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename":
            names = (os.fspath(path) for path in arguments[:2])
            if str(folder) in map(os.path.dirname, names) and next(left, -1) == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def count_changes(count: Path, below: Path) -> None:
    """Write down how many changes of files this process makes below a folder."""
    handle = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    on_change(lambda path: os.write(handle, b"."), below)


def on_change(tell: Callable[[str], object], below: Path) -> None:
    """Call a function before every change of files that this process makes below a folder."""
    start = str(below)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            flags = arguments[2]
            if not isinstance(flags, int) or not flags & _WRITING:
                return
        elif event not in _CHANGES:
            return
        path = arguments[0]
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(start):
            tell(str(path))

    sys.addaudithook(hook)


@contextlib.contextmanager
def buried(*children: Child) -> Iterator[None]:
    """Bury children at the end, whatever happens."""
    try:
        yield
    finally:
        for child in children:
            child.bury()


def _text(path: Path) -> str:
    """What a process has said; nothing where it was killed before it could say anything."""
    return path.read_text(errors="replace") if path.exists() else ""
