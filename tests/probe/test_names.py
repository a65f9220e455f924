"""Names and their indices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from croma_dask.errors import SchemaError
from croma_dask.probe.names import PATHOROB_ORDER, names_to_indices


@pytest.mark.parametrize("make", [list, np.array, pd.Series, pd.Categorical, iter, tuple])
def test_names_to_indices__takes_any_column(make: Any) -> None:
    found = names_to_indices(make(["b", "a", "c", "b"]), ("a", "b", "c"))
    assert found.dtype == np.int64
    assert found.tolist() == [1, 0, 2, 1]


def test_names_to_indices__follows_the_stated_order_only() -> None:
    assert names_to_indices(["x", "y"], ["y", "unused", "x"]).tolist() == [2, 0]
    assert names_to_indices([], ["y"]).shape == (0,)
    assert names_to_indices([20, 10], [10, 20]).tolist() == [1, 0]


def test_names_to_indices__names_what_is_unknown() -> None:
    column = ["RUMC", "umcu", None, "UMCU"] + ["umcu"] * 6
    message = (
        r"8 of 10 rows hold a name that is not in order: 'umcu' \(rows 1, 4, 5, 6, 7 and 2 more\), "
        r"(None|nan) \(row 2\); order has 'RUMC', 'UMCU'"
    )
    with pytest.raises(SchemaError, match=message):
        names_to_indices(column, PATHOROB_ORDER["camelyon"][0])


def test_names_to_indices__names_the_first_of_many() -> None:
    with pytest.raises(SchemaError, match=r"'n4' \(row 4\) and 3 more; order has 'a'"):
        names_to_indices([f"n{i}" for i in range(8)], ["a"])


@pytest.mark.parametrize(
    ("values", "order", "message"),
    [
        (["a"], ["a", "b", "a"], "order names 'a' more than once"),
        (["a"], "abc", "order is a sequence of names, found the text 'abc'"),
        (np.array([["a"]]), ["a"], r"one name a row, found an array of shape \(1, 1\)"),
    ],
)
def test_names_to_indices__says_what_is_wrong(values: Any, order: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        names_to_indices(values, order)


@pytest.mark.parametrize("dataset", ["camelyon", "tolkach_esca"])
def test_pathorob_order__names_the_cohorts(dataset: str, shared_data: Path) -> None:
    frame = pd.read_csv(shared_data / "pathorob_manifests" / f"{dataset}_reduced.csv.gz")
    centers, classes = PATHOROB_ORDER[dataset]
    cohort = frame[frame.medical_center.isin(centers)]  # the other centres are test sets
    assert set(names_to_indices(cohort.medical_center, centers)) == set(range(len(centers)))
    assert set(names_to_indices(cohort.biological_class, classes)) == set(range(len(classes)))
