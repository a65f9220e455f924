"""Times and tables."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import cohorts


def timed(function: Callable[[], Any]) -> float:
    """Seconds of one call, warnings of the metrics left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        function()
        return time.perf_counter() - started


def interleaved(functions: dict[str, Callable[[], Any]], runs: int) -> dict[str, float]:
    """Median seconds of each, measured in turn so that drift of the machine hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(runs):
        for name, function in functions.items():
            # Threads of OpenMP spin for a while after their library's call and would be charged to
            # whoever comes next.
            time.sleep(1.0)
            seconds[name].append(timed(function))
    return {name: median(values) for name, values in seconds.items()}


def warm_up(*kinds: str) -> None:
    """Compile the kernels (of indexes as well), which a process does once."""
    import croma_dask as cd

    frame = cohorts.manifest(6_000, seed=9)
    rows = cohorts.embedding(frame, 32, seed=9)
    for kind in ("exact", *kinds):
        timed(lambda kind=kind: cd.score(rows, frame, confounder="center", index=kind))


def product(x: np.ndarray, n_threads: int) -> None:
    """The full square of products that a search without symmetry needs, in panels."""
    from threadpoolctl import threadpool_limits

    out = np.empty((4_000, x.shape[0]), np.float32)
    with threadpool_limits(n_threads, user_api="blas"):
        for lo in range(0, x.shape[0], 4_000):
            panel = x[lo : lo + 4_000]
            np.matmul(panel, x.T, out=out[: len(panel)])


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a table in Markdown."""
    header = list(header)
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def frame_and_rows(n: int, d: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A cohort in memory."""
    frame = cohorts.manifest(n)
    return frame, cohorts.embedding(frame, d)
