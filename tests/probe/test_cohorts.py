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


def test_rows_in_another_order__are_read_where_they_are(arrays: Any) -> None:
    """A manifest that is matched to its rows by id."""
    import xarray as xr

    from croma_dask.probe.cohorts import sweep_cohort

    x, frame = arrays
    order = np.random.default_rng(4).permutation(300)
    named = xr.DataArray(
        x, dims=("sample", "feature"), coords={"sample_id": ("sample", frame["sample_id"])}
    )
    mixed = frame.iloc[order].reset_index(drop=True)
    how = {**HOW, "test_sets": {"unseen": {"center": "CWZ"}}}
    expected = sweep_cohort(x[order], mixed, **how)
    found = sweep_cohort(named, mixed, **how)
    for name in ("in_domain", "unseen"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_rows_that_are_swept__are_no_test(arrays: Any, place: Path) -> None:
    """Whatever they are called: the same store again, or a row that two samples name."""
    import xarray as xr

    from croma_dask.probe.cohorts import sweep_cohort

    x, frame = arrays
    with pytest.raises(SchemaError, match="same embedding as the cohort's"):
        sweep_cohort(place, **HOW, test_sets={"again": place})
    named = xr.DataArray(
        x, dims=("sample", "feature"), coords={"sample_id": ("sample", frame["sample_id"])}
    )
    twice = pd.concat([frame, frame.iloc[[7]]], ignore_index=True)
    with pytest.raises(SchemaError, match="row 300 of the manifest repeat"):
        sweep_cohort(named, twice, **HOW)


def test_arrangement__gets_the_rows_of_the_manifest(arrays: Any) -> None:
    """Rows that are left out, before those of the sweep, move nothing."""
    from croma_dask.probe.cohorts import sweep_cohort

    x, frame = arrays
    other = frame["center"] == "CWZ"
    order = np.concatenate([np.flatnonzero(other), np.flatnonzero(~other)])
    mixed = frame.iloc[order].reset_index(drop=True)
    seen: list[set[int]] = []

    def arrange(cells: Any, rng: Any) -> Any:
        seen.append({row for level in cells for cell in level for slide in cell for row in slide})
        for level in cells:
            for cell in level:
                rng.shuffle(cell)
        return cells

    found = sweep_cohort(x[order], mixed, **HOW, arrange_slides=arrange)
    assert seen[0] == set(range(60, 300))
    plain = sweep_cohort(x[order], mixed, **HOW)
    np.testing.assert_array_equal(found["in_domain"], plain["in_domain"])
    with pytest.raises(SchemaError):
        sweep_cohort(x[order], mixed, **HOW, arrange_slides=lambda cells, rng: [[[[0]]]])


def test_named_schedule__of_other_names_wants_their_order(arrays: Any) -> None:
    """Sorted, they would confound other cells than the schedule was written for."""
    from croma_dask.probe.cohorts import sweep_cohort

    x, frame = arrays
    renamed = frame.replace({"center": {"RUMC": "Radboud"}})
    with pytest.raises(SchemaError, match=r"not the schedule's 'RUMC', 'UMCU'.*confounder_order="):
        sweep_cohort(x, renamed, **HOW)
    given = sweep_cohort(x, renamed, **HOW, confounder_order=["Radboud", "UMCU"])
    np.testing.assert_array_equal(given["in_domain"], sweep_cohort(x, frame, **HOW)["in_domain"])
    with pytest.raises(SchemaError, match="2 confounder levels and 2 labels, the cohort has 3"):
        sweep_cohort(x, frame, **HOW, confounder_order=["RUMC", "UMCU", "CWZ"])


def test_classes__are_those_that_are_trained() -> None:
    """Indices need not start at 0, and cells may be read from an iterator."""
    x, center, label = rows_of([[40, 40], [40, 40]], n_features=3)
    schedule = [(((i, j + 1, take) for i in (0, 1) for j in (0, 1)), 12) for take in (12, 11)]
    found = probe_sweep_over_test_sets(
        x, center, label + 1, schedule=schedule, validation_fraction=0.2, iterations=2
    )
    assert found["in_domain"].attrs["n_classes"] == 2
    assert found["training_table"].shape == (2, 2, 3)
    x, center, label = rows_of([[40, 13], [40, 13]], n_features=3)
    schedule = [([(i, j, take) for i in (0, 1) for j in (0, 1)], 10) for take in (10, 9)]
    with pytest.warns(cd.SupportWarning, match="classes 1 are trained and have no held-out row"):
        probe_sweep_over_test_sets(
            x, center, label, schedule=schedule, validation_fraction=0.2, iterations=1
        )


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
    ({"confounder_order": {"RUMC", "UMCU"}}, "list of names"),
    ({"test_sets": [1]}, "maps names"),
    ({"test_sets": {"u": {"center": 3}}}, "has no '3'"),
    ({"seed": "x"}, "seed"),
    ({"rows_per_slide": 10**400}, "rows_per_slide"),
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
