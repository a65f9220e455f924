"""The evidence of every sample, from which pooled values are made."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from tests.helpers.cohorts import Cohort, lattice_cohort, manifest, random_cohort
from tests.helpers.oracle import Oracle

pytestmark = pytest.mark.filterwarnings("ignore:.*units", "ignore:.*subsets")


def pooled(node: xr.Dataset, metric: str) -> float:
    """Pooled value of all samples, from their evidence by plain sums."""
    so, os, distance = (
        node[name].values if name in node else np.zeros(node.sizes["sample"])
        for name in ("so_evidence", "os_evidence", "evidence_distance")
    )
    if metric == "MaRI":
        weight = np.exp(-(distance - np.nanmin(distance)) / node.tau.item())
        so, os = np.nansum(so * weight), np.nansum(os * weight)
    return float(so.sum() / (so.sum() + os.sum()))


def oracle_of(cohort: Cohort) -> Oracle:
    frame = cohort.frame
    subset = frame["subset"] if cohort.design == "paired_2x2" else None
    return Oracle(cohort.x, frame["label"], frame["center"], frame["group_id"], subset)


@pytest.mark.parametrize("n_subsets", [0, 3])
def test_evidence__is_what_the_specification_weighs(
    rng: np.random.Generator, n_subsets: int
) -> None:
    cohort = lattice_cohort(rng, 80, n_features=4, reach=5, n_groups=25, n_subsets=n_subsets)
    tree = cd.score(
        cohort.x, cohort.frame, confounder="center", design=cohort.design,
        k_candidates=[7], metrics=["RI", "MaRI"], tau=0.1, warn_tau=False,
    )  # fmt: skip
    oracle = oracle_of(cohort)
    typed = {i: oracle.typed(i, scope, 7) for scope in oracle.scopes for i in scope.rows}
    for i, found in typed.items():
        # Of its own scale: the nearest typed neighbour of a sample weighs 1.
        nearest = min((d for d, _ in found), default=math.nan)
        assert float(tree["MaRI"]["evidence_distance"][i]) == pytest.approx(
            nearest, abs=1e-12, nan_ok=True
        )
        for kind in ("so", "os"):
            mine = [d for d, which in found if which == kind.upper()]
            assert float(tree["RI"][f"{kind}_evidence"][i]) == len(mine)
            weight = math.fsum(math.exp(-(d - nearest) / 0.1) for d in mine)
            assert float(tree["MaRI"][f"{kind}_evidence"][i]) == pytest.approx(weight, rel=1e-12)
    assert "evidence_distance" not in tree["RI"]


@pytest.mark.parametrize("seed", [1, 5])
def test_evidence__adds_up_to_the_pooled_value(seed: int) -> None:
    cohort = random_cohort(seed)
    tree = cd.score(cohort.x, cohort.frame, confounder="center", design=cohort.design)
    for name in ("RI", "MaRI"):
        node = tree[name].to_dataset()
        assert pooled(node, name) == pytest.approx(node.value.item(), abs=1e-14)
        undefined = node.undefined_type.values != 0
        assert not node.so_evidence.values[undefined].any()
        assert not node.os_evidence.values[undefined].any()
        typed = (node.so_evidence + node.os_evidence).values
        assert (typed[~undefined] >= 1.0).all()
    np.testing.assert_array_equal(np.isnan(tree["MaRI"].evidence_distance), undefined)


def test_evidence__of_rows_that_are_not_scored_is_zero(rng: np.random.Generator) -> None:
    cohort = lattice_cohort(rng, 90, n_features=4, reach=5, n_subsets=3)
    lacking = (cohort.frame["subset"] == "1") & (cohort.frame["label"] == "0")
    frame = cohort.frame[~lacking].reset_index(drop=True)
    with pytest.warns(cd.SupportWarning, match="no complete 2x2"):
        tree = cd.score(
            cohort.x[~lacking.to_numpy()], frame, confounder="center", design="paired_2x2",
            k_candidates=[5], skip_incomplete=True,
        )  # fmt: skip
    left_out = (frame["subset"] == "1").to_numpy()
    for name in ("RI", "MaRI"):
        assert not tree[name].so_evidence.values[left_out].any()
        if name == "MaRI":
            assert np.isnan(tree[name].evidence_distance.values[left_out]).all()
        assert tree[name].so_evidence.values[~left_out].any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the exact search may choose")
def test_evidence__of_an_approximate_search_adds_up_too(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    n = 3_000
    label, center = rng.integers(0, 3, n), np.arange(n) % 60 % 3
    x = rng.normal(size=(n, 8)) + 1.2 * rng.normal(size=(3, 8))[label]
    x += 0.8 * rng.normal(size=(3, 8))[center]
    frame = manifest(label, center, np.arange(n) % 60)
    index = cd.build_index(x, "ivf", path=tmp_path / "ivf.zarr", cluster_rows=64)
    tree = cd.score(x, frame, confounder="center", index=index, probes=6)
    assert tree["RI"].attrs["recall"] < 1.0
    for name in ("RI", "MaRI"):
        found = pooled(tree[name].to_dataset(), name)
        assert found == pytest.approx(tree[name].value.item(), abs=1e-13)
    assert float(cd.bootstrap(tree)["RI"].value_std_error) > 0
