"""Schedules and their Cramer's V."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.errors import SchemaError
from croma_dask.probe.linear import linear_schedule
from croma_dask.probe.names import PATHOROB_ORDER
from croma_dask.probe.schedule import (
    PATHOROB_SPLITS,
    association,
    pathorob_schedule,
    schedule_cramers_v,
)


def tables(schedule: Any, shape: tuple[int, int]) -> np.ndarray:
    """(n_splits, n_confounders, n_classes) rows trained on."""
    found = np.zeros((len(schedule), *shape), np.int64)
    for s, (cells, _) in enumerate(schedule):
        for i, j, take in cells:
            found[s, i, j] += take
    return found


@pytest.mark.parametrize("dataset", PATHOROB_SPLITS)
@pytest.mark.parametrize("options", [{}, {"rows_per_slide": 30}, {"n_splits": 2}])
def test_pathorob_schedule__equals_the_reference(dataset: str, options: dict[str, int]) -> None:
    downstream = pytest.importorskip("croma.downstream")
    expected = downstream.pathorob_schedule(dataset, **{"rows_per_slide": 1, **options})
    assert pathorob_schedule(dataset, **options) == expected


@pytest.mark.parametrize("dataset", PATHOROB_SPLITS)
def test_pathorob_schedule__counts_cells_in_the_stated_order(dataset: str) -> None:
    schedule = pathorob_schedule(dataset)
    assert len(schedule) == PATHOROB_SPLITS[dataset]
    centers, classes = PATHOROB_ORDER[dataset]
    everything = [(i, j) for i in range(len(centers)) for j in range(len(classes))]
    for cells, most in schedule:
        assert [(i, j) for i, j, _ in cells] == everything
        assert max(take for *_, take in cells) <= most


def test_pathorob_schedule__says_what_exists() -> None:
    with pytest.raises(SchemaError, match="no schedule of 'tolkach'; it has 'camelyon', 'tcga'"):
        pathorob_schedule("tolkach")
    with pytest.raises(SchemaError, match="'tcga' has 7 splits, n_splits asks for 8"):
        pathorob_schedule("tcga", n_splits=8)
    with pytest.raises(SchemaError, match="n_splits must be 1 or larger, found 0"):
        pathorob_schedule("tcga", n_splits=0)
    with pytest.raises(SchemaError, match="rows_per_slide must be 1 or larger, found 0"):
        pathorob_schedule("tcga", rows_per_slide=0)
    with pytest.raises(SchemaError, match=r"rows_per_slide must be a whole number, found 2\.0"):
        pathorob_schedule("tcga", rows_per_slide=2.0)  # type: ignore[arg-type]


# ---- Cramer's V -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        # A 2 x 2 table [[7-s, 7+s], [7+s, 7-s]] has phi = s / 7, [[3-s, 3+s], ...] has s / 3.
        ("camelyon", np.arange(8) / 7),
        ("tolkach_esca", np.arange(4) / 3),
    ],
)
def test_schedule_cramers_v__of_pathorob(dataset: str, expected: np.ndarray) -> None:
    found = schedule_cramers_v(pathorob_schedule(dataset, rows_per_slide=300))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
    assert (found[0], found[-1]) == (0.0, 1.0)


@given(
    table=st.lists(
        st.lists(st.integers(0, 10**6), min_size=3, max_size=3), min_size=2, max_size=4
    ).map(np.array)
)
def test_association__equals_scipy(table: np.ndarray) -> None:
    contingency = pytest.importorskip("scipy.stats.contingency")
    kept = table[table.any(axis=1)][:, table.any(axis=0)]
    if min(kept.shape, default=0) < 2:
        assert np.isnan(association(table))
        return
    expected = contingency.association(kept, method="cramer", correction=False)
    # Near 0 the reference takes the root of a rounding error.
    assert float(association(table)) == pytest.approx(expected, abs=1e-7)
    for other in (table.T, table[::-1], 7 * table):
        assert float(association(other)) == pytest.approx(float(association(table)), abs=1e-15)
    assert association(np.array([table, table * 0 + 1])).tolist() == [association(table), 0.0]


@pytest.mark.parametrize("cells", [[], [(0, 0, 0)], [(0, 0, 3), (0, 1, 4)], [(0, 1, 3), (7, 1, 4)]])
def test_schedule_cramers_v__is_nan_where_nothing_can_be_associated(cells: Any) -> None:
    found = schedule_cramers_v([([(0, 0, 2), (1, 1, 2)], 2), (cells, 9)])
    assert found[0] == 1.0
    assert np.isnan(found[1])


def test_schedule_cramers_v__ends_are_exact_and_their_neighbours_are_not_moved() -> None:
    n = 10**6
    odd = [[(0, 0, 3), (0, 1, 9), (1, 0, 7), (1, 1, 21)], [(0, 2, 33), (1, 0, 7), (9**9, 1, 11)]]
    near = [[(0, 0, n), (0, 1, n), (1, 0, n), (1, 1, n + 1)], [(0, 0, n), (0, 1, 1), (1, 1, n)]]
    found = schedule_cramers_v([(cells, n + 1) for cells in odd + near])
    assert found[:2].tolist() == [0.0, 1.0]
    assert 0.0 < found[2] < 1e-6
    assert 1.0 - 1e-5 < found[3] < 1.0


@pytest.mark.parametrize("cells", [[(0, 0)], [(0, 0, -1)], [(0, 0, 1.5)], [5]])
def test_schedule_cramers_v__needs_cells(cells: Any) -> None:
    with pytest.raises(SchemaError, match="split 0"):
        schedule_cramers_v([(cells, 2)])


# ---- schedules of one's own -------------------------------------------------------------------


@given(
    shape=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    slides=st.integers(1, 40),
    splits=st.integers(2, 9),
    rows=st.integers(1, 5),
)
def test_linear_schedule__keeps_what_it_promises(
    shape: tuple[int, int], slides: int, splits: int, rows: int
) -> None:
    # A class of the last split lies in one level, or in a share of them where levels are more.
    if slides < -(-shape[0] // max(1, shape[0] // shape[1])):
        with pytest.raises(SchemaError, match="has to train on"):
            linear_schedule(*shape, slides, splits, rows_per_slide=rows)
        return
    if slides < 2 * splits:
        slides += 2 * splits  # enough different values of V
    schedule = linear_schedule(*shape, slides, splits, rows_per_slide=rows)
    assert len(schedule) == splits
    table = tables(schedule, shape)
    assert (table >= 0).all()
    assert (table % rows == 0).all()
    assert (table[0] == table[0, 0, 0]).all(), "balanced first"
    assert (table.sum(axis=1) == table[0].sum(axis=0)).all(), "every class keeps its rows"
    assert {most for _, most in schedule} == {table.max() // rows}
    assert table.max() <= slides * rows
    v = schedule_cramers_v(schedule)
    assert (v[0], v[-1]) == (0.0, 1.0)
    assert (np.diff(v) > 0).all()
    # The step of one slide is the best that can be had.
    assert np.abs(v - np.linspace(0, 1, splits)).max() <= 1.0 / table[0, 0, 0] * rows


@pytest.mark.parametrize(
    ("shape", "slides", "splits", "middle"),
    [
        # Every split between the ends moves the same number of slides in each class.
        ((2, 2), 14, 8, [[8, 6], [6, 8]]),
        ((2, 6), 6, 4, [[4, 4, 4, 2, 2, 2], [2, 2, 2, 4, 4, 4]]),
        ((4, 2), 8, 5, [[5, 3], [5, 3], [3, 5], [3, 5]]),
    ],
)
def test_linear_schedule__is_linear_where_counts_allow(
    shape: tuple[int, int], slides: int, splits: int, middle: Any
) -> None:
    schedule = linear_schedule(*shape, slides, splits)
    np.testing.assert_allclose(
        schedule_cramers_v(schedule), np.linspace(0, 1, splits), rtol=0, atol=1e-15
    )
    assert tables(schedule, shape)[1].tolist() == middle


def test_linear_schedule__follows_a_table_of_slides() -> None:
    # Cell (1, 1) ends with twice the slides of the balanced split: 5 of them allow 2.
    schedule = linear_schedule(2, 2, [[9, 7], [7, 5]], 3)
    assert tables(schedule, (2, 2))[[0, -1]].tolist() == [[[2, 2], [2, 2]], [[4, 0], [0, 4]]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 2, 4, 3), "n_confounders must be 2 or larger, found 1"),
        ((2, 1, 4, 3), "n_classes must be 2 or larger, found 1"),
        ((2, 2, 4, 1), "splits must be 2 or larger, found 1"),
        ((2, 2, 4.5, 3), "slides is one whole number or 2 x 2 of them, found float64"),
        ((2, 2, [4, 4], 3), r"found int64 of shape \(2,\)"),
        (
            (2, 2, 1, 3),
            r"split 2: cell \(0, 0\) has to train on 2 slides or more, and .* gives it 1",
        ),
        ((2, 2, [[4, 4], [0, 4]], 3), r"split 0: cell \(1, 0\) has to train on 1 slides"),
        ((4, 2, [[4, 4], [4, 4], [4, 4], [4, 1]], 5), r"split 4: cell \(3, 1\) has to train on 2"),
        ((2, 2, 2, 4), "splits=4, but 2 slides in the largest cell .* only 3 different values"),
    ],
)
def test_linear_schedule__says_what_is_wrong(arguments: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        linear_schedule(*arguments)


def test_linear_schedule__of_many_slides_takes_no_time() -> None:
    v = schedule_cramers_v(linear_schedule(10, 10, 10**6, 11))
    np.testing.assert_allclose(v, np.linspace(0, 1, 11), rtol=0, atol=1e-3)
