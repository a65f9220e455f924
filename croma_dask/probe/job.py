"""The tasks of a sweep: fit the probe of one split and replicate; score all probes on some rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.index.resident import resident
from croma_dask.index.scratch import Scratch
from croma_dask.index.source import RowSource, TakenRows
from croma_dask.index.threads import one_blas_thread
from croma_dask.probe.cut import Cut
from croma_dask.probe.fit import FittedProbe, count_hits, fit_probe, predict
from croma_dask.probe.slides import CellOrder

__all__ = ["BLOCK_ROWS", "Front", "SweepJob", "fit_split", "read_fit", "read_hits", "score_span"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

BLOCK_ROWS = 4096
"""Rows that are predicted together: a fixed grid, so that no option moves a bit."""


@dataclass(frozen=True)
class SweepJob:
    """A sweep as its tasks see it; it carries no rows and no labels.

    Attributes
    ----------
    sources
        Stored rows of the sweep and of each further test set.
    mapped
        Whether the rows of each are some of the stored ones: which, a file in scratch says.
    n_rows
        Rows of each.
    scratch
        Where orders, labels and rows are found, and results go.
    cut
        Which rows every split takes.
    iterations, n_classes, n_scored
        Replicates; classes of the sweep; classes of the test sets, which may be more.
    most
        Replicates whose rows a process holds at once; 0: every probe reads its own.
    """

    sources: tuple[RowSource, ...]
    mapped: tuple[bool, ...]
    n_rows: tuple[int, ...]
    scratch: Scratch
    cut: Cut
    iterations: int
    n_classes: int
    n_scored: int
    most: int

    def file(self, what: str, which: int) -> Path:
        """Place of what is kept of the rows of a test set; 0 is the cohort of the sweep itself."""
        return Path(self.scratch.path) / f"{what}-{which:03d}.bin"

    def take(self, rows: I64) -> Any:
        """Read rows of the sweep, in the order asked for."""
        if self.mapped[0]:
            rows = np.asarray(np.memmap(self.file("rows", 0), np.int64, mode="r")[rows])
        return TakenRows(self.sources[0], rows).read(0, rows.size)

    def read(self, which: int, lo: int, hi: int) -> Any:
        """Read consecutive rows of a test set."""
        if not self.mapped[which]:
            return self.sources[which].read(lo, hi)
        rows = np.fromfile(self.file("rows", which), np.int64, hi - lo, offset=8 * lo)
        return TakenRows(self.sources[which], rows).read(0, rows.size)


@dataclass(frozen=True)
class Front:
    """The rows of a replicate that come before those that are held out, cell by cell.

    Attributes
    ----------
    rows, label
        (f,) rows of the sweep in the order of the replicate, and their classes.
    edges
        (n_confounders * n_classes + 1,) where each cell begins, confounder-major.
    """

    rows: I64
    label: I64
    edges: I64

    @classmethod
    def of(cls, order: CellOrder, labels: I64, cut: Cut) -> Front:
        """Take the front of every cell of a replicate's order."""
        first = max(cut.first_held_out)
        parts = [cell[:first] for level in order for cell in level]
        rows = np.concatenate(parts)
        return cls(rows, labels[rows], np.cumsum([0, *(part.size for part in parts)]))

    @property
    def place(self) -> I64:
        """(f,) position of each row within its cell."""
        sizes = np.diff(self.edges)
        place: I64 = np.arange(self.rows.size) - np.repeat(self.edges[:-1], sizes)
        return place

    def cells(self, n_classes: int) -> CellOrder:
        """Places in the front instead of rows: what a `Cut` takes of them."""
        parts = [np.arange(a, b) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)]
        return [parts[i : i + n_classes] for i in range(0, len(parts), n_classes)]

    def trained(self, cut: Cut, n_classes: int) -> NDArray[np.bool_]:
        """(f,) rows that any split trains or validates on."""
        used = np.zeros(self.rows.size, bool)
        cells = self.cells(n_classes)
        for split in range(cut.n_splits):
            used[cut.training(split, cells)] = True
            used[cut.validation(split, cells)] = True
        return used


def fit_split(job: SweepJob, split: int, replicate: int) -> int:
    """Fit the probe of a split and replicate; return how many values of C were tried."""
    name = f"fit-{replicate:05d}-{split:03d}.npz"
    kept = job.scratch.find(name)
    if kept is not None:
        return int(kept["n_fits"])
    front = Front(**job.scratch.read(f"order-{replicate:05d}.npz"))
    cells = front.cells(job.n_classes)
    train, validate = job.cut.training(split, cells), job.cut.validation(split, cells)
    with one_blas_thread():
        x, v = _rows(job, replicate, front, train, validate)
        probe = fit_probe(x, front.label[train], v, front.label[validate])
    job.scratch.write(name, {key: np.asarray(value) for key, value in vars(probe).items()})
    return probe.n_fits


def _rows(
    job: SweepJob, replicate: int, front: Front, train: I64, validate: I64
) -> tuple[F64, F64]:
    """Rows at some places of the front as float64, C-contiguous."""
    if not job.most:
        return _wide(job.take(front.rows[train])), _wide(job.take(front.rows[validate]))
    used = front.trained(job.cut, job.n_classes)
    with resident(
        (job.scratch.path, replicate), lambda: job.take(front.rows[used]), most=job.most
    ) as rows:
        at = np.cumsum(used) - 1
        return _wide(rows[at[train]]), _wide(rows[at[validate]])


def _wide(rows: Any) -> F64:
    return np.ascontiguousarray(rows, dtype=np.float64)


def read_fit(job: SweepJob, split: int, replicate: int) -> FittedProbe:
    """Read the probe of a split and replicate."""
    kept = job.scratch.read(f"fit-{replicate:05d}-{split:03d}.npz")
    return FittedProbe(
        kept["classes"], kept["coef"], kept["intercept"], float(kept["C"]),
        float(kept["validation_score"]), int(kept["n_iter"]), bool(kept["converged"]),
        int(kept["n_fits"]),
    )  # fmt: skip


def score_span(job: SweepJob, which: int, lo: int, hi: int) -> int:
    """Count the hits of all probes on rows lo..hi of a test set; return how many rows that are.

    The rows are read once, whatever the number of probes. `lo` lies on the grid of blocks.
    """
    name = _hits_name(which, lo)
    if job.scratch.find(name) is not None:
        return hi - lo
    codes = np.fromfile(job.file("labels", which), np.int32, hi - lo, offset=4 * lo)
    labels = codes.astype(np.int64)
    n_splits = job.cut.n_splits
    shape = (job.iterations, n_splits, job.n_scored)
    hits, totals = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    classes = np.arange(job.n_scored)
    held = list(_held_out(job, lo, hi)) if which == 0 else []
    probes = [
        [read_fit(job, split, replicate) for split in range(n_splits)]
        for replicate in range(job.iterations)
    ]
    with one_blas_thread():
        for a in range(lo, hi, BLOCK_ROWS):
            b = min(hi, a + BLOCK_ROWS)
            x, own = _wide(job.read(which, a, b)), labels[a - lo : b - lo]
            for replicate, row in enumerate(probes):
                for split, probe in enumerate(row):
                    # All rows of the block, held out or not: its bits are then those of any order.
                    predicted = predict(probe, x)
                    mine = held[replicate][split][a - lo : b - lo] if held else slice(None)
                    found = count_hits(predicted[mine], own[mine], classes)
                    hits[replicate, split] += found[0]
                    totals[replicate, split] += found[1]
    job.scratch.write(name, {"hits": hits, "totals": totals})
    return hi - lo


def _held_out(job: SweepJob, lo: int, hi: int) -> Iterator[list[NDArray[np.bool_]]]:
    """Of each replicate the rows lo..hi that each split is tested on."""
    for replicate in range(job.iterations):
        front = Front(**job.scratch.read(f"order-{replicate:05d}.npz"))
        here = (front.rows >= lo) & (front.rows < hi)
        rows, place = front.rows[here] - lo, front.place[here]
        masks: dict[int, NDArray[np.bool_]] = {}
        for first in set(job.cut.first_held_out):
            masks[first] = np.ones(hi - lo, bool)
            masks[first][rows[place < first]] = False
        yield [masks[first] for first in job.cut.first_held_out]


def _hits_name(which: int, lo: int) -> str:
    return f"hits-{which:03d}-{lo:012d}.npz"


def read_hits(job: SweepJob, which: int, starts: list[int]) -> tuple[I64, I64]:
    """Add up the (iterations, splits, classes) hits and rows of all spans of a test set."""
    parts = [job.scratch.read(_hits_name(which, lo)) for lo in starts]
    return sum(part["hits"] for part in parts), sum(part["totals"] for part in parts)
