"""Cohorts made up for tests: manifests of every shape, embeddings with a known tendency."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd


@dataclass
class Cohort:
    """An embedding with its manifest.

    Attributes
    ----------
    x, frame
        (n, D) rows and one manifest row each.
    design
        Evaluation design that the manifest is made for.
    confounder
        Name of the confounder column.
    """

    x: Any
    frame: pd.DataFrame
    design: str = "all"
    confounder: str = "center"
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """Keywords that every scoring function takes."""
        return {"confounder_column": self.confounder, "evaluation_design": self.design}

    def __len__(self) -> int:
        return len(self.frame)


def manifest(
    label: Any,
    confounder: Any,
    group: Any = None,
    *,
    subset: Any = None,
    sample_id: Any = None,
) -> pd.DataFrame:
    """Return a manifest; every row is its own group unless groups are given."""
    n = len(label)
    frame = pd.DataFrame(
        {
            "sample_id": [f"s{i:04d}" for i in range(n)] if sample_id is None else sample_id,
            "label": [str(v) for v in label],
            "center": [str(v) for v in confounder],
            "group_id": [f"g{i}" for i in range(n)] if group is None else [str(v) for v in group],
        }
    )
    if subset is not None:
        frame["subset"] = [str(v) for v in subset]
    return frame


def features(
    rng: np.random.Generator,
    label: np.ndarray,
    confounder: np.ndarray,
    n_features: int,
    *,
    biology: float = 1.0,
    shortcut: float = 1.0,
    noise: float = 1.0,
) -> np.ndarray:
    """Rows that follow the label and the confounder as strongly as asked."""
    of_label = rng.normal(size=(label.max() + 1, n_features))
    of_confounder = rng.normal(size=(confounder.max() + 1, n_features))
    x = biology * of_label[label] + shortcut * of_confounder[confounder]
    return x + noise * rng.normal(size=x.shape)


def random_cohort(seed: int, *, least: int = 150, most: int = 420) -> Cohort:
    """A cohort without distance ties whose shape follows from the seed.

    2 to 12 labels and 2 to 10 confounders in cells of very different sizes (some empty), groups of
    one to many rows that lie within a cell or span labels, float32 or float64, one scope or
    several 2x2 subsets. Strong effects leave many rows without a typed neighbour.
    """
    rng = np.random.default_rng(1_000 + seed)
    if seed % 3 == 2:
        return _paired(rng, seed)
    n_labels = 2 + seed % 11
    n_confounders = 2 + (seed + seed // 11) % 9
    n = int(rng.integers(least, most))
    evenness = (3.0, 0.1, 1.0, 0.3)[seed % 4]
    cells = rng.dirichlet(np.full(n_labels * n_confounders, evenness))
    cell = rng.choice(cells.size, size=n, p=cells)
    # every label and every confounder occurs
    cell[: max(n_labels, n_confounders)] = [
        (i % n_labels) * n_confounders + i % n_confounders
        for i in range(max(n_labels, n_confounders))
    ]
    cell = rng.permutation(cell)
    label, confounder = np.divmod(cell, n_confounders)
    if seed % 4 == 0:
        group = np.arange(n)
    elif seed % 4 == 1:
        group = rng.integers(0, n // 4, n)  # spans labels and confounders
    elif seed % 4 == 2:
        group = confounder * 1000 + rng.integers(0, 12, n)  # spans labels, as a slide does
    else:
        group = cell * 1000 + rng.integers(0, 5, n)
    strength = [(0.3, 0.3), (1.0, 1.0), (2.5, 0.5), (0.5, 2.5), (4.0, 4.0)][seed % 5]
    x = features(
        rng, label, confounder, int(rng.integers(2, 40)), biology=strength[0], shortcut=strength[1]
    )
    x *= rng.uniform(0.1, 30.0, (n, 1))
    if seed % 2:
        x = x.astype(np.float32)
    about = {"n_labels": n_labels, "n_confounders": n_confounders, "strength": strength}
    return Cohort(x, manifest(label, confounder, group), about=about)


def _paired(rng: np.random.Generator, seed: int) -> Cohort:
    """Two to five 2x2 subsets of one pool of samples; many samples are in several of them."""
    n_subsets = 2 + seed % 4
    n_pool = 700
    label, confounder = rng.integers(0, 3, n_pool), rng.integers(0, 4, n_pool)
    group = rng.integers(0, n_pool // 3, n_pool) if seed % 2 else np.arange(n_pool)
    pool = features(rng, label, confounder, 6, biology=0.8, shortcut=0.6 + 0.2 * (seed % 3))
    tile, subset = [], []
    for number in range(n_subsets):
        a, b = rng.choice(3, 2, replace=False)
        c, d = rng.choice(4, 2, replace=False)
        for lab, con in ((a, c), (a, d), (b, c), (b, d)):
            cell = np.flatnonzero((label == lab) & (confounder == con))
            mine = rng.choice(cell, min(cell.size, int(rng.integers(20, 50))), replace=False)
            tile += mine.tolist()
            subset += [f"set{n_subsets - number}"] * mine.size
    order = rng.permutation(len(tile))
    rows, names = np.array(tile)[order], np.array(subset)[order]
    x = pool[rows].astype(np.float32 if seed % 2 else np.float64)
    frame = manifest(
        label[rows], confounder[rows], group[rows], subset=names,
        sample_id=[f"tile{i}" for i in rows],
    )  # fmt: skip
    return Cohort(x, frame, "paired_2x2", about={"n_subsets": n_subsets})


def lattice_cohort(
    rng: np.random.Generator,
    n: int,
    *,
    n_labels: int = 3,
    n_confounders: int = 3,
    n_groups: int | None = None,
    n_features: int = 3,
    reach: int = 2,
    n_subsets: int = 0,
    n_zero: int = 0,
) -> Cohort:
    """Rows of small whole numbers: full of equal distances, duplicates and opposite rows."""
    x = rng.integers(-reach, reach + 1, (n, n_features)).astype(np.float64)
    x[~x.any(axis=1), 0] = 1.0
    if n_zero:
        x[rng.choice(n, n_zero, replace=False)] = 0.0
    label = rng.integers(0, n_labels, n)
    confounder = rng.integers(0, n_confounders, n)
    label[:n_labels] = np.arange(n_labels)
    confounder[:n_confounders] = np.arange(n_confounders)
    group = np.arange(n) if n_groups is None else rng.integers(0, n_groups, n)
    if not n_subsets:
        return Cohort(x, manifest(label, confounder, group))
    subset = rng.integers(0, n_subsets, n)
    label, confounder = rng.integers(0, 2, n), rng.integers(0, 2, n)
    for number in range(n_subsets):
        mine = np.flatnonzero(subset == number)[:4]
        assert mine.size == 4, "too few rows for so many subsets"
        label[mine], confounder[mine] = [0, 0, 1, 1], [0, 1, 0, 1]
    return Cohort(x, manifest(label, confounder, group, subset=subset), "paired_2x2")
