"""The captured table is right, this process gives it, and a drift would be told.

`make drift` compares in every environment; here is one quick part of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.drift import table
from tests.drift.data import bell, cohort
from tests.drift.environments import BLAS, Environment, contradictions
from tests.drift.values import Values, capture, digest, of_engine, of_pairs, texts
from tests.helpers import plain_metrics
from tests.helpers.oracle import Oracle

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")

DTYPE = "float64"


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return table.read()


@pytest.fixture(scope="module")
def computed() -> Values:
    """What a small part of the table holds, computed here."""
    parts = {"exact": [of_engine("small", DTYPE), of_pairs(DTYPE)], "texts": [texts()]}
    return {
        f"{part}/{name}": value
        for part, several in parts.items()
        for one in several
        for name, value in one
    }


def test_data__follows_from_integers() -> None:
    """The one thing that the table rests on: were it other data, all of it would be moot."""
    assert digest(bell(1, 4, 3)) == "442751b3b03722175beaca259c4023c7"
    assert digest(cohort("float32").x) == "32a1acab9125c40ba2796136add1f928"


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_part__is_what_the_table_holds(computed: Values, kept: dict[str, Any]) -> None:
    assert len(computed) > 150
    assert table.differences(computed, {name: kept[name] for name in computed}) == []


@pytest.mark.slow
def test_all__is_what_the_table_holds(kept: dict[str, Any]) -> None:
    assert table.differences(capture(), kept) == []


@pytest.mark.parametrize("design", ["small", "paired"])
def test_exact__is_what_loops_find(design: str, computed: Values) -> None:
    """The same arrays that the table has digests of, beside a brute force that knows no package."""
    made = cohort(DTYPE)
    x, frame = made.x, made.frame
    subset = None
    if design == "paired":
        x, frame = made.paired_x, made.paired_frame
        subset = frame.subset
    oracle = Oracle(x, frame.label, frame.center, frame.group_id, subset)
    prefix = f"exact/{design} {DTYPE}"
    k = oracle.operating_k([5, 11, 21])
    tau = oracle.tau(k)
    expected = {"RI": oracle.index(k), "MaRI": oracle.index(k, tau)}
    for metric, values in expected.items():
        assert int(computed[f"{prefix}/{metric}/k"]) == k
        for name, value in values.items():
            if f"{prefix}/{metric}/{name}" not in computed or name == "undefined_type":
                continue
            mine = np.asarray(computed[f"{prefix}/{metric}/{name}"], float)
            np.testing.assert_allclose(mine, np.asarray(value, float), rtol=0, atol=1e-11)
    np.testing.assert_allclose(float(computed[f"{prefix}/MaRI/tau"]), tau, rtol=1e-12)
    for at, m in enumerate((1, 5)):
        values = oracle.margin(m)
        for name in ("value", "std", "f0", "q_alpha", "ltm_alpha"):
            mine = np.asarray(computed[f"{prefix}/CRoMa/{name}"], float)[at]
            np.testing.assert_allclose(mine, values[name], rtol=0, atol=1e-11)


def test_benchmarks__are_what_loops_find(kept: dict[str, Any]) -> None:
    cells = [cohort("float32", n=240, zero=False), cohort("float64", n=240, seed=9, zero=False)]
    plain = {
        "silhouette": [plain_metrics.silhouettes(c.x, c.frame.label) for c in cells],
        "bras": [plain_metrics.bras(c.x, c.frame.label, c.frame.center)[1] for c in cells],
    }
    for name, values in plain.items():
        expected = np.concatenate(values)
        theirs = np.array(kept[f"benchmarks/kmeans/{name}"], float)
        np.testing.assert_allclose(theirs, table.thinned(expected), rtol=0, atol=1e-6)


def test_drift__of_one_bit_is_told(computed: Values, kept: dict[str, Any]) -> None:
    name = f"exact/small {DTYPE}/MaRI/so_evidence"
    moved = np.array(computed[name])
    moved[7] = np.nextafter(moved[7], 9)
    theirs = {name: kept[name]}
    assert table.differences({name: computed[name]}, theirs) == []
    assert len(table.differences({name: moved}, theirs)) == 1
    assert table.differences({}, theirs) == [f"{name}: not computed"]
    assert table.differences({name: computed[name], "exact/new": 1.0}, theirs) == [
        "exact/new: not in the table"
    ]
    minus = np.where(moved == 0.0, -0.0, moved)
    assert digest(np.array([0.0])) != digest(np.array([-0.0]))
    assert digest(minus) == digest(minus.astype(">f8"))


def test_drift__beyond_the_stated_digits_is_told() -> None:
    theirs = {"benchmarks/x": [1.0, 2.0, None]}
    at = np.array([1.0, 2.0, np.nan])
    assert table.differences({"benchmarks/x": at + 1e-12}, theirs) == []
    assert len(table.differences({"benchmarks/x": at + 1e-6}, theirs)) == 1
    assert len(table.differences({"benchmarks/x": at[:2]}, theirs)) == 1
    assert len(table.differences({"benchmarks/x": np.array([1.0, np.nan, 2.0])}, theirs)) == 1


@pytest.mark.parametrize("environment", BLAS, ids=lambda one: one.name)
def test_environment__that_was_not_made_is_told(environment: Environment) -> None:
    seen = {
        "blas": ["Other"], "locale": "Other", "encoding": "utf-8", "numpy": "9.9.9",
        "python": "2.7.18", "numba_cpu": "host", "avx2": True,
    }  # fmt: skip
    wanted = bool(
        environment.core or environment.locale or "NUMBA_CPU_NAME" in environment.variables
    )
    assert bool(contradictions(environment, seen, "3.14")) == wanted
    assert contradictions(Environment("", newest=True), seen, "3.14") == ["Python is 2.7.18"]
    assert contradictions(Environment("", numpy="2.0"), seen, "3.14") == ["numpy is 9.9.9"]
