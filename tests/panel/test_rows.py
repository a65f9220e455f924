"""Whether two cohorts are the same rows: what is compared, what is read, what is said."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from croma_dask.cohort.manifest import ColumnNames, read_manifest
from croma_dask.errors import SchemaError
from croma_dask.panel import rows as module
from croma_dask.panel.rows import (
    Rows,
    check_same_rows,
    rows_of_manifest,
    same_embeddings,
)
from tests.panel.conftest import N, make_frame, make_paired

NAMES = ColumnNames("center")


def rows(frame: pd.DataFrame, name: str, *, paired: bool = False, print_: str = "") -> Rows:
    return rows_of_manifest(name, read_manifest(frame, NAMES, paired=paired), print_)


def refusal(mine: pd.DataFrame, theirs: pd.DataFrame, *, paired: bool = False) -> str:
    with pytest.raises(SchemaError) as found:
        check_same_rows(rows(mine, "one", paired=paired), rows(theirs, "two", paired=paired))
    return str(found.value)


def test_check_same_rows__accepts_the_same_in_whatever_columns_they_are_kept() -> None:
    frame = make_frame()
    other = frame.astype({"label": "category", "center": "category"}).assign(more=1)
    check_same_rows(rows(frame, "one"), rows(other[other.columns[::-1]], "two"))


@pytest.mark.parametrize("block", [1 << 18, 7])
@pytest.mark.parametrize("column", ["sample_id", "label", "group_id", "center", "subset"])
def test_check_same_rows__names_the_column_the_first_five_rows_and_how_many(
    column: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    _, frame = make_paired()
    other = frame.copy()
    at = [3, 10, 11, 44, 70, 71, 119]
    values = other[column].to_numpy(dtype=object).copy()
    values[at] = [f"new {i}" for i in at]
    other[column] = values
    said = refusal(frame, other, paired=True)
    assert said.startswith("'two' is not of the same rows as 'one': ")
    assert f"column {column!r} differs in 7 of {N} rows: " in said
    for row in at[:5]:
        assert f"row {row} ({frame[column][row]!r} in 'one', 'new {row}' in 'two')" in said
    assert "row 71" not in said
    assert "and 2 more" in said


def test_check_same_rows__a_level_that_one_of_them_lacks_moves_no_other() -> None:
    """Codes count from the levels that occur: text is compared, not codes."""
    frame = make_frame()
    other = frame.copy()
    other.loc[other.label == "tumour", "label"] = "a new name"
    said = refusal(frame, other)
    assert f"column 'label' differs in {(frame.label == 'tumour').sum()} of {N} rows" in said
    assert "row 0 ('tumour' in 'one', 'a new name' in 'two')" in said
    assert "Überklasse" not in said


def test_check_same_rows__different_numbers() -> None:
    said = refusal(make_frame(), make_frame()[:-3])
    assert f"'one' has {N} rows and 'two' {N - 3}" in said


@pytest.mark.parametrize("order", ["reversed", "shuffled"])
def test_check_same_rows__the_same_ids_in_another_order(order: str) -> None:
    frame = make_frame()
    at = np.arange(N)[::-1] if order == "reversed" else np.random.default_rng(0).permutation(N)
    said = refusal(frame, frame.iloc[at].reset_index(drop=True))
    assert "the same ids in another order" in said
    assert "bring its rows into the order of 'one'" in said
    # Other ids are no other order.
    other = frame.assign(sample_id=frame.sample_id + "x")
    assert "another order" not in refusal(frame, other)


def test_check_same_rows__reads_nothing_that_fingerprints_settle() -> None:
    def never(lo: int, hi: int) -> Any:
        raise AssertionError("read")

    columns = {"sample_id": never, "label": never}
    prints = {"sample_id": "abc", "label": "abc"}
    check_same_rows(Rows("one", 9, columns, prints), Rows("two", 9, columns, prints))
    # Unequal ones prove nothing: another column may differ.
    frame = make_frame()
    check_same_rows(rows(frame, "one", print_="abc"), rows(frame, "two", print_="def"))
    with pytest.raises(AssertionError, match="read"):
        check_same_rows(Rows("one", 9, columns), Rows("two", 9, columns))


def test_check_same_rows__holds_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def ids(lo: int, hi: int) -> Any:
        asked.append((lo, hi))
        return np.array([str(i) for i in range(lo, hi)], dtype=object)

    monkeypatch.setattr(module, "_BLOCK", 100)
    check_same_rows(Rows("one", 250, {"sample_id": ids}), Rows("two", 250, {"sample_id": ids}))
    assert sorted(set(asked)) == [(0, 100), (100, 200), (200, 250)]


def test_same_embeddings__groups_equal_fingerprints_that_are_known() -> None:
    found = same_embeddings({"a": "1", "b": "2", "c": "1", "d": "", "e": "", "f": "2", "g": "3"})
    assert found == [("a", "c"), ("b", "f")]


def test_check_same_rows__message_ends_with_what_a_panel_needs() -> None:
    said = refusal(make_frame(), make_frame()[:-1])
    assert re.search(
        r"; all models of a panel are scored on the same rows in the same order$", said
    )
