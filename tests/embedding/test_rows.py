"""Which rows the metrics of labels and of batches are computed on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import croma_dask as cd
from croma_dask.cohort.store import StoredCohort
from croma_dask.embedding.rows import GroupRows, Rows, check_columns, choose_rows, read_text
from croma_dask.embedding.subsample import stratified_subsample
from croma_dask.errors import InputWarning, SchemaError

BOTH: dict[str, Any] = {"bio": True, "mixing": True}


def table(labels: Any, batches: Any) -> pd.DataFrame:
    return pd.DataFrame({"label": list(labels), "batch": list(batches)}, dtype=object)


def choose(frame: Any, **how: Any) -> Rows:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return choose_rows(frame, "label", "batch", **(BOTH | how))


def names_of(coded: Any) -> list[str]:
    return [coded.names[code] for code in coded.codes]


cells = st.lists(
    st.tuples(
        st.sampled_from(["b", "B", "a10", "a9", "ä", None, "", " "]),
        st.sampled_from(["u", "V", "10", "9", None, "  "]),
    ),
    min_size=1, max_size=40,
)  # fmt: skip


@given(cells, st.sampled_from(["batch_metrics", "all_metrics"]))
def test_choose_rows__are_those_that_have_what_is_looked_at(
    rows: list[tuple[Any, Any]], reading: Any
) -> None:
    frame = table(*zip(*rows, strict=True))
    has_label = np.array([bool((label or "").strip()) for label, _ in rows])
    has_batch = np.array([bool((batch or "").strip()) for _, batch in rows])
    if not has_label.any():
        with pytest.raises(SchemaError, match=f"missing or blank in all {len(rows)} rows"):
            choose(frame, missing_batches=reading)
        return
    found = choose(frame, missing_batches=reading)
    assert found.n_rows == len(rows)
    assert found.bio is not None
    assert found.batch is not None
    bio = has_label & has_batch if reading == "all_metrics" else has_label
    for group, wanted in ((found.bio, bio), (found.batch, has_label & has_batch)):
        at = np.arange(len(rows)) if group.rows is None else group.rows
        np.testing.assert_array_equal(at, np.flatnonzero(wanted))
        assert (group.rows is None) == bool(wanted.all())
        assert group.n_rows == wanted.sum()
        assert names_of(group.label) == [rows[i][0] for i in at]
        assert group.label.names == sorted({rows[i][0] for i in at})
        assert group.label.codes.dtype == np.int32
        if group.batch is not None:
            assert names_of(group.batch) == [rows[i][1] for i in at]
            assert group.batch.names == sorted({rows[i][1] for i in at})
    assert found.bio.batch is None
    assert found.bio.same_rows(found.batch) == bool((bio == (has_label & has_batch)).all())


@pytest.mark.parametrize(("bio", "mixing"), [(True, False), (False, True)])
def test_choose_rows__of_one_group(bio: bool, mixing: bool) -> None:
    found = choose(table("aab", ["u", None, "v"]), bio=bio, mixing=mixing)
    assert (found.bio is None) != bio
    assert (found.batch is None) != mixing


def test_choose_rows__batches_that_nobody_looks_at_need_not_be_there() -> None:
    frame = table("aab", ["u", None, "v"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = choose_rows(frame, "label", None, bio=True, mixing=False)
        assert found.bio is not None
        assert found.bio.rows is None


@pytest.mark.parametrize(
    ("reading", "said"),
    [("batch_metrics", "the metrics of batches"), ("all_metrics", "all metrics")],
)
def test_choose_rows__tells_what_is_left_out_of_what(reading: Any, said: str) -> None:
    """A row without a label is told of once, whether it has a batch or not."""
    frame = table(["a", None, "b", "", "b", "a"], ["u", None, None, "v", "v", "u"])
    with pytest.warns(InputWarning) as told:
        choose_rows(frame, "label", "batch", **BOTH, missing_batches=reading)
    assert [str(warning.message) for warning in told] == [
        "column 'label' is missing or blank in rows 1, 3 (2 of 6): these rows are left out of all "
        "metrics",
        f"column 'batch' is missing or blank in row 2 (1 of 6): these rows are left out of {said}",
    ]
    assert {warning.filename for warning in told} == {__file__}


@given(cells, st.integers(0, 45))
def test_choose_rows__draws_its_sample_of_the_rows_that_are_left(
    rows: list[tuple[Any, Any]], most: int
) -> None:
    frame = table(["b", *(label for label, _ in rows)], ["u", *(batch for _, batch in rows)])
    whole, drawn = (choose(frame, batch_max_cells=n).batch for n in (0, most))
    assert whole is not None
    assert drawn is not None
    assert whole.batch is not None
    if not 0 < most < whole.n_rows:
        assert drawn.note == ""
        assert drawn.same_rows(whole)
        return
    taken = stratified_subsample(whole.label.codes, whole.batch.codes, most)
    at = np.arange(len(frame)) if whole.rows is None else whole.rows
    assert drawn.rows is not None
    np.testing.assert_array_equal(drawn.rows, at[taken])
    assert names_of(drawn.label) == frame["label"].iloc[drawn.rows].tolist()
    assert set(drawn.label.names) == set(names_of(drawn.label)), "names are of the sample"
    assert drawn.note == (
        f"stratified_subsample=cell_type_x_batch;full_n_cells={whole.n_rows};used_n_cells={most}"
    )


@pytest.mark.filterwarnings("ignore:column .label. has levels that differ only in case")
def test_choose_rows__of_a_store_are_those_of_its_frame(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = table(rng.choice(["b", "B", "a10", "a9", ""], 60), rng.choice(["u", "V", ""], 60))
    frame["sample_id"] = [f"s{i}" for i in range(60)]
    place = cd.write_cohort(tmp_path / "c.zarr", np.zeros((60, 2)), frame, label="label")
    store = StoredCohort(place)
    for most in (0, 20):
        mine, stored = (choose(one, batch_max_cells=most) for one in (frame, store))
        for a, b in ((mine.bio, stored.bio), (mine.batch, stored.batch)):
            assert a is not None
            assert b is not None
            assert a.same_rows(b)
            assert names_of(a.label) == names_of(b.label)
            assert a.label.names == b.label.names
    for column in ("label", "batch", "sample_id", "nothing", None):
        a, b = read_text(frame, column), read_text(store, column)
        assert a(7, 20).tolist() == b(7, 20).tolist()


def test_read_text__numbers_rows_without_the_column() -> None:
    frame = table(["a", None, " b "], [1, 2.0, None])
    assert read_text(frame, "label")(0, 3).tolist() == ["a", "", "b"]
    assert read_text(frame, "batch")(0, 3).tolist() == ["1", "2", ""]
    assert read_text(frame, "nothing")(1, 3).tolist() == ["1", "2"]
    assert read_text(frame, None)(0, 1).tolist() == ["0"]


def test_same_rows__compares_the_rows_and_nothing_else() -> None:
    label = choose(table("ab", "uv")).bio
    assert label is not None
    some, others = np.array([0, 2]), np.array([0, 3])
    assert GroupRows(some, label.label).same_rows(GroupRows(some.copy(), label.label, note="n"))
    assert not GroupRows(some, label.label).same_rows(GroupRows(others, label.label))
    assert not GroupRows(some, label.label).same_rows(GroupRows(None, label.label))
    assert not GroupRows(None, label.label).same_rows(GroupRows(some, label.label))
    assert GroupRows(None, label.label).same_rows(GroupRows(None, label.label))


@pytest.mark.parametrize(
    ("label", "batch", "said"),
    [
        ("labels", "batch", "there is no column 'labels' .there are 'label', 'batch'"),
        ("label", "batches", "there is no column 'batches'"),
        ("x", "y", "there is no column 'x', 'y'"),
        ("label", "label", "label and batch are columns of their own, found 'label', 'label'"),
    ],
)
def test_check_columns__names_what_is_not_there(label: str, batch: str, said: str) -> None:
    with pytest.raises(SchemaError, match=f"whose: {said}|^{said}"):
        check_columns(["label", "batch"], label, batch, "whose: ")
    check_columns(["label", "batch"], "label", None)
    check_columns(["label", "batch"], "label", "batch")


def test_embedding_benchmark__leaves_rows_without_batch_out_of_whatever_is_asked_for() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "cell_type": rng.integers(0, 3, 60).astype(str),
        "batch_id": [None] * 10 + ["a", "b"] * 25,
    })  # fmt: skip
    x = rng.normal(size=(60, 4))
    for metrics in (["ASW"], ["ASW", "BRAS"]):
        with pytest.warns(cd.InputWarning, match="left out of all metrics"):
            found = cd.embedding_benchmark(
                x, frame, batch="batch_id", metrics=metrics, missing_batches="all_metrics"
            )
        assert found.n_cells.sel(metric="ASW").item() == 50


def test_embedding_benchmark__of_one_batch_nothing_is_drawn() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"cell_type": ["a", "b"] * 30, "batch_id": ["x"] * 60})
    found = cd.embedding_benchmark(
        rng.normal(size=(60, 4)), frame, batch="batch_id", metrics=["BRAS"], batch_max_cells=20
    )
    assert found.n_cells.item() == 60
    assert found.note.item().startswith("insufficient_batches;")


def test_embedding_benchmark__names_rows_by_the_index_of_an_obs() -> None:
    names = [f"BC{i}-1" for i in range(20)]
    frame = pd.DataFrame({"cell_type": ["a", "b"] * 10}, index=names)
    found = cd.embedding_benchmark(np.random.default_rng(0).normal(size=(20, 3)), frame,
                                   metrics=["ASW"])  # fmt: skip
    assert found.sample_id.values.tolist() == names
