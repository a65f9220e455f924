"""What small work takes: a demo-size run from the shell, the import, many small subsets."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from benchmarks import timing

DEMO = Path(__file__).resolve().parents[1] / "stores" / "digits_raw.zarr"


def process(*arguments: str, runs: int = 5) -> float:
    """Median wall seconds of a command as a whole process."""
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def subsets(n_subsets: int, rows: int = 40, d: int = 64) -> tuple[np.ndarray, pd.DataFrame]:
    """Complete 2x2 subsets of `rows` rows each."""
    rng = np.random.default_rng(0)
    n = n_subsets * rows
    at = np.arange(n)
    frame = pd.DataFrame(
        {
            "sample_id": at,
            "label": at % 2,
            "center": at // 2 % 2,
            "group_id": at // 4,
            "subset": np.char.zfill((at // rows).astype(str), 5),
        }
    )
    return rng.standard_normal((n, d), dtype=np.float32), frame


def main() -> None:
    """Measure."""
    import croma_dask as cd

    bare = process("-c", "pass")
    rows = [
        (
            "`croma-dask score` of the demo store, whole process",
            f"{process('-m', 'croma_dask.cli', 'score', str(DEMO), '--confounder', 'scanner'):.2f}",
        ),
        ("`import croma_dask`, above Python", f"{process('-c', 'import croma_dask') - bare:.2f}"),
        ("`import xarray`, above Python", f"{process('-c', 'import xarray') - bare:.2f}"),
    ]
    timing.warm_up()
    seconds = {}
    for count in (500, 5_000):
        x, frame = subsets(count)
        seconds[count] = timing.timed(
            lambda x=x, frame=frame: cd.score(
                x, frame, confounder="center", design="paired_2x2", k_candidates=(5, 11, 21)
            )
        )
        rows.append((f"{count:,} subsets of 40 rows, one `score`", f"{seconds[count]:.2f}"))
    rows.append(
        ("of ten times 500 subsets, 5,000 take", f"{seconds[5000] / seconds[500] / 10:.2f}")
    )
    timing.table(["", "seconds"], rows)
