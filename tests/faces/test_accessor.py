"""The accessor says and does what the functions do."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable

import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import accessor, results
from croma_dask.accessor import CromaDatasetAccessor, CromaTreeAccessor
from tests.helpers.compare import assert_same_bits


@pytest.mark.parametrize(
    ("method", "function", "data"),
    [
        (CromaDatasetAccessor.score, cd.score, {"cohort", "manifest"}),
        (CromaDatasetAccessor.plan, cd.plan, {"cohort", "manifest"}),
        (CromaDatasetAccessor.to_frame, results.to_frame, {"result"}),
        (CromaTreeAccessor.to_frame, results.to_frame, {"result"}),
    ],
)
def test_accessor__has_the_signature_of_the_function(
    method: Callable, function: Callable, data: set[str]
) -> None:
    """Same names, order, kinds, defaults and annotations; the data is the object itself."""
    mine = inspect.signature(method)
    theirs = inspect.signature(function)
    expected = [p for name, p in theirs.parameters.items() if name not in data]
    assert list(mine.parameters.values())[1:] == expected
    assert mine.return_annotation == theirs.return_annotation
    assert all(p.kind is not p.VAR_KEYWORD for p in mine.parameters.values())


def test_accessor__documents_every_method() -> None:
    for cls in (CromaDatasetAccessor, CromaTreeAccessor):
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_"):
                assert inspect.getdoc(method), name
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


def test_accessor__every_argument_arrives(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is forgotten on the way: each is passed a value that only it has."""
    import importlib

    for name in ("score", "plan"):
        module = importlib.import_module(f"croma_dask.{name}")
        seen: dict[str, object] = {}

        def record(cohort: object, seen: dict = seen, **given: object) -> None:
            seen.update(given)

        monkeypatch.setattr(module, name, record)
        method = getattr(cd.open_cohort(store).croma, name)
        given = {p: object() for p in inspect.signature(method).parameters}
        method(**given)
        assert seen == given


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
