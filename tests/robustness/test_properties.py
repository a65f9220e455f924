"""What always holds (specification, section 6), on drawn cohorts.

Permutation and role swap hold with one k candidate, a pinned tau and no distance ties
(decision 12): embeddings are drawn from a seeded generator, which has none.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import croma_dask as cd
from tests.helpers.cohorts import manifest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass
class Drawn:
    """A drawn cohort and how to score it."""

    x: np.ndarray
    frame: pd.DataFrame
    design: str
    k: int
    m: int
    tau: float

    def scores(self, x: Any = None, frame: Any = None, **roles: str) -> dict[str, Any]:
        x = self.x if x is None else x
        frame = self.frame if frame is None else frame
        common = {"confounder_column": "center", "evaluation_design": self.design}
        return {
            "RI": cd.RI.compute(x, frame, k_candidates=[self.k], **common),
            "MaRI": cd.MaRI.compute(
                x, frame, k_candidates=[self.k], tau=self.tau, warn_tau=False, **common
            ),
            "CRoMa": cd.CRoMa.compute(x, frame, m=self.m, **common),
        }


@st.composite
def cohorts(draw: st.DrawFn, *, design: str | None = None) -> Drawn:
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    design = design or draw(st.sampled_from(["all", "paired_2x2"]))
    n = draw(st.integers(16, 70))
    n_labels = n_confounders = 2
    subset = None
    if design == "all":
        n_labels, n_confounders = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    label, confounder = rng.integers(0, n_labels, n), rng.integers(0, n_confounders, n)
    group = rng.integers(0, draw(st.integers(4, n)), n)
    corners = [0, 0, 1, 1], [0, 1, 0, 1]
    label[:4], confounder[:4] = corners
    group[:2] = 0, 1
    if design == "paired_2x2":
        subset = rng.integers(0, 2, n)
        subset[:8] = np.repeat([0, 1], 4)
        label[4:8], confounder[4:8] = corners
    d = draw(st.integers(2, 12))
    x = (
        rng.normal(size=(n, d))
        + draw(st.sampled_from([0.0, 1.0, 3.0])) * np.eye(max(d, 4))[label, :d]
    )
    frame = manifest(label, confounder, group, subset=subset)
    return Drawn(
        x, frame, design, draw(st.integers(1, 7)), draw(st.integers(1, 3)),
        draw(st.sampled_from([0.05, 0.3, 2.0])),
    )  # fmt: skip


def assert_same_numbers(found: Any, expected: Any, order: Any = None, atol: float = 1e-9) -> None:
    """All numbers agree to rounding; rows of `found` are those of `expected` in another order."""
    for name, metric in expected.items():
        for variable in metric.data_vars:
            a, b = found[name][variable].values, metric[variable].values
            if order is not None and metric[variable].dims == ("sample",):
                b = b[order]
            np.testing.assert_allclose(
                a.astype(float), b.astype(float), rtol=0, atol=atol, err_msg=f"{name} {variable}"
            )


@given(cohorts(), st.integers(0, 2**32 - 1))
def test_rotation__changes_nothing(cohort: Drawn, seed: int) -> None:
    d = cohort.x.shape[1]
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
    assert_same_numbers(cohort.scores(cohort.x @ rotation), cohort.scores())


@given(cohorts(), st.integers(0, 2**32 - 1))
def test_scaling_of_rows__changes_nothing(cohort: Drawn, seed: int) -> None:
    rng = np.random.default_rng(seed)
    factor = 10.0 ** rng.uniform(-100, 100, (len(cohort.x), 1))
    assert_same_numbers(cohort.scores(cohort.x * factor), cohort.scores())


@given(cohorts(), st.randoms(use_true_random=False))
def test_permutation_of_rows__permutes_the_samples_and_nothing_else(
    cohort: Drawn, random: Any
) -> None:
    order = list(range(len(cohort.x)))
    random.shuffle(order)
    found = cohort.scores(cohort.x[order], cohort.frame.iloc[order])
    # A vote tie goes to the label that comes first, so the accuracy may move with the rows.
    expected = cohort.scores()
    for scores in (found, expected):
        for name in ("RI", "MaRI"):
            scores[name] = scores[name].drop_vars("balanced_accuracy")
    assert_same_numbers(found, expected, order)
    assert found["RI"].sample_id.values.tolist() == [f"s{i:04d}" for i in order]


@given(cohorts())
def test_swapped_roles__negate_the_margin_and_complement_the_index(cohort: Drawn) -> None:
    swapped = cohort.frame.rename(columns={"label": "center", "center": "label"})
    found, expected = cohort.scores(frame=swapped), cohort.scores()
    for name in ("RI", "MaRI"):
        for field in ("value", "pair_values", "sample_values"):
            np.testing.assert_allclose(
                found[name][field], 1.0 - expected[name][field], rtol=0, atol=1e-12
            )
        np.testing.assert_array_equal(found[name].undefined_type, expected[name].undefined_type)
    for field in ("value", "pair_values", "sample_values"):
        np.testing.assert_allclose(
            found["CRoMa"][field], -expected["CRoMa"][field], rtol=0, atol=1e-12
        )
    cause = expected["CRoMa"].undefined_type.values
    exchanged = np.select([cause == 1, cause == 2], [2, 1], cause)
    np.testing.assert_array_equal(found["CRoMa"].undefined_type, exchanged)


@given(cohorts())
def test_a_flat_tau__makes_mari_ri(cohort: Drawn) -> None:
    cohort.tau = 1e12
    scores = cohort.scores()
    for field in ("value", "pair_values", "sample_values", "curve", "undefined_frac"):
        np.testing.assert_allclose(scores["MaRI"][field], scores["RI"][field], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(scores["MaRI"].undefined_type, scores["RI"].undefined_type)


@given(cohorts(design="all"), st.data())
def test_merging_groups__only_removes_candidates(cohort: Drawn, data: st.DataObject) -> None:
    """Distances to the nearest m can only grow, and rows lose support but never gain it."""
    groups = sorted(set(cohort.frame["group_id"]))
    one, other = data.draw(st.lists(st.sampled_from(groups), min_size=2, max_size=2, unique=True))
    if len(groups) == 2:
        return  # one group left: nothing can be scored
    merged = cohort.frame.assign(group_id=cohort.frame["group_id"].replace(one, other))
    before = cohort.scores()["CRoMa"].undefined_type.values
    after = cohort.scores(frame=merged)["CRoMa"].undefined_type.values
    lacking = [(before == 1) | (before == 3), (before == 2) | (before == 3)]
    still = [(after == 1) | (after == 3), (after == 2) | (after == 3)]
    assert not (lacking[0] & ~still[0]).any()
    assert not (lacking[1] & ~still[1]).any()
    untouched = ~cohort.frame["group_id"].isin([one, other]).to_numpy()
    np.testing.assert_array_equal(
        cohort.scores()["CRoMa"].sample_values.values[untouched],
        cohort.scores(frame=merged)["CRoMa"].sample_values.values[untouched],
    )


@given(cohorts())
def test_ranges__hold(cohort: Drawn) -> None:
    for name, scored in cohort.scores().items():
        for variable in scored.data_vars.values():
            values = variable.values[np.isfinite(variable.values.astype(float))]
            assert (values >= variable.attrs.get("valid_min", -np.inf)).all(), (name, variable.name)
            assert (values <= variable.attrs.get("valid_max", np.inf)).all(), (name, variable.name)
        assert float(scored.support) == pytest.approx(1 - float(scored.undefined_frac))
        defined = scored.sample_values.values[scored.defined.values]
        assert not np.isnan(defined).any()
        assert np.isnan(scored.sample_values.values[~scored.defined.values]).all()
