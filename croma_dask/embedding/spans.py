"""One pass over all rows of a source: spans of a fixed grid, on threads or on a cluster.

Spans begin and end where no option can move them, and what they give is put together in their
order: so float sums have the same bits whatever the chunks, the threads and the workers.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from croma_dask.cluster import tasks_a_process
from croma_dask.cohort.layout import chunk_rows_for
from croma_dask.fingerprint import BLOCK_ROWS
from croma_dask.index.source import ArraySource, OfAnother, RowSource, TakenRows, spool
from croma_dask.options import Options
from croma_dask.progress import Progress
from croma_dask.resume import own_folder
from croma_dask.tasks import run_graph

__all__ = [
    "SPAN_ROWS",
    "Column",
    "blocks",
    "by_reference",
    "folder_for",
    "keep_column",
    "over_spans",
    "rows_at_once",
]

SPAN_ROWS = 8 * BLOCK_ROWS
"""Rows of a task: enough for a task, few enough that a few cores share a small cohort."""

T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """Values of all rows, held here or in a file that workers see.

    Attributes
    ----------
    values
        (n,) the values, or the path of a file of them.
    dtype
        Of the values.
    """

    values: Any
    dtype: np.dtype[Any]

    def read(self, lo: int, hi: int) -> Any:
        """Values of rows lo..hi."""
        if not isinstance(self.values, str):
            return self.values[lo:hi]
        size = self.dtype.itemsize
        return np.fromfile(self.values, self.dtype, hi - lo, offset=size * lo)

    def whole(self) -> Any:
        """All values, mapped where they are in a file (privately: kernels can write to them)."""
        if not isinstance(self.values, str):
            return self.values
        return np.asarray(np.memmap(self.values, self.dtype, "c"))


@dataclass(frozen=True)
class _MappedRows(OfAnother):
    """Rows of another source, which a column names."""

    source: RowSource
    column: Column
    n_rows: int

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        return self._taken(lo, hi).read(0, hi - lo)

    def pieces(self, lo: int, hi: int) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
        return self._taken(lo, hi).pieces(0, hi - lo)

    def _taken(self, lo: int, hi: int) -> TakenRows:
        return TakenRows(self.source, self.column.read(lo, hi))


def keep_column(values: Any, name: str, folder: str | None) -> Column:
    """Make a column: a file of `folder` for workers, or as it is where `folder` is None."""
    values = np.ascontiguousarray(values)
    if folder is None:
        return Column(values, values.dtype)
    path = str(Path(folder) / f"{name}.bin")
    values.tofile(path)
    return Column(path, values.dtype)


def by_reference(source: RowSource, folder: str | None) -> RowSource:
    """Make a source that is small enough to be sent to workers; itself where `folder` is None.

    Arrays of this process, of rows or of row numbers, go to files of the folder.
    """
    if folder is None:
        return source
    if isinstance(source, TakenRows):
        # A name of its own: a source may be taken from one that is itself taken from another.
        name = f"taken-{uuid.uuid4().hex}"
        column = keep_column(np.asarray(source.rows, np.int64), name, folder)
        return _MappedRows(by_reference(source.source, folder), column, source.n_rows)
    if isinstance(source, ArraySource) and isinstance(source.array, np.ndarray):
        return spool(source.array, str(Path(folder) / "rows.npy"), step=source.step)
    return source


def folder_for(client: Any, options: Options, keep: contextlib.ExitStack) -> str | None:
    """Make a folder for what workers are to read; None where there are none."""
    return None if client is None else own_folder(options, "rows-", keep)


def blocks(lo: int, hi: int, rows: int = BLOCK_ROWS) -> Iterator[tuple[int, int]]:
    """Cut the rows lo..hi into blocks of the grid, or of fewer rows; `lo` lies on it."""
    for at in range(lo, hi, rows):
        yield at, min(hi, at + rows)


def rows_at_once(source: RowSource) -> int:
    """Rows that a task converts together: a block of the grid, of wide rows a chunk of a store."""
    return min(BLOCK_ROWS, chunk_rows_for(source.n_features, source.dtype.itemsize))


def over_spans(
    function: Callable[[Any, int, int], T], shared: Any, n_rows: int, *, name: str,
    options: Options, client: Any = None, n_tasks: int | None = None, rows: int | None = None,
    at_once: int | None = None,
) -> Iterator[T]:  # fmt: skip
    """Call `function(shared, lo, hi)` for each span of the rows; give the results in order.

    Parameters
    ----------
    function
        A function of a module, for workers.
    shared
        What all calls share, an object of a class of its own (a tuple would be taken for a task).
    n_rows
        Rows to cut into spans.
    name
        What the step is called on the progress bar and the dashboard.
    options, client
        Progress, threads; cluster, or None for threads of this process.
    n_tasks
        Threads of this process; None for what the options say.
    rows
        Rows of a span, a multiple of those of a block; None for `SPAN_ROWS`.
    at_once
        Results to hold at a time: so many spans are done, and their results given, before the next
        ones are begun. None for all.
    """
    rows = rows or SPAN_ROWS
    spans = [(lo, min(n_rows, lo + rows)) for lo in range(0, n_rows, rows)]
    if len(spans) == 1:
        yield function(shared, *spans[0])
        return
    step, at_once = name.replace(" ", "-"), at_once or len(spans)
    with Progress(name, n_rows, "rows", options.quiet) as progress:
        for first in range(0, len(spans), at_once):
            token = uuid.uuid4().hex
            node = f"croma-{step}-shared-{token}"
            work = {
                f"croma-{step}-{token}-{first + number:06d}": span
                for number, span in enumerate(spans[first : first + at_once])
            }
            graph: dict[str, Any] = {node: shared}
            graph |= {key: (function, node, *span) for key, span in work.items()}

            def advance(key: str, _: Any, work: dict[str, tuple[int, int]] = work) -> None:
                if key in work:
                    progress.advance(work[key][1] - work[key][0])

            found = run_graph(
                graph, list(work), client=client, on_done=advance,
                n_threads=n_tasks or tasks_a_process(client, options),
            )  # fmt: skip
            # Each is let go as soon as it has been used.
            found.reverse()
            while found:
                yield found.pop()
