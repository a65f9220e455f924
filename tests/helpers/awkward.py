"""Cohorts on which an approximate search could lose rows that an exact one can score."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.helpers.cohorts import Cohort, features, manifest

__all__ = ["AWKWARD"]

N, D = 1_200, 8

Rng = np.random.Generator


def _codes(rng: Rng, labels: int = 3, confounders: int = 3) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, labels, N), rng.integers(0, confounders, N)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def near_duplicates(rng: Rng) -> Cohort:
    """Six groups of 200 rows each that hardly differ: a row's nearest rows are all its own."""
    group = np.arange(N) // 200
    x = rng.normal(size=(6, D))[group] + 1e-4 * rng.normal(size=(N, D))
    return Cohort(x.astype(np.float32), manifest(group % 2, group // 2 % 3, group))


def near_duplicates_of_all_types(rng: Rng) -> Cohort:
    """The same, with groups that span labels and confounders."""
    group = np.arange(N) // 200
    x = rng.normal(size=(6, D))[group] + 1e-4 * rng.normal(size=(N, D))
    return Cohort(x, manifest(*_codes(rng), group))


def equal_rows_of_a_group(rng: Rng) -> Cohort:
    """Groups whose rows are one and the same."""
    group = np.arange(N) // 150
    return Cohort(rng.normal(size=(8, D))[group], manifest(group % 2, group // 2 % 2, group))


def equal_rows_of_all_groups(rng: Rng) -> Cohort:
    """Every row turns up six times, each time in another group."""
    label, confounder = _codes(rng)
    x = features(rng, label, confounder, D)[np.arange(N) % 200]
    return Cohort(x, manifest(label, confounder))


def a_label_with_12_rows(rng: Rng) -> Cohort:
    """Twelve rows of a label, all over the place."""
    label, confounder = _codes(rng)
    label[rng.choice(N, 12, replace=False)] = 3
    return Cohort(features(rng, label, confounder, D), manifest(label, confounder))


def a_label_with_12_rows_apart(rng: Rng) -> Cohort:
    """Twelve rows of a label on the far side, in two groups."""
    label, confounder = _codes(rng)
    x = features(rng, label, confounder, D) + 6.0
    group = np.arange(N) // 4 + 2
    rare = rng.choice(N, 12, replace=False)
    label[rare], group[rare], x[rare] = 3, np.arange(12) % 2, -x[rare]
    return Cohort(x, manifest(label, confounder, group))


def a_label_with_12_rows_of_one_group(rng: Rng) -> Cohort:
    """None of its rows has an SO neighbour, but all have OS ones."""
    label, confounder = _codes(rng)
    group = np.arange(N) // 4 + 1
    rare = rng.choice(N, 12, replace=False)
    label[rare], group[rare] = 3, 0
    return Cohort(features(rng, label, confounder, D), manifest(label, confounder, group))


def a_confounder_that_separates(rng: Rng) -> Cohort:
    """Every confounder is a tight cloud of its own: SO rows are all far away."""
    label, confounder = _codes(rng)
    x = features(rng, label, confounder, D, biology=0.05, shortcut=3.0, noise=0.1)
    return Cohort(x, manifest(label, confounder, np.arange(N) // 5))


def a_confounder_that_almost_is_the_label(rng: Rng) -> Cohort:
    """But for a few rows each label comes from one confounder only."""
    label = rng.integers(0, 3, N)
    confounder = label.copy()
    stray = rng.choice(N, 20, replace=False)
    confounder[stray] = (label[stray] + 1) % 3
    return Cohort(features(rng, label, confounder, D), manifest(label, confounder))


def a_label_that_separates(rng: Rng) -> Cohort:
    """OS rows are all far away."""
    label, confounder = _codes(rng)
    x = features(rng, label, confounder, D, biology=3.0, shortcut=0.05, noise=0.1)
    return Cohort(x, manifest(label, confounder, np.arange(N) // 5))


def so_on_the_far_side(rng: Rng) -> Cohort:
    """SO rows are opposite, with all other rows between."""
    label, confounder = _codes(rng, 2, 2)
    x = 0.3 * rng.normal(size=(N, D))
    x[:, 0] += np.where(confounder == 0, 1.0, -1.0)
    x[:, 1] += np.where(label == 0, 1.0, -1.0) * x[:, 0]
    return Cohort(x, manifest(label, confounder, np.arange(N) // 3))


def two_groups(rng: Rng) -> Cohort:
    """Half of all rows are of the own group."""
    label, confounder = _codes(rng)
    x = features(rng, label, confounder, D)
    return Cohort(x, manifest(label, confounder, rng.integers(0, 2, N)))


def a_group_a_cell(rng: Rng) -> Cohort:
    """All rows of a label and a confounder are one group."""
    label, confounder = _codes(rng, 4, 3)
    x = features(rng, label, confounder, D, biology=2.0, shortcut=2.0, noise=0.3)
    return Cohort(x, manifest(label, confounder, label * 3 + confounder))


def a_crowd_and_some_strays(rng: Rng) -> Cohort:
    """Nine tenths of all rows in one tight ball."""
    label, confounder = _codes(rng)
    x = rng.normal(size=D) + 1e-3 * rng.normal(size=(N, D))
    x[:120] = rng.normal(size=(120, D))
    return Cohort(x, manifest(label, confounder, np.arange(N) // 2))


def more_equal_rows_than_a_cluster_takes(rng: Rng) -> Cohort:
    """Two thirds of all rows are one and the same, in as many groups."""
    label, confounder = _codes(rng)
    x = features(rng, label, confounder, D)
    x[:800] = x[0]
    return Cohort(x, manifest(label, confounder))


def zero_rows(rng: Rng) -> Cohort:
    """Sixty rows of zeros, at distance 1 from everything."""
    label, confounder = _codes(rng)
    x = features(rng, label, confounder, D).astype(np.float32)
    x[rng.choice(N, 60, replace=False)] = 0.0
    return Cohort(x, manifest(label, confounder, np.arange(N) // 2))


def no_structure(rng: Rng) -> Cohort:
    """Noise in more directions than clusters can follow."""
    return Cohort(rng.normal(size=(N, 24)), manifest(*_codes(rng)))


def a_lattice(rng: Rng) -> Cohort:
    """Small whole numbers: equal distances everywhere."""
    x = rng.integers(-2, 3, (N, 4))
    x[~x.any(axis=1), 0] = 1
    return Cohort(x.astype(np.int32), manifest(*_codes(rng), np.arange(N) // 2))


def tiny_cells(rng: Rng) -> Cohort:
    """Forty labels by thirty confounders: a row has a few SO and OS rows at best."""
    label, confounder = _codes(rng, 40, 30)
    x = features(rng, label, confounder, D, biology=0.5, shortcut=0.5)
    return Cohort(x, manifest(label, confounder, np.arange(N) // 3))


def a_chain(rng: Rng) -> Cohort:
    """Rows along an arc, label and confounder by stretches: types change from end to end."""
    angle = np.sort(rng.uniform(0.0, 3.0, N))
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    at = np.arange(N)
    return Cohort(x, manifest(at * 4 // N, at * 6 // N % 2, at // 10))


AWKWARD: dict[str, Callable[[Rng], Cohort]] = {
    make.__name__: make
    for make in (
        near_duplicates, near_duplicates_of_all_types, equal_rows_of_a_group,
        equal_rows_of_all_groups, a_label_with_12_rows, a_label_with_12_rows_apart,
        a_label_with_12_rows_of_one_group, a_confounder_that_separates,
        a_confounder_that_almost_is_the_label, a_label_that_separates, so_on_the_far_side,
        two_groups, a_group_a_cell, a_crowd_and_some_strays,
        more_equal_rows_than_a_cluster_takes, zero_rows, no_structure, a_lattice, tiny_cells,
        a_chain,
    )
}  # fmt: skip
