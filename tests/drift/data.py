"""Cohorts whose every bit follows from integers, without a generator, libm or BLAS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Made:
    """Rows, their manifest, and the manifest of the same rows in 2 x 2 comparisons."""

    x: Any
    frame: pd.DataFrame
    paired_x: Any
    paired_frame: pd.DataFrame


def words(seed: int, n: int) -> np.ndarray:
    """(n,) pseudo-random uint64: splitmix64, in wrapping integer arithmetic."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def bell(seed: int, *shape: int) -> np.ndarray:
    """Float64, nearly normal: sums of twelve 20-bit integers less their mean, all of it exact."""
    n = int(np.prod(shape))
    cut = (words(seed, 12 * n) >> np.uint64(44)).astype(np.int64).reshape(12, n)
    total = np.zeros(n, np.int64)
    for part in cut:
        total += part
    return ((total - 6 * (1 << 20)) / float(1 << 20)).reshape(shape)


def cohort(
    dtype: str, *, n: int = 360, n_features: int = 33, seed: int = 1, zero: bool = True
) -> Made:
    """4 labels, 3 centres, 60 groups; some rows are equal, some nearly, one is zero if asked for.

    Names sort differently in many languages, and upper and lower case of them differ in Turkish.
    """
    at = np.arange(n)
    label, center = at % 4, (at // 4 + at // 40) % 3
    x = (
        1.5 * bell(seed, 4, n_features)[label]
        + bell(seed + 1, 3, n_features)[center]
        + 2.0 * bell(seed + 2, n, n_features)
    )
    x[40:44] = x[80]  # ties: equal distances to everything
    x[100] = x[101] * (1.0 + 2.0**-20)
    if zero:
        x[200] = 0.0
    x *= (2.0 ** (words(seed + 3, n) % np.uint64(7)).astype(np.int64))[:, None]
    frame = pd.DataFrame(
        {
            "sample_id": [f"s{i:04d}" for i in at],
            "label": np.array(["Igel", "ähnlich", "zebra", "ısı"], object)[label],
            "center": np.array(["UMCU", "İzmir", "örtlich"], object)[center],
            "group_id": [f"g{i}" for i in (at // 6)],
        }
    )
    two = [("Igel", "zebra"), ("ähnlich", "ısı")]
    parts = [
        frame[frame.label.isin(pair) & frame.center.isin(["UMCU", "örtlich"])].assign(
            subset=f"comparison {number}"
        )
        for number, pair in enumerate(two)
    ]
    both = pd.concat(parts)
    rows = x.astype(dtype)
    return Made(rows, frame, rows[both.index.to_numpy()], both.reset_index(drop=True))
