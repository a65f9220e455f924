"""RI, MaRI and CRoMa of one cohort: one `score` against croma's three calls and faiss's search."""

from __future__ import annotations

import os

import numpy as np

from benchmarks import timing

K = [5, 11, 21, 51]


def main(n: int = 20_000, d: int = 1_024, runs: int = 3) -> None:
    """Compare on the same rows, in the same run."""
    import croma
    import faiss

    import croma_dask as cd

    threads = len(os.sched_getaffinity(0))
    frame, x = timing.frame_and_rows(n, d)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    faiss.omp_set_num_threads(threads)

    def flat() -> None:
        index = faiss.IndexFlatIP(d)
        index.add(unit)
        index.search(unit, max(K))

    def reference() -> None:
        common = {"confounder_column": "center"}
        croma.RI.compute(x, frame, k_candidates=K, **common)
        croma.MaRI.compute(x, frame, k_candidates=K, **common)
        croma.CRoMa.compute(x, frame, m=5, **common)

    timing.warm_up()
    seconds = timing.interleaved(
        {
            "croma-dask, `score` (RI + MaRI + CRoMa)": lambda: cd.score(
                x, frame, confounder="center", k_candidates=K
            ),
            f"faiss `IndexFlatIP`, k = {max(K)}": flat,
            "float32 matrix product, full square": lambda: timing.product(unit, threads),
        },
        runs,
    )
    seconds["croma 1.0.1, three calls"] = timing.timed(reference)
    ours = next(iter(seconds.values()))
    timing.table(
        [f"{n:,} x {d:,}, {threads} cores", "seconds", "croma-dask takes"],
        [(name, f"{s:.2f}", f"{ours / s:.3f} of it") for name, s in seconds.items()],
    )
