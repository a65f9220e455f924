"""Progress of a long step: a bar on a terminal and in a notebook, plain lines elsewhere."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from croma_dask import markup

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

__all__ = ["Progress"]

FIRST_LINE_SECONDS = 5.0
LINE_SECONDS = 30.0
SHOWN_SECONDS = 1.0
"""A notebook keeps what is shown: a step that is over before that leaves nothing behind."""

REFRESH_SECONDS = 0.25


class Progress:
    """Show how far a step has come: on standard error, or below the cell of a notebook.

    Parameters
    ----------
    label
        What is being done, for example ``"ingest"``.
    total
        Number of units that the step consists of.
    unit
        What is counted, in the plural.
    quiet
        Show nothing at all.
    stream
        Where to write; standard error by default.

    Notes
    -----
    On a terminal a bar is drawn by `rich`, which is imported only then. In a Jupyter kernel a step
    of more than a second has one bar, which is redrawn in place at most four times a second and
    ends as one line; no widget is needed. Elsewhere (a log file, a workflow manager) a line is
    written after five seconds and then every half minute, and one at the end of a step that took
    longer than that. Any thread may advance it.

    Examples
    --------
    >>> with Progress("ingest", 10, quiet=True) as progress:
    ...     progress.advance(10)
    >>> progress.done
    10
    """

    def __init__(
        self,
        label: str,
        total: int,
        unit: str = "rows",
        quiet: bool = False,
        *,
        stream: TextIO | None = None,
    ) -> None:
        self.label = label
        self.total = total
        self.unit = unit
        self.quiet = quiet
        self.done = 0
        self._stream = stream
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._page: _Handle | None = None
        self._in_notebook = False
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._skipped = 0
        self._started = self._next_line = 0.0
        self._wrote_line = False
        self._closed = False

    def __enter__(self) -> Progress:
        """Start the clock, and the bar where there is a terminal."""
        self._closed = False
        self._started = time.monotonic()
        self._next_line = self._started + FIRST_LINE_SECONDS
        if self._stream is None:
            self._stream = sys.stderr
            self._in_notebook = not self.quiet and not self._stream.isatty() and _is_notebook()
        if self._in_notebook:
            self._next_line = self._started + SHOWN_SECONDS
            # So that the first task of a long step is not waited for.
            self._timer = threading.Timer(SHOWN_SECONDS, self.advance, [0])
            self._timer.daemon = True
            self._timer.start()
        elif not self.quiet and self._stream.isatty():
            self._start_bar(self._stream)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take the bar down, or write the last line."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            # A thread that waits for the lock, such as the timer's, must not draw after the end.
            self._closed = True
            if self._bar is not None:
                self._bar.stop()
            elif self._page is not None:
                # Over or not, the bar does not stay as if it still moved.
                self._draw(self._line(last=True) + (" (stopped)" if exc_type else ""), bar=False)
            elif self._wrote_line and not self.quiet and exc_type is None:
                self._write_line(last=True)

    def advance(self, n: int) -> None:
        """Count `n` more units as done."""
        with self._lock:
            self.done += n
            if self.quiet or self._closed:
                return
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self.done, rate=self._rate_text())
            elif self._started and time.monotonic() >= self._next_line:
                if self._in_notebook:
                    self._next_line = time.monotonic() + REFRESH_SECONDS
                    self._draw(self._line())
                else:
                    self._write_line()

    def skip(self, n: int) -> None:
        """Count `n` units as done before this run began: they do not count for the rate."""
        with self._lock:
            self._skipped += n
        self.advance(n)

    def _rate(self) -> float:
        elapsed = max(time.monotonic() - self._started, 1e-9)
        return (self.done - self._skipped) / elapsed

    def _rate_text(self) -> str:
        return f"{self._rate():,.0f} {self.unit}/s"

    def _line(self, *, last: bool = False) -> str:
        text = f"{self.label}: {self.done:,} of {self.total:,} {self.unit}, {self._rate_text()}"
        if last:
            text += f", took {_clock(time.monotonic() - self._started)}"
        elif self._rate() > 0:
            text += f", {_clock(max(self.total - self.done, 0) / self._rate())} left"
        return text

    def _write_line(self, last: bool = False) -> None:
        self._wrote_line = True
        self._next_line = time.monotonic() + LINE_SECONDS
        print(self._line(last=last), file=self._stream, flush=True)

    def _draw(self, text: str, *, bar: bool = True) -> None:
        """Redraw the bar of a notebook in place; from any thread, under the lock."""
        shown = markup.bar(self.done, self.total, text) if bar else markup.block("", text, "")
        bundle = {"text/plain": text, "text/html": shown}
        try:
            if self._page is None:
                ipython = importlib.import_module("IPython.display")
                self._page = ipython.display(bundle, raw=True, display_id=True)
            else:
                self._page.update(bundle, raw=True)
        except Exception:  # noqa: BLE001
            # Whatever a front end objects to, the step itself goes on, and is told of in lines.
            self._page, self._in_notebook = None, False

    def _start_bar(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self._task = self._bar.add_task(self.label, total=self.total, rate="")
        self._bar.start()


class _Handle(Protocol):
    """What IPython returns of something displayed."""

    def update(self, obj: object, *, raw: bool) -> None:
        """Show something else in its place."""


def _is_notebook() -> bool:
    """Whether this process is a kernel that shows HTML: never imports IPython to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _clock(seconds: float) -> str:
    """Write a duration as ``m:ss`` or ``h:mm:ss``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
