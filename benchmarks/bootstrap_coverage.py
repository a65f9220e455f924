"""How often the intervals of the cluster bootstrap hold the truth, on simulated cohorts."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks import timing

if TYPE_CHECKING:
    import xarray as xr

STATISTICS = (
    ("RI", "value"), ("MaRI", "value"), ("CRoMa", "value"), ("CRoMa", "ltm_alpha"), ("CRoMa", "f0"),
)  # fmt: skip
N_FEATURES, N_LABELS, N_CENTRES = 16, 3, 3


@dataclass(frozen=True)
class Population:
    """Where cohorts come from: labels and centres have fixed offsets, groups random ones.

    Attributes
    ----------
    by_group
        Whether all rows of a group have one label, or each its own.
    group_part
        Standard deviation of a group's offset, in each feature; that of the noise is 1.
    """

    by_group: bool
    group_part: float

    def cohort(self, seed: int, groups: int, rows: int) -> tuple[np.ndarray, pd.DataFrame]:
        """Draw a fresh cohort of so many groups, of so many rows each."""
        fixed = np.random.default_rng(12345)
        of_label = 0.8 * fixed.normal(size=(N_LABELS, N_FEATURES))
        of_centre = 0.6 * fixed.normal(size=(N_CENTRES, N_FEATURES))
        rng = np.random.default_rng([seed, 1])
        group = np.repeat(np.arange(groups), rows)
        centre = rng.integers(0, N_CENTRES, groups)[group]
        if self.by_group:
            label = rng.integers(0, N_LABELS, groups)[group]
        else:
            label = rng.integers(0, N_LABELS, group.size)
        x = of_label[label] + of_centre[centre] + rng.normal(size=(group.size, N_FEATURES))
        x += self.group_part * rng.normal(size=(groups, N_FEATURES))[group]
        frame = {"sample_id": np.arange(group.size), "label": label, "center": centre}
        return x, pd.DataFrame({**frame, "group_id": group})


def score(x: np.ndarray, frame: pd.DataFrame) -> xr.DataTree:
    """Score at one k: that the operating k differs between cohorts is no part of the question."""
    import croma_dask as cd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cd.score(x, frame, confounder="center", k_candidates=[11])


def values(result: xr.DataTree) -> np.ndarray:
    """The statistics of a result."""
    return np.array([float(result[metric][name]) for metric, name in STATISTICS])


def ends(found: xr.DataTree) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both ends of the intervals, and the standard errors."""
    low, high, error = (
        np.array([float(found[metric][name + end]) for metric, name in STATISTICS])
        for end in ("_low", "_high", "_std_error")
    )
    return low, high, error


def simulate(
    population: Population, n_cohorts: int, n_truth: int, groups: int, rows: int, n_pairs: int
) -> None:
    """Simulate and print a table."""
    import croma_dask as cd
    from croma_dask.uncertainty import half_samples

    fresh = [values(score(*population.cohort(10**6 + i, groups, rows))) for i in range(n_truth)]
    truth, spread = np.mean(fresh, axis=0), np.std(fresh, axis=0)
    # A large cohort whose neighbours stay what they are, and of which groups are drawn.
    large = score(*population.cohort(10**7, 50 * groups, rows))
    truth_large = values(large)
    covered, errors = np.zeros((3, len(STATISTICS))), np.zeros((2, len(STATISTICS)))
    for seed in range(n_cohorts):
        x, frame = population.cohort(seed, groups, rows)
        result = score(x, frame)
        by_halves = half_samples(result, x, frame, n_pairs=n_pairs, seed=seed)
        for at, found in enumerate((cd.bootstrap(result, seed=seed, threads=1), by_halves)):
            low, high, error = ends(found)
            covered[at] += (low <= truth) & (truth <= high)
            errors[at] += error / n_cohorts
        drawn = np.random.default_rng([seed, 3]).choice(50 * groups, groups, replace=False)
        mine = np.flatnonzero(np.isin(large["RI"].group_id.values.astype(int), drawn))
        low, high, _ = ends(cd.bootstrap(large.isel(sample=mine), seed=seed, threads=1))
        covered[2] += (low <= truth_large) & (truth_large <= high)
        print(f"{seed + 1} of {n_cohorts}: {covered.astype(int).tolist()}", file=sys.stderr)
    label = "of the group" if population.by_group else "of the row"
    timing.table(
        [f"{n_cohorts} cohorts of {groups} groups of {rows} rows; label {label}; group effect "
         f"{population.group_part:g}", "truth", "spread over cohorts", "standard error: bootstrap",
         "halves", "covered (95 %): bootstrap", "halves", "bootstrap, neighbours fixed"],
        [
            (" ".join(STATISTICS[i]), f"{truth[i]:.4f}", f"{spread[i]:.4f}",
             f"{errors[0, i]:.4f}", f"{errors[1, i]:.4f}",
             *(f"{c[i] / n_cohorts:.1%}" for c in (covered[0], covered[1], covered[2])))
            for i in range(len(STATISTICS))
        ],
    )  # fmt: skip
    print()


def two_models(
    population: Population, seed: int, groups: int, rows: int
) -> tuple[dict[str, np.ndarray], pd.DataFrame]:
    """A fresh cohort, and a second model of it: mixed features and noise of its own."""
    x, frame = population.cohort(seed, groups, rows)
    mixing = np.random.default_rng(7).normal(size=(N_FEATURES, N_FEATURES)) / 4
    noise = np.random.default_rng([seed, 9]).normal(size=x.shape)
    return {"a": x, "b": x @ mixing + 0.6 * noise}, frame


def differences(
    population: Population, n_cohorts: int, n_truth: int, groups: int, rows: int, n_pairs: int
) -> None:
    """Simulate differences between two models and print a table."""
    import croma_dask as cd
    from croma_dask.uncertainty import half_samples

    def apart(found: xr.DataTree, end: str) -> np.ndarray:
        each = [found[metric][f"{name}_difference{end}"] for metric, name in STATISTICS]
        return np.array([float(values[0, 1]) for values in each])

    fresh = []
    for i in range(n_truth):
        panel = score(*two_models(population, 10**6 + i, groups, rows))
        each = [panel[metric][name].values for metric, name in STATISTICS]
        fresh.append([float(values[0] - values[1]) for values in each])
    truth, spread = np.mean(fresh, axis=0), np.std(fresh, axis=0)
    covered = np.zeros((2, len(STATISTICS)))
    for seed in range(n_cohorts):
        cohorts, frame = two_models(population, seed, groups, rows)
        panel = score(cohorts, frame)
        by_halves = half_samples(panel, cohorts, frame, n_pairs=n_pairs, seed=seed)
        for at, found in enumerate((cd.bootstrap(panel, seed=seed, threads=1), by_halves)):
            covered[at] += (apart(found, "_low") <= truth) & (truth <= apart(found, "_high"))
        print(f"{seed + 1} of {n_cohorts}: {covered.astype(int).tolist()}", file=sys.stderr)
    timing.table(
        [f"difference of two models, {n_cohorts} cohorts", "truth", "spread over cohorts",
         "covered (95 %): bootstrap", "halves"],
        [
            (" ".join(STATISTICS[i]), f"{truth[i]:.4f}", f"{spread[i]:.4f}",
             *(f"{c[i] / n_cohorts:.1%}" for c in covered))
            for i in range(len(STATISTICS))
        ],
    )  # fmt: skip


def main(
    n_cohorts: int = 200, n_truth: int = 2_000, groups: int = 60, rows: int = 10, n_pairs: int = 10
) -> None:
    """Simulate two populations, and differences in the first of them."""
    by_row, by_group = Population(by_group=False, group_part=0.3), Population(True, 0.8)
    for population in (by_row, by_group):
        simulate(population, n_cohorts, n_truth, groups, rows, n_pairs)
    differences(by_row, n_cohorts // 2, 3 * n_truth // 20, groups, rows, n_pairs)
