"""Concordance of clusters and labels: scikit-learn's values, and exact ones where it rounds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from croma_dask.embedding.concordance import CONCORDANCE_METRICS, concordance, contingency
from croma_dask.errors import SchemaError

ORACLE = {
    "NMI": metrics.normalized_mutual_info_score,
    "HOM": metrics.homogeneity_score,
    "COM": metrics.completeness_score,
    "FMI": metrics.fowlkes_mallows_score,
    "ARI": metrics.adjusted_rand_score,
}


def of(labels: object, clusters: object) -> dict[str, float]:
    a, m = np.asarray(labels, np.int32), np.asarray(clusters, np.int32)
    return concordance(contingency(a, m, int(a.max()) + 1, int(m.max()) + 1))


@given(
    seed=st.integers(0, 2**31), n=st.integers(1, 400), n_labels=st.integers(1, 12),
    n_clusters=st.integers(1, 12), copied=st.floats(0.0, 1.0),
)  # fmt: skip
def test_concordance__is_scikit_learn_s(
    seed: int, n: int, n_labels: int, n_clusters: int, copied: float
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_labels, n)
    clusters = np.where(rng.random(n) < copied, labels % n_clusters, rng.integers(0, n_clusters, n))
    found = of(labels, clusters)
    assert tuple(found) == CONCORDANCE_METRICS
    for name, value in found.items():
        assert value == pytest.approx(float(ORACLE[name](labels, clusters)), abs=1e-12), name
        assert (-0.5 if name == "ARI" else 0.0) <= value <= 1.0


@pytest.mark.parametrize(
    ("labels", "clusters", "expected"),
    [
        ([0] * 6, [0] * 6, (1.0, 1.0, 1.0, 1.0, 1.0)),
        ([0] * 6, [0, 0, 0, 1, 1, 1], (0.0, 1.0, 0.0, math.sqrt(0.4), 0.0)),
        ([0, 0, 0, 1, 1, 1], [0] * 6, (0.0, 0.0, 1.0, math.sqrt(0.4), 0.0)),
        (range(6), range(6), (1.0, 1.0, 1.0, 0.0, 1.0)),
        ([0], [0], (1.0, 1.0, 1.0, 0.0, 1.0)),
        # Every label in every cluster as often as chance has it.
        ([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], (0.0, 0.0, 0.0, 0.0, -4 / 11)),
        ([0, 1, 0, 1], [0, 0, 1, 1], (0.0, 0.0, 0.0, 0.0, -0.5)),
    ],
)
def test_concordance__edges(
    labels: list[int], clusters: list[int], expected: tuple[float, ...]
) -> None:
    found = of(list(labels), list(clusters))
    assert tuple(found.values()) == pytest.approx(expected, abs=1e-15)


def test_concordance__is_one_exactly_where_the_structure_says_so() -> None:
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 7, 997)
    renamed = rng.permutation(7)[labels]
    assert set(of(labels, renamed).values()) == {1.0}
    split = 3 * labels + rng.integers(0, 3, 997)
    assert of(labels, split)["HOM"] == 1.0
    assert of(split, labels)["COM"] == 1.0


def test_concordance__no_cells_no_number() -> None:
    found = concordance(np.zeros((3, 2), np.int64))
    assert all(math.isnan(value) for value in found.values())


def test_concordance__a_hundred_million_cells_do_not_overflow() -> None:
    table = np.array([[40_000_000, 1_000_003, 0], [5, 30_000_000, 29_000_000]], np.int64)
    found = concordance(table)
    cells = [[int(v) for v in row] for row in table]
    a, m = [sum(row) for row in cells], [sum(column) for column in zip(*cells, strict=True)]
    n = sum(a)
    both = sum(v * v - v for row in cells for v in row)
    p, q = sum(v * v - v for v in m), sum(v * v - v for v in a)
    chance = Fraction(p * q, n * n - n)
    ari = (both - chance) / (Fraction(p + q, 2) - chance)
    assert found["ARI"] == pytest.approx(float(ari), rel=1e-15)
    assert found["FMI"] == pytest.approx(math.sqrt(Fraction(both * both, p * q)), rel=1e-15)
    information = sum(
        v / n * math.log(Fraction(v * n, a[i] * m[j]))
        for i, row in enumerate(cells)
        for j, v in enumerate(row)
        if v
    )
    entropy = -sum(v / n * math.log(v / n) for v in a)
    assert found["HOM"] == pytest.approx(information / entropy, rel=1e-13)


@given(seed=st.integers(0, 2**31))
def test_concordance__order_of_labels_and_clusters_leaves_no_digit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 50, (int(rng.integers(1, 9)), int(rng.integers(1, 9))))
    table[0, 0] += 1
    shuffled = table[rng.permutation(len(table))][:, rng.permutation(table.shape[1])]
    padded = np.pad(shuffled, ((1, 0), (0, 2)))  # names without a cell
    assert concordance(padded) == concordance(table)


@given(seed=st.integers(0, 2**31), n=st.integers(0, 200))
def test_contingency__tables_of_blocks_add_up(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n).astype(np.int32)
    clusters = rng.integers(0, 6, n).astype(np.int32)
    whole = contingency(labels, clusters, 4, 6)
    assert whole.dtype == np.int64
    assert whole.shape == (4, 6)
    cut = int(rng.integers(0, n + 1))
    parts = [contingency(labels[r], clusters[r], 4, 6) for r in (slice(cut), slice(cut, n))]
    np.testing.assert_array_equal(parts[0] + parts[1], whole)
    expected = np.zeros((4, 6), np.int64)
    np.add.at(expected, (labels, clusters), 1)
    np.testing.assert_array_equal(whole, expected)


@pytest.mark.parametrize(
    ("labels", "clusters"), [([0, -1], [0, 0]), ([0, 1], [0, 3]), ([2, 0], [0, 0]), ([0], [0, 1])]
)
def test_contingency__refuses_codes_that_are_none(labels: list[int], clusters: list[int]) -> None:
    with pytest.raises(SchemaError):
        contingency(np.array(labels, np.int32), np.array(clusters, np.int32), 2, 3)
