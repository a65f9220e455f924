"""The plan: it runs nothing, its numbers hold together, and what it foretells comes true."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import croma_dask as cd
from croma_dask import memory
from croma_dask.cohort.store import StoredCohort
from tests.faces.conftest import make_cohort, make_paired
from tests.helpers.cohorts import lattice_cohort
from tests.helpers.engines import engine


class Counting:
    """Counts rows of the embedding that are read from stores."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = self.bytes = 0
        lock = threading.Lock()
        real = StoredCohort.read_tiles

        def read(store: StoredCohort, lo: int = 0, hi: int | None = None) -> Any:
            found = real(store, lo, hi)
            with lock:
                self.rows += found.shape[0]
                self.bytes += found.nbytes
            return found

        patch.setattr(StoredCohort, "read_tiles", read)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


# ---- runs nothing ----------------------------------------------------------------------------


def test_plan__reads_a_few_chunks_to_time_them_and_nothing_else(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a plan ran something")

    place = cd.write_cohort(tmp_path / "c.zarr", *make_cohort(6_000), chunk_rows=50)
    counting.rows = 0
    for name in ("croma_dask.search.search", "croma_dask.search.look_over"):
        monkeypatch.setattr(name, never)
    before = set(sys.modules)
    with cd.set_options(scratch=str(tmp_path / "scratch")):
        plan = cd.plan(place, confounder="center", memory="390MB", threads=2)
    assert plan.engine == "streamed"
    assert counting.rows <= 16 * 50
    assert not (tmp_path / "scratch").exists()
    assert not any(m.startswith("numba") for m in set(sys.modules) - before), "nothing compiled"


class Untouchable:
    """Rows that must not be read."""

    shape, dtype, ndim = (30_000, 512), np.dtype("f4"), 2

    def __getitem__(self, item: Any) -> None:
        raise AssertionError("a plan read rows")

    __array__ = None


def test_plan__of_arrays_touches_no_row() -> None:
    _, frame = make_cohort(30_000)
    plan = cd.plan(Untouchable(), frame, confounder="center", memory="4GB")
    assert (plan.engine, plan.n_samples, plan.n_features) == ("streamed", 30_000, 512)


def test_plan__reads_but_the_first_ids(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long they are it has to know; all of them take more memory than all other columns."""
    real, read = StoredCohort.text, []

    def text(store: StoredCohort, column: str, *args: Any) -> Any:
        read.append((column, *args))
        return real(store, column, *args)

    monkeypatch.setattr(StoredCohort, "text", text)
    monkeypatch.setattr("croma_dask.cohort.manifest._LENGTH_OF", 7)
    cd.plan(store, confounder="center")
    assert read == [("sample_id", 0, 7)]


# ---- numbers hold together -------------------------------------------------------------------


@pytest.fixture
def plan(large_store: str) -> cd.Plan:
    return cd.plan(large_store, confounder="center", memory="390MB", threads=2)


def test_plan__counts_what_there_is(plan: cd.Plan) -> None:
    assert (plan.n_samples, plan.n_tiles, plan.n_features, plan.n_scopes) == (3_000, 3_000, 6, 1)
    assert (plan.n_workers, plan.tasks_at_once) == (1, 2)
    assert plan.n_tasks == plan.n_ranges * (plan.n_ranges + 1) // 2
    assert plan.n_ranges * plan.range_rows >= 3_000 > (plan.n_ranges - 1) * plan.range_rows
    assert min(plan.seconds, plan.product_rate, plan.read_rate) > 0
    assert plan.scratch_bytes > 0


def test_plan__fits_what_is_allowed_and_says_so_before_score_does(
    plan: cd.Plan, large_store: str
) -> None:
    assert plan.peak_memory <= plan.allowed_memory == 390_000_000
    least = memory.streamed_bytes(
        memory.RangeCost(6, 4, 0, 0), memory.SMALLEST_RANGE, 2, 0
    )  # without lists: less than any run needs
    messages = []
    for function in (cd.plan, cd.score):
        with pytest.raises(cd.MemoryLimitError) as refusal:
            function(large_store, confounder="center", memory=least, threads=2)
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]
    for part in ("at least", "2 tasks at once", "rows", "lists", "chunk", "--memory", "threads="):
        assert part in messages[0]


def test_plan__less_memory_means_more_reading(large_store: str) -> None:
    plans = [
        cd.plan(large_store, confounder="center", memory=size, threads=2)
        for size in ("390MB", "386MB", "384MB")
    ]
    for roomy, tight in zip(plans, plans[1:], strict=False):
        assert tight.n_ranges > roomy.n_ranges
        assert tight.bytes_read > roomy.bytes_read
        assert tight.range_rows < roomy.range_rows


def test_plan__is_frozen_and_prints_its_numbers(plan: cd.Plan) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.n_tasks = 1  # type: ignore[misc]
    text = str(plan)
    assert [line.split()[0] for line in text.splitlines()] == [
        "samples", "search", "tasks", "disk", "memory", "time", "index", "support",
    ]  # fmt: skip
    for part in (
        "3,000 x 6", "streamed in ranges of rows", f"{plan.n_tasks:,} on 1 process x 2 at once",
        f"{plan.n_ranges} ranges of {plan.range_rows} rows", memory.format_bytes(plan.bytes_read),
        memory.format_bytes(plan.peak_memory), "390.00 MB allowed", "all 3000 units can be scored",
    ):  # fmt: skip
        assert part in text, part


def test_plan__a_score_reads_what_it_says(
    large_store: str, counting: Counting, smallest_memory: Callable[..., str]
) -> None:
    options: dict[str, Any] = {"confounder": "center", "k_candidates": [21], "threads": 2}
    options["memory"] = smallest_memory(large_store, k_candidates=[21], threads=2)
    plan = cd.plan(large_store, **options)
    counting.bytes = 0
    cd.score(large_store, **options)
    assert plan.engine == "streamed"
    assert counting.bytes <= plan.bytes_read <= 1.5 * counting.bytes


@pytest.mark.parametrize("paired", [False, True])
def test_plan__names_the_engine_that_runs(
    paired: bool, store: str, paired_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    design = "paired_2x2" if paired else "all"
    place = paired_store if paired else store
    plan = cd.plan(place, confounder="center", design=design)
    assert plan.engine == "small"
    with engine("small"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cd.score(place, confounder="center", design=design, k_candidates=[5])
    assert plan.n_scopes == (3 if paired else 1)
    assert plan.range_rows == (40 if paired else 160)


def test_plan__of_paired_subsets_sums_their_work(paired_store: str) -> None:
    whole = cd.plan(paired_store, confounder="center", design="paired_2x2")
    x, frame = make_paired()
    one = cd.plan(x[:40], frame[:40], confounder="center", design="paired_2x2")
    assert whole.n_tasks == 3 * one.n_tasks
    assert whole.bytes_read == 3 * one.bytes_read


# ---- what it foretells -----------------------------------------------------------------------


def cohorts_with_rare_cells() -> Iterator[Any]:
    rng = np.random.default_rng(3)
    x, frame = make_cohort(120)
    rare = frame.copy()
    rare.loc[rare["label"].eq("tumour") & rare["center"].eq("B"), "center"] = "A/1"
    rare.loc[[0, 9, 18], "center"] = "B"
    yield pytest.param(x, rare, "all", id="rare-cell")
    yield pytest.param(x, frame.assign(group_id=frame["center"]), "all", id="group-is-confounder")
    few = lattice_cohort(rng, 80, n_features=3, reach=4, n_groups=7)
    yield pytest.param(few.x, few.frame, "all", id="few-groups")
    paired = lattice_cohort(rng, 90, n_features=3, reach=4, n_groups=20, n_subsets=3)
    yield pytest.param(paired.x, paired.frame, "paired_2x2", id="paired")


@pytest.mark.parametrize(("x", "frame", "design"), list(cohorts_with_rare_cells()))
def test_unscoreable__is_what_score_reports(x: Any, frame: pd.DataFrame, design: str) -> None:
    """Counts by cause, cells and rows, told before any distance is known."""
    radii = [1, 3, 8, 30]
    common = {"confounder": "center", "design": design, "metrics": "CRoMa", "m": radii}
    plan = cd.plan(x, frame, **common)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cd.score(x, frame, **common)["CRoMa"]
    assert [f.m for f in plan.unscoreable] == radii
    assert any(f.n for f in plan.unscoreable)
    for foretold in plan.unscoreable:
        kind = found.undefined_type.sel(m=foretold.m).values
        short = np.isin(kind, (1, 2, 3))
        assert foretold.n == short.sum()
        assert foretold.n_units == len(frame)
        assert foretold.no_so == np.isin(kind, (1, 3)).sum()
        assert foretold.no_os == np.isin(kind, (2, 3)).sum()
        assert foretold.first == tuple(np.flatnonzero(short)[:5])
        counts = frame[short].groupby(["label", "center"]).size()
        assert {(a, b): n for a, b, n in foretold.cells} == counts.to_dict()
        assert [n for *_, n in foretold.cells] == sorted(counts, reverse=True)
        support = float(found.support.sel(m=foretold.m))
        assert support <= 1 - foretold.n / foretold.n_units + 1e-12


def test_unscoreable__says_rows_causes_and_cells(paired_store: str) -> None:
    plan = cd.plan(paired_store, confounder="center", design="paired_2x2", m=[1, 11])
    fine, bad = map(str, plan.unscoreable)
    assert fine == "CRoMa at m=1: all 120 units can be scored"
    assert bad.startswith("CRoMa at m=11: 120 of 120 units cannot be scored (rows 0, 1, 2, 3, 4 ")
    assert "120 have fewer than 11 SO and 120 fewer than 11 OS candidates of another group" in bad
    assert "a x x: 30" in bad


def test_plan__without_croma_foretells_nothing_of_it(store: str) -> None:
    assert cd.plan(store, confounder="center", metrics=["RI", "MaRI"]).unscoreable == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"confounder": "nope"}, "no column 'nope'"),
        ({"design": "triple"}, "'triple'"),
        ({"metrics": "XI"}, "'XI'"),
        ({"k_candidates": []}, "k_candidates is empty"),
        ({"m": 0}, "m must be 1 or larger"),
        ({"memory": "lots"}, "'lots'"),
    ],
)
def test_plan__refuses_what_score_refuses_in_the_same_words(
    arguments: dict[str, Any], message: str, store: str
) -> None:
    given = {"confounder": "center", **arguments}
    messages: list[str] = []
    refuse: Callable[..., Any]
    for refuse in (cd.plan, cd.score):
        with pytest.raises(cd.CromaDaskError, match=message) as refusal:
            refuse(store, **given)
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]


@pytest.mark.cluster
def test_plan__takes_a_cluster_s_workers_and_their_memory(
    large_store: str, cluster_client: Any
) -> None:
    with engine("streamed"):
        plan = cd.plan(large_store, confounder="center", client=cluster_client)
    assert (plan.n_workers, plan.tasks_at_once) == (2, 1)
    assert plan.allowed_memory == int(0.6 * (2 << 30))
    plan = cd.plan(large_store, confounder="center", client=cluster_client, memory="1GB")
    assert plan.allowed_memory == 1_000_000_000
