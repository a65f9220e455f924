"""The order of slides in every replicate, and what a custom arrangement may return."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.errors import SchemaError
from croma_dask.probe.slides import arrange_replicates, group_rows, replicate_seeds
from tests.probe.glue import cohort


def read_aloud(
    confounders: Any, labels: Any, rows_per_slide: int, iterations: int, seed: int
) -> list[list[list[list[int]]]]:
    """The specification with lists: [replicate][confounder][class] rows."""
    shape = max(confounders) + 1, max(labels) + 1
    cells = [[[] for _ in range(shape[1])] for _ in range(shape[0])]
    for row, (i, j) in enumerate(zip(confounders, labels, strict=True)):
        cells[i][j].append(row)
    replicates = []
    for replicate_seed in random.Random(seed).sample(range(0, 10000), iterations):
        rng = random.Random(replicate_seed)
        for level in cells:
            for j, rows in enumerate(level):
                slides = [
                    rows[at : at + rows_per_slide] for at in range(0, len(rows), rows_per_slide)
                ]
                rng.shuffle(slides)
                level[j] = [row for slide in slides for row in slide]
        replicates.append([[list(rows) for rows in level] for level in cells])
    return replicates


@given(
    sizes=st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=2), min_size=1, max_size=3),
    rows_per_slide=st.integers(1, 4),
    iterations=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_arrange_replicates__equals_the_specification(
    sizes: list[list[int]], rows_per_slide: int, iterations: int, seed: int
) -> None:
    sizes[0][0] += 1
    _, confounders, labels = cohort(sizes, seed=seed)
    options = {"rows_per_slide": rows_per_slide, "iterations": iterations, "seed": seed}
    expected = read_aloud(confounders.tolist(), labels.tolist(), **options)
    plain = list(arrange_replicates(confounders, labels, **options))
    custom = list(arrange_replicates(confounders, labels, **options, arrange_slides=as_by_default))
    for found in (plain, custom):
        assert [[[c.tolist() for c in level] for level in order] for order in found] == expected
        assert {c.dtype for order in found for level in order for c in level} == {np.dtype("int64")}


def as_by_default(cells: Any, rng: random.Random) -> Any:
    for level in cells:
        for slides in level:
            rng.shuffle(slides)  # in place: the lists belong to the arrangement
    return cells


def test_group_rows__keeps_the_input_order() -> None:
    found = group_rows(np.array([2, 0, 2, 0, 2]), np.array([0, 1, 0, 1, 1]))
    assert [[c.tolist() for c in level] for level in found] == [
        [[], [1, 3]],
        [[], []],
        [[0, 2], [4]],
    ]


def test_replicate_seeds__are_those_of_the_specification() -> None:
    assert replicate_seeds(1000, 20) == random.Random(1000).sample(range(0, 10000), 20)
    assert len(set(replicate_seeds(3, 10_000))) == 10_000
    assert replicate_seeds(np.int64(5), 2) == replicate_seeds(5, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 0), "iterations must be 1 or larger, found 0"),
        ((1, 10_001), "iterations must be 10000 or less"),
        ((1, 2.5), r"iterations must be a whole number, found 2\.5"),
        ((None, 2), "seed must be a whole number, found None"),
        (("7", 2), "seed must be a whole number, found '7'"),
    ],
)
def test_replicate_seeds__says_what_is_wrong(arguments: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        replicate_seeds(*arguments)


def arranged(change: Callable[[Any], Any]) -> Any:
    _, confounders, labels = cohort([[4, 5], [6, 4]], shuffled=False)
    replicates = arrange_replicates(
        confounders,
        labels,
        rows_per_slide=2,
        iterations=2,
        seed=1,
        arrange_slides=lambda cells, rng: change(cells),
    )
    return next(replicates)


@pytest.mark.parametrize(
    "change",
    [
        lambda cells: cells,
        lambda cells: tuple(tuple(tuple(map(tuple, c[::-1])) for c in level) for level in cells),
        lambda cells: [[iter(c[1:] + c[:1]) for c in level] for level in cells],
        lambda cells: [[[np.array(s) for s in c] for c in level] for level in cells],
    ],
)
def test_arrange_slides__may_return_any_sequences(change: Any) -> None:
    order = arranged(change)
    assert sorted(order[0][1].tolist()) == [4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda cells: None, "replicate 0: the result must be a sequence .* found NoneType"),
        (lambda cells: cells[:1], "the result has 1 confounder levels, it was given 2"),
        (lambda cells: [cells[0], cells[1][:1]], "confounder 1 has 1 classes, it was given 2"),
        (lambda cells: [cells[0], 3], "confounder 1 must be a sequence of classes, found int"),
        (
            lambda cells: [[3, 4], cells[1]],
            r"cell \(0, 0\) must be a sequence of slides, found int",
        ),
        (lambda cells: [[[5, 6], []], cells[1]], "a slide must be a sequence of rows, found int"),
        (
            lambda cells: [[cells[0][0][1:], cells[0][1]], cells[1]],
            r"cell \(0, 0\) does not hold the 2 slides it was given: 1 missing \(\[0, 1\]\)",
        ),
        (
            lambda cells: [[cells[0][0][:1] * 2, cells[0][1]], cells[1]],
            r"1 missing \(\[2, 3\]\), 1 returned more than once \(\[0, 1\]\)",
        ),
        (
            lambda cells: [[[[0, 1, 2, 3]], cells[0][1]], cells[1]],
            r"2 missing .*, 1 that it was not given \(\[0, 1, 2, 3\]\)",
        ),
        (
            lambda cells: [[[[0, 1], [3, 2]], cells[0][1]], cells[1]],
            r"1 missing \(\[2, 3\]\), 1 that it was not given \(\[3, 2\]\)",
        ),
        (lambda cells: [cells[0][::-1], cells[1]], r"cell \(0, 0\) does not hold the 2 slides"),
        (
            lambda cells: [[cells[0][0] + [[]], cells[0][1]], cells[1]],
            r"the 2 slides it was given: 1 that it was not given \(\[\]\)",
        ),
    ],
)
def test_arrange_slides__must_return_the_same_slides(change: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        arranged(change)


def test_arrange_slides__cannot_change_the_order_behind_its_back() -> None:
    def spoil(cells: Any) -> Any:
        kept = [[[list(s) for s in c] for c in level] for level in cells]
        cells[0][0][0][0] = 99
        return kept

    assert arranged(spoil)[0][0].tolist() == [0, 1, 2, 3]
    with pytest.raises(SchemaError, match=r"\[99, 1\]"):
        arranged(lambda cells: (cells[0][0][0].__setitem__(0, 99), cells)[1])
