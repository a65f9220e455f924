"""The reference implementation, croma 1.0.1, on cohorts without distance ties.

Scopes in which the reference drops its farthest candidates (k + max(64, largest group) >= N - 1)
are left out, and float32 embeddings are given to it as float64 (decision 11).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import croma
import numpy as np
import pandas as pd
import pytest

import croma_dask as cd
from tests.helpers.cohorts import Cohort, manifest, random_cohort
from tests.helpers.compare import POOLED, SAMPLE, assert_matches
from tests.helpers.marks import first
from tests.helpers.oracle import Oracle

SEEDS = range(45)
INDEX_FIELDS = [
    "ss_dominated_undefined_frac",
    "oo_dominated_undefined_frac",
    "mixed_undefined_frac",
    "support",
    "median_value",
    "q_alpha",
    "ltm_alpha",
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Both sides warn of what is undefined; here only numbers matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def reference_input(cohort: Cohort) -> tuple[np.ndarray, pd.DataFrame]:
    frame = cohort.frame.copy()
    # The reference insists on columns that this library does not need.
    frame["image_path"] = [f"{i}.png" for i in range(len(frame))]
    frame["dataset"] = "dataset"
    return np.asarray(cohort.x).astype(np.float64), frame


def assert_in_reach_of_the_reference(cohort: Cohort, largest_k: int) -> None:
    frame = cohort.frame
    scopes = [frame] if cohort.design == "all" else [f for _, f in frame.groupby("subset")]
    for scope in scopes:
        group = int(scope["group_id"].value_counts().max())
        assert largest_k + max(64, group) < len(scope) - 1, "outside of what can be compared"


def candidates_for(cohort: Cohort, seed: int) -> list[int]:
    k = [2, 5, 12, 20] if cohort.design == "all" else [1, 2, 6]
    return [k, k[::-1], k[1:] + k[:2]][seed % 3]


def assert_same_index(found: Any, expected: Any, cohort: Cohort) -> None:
    """RI or MaRI, field by field."""
    assert int(found.k) == expected.k
    assert int(found.n_pairs) == expected.n_pairs
    np.testing.assert_allclose(found.value, expected.value, rtol=0, atol=POOLED)
    np.testing.assert_allclose(found["std"], expected.std, rtol=0, atol=POOLED)
    np.testing.assert_allclose(found.pair_values, expected.pair_values, rtol=0, atol=POOLED)
    at = expected.occurrence_source_indices
    np.testing.assert_allclose(
        found.sample_values.values[at], expected.sample_values_aligned, rtol=0, atol=SAMPLE
    )
    np.testing.assert_array_equal(found.defined.values[at], expected.occurrence_defined_mask)
    np.testing.assert_array_equal(found.undefined_type.values[at], expected.sample_undefined_types)
    np.testing.assert_array_equal(found.sample_subset.values[at], expected.occurrence_subsets)
    for name in INDEX_FIELDS:
        np.testing.assert_allclose(
            found[name], getattr(expected, name), rtol=0, atol=SAMPLE, err_msg=name
        )
    np.testing.assert_allclose(found.undefined_frac, 1.0 - expected.support, rtol=0, atol=SAMPLE)
    np.testing.assert_allclose(found.tau, expected.tau, rtol=1e-9)
    assert found.attrs["alpha"] == expected.alpha
    assert found.attrs["evaluation_design"] == expected.evaluation_design == cohort.design
    assert found.attrs["evaluation_unit"] == expected.evaluation_unit
    assert found.attrs["dataset"] == expected.dataset


def assert_same_curve(found: Any, expected: dict[int, float]) -> None:
    assert found.k.values.tolist() == list(expected)
    np.testing.assert_allclose(found.value, list(expected.values()), rtol=0, atol=POOLED)


def compare_indices(cohort: Cohort, candidates: list[int], curve: list[int]) -> None:
    assert_in_reach_of_the_reference(cohort, max(*candidates, *curve))
    x, frame = reference_input(cohort)
    common = cohort.arguments
    ri = cd.RI.compute(cohort.x, cohort.frame, k_candidates=candidates, **common)
    assert_same_index(ri, croma.RI.compute(x, frame, k_candidates=candidates, **common), cohort)
    tau = float(np.asarray(cohort.x).shape[1]) / 40
    for pinned in (None, tau):
        found = cd.MaRI.compute(
            cohort.x, cohort.frame, k_candidates=candidates, tau=pinned, warn_tau=False, **common
        )
        expected = croma.MaRI.compute(
            x, frame, k_candidates=candidates, tau=pinned, warn_tau=False, **common
        )
        assert_same_index(found, expected, cohort)
        assert_same_curve(
            cd.MaRI.compute_curve(cohort.x, cohort.frame, k_values=curve, tau=pinned, **common),
            croma.MaRI.compute_curve(x, frame, k_values=curve, tau=pinned, **common),
        )
    assert_same_curve(
        cd.RI.compute_curve(cohort.x, cohort.frame, k_values=curve, **common),
        croma.RI.compute_curve(x, frame, k_values=curve, **common),
    )
    np.testing.assert_allclose(
        cd.MaRI.recommend_tau(cohort.x, cohort.frame, k=curve[0], **common),
        croma.MaRI.recommend_tau(x, frame, k=curve[0], **common),
        rtol=1e-9,
        equal_nan=True,
    )


def compare_margin(cohort: Cohort, m: list[int], alpha: float) -> None:
    x, frame = reference_input(cohort)
    found = cd.CRoMa.compute(cohort.x, cohort.frame, m=m, alpha=alpha, **cohort.arguments)
    expected = croma.CRoMa.compute(x, frame, m=m, alpha=alpha, **cohort.arguments)
    assert found.m.values.tolist() == list(expected) == m
    for radius, single in expected.items():
        mine = found.sel(m=radius)
        at = single.occurrence_source_indices
        np.testing.assert_allclose(
            mine.sample_values.values[at], single.sample_values_aligned, rtol=0, atol=SAMPLE
        )
        for name in ("value", "pair_values", "std"):
            np.testing.assert_allclose(
                mine[name], getattr(single, name), rtol=0, atol=POOLED, err_msg=name
            )
        for name in ("q_alpha", "ltm_alpha", "f0", "n_pairs"):
            np.testing.assert_allclose(
                mine[name], getattr(single, name), rtol=0, atol=SAMPLE, err_msg=name
            )
        assert float(mine.undefined_frac) == 0.0
        assert float(mine.support) == 1.0
        assert mine.attrs["alpha"] == single.alpha == alpha


def scoreable(cohort: Cohort) -> int:
    """The largest m that every row of a cohort can be scored at, by counting."""
    frame = cohort.frame
    subset = frame["subset"].to_numpy() if cohort.design != "all" else np.zeros(len(frame))
    label, center, group = (frame[c].to_numpy() for c in ("label", "center", "group_id"))
    least = len(frame)
    for i in range(len(frame)):
        other = (group != group[i]) & (subset == subset[i])
        so = other & (label == label[i]) & (center != center[i])
        os = other & (label != label[i]) & (center == center[i])
        least = min(least, int(so.sum()), int(os.sum()))
    return least


@pytest.mark.parametrize("seed", first(15, SEEDS))
def test_indices__equal_the_reference(seed: int) -> None:
    cohort = random_cohort(seed)
    candidates = candidates_for(cohort, seed)
    compare_indices(cohort, candidates, sorted({*candidates, 3})[:4])


@pytest.mark.parametrize("seed", first(15, SEEDS))
def test_margin__equals_the_reference_or_reports_what_it_refuses(seed: int) -> None:
    cohort = random_cohort(seed)
    most = scoreable(cohort)
    if most:
        radii = sorted({1, min(most, 2), min(most, 5), most})
        compare_margin(cohort, radii[:: -1 if seed % 2 else 1], alpha=[0.1, 0.25, 0.05][seed % 3])
        return
    x, frame = reference_input(cohort)
    with pytest.raises(RuntimeError):
        croma.CRoMa.compute(x, frame, m=1, **cohort.arguments)
    found = cd.CRoMa.compute(cohort.x, cohort.frame, m=1, **cohort.arguments)
    oracle = Oracle(
        cohort.x, frame["label"], frame["center"], frame["group_id"],
        frame["subset"] if cohort.design != "all" else None,
    )  # fmt: skip
    truth = oracle.margin(1)
    np.testing.assert_array_equal(found.undefined_type, truth["undefined_type"])
    np.testing.assert_allclose(
        found.sample_values, truth["sample_values"], rtol=0, atol=SAMPLE, equal_nan=True
    )
    np.testing.assert_allclose(found.value, truth["value"], rtol=0, atol=POOLED)


def test_the_cohorts__cover_what_they_should() -> None:
    cohorts = [random_cohort(seed) for seed in SEEDS]
    everything = [c for c in cohorts if c.design == "all"]
    assert {len(set(c.frame["label"])) for c in everything} >= set(range(2, 13))
    assert {len(set(c.frame["center"])) for c in everything} >= set(range(2, 11))
    paired = [c for c in cohorts if c.design == "paired_2x2"]
    assert len(paired) >= 12
    assert all(c.frame["sample_id"].duplicated().sum() > 20 for c in paired)
    assert {c.x.dtype for c in cohorts} == {np.dtype("f4"), np.dtype("f8")}
    spanning = [c for c in everything if c.frame.groupby("group_id")["label"].nunique().max() > 1]
    assert len(spanning) >= 10
    assert sum(scoreable(c) == 0 for c in cohorts) >= 5
    undefined = []
    for cohort in cohorts:
        ri = cd.RI.compute(cohort.x, cohort.frame, k_candidates=[2], **cohort.arguments)
        undefined.append([int((ri.undefined_type == cause).sum()) for cause in (1, 2, 3)])
    assert (np.array(undefined) > 0).sum(axis=0).min() >= 5, "every cause occurs in several cohorts"


def real(folder: Path, label: str, confounder: str, group: str | None) -> Cohort:
    obs = pd.read_csv(folder / "obs.csv", dtype=str, keep_default_na=False)
    frame = manifest(
        obs[label], obs[confounder], None if group is None else obs[group],
        sample_id=obs["sample_id"],
    )  # fmt: skip
    return Cohort(np.load(folder / "X.npy"), frame)


def vowels(shared_data: Path) -> Cohort:
    return real(shared_data / "vowels_pb52", "vowel", "type", "speaker")


def test_vowels__equal_the_reference_where_no_distance_ties(shared_data: Path) -> None:
    """Formants are whole numbers of Hz, so a few distances tie: part them by a millionth of one."""
    cohort = vowels(shared_data)
    apart = np.random.default_rng(52).uniform(-1e-6, 1e-6, cohort.x.shape)
    compare_indices(Cohort(cohort.x + apart, cohort.frame), [5, 11, 21, 51], [5, 21])
    compare_margin(cohort, [1, 5, 20], alpha=0.1)  # ties do not matter to mean distances


@pytest.mark.slow
@pytest.mark.ci
def test_vowels__equal_brute_force_where_distances_tie(shared_data: Path) -> None:
    cohort = vowels(shared_data)
    frame = cohort.frame
    oracle = Oracle(cohort.x, frame["label"], frame["center"], frame["group_id"])
    candidates = [5, 11, 21, 51]
    k = oracle.operating_k(candidates)
    tau = oracle.tau(k)
    for name, weight in (("RI", None), ("MaRI", tau)):
        metric = getattr(cd, name)
        found = metric.compute(cohort.x, frame, k_candidates=candidates, **cohort.arguments)
        assert int(found.k) == k
        assert_matches(found, oracle.index(k, weight))
        expected = [oracle.index(q, weight)["value"] for q in candidates]
        np.testing.assert_allclose(found.curve, expected, rtol=0, atol=POOLED)
    assert float(found.tau) == tau
    # The reference agrees wherever the k-th and the next neighbour are not equally far.
    x, plain = reference_input(cohort)
    other = croma.MaRI.compute(x, plain, k_candidates=candidates, **cohort.arguments)
    neighbors = oracle.scopes[0].neighbors
    clear = np.array([abs(neighbors[i][k - 1][0] - neighbors[i][k][0]) > 1e-12 for i in neighbors])
    assert clear.mean() > 0.99
    np.testing.assert_allclose(
        found.sample_values.values[clear], other.sample_values_aligned[clear], rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("label", first(1, ["cell_type_broad", "cell_type"]))
def test_pbmc__equals_the_reference(shared_data: Path, label: str) -> None:
    cohort = real(shared_data / "symphony_pbmc1200", label, "donor", None)
    assert cohort.x.dtype == np.float32
    compare_indices(cohort, [5, 11, 21, 51], [5, 21])
    bad = cd.CRoMa.compute(cohort.x, cohort.frame, m=5, **cohort.arguments)
    lacking = int((bad.undefined_type > 0).sum())
    if label == "cell_type":
        assert lacking == 6
    x, frame = reference_input(cohort)
    if not lacking:
        compare_margin(cohort, [1, 5], alpha=0.1)
        return
    with pytest.raises(RuntimeError):
        croma.CRoMa.compute(x, frame, m=5, **cohort.arguments)
    keep = bad.defined.values
    # Without the rows that cannot be scored the rest loses candidates: compare that cohort whole.
    part = Cohort(cohort.x[keep], cohort.frame[keep])
    while (most := scoreable(part)) < 5:
        label_counts = part.frame.groupby(["label", "center"]).size()
        scarce = part.frame.set_index(["label", "center"]).index.map(label_counts).to_numpy()
        assert len(part) > 1000, "too few rows left"
        kept = scarce > scarce.min()
        part = Cohort(part.x[kept], part.frame[kept])
    assert most >= 5
    compare_margin(part, [1, 5], alpha=0.1)
