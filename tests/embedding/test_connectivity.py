"""Graph connectivity: strong components inside a label, by hand and by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.embedding.connectivity import graph_connectivity, largest_components
from croma_dask.errors import SchemaError
from tests.helpers.plain_metrics import connectivity as plain
from tests.helpers.plain_metrics import exact_lists


def codes_of(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def lists_of(*rows: list[int]) -> np.ndarray:
    width = max(len(row) for row in rows)
    return np.array([row + [-1] * (width - len(row)) for row in rows], np.int32)


@pytest.mark.parametrize("strong", [True, False])
@pytest.mark.parametrize(("n", "d", "k"), [(150, 3, 14), (60, 2, 3), (40, 6, 2)])
def test_largest_components__is_what_reaching_each_other_gives(
    n: int, d: int, k: int, strong: bool
) -> None:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, d))
    codes = rng.integers(0, 5, n).astype(np.int32)
    index, _ = exact_lists(x, k + 1)
    value, fraction = largest_components(index[:, 1:], codes, 5, strong=strong)
    which = "strong" if strong else "weak"
    assert value == pytest.approx(plain(x, codes, components=which, k=k + 1), abs=1e-15)
    assert value == pytest.approx(fraction.mean(), abs=1e-15)
    assert ((fraction > 0) & (fraction <= 1)).all()


def test_largest_components__strong_is_not_weak() -> None:
    """0 and 1 point at each other, 2 and 3 only at them: nobody points back."""
    index = lists_of([1], [0], [0], [1])
    codes = codes_of(0, 0, 0, 0)
    assert largest_components(index, codes, 1)[0] == 0.5
    assert largest_components(index, codes, 1, strong=False)[0] == 1.0


def test_largest_components__edges_of_other_labels_do_not_count() -> None:
    """A ring of six that runs through both labels holds neither of them together."""
    ring = lists_of(*[[(i + 1) % 6] for i in range(6)])
    assert largest_components(ring, codes_of(0, 0, 0, 0, 0, 0), 1)[0] == 1.0
    value, fraction = largest_components(ring, codes_of(0, 0, 0, 1, 1, 1), 2)
    np.testing.assert_array_equal(fraction, [1 / 3, 1 / 3])
    assert value == pytest.approx(1 / 3)


def test_largest_components__lone_cells_and_absent_labels() -> None:
    index = lists_of([1], [0], [1], [])
    value, fraction = largest_components(index, codes_of(0, 0, 2, 2), 4)
    np.testing.assert_array_equal(fraction, [1.0, np.nan, 0.5, np.nan])
    assert value == 0.75
    value, fraction = largest_components(index, codes_of(0, 0, 2, 3), 4)
    np.testing.assert_array_equal(fraction, [1.0, np.nan, 1.0, 1.0])


def test_largest_components__missing_neighbours_are_no_edges() -> None:
    """-1 is not the last row: without it, 0 would reach 2 and 2 would reach 0."""
    index = lists_of([1, -1], [0, -1], [0, -1])
    assert largest_components(index, codes_of(0, 0, 0), 1)[0] == pytest.approx(2 / 3)
    assert largest_components(np.full((3, 14), -1, np.int32), codes_of(0, 0, 0), 1)[0] == (
        pytest.approx(1 / 3)
    )


def test_largest_components__a_row_that_is_listed_twice_is_one_edge() -> None:
    index = np.repeat(lists_of(*[[(i + 1) % 20] for i in range(20)]), 14, axis=1)
    assert largest_components(index, np.zeros(20, np.int32), 1)[0] == 1.0


def test_largest_components__forty_equal_rows() -> None:
    """Ties go to the first rows: those are connected, and all others point at them."""
    index, _ = exact_lists(np.zeros((40, 2)), 15)
    value, _ = largest_components(index[:, 1:], np.zeros(40, np.int32), 1)
    assert value == 15 / 40


@given(seed=st.integers(0, 2**31), n=st.integers(1, 80), k=st.integers(0, 6))
def test_largest_components__order_and_names_leave_no_digit(seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    index = rng.integers(-1, n, (n, k)).astype(np.int32)
    codes = rng.integers(0, 4, n).astype(np.int32)
    value, fraction = largest_components(index, codes, 4)
    names = rng.permutation(4).astype(np.int32)
    order = rng.permutation(n)
    back = np.append(np.argsort(order), -1).astype(np.int32)  # -1 stays -1
    moved, of_label = largest_components(back[index[order]], names[codes[order]], 4)
    assert moved == value
    np.testing.assert_array_equal(of_label[names], fraction)


def test_graph_connectivity__notes() -> None:
    index = np.full((20, 14), -1, np.int32)
    index[:, 0] = np.roll(np.arange(20), 1)
    outcome = graph_connectivity(index, np.zeros(20, np.int32), 1)
    assert (outcome.value, outcome.status) == (1.0, "ok")
    assert outcome.note == "components=strong;k=15;self_included=true"
    weak = graph_connectivity(index[:, :3], np.zeros(20, np.int32), 1, strong=False)
    assert weak.note == "components=weak;k=4;self_included=true"


def test_graph_connectivity__undefined_for_a_single_cell() -> None:
    for n in (0, 1):
        outcome = graph_connectivity(np.empty((n, 0), np.int32), np.zeros(n, np.int32), n)
        assert math.isnan(outcome.value)
        assert outcome.note.startswith("insufficient_cells;components=strong")
        assert outcome.status == "undefined: fewer than two cells"


def test_largest_components__refuses_labels_of_other_rows() -> None:
    with pytest.raises(SchemaError, match="3 labels"):
        largest_components(lists_of([1], [0]), codes_of(0, 0, 0), 1)
    value, fraction = largest_components(np.empty((0, 3), np.int32), codes_of(), 2)
    assert math.isnan(value)
    assert np.isnan(fraction).all()
