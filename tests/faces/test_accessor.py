"""The accessor says and does what the functions do."""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import accessor, results
from croma_dask.accessor import CromaDatasetAccessor, CromaTreeAccessor
from tests.helpers.compare import assert_same_bits

FUNCTIONS = [
    (CromaDatasetAccessor, cd, "score", {"cohort", "manifest"}),
    (CromaDatasetAccessor, cd, "plan", {"cohort", "manifest"}),
    (CromaDatasetAccessor, cd, "explain", {"cohort", "manifest"}),
    *(
        (cls, home, name, {"result", "results"})
        for cls in (CromaDatasetAccessor, CromaTreeAccessor)
        for home, name in (
            (results, "to_frame"), (results, "summary"), (results, "save"), (cd, "bootstrap"),
            (cd, "breakdown"), (cd, "worst_groups"), (cd, "report"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "home", "name", "data"),
    FUNCTIONS,
    ids=[f"{c.__name__}-{n}" for c, _, n, _ in FUNCTIONS],
)
def test_accessor__has_the_signature_of_the_function(
    cls: type, home: Any, name: str, data: set[str]
) -> None:
    """Same names, order, kinds, defaults and annotations; the data is the object itself."""
    mine = inspect.signature(getattr(cls, name))
    theirs = inspect.signature(getattr(home, name))
    expected = [p for parameter, p in theirs.parameters.items() if parameter not in data]
    assert list(mine.parameters.values())[1:] == expected
    # Of several cohorts, which have no accessor, a function may return something else.
    whole = theirs.return_annotation
    assert mine.return_annotation in {whole, *whole.split(" | ")}
    assert all(p.kind is not p.VAR_KEYWORD for p in mine.parameters.values())


def test_accessor__documents_every_method() -> None:
    for cls in (CromaDatasetAccessor, CromaTreeAccessor):
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_"):
                assert re.search(r":(func|mod):`croma_dask\.", inspect.getdoc(method) or ""), name
    assert set(accessor.__all__) == {"CromaDatasetAccessor", "CromaTreeAccessor"}


def test_accessor__score_and_plan_of_an_opened_cohort(store: str, scored: Callable) -> None:
    cohort = cd.open_cohort(store)
    found = cohort.croma.score(confounder="center", k_candidates=(15, 21), m=(1, 3))
    for name, node in scored(store).children.items():
        assert_same_bits(found[name].to_dataset(), node.to_dataset())
    plan = cohort.croma.plan(confounder="center", k_candidates=(15, 21), m=(1, 3))
    other = cd.plan(store, confounder="center", k_candidates=(15, 21), m=(1, 3))
    assert (plan.n_samples, plan.engine, plan.peak_memory) == (
        other.n_samples, other.engine, other.peak_memory,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("of_cohort", "name", "module"),
    [
        (True, "score", "croma_dask.score"),
        (True, "plan", "croma_dask.plan"),
        (True, "explain", "croma_dask.breakdown"),
        (False, "to_frame", "croma_dask.results"),
        (False, "summary", "croma_dask.results"),
        (False, "save", "croma_dask.results"),
        (False, "bootstrap", "croma_dask.uncertainty"),
        (False, "breakdown", "croma_dask.breakdown"),
        (False, "worst_groups", "croma_dask.breakdown"),
        (False, "report", "croma_dask.report"),
    ],
)
def test_accessor__every_argument_arrives(
    store: str,
    scored: Callable,
    of_cohort: bool,
    name: str,
    module: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is forgotten on the way: each is passed a value that only it has."""
    home = importlib.import_module(module)
    function = getattr(home, name)
    seen: dict[str, object] = {}

    def record(data: object, /, *given: object, **named: object) -> None:
        bound = inspect.signature(function).bind(data, *given, **named).arguments
        seen["data"] = bound.pop(next(iter(bound)))
        seen.update(bound)

    monkeypatch.setattr(home, name, record)
    data = cd.open_cohort(store) if of_cohort else scored(store)
    method = getattr(data.croma, name)
    given = {p: object() for p in inspect.signature(method).parameters}
    method(**given)
    assert seen.pop("data") is data
    assert seen == given


OF_COHORTS = {
    "score", "plan", "probe_sweep", "plan_probe_sweep", "embedding_benchmark",
    "plan_embedding_benchmark", "explain",
}  # fmt: skip
OF_RESULTS = {
    "summary", "to_frame", "save", "bootstrap", "breakdown", "worst_groups", "report", "plot",
}  # fmt: skip


def public(accessor: object) -> set[str]:
    return {name for name in dir(accessor) if not name.startswith("_")}


def test_accessor__tab_shows_what_applies(store: str, scored: Callable) -> None:
    tree = scored(store)
    assert public(cd.open_cohort(store).croma) == OF_COHORTS
    assert public(tree.croma) == OF_RESULTS
    assert public(tree["RI"].to_dataset().croma) == OF_RESULTS
    sweep = xr.Dataset(attrs={"metric": "probe_sweep"})
    assert public(sweep.croma) == {"summary", "to_frame", "save", "plot", "report"}
    drawn = xr.Dataset(attrs={"metric": "bootstrap"})
    assert public(drawn.croma) == {"summary", "to_frame", "save", "plot"}
    # Of something unknown, the functions themselves say what they miss.
    assert public(xr.Dataset().croma) == OF_COHORTS | OF_RESULTS


def test_accessor__what_does_not_apply_is_refused_by_name(store: str, scored: Callable) -> None:
    cohort, tree = cd.open_cohort(store), scored(store)
    for name in sorted(OF_RESULTS - {"plot"}):
        with pytest.raises(cd.SchemaError, match=rf"this is a cohort; .croma.{name} is for a "):
            getattr(cohort.croma, name)(*(["x"] if name in ("save", "report") else []))
    with pytest.raises(AttributeError, match=r"this is a cohort; .croma.plot is for a result"):
        _ = cohort.croma.plot
    assert not hasattr(cohort.croma, "plot")
    result = tree["CRoMa"].to_dataset()
    calls: dict[str, dict] = {
        "score": {"confounder": "center"}, "plan": {"confounder": "center"},
        "probe_sweep": {"confounder": "center", "schedule": "camelyon"}, "plan_probe_sweep": {},
        "embedding_benchmark": {}, "plan_embedding_benchmark": {},
        "explain": {"sample_id": "tile/00000", "neighbors": "x"},
    }  # fmt: skip
    assert calls.keys() == OF_COHORTS
    for name, given in calls.items():
        told = rf"this is a result of score\(\); .croma.{name} is for a cohort. What it has here: b"
        with pytest.raises(cd.SchemaError, match=told):
            getattr(result.croma, name)(**given)
        with pytest.raises(AttributeError, match=told):
            getattr(tree.croma, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tree.croma.nothing


@pytest.mark.parametrize("metric", ["probe_sweep", "embedding_benchmark"])
def test_accessor__report_takes_what_the_function_takes(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = importlib.import_module("croma_dask.report")
    monkeypatch.setattr(home, "report", lambda data, path, **_: (data, path))
    other = xr.Dataset(attrs={"metric": metric})
    assert other.croma.report("r.html") == (other, "r.html")


def test_accessor__plots_are_those_of_the_result(store: str, scored: Callable) -> None:
    from croma_dask.plotting.accessor import PlotAccessor

    tree = scored(store)
    assert isinstance(tree.croma.plot, PlotAccessor)
    assert "margins" in dir(tree.croma.plot)


def test_accessor__of_something_that_is_no_cohort() -> None:
    with pytest.raises(cd.SchemaError, match="no variable 'embedding'"):
        xr.Dataset({"a": 1}).croma.score(confounder="center")


def test_accessor__is_there_on_changed_cohorts(store: str) -> None:
    """A selection of rows is a cohort of its own."""
    cohort = cd.open_cohort(store).isel(sample=slice(0, 120))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        found = cohort.croma.score(confounder="center", k_candidates=[15], m=1)
    assert found["RI"].sizes["sample"] == 120
