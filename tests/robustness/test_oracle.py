"""Brute force that follows the specification, where the reference cannot judge.

Ties, duplicates, zero rows, small cohorts, missing cells, empty subsets: on every engine.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import croma_dask as cd
from tests.helpers.cohorts import Cohort, lattice_cohort, manifest
from tests.helpers.compare import POOLED, assert_matches
from tests.helpers.engines import ENGINES, engine
from tests.helpers.oracle import Oracle


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Nearly all of these cohorts warn of something; what, is tested elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def oracle_of(cohort: Cohort) -> Oracle:
    frame = cohort.frame
    subset = frame["subset"] if cohort.design == "paired_2x2" else None
    return Oracle(cohort.x, frame["label"], frame["center"], frame["group_id"], subset)


def check(cohort: Cohort, candidates: list[int], radii: list[int], tau: Any = None) -> Oracle:
    """Compare all three metrics, with curves, to the oracle; return it for further questions."""
    oracle = oracle_of(cohort)
    k = oracle.operating_k(candidates)
    accuracy = [oracle.accuracies(candidates)[q] for q in candidates]
    for name in ("RI", "MaRI"):
        more = {} if name == "RI" else {"tau": tau}
        found = getattr(cd, name).compute(
            cohort.x, cohort.frame, k_candidates=candidates, **more, **cohort.arguments
        )
        np.testing.assert_allclose(found.balanced_accuracy, accuracy, rtol=0, atol=1e-12)
        assert int(found.k) == k
        weight = None
        if name == "MaRI":
            weight = tau
            if tau is None:
                weight = oracle.tau(k)
                if math.isnan(weight) or weight == 0.0:
                    weight = 0.2
            np.testing.assert_allclose(found.tau, weight, rtol=1e-12)
        assert_matches(found, oracle.index(k, weight))
        expected = [oracle.index(q, weight)["value"] for q in candidates]
        np.testing.assert_allclose(found.curve, expected, rtol=0, atol=POOLED)
        causes = [np.mean(found.undefined_type == c) for c in (1, 2, 3)]
        assert float(found.undefined_frac) == pytest.approx(sum(causes))
        for what, share in zip(("ss_dominated", "oo_dominated", "mixed"), causes, strict=True):
            assert float(found[f"{what}_undefined_frac"]) == pytest.approx(share)
    margin = cd.CRoMa.compute(cohort.x, cohort.frame, m=radii, **cohort.arguments)
    for m in radii:
        assert_matches(margin.sel(m=m), oracle.margin(m))
    return oracle


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", range(6))
def test_ties__go_to_the_lower_row(name: str, seed: int) -> None:
    """Whole numbers in few dimensions: most distances occur many times."""
    rng = np.random.default_rng(seed)
    cohort = lattice_cohort(
        rng, 80, n_labels=2 + seed % 3, n_confounders=2 + seed % 2, n_features=2 + seed % 2,
        n_groups=[None, 20, 6][seed % 3], n_subsets=3 if seed % 2 else 0,
    )  # fmt: skip
    with engine(name, range_rows=17):
        oracle = check(cohort, [4, 1, 9, 2], [1, 3])
    d = [n[0] for scope in oracle.scopes for i in scope.rows for n in scope.neighbors[i]]
    assert len(set(d)) < len(d) / 20, "the cohort is meant to be full of ties"


@pytest.mark.parametrize("name", ENGINES)
def test_duplicates__are_neighbours_of_one_another_at_distance_zero(
    name: str, rng: np.random.Generator
) -> None:
    x = np.repeat(rng.normal(size=(25, 7)), 3, axis=0)
    order = rng.permutation(75)
    label, center = rng.integers(0, 3, 75), rng.integers(0, 3, 75)
    cohort = Cohort(x[order], manifest(label, center))
    with engine(name, range_rows=20):
        oracle = check(cohort, [1, 2, 5], [1, 2])
    for i, found in oracle.scopes[0].neighbors.items():
        assert [d for d, _ in found[:2]] == [0.0, 0.0]
        assert i not in {j for _, j in found}


@pytest.mark.parametrize("name", ENGINES)
def test_zero_rows__are_at_distance_one_from_everything(
    name: str, rng: np.random.Generator
) -> None:
    cohort = lattice_cohort(rng, 60, n_features=4, n_zero=12)
    with engine(name, range_rows=25):
        check(cohort, [2, 6, 11], [1, 4])


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("n", [4, 5, 9])
def test_a_k_of_all_rows__uses_every_candidate(name: str, n: int, rng: np.random.Generator) -> None:
    label = np.arange(n) % 2
    center = np.arange(n) // 2 % 2
    cohort = Cohort(rng.normal(size=(n, 3)), manifest(label, center))
    with engine(name, range_rows=3):
        # k = n - 1 is all other rows; n and more are dropped from the choice, not from the curve
        oracle = check(cohort, [n - 1, n, 2, 500], [1])
        found = cd.RI.compute_curve(
            cohort.x, cohort.frame, k_values=[n - 2, n - 1, n, 99], **cohort.arguments
        )
    expected = [oracle.index(k)["value"] for k in (n - 2, n - 1, n, 99)]
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=POOLED)
    assert expected[1] == expected[2] == expected[3]


@pytest.mark.parametrize("name", ENGINES)
def test_missing_cells__leave_samples_without_a_type(name: str, rng: np.random.Generator) -> None:
    """Class c occurs in one centre only, and centre z holds nothing but class a."""
    cells = [("a", "x")] * 20 + [("a", "y")] * 14 + [("b", "x")] * 9 + [("b", "y")] * 12
    cells += [("c", "y")] * 8 + [("a", "z")] * 7
    label, center = (np.array(v) for v in zip(*cells, strict=True))
    order = rng.permutation(len(cells))
    cohort = Cohort(rng.normal(size=(len(cells), 5)), manifest(label[order], center[order]))
    with engine(name, range_rows=30):
        check(cohort, [1, 5, 9], [1, 8])
        found = cd.CRoMa.compute(cohort.x, cohort.frame, m=1, **cohort.arguments)
    kind = found.undefined_type.groupby("label").max()
    assert kind.sel(label="c") == 1  # no SO anywhere
    assert found.undefined_type.where(found.confounder == "z", drop=True).values.tolist() == [2] * 7
    assert float(found.no_so_undefined_frac) == pytest.approx(8 / 70)
    assert float(found.no_os_undefined_frac) == pytest.approx(7 / 70)


def subsets_with_an_empty_one(rng: np.random.Generator) -> Cohort:
    """Subset b is one group, so that nobody in it has a neighbour; d's nearest are all SS."""
    cell = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
    label, center, group, subset, x = [], [], [], [], []
    for name in "abcd":
        for repeat in range(6):
            for number, (lab, con) in enumerate(cell):
                label.append(lab)
                center.append(con)
                group.append("one" if name == "b" else f"{name}{repeat}")
                subset.append(name)
                spread = 0.01 if name == "d" else 2.0
                x.append(4.0 * np.eye(4)[number] + spread * rng.normal(size=4))
    order = rng.permutation(len(x))
    take = np.array(label)[order], np.array(center)[order], np.array(group)[order]
    frame = manifest(*take, subset=np.array(subset)[order])
    return Cohort(np.array(x)[order], frame, "paired_2x2")


@pytest.mark.parametrize("name", ENGINES)
def test_a_subset_without_any_neighbour__counts_a_half_and_is_left_out_of_the_margin(
    name: str, rng: np.random.Generator
) -> None:
    cohort = subsets_with_an_empty_one(rng)
    with engine(name, range_rows=7):
        check(cohort, [1, 3], [1, 4])
        ri = cd.RI.compute(cohort.x, cohort.frame, k_candidates=[3], **cohort.arguments)
        margin = cd.CRoMa.compute(cohort.x, cohort.frame, m=1, **cohort.arguments)
    assert ri.subset.values.tolist() == ["a", "b", "c", "d"]
    assert ri.pair_values.values[1] == 0.5  # no neighbour
    assert ri.pair_values.values[3] == 0.5  # neighbours, none of them typed
    kinds = {s: set(v.values.tolist()) for s, v in ri.undefined_type.groupby("sample_subset")}
    assert kinds["b"] == {3}
    assert kinds["d"] == {1}
    assert np.isnan(margin.pair_values.values).tolist() == [False, True, False, False]
    rest = margin.pair_values.values[[0, 2, 3]]
    assert float(margin.value) == np.median(rest)
    assert float(margin["std"]) == pytest.approx(np.std(rest), abs=1e-15)


def test_no_neighbour_at_all__raises_for_every_metric_of_neighbours(
    rng: np.random.Generator,
) -> None:
    """Two subsets of one group each: the groups differ, but never within a scope."""
    label, center = np.arange(16) % 2, np.arange(16) // 2 % 2
    subset = np.repeat(["a", "b"], 8)
    frame = manifest(label, center, subset, subset=subset)
    x = rng.normal(size=(16, 3))
    common = {"confounder_column": "center", "evaluation_design": "paired_2x2"}
    with pytest.raises(RuntimeError, match="neighbour"):
        cd.RI.compute(x, frame, k_candidates=[1], **common)
    with pytest.raises(RuntimeError, match="neighbour"):
        cd.MaRI.compute(x, frame, k_candidates=[1], **common)
    with pytest.raises(RuntimeError, match="neighbour"):
        cd.RI.compute_curve(x, frame, k_values=[1], **common)
    for tau in (None, 0.1):
        with pytest.raises(RuntimeError, match="neighbour"):
            cd.MaRI.compute_curve(x, frame, k_values=[1], tau=tau, **common)
    assert math.isnan(cd.MaRI.recommend_tau(x, frame, k=1, **common))
    with pytest.raises(RuntimeError, match="neighbour"):
        cd.CRoMa.compute(x, frame, m=1, **common)


def test_causes__tell_ss_from_oo_from_mixed(rng: np.random.Generator) -> None:
    """Four far clusters of two rows; the nearest neighbours are what is put beside a row."""
    blocks = {
        "ss": [("a", "x"), ("a", "x"), ("a", "x")],
        "oo": [("a", "x"), ("b", "y"), ("c", "z")],
        "mixed": [("a", "x"), ("a", "x"), ("b", "y")],
        "so": [("a", "x"), ("a", "y"), ("a", "z")],
    }
    cells = [cell for block in blocks.values() for cell in block]
    x = np.repeat(10.0 * np.eye(4), 3, axis=0) + 0.01 * rng.normal(size=(12, 4))
    cohort = Cohort(x, manifest(*zip(*cells, strict=True)))
    found = cd.RI.compute(x, cohort.frame, k_candidates=[2], **cohort.arguments)
    oracle = check(cohort, [2], [1])
    truth = oracle.index(2)["undefined_type"]
    assert found.undefined_type.values.tolist() == truth.tolist()
    assert truth[[0, 3, 6, 9]].tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_vote_ties__go_to_the_label_that_appears_first(first: str, second: str) -> None:
    """Around every row lie one row of each label: the vote is always a tie."""
    label = [first, second, second, first, second, first]
    angle = np.deg2rad([0.0, 40.0, 90.0, 180.0, 220.0, 270.0])
    x = np.column_stack([np.cos(angle), np.sin(angle)])
    cohort = Cohort(x, manifest(label, ["x", "y"] * 3))
    oracle = check(cohort, [2, 1, 4], [1])
    found = cd.RI.compute(x, cohort.frame, k_candidates=[2], **cohort.arguments)
    assert float(found.balanced_accuracy[0]) == oracle.balanced_accuracy(oracle.scopes[0], 2)
    # Naming the labels the other way round changes nothing: the order of rows decides.
    renamed = manifest(["z" if v == "a" else v for v in label], ["x", "y"] * 3)
    again = cd.RI.compute(x, renamed, k_candidates=[2], **cohort.arguments)
    assert float(again.balanced_accuracy[0]) == float(found.balanced_accuracy[0])


@pytest.mark.parametrize("design", ["all", "paired_2x2"])
def test_equal_scores__the_first_candidate_given_or_the_smallest(
    design: str, rng: np.random.Generator
) -> None:
    """Two far classes: every k predicts the label perfectly."""
    label = np.arange(40) % 2
    frame = manifest(label, np.arange(40) // 2 % 2, subset=["s"] * 40)
    x = 10.0 * np.eye(2)[label] + rng.normal(size=(40, 2))
    common = {"confounder_column": "center", "evaluation_design": design}
    found = cd.RI.compute(x, frame, k_candidates=[7, 3, 5, 3], **common)
    assert found.balanced_accuracy.values.tolist() == [1.0] * 3
    assert found.k_candidate.values.tolist() == [7, 3, 5]
    assert int(found.k) == (7 if design == "all" else 3)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("tau", [1e-300, 1e-6, 1e-3, 0.05, 1e6])
@pytest.mark.parametrize("n_subsets", [0, 2])
def test_tau__is_right_from_winner_takes_all_to_flat(
    name: str, tau: float, n_subsets: int, rng: np.random.Generator
) -> None:
    cohort = lattice_cohort(rng, 60, n_features=3, reach=3, n_subsets=n_subsets)
    with engine(name, range_rows=31):
        check(cohort, [1, 6, 10], [1], tau=tau)


def test_tiny_tau__is_the_limit_of_the_nearest_typed_neighbour(rng: np.random.Generator) -> None:
    """No ties: each sample is 1 or 0, as its nearest typed neighbour is SO or OS."""
    label, center = rng.integers(0, 2, 90), rng.integers(0, 2, 90)
    cohort = Cohort(rng.normal(size=(90, 4)), manifest(label, center))
    oracle = oracle_of(cohort)
    found = cd.MaRI.compute(
        cohort.x, cohort.frame, k_candidates=[8], tau=1e-9, warn_tau=False, **cohort.arguments
    )
    scope = oracle.scopes[0]
    nearest = [oracle.typed(i, scope, 8) for i in scope.rows]
    expected = [float(t[0][1] == "SO") if t else math.nan for t in nearest]
    np.testing.assert_allclose(found.sample_values, expected, rtol=0, atol=1e-12)
    winner = min((t[0] for t in nearest if t), key=lambda t: t[0])
    assert float(found.value) == (winner[1] == "SO")


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("d", [2, 3, 8])
def test_distances_that_count_as_zero__are_ties(name: str, d: int) -> None:
    """Rows at cosine distances below 1e-14 all tie at 0, however screening would order them."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=d) + 1e-7 * rng.normal(size=(200, d))
    x[0] = -x[0]
    cohort = Cohort(x, manifest(rng.integers(0, 2, 200), rng.integers(0, 2, 200)))
    with engine(name, range_rows=70):
        found = cd.RI.compute(x, cohort.frame, k_candidates=[5], **cohort.arguments)
    # Which distance still lies below 1e-14 is a matter of rounding, for the oracle as for us.
    truth = oracle_of(cohort).index(5)["sample_values"]
    same = np.isclose(found.sample_values, truth, rtol=0, atol=1e-9, equal_nan=True)
    assert same.mean() > 0.97
