"""The plan of several models: each one's own, and what they take together."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import croma_dask as cd
from croma_dask.memory import format_bytes
from tests.panel.conftest import ARGUMENTS, NAMES, make_arrays, make_frame


@pytest.fixture(autouse=True)
def _short_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("croma_dask.plan")
    module = importlib.import_module("croma_dask.cost")
    monkeypatch.setattr(module, "_CALIBRATION_SECONDS", 0.01)


def test_plan__of_several_is_that_of_each(stores: dict[str, str]) -> None:
    found = cd.plan(stores, **ARGUMENTS)
    assert isinstance(found, cd.PanelPlan)
    assert list(found.plans) == list(NAMES)
    assert [one.n_features for one in found.plans.values()] == [6, 9, 4]
    for name, place in stores.items():
        alone = cd.plan(place, **ARGUMENTS)
        one = found.plans[name]
        for field in ("engine", "n_samples", "n_tasks", "bytes_read", "peak_memory", "index"):
            assert getattr(one, field) == getattr(alone, field), field
    parts = found.plans.values()
    assert found.bytes_read == sum(one.bytes_read for one in parts)
    assert found.seconds == pytest.approx(sum(one.seconds for one in parts))
    assert found.peak_memory == max(one.peak_memory for one in parts) + found.results_bytes
    # Two models wait while the third is scored: values and causes of RI, MaRI and two radii.
    assert found.results_bytes >= 2 * 120 * 4 * 9
    assert found.scratch_bytes == max(one.scratch_bytes for one in parts)


def test_plan__of_several_prints_a_line_each_and_the_whole(stores: dict[str, str]) -> None:
    found = cd.plan(stores, **ARGUMENTS)
    lines = str(found).splitlines()
    assert lines[0] == "3 models of 120 samples, one after the other"
    for line, name in zip(lines[2:5], NAMES, strict=True):
        assert line.strip().startswith(name)
        assert format_bytes(found.plans[name].peak_memory) in line
    text = "\n".join(lines[5:])
    assert f"reads {format_bytes(found.bytes_read)}" in text
    assert format_bytes(found.peak_memory) in text
    assert "of results of the others" in text
    assert text.count("all 120 units can be scored") == 2
    one = cd.plan([stores[NAMES[0]]], **ARGUMENTS)
    assert isinstance(one, cd.PanelPlan)
    assert one.results_bytes == 0
    assert str(one).startswith("1 model of 120 samples")


def test_plan__refuses_what_scoring_refuses(stores: dict[str, str]) -> None:
    arrays, frame = make_arrays(), make_frame()
    assert list(cd.plan(arrays, frame, **ARGUMENTS).plans) == list(NAMES)
    short: Any = {**arrays, "narrow": arrays["narrow"][:7]}
    with pytest.raises(cd.SchemaError, match="model 'narrow': the embedding has 7 rows"):
        cd.plan(short, frame, **ARGUMENTS)
    with pytest.raises(cd.SchemaError, match="two cohorts are called 'store-0'"):
        cd.plan([stores[NAMES[0]]] * 2, **ARGUMENTS)
    with pytest.raises(cd.SchemaError, match="no cohorts to score"):
        cd.plan([], **ARGUMENTS)
    with pytest.raises(cd.MemoryLimitError, match=f"model {NAMES[0]!r}: "):
        cd.plan(stores, memory=1, **ARGUMENTS)
