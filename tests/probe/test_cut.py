"""Rows of each split; and, glued to the other parts, the reference's accuracies to the last bit."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.errors import SchemaError
from croma_dask.probe.cut import CellCut, Cut, check_rows, check_schedule
from croma_dask.probe.linear import linear_schedule
from croma_dask.probe.schedule import pathorob_schedule
from croma_dask.probe.slides import arrange_replicates, group_rows
from tests.probe.glue import cohort, sweep

BALANCED = [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2)]


def reversed_then_shuffled(cells: Any, rng: random.Random) -> Any:
    """A custom arrangement: draws first, shuffles some cells, reverses the others."""
    first = rng.randint(0, 1)
    out = []
    for level in cells:
        out.append([])
        for j, slides in enumerate(level):
            slides = list(slides)
            if j % 2 == first:
                rng.shuffle(slides)
            out[-1].append(tuple(slides[::-1]))
    return tuple(out)


def outside(n_features: int, classes: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, size=25)
    return rng.normal(size=(25, n_features)), labels


CASES: dict[str, dict[str, Any]] = {
    "camelyon_patches": {
        "data": cohort(np.full((2, 2), 17 * 3)),
        "schedule": pathorob_schedule("camelyon", rows_per_slide=3),
        "rows_per_slide": 3,
        "iterations": 1,
    },
    "camelyon_slides": {
        "data": cohort(np.full((2, 2), 22), seed=1),
        "schedule": pathorob_schedule("camelyon", n_splits=5),
        "validation_fraction": 0.25,
        "iterations": 2,
    },
    "tcga_patches": {
        "data": cohort(np.full((4, 4), 40), seed=2),
        "schedule": pathorob_schedule("tcga", rows_per_slide=4)[::2],
        "rows_per_slide": 4,
        "iterations": 1,
    },
    "tcga_slides": {
        "data": cohort(np.full((4, 4), 15), seed=3),
        "schedule": pathorob_schedule("tcga")[::3],
        "validation_fraction": 0.5,
        "iterations": 2,
        "seed": 7,
    },
    "tolkach_patches": {
        "data": cohort(np.full((2, 6), 18), seed=4),
        "schedule": pathorob_schedule("tolkach_esca", rows_per_slide=2),
        "rows_per_slide": 2,
        "iterations": 1,
        "arrange_slides": reversed_then_shuffled,
    },
    "tolkach_slides": {
        "data": cohort(np.full((2, 6), 12), seed=5),
        "schedule": pathorob_schedule("tolkach_esca")[::3],
        "validation_fraction": 0.4,
        "iterations": 2,
        "arrange_slides": reversed_then_shuffled,
    },
    # Splits of different widths, cells out of order, a class and a level that are never trained on,
    # a level without rows, short last slides, and test sets with classes of their own.
    "custom": {
        "data": cohort([[17, 11, 5], [13, 14, 0], [0, 0, 0], [9, 0, 3]], seed=6),
        "schedule": [
            ([(1, 1, 4), (0, 0, 4), (0, 1, 4), (1, 0, 4)], 2),
            ([(0, 1, 1), (0, 0, 6), (1, 1, 5)], 3),
            ([(0, 0, 5), (1, 1, 6), (0, 1, 0)], 3),
        ],
        "rows_per_slide": 2,
        "iterations": 3,
        "seed": 11,
        "test_sets": {"one": outside(4, [0, 1], 1), "other": outside(4, [1, 2, 9], 2)},
    },
    "linear_float32": {
        "data": cohort(np.full((2, 3), 15), seed=8, n_features=9),
        "schedule": linear_schedule(2, 3, 8, 3),
        "validation_fraction": 0.3,
        "iterations": 2,
        "test_sets": {"unseen": outside(9, [0, 2], 3)},
        "dtype": np.float32,
    },
    # Probes that run out of iterations are used as they are.
    "unscaled": {
        "data": cohort(np.full((2, 3), 15), seed=9, n_features=12, scale=300.0),
        "schedule": linear_schedule(2, 3, 8, 3),
        "validation_fraction": 0.3,
        "iterations": 1,
    },
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_sweep__equals_the_reference(name: str) -> None:
    downstream = pytest.importorskip("croma.downstream")
    options = dict(CASES[name])
    x, confounders, labels = options.pop("data")
    x = x.astype(options.pop("dtype", np.float64))
    found = sweep(x, confounders, labels, **options)  # a warning would fail it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = downstream.probe_sweep_over_test_sets(
            x.astype(np.float64), confounders, labels, **options
        )
    assert list(found) == list(expected)
    for test_set, accuracies in expected.items():
        assert np.abs(found[test_set] - accuracies).max() == 0.0
    assert np.ptp(found["in_domain"]) > 0.0, "the case would not notice a mixed-up row"


# ---- which rows -------------------------------------------------------------------------------


def cut_of(schedule: Any, sizes: Any, **options: Any) -> Cut:
    defaults = {"rows_per_slide": 1, "iterations": 2, "validation_fraction": None}
    return check_schedule(schedule, sizes, **{**defaults, **options})


def test_cut__takes_rows_from_the_front_and_tests_on_the_rest() -> None:
    confounders, labels = np.repeat([0, 0, 1, 1], 10), np.tile(np.repeat([0, 1], 10), 2)
    order = group_rows(confounders, labels)
    cut = cut_of(
        [([(1, 1, 2), (0, 0, 4)], 2), ([(0, 1, 6), (1, 0, 3)], 3)],
        np.full((2, 2), 10),
        rows_per_slide=2,
    )
    # int(2 / 2), int(4 / 2); int(6 / 3), int(3 / 3); tests start after (2 + 1) and (3 + 1) slides.
    assert cut.cells == (
        (CellCut(1, 1, 2, 1), CellCut(0, 0, 4, 2)),
        (CellCut(0, 1, 6, 2), CellCut(1, 0, 3, 1)),
    )
    assert cut.first_held_out == (6, 8)
    assert cut.training(0, order).tolist() == [30, 31, 0, 1, 2, 3]
    assert cut.validation(0, order).tolist() == [32, 4, 5]
    assert cut.held_out(0, order).tolist() == [*range(6, 10), *range(16, 20), *range(26, 30),
                                               *range(36, 40)]  # fmt: skip
    assert cut.held_out(1, order).tolist() == [8, 9, 18, 19, 28, 29, 38, 39]


def test_cut__rounds_a_fraction_as_python_does() -> None:
    cut = cut_of(
        [([(0, 0, 5), (1, 1, 3)], 5), ([(0, 0, 5), (1, 1, 1)], 5)],
        np.full((2, 2), 9),
        validation_fraction=0.5,
    )
    # round(2.5) = 2, round(1.5) = 2, round(0.5) = 0; tests start after 5 + 2 + 1.
    assert [[c.reserve for c in cells] for cells in cut.cells] == [[2, 2], [2, 0]]
    assert cut.first_held_out == (8, 8)


@given(
    slides=st.integers(2, 6),
    rows=st.integers(1, 4),
    spare=st.integers(1, 9),
    splits=st.integers(2, 3),
    fraction=st.one_of(st.none(), st.floats(0.0, 0.99)),
    shape=st.tuples(st.integers(2, 3), st.integers(2, 3)),
    seed=st.integers(0, 100),
)
def test_cut__never_uses_a_row_twice_in_a_split(
    slides: int, rows: int, spare: int, splits: int, fraction: float | None, shape: Any, seed: int
) -> None:
    schedule = linear_schedule(*shape, slides * shape[0], splits, rows_per_slide=rows)
    most = schedule[0][1]
    gap = 1 if fraction is None else round(fraction * most) + 1
    sizes = np.full(shape, (most + gap) * rows + spare)
    share = 1 / most if fraction is None else fraction
    reserved = [
        [int(take / most) if fraction is None else round(share * take) for *_, take in cells]
        for cells, _ in schedule
    ]
    if not all(map(any, reserved)):
        with pytest.raises(SchemaError, match="no validation rows"):
            cut_of(schedule, sizes, rows_per_slide=rows, validation_fraction=fraction)
        return
    cut = cut_of(schedule, sizes, rows_per_slide=rows, validation_fraction=fraction)
    _, confounders, labels = cohort(sizes, seed=seed)
    held_out = []
    for order in arrange_replicates(
        confounders, labels, rows_per_slide=rows, iterations=2, seed=seed
    ):
        for s in range(cut.n_splits):
            parts = cut.training(s, order), cut.validation(s, order), cut.held_out(s, order)
            used = np.concatenate(parts)
            assert np.unique(used).size == used.size
            assert set(labels[parts[0]]) == set(range(shape[1]))
            held_out.append(tuple(parts[2]))
    assert len(set(held_out)) <= 2, "the same test rows for all splits of a replicate"


# ---- what is refused --------------------------------------------------------------------------

FINE = (BALANCED, 2)
REFUSED = {
    "one split": ([FINE], {}, r"schedule has 1 split"),
    "no sequence": (5, {}, r"split 0 must be \(cells, max_train_slides\), found 5"),
    "not a pair": ([FINE, (BALANCED,)], {}, r"split 1 must be \(cells, max_train_slides\)"),
    "not a triple": ([FINE, ([(0, 0)], 2)], {}, r"split 1: cells are .* found \(0, 0\)"),
    "not whole": ([FINE, ([(0, 0, 1.5)], 2)], {}, r"rows of cell \(0, 0\) must be a whole number"),
    "below 0": ([FINE, ([(0, 0, -2)], 2)], {}, r"split 1: .*cell \(0, 0\) must be 0 or larger"),
    "no such cell": (
        [FINE, ([(0, 0, 2), (5, 1, 0)], 2)],
        {},
        r"split 1: cell \(5, 1\) is carried by no row; rows carry \(0, 0\), \(0, 1\)",
    ),
    "negative cell": ([FINE, ([(-1, 0, 2)], 2)], {}, r"split 1: the confounder of cell .*-1"),
    "twice": (
        [FINE, ([(0, 0, 2), (1, 1, 2), (0, 0, 1)], 2)],
        {},
        r"split 1 names cell \(0, 0\) twice, with 2 and 1 rows",
    ),
    "max 0": ([FINE, (BALANCED, 0)], {}, r"split 1: max_train_slides must be 1 or larger"),
    "above max": (
        [FINE, ([(0, 0, 5), (1, 1, 2)], 2)],
        {"rows_per_slide": 2},
        r"cell \(0, 0\) asks for 5 training rows, more than max_train_slides=2 .*\(4\)",
    ),
    "too few rows": (
        [FINE, ([(0, 0, 8), (1, 1, 8)], 8)],
        {},
        r"split 1: cell \(0, 0\) has 8 rows, too few for 8 training and 1 validation",
    ),
    "no training": ([FINE, ([(0, 0, 0), (1, 1, 0)], 2)], {}, r"split 1 trains on no rows"),
    "no cells": ([FINE, ([], 2)], {}, r"split 1 trains on no rows: 0 cells"),
    "one class": (
        [FINE, ([(0, 0, 2), (1, 0, 2), (1, 1, 0)], 2)],
        {},
        r"split 1 trains on class 0 only \(4 rows\)",
    ),
    "no validation": (
        [FINE, ([(0, 0, 1), (1, 1, 1)], 2)],
        {},
        r"split 1 has no validation rows: cell \(0, 0\) .* most rows, 1, .*1/2 .*fraction",
    ),
    "fraction 0": ([FINE, FINE], {"validation_fraction": 0.0}, r"validation_fraction=0.0 of"),
    "no test": (
        [FINE, ([(0, 0, 7), (1, 1, 7)], 7)],
        {},
        r"split 1 has no test rows: they start after 8 rows .*largest cell \(0, 0\) has 8",
    ),
    "rows_per_slide": ([FINE, FINE], {"rows_per_slide": 0}, r"rows_per_slide must be 1 or larger"),
    "iterations": ([FINE, FINE], {"iterations": 0}, r"iterations must be 1 or larger"),
    "too many": ([FINE, FINE], {"iterations": 10_001}, r"iterations must be 10000 or less"),
    "fraction 1": ([FINE, FINE], {"validation_fraction": 1.0}, r"must be in \[0, 1\), found 1.0"),
    "fraction nan": ([FINE, FINE], {"validation_fraction": float("nan")}, r"found nan"),
    "fraction text": ([FINE, FINE], {"validation_fraction": "x"}, r"None or a number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_check_schedule__says_what_is_wrong(name: str) -> None:
    schedule, options, message = REFUSED[name]
    with pytest.raises(SchemaError, match=message):
        cut_of(schedule, np.full((2, 2), 8), **options)


@pytest.mark.parametrize(
    ("confounders", "labels", "message"),
    [
        ([[0, 1]], [0, 1], r"confounders must be one index a row, found .* \(1, 2\)"),
        ([0, 1, 1], [0, 1], r"confounders has 3 rows, the embedding has 2"),
        ([0, 1], [0.0, 1.0], r"labels must be whole numbers .* found float64; names_to_indices"),
        (["a", "b"], [0, 1], r"confounders must be whole numbers .* found <U1"),
        ([True, False], [0, 1], r"found bool"),
        ([0, 1], [-3, 0], r"labels must be 0 or larger, found -3 in row 0"),
        ([0, 10**9], [0, 10**6], r"number both from 0"),
        ([0, 1], np.array([0, 2**64 - 1], np.uint64), r"labels must count from 0"),
    ],
)
def test_check_rows__says_what_is_wrong(confounders: Any, labels: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_rows(confounders, labels, 2)


def test_check_rows__needs_rows_and_returns_int64() -> None:
    with pytest.raises(SchemaError, match="no rows"):
        check_rows([], [], 0)
    for found in check_rows(np.array([0, 3], np.uint8), [1, 0], 2):
        assert found.dtype == np.int64
