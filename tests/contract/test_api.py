"""The public names: what is there, where it comes from, and what it is called."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import croma_dask

ROOT = Path(__file__).resolve().parents[2]

PUBLIC = {
    "RI",
    "MaRI",
    "CRoMa",
    "RobustnessIndex",
    "MarginAwareRobustnessIndex",
    "CrossConfounderRobustnessMargin",
    "open_cohort",
    "open_neighbors",
    "open_index",
    "build_index",
    "RecallWarning",
    "write_cohort",
    "ingest",
    "expand_features_to_manifest",
    "score",
    "plan",
    "Plan",
    "PanelPlan",
    "combine_results",
    "open_result",
    "bootstrap",
    "half_samples",
    "breakdown",
    "worst_groups",
    "explain",
    "report",
    "probe_sweep",
    "embedding_benchmark",
    "plan_embedding_benchmark",
    "BenchmarkPlan",
    "rank_embeddings",
    "rank_statistics",
    "apd",
    "nipd",
    "set_options",
    "CromaDaskError",
    "SchemaError",
    "StoreError",
    "ChunkError",
    "MemoryLimitError",
    "SupportError",
    "InputWarning",
    "SupportWarning",
    "__version__",
}


def test_api__lists_exactly_the_public_names() -> None:
    assert set(croma_dask.__all__) == PUBLIC
    assert set(dir(croma_dask)) >= PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_api__every_public_name_resolves_to_something_documented(name: str) -> None:
    value = getattr(croma_dask, name)
    assert not isinstance(value, ModuleType)
    if name != "__version__":
        assert inspect.getdoc(value)
        assert value.__module__.split(".")[0] == "croma_dask"


def test_api__long_names_are_the_same_objects() -> None:
    assert croma_dask.RobustnessIndex is croma_dask.RI
    assert croma_dask.MarginAwareRobustnessIndex is croma_dask.MaRI
    assert croma_dask.CrossConfounderRobustnessMargin is croma_dask.CRoMa


def test_api__downstream_is_there_without_an_import() -> None:
    assert croma_dask.downstream.apd is croma_dask.apd
    for name in croma_dask.downstream.__all__:
        assert getattr(croma_dask.downstream, name) is not None


@pytest.mark.parametrize("name", ["plotting", "results"])
def test_api__modules_that_are_used_by_name_are_there_without_an_import(name: str) -> None:
    code = f"import croma_dask; assert croma_dask.{name}.__name__ == 'croma_dask.{name}'"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_api__unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'scores'"):
        _ = croma_dask.scores


NAMED_AS_THEIR_MODULE = ["score", "plan", "breakdown", "report"]


@pytest.mark.parametrize(
    "before",
    [
        "pass",
        "import croma_dask.{name}",
        "from croma_dask.{name} import {name}",
        "import importlib; importlib.import_module('croma_dask.{name}')",
        "croma_dask.{name}; import croma_dask.{name}",
        "import pickle; pickle.loads(pickle.dumps(croma_dask.{name}))",
    ],
)
def test_api__function_wins_over_the_submodule_of_its_name(before: str) -> None:
    # One process for all of them: none imports what another would have hidden.
    code = "import inspect, sys, croma_dask\n" + "\n".join(
        f"""
{before.format(name=name)}
assert inspect.isfunction(croma_dask.{name}), croma_dask.{name}
from croma_dask import {name}
assert inspect.isfunction({name})
assert inspect.ismodule(sys.modules["croma_dask.{name}"])
"""
        for name in NAMED_AS_THEIR_MODULE
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_api__accessor_is_registered_by_import() -> None:
    import xarray as xr

    for kind in (xr.Dataset, xr.DataTree):
        assert hasattr(kind, "croma")
