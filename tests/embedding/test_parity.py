"""The benchmark against scikit-learn, scanpy, scib-metrics and scfoundry's scorer.

All of them get the same exact neighbour lists (tests/helpers/scfoundry.py). What they compute in
float32 is compared in float64, too, with brute force (tests/helpers/plain_metrics.py).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import xarray as xr

from croma_dask import embedding_benchmark
from croma_dask.errors import InputWarning
from tests.helpers import plain_metrics as plain
from tests.helpers.embeddings import AWKWARD, GENERATED, Embedding, pbmc68k, symphony
from tests.helpers.scfoundry import Oracle, Scored, oracle_process

# The references compile and search for minutes: these run by themselves (`make slow`, .ci/run).
pytestmark = [pytest.mark.slow, pytest.mark.ci]

EXACT, OF_LISI = 1e-9, 2e-5
CLUSTERED = ("NMI", "HOM", "COM", "FMI", "ARI")
LISI = ("cLISI", "iLISI", "CiLISI")

REAL = ("symphony", "symphony_broad")
NAMES = (*REAL, *GENERATED, *AWKWARD, "pbmc68k")


def benchmark(embedding: Embedding, **how: Any) -> xr.Dataset:
    """Score one embedding, and take the dims of length one away."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # of rows without label or batch
        found = embedding_benchmark(embedding.x, embedding.obs, batch="batch_id", quiet=True, **how)
    return found.squeeze(["dataset", "method"])


@dataclass
class Case:
    """An embedding, and what both sides say of it by default."""

    name: str
    embedding: Embedding
    oracle: Oracle

    @cached_property
    def found(self) -> xr.Dataset:
        return benchmark(self.embedding)

    @cached_property
    def bio(self) -> Scored:
        return self.score(groups="bio")

    @cached_property
    def mixing(self) -> Scored:
        return self.score(groups="batch", bras=False)

    def score(self, **how: Any) -> Scored:
        return self.oracle.score(self.embedding.x, self.embedding.obs, **how)

    def rows(self, *, batches: bool) -> np.ndarray:
        """Rows that the metrics of labels, or of batches, are of."""
        obs = self.embedding.obs
        kept = obs["cell_type"].notna()
        return np.flatnonzero(kept & obs["batch_id"].notna() if batches else kept)

    def known(self, *, batches: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return these rows, their labels and batches."""
        at = self.rows(batches=batches)
        columns = self.embedding.obs.iloc[at]
        return (
            self.embedding.x[at],
            columns["cell_type"].to_numpy(dtype=str),
            columns["batch_id"].to_numpy(dtype=object),
        )

    def value(self, metric: str) -> float:
        return float(self.found["value"].sel(metric=metric))

    def note(self, metric: str) -> str:
        return str(self.found["note"].sel(metric=metric).item())

    @property
    def one_batch(self) -> bool:
        return bool(self.embedding.obs["batch_id"].nunique() < 2)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with oracle_process() as process:
        yield process


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """What was asked stays known for all tests of this module."""
    return {}


def embedding_named(name: str, request: pytest.FixtureRequest) -> Embedding:
    if name == "pbmc68k":
        return pbmc68k()
    if name not in REAL:
        return (GENERATED | AWKWARD)[name]()
    found = symphony(request.getfixturevalue("shared_data"))
    if name == "symphony_broad":
        obs = found.obs.assign(cell_type=found.obs["cell_type_broad"])
        return Embedding(found.x, obs)
    return found


def case_of(name: str, request: pytest.FixtureRequest) -> Case:
    cases: dict[str, Case] = request.getfixturevalue("cases")
    if name not in cases:
        oracle = request.getfixturevalue("oracle")
        cases[name] = Case(name, embedding_named(name, request), oracle)
    return cases[name]


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest) -> Case:
    return case_of(request.param, request)


@pytest.fixture
def rare(request: pytest.FixtureRequest) -> Case:
    return case_of("rare", request)


@pytest.fixture
def missing(request: pytest.FixtureRequest) -> Case:
    return case_of("missing", request)


def same_values(found: xr.Dataset, expected: Scored, metrics: Any, atol: float) -> None:
    for metric in metrics:
        value = float(found["value"].sel(metric=metric))
        np.testing.assert_allclose(
            value, expected.values[metric], rtol=0, atol=atol, equal_nan=True, err_msg=metric
        )


# ---- by default ----------------------------------------------------------------------------------


def test_partition__is_scanpy_s(case: Case) -> None:
    np.testing.assert_array_equal(case.found["cluster"], case.bio.clusters)
    same_values(case.found, case.bio, CLUSTERED, EXACT)
    for metric in CLUSTERED:
        assert case.note(metric) == case.bio.notes[metric]


def test_labels__equal_the_scorer_s(case: Case) -> None:
    same_values(case.found, case.bio, ["ASW", "GC"], EXACT)
    same_values(case.found, case.bio, ["cLISI"], OF_LISI)
    if case.name != "forty_identical":  # there the scorer's tree chooses among equal distances
        same_values(case.found, case.bio, ["Acc@kNN"], EXACT)


def test_batches__equal_the_scorer_s(case: Case) -> None:
    same_values(case.found, case.mixing, ["iLISI", "CiLISI"], OF_LISI)
    if case.name not in ("symphony", "symphony_broad"):
        same_values(case.found, case.mixing, ["kBET"], EXACT)


def test_counts_and_notes__say_what_the_scorer_says(case: Case) -> None:
    for scored in (case.bio, case.mixing):
        for metric, (n_cells, n_dims, n_labels, n_batches) in scored.counts.items():
            one = case.found.sel(metric=metric)
            assert (int(one["n_cells"]), int(one["n_labels"])) == (n_cells, n_labels)
            assert int(one["n_dims"]) == n_dims
            assert int(one["n_batches"]) == (0 if np.isnan(n_batches) else n_batches)
            said = str(one["note"].item()).split(";")
            assert all(part in said for part in scored.notes[metric].split(";") if part)
            assert ("ok" == one["status"]) == bool(np.isfinite(one["value"]))


def test_silhouettes__equal_brute_force(case: Case) -> None:
    x, labels, _ = case.known(batches=False)
    if len(set(labels)) < 2:
        assert np.isnan(case.value("ASW"))
        return
    expected = plain.silhouettes(x, labels)
    found = case.found["silhouette"].values
    np.testing.assert_allclose(found[case.rows(batches=False)], expected, rtol=0, atol=EXACT)
    assert case.value("ASW") == pytest.approx(expected.mean(), abs=EXACT)
    assert int(np.isfinite(found).sum()) == len(expected)


def test_accuracy_and_connectivity__equal_brute_force(case: Case) -> None:
    x, labels, _ = case.known(batches=False)
    expected = plain.accuracy(x, labels)
    assert case.value("Acc@kNN") == pytest.approx(expected, abs=EXACT, nan_ok=True)
    assert case.value("GC") == pytest.approx(plain.connectivity(x, labels), abs=EXACT)


def test_lisi_of_a_cell__equals_brute_force(case: Case) -> None:
    x, labels, _ = case.known(batches=False)
    at = case.rows(batches=False)
    np.testing.assert_allclose(case.found["clisi"][at], plain.lisi(x, labels), rtol=0, atol=EXACT)
    # The library's float32 is further off in some cells (5e-5 in pbmc68k), hardly in the median.
    np.testing.assert_allclose(case.found["clisi"], case.bio.clisi, rtol=0, atol=1e-4)
    if case.one_batch:
        return
    x, labels, batches = case.known(batches=True)
    at = case.rows(batches=True)
    np.testing.assert_allclose(case.found["ilisi"][at], plain.lisi(x, batches), rtol=0, atol=EXACT)
    np.testing.assert_allclose(case.found["ilisi"], case.mixing.ilisi, rtol=0, atol=1e-4)
    expected = plain.cilisi(x, labels, batches)
    np.testing.assert_allclose(case.found["cilisi"][at], expected, rtol=0, atol=EXACT)
    np.testing.assert_allclose(case.found["cilisi"], case.mixing.cilisi, rtol=0, atol=1e-4)


def test_bras__equals_brute_force(case: Case) -> None:
    if case.one_batch:
        return
    value, cells = plain.bras(*case.known(batches=True))
    assert case.value("BRAS") == pytest.approx(value, abs=EXACT, nan_ok=True)
    found = case.found["bras"][case.rows(batches=True)]
    np.testing.assert_allclose(found, cells, rtol=0, atol=EXACT)


def test_kbet_of_a_label__equals_the_library_s(case: Case) -> None:
    """With its largest eigenvalue put right, where that is off 1 by rounding: "B" of symphony.

    With lists of its own the scorer does not run into it (see the last test): distances that differ
    in their last bit are enough.
    """
    if case.one_batch:
        return
    _, labels, _ = case.known(batches=True)
    accepted = case.found["kbet"][case.rows(batches=True)].values
    assert set(case.mixing.kbet_steady) == set(labels)
    for label, score in case.mixing.kbet_steady.items():
        cells = accepted[labels == label]
        tested = cells[np.isfinite(cells)]
        # Without a tested cell the graph is in too small parts (0), or the label is skipped (NaN).
        mean = tested.mean() if len(tested) else 0.0 if score == 0.0 else np.nan
        assert mean == pytest.approx(score, abs=EXACT, nan_ok=True), label
    scores = list(case.mixing.kbet_steady.values())
    assert case.value("kBET") == pytest.approx(np.nanmean(scores), abs=EXACT)
    as_it_is = {
        label
        for label, score in case.mixing.kbet.items()
        if score != pytest.approx(case.mixing.kbet_steady[label], nan_ok=True)
    }
    assert as_it_is <= ({"B"} if "symphony" in case.name else set())


def test_the_embeddings__cover_what_they_should(rare: Case) -> None:
    kbet = rare.mixing.kbet
    assert {label for label, score in kbet.items() if np.isnan(score)} == {
        "Baso", "Ery", "ILC", "dc", "pDC"  # too small, or of one batch
    }  # fmt: skip
    assert kbet["Mono"] == 0.0, "too much of its graph is in small parts"
    assert all(0.0 < kbet[label] < 1.0 for label in ("T10", "T8", "NK", "b cell"))
    accepted = rare.found["kbet"][(rare.embedding.obs["cell_type"] == "b cell").to_numpy()]
    assert int(accepted.isnull().sum()) == 80, "small parts are left out"
    for metric in ("kBET", "BRAS"):
        assert 0.1 < rare.value(metric) < 0.95
    sizes = rare.embedding.obs["cell_type"].value_counts()
    assert set(sizes) >= {1, 4, 5, 9, 10, 12}


# ---- other readings ------------------------------------------------------------------------------


def test_missing_batches__leave_all_metrics_on_demand(missing: Case) -> None:
    found = benchmark(missing.embedding, missing_batches="all_metrics")
    expected = missing.score(groups="all", bras=False)
    same_values(found, expected, [*CLUSTERED, "ASW", "Acc@kNN", "GC", "kBET"], EXACT)
    same_values(found, expected, LISI, OF_LISI)
    np.testing.assert_array_equal(found["cluster"], expected.clusters)
    for metric in ("ASW", "kBET"):
        assert int(found["n_cells"].sel(metric=metric)) == expected.counts[metric][0] == 995
    assert abs(float(found["value"].sel(metric="ASW")) - missing.value("ASW")) > 1e-4


def test_best_nmi__chooses_as_the_scorer_does(missing: Case) -> None:
    found = benchmark(missing.embedding, selection="best_nmi", metrics=list(CLUSTERED))
    expected = missing.score(groups="bio", leiden_no_match_n_labels=True)
    np.testing.assert_array_equal(found["cluster"], expected.clusters)
    same_values(found, expected, CLUSTERED, EXACT)
    assert found["note"].sel(metric="NMI").item() == expected.notes["NMI"]
    assert expected.notes["NMI"] != missing.bio.notes["NMI"]


def test_kmeans__clusters_as_scikit_learn_does(missing: Case) -> None:
    found = benchmark(missing.embedding, clustering="kmeans", metrics="bio")
    expected = missing.score(groups="bio", clustering="kmeans")
    np.testing.assert_array_equal(found["cluster"], expected.clusters)
    same_values(found, expected, CLUSTERED, EXACT)


def test_batch_max_cells__draws_the_scorer_s_rows(rare: Case) -> None:
    # 350: what is left over goes to one stratum, so that no order of equal fractions shows. The
    # scorer's is that of numpy's unstable sort, here it is that of the strata.
    found = benchmark(rare.embedding, batch_max_cells=350, metrics="batch")
    expected = rare.score(groups="batch", bras=False, batch_max_cells=350)
    assert int(found["n_cells"].sel(metric="kBET")) == 350
    same_values(found, expected, ["iLISI", "CiLISI"], OF_LISI)
    steady = np.nanmean(list(expected.kbet_steady.values()))
    assert float(found["value"].sel(metric="kBET")) == pytest.approx(steady, abs=EXACT)
    for metric, note in expected.notes.items():
        assert set(note.split(";")) <= set(found["note"].sel(metric=metric).item().split(";"))


def test_independent_components__equal_the_label_scored_alone(rare: Case) -> None:
    """The scorer does so where it skips all other labels: here each is of one batch."""
    found = benchmark(rare.embedding, kbet_components="independent", metrics=["kBET"])
    labels, batches = rare.embedding.obs["cell_type"], rare.embedding.obs["batch_id"]
    accepted = found["kbet"].values
    changed = []
    for label in ("T10", "T8"):
        alone = rare.embedding.obs.assign(cell_type=labels.where(labels == label, batches))
        scored = rare.oracle.score(rare.embedding.x, alone, groups="batch", bras=False)
        mine = float(np.nanmean(accepted[(labels == label).to_numpy()]))
        assert mine == pytest.approx(scored.kbet_steady[label], abs=EXACT)
        changed.append(scored.kbet_steady[label] != rare.mixing.kbet_steady[label])
    assert any(changed), "the ten cells of HSC, which comes first, leave nine components to all"


def test_other_readings__equal_brute_force(rare: Case) -> None:
    found = benchmark(
        rare.embedding, gc_components="weak", cilisi_average="labels", bras_other="batches",
        metrics=["GC", "CiLISI", "BRAS"],
    )  # fmt: skip
    value = {str(m): float(found["value"].sel(metric=m)) for m in found["metric"].values}
    x, labels, batches = rare.known(batches=True)
    weak = plain.connectivity(x, labels, components="weak")
    assert value["GC"] == pytest.approx(weak, abs=EXACT)
    assert weak - rare.value("GC") > 0.01
    cells = plain.cilisi(x, labels, batches)
    means = [cells[labels == name].mean() for name in np.unique(labels)]
    assert value["CiLISI"] == pytest.approx(np.nanmean(means), abs=EXACT)
    assert abs(value["CiLISI"] - rare.value("CiLISI")) > 0.01
    pooled, of_cells = plain.bras(x, labels, batches, other="batches")
    assert value["BRAS"] == pytest.approx(pooled, abs=EXACT)
    np.testing.assert_allclose(found["bras"], of_cells, rtol=0, atol=EXACT)
    assert abs(value["BRAS"] - rare.value("BRAS")) > 1e-3


def test_lisi_compat__is_nearer_to_the_library(rare: Case) -> None:
    found = benchmark(rare.embedding, lisi_compat="scib-metrics", metrics=["cLISI", "iLISI"])
    np.testing.assert_allclose(found["clisi"], rare.bio.clisi, rtol=0, atol=1e-4)
    np.testing.assert_allclose(found["ilisi"], rare.mixing.ilisi, rtol=0, atol=1e-4)
    same_values(found, rare.bio, ["cLISI"], OF_LISI)


# ---- the scorer itself ---------------------------------------------------------------------------


def test_brute_force__equals_the_scorer_s(rare: Case) -> None:
    """The references of this module are proven on what they were not written from."""
    x, labels, batches = rare.known(batches=True)
    n_labels, n_batches = len(set(labels)), len(set(batches))
    bio, mixing = rare.bio.values, rare.mixing.values
    assert plain.silhouettes(x, labels).mean() == pytest.approx(bio["ASW"], abs=EXACT)
    assert plain.accuracy(x, labels) == pytest.approx(bio["Acc@kNN"], abs=EXACT)
    assert plain.connectivity(x, labels) == pytest.approx(bio["GC"], abs=EXACT)
    middle = float(np.median(plain.lisi(x, labels)))
    assert (n_labels - middle) / (n_labels - 1) == pytest.approx(bio["cLISI"], abs=OF_LISI)
    middle = float(np.median(plain.lisi(x, batches)))
    assert (middle - 1) / (n_batches - 1) == pytest.approx(mixing["iLISI"], abs=OF_LISI)
    cells = plain.cilisi(x, labels, batches)
    assert np.nanmean(cells) == pytest.approx(mixing["CiLISI"], abs=OF_LISI)


@pytest.mark.parametrize("name", ["rare", "missing", "one_label", "symphony"])
def test_bras__is_near_the_library_s_float32(name: str, request: pytest.FixtureRequest) -> None:
    case = case_of(name, request)
    scored = case.score(groups="batch")
    assert case.value("BRAS") == pytest.approx(scored.values["BRAS"], abs=1e-6)


def test_scorer__leaves_this_process_alone(rare: Case) -> None:
    filters, modules, environment = list(warnings.filters), set(sys.modules), dict(os.environ)
    rare.score(groups="bio")
    assert warnings.filters == filters
    assert dict(os.environ) == environment
    assert set(sys.modules) == modules


@pytest.mark.parametrize("name", ["symphony", "rare", "missing", "one_label"])
def test_scorer__says_the_same_with_its_own_search(
    name: str, request: pytest.FixtureRequest
) -> None:
    """End to end: nearest neighbours by descent, of which it misses none here."""
    case = case_of(name, request)
    scored = case.score(groups="batch", bras=False, exact=False)
    same_values(case.found, scored, ["kBET"], EXACT)
    same_values(case.found, scored, ["iLISI", "CiLISI"], OF_LISI)
    scored = case.score(groups="bio", exact=False)
    same_values(case.found, scored, ["GC"], EXACT)
    same_values(case.found, scored, ["cLISI"], OF_LISI)
