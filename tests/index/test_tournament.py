"""Every pair meets once, and nobody meets two partners at a time."""

from __future__ import annotations

import pytest

from croma_dask.index.tournament import rounds


@pytest.mark.parametrize("n", [*range(1, 13), 40, 41])
def test_rounds__every_pair_once_and_each_player_once_a_round(n: int) -> None:
    schedule = rounds(n)
    met = [pair for players in schedule for pair in players]
    assert sorted(met) == [(i, j) for i in range(n) for j in range(i, n)]
    for players in schedule:
        busy = [p for i, j in players for p in ({i, j})]
        assert len(busy) == len(set(busy))


@pytest.mark.parametrize("n", [2, 7, 8, 41])
def test_rounds__are_as_few_as_can_be(n: int) -> None:
    assert len(rounds(n)) == 1 + (n - 1 if n % 2 == 0 else n)


def test_rounds__of_nobody_is_nothing() -> None:
    assert rounds(0) == []
