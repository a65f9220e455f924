"""The cohorts that benchmarks run on: made from a seed, in float32, with both signals in them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

N_LABELS, N_CENTRES, GROUP_ROWS = 5, 4, 50
BLOCK = 4096


def manifest(n: int, seed: int = 0) -> pd.DataFrame:
    """n rows in groups of 50 that share a centre; labels are balanced within a group."""
    rng = np.random.default_rng([seed, 1])
    group = np.arange(n) // GROUP_ROWS
    centre = rng.integers(0, N_CENTRES, group[-1] + 1)[group]
    label = rng.integers(0, N_LABELS, n)
    return pd.DataFrame(
        {
            "sample_id": np.char.add("s", np.arange(n).astype(str)),
            "label": np.char.add("class-", label.astype(str)),
            "center": np.char.add("center-", centre.astype(str)),
            "group_id": np.char.add("slide-", group.astype(str)),
            "image_path": "tile.png",
        }
    )


def blocks(frame: pd.DataFrame, d: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Rows of the embedding, 4,096 at a time: noise, a part of the label, a part of the centre."""
    rng = np.random.default_rng([seed, 2])
    of_label = rng.normal(size=(N_LABELS, d)).astype(np.float32) * np.float32(0.25)
    of_centre = rng.normal(size=(N_CENTRES, d)).astype(np.float32) * np.float32(0.25)
    label = pd.factorize(frame["label"], sort=True)[0]
    centre = pd.factorize(frame["center"], sort=True)[0]
    for number, lo in enumerate(range(0, len(frame), BLOCK)):
        mine = slice(lo, min(len(frame), lo + BLOCK))
        noise = np.random.default_rng([seed, 3, number]).standard_normal(
            (mine.stop - mine.start, d), dtype=np.float32
        )
        yield noise + of_label[label[mine]] + of_centre[centre[mine]]


def embedding(frame: pd.DataFrame, d: int, seed: int = 0) -> np.ndarray:
    """The whole embedding in memory."""
    return np.concatenate(list(blocks(frame, d, seed)))
