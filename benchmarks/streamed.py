"""The streamed pass from a Zarr store against the rate of the machine's matrix product."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import cohorts, timing


def store(folder: Path, n: int, d: int) -> str:
    """Write a cohort store, block by block, through the reader of .npy files."""
    import croma_dask as cd

    frame = cohorts.manifest(n)
    rows = np.lib.format.open_memmap(folder / "rows.npy", mode="w+", dtype=np.float32, shape=(n, d))
    lo = 0
    for block in cohorts.blocks(frame, d):
        rows[lo : lo + len(block)] = block
        lo += len(block)
    rows.flush()
    frame.to_csv(folder / "manifest.csv", index=False)
    place = str(folder / "cohort.zarr")
    cd.ingest(folder / "rows.npy", folder / "manifest.csv", place)
    (folder / "rows.npy").unlink()
    return place


def main(n: int = 40_000, d: int = 1_024, runs: int = 3) -> None:
    """Compare in one run."""
    import croma_dask as cd
    from croma_dask.cohort.manifest import ColumnNames
    from croma_dask.cohort.store import StoredCohort
    from croma_dask.options import merged
    from croma_dask.robustness.evaluate import searched
    from croma_dask.robustness.request import Request, prepare

    threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        place = store(Path(folder), n, d)
        x = cohorts.embedding(cohorts.manifest(n), d)
        timing.warm_up()
        plan = cd.plan(place, confounder="center", memory="4GB")
        request = Request.of(("RI", "MaRI", "CRoMa"), k_candidates=(5, 11, 21, 51), m=5)
        inputs = prepare(StoredCohort(place), None, ColumnNames("center"), "all")

        def search_alone() -> None:
            with contextlib.ExitStack() as keep:
                settings = merged(memory="4GB", scratch=folder)
                searched(inputs, request.spec, request.n_scores, settings, None, keep)

        seconds = timing.interleaved(
            {
                f"croma-dask, `score` from Zarr, {plan.n_ranges} ranges": lambda: cd.score(
                    place, confounder="center", memory="4GB", scratch=folder
                ),
                "croma-dask, the search alone": search_alone,
                "float32 matrix product, full square": lambda: timing.product(x, threads),
            },
            runs,
        )
    ours, _, square = seconds.values()
    timing.table(
        [f"{n:,} x {d:,}, {threads} cores", "seconds", "rate of the full square"],
        [
            (name, f"{s:.2f}", f"{n * n * d / s / 1e9:.0f} G multiply-adds/s, {square / s:.0%}")
            for name, s in seconds.items()
        ],
    )
    print(f"\nplan said {plan.seconds:.1f} s; it took {ours:.1f} s")
