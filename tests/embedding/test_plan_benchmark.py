"""What a benchmark is said to cost before it runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import croma_dask as cd
from benchmarks import child
from croma_dask import memory
from croma_dask.embedding.budget import Budget, at_once
from croma_dask.embedding.kbet_plan import label_bytes
from croma_dask.embedding.plan import BenchmarkPlan, Step
from croma_dask.options import merged
from tests.helpers.benchmarks import cells, frame, score, statuses

MB = 1_000_000


@pytest.fixture(autouse=True)
def rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate of products that nobody has to measure."""
    monkeypatch.setattr("croma_dask.embedding.plan.product_rate", lambda d, n: 2e10 * n)


class Shaped:
    """Rows that nobody reads: planning must not."""

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, n: int, d: int) -> None:
        self.shape = (n, d)

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("rows were read")


def plan(n: int = 100_000, d: int = 50, *, n_labels: int = 20, **more: Any) -> BenchmarkPlan:
    number = np.arange(n)
    obs = frame(np.char.add("t", (number % n_labels).astype(str)), number % 7)
    arguments = {"batch": "batch_id", "threads": 2, "memory": "4GB"} | more
    return cd.plan_embedding_benchmark(Shaped(n, d), obs, **arguments)


def steps(found: BenchmarkPlan) -> dict[str, Step]:
    return {step.name: step for step in found.steps}


@pytest.mark.parametrize("more", [{}, {"clustering": "kmeans"}, {"batch_max_cells": 30_000}],
                         ids=str)  # fmt: skip
def test_plan__terms_are_the_peak(more: dict[str, Any]) -> None:
    found = plan(**more)
    names = [step.name for step in found.steps]
    lists = ["neighbours", "kBET", "Leiden"] if not more else ["neighbours", "kBET"]
    if "batch_max_cells" in more:
        lists = ["neighbours", "Leiden", "neighbours", "kBET"]
    assert names == [*lists, "BRAS", "ASW", *(["k-means"] if "clustering" in more else [])]
    for step in found.steps:
        assert step.peak == sum(step.terms.values()), step.name
        assert step.seconds > 0
        assert step.terms["libraries"] == memory.LIBRARIES
    assert found.peak_memory == max(step.peak for step in found.steps)
    assert found.seconds == pytest.approx(sum(step.seconds for step in found.steps))
    assert found.scratch_bytes == max(step.scratch for step in found.steps)
    assert found.allowed_memory == 4_000 * MB
    assert found.too_large == []


def test_plan__is_a_table() -> None:
    lines = str(plan()).splitlines()
    assert lines[0] == "allowed memory 4.00 GB a process"
    assert lines[1] == "dataset by embedding: 100,000 x 50"
    for line, name in zip(lines[2:], ("neighbours", "kBET", "Leiden", "BRAS"), strict=False):
        assert re.match(rf"  {name} +[\d.]+ [MG]B  \(most: [\w ]+\) +[\d.]+ (s|min|h)", line)
    assert lines[-1].startswith("in all: peak ")
    assert "DOES NOT FIT" not in str(plan())


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        (["BRAS"], ["BRAS"]),
        (["ASW", "BRAS"], ["BRAS", "ASW"]),
        (["GC"], ["neighbours"]),
        (["CiLISI"], ["neighbours"]),
        (["kBET"], ["neighbours", "kBET"]),
        (["ARI", "NMI"], ["neighbours", "Leiden"]),
    ],
)
def test_plan__has_the_steps_of_what_is_asked_for(metrics: list[str], names: list[str]) -> None:
    found = plan(metrics=metrics)
    assert [step.name for step in found.steps] == names
    assert str(found)


def test_plan__intervals_of_asw_measure_no_pairs() -> None:
    exact, interval = steps(plan()), steps(plan(asw="interval"))
    assert "ASW" not in interval
    assert interval["ASW interval"].seconds < exact["ASW"].seconds / 10


def test_plan__grows_with_what_it_is_of() -> None:
    small, large = steps(plan(50_000)), steps(plan(200_000))
    for name in small:
        assert large[name].seconds > small[name].seconds
        assert large[name].peak >= small[name].peak
    few, many = (steps(plan(n_labels=n))["kBET"].peak for n in (50, 2))
    assert many > few, "it is of the largest labels"


def test_plan__memory_bounds_the_search_and_asw() -> None:
    small, large = steps(plan(memory="1GB")), steps(plan(memory="8GB"))
    for name in ("neighbours", "ASW"):
        assert small[name].peak <= 1_000 * MB
        assert large[name].peak <= 8_000 * MB
    assert small["neighbours"].scratch > 0


def test_plan__says_what_does_not_fit() -> None:
    """A step that fails by itself is told; nothing is refused for it."""
    found = plan(200_000, 200, n_labels=2, memory="1GB", clustering="kmeans")
    assert set(found.too_large) == {"kBET", "k-means"}
    assert str(found).count("DOES NOT FIT") == 2


def test_plan__asw_that_does_not_fit_is_told() -> None:
    found = plan(50_000, n_labels=40_000, memory="640MB", metrics=["ASW", "GC"])
    assert found.too_large == ["ASW"]
    step = steps(found)["ASW"]
    assert step.peak == sum(step.terms.values())
    assert step.terms["sums by label"] == 2 * 2 * memory.SMALLEST_RANGE * 8 * 40_000


def test_plan__refuses_what_cannot_be_searched() -> None:
    with pytest.raises(cd.MemoryLimitError, match=r"the largest term is '[\w ]+': raise memory="):
        plan(memory="100MB")


def test_plan__refuses_as_the_benchmark_does() -> None:
    made = cells(1, 30)
    for wrong, said in (
        ({"metrics": "nope"}, "no metric is called 'nope'"),
        ({"batch": "zzz"}, "no column 'zzz'"),
        ({"louvain": 1}, "no reading is called 'louvain'"),
        ({"clustering": "louvain"}, "clustering is 'leiden' or 'kmeans'"),
        ({"label": "batch_id"}, "columns of their own"),
    ):
        with pytest.raises(cd.SchemaError, match=said):
            cd.plan_embedding_benchmark(made.x, made.obs, **({"batch": "batch_id"} | wrong))
    with pytest.raises(cd.SchemaError, match="an array needs a manifest"):
        cd.plan_embedding_benchmark(made.x)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_plan__very_few_rows(n: int) -> None:
    made = cells(1, 3)
    found = cd.plan_embedding_benchmark(made.x[:n], made.obs[:n], batch="batch_id")
    assert ("neighbours" in steps(found)) == (n > 1)
    assert str(found)


def test_plan__no_row_is_left() -> None:
    made = cells(1, 30)
    obs = made.obs.assign(batch_id=None)
    with pytest.warns(cd.InputWarning):
        found = cd.plan_embedding_benchmark(
            made.x, obs, batch="batch_id", missing_batches="all_metrics", clustering="kmeans"
        )
    assert found.steps == []
    assert found.peak_memory == 0


def test_plan__several_embeddings_in_any_form(tmp_path: Path) -> None:
    made = cells(1, 60)
    (tmp_path / "pca").mkdir()
    place = cd.write_cohort(tmp_path / "pca" / "lung.zarr", made.x, made.obs)
    given = {("a", "m"): (made.x, made.obs), ("b", "m"): place}
    found = cd.plan_embedding_benchmark(given, batch="batch_id")
    assert [(name, n, d) for name, n, d, _ in found.embeddings] == [
        ("a by m", 60, 8), ("b by m", 60, 8)
    ]  # fmt: skip
    named = cd.plan_embedding_benchmark([place, (made.x, made.obs)], dataset="x", method=["m", "n"])
    assert [name for name, *_ in named.embeddings] == ["x by m", "x by n"]
    by_accessor = cd.open_cohort(place).croma.plan_embedding_benchmark(batch="batch_id")
    assert by_accessor.embeddings[0][:3] == ("lung by pca", 60, 8)
    alone = cd.plan_embedding_benchmark(place, batch="batch_id")
    assert [s.peak for s in alone.steps] == [s.peak for s in by_accessor.steps]


def test_at_once__refuses_by_name() -> None:
    options = merged(memory="1GB")
    assert at_once("it", 100 * MB, 0, options, 50) == (1_000 * MB - memory.LIBRARIES) // (100 * MB)
    assert at_once("it", 100 * MB, 0, options, 2) == 2
    with pytest.raises(
        cd.MemoryLimitError, match=r"^it takes 900.00 MB beside 200.00 MB of values"
    ):
        at_once("it", 900 * MB, 200 * MB, options, 2)


def test_kbet__of_labels_that_do_not_fit_fails_by_itself() -> None:
    """Planned as too large, and told so by the benchmark; the rest is there."""
    made = cells(1, 400)
    allowed = memory.LIBRARIES + Budget(400).search(400) + label_bytes(395) - 1
    obs = frame(np.where(np.arange(400) < 5, "rare", "much"), made.obs["batch_id"])
    arguments = {"memory": allowed, "threads": 1, "metrics": ["kBET", "BRAS", "iLISI"]}
    found = score(made.x, obs, **arguments)
    assert statuses(found)["kBET"].startswith(
        "failed: MemoryLimitError: kBET of the largest label (395 cells) takes"
    )
    assert statuses(found)["BRAS"] == statuses(found)["iLISI"] == "ok"
    planned = cd.plan_embedding_benchmark(made.x, obs, batch="batch_id", **arguments)
    assert planned.too_large == ["kBET"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("cells")
    return str(child.run("embedding:make", folder=str(folder), n=20_000, d=50)["place"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metrics", "allowed"),
    [("all", "4GB"), ("all", "1GB"), ("ASW", "700MB"), ("bio", "700MB"), ("kBET", "2GB")],
)
def test_peak__of_20000_rows(
    place: str, metrics: str, allowed: str, tmp_path: Path, record_property: Any
) -> None:
    """A process of its own takes no more above a bare Python than the plan says."""
    took = child.run(
        "embedding:ours", threads=2, place=place, metrics=[metrics], memory=allowed,
        folder=str(tmp_path),
    )  # fmt: skip
    for name in ("planned", "peak", "planned_seconds", "seconds"):
        record_property(name, took[name])
    assert set(took["status"].values()) == {"ok"}
    assert took["peak"] <= took["planned"] <= memory.parse_bytes(allowed)
