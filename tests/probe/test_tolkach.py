"""The arrangement by cases: none is ever trained on and tested on at once."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from croma_dask.errors import SchemaError
from croma_dask.probe.cut import check_schedule
from croma_dask.probe.linear import linear_schedule
from croma_dask.probe.names import PATHOROB_ORDER, names_to_indices
from croma_dask.probe.slides import arrange_replicates, group_rows
from croma_dask.probe.tolkach import tolkach_arrangement
from tests.probe.glue import sweep

CENTERS, CLASSES = PATHOROB_ORDER["tolkach_esca"]


def feasible_splits(frame: pd.DataFrame, tail: int) -> dict[str, dict[str, list[list[str]]]]:
    """Sets of cases with exactly so many slides in every class of their centre."""
    found: dict[str, dict[str, list[list[str]]]] = {"train": {}, "test": {}}
    for center, rows in frame.groupby("center"):
        there = pd.crosstab(rows["case"], rows["label"]) > 0
        names, slides = there.index.tolist(), there.to_numpy().astype(int)
        every = fills(slides, np.full(slides.shape[1], tail))
        tests = [[names[case] for case in test] for test in itertools.islice(every, 30)]
        found["test"][str(center)] = tests
        found["train"][str(center)] = [[c for c in names if c not in t] for t in tests]
    return found


def fills(slides: np.ndarray, left: np.ndarray, first: int = 0) -> Iterator[list[int]]:
    """Sets of cases that have together so many slides in every class as are left."""
    if not left.any():
        yield []
        return
    for case in range(first, slides.shape[0]):
        if (slides[case] <= left).all():
            for more in fills(slides, left - slides[case], case + 1):
                yield [case, *more]


def drawn_cohort(seed: int, rows_per_slide: int) -> pd.DataFrame:
    """Two centres, three classes, six slides a cell; cases have slides of one to three classes."""
    rng = np.random.default_rng(seed)
    rows = []
    for center in ("A", "B"):
        names = [f"{center}{number:02d}" for number in rng.permutation(30)]
        cells: list[list[str]] = [[], [], []]
        while any(len(cell) < 6 for cell in cells):
            case = names.pop()
            wanted = [j for j in range(3) if len(cells[j]) < 6]
            # Some cases span all classes, so that feasible splits exist.
            for j in wanted if rng.random() < 0.5 else wanted[:1]:
                cells[j].append(case)
        for j, cases in enumerate(cells):
            rows += [(center, f"class {j}", case) for case in cases for _ in range(rows_per_slide)]
    return pd.DataFrame(rows, columns=["center", "label", "case"])


def cases_used_twice(
    frame: pd.DataFrame, names: Any, arrangement: Any, *, tail: int, rows: int, seed: int
) -> set[str]:
    """Cases that any split of any replicate trains or validates on, and tests on."""
    confounders = names_to_indices(frame["center"], names[0])
    labels = names_to_indices(frame["label"], names[1])
    sizes = [[cell.size for cell in level] for level in group_rows(confounders, labels)]
    most = sizes[0][0] // rows - tail - 1  # one slide between them is for validation
    schedule = linear_schedule(len(names[0]), len(names[1]), most, 2, rows_per_slide=rows)
    cut = check_schedule(
        schedule, sizes, rows_per_slide=rows, iterations=4, validation_fraction=None
    )
    assert cut.first_held_out == ((most + 1) * rows,) * 2
    case = frame["case"].to_numpy()
    twice: set[str] = set()
    for order in arrange_replicates(
        confounders,
        labels,
        rows_per_slide=rows,
        iterations=4,
        seed=seed,
        arrange_slides=arrangement,
    ):
        for s in range(cut.n_splits):
            seen = np.concatenate([cut.training(s, order), cut.validation(s, order)])
            twice |= set(case[seen]) & set(case[cut.held_out(s, order)])
    return twice


@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(2, 4),
    tail=st.sampled_from([1, 3]),
    checked=st.booleans(),
)
def test_tolkach_arrangement__keeps_cases_apart(
    seed: int, rows: int, tail: int, checked: bool
) -> None:
    frame = drawn_cohort(seed, rows)
    splits = feasible_splits(frame, tail)
    assume(all(splits["test"].values()))
    arrangement = tolkach_arrangement(
        splits, frame["case"], centers=["A", "B"], first_test_slide=6 - tail if checked else None
    )
    names = ["A", "B"], ["class 0", "class 1", "class 2"]
    twice = cases_used_twice(frame, names, arrangement, tail=tail, rows=rows, seed=seed)
    assert not twice


def test_tolkach_arrangement__keeps_cases_of_the_real_cohort_apart(shared_data: Path) -> None:
    frame = pd.read_csv(shared_data / "pathorob_manifests" / "tolkach_esca_reduced.csv.gz")
    frame = frame[frame.medical_center.isin(CENTERS)].reset_index(drop=True)
    frame = frame.rename(
        columns={"medical_center": "center", "biological_class": "label", "slide_id": "case"}
    )
    splits = feasible_splits(frame, 2)
    assert all(splits["test"].values())
    arrangement = tolkach_arrangement(splits, frame["case"], centers=CENTERS, first_test_slide=3)
    names, options = (CENTERS, CLASSES), {"tail": 2, "rows": 100, "seed": 1000}
    assert not cases_used_twice(frame, names, arrangement, **options)
    assert cases_used_twice(frame, names, None, **options), "which is what it is for"


def test_tolkach_arrangement__reads_pathorob_s_file(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "pathorob_manifests" / "tolkach_splits.json.gz"
    plain = tmp_path / "splits.json"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    splits = json.loads(plain.read_text())
    cases = [sorted({c for side in splits.values() for s in side[name] for c in s})
             for name in CENTERS]  # fmt: skip
    of_row = [case for names in cases for case in names]
    cells = [[[[of_row.index(case)] for case in names]] for names in cases]
    found = [
        tolkach_arrangement(source, of_row, centers=CENTERS)(cells, random.Random(3))
        for source in (path, str(plain), splits)
    ]
    assert found[0] == found[1] == found[2]
    rng = random.Random(3)
    tests = [splits["test"][c][rng.randint(0, len(splits["test"][c]) - 1)] for c in CENTERS]
    for level, names, test in zip(found[0], cases, tests, strict=True):
        order = list(names)
        rng.shuffle(order)
        expected = [c for c in order if c not in test] + sorted(test)
        assert [of_row[slide[0]] for slide in level[0]] == expected


def test_tolkach_arrangement__draws_before_it_shuffles_and_sorts_cases() -> None:
    splits = {
        "train": {"A": [["a"], ["b"]], "B": [["d"]]},
        "test": {"A": [["c", "b"], ["c", "a"]], "B": [["e"]]},
    }
    cells = [[[[0], [1], [2], [3]]], [[[4], [5]]]]
    case_of_row = ["a", "b", "c", "b", "d", "e"]
    found = tolkach_arrangement(splits, case_of_row, centers=["A", "B"])(cells, random.Random(5))
    rng = random.Random(5)
    test = sorted(splits["test"]["A"][rng.randint(0, 1)])
    rng.randint(0, 0)  # B has one split, and draws all the same
    slides = [0, 1, 2, 3]
    rng.shuffle(slides)
    expected = [s for s in slides if case_of_row[s] not in test]
    for case in test:
        expected += [s for s in slides if case_of_row[s] == case]
    assert [slide[0] for slide in found[0][0]] == expected
    assert found[1] == [[[4], [5]]]
    assert cells == [[[[0], [1], [2], [3]]], [[[4], [5]]]]


def test_tolkach_arrangement__gives_the_reference_s_sweep() -> None:
    downstream = pytest.importorskip("croma.downstream")
    frame = drawn_cohort(5, 3)
    splits = feasible_splits(frame, 1)
    assert all(splits["test"].values())
    x = np.random.default_rng(0).normal(size=(len(frame), 3))
    options: dict[str, Any] = {
        "schedule": linear_schedule(2, 3, 4, 2, rows_per_slide=3),
        "rows_per_slide": 3,
        "iterations": 2,
        "arrange_slides": tolkach_arrangement(splits, frame["case"], centers=["A", "B"]),
    }
    confounders = names_to_indices(frame["center"], ["A", "B"])
    labels = names_to_indices(frame["label"], ["class 0", "class 1", "class 2"])
    found = sweep(x, confounders, labels, **options)["in_domain"]
    expected = downstream.probe_sweep_over_test_sets(x, confounders, labels, **options)
    np.testing.assert_array_equal(found, expected["in_domain"])


# ---- what is refused --------------------------------------------------------------------------

SPLITS = {"train": {"A": [["a"]]}, "test": {"A": [["b"]]}}


@pytest.mark.parametrize(
    ("splits", "options", "message"),
    [
        ({"train": {}}, {}, r"splits\['train'\] has no centre 'A'; it has"),
        ({"train": SPLITS["train"]}, {}, "splits must have a mapping 'test', found 'train'"),
        (SPLITS, {"centers": ["A", "C"]}, "has no centre 'C'; it has 'A'"),
        (SPLITS, {"centers": "A"}, "centers is a sequence of names, found 'A'"),
        (SPLITS, {"centers": []}, "centers is a sequence of names"),
        (SPLITS, {"first_test_slide": 0}, "first_test_slide must be 1 or larger"),
        (SPLITS, {"case_of_row": ["x", "y"]}, "test on 'b', none of which is in case_of_row"),
        (SPLITS, {"case_of_row": [["a"]]}, r"one case a row, found an array of shape \(1, 1\)"),
        (
            {"train": {"A": [["a"], ["b"]]}, "test": {"A": [["b"]]}},
            {},
            "2 sets of training cases and 1 of test",
        ),
        ({"train": {"A": []}, "test": {"A": []}}, {}, "0 sets of training cases and 0"),
        (
            {"train": {"A": [["a", "b"]]}, "test": {"A": [["b"]]}},
            {},
            "split 0 of 'A' trains and tests on 'b'",
        ),
    ],
)
def test_tolkach_arrangement__says_what_is_wrong(
    splits: Any, options: dict[str, Any], message: str
) -> None:
    arguments = {"case_of_row": ["a", "b"], "centers": ["A"], **options}
    with pytest.raises(SchemaError, match=message):
        tolkach_arrangement(splits, **arguments)


def test_tolkach_arrangement__says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "splits.json"
    options: dict[str, Any] = {"case_of_row": ["a", "b"], "centers": ["A"]}
    with pytest.raises(SchemaError, match="cannot read .*splits.json"):
        tolkach_arrangement(path, **options)
    path.write_text("[1]")
    with pytest.raises(SchemaError, match=r"splits.json holds a list, expected train and test"):
        tolkach_arrangement(path, **options)
    path.write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(SchemaError, match="cannot read .*splits.json"):
        tolkach_arrangement(path, **options)


def test_tolkach_arrangement__refuses_a_cohort_it_does_not_fit() -> None:
    rng = random.Random(0)
    arrange = tolkach_arrangement(SPLITS, ["a", "b", "a"], centers=["A"])
    with pytest.raises(SchemaError, match="has 2 confounder levels, centers has 1"):
        arrange([[[[0]]], [[[1]]]], rng)
    with pytest.raises(SchemaError, match=r"a slide of cell \(0, 1\) holds rows of several cases"):
        arrange([[[[0]], [[1, 2]]]], rng)
    # Case b is tested on in both classes; case a has to fill the tail of one of them.
    arrange = tolkach_arrangement(SPLITS, ["a", "b", "a", "a"], centers=["A"], first_test_slide=1)
    with pytest.raises(SchemaError, match=r"case 'a' would be tested on in cell \(0, 1\)"):
        arrange([[[[0], [1]], [[2], [3]]]], rng)
