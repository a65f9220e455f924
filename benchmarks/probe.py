"""The probe sweep of PathoROB's camelyon schedule, against croma's and against its own plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import child, cohorts, timing

if TYPE_CHECKING:
    import xarray as xr

Row = dict[str, Any]

HARD, SEPARABLE = 0.035, 0.2
"""Length of the label's and of the confounder's part. With the first one classes overlap by several
per cent of the rows, and of those that also differ in the confounder by one or two."""


@dataclass(frozen=True)
class Cells(cohorts.Clustered):
    """Clustered rows of two confounders and two labels, cell after cell, in slides.

    Attributes
    ----------
    slides
        Slides of each of the four cells; a slide has `group_rows` rows.
    """

    n_labels: int = 2
    n_confounders: int = 2
    slides: int = 17

    @property
    def n_rows(self) -> int:
        """Rows of all four cells."""
        return 4 * self.slides * self.group_rows

    @classmethod
    def of(cls, part: float, slides: int, rows_per_slide: int) -> Row:
        """What JSON can say of a cohort; `part` is the length of the label's and confounder's."""
        return {
            "label_part": part, "confounder_part": part, "slides": slides,
            "group_rows": rows_per_slide,
        }  # fmt: skip

    def codes(self, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Label, confounder and slide of each row."""
        slide = np.arange(n) // self.group_rows
        cell = slide // self.slides
        return cell % 2, cell // 2, slide


def schedule_of(cells: Cells, splits: int) -> Any:
    from croma_dask.downstream import pathorob_schedule

    return pathorob_schedule("camelyon", rows_per_slide=cells.group_rows, n_splits=splits)


def make(_: child.Meter, place: str, d: int, cells: Row) -> Row:
    """Write a store, in a child so that its rows are not carried along."""
    made = Cells(**cells)
    return {"place": made.store(Path(place), made.n_rows, d)}


def ours(
    meter: child.Meter, place: str, d: int, cells: Row, splits: int, iterations: int,
    folder: str, memory: str | None,
) -> Row:  # fmt: skip
    """Sweep a store on as many threads as there are cores."""
    import sklearn.linear_model  # noqa: F401 - neither side is charged for it

    from croma_dask.probe.cohorts import plan_probe_sweep, sweep_cohort

    how: dict[str, Any] = {
        "confounder": "center", "schedule": schedule_of(Cells(**cells), splits),
        "rows_per_slide": cells["group_rows"], "iterations": iterations, "memory": memory,
        "scratch": f"{folder}/scratch",
    }  # fmt: skip
    plan = plan_probe_sweep(place, **how)
    found: list[xr.Dataset] = []
    seconds = timing.timed(
        lambda: found.append(sweep_cohort(place, resume=False, quiet=False, **how))
    )
    sweep = found[0]
    return {
        "seconds": seconds, "accuracies": sweep["in_domain"].values.tolist(),
        "fits": float(sweep["fits"].mean()), "perfect": int((sweep["validation_score"] == 1).sum()),
        "validation": float(sweep["validation_score"].mean()), "peak": meter.peak(),
        "planned": plan.peak, "planned_seconds": plan.seconds, "most": plan.most,
        "tasks": plan.tasks_at_once,
    }  # fmt: skip


def theirs(meter: child.Meter, d: int, cells: Row, splits: int, iterations: int) -> Row:
    """Sweep an array in memory; BLAS takes the threads that it takes by itself."""
    from croma.downstream import probe_sweep

    made = Cells(**cells)
    x = made.embedding(made.n_rows, d)
    labels, confounders, _ = made.codes(made.n_rows)
    found: list[np.ndarray] = []
    seconds = timing.timed(
        lambda: found.append(
            probe_sweep(
                x,
                confounders,
                labels,
                schedule=schedule_of(made, splits),
                rows_per_slide=made.group_rows,
                iterations=iterations,
            )  # fmt: skip
        )
    )
    return {"seconds": seconds, "accuracies": found[0].tolist(), "peak": meter.peak()}


def main(
    slides: int = 17, rows_per_slide: int = 300, d: int = 1_024, iterations: int = 2,
    splits: int = 8, threads: int = 2, large_slides: int = 200, large_splits: int = 2,
    allowed: str = "800MB", parts: Mapping[str, float] | None = None, folder: str | None = None,
) -> None:  # fmt: skip
    """Measure two difficulties, and a store that is larger than the memory it is swept in.

    `parts` are the lengths of the label's and the confounder's part by name. The store that the
    memory is measured with has `large_slides` slides a cell (0: without), and is swept on the first
    `large_splits` splits. Stores stay in `folder`, or the one that CROMA_DASK_BENCH names.
    """
    parts = parts or {"hard": HARD, "separable": SEPARABLE}
    with cohorts.kept_folder(folder) as kept:
        pairs = {}
        for name, part in parts.items():
            cells = Cells.of(part, slides, rows_per_slide)
            about = _stored(kept, f"{name}-{part}", d, cells)
            asked = {"d": d, "cells": cells, "splits": splits, "iterations": iterations}
            here = {"place": about, "folder": str(kept), "memory": None, **asked}
            pairs[name] = (
                child.run("probe:ours", threads=threads, **here),
                child.run("probe:theirs", threads=threads, **asked),
            )
        _speed(pairs, f"{4 * slides * rows_per_slide:,} x {d:,}, {splits * iterations} probes, "
                      f"{threads} cores")  # fmt: skip
        if not large_slides:
            return
        cells = Cells.of(SEPARABLE, large_slides, rows_per_slide)
        place = _stored(kept, f"large-{SEPARABLE}", d, cells)
        found = child.run(
            "probe:ours", threads=threads, place=place, d=d, cells=cells, splits=large_splits,
            iterations=1, folder=str(kept), memory=allowed,
        )  # fmt: skip
    _memory(found, Cells(**cells).n_rows, d, allowed)


def _stored(kept: Path, name: str, d: int, cells: Row) -> str:
    """Place of a store that is there afterwards."""
    place = kept / f"probe-{name}-{cells['slides']}x{cells['group_rows']}-{d}.zarr"
    return str(child.run("probe:make", place=str(place), d=d, cells=cells)["place"])


def _speed(pairs: dict[str, tuple[Row, Row]], title: str) -> None:
    lines = []
    for name, (mine, other) in pairs.items():
        difference = np.abs(np.subtract(mine["accuracies"], other["accuracies"])).max()
        probes = np.size(mine["accuracies"])
        lines.append((
            f"{name}: mean validation score {mine['validation']:.4f}, 1.0 in {mine['perfect']} of "
            f"{probes} probes", f"{mine['fits']:.1f} of 15", f"{mine['seconds']:.1f}",
            f"{mine['planned_seconds']:.0f}", f"{other['seconds']:.1f}",
            f"{other['seconds'] / mine['seconds']:.2f}",
            f"{difference:.1f}" if difference == 0.0 else f"{difference:.2e}",
            f"{mine['peak'] / 1e6:,.0f} MB, {other['peak'] / 1e6:,.0f} MB",
        ))  # fmt: skip
    timing.table(
        [title, "C tried a probe", "croma-dask from Zarr, s", "plan said at most",
         "croma in memory, s", "times as fast", "largest difference", "peak memory of each"],
        lines,
    )  # fmt: skip


def _memory(found: Row, n: int, d: int, allowed: str) -> None:
    print()
    timing.table(
        [f"{n:,} x {d:,} ({n * d * 4 / 1e9:.2f} GB)", "allowed", "plan", "measured"],
        [
            (
                f"peak above a bare Python, {found['tasks']} probes at once",
                allowed,
                f"{found['planned'] / 1e6:.0f} MB",
                f"{found['peak'] / 1e6:.0f} MB",
            )
        ],
    )
