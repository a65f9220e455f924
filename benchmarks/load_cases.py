"""The cohorts of `load`: each is more of one thing than anybody is likely to bring, or less."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["ALL_STEPS", "CASES", "Case", "Shape", "write"]

ALL_STEPS = ("ingest", "plan", "score", "bootstrap", "breakdown", "report", "probe", "benchmark")

PROBE = {"slides": 4, "splits": 2, "iterations": 2, "validation_fraction": 0.5}
"""A sweep that any cohort can fill which has some rows a cell."""


@dataclass(frozen=True)
class Shape:
    """A cohort to be made.

    Attributes
    ----------
    rows, features
        Of the embedding.
    labels, levels, groups
        Distinct labels, confounder levels and groups; no groups: every row is its own.
    subsets
        Complete 2x2 subsets that the rows are cut into; 0 for the design ``all``.
    id_bytes, label_bytes
        Length of every id, and of the first label.
    columns
        Further columns of the manifest.
    """

    rows: int
    features: int = 16
    labels: int = 2
    levels: int = 2
    groups: int = 0
    subsets: int = 0
    id_bytes: int = 0
    label_bytes: int = 0
    columns: int = 0

    def codes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Label, confounder and group of each row; every label meets every level in turn."""
        at = np.arange(self.rows)
        label = at % self.labels
        # So few rows that they would all have the first level take turns.
        level = (at // self.labels if self.rows > self.labels else at) % self.levels
        group = at if not self.groups else at * self.groups // max(self.rows, 1)
        return label, level, group

    def manifest(self) -> pd.DataFrame:
        """The table of its rows; the confounder is the column `center`."""
        label, level, group = self.codes()
        ids = [f"s{i}".ljust(self.id_bytes, "x") for i in range(self.rows)]
        names = [f"label {i}" for i in range(self.labels)]
        if self.label_bytes:
            names[0] = "L" * self.label_bytes
        frame = pd.DataFrame(
            {
                "sample_id": np.array(ids, object),
                "label": np.array(names, object)[label],
                "center": np.char.add("center ", level.astype(str)).astype(object),
                "group_id": np.char.add("slide ", group.astype(str)).astype(object),
            }
        )
        if self.subsets:
            subset = np.arange(self.rows) * self.subsets // self.rows
            frame["subset"] = np.char.zfill(subset.astype(str), 6).astype(object)
        if not self.columns:
            return frame
        rng = np.random.default_rng(1)
        more = rng.integers(0, 9, (self.rows, self.columns)).astype(str)
        names = [f"column {i}" for i in range(self.columns)]
        return pd.concat([frame, pd.DataFrame(more, columns=names)], axis=1)

    def embedding(self) -> np.ndarray:
        """(rows, features) float32: noise, a part of the label, a part of the confounder."""
        label, level, _ = self.codes()
        rng = np.random.default_rng(0)
        # Of a thousand labels on, each tenth of them has the direction of another one.
        of_label = rng.standard_normal((min(self.labels, 100), self.features), np.float32)
        of_level = rng.standard_normal((self.levels, self.features), np.float32)
        x = rng.standard_normal((self.rows, self.features), np.float32)
        x += of_label[label % len(of_label)]
        x += of_level[level]
        return x


@dataclass(frozen=True)
class Case:
    """What one line of the load list asks for.

    Attributes
    ----------
    title
        In the table.
    shape
        The cohort.
    score
        Arguments of `score` and `plan`.
    by
        What is broken down by.
    steps
        Those that apply.
    models
        Stores with the same rows that are scored as a panel.
    """

    title: str
    shape: Shape
    score: dict[str, Any] = field(default_factory=dict)
    by: str = "label"
    steps: tuple[str, ...] = ALL_STEPS
    models: int = 1
    why: dict[str, str] = field(default_factory=dict)


_PAIRED: dict[str, Any] = {"design": "paired_2x2", "k_candidates": [5, 11, 21]}

CASES: dict[str, Case] = {
    "labels": Case("50,000 labels", Shape(100_000, labels=50_000), score={"m": 1}),
    "groups": Case("100,000 groups", Shape(120_000, labels=4, groups=100_000), by="group"),
    "subsets": Case("5,000 subsets", Shape(200_000, subsets=5_000), score=_PAIRED, by="subset"),
    "k": Case(
        "k of 5,000", Shape(20_000, 64, labels=4, levels=3),
        score={"k_candidates": [5, 51, 5_000], "m": [5, 500]},
    ),
    "narrow": Case("one feature", Shape(20_000, 1)),
    "wide": Case("16,384 features", Shape(5_000, 16_384)),
    "eight rows": Case("8 rows", Shape(8)),
    "two rows": Case("2 rows", Shape(2, labels=2, levels=1)),
    "two rows of two levels": Case("2 rows, 2 labels, 2 levels", Shape(2, labels=2, levels=2)),
    "one row": Case("1 row", Shape(1, labels=1, levels=1)),
    "ids": Case("ids of 10 kB", Shape(20_000, id_bytes=10_000)),
    "columns": Case("10,000 columns", Shape(2_000, columns=10_000)),
    "long label": Case("a label of 1 MB", Shape(2_000, labels=100, label_bytes=1_000_000)),
    "models": Case(
        "1,000 models", Shape(1_000), models=1_000,
        steps=("ingest", "plan", "score", "bootstrap", "breakdown", "report"),
    ),
}  # fmt: skip


def write(shape: Shape, folder: Path) -> None:
    """Leave a cohort as features.npy and manifest.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "features.npy", shape.embedding())
    shape.manifest().to_csv(folder / "manifest.csv", index=False)
