"""The sweep on cohorts: names, orders, slides and test sets become the rows that are meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import croma_dask as cd
from croma_dask.downstream import (
    linear_schedule,
    names_to_indices,
    pathorob_schedule,
    probe_sweep_over_test_sets,
)
from croma_dask.errors import SchemaError
from tests.probe.glue import cohort as rows_of

SLIDE = 3
CELLS = [[60, 60], [60, 60], [30, 30]]


@pytest.fixture(scope="module")
def arrays() -> tuple[np.ndarray, pd.DataFrame]:
    x, center, label = rows_of(CELLS, n_features=5, shuffled=False)
    frame = pd.DataFrame(
        {
            "sample_id": [f"s{i}" for i in range(label.size)],
            "label": np.array(["normal", "tumor"])[label],
            "center": np.array(["RUMC", "UMCU", "CWZ"])[center],
            "group_id": [f"slide-{i // SLIDE}" for i in range(label.size)],
        }
    )
    return x.astype(np.float32), frame


@pytest.fixture(scope="module")
def place(arrays: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cohort")
    return Path(cd.write_cohort(folder / "c.zarr", *arrays, chunk_rows=37))


HOW: dict[str, Any] = {
    "confounder": "center", "schedule": "camelyon", "rows_per_slide": SLIDE, "iterations": 2,
}  # fmt: skip


def by_hand(x: np.ndarray, frame: pd.DataFrame, **how: Any) -> Any:
    """The sweep on arrays, with the rows and indices worked out here."""
    used = frame["center"].isin(["RUMC", "UMCU"]).to_numpy()
    rest = ~used
    labels = names_to_indices(frame["label"], ["normal", "tumor"])
    return probe_sweep_over_test_sets(
        x[used], names_to_indices(frame["center"][used], ["RUMC", "UMCU"]), labels[used],
        schedule=pathorob_schedule("camelyon", rows_per_slide=SLIDE), rows_per_slide=SLIDE,
        iterations=2, test_sets={"unseen": (x[rest], labels[rest])}, **how,
    )  # fmt: skip


SELECTIONS: list[Any] = [
    {"center": "CWZ"}, {"center": ["CWZ"], "label": ["normal", "tumor"]}, slice(240, None),
    np.arange(240, 300), np.arange(300) >= 240,
]  # fmt: skip


@pytest.mark.parametrize("given", SELECTIONS)
def test_cohort__is_swept_as_its_arrays(given: Any, arrays: Any, place: Path) -> None:
    x, frame = arrays
    expected = by_hand(x, frame)
    found = cd.open_cohort(place).croma.probe_sweep(**HOW, test_sets={"unseen": given})
    assert list(found.data_vars) == ["in_domain", "unseen"]
    for name in found.data_vars:
        np.testing.assert_array_equal(found[name], expected[name])
    assert found["confounder"].values.tolist() == ["RUMC", "UMCU"], "PathoROB's order, not sorted"
    assert found["label"].values.tolist() == ["normal", "tumor"]
    assert found.attrs["n_rows_left_out"] == 60
    assert found.in_domain.attrs["n_classes"] == 2
    assert found["training_table"].sel(confounder="RUMC", label="tumor").values.tolist() == [
        SLIDE * (7 + s) for s in range(8)
    ]


def test_order__of_names_is_what_the_schedule_counts(place: Path) -> None:
    cohort = cd.open_cohort(place)
    usual = cohort.croma.probe_sweep(**HOW)
    turned = cohort.croma.probe_sweep(**HOW, confounder_order=["UMCU", "RUMC"])
    assert turned["confounder"].values.tolist() == ["UMCU", "RUMC"]
    assert turned["training_table"].sel(confounder="UMCU", label="normal")[7] == 0
    assert usual["training_table"].sel(confounder="RUMC", label="normal")[7] == 0
    # Without a name that says so, names count in sorted order.
    schedule = pathorob_schedule("camelyon", rows_per_slide=SLIDE)
    how = {**HOW, "schedule": schedule}
    given = cohort.croma.probe_sweep(**how, confounder_order=["RUMC", "UMCU"])
    np.testing.assert_array_equal(given["in_domain"], usual["in_domain"])
    three = linear_schedule(3, 2, 6, 3, rows_per_slide=SLIDE)
    wide = cohort.croma.probe_sweep(**{**HOW, "schedule": three})
    assert wide["confounder"].values.tolist() == ["CWZ", "RUMC", "UMCU"]


def test_other_cohort__as_a_test_set(arrays: Any, place: Path, tmp_path: Path) -> None:
    x, frame = arrays
    other = frame["center"] == "CWZ"
    there = cd.write_cohort(tmp_path / "o.zarr", x[other], frame[other].reset_index(drop=True))
    expected = by_hand(x, frame)["unseen"]
    for given in (there, cd.open_cohort(there), (x[other], frame[other])):
        found = cd.open_cohort(place).croma.probe_sweep(**HOW, test_sets={"unseen": given})
        np.testing.assert_array_equal(found["unseen"], expected)


def test_tiles_that_repeat__are_read_where_they_are(arrays: Any, tmp_path: Path) -> None:
    """A manifest in another order than its rows, some of which it names twice."""
    x, frame = arrays
    rng = np.random.default_rng(4)
    taken = np.concatenate([rng.permutation(300), rng.integers(0, 300, 20)])
    chosen = frame.iloc[taken].reset_index(drop=True)
    chosen["sample_id"] = [f"t{i}" for i in range(len(chosen))]
    chosen["tile"] = taken
    place = cd.write_cohort(tmp_path / "c.zarr", x[taken], chosen)
    from croma_dask.probe.cohorts import sweep_cohort

    expected = sweep_cohort(x[taken], chosen, **HOW)
    np.testing.assert_array_equal(sweep_cohort(place, **HOW)["in_domain"], expected["in_domain"])


def test_slides__by_column_are_checked(arrays: Any, place: Path) -> None:
    x, frame = arrays
    cohort = cd.open_cohort(place)
    expected = cohort.croma.probe_sweep(**HOW)
    for how in (HOW, {**HOW, "rows_per_slide": None}):
        found = cohort.croma.probe_sweep(**how, slide="group_id")
        np.testing.assert_array_equal(found["in_domain"], expected["in_domain"])
        assert found.attrs["rows_per_slide"] == SLIDE
    with pytest.raises(SchemaError, match=r"80 of 80 slides .*'slide-0 \(3\)'.* and 75 more"):
        cohort.croma.probe_sweep(**{**HOW, "rows_per_slide": 4}, slide="group_id")
    from croma_dask.probe.cohorts import sweep_cohort

    torn = frame.copy()
    torn.loc[[0, 3], "group_id"] = ["slide-1", "slide-0"]
    with pytest.raises(
        SchemaError, match=r"1 of 80 slides .*do not follow one another.*sort the cohort"
    ):
        sweep_cohort(x, torn, **HOW, slide="group_id")
    short = frame.drop(index=5)
    with pytest.raises(SchemaError, match=r"1 of 80 slides .*'slide-1 \(2\)'"):
        sweep_cohort(np.delete(x, 5, axis=0), short, **HOW, slide="group_id")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"confounder": "site"}, "no column 'site'"),
    ({"label": "center"}, "columns of their own"),
    ({"schedule": "kaiko"}, "camelyon"),
    ({"confounder_order": ["RUMC", "LPON"]}, "names 'LPON'; column 'center' has"),
    ({"confounder_order": "RUMC"}, "list of names"),
    ({"label_order": ["tumor", "tumor"]}, "'tumor' twice"),
    ({"rows_per_slide": 9}, r"split 0: cell \(0, 0\) has 60 rows"),
    ({"test_sets": {"u": {"center": "RUMC"}}}, "share rows 0, 1, 2, 3, 4 and 115 more"),
    ({"test_sets": {"u": {"center": "LPON"}}}, "has no 'LPON'"),
    ({"test_sets": {"u": np.array([299, 300])}}, "row 300; the cohort has rows 0 to 299"),
    ({"test_sets": {"u": np.zeros(300, bool)}}, "no rows"),
    ({"test_sets": {"u": np.ones(3, bool)}}, "a mask of 300 rows"),
    ({"test_sets": {"u": 0.5}}, "a mask of 300 rows"),
    ({"test_sets": {"in_domain": slice(240, None)}}, "held-out rows"),
    ({"test_sets": {"C": slice(240, None)}}, "coordinate"),
    ({"iterations": 0}, "iterations"),
    ({"validation_fraction": 1.0}, "validation_fraction"),
    ({"memory": "1MB"}, "split"),
]


@pytest.mark.parametrize(("how", "told"), REFUSED)
def test_bad_arguments__are_told(how: dict[str, Any], told: str, place: Path) -> None:
    cohort = cd.open_cohort(place)
    kind = cd.MemoryLimitError if "memory" in how else SchemaError
    for call in (cohort.croma.probe_sweep, cohort.croma.plan_probe_sweep):
        with pytest.raises(kind, match=told):
            call(**{**HOW, **how})


def test_other_cohort__of_other_labels_or_width_is_refused(arrays: Any, place: Path) -> None:
    x, frame = arrays
    strange = frame.assign(label="stroma")
    cohort = cd.open_cohort(place)
    with pytest.raises(SchemaError, match="other labels than the sweep's 'normal', 'tumor'"):
        cohort.croma.probe_sweep(**HOW, test_sets={"u": (x, strange)})
    with pytest.raises(SchemaError, match="4 features, the cohort has 5"):
        cohort.croma.probe_sweep(**HOW, test_sets={"u": (x[:, :4], frame)})


def test_plan__tells_and_reads_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from croma_dask.cohort.store import StoredCohort

    def refuse(*args: Any) -> None:
        raise AssertionError("a plan reads no embedding")

    monkeypatch.setattr(StoredCohort, "read_tiles", refuse)
    plan = cd.open_cohort(place).croma.plan_probe_sweep(
        **HOW, test_sets={"unseen": {"center": "CWZ"}}, threads=2, memory="2GB"
    )
    assert (plan.n_splits, plan.iterations, plan.n_fits) == (8, 2, 240)
    assert (plan.n_rows, plan.n_features, plan.n_tasks) == (240, 5, 18)
    assert plan.peak <= plan.allowed == 2 * 10**9
    assert sum(plan.terms.values()) == plan.peak
    assert "8 splits x 2 replicates, 240 fits at most" in str(plan)
