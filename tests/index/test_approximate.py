"""The search through an index: what it finds, what it says of itself, and what it never loses."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import croma_dask as cd
from croma_dask import approximate, build, closer, cost, graph, layout
from croma_dask.closer import CloserLook, ExactSearch
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.location import Location
from croma_dask.errors import RecallWarning, SchemaError
from croma_dask.graph import pair_graph
from croma_dask.index import streamed
from croma_dask.index.making import Work
from croma_dask.index.neighbors import IndexedLists
from croma_dask.index.partition import count_clusters
from croma_dask.index.probing import Radius
from croma_dask.index.recipe import Recipe
from croma_dask.index.scratch import Scratch
from croma_dask.index.source import StoreSource
from croma_dask.index.spec import ListSpec
from croma_dask.index.stored import StoredIndex
from croma_dask.index.streamed import Job
from croma_dask.kernels.frame import Frame
from croma_dask.layout import MOST_TASKS, lay_out_probed
from croma_dask.options import Options
from croma_dask.robustness import near_ties
from tests.helpers.awkward import AWKWARD
from tests.helpers.cohorts import Cohort, features, manifest
from tests.helpers.compare import assert_same_bits
from tests.helpers.marks import CI, first

KIND = "ivf"
METRICS = ("RI", "MaRI", "CRoMa")
N = 1_500

# Not by `catch_warnings`: that is the process's, and some tests run two scores side by side.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*units"),
    pytest.mark.filterwarnings("ignore:.*rows are zero"),
    pytest.mark.filterwarnings("ignore:.*candidates"),
]

SCORE: dict[str, Any] = {
    "confounder": "center", "k_candidates": [3, 5, 11], "m": [1, 5], "tau": 0.2, "warn_tau": False,
    "calibration": 100,
}  # fmt: skip


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    with cd.set_options(scratch=str(folder), threads=1):
        yield folder


def plain_cohort(n: int = N, *, seed: int = 11, d: int = 10, dtype: Any = np.float32) -> Cohort:
    rng = np.random.default_rng(seed)
    label, center = rng.integers(0, 4, n), rng.integers(0, 4, n)
    x = features(rng, label, center, d, biology=0.5, shortcut=0.5).astype(dtype)
    frame = manifest(label, center, np.arange(n) // 4)
    frame["scanner"] = rng.integers(0, 3, n).astype(str)
    return Cohort(x, frame)


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return plain_cohort()


@pytest.fixture(scope="module")
def index(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> StoredIndex:
    """Some 46 clusters."""
    place = tmp_path_factory.mktemp("approximate") / "index.zarr"
    with cd.set_options(threads=1, scratch=str(place.parent / "scratch")):
        return cd.build_index(cohort.x, KIND, path=place, cluster_rows=32)


@pytest.fixture(scope="module")
def exact(cohort: Cohort) -> xr.DataTree:
    return score(cohort)


def score(cohort: Cohort, index: Any = "exact", **how: Any) -> xr.DataTree:
    return cd.score(cohort.x, cohort.frame, index=index, **{**SCORE, **how})


def everywhere(index: StoredIndex) -> dict[str, Any]:
    """How rows look into every cluster."""
    return {"probes": index.partition.n_clusters, "start_k": index.n_rows}


@contextlib.contextmanager
def ranges_of(rows: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LARGEST_RANGE", rows)
        yield


def assert_same(found: xr.DataTree, expected: xr.DataTree) -> None:
    assert set(found.children) == set(expected.children)
    for name in expected.children:
        assert_same_bits(found[name].to_dataset(), expected[name].to_dataset())


RADIUS = ("k_start", "k_final", "retries")
"""What a search says of its way, not of what it has found."""


def assert_exact(found: xr.DataTree, expected: xr.DataTree) -> None:
    """Every array of an exact result is there with the same bits; attributes differ."""
    for name in METRICS:
        mine, other = found[name].to_dataset(), expected[name].to_dataset()
        mine.attrs, other.attrs = {}, {}
        fields = [v for v in other.data_vars if v not in RADIUS]
        assert_same_bits(mine[fields], other[fields])
        for suffix in ("", "_low", "_high"):
            assert (mine[f"value_error{suffix}"] == 0.0).all() or suffix
        for kind in ("global",) if name != "CRoMa" else ("so", "os"):
            assert mine[f"recall_{kind}"] == 1.0


# ---- looking everywhere ----------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1 << 17, 700, 150])
@pytest.mark.slow
def test_looking_everywhere__has_the_bits_of_the_exact_search(
    rows: int, cohort: Cohort, index: StoredIndex, exact: xr.DataTree
) -> None:
    with ranges_of(rows):
        assert_exact(score(cohort, index, **everywhere(index)), exact)


@pytest.mark.parametrize("metrics", first(0, [(("RI",),), (("CRoMa",),), (("MaRI", "CRoMa"),)]))
def test_looking_everywhere__for_some_of_the_lists_only(
    metrics: tuple[str, ...], cohort: Cohort, index: StoredIndex, exact: xr.DataTree
) -> None:
    with ranges_of(400):
        found = score(cohort, index, metrics=metrics, **everywhere(index))
    assert tuple(found.children) == metrics
    for name in metrics:
        for field in ("value", "sample_values", "undefined_type"):
            assert found[name][field].values.tobytes() == exact[name][field].values.tobytes()


@pytest.mark.parametrize("threads", first(0, [5, 2]))
def test_looking_everywhere__on_any_number_of_threads(
    threads: int, scheduler: str, cohort: Cohort, index: StoredIndex, exact: xr.DataTree
) -> None:
    with ranges_of(200):
        assert_exact(score(cohort, index, threads=threads, **everywhere(index)), exact)


def test_looking_everywhere__within_the_least_memory(tmp_path: Path) -> None:
    cohort = plain_cohort(2_500, seed=4, dtype=np.float64)
    place = cd.write_cohort(tmp_path / "c.zarr", cohort.x, cohort.frame, chunk_rows=64)
    index = cd.build_index(place, KIND, cluster_rows=30)
    expected = cd.score(place, **SCORE)
    with pytest.raises(cd.MemoryLimitError) as refusal:
        cd.score(place, index=KIND, memory=1, **SCORE)
    told = re.search(r"at least ([\d.]+) MB", str(refusal.value))
    assert told is not None
    least = f"{float(told[1]) + 0.02:.2f}MB"
    seen: list[int] = []

    def seeing(*args: Any, **kwargs: Any) -> Any:
        found = lay_out_probed(*args, **kwargs)
        seen.append(len(found.edges) - 1)
        assert found.peak <= cd.memory.parse_bytes(least)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(approximate, "lay_out_probed", seeing)
        assert_exact(
            cd.score(place, index=KIND, memory=least, **SCORE, **everywhere(index)), expected
        )
    assert seen[0] >= 8, "in many ranges"


def test_memory__is_refused_before_an_index_is_built(cohort: Cohort, tmp_path: Path) -> None:
    place = cd.write_cohort(tmp_path / "c.zarr", cohort.x, cohort.frame)
    for call in (cd.score, cd.plan):
        with pytest.raises(cd.MemoryLimitError, match="raise memory="):
            call(place, confounder="center", index=KIND, memory="330MB")
    assert [path.name for path in tmp_path.iterdir()] == ["c.zarr"]


@given(
    sizes=st.lists(st.integers(1, 3_000), min_size=1, max_size=60),
    megabytes=st.integers(350, 700),
    n_tasks=st.integers(1, 3),
)
def test_ranges__are_whole_clusters_within_the_memory(
    sizes: list[int], megabytes: int, n_tasks: int
) -> None:
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = Embedding(np.broadcast_to(np.float32(0), (int(edges[-1]), 2_048)), None)
    options = Options(memory=f"{megabytes}MB")
    try:
        found = lay_out_probed(
            rows, KIND, edges, ListSpec(51, 5), options, n_tasks=n_tasks, fixed=1 << 20
        )
    except cd.MemoryLimitError as refusal:
        told = str(refusal)
        if not re.search("at least|largest cluster of the index has .* cluster_rows", told):
            raise
        return
    assert found.peak <= megabytes * 10**6
    assert (found.edges[0], found.edges[-1]) == (0, edges[-1])
    assert set(found.edges) <= set(edges.tolist())
    assert list(found.edges) == sorted(set(found.edges))


# ---- looking at some clusters ----------------------------------------------------------------


def test_results__do_not_depend_on_ranges_threads_and_repetition(
    cohort: Cohort, index: StoredIndex
) -> None:
    expected = score(cohort, index)
    assert expected["RI"].attrs["probes"] < index.partition.n_clusters // 2
    assert_same(score(cohort, index), expected)
    for rows, threads in ((700, 1), (150, 3)):
        with ranges_of(rows):
            assert_same(score(cohort, index, threads=threads), expected)


def test_results__tell_how_they_came_about(
    cohort: Cohort, index: StoredIndex, exact: xr.DataTree
) -> None:
    found = score(cohort, index, recall=0.97, seed=5)
    for name in METRICS:
        attrs = found[name].attrs
        assert attrs["index"] == KIND
        assert attrs["recall_wanted"] == 0.97
        assert attrs["n_clusters"] == index.partition.n_clusters
        assert 1 <= attrs["probes"] < attrs["n_clusters"] // 2
        assert attrs["calibration_seed"] == 5
        assert 0.95 < attrs["recall"] <= 1.0
        assert found[name].calibration_rows == 100
        assert exact[name].attrs["index"] == "exact"
    assert found["RI"].recall_global == found["MaRI"].recall_global == found["RI"].attrs["recall"]
    assert np.isnan(found["CRoMa"].recall_global)
    assert min(found["CRoMa"].recall_so, found["CRoMa"].recall_os) > 0.95


def test_results__of_a_cohort_that_is_all_sample_are_exact(
    cohort: Cohort, index: StoredIndex, exact: xr.DataTree
) -> None:
    """The sample's rows have their exact lists; here these are all rows, but for the last look."""
    with pytest.warns(RecallWarning):
        found = score(cohort, index, probes=2, start_k=10, calibration=N)
    assert float(found["RI"].recall_global) < 0.95, "of the search, not of what is delivered"
    for name in METRICS:
        for field in ("value", "sample_values", "undefined_type"):
            assert found[name][field].values.tobytes() == exact[name][field].values.tobytes()
        for end in ("", "_low", "_high"):
            assert (found[name][f"value_error{end}"] == 0.0).all()


def test_results__state_an_error_that_is_there(
    cohort: Cohort, index: StoredIndex, exact: xr.DataTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many rows are searched exactly: what they tell of the others is nearly the truth."""
    monkeypatch.setattr(near_ties, "_LEAST", 1)
    with pytest.warns(RecallWarning):
        found = score(cohort, index, probes=2, start_k=10, calibration=600)
    for name in METRICS:
        result = found[name]
        assert int(result.calibration_rows) == 600
        off = result.value - exact[name].value
        assert (np.abs(off) > 1e-6).all(), "so far off that there is something to state"
        # An interval of 95 % misses now and then, but not by as much as it is wide.
        wide = result.value_error_high - result.value_error_low
        assert (result.value_error_low - wide <= off).all()
        assert (off <= result.value_error_high + wide).all()
        assert (wide < 0.1).all()


def test_recall__is_what_was_asked_for(cohort: Cohort, index: StoredIndex) -> None:
    """Tuned on some rows, measured on others."""
    looked = []
    for wanted in (0.9, 0.96, 0.99, 1.0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecallWarning)
            found = score(cohort, index, recall=wanted, calibration=1_000)
        assert float(found["RI"].recall_global) > wanted - 0.015
        assert min(float(found["CRoMa"][f"recall_{q}"]) for q in ("so", "os")) > 2 * wanted - 1.02
        looked.append(found["RI"].attrs["probes"])
    assert looked == sorted(looked)
    assert looked[0] < looked[-1]


@pytest.mark.parametrize(
    ("how", "argument"),
    [({"probes": 1, "start_k": 5}, "probes"), ({"recall": 0.6, "start_k": 5}, "recall")],
)
def test_recall__below_what_is_good_warns_and_names_the_argument(
    how: dict[str, Any], argument: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    label, center = rng.integers(0, 3, N), rng.integers(0, 3, N)
    isotropic = Cohort(rng.normal(size=(N, 24)), manifest(label, center))
    index = cd.build_index(isotropic.x, KIND, path=tmp_path / "i.zarr", cluster_rows=32)
    with pytest.warns(RecallWarning, match=f"raise {argument}, or use index='exact'") as told:
        found = score(isotropic, index, **how)
    told_ = next(w for w in told if "raise" in str(w.message) and w.category is RecallWarning)
    assert told_.filename == __file__, "where it was called"
    assert found["RI"].attrs["recall"] < 0.9
    share = f"{float(found['RI'].recall_global):.3f} of the nearest neighbours"
    assert share in str(told_.message)


def test_radius__is_widened_until_it_is_enough(cohort: Cohort, index: StoredIndex) -> None:
    wide = score(cohort, index, start_k=N)["CRoMa"]
    assert (int(wide.k_start), int(wide.retries)) == (N, 0)
    assert int(wide.k_final) >= N
    how: dict[str, Any] = {"metrics": "CRoMa", "start_k": 1, "recall": 0.999}
    narrow = score(cohort, index, **how)["CRoMa"]
    assert int(narrow.k_start) == 1
    assert int(narrow.retries) > 0
    assert 1 < int(narrow.k_final) < N
    slow = score(cohort, index, **how, k_growth_factor=1.2)["CRoMa"]
    assert int(slow.retries) > int(narrow.retries)
    assert int(slow.k_final) <= int(narrow.k_final)


def test_one_index__serves_every_confounder_and_group(cohort: Cohort, index: StoredIndex) -> None:
    for other in (
        {"confounder": "scanner"}, {"confounder": "scanner", "label": "center"},
        {"confounder": "center", "group": "sample_id"},
    ):  # fmt: skip
        found, expected = (score(cohort, i, **other, **everywhere(index)) for i in (index, "exact"))
        assert_exact(found, expected)


def test_metrics_themselves__take_an_index(
    cohort: Cohort, index: StoredIndex, tmp_path: Path
) -> None:
    """One by one, and of a cohort that is opened lazily: what `score` finds."""
    expected = score(cohort, index, calibration=1_000)
    arguments = {"confounder_column": "center", "index": index}
    place = cd.write_cohort(tmp_path / "c.zarr", cohort.x, cohort.frame)
    for features_, frame in ((cohort.x, cohort.frame), (cd.open_cohort(place), None)):
        ri = cd.RI.compute(features_, frame, k_candidates=[3, 5, 11], **arguments)
        margin = cd.CRoMa.compute(features_, frame, m=[1, 5], **arguments)
        for found, other in ((ri, expected["RI"]), (margin, expected["CRoMa"])):
            assert found.attrs["index"] == KIND
            assert found.calibration_rows == other.calibration_rows == 1_000
        # The radius of each is chosen on its own lists: RI alone has the same ones.
        assert abs(float(ri.value - expected["RI"].value)) < 5e-3
        np.testing.assert_allclose(margin.value, expected["CRoMa"].value, rtol=0, atol=5e-3)


def test_recall__is_unknown_where_no_row_of_the_sample_has_a_typed_neighbour(
    tmp_path: Path,
) -> None:
    """Nine rows of 1,500 have any: the error of CRoMa is not known, and numpy does not warn."""
    rng = np.random.default_rng(0)
    label, center = np.zeros((2, N), int)
    label[:9], center[:9] = [1] * 6 + [2] * 3, [1, 2] * 4 + [1]
    order = rng.permutation(N)
    rare = Cohort(rng.normal(size=(N, 8)), manifest(label[order], center[order]))
    index = cd.build_index(rare.x, KIND, path=tmp_path / "i.zarr", cluster_rows=32)
    for sample in range(20):
        found = score(rare, index, metrics="CRoMa", seed=sample, m=1)["CRoMa"]
        if np.isnan(found.recall_so):
            break
    else:
        pytest.fail("no sample without such a row")
    assert np.isnan(found.attrs["recall"])
    assert np.isnan(found.value_error)
    exact = score(rare, metrics="CRoMa", m=1)["CRoMa"]
    np.testing.assert_array_equal(found.undefined_type, exact.undefined_type)


def test_sketch__of_wide_rows_loses_no_row_and_hardly_a_neighbour(tmp_path: Path) -> None:
    """Most of the spectrum is in a few directions: candidates are screened by these."""
    rng = np.random.default_rng(6)
    n, d = 2_400, 160
    label, center = rng.integers(0, 3, n), rng.integers(0, 3, n)
    x = features(rng, label, center, d, biology=0.3, shortcut=0.3)
    x = (x * (1.0 + np.arange(d)) ** -1.5).astype(np.float32)
    wide = Cohort(x, manifest(label, center, np.arange(n) // 4))
    index = cd.build_index(wide.x, KIND, path=tmp_path / "i.zarr", cluster_rows=40)
    assert 0 < index.partition.basis.shape[1] <= d // 2
    expected = score(wide)
    with ranges_of(700):
        found, all_of_it = score(wide, index), score(wide, index, **everywhere(index))
    for result in (found, all_of_it):
        np.testing.assert_array_equal(
            result["CRoMa"].undefined_type, expected["CRoMa"].undefined_type
        )
    assert float(found["RI"].recall_global) > 0.96
    assert float(all_of_it["RI"].recall_global) > 0.999
    for name in METRICS:
        np.testing.assert_allclose(all_of_it[name].value, expected[name].value, rtol=0, atol=1e-3)
        same = all_of_it[name].sample_values == expected[name].sample_values
        assert float(same.mean()) > 0.98, "distances are exact, whatever the screening was"


# ---- rows that are never lost ----------------------------------------------------------------

SEEDS = [
    pytest.param(0, marks=CI),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3)),
]


class Trial:
    """An awkward cohort, searched exactly, and through more and less of an index."""

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        cohort = AWKWARD[name](np.random.default_rng([seed, *name.encode()]))
        index = cd.build_index(cohort.x, KIND, path=folder / "i.zarr", cluster_rows=32)
        self.exact = score(cohort)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecallWarning)
            self.found = score(cohort, index)
            self.sure = score(cohort, index, recall=1.0)
            self.default = score(cohort, index, calibration=1000)
            self.least = score(cohort, index, probes=1, start_k=1, recall=0.5)


@pytest.fixture(scope="module", params=SEEDS)
def trials(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Trial]:
    folder = tmp_path_factory.mktemp("awkward")
    with cd.set_options(threads=1, scratch=str(folder / "scratch")), warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        warnings.simplefilter("ignore", cd.InputWarning)
        return {name: Trial(name, request.param, folder / name) for name in AWKWARD}


def test_awkward_cohorts__are_twenty_and_mostly_not_looked_at(trials: dict[str, Trial]) -> None:
    assert len(trials) == 20
    looked_at = {}
    for name, trial in trials.items():
        attrs = trial.found["RI"].attrs
        looked_at[name] = attrs["probes"] / attrs["n_clusters"]
        assert trial.least["RI"].attrs["probes"] == 1
        assert int(trial.least["CRoMa"].k_final) < 200
    assert max(looked_at.values()) < 0.75, looked_at
    assert np.median(list(looked_at.values())) < 0.25, looked_at


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_cohort__every_row_that_has_a_margin_gets_one(
    name: str, trials: dict[str, Trial]
) -> None:
    """By counting: whatever else a search misses, it meets enough SO and OS rows."""
    trial = trials[name]
    for found in (trial.found, trial.sure, trial.least):
        for field in ("undefined_type", "support", "defined"):
            np.testing.assert_array_equal(found["CRoMa"][field], trial.exact["CRoMa"][field])


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_cohort__operating_k_and_causes_are_those_of_the_exact_search(
    name: str, trials: dict[str, Trial]
) -> None:
    """The operating k always; a cause as far as a search can tell that misses a few neighbours.

    The cause of a row whose only SO or OS row is about the k-th may be another one, where the row
    was not looked at closer.
    """
    trial = trials[name]
    for found, share in ((trial.found, 0.005), (trial.sure, 0.003)):
        for metric in ("RI", "MaRI"):
            exact = trial.exact[metric]
            assert int(found[metric].k) == int(exact.k)
            assert found[metric].k_possible.sum() == 1
            other = found[metric].undefined_type != exact.undefined_type
            assert float(other.mean()) <= share
            assert abs(float(found[metric].support - exact.support)) <= share


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_cohort__is_small_enough_to_be_exact_by_default(
    name: str, trials: dict[str, Trial]
) -> None:
    """A sample of the default size holds all of its rows."""
    trial = trials[name]
    for metric in METRICS:
        for field in ("value", "sample_values", "undefined_type"):
            mine, other = trial.default[metric][field], trial.exact[metric][field]
            assert mine.values.tobytes() == other.values.tobytes()


# ---- resumed ---------------------------------------------------------------------------------


class Cut(Exception):
    """What a test throws into a run."""


def cut_after(n: int, function: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter(range(10**6))

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) >= n:
            raise Cut
        return function(*args, **kwargs)

    return wrapped


def cut_run(cohort: Cohort, index: Any, module: Any, what: str, n: int, **how: Any) -> None:
    with pytest.MonkeyPatch.context() as patch, ranges_of(300):
        patch.setattr(module, what, cut_after(n, getattr(module, what)))
        with pytest.raises(Cut):
            score(cohort, index, **how)


@pytest.fixture(scope="module")
def undisturbed(
    cohort: Cohort, index: StoredIndex, tmp_path_factory: pytest.TempPathFactory
) -> xr.DataTree:
    with cd.set_options(scratch=str(tmp_path_factory.mktemp("undisturbed")), threads=1):
        return score(cohort, index)


SEAMS = [
    (closer, "sample_range", 2), (approximate, "tune", 0),
    (graph, "probe_range", 0), (graph, "probe_range", 3),
    (graph, "meet_blocks", 7), (streamed, "_meet", 4), (streamed, "sweep_probed", 9),
    (graph, "finish_range", 0), (Scratch, "write", 12), (IndexedLists, "cover", 0),
    (IndexedLists, "cover", 1), (CloserLook, "look", 0), (ExactSearch, "some", 1),
    (Scratch, "write_lists", 6), (Scratch, "write_final", 1),
]  # fmt: skip


@pytest.mark.parametrize(("module", "what", "n"), first(3, SEAMS))
def test_a_run_cut_anywhere__ends_with_the_same_bits(
    module: Any, what: str, n: int, cohort: Cohort, index: StoredIndex, undisturbed: xr.DataTree,
    scratch: Path,
) -> None:  # fmt: skip
    cut_run(cohort, index, module, what, n)
    with ranges_of(300):
        assert_same(score(cohort, index), undisturbed)
    assert list(scratch.iterdir()) == []


def test_a_run_cut_half_way__does_nothing_twice(
    cohort: Cohort, index: StoredIndex, undisturbed: xr.DataTree,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    cut_run(cohort, index, graph, "meet_blocks", 8)
    fresh: list[int] = []

    def counted(*args: Any) -> int:
        fresh.append(streamed.meet_blocks(*args))
        return fresh[-1]

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING, "croma_dask"):
        patch.setattr(graph, "meet_blocks", counted)
        patch.setattr(approximate, "tune", cut_after(0, approximate.tune))
        patch.setattr("croma_dask.index.probed.find_probes", cut_after(0, None))  # type: ignore[arg-type]
        with ranges_of(300):
            assert_same(score(cohort, index), undisturbed)
    assert "resuming" in caplog.text
    assert len(fresh) > 8
    assert sum(pairs > 0 for pairs in fresh) <= len(fresh) - 8


def test_a_cut_run__goes_on_with_more_memory_and_more_threads(
    cohort: Cohort, index: StoredIndex, undisturbed: xr.DataTree, caplog: pytest.LogCaptureFixture
) -> None:
    cut_run(cohort, index, graph, "meet_blocks", 8)
    with caplog.at_level(logging.WARNING, "croma_dask"):
        assert_same(score(cohort, index, threads=2), undisturbed)
    assert "resuming" in caplog.text


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("tasks", [0, 5])
def test_a_run_killed_by_the_system__goes_on_with_the_same_bits(
    tasks: int, cohort: Cohort, index: StoredIndex, undisturbed: xr.DataTree, scratch: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    calls = iter(range(1000))

    def deadly(*args: Any) -> int:
        if next(calls) == tasks:
            os.kill(os.getpid(), signal.SIGKILL)
        return streamed.meet_blocks(*args)

    child = os.fork()
    if child == 0:
        try:
            graph.meet_blocks = deadly  # type: ignore[assignment]
            layout.LARGEST_RANGE = 300
            score(cohort, index)
        finally:
            os._exit(7)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    assert os.WTERMSIG(ended[1]) == signal.SIGKILL
    (left,) = scratch.iterdir()
    assert bool(list(left.glob("range-*/lists-*.npz"))) == bool(tasks)
    with caplog.at_level(logging.WARNING, "croma_dask"), ranges_of(300):
        assert_same(score(cohort, index), undisturbed)
    assert ("resuming" in caplog.text) == bool(tasks)
    assert list(scratch.iterdir()) == []


def test_kept_lists__serve_other_candidates_with_the_bits_of_a_fresh_run(
    cohort: Cohort, index: StoredIndex, tmp_path: Path
) -> None:
    """Which rows were looked at for the sake of k belongs to the candidates asked for."""
    how: dict[str, Any] = {"probes": 2, "start_k": 10}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecallWarning)
        with cd.set_options(scratch=str(tmp_path / "clean")):
            fresh = [score(cohort, index, k_candidates=k, **how) for k in ([11], [3, 5, 7, 11])]
        score(cohort, index, k_candidates=[3, 5, 7, 11], keep_scratch=True, **how)
        kept = [
            score(cohort, index, k_candidates=k, keep_scratch=True, **how)
            for k in ([11], [3, 5, 7, 11])
        ]
    for mine, other in zip(kept, fresh, strict=True):
        assert_same(mine, other)


def test_a_late_task__that_writes_its_lists_again_changes_nothing(
    cohort: Cohort, index: StoredIndex, undisturbed: xr.DataTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was given up may wake when the exact lists are there already."""
    written: list[tuple[Any, ...]] = []
    real = Scratch.write_final

    def noted(self: Scratch, *arguments: Any) -> None:
        written.append((self, *arguments))
        real(self, *arguments)

    def late(self: CloserLook, *arguments: Any) -> None:
        for scratch, *again in written:
            real(scratch, *again)
        look(self, *arguments)

    look = CloserLook.look
    monkeypatch.setattr(Scratch, "write_final", noted)
    monkeypatch.setattr(CloserLook, "look", late)
    assert_same(score(cohort, index), undisturbed)
    assert written


OTHER: list[dict[str, Any]] = [
    {"recall": 0.9}, {"probes": 3}, {"seed": 1}, {"calibration": 101}, {"start_k": 20},
    {"k_growth_factor": 3.0}, {"k_candidates": [3, 5, 12]}, {"m": 2}, {"confounder": "scanner"},
    {"metrics": "RI"}, {"index": "exact"}, {"index": "other"},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.ci
def test_another_search__never_goes_on_with_what_is_not_its_own(
    cohort: Cohort, index: StoredIndex, scratch: Path, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Neither with other arguments nor through another index of the same rows."""
    cut_run(cohort, index, graph, "meet_blocks", 8)
    (left,) = scratch.iterdir()
    before = {path: path.stat().st_mtime_ns for path in left.rglob("*")}
    other_index = cd.build_index(
        cohort.x, KIND, path=tmp_path / "other.zarr", cluster_rows=32, seed=8
    )
    for number, other in enumerate(OTHER):
        how = {"index": index, **other}
        if how["index"] == "other":
            how["index"] = other_index
        with warnings.catch_warnings(), caplog.at_level(logging.WARNING, "croma_dask"):
            warnings.simplefilter("ignore", RecallWarning)
            found = score(cohort, **how)
            assert "resuming" not in caplog.text, other
            if number % 6 == 0 or how["index"] is other_index:
                with cd.set_options(scratch=str(tmp_path / f"clean{number}")):
                    assert_same(found, score(cohort, **how))
    assert list(scratch.iterdir()) == [left]
    assert {path: path.stat().st_mtime_ns for path in left.rglob("*")} == before


# ---- which index is taken --------------------------------------------------------------------


def paired() -> Cohort:
    rng = np.random.default_rng(3)
    at = np.arange(240)
    frame = manifest(at % 2, at // 2 % 2, at // 4, subset=np.array(["a", "b"])[at // 120])
    return Cohort(rng.normal(size=(240, 5)), frame, "paired_2x2")


def test_paired__is_searched_exactly_only(tmp_path: Path) -> None:
    cohort = paired()
    index = cd.build_index(cohort.x, KIND, path=tmp_path / "i.zarr", cluster_rows=20)
    for wanted in (KIND, "pynndescent", index, str(tmp_path / "i.zarr")):
        with pytest.raises(SchemaError, match="design 'all'.*use index='exact'"):
            score(cohort, wanted, design="paired_2x2")
    found = score(cohort, "auto", design="paired_2x2")
    assert_same(found, score(cohort, design="paired_2x2"))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exact search of any length is too long."""
    monkeypatch.setattr(cost, "_CALIBRATION_SECONDS", 0.01)
    monkeypatch.setattr(cost, "_PATIENCE", 0.0)


@pytest.mark.parametrize(
    ("worth", "kind", "why"),
    [(0.0, KIND, "times as fast as exact"), (1e9, "exact", "would be but")],
)
@pytest.mark.usefixtures("impatient")
def test_auto__takes_what_is_worth_it_and_says_why(
    worth: float, kind: str, why: str, cohort: Cohort, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(cost, "_WORTH", worth)
    with caplog.at_level(logging.INFO, "croma_dask"):
        found = score(cohort, "auto")
    assert found["RI"].attrs["index"] == kind
    (line,) = [m for m in caplog.messages if "index='auto'" in m]
    assert f"takes {kind}: " in line
    assert why in line
    plan = cd.plan(cohort.x, cohort.frame, confounder="center", index="auto")
    assert (plan.index, plan.choice.kind) == (kind, kind)
    assert why in plan.choice.why
    assert plan.choice.why in str(plan)


def test_auto__of_a_small_cohort_is_exact(
    cohort: Cohort, exact: xr.DataTree, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(cost, "_CALIBRATION_SECONDS", 0.01)
    with caplog.at_level(logging.INFO, "croma_dask"):
        assert_same(score(cohort, " AUTO "), exact)
    assert "exact takes less than 60 s" in caplog.text


@pytest.mark.usefixtures("impatient")
def test_auto__counts_an_index_that_is_there(
    tmp_path: Path, cohort: Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rates that are measured differ from one plan to the next, by more than the build takes.
    monkeypatch.setattr("croma_dask.cost.product_rate", lambda *_: 2e10)
    monkeypatch.setattr("croma_dask.cost.read_rate", lambda *_: 2e9)
    place = cd.write_cohort(tmp_path / "c.zarr", cohort.x, cohort.frame)

    def seconds() -> float:
        return cd.plan(place, confounder="center", index="auto").choice.seconds[KIND]

    before = seconds()
    cd.build_index(place, KIND)
    assert seconds() < before


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"index": "hnsw"}, "index is 'exact', 'auto'"),
        ({"index": 3}, "index is 'exact', 'auto'"),
        ({"recall": 0.0}, "recall must be in"),
        ({"recall": 1.1}, "recall must be in"),
        ({"recall": "high"}, "recall must be a number"),
        ({"probes": 0}, "probes must be 1 or larger"),
        ({"probes": 1.5}, "probes must be whole"),
        ({"calibration": 99}, "calibration must be at least 100"),
        ({"seed": -1}, "seed must be 0 or larger"),
        ({"start_k": 0}, "start_k must be 1 or larger"),
        ({"k_growth_factor": 1.0}, "k_growth_factor must be above 1"),
        ({"keep_neighbors": "kept"}, "keep_neighbors= keeps exact neighbours"),
    ],
)
def test_score__names_the_argument_that_is_wrong(
    how: dict[str, Any], message: str, cohort: Cohort, scratch: Path
) -> None:
    with pytest.raises(SchemaError, match=message):
        score(cohort, **{"index": KIND, **how})
    assert not scratch.exists(), "before anything is run"


# ---- the graph -------------------------------------------------------------------------------

LARGE, WIDE = 10_000_000, 1_024


def large_layout(allowed: str, n_tasks: int) -> layout.Layout:
    rows = Embedding(np.broadcast_to(np.float32(0), (LARGE, WIDE)), None)
    edges = np.linspace(0, LARGE, count_clusters(LARGE, None) + 1).astype(np.int64)
    return lay_out_probed(
        rows, KIND, edges, ListSpec(51, 5), Options(memory=allowed), n_tasks=n_tasks, fixed=0
    )


def job_of(edges: tuple[int, ...], per_block: int, folder: Path) -> Job:
    """A job on an index that is not there: nothing of it is opened to build a graph."""
    radius = Radius(*[8] * len(Radius.__dataclass_fields__))
    source, scratch = StoredIndex(str(folder / "i.zarr")), Scratch(str(folder / "s"))
    return Job(source, scratch, edges, per_block, ListSpec(51, 5), Frame(np.zeros(WIDE)), radius)


def assert_small(graph_: dict[str, Any]) -> None:
    for dump in (pickle.dumps, cloudpickle.dumps):
        assert len(dump(graph_)) < 1 << 20
    shared = [value for value in graph_.values() if not isinstance(value, tuple)]
    assert len(shared) == 1
    for task in graph_.values():
        if isinstance(task, tuple):
            assert all(isinstance(part, int | str) for part in task[1:])


@pytest.mark.parametrize(("allowed", "n_tasks"), [("2GB", 2), ("8GB", 16), ("100GB", 16)])
def test_graph__of_ten_million_rows_is_small(allowed: str, n_tasks: int, tmp_path: Path) -> None:
    cut = large_layout(allowed, n_tasks)
    job = job_of(cut.edges, cut.per_block, tmp_path)
    found, last, work = pair_graph(job)
    assert_small(found)
    assert len(work) <= MOST_TASKS
    assert len(last) == len(cut.edges) - 1
    assert sum(work.values()) == pytest.approx(LARGE * LARGE / 2, rel=1e-6)
    assert not list(tmp_path.iterdir()), "nothing was opened"


def test_graph__every_pair_waits_for_all_that_probe(tmp_path: Path) -> None:
    """Which ranges have to meet is known only then."""
    job = job_of(tuple(range(0, 81, 10)), 2, tmp_path)
    found, last, _ = pair_graph(job)
    probing = {k for k, v in found.items() if isinstance(v, tuple) and v[0] is graph.probe_range}
    assert sorted(found[key][2] for key in probing) == list(range(8))

    def behind(key: str) -> set[str]:
        task = found[key]
        parts = [p for p in task[1:] if isinstance(p, str)] if isinstance(task, tuple) else []
        return set(parts).union(*(behind(part) for part in parts))

    for key, task in found.items():
        if isinstance(task, tuple) and task[0] in (graph.meet_blocks, graph.finish_range):
            assert behind(key) >= probing
    assert len(last) == 8


def test_graphs__of_the_build_and_of_the_sample_are_small(
    cohort: Cohort, index: StoredIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one task or range more adds is known from small cohorts."""
    graphs: list[dict[str, Any]] = []

    def looking(module: Any) -> None:
        real = module.run_graph

        def run(graph_: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            graphs.append(graph_)
            return real(graph_, *args, **kwargs)

        monkeypatch.setattr(module, "run_graph", run)

    looking(build)
    looking(closer)
    looking(approximate)
    monkeypatch.setattr(build, "_SPAN", 100)
    place = cd.write_cohort(tmp_path / "c.zarr", cohort.x, cohort.frame)
    made = cd.build_index(place, KIND, cluster_rows=32, shard_rows=100)
    with ranges_of(100):
        score(cohort, made)
    kinds = {key.rsplit("-", 2)[0] for graph_ in graphs for key in graph_}
    assert {"croma-assign", "croma-shard", "croma-sample"} <= kinds
    for graph_ in graphs:
        assert_small(graph_)
        (shared,) = (value for value in graph_.values() if not isinstance(value, tuple))
        assert len(pickle.dumps(shared)) < 4_096
        tasks = len(graph_) - 1
        # Of ten million rows: 77 spans, some hundred shards, ranges as laid out above.
        assert len(pickle.dumps(graph_)) / tasks * 1_000 < 1 << 20


def test_graph__that_builds_an_index_of_ten_million_rows_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    class Caught(Exception):
        pass

    caught: list[dict[str, Any]] = []

    def catch(graph_: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        caught.append(graph_)
        raise Caught

    source = StoreSource(
        SimpleNamespace(url="s3://bucket/cohort.zarr", n_tiles=LARGE, n_features=WIDE,
                        dtype=np.dtype(np.float32), chunk_rows=4_096)
    )  # fmt: skip
    location, recipe = Location.of(str(tmp_path / "i.zarr")), Recipe(KIND)
    monkeypatch.setattr(build, "run_graph", catch)
    with pytest.raises(Caught):
        build._assign_all(Work(source, location, recipe), 2, None, True)
    edges = np.arange(0, LARGE + 1, 1_000)
    shards = build._shard_edges(SimpleNamespace(edges=edges), 4_096)  # type: ignore[arg-type]
    monkeypatch.setattr(
        build, "_partition", lambda *args, **kwargs: SimpleNamespace(n_shards=len(shards) - 1)
    )
    with pytest.raises(Caught):
        build.build(
            source, "f" * 64, np.zeros(WIDE), location, recipe, allowed=1 << 31, n_tasks=2,
            client=None,
        )  # fmt: skip
    assigning, writing = caught
    assert len(assigning) == 1 + -(-LARGE // build._SPAN)
    assert len(writing) == len(shards) > 2_400, "the shortest shards that there are"
    for graph_ in caught:
        assert_small(graph_)


# ---- many at once ----------------------------------------------------------------------------


def test_two_threads__through_one_index_give_the_serial_answers(
    cohort: Cohort, index: StoredIndex
) -> None:
    """The same search twice, and others; nobody has read anything of the index yet."""
    hows: list[dict[str, Any]] = [
        {}, {}, {"confounder": "scanner"}, {"seed": 1, "threads": 2},
    ]  # fmt: skip
    expected = [score(cohort, index, **how) for how in hows]
    fresh = StoredIndex(index.url)
    with ranges_of(400), ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda how: score(cohort, fresh, **how), hows))
    for mine, other in zip(found, expected, strict=True):
        assert_same(mine, other)


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_two_threads__build_one_index_each(cohort: Cohort, tmp_path: Path) -> None:
    def make(number: int) -> StoredIndex:
        return cd.build_index(cohort.x, KIND, path=tmp_path / f"{number}.zarr", cluster_rows=40)

    one = make(9)
    with ThreadPoolExecutor(2) as pool:
        for made in pool.map(make, range(3)):
            np.testing.assert_array_equal(made.partition.order, one.partition.order)


@pytest.mark.slow
@pytest.mark.cluster
def test_two_processes__through_one_index_give_the_serial_answer(
    cohort: Cohort, tmp_path: Path, cluster_client: Any
) -> None:
    """Built by them, and read by them; the graph carries no rows."""
    place = cd.write_cohort(tmp_path / "c.zarr", cohort.x, cohort.frame)
    alone = cd.build_index(place, KIND, path=tmp_path / "alone.zarr", cluster_rows=32)
    made = cd.build_index(
        place, KIND, path=tmp_path / "made.zarr", cluster_rows=32, client=cluster_client
    )
    np.testing.assert_array_equal(made.partition.order, alone.partition.order)
    np.testing.assert_array_equal(made.read(0, N), alone.read(0, N))
    expected = cd.score(place, index=alone, **SCORE)
    with ranges_of(300):
        assert_same(cd.score(place, index=made, client=cluster_client, **SCORE), expected)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("n", [4])
def test_processes_of_their_own__through_one_index_give_the_serial_answer(
    n: int, cohort: Cohort, index: StoredIndex, tmp_path: Path, scratch: Path
) -> None:
    import subprocess
    import sys

    place = cd.write_cohort(tmp_path / "c.zarr", cohort.x, cohort.frame)
    expected = cd.score(place, index=index, **SCORE)
    code = (
        "import pickle, sys, warnings, croma_dask as cd; warnings.simplefilter('ignore'); "
        f"found = cd.score({place!r}, index={index.url!r}, threads=1, "
        f"scratch={str(scratch)!r}, **{SCORE!r}); "
        "pickle.dump(found.to_dict(), open(sys.argv[1], 'wb'))"
    )
    outs = [tmp_path / f"{number}.pickle" for number in range(n)]
    running = [subprocess.Popen([sys.executable, "-c", code, str(out)]) for out in outs]
    assert [process.wait(600) for process in running] == [0] * n
    for out in outs:
        assert_same(xr.DataTree.from_dict(pickle.loads(out.read_bytes())), expected)
