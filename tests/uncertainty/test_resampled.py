"""Kernels that walk along sorted rows, against rows that are really repeated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.kernels.resampled import resampled_medians, resampled_sums, resampled_tails
from croma_dask.robustness.statistics import Tail


@given(st.data())
def test_medians_and_tails__are_those_of_repeated_rows(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 40))
    # Few different values: ties, zeros of both signs, and neighbours in the last bit.
    pool = [-1.0, -0.3, np.nextafter(-0.3, 0), -0.0, 0.0, 0.1, 0.2, 0.1 + 0.2, 0.9]
    values = np.sort(np.array(data.draw(st.lists(st.sampled_from(pool), min_size=n, max_size=n))))
    values = values.astype(np.float64)
    n_groups = data.draw(st.integers(1, 6))
    group = np.array(
        data.draw(st.lists(st.integers(0, n_groups - 1), min_size=n, max_size=n)), np.int32
    )
    times = np.array(
        [data.draw(st.lists(st.integers(0, 3), min_size=n_groups, max_size=n_groups))], np.int32
    )
    alpha = data.draw(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1 / 3, 0.9, 1.0]))
    cut = data.draw(st.integers(0, n))
    first = np.array([0, cut, n])
    by_subset = np.r_[np.sort(values[:cut]), np.sort(values[cut:])]
    medians, tails = np.full((1, 2), 7.0), np.full((1, 2), 7.0)
    resampled_medians(times, group, by_subset, first, medians)
    resampled_tails(times, group, values, alpha, tails)
    repeated = np.repeat(values, times[0][group])
    expected = Tail(repeated, alpha)
    share = np.mean(repeated <= 0) if repeated.size else np.nan
    np.testing.assert_allclose(tails[0], [expected.ltm_alpha, share], rtol=0, atol=1e-15)
    for s in range(2):
        mine = np.repeat(
            by_subset[first[s] : first[s + 1]], times[0][group[first[s] : first[s + 1]]]
        )
        median = np.median(mine) if mine.size else np.nan
        np.testing.assert_array_equal(medians[0, s], median)


def test_sums__are_a_matrix_product(rng: np.random.Generator) -> None:
    times = rng.integers(0, 4, (5, 30)).astype(np.int32)
    sums = rng.integers(0, 1000, (30, 3)).astype(np.float64)
    found = np.full((5, 3), np.nan)
    resampled_sums(times, sums, found)
    np.testing.assert_array_equal(found, times @ sums)


@pytest.mark.parametrize("n_groups", [2, 5_000])
def test_multiplicities__are_those_of_the_stated_generator(n_groups: int) -> None:
    from croma_dask.uncertainty.draws import Draws

    blocks = list(Draws(150, n_groups, 3).blocks())
    assert len(blocks) > 1
    drawn = np.random.default_rng(3).integers(n_groups, size=(150, n_groups))
    for at, times in blocks:
        for d, mine in zip(range(at.start, at.stop), times, strict=True):
            np.testing.assert_array_equal(mine, np.bincount(drawn[d], minlength=n_groups))
