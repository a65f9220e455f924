"""Ranks against pandas, the Pareto front against plain loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.panel.ranking import pareto_front, rank_models, with_ranking

NAN = float("nan")

# Few values, so that there are ties.
numbers = st.sampled_from([NAN, -1.0, -0.25, 0.0, 0.25, 0.5, 1.0])
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=9)


def beaten_by_anyone(at: int, rows: list[tuple[float, float]]) -> bool:
    value, tail = rows[at]
    for other, (v, t) in enumerate(rows):
        if other != at and v >= value and t >= tail and (v > value or t > tail):
            return True
    return False


@given(pairs)
def test_rank_models__is_the_average_rank_of_pandas(rows: list[tuple[float, float]]) -> None:
    values = np.array(rows)
    expected = pd.DataFrame(values).rank(ascending=False, method="average").to_numpy()
    np.testing.assert_array_equal(rank_models(values), expected)
    np.testing.assert_array_equal(rank_models(values[:, 0]), expected[:, 0])


@given(pairs)
def test_pareto_front__is_who_nobody_beats(rows: list[tuple[float, float]]) -> None:
    values = np.array(rows)
    expected = [
        not np.isnan(row).any()
        and not beaten_by_anyone(at, [r if not np.isnan(r).any() else (-9.0, -9.0) for r in rows])
        for at, row in enumerate(rows)
    ]
    found = pareto_front(values[:, 0], values[:, 1])
    assert found.tolist() == expected
    if not np.isnan(values).all(axis=None) and any(expected):
        # The best value among the defined is on the front, or ties with one that is.
        defined = ~np.isnan(values).any(axis=1)
        assert values[found, 0].max() == values[defined, 0].max()


def test_pareto_front__by_hand() -> None:
    values = np.array([0.5, 0.4, 0.3, 0.5, NAN, 0.2])
    tails = np.array([-0.3, -0.1, -0.2, -0.3, 0.9, NAN])
    # 0 and 3 are equal; 1 has the best tail; 2 is beaten by 1; 4 and 5 take no part.
    assert pareto_front(values, tails).tolist() == [True, True, False, True, False, False]


def test_with_ranking__ranks_each_radius_by_itself() -> None:
    value = np.array([[0.1, 0.3], [0.2, 0.2], [0.2, NAN]])
    tail = np.array([[-0.1, -0.5], [-0.2, -0.4], [-0.3, NAN]])
    found = with_ranking(
        xr.Dataset({"value": (("model", "m"), value), "ltm_alpha": (("model", "m"), tail)})
    )
    np.testing.assert_array_equal(found.value_rank, [[3, 1], [1.5, 2], [1.5, NAN]])
    np.testing.assert_array_equal(found.ltm_rank, [[1, 2], [2, 1], [3, NAN]])
    np.testing.assert_array_equal(found.mean_rank, [[2, 1.5], [1.75, 1.5], [2.25, NAN]])
    assert found.pareto_front.values.tolist() == [[True, True], [True, True], [False, False]]
    assert found.pareto_front.dtype == bool


@pytest.mark.parametrize("value", [0.3, NAN])
def test_with_ranking__of_one_model(value: float) -> None:
    data = {"value": ("model", [value]), "ltm_alpha": ("model", [value])}
    found = with_ranking(xr.Dataset(data))
    rank = NAN if np.isnan(value) else 1.0
    np.testing.assert_array_equal(found.mean_rank, [rank])
    assert found.pareto_front.values.tolist() == [not np.isnan(value)]
