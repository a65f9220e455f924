"""The cohorts that benchmarks run on: made from a seed, in float32, with both signals in them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

N_LABELS, N_CENTRES, GROUP_ROWS = 5, 4, 50
BLOCK = 4096


def manifest(n: int, seed: int = 0) -> pd.DataFrame:
    """n rows in groups of 50 that share a centre; labels are balanced within a group."""
    rng = np.random.default_rng([seed, 1])
    group = np.arange(n) // GROUP_ROWS
    centre = rng.integers(0, N_CENTRES, group[-1] + 1)[group]
    return _frame(rng.integers(0, N_LABELS, n), centre, group)


def _frame(label: np.ndarray, centre: np.ndarray, group: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "sample_id": np.char.add("s", np.arange(label.size).astype(str)),
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


@dataclass(frozen=True)
class Clustered:
    """A cohort with the structure that an index lives on: few directions carry most of the rows.

    A row is noise of length 1 on average, whose features fall off with a power, plus offsets of
    fixed lengths in random directions: of its label, of its confounder, and one that all rows
    share; and an offset of its group, which falls off like the noise. Every group of rows has one
    confounder; labels are drawn row by row. The same seed gives the same rows everywhere, and a
    longer cohort starts with other rows than a shorter one.

    Attributes
    ----------
    seed
        Of everything.
    label_part, confounder_part, group_part, shared_part
        Lengths of the offsets (of the group's: on average).
    power
        Standard deviation of feature i is proportional to (i + 1) ** -power; 0 for noise without
        structure.
    n_labels, n_confounders, group_rows
        Levels, and consecutive rows of one group.
    """

    seed: int = 0
    label_part: float = 0.5
    confounder_part: float = 0.4
    group_part: float = 0.4
    shared_part: float = 1.0
    power: float = 0.5
    n_labels: int = 8
    n_confounders: int = 8
    group_rows: int = 100

    def codes(self, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Label, confounder and group of each row."""
        rng = np.random.default_rng([self.seed, 1])
        group = np.arange(n) // self.group_rows
        confounder = rng.integers(0, self.n_confounders, group[-1] + 1)[group]
        return rng.integers(0, self.n_labels, n), confounder, group

    def manifest(self, n: int) -> pd.DataFrame:
        """n rows; the confounder is the column `center`."""
        return _frame(*self.codes(n))

    def blocks(self, n: int, d: int) -> Iterator[np.ndarray]:
        """Rows of the embedding, 4,096 at a time; nothing else is held but offsets and codes."""
        label, confounder, group = self.codes(n)
        rng = np.random.default_rng([self.seed, 2])
        spread = (1.0 + np.arange(d)) ** -self.power
        spread = (spread / np.linalg.norm(spread)).astype(np.float32)
        of_label = _directions(rng, self.n_labels, d) * np.float32(self.label_part)
        of_confounder = _directions(rng, self.n_confounders, d) * np.float32(self.confounder_part)
        shared = _directions(rng, 1, d) * np.float32(self.shared_part)
        for number, lo in enumerate(range(0, n, BLOCK)):
            mine = slice(lo, min(n, lo + BLOCK))
            groups = np.arange(group[mine.start], group[mine.stop - 1] + 1)
            of_group = np.stack([self._noise(4, int(g), (d,)) for g in groups])
            rows = self._noise(3, number, (mine.stop - lo, d))
            rows += np.float32(self.group_part) * of_group[group[mine] - groups[0]]
            rows *= spread
            yield rows + of_label[label[mine]] + of_confounder[confounder[mine]] + shared

    def _noise(self, stream: int, number: int, shape: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng([self.seed, stream, number])
        return rng.standard_normal(shape, dtype=np.float32)

    def embedding(self, n: int, d: int) -> np.ndarray:
        """The whole embedding in memory."""
        return np.concatenate(list(self.blocks(n, d)))

    def store(self, place: Path, n: int, d: int) -> str:
        """Write a cohort store block by block, unless a finished one is there; return its place."""
        import croma_dask as cd
        from croma_dask.cohort import CohortWriter
        from croma_dask.cohort.layout import build_columns

        try:
            cd.open_cohort(place)
        except cd.StoreError:
            columns = build_columns(self.manifest(n))
            with CohortWriter(
                place, (n, d), np.float32, columns, overwrite=True, resume=False
            ) as writer:
                for rows in self.blocks(n, d):
                    writer.write(rows)
                writer.finish()
        return str(place)


def _directions(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    found = rng.normal(size=(n, d))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found.astype(np.float32)


ISOTROPIC = Clustered(power=0.0, group_part=0.0, label_part=0.25, confounder_part=0.25)
"""Noise of the same size in every direction and weak offsets: nothing that an index could use."""


@contextlib.contextmanager
def kept_folder(folder: str | None) -> Iterator[Path]:
    """Folder for stores: one that is kept, given or named by CROMA_DASK_BENCH, or a temporary."""
    folder = folder or os.environ.get("CROMA_DASK_BENCH")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        yield Path(folder)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
