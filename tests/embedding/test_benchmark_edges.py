"""Cohorts at the edge of what the metrics mean: a stated value or a reason, and never a crash."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.embedding.outcome import BATCH_METRICS, BIO_METRICS, METRIC_NAMES
from tests.helpers import plain_metrics as plain
from tests.helpers.benchmarks import cells, frame, notes, score, statuses, values
from tests.helpers.embeddings import AWKWARD

NAN = float("nan")
CLUSTERED = ("NMI", "HOM", "COM", "FMI", "ARI")


def assert_sound(found: xr.Dataset) -> None:
    """Each metric has a value in its range, or a reason; no LISI is below 1."""
    for name in METRIC_NAMES:
        value, status = values(found)[name], statuses(found)[name]
        assert np.isnan(value) == (status != "ok"), (name, value, status)
        if status != "ok":
            assert status.startswith("undefined: "), (name, status)
            assert notes(found)[name], name
    inside = found["value"].values >= found["lowest"].values
    inside &= found["value"].values <= found["highest"].values
    assert (inside | np.isnan(found["value"].values)).all(), values(found)
    for variable in ("clisi", "ilisi"):
        if variable in found:
            of_rows = found[variable].values
            assert (of_rows[~np.isnan(of_rows)] >= 1).all()


def assert_as_measured(found: xr.Dataset, x: Any, obs: pd.DataFrame, skip: Any = ()) -> None:
    """What is defined is what measuring all pairs of rows says."""
    x = np.asarray(x, np.float64)
    labels, batches = obs["cell_type"].to_numpy(str), obs["batch_id"].to_numpy(str)
    value = {k: v for k, v in values(found).items() if not np.isnan(v) and k not in skip}
    tolerance = {"rtol": 0, "atol": 1e-9}
    if "ASW" in value:
        of_rows = plain.silhouettes(x, labels)
        np.testing.assert_allclose(found["silhouette"].values, of_rows, rtol=0, atol=1e-7)
        np.testing.assert_allclose(value["ASW"], of_rows.mean(), **tolerance)
    for name, variable, column in (("cLISI", "clisi", labels), ("iLISI", "ilisi", batches)):
        if name in value:
            of_rows = plain.lisi(x, column)
            np.testing.assert_allclose(found[variable].values, of_rows, rtol=0, atol=1e-4)
            n = np.unique(column).size
            median = np.median(of_rows)
            wanted = (n - median if name == "cLISI" else median - 1) / (n - 1)
            np.testing.assert_allclose(value[name], wanted, rtol=0, atol=2e-5)
    if "CiLISI" in value:
        wanted = np.nanmean(plain.cilisi(x, labels, batches))
        np.testing.assert_allclose(value["CiLISI"], wanted, rtol=0, atol=2e-5)
    if "Acc@kNN" in value:
        np.testing.assert_allclose(value["Acc@kNN"], plain.accuracy(x, labels), **tolerance)
    if "GC" in value:
        np.testing.assert_allclose(value["GC"], plain.connectivity(x, labels), **tolerance)
    if "BRAS" in value:
        np.testing.assert_allclose(value["BRAS"], plain.bras(x, labels, batches)[0], **tolerance)


# ---- very few rows ---------------------------------------------------------------------------

FEW: dict[str, tuple[str, str, dict[str, float]]] = {
    "one": ("a", "u", {}),
    "two alike": ("aa", "uv", dict.fromkeys(CLUSTERED, 1.0) | {"GC": 0.5}),
    "two of one batch": ("aa", "uu", dict.fromkeys(CLUSTERED, 1.0) | {"GC": 0.5}),
    "two labels": ("ab", "uv", dict.fromkeys(CLUSTERED, 1.0) | {"FMI": 0.0, "GC": 1.0}),
    "three labels": (
        "abc", "uvu",
        dict.fromkeys(CLUSTERED, 1.0) | {"FMI": 0.0, "GC": 1.0, "cLISI": 1.0, "iLISI": 0.0},
    ),
}  # fmt: skip
"""Labels and batches of the rows, and the metrics that have a value."""


@pytest.mark.parametrize("name", FEW)
def test_benchmark__very_few_rows(name: str) -> None:
    labels, batches, expected = FEW[name]
    n = len(labels)
    obs = frame(list(labels), list(batches))
    found = score(cells(1, 3).x[:n], obs)
    assert values(found) == pytest.approx(dict.fromkeys(METRIC_NAMES, NAN) | expected, nan_ok=True)
    assert_sound(found)
    assert (found["n_cells"].values == n).all()
    too_few = {1: ("NMI", "cLISI", "Acc@kNN", "GC", "kBET", "CiLISI"), 2: ("cLISI",), 3: ()}
    for metric in too_few[n]:
        assert "insufficient_cells" in notes(found)[metric].split(";")
    assert notes(found)["ASW"].startswith("insufficient_labels_or_cells;")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_benchmark__very_few_rows_in_k_means(n: int) -> None:
    found = score(cells(1, 3).x[:n], frame(["a"] * n, ["u", "v", "u"][:n]), clustering="kmeans")
    wanted = dict.fromkeys(CLUSTERED, 1.0) | ({"FMI": 0.0} if n == 1 else {})
    assert {name: values(found)[name] for name in CLUSTERED} == wanted
    assert_sound(found)


@pytest.mark.parametrize("n", [4, 10, 14, 15, 16, 49, 50, 51, 52, 89, 90, 91, 92, 93])
def test_benchmark__lists_that_hold_all_rows_or_just_not(n: int) -> None:
    made = cells(6, n)
    found = score(made)
    assert_sound(found)
    assert_as_measured(found, made.x, made.obs)
    lists = f"n_neighbors={min(90, n - 1)};self_included=true"
    assert lists in notes(found)["cLISI"]
    assert f"k={min(15, n - 1)};self_included=true" in notes(found)["GC"]


# ---- rows that are alike ---------------------------------------------------------------------


@pytest.mark.parametrize("name", AWKWARD)
def test_benchmark__awkward_embeddings(name: str) -> None:
    made = AWKWARD[name]()
    found = score(made)
    assert_sound(found)
    assert set(statuses(found).values()) == {"ok"}
    assert_as_measured(found, made.x, made.obs)


def test_benchmark__forty_identical_rows_see_one_another() -> None:
    made = AWKWARD["forty_identical"]()
    found = score(made)
    alike = (made.x == made.x[0]).all(axis=1)
    assert alike.sum() == 40
    # Their nearest rows are the same ones but for themselves: so is what is made of them.
    assert np.unique(found["cluster"].values[alike]).size == 1
    assert np.isfinite(found["silhouette"].values).all()
    assert np.isfinite(found["bras"].values).all()


@pytest.mark.parametrize("clustering", ["leiden", "kmeans"])
@pytest.mark.parametrize("n", [60, 200])
def test_benchmark__all_rows_identical(n: int, clustering: str) -> None:
    obs = cells(3, n).obs
    found = score(np.full((n, 4), 1.5), obs, clustering=clustering)
    assert_sound(found)
    one_cluster = {"NMI": 0.0, "HOM": 0.0, "COM": 1.0, "ARI": 0.0}
    assert {name: values(found)[name] for name in one_cluster} == one_cluster
    assert values(found)["ASW"] == 0.0
    assert values(found)["BRAS"] == 1.0
    assert (found["cluster"].values == 0).all()
    assert_as_measured(found, np.full((n, 4), 1.5), obs)


# ---- labels and batches ----------------------------------------------------------------------


def test_benchmark__one_batch() -> None:
    made = cells()
    found = score(made.x, frame(made.obs["cell_type"], ["all"] * 240))
    assert_sound(found)
    np.testing.assert_array_equal(found["value"].values[0, 0, :9], score(made)["value"][0, 0, :9])
    assert {statuses(found)[name] for name in BATCH_METRICS} == {"undefined: one batch"}
    for name in BATCH_METRICS:
        assert notes(found)[name].split(";")[0] == "insufficient_batches"
    assert found["n_batches"].sel(metric=list(BATCH_METRICS)).values.tolist() == [[[1] * 4]]
    assert not {"kbet", "bras", "ilisi", "cilisi"} & set(found.data_vars)


def test_benchmark__one_label() -> None:
    made = cells()
    found = score(made.x, frame(["all"] * 240, made.obs["batch_id"]))
    assert_sound(found)
    undefined = {name for name, status in statuses(found).items() if status != "ok"}
    assert undefined == {"ASW", "cLISI", "Acc@kNN"}
    assert values(found)["HOM"] == 1.0
    assert values(found)["NMI"] == 0.0, "several clusters, of which none is a label"
    assert "insufficient_labels" in notes(found)["cLISI"].split(";")
    assert "dropped_cells=0" in notes(found)["Acc@kNN"].split(";")
    assert values(found)["CiLISI"] == pytest.approx(
        np.mean(found["ilisi"].values - 1), abs=1e-12
    ), "all rows are of one label"


def test_benchmark__one_label_and_one_batch() -> None:
    found = score(cells().x, frame(["all"] * 240, ["all"] * 240))
    assert_sound(found)
    assert {name for name, s in statuses(found).items() if s == "ok"} == {*CLUSTERED, "GC"}


@pytest.mark.parametrize("clustering", ["leiden", "kmeans"])
def test_benchmark__every_row_has_a_label_of_its_own(clustering: str) -> None:
    made = cells(5, 100)
    obs = frame([f"l{i}" for i in range(100)], made.obs["batch_id"])
    found = score(made.x, obs, clustering=clustering)
    assert_sound(found)
    undefined = {name for name, status in statuses(found).items() if status != "ok"}
    assert undefined == {"ASW", "Acc@kNN", "kBET", "BRAS", "CiLISI"}
    assert values(found)["GC"] == 1.0
    assert values(found)["FMI"] == 0.0
    assert "dropped_cells=100" in notes(found)["Acc@kNN"].split(";")
    if clustering == "kmeans":
        assert values(found)["ARI"] == 1.0
    else:
        assert "scan_n=36" in notes(found)["ARI"], "all resolutions are too few"


def test_benchmark__every_row_has_a_batch_of_its_own() -> None:
    made = cells(5, 100)
    found = score(made.x, frame(made.obs["cell_type"], [f"b{i}" for i in range(100)]))
    assert_sound(found)
    undefined = {name for name, status in statuses(found).items() if status != "ok"}
    assert undefined == {"BRAS"}
    assert "insufficient_labels" in notes(found)["BRAS"].split(";")


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, "", "  ", pd.NaT], ids=repr)
def test_benchmark__labels_that_are_missing(missing: Any) -> None:
    made = cells(7, 120)
    label = made.obs["cell_type"].to_numpy(object).copy()
    label[[3, 50, 51]] = missing
    there = np.setdiff1d(np.arange(120), [3, 50, 51])
    few = ["NMI", "ASW", "BRAS"]
    with pytest.warns(cd.InputWarning, match=r"rows 3, 50, 51 \(3 of 120\)"):
        found = score(made.x, frame(label, made.obs["batch_id"]), metrics=few)
    alone = score(made.x[there], made.obs.iloc[there], metrics=few)
    np.testing.assert_array_equal(found["value"].values, alone["value"].values)
    assert found["label"].values[[3, 50, 51]].tolist() == [""] * 3
    assert set(found["label"].values[there]) == {"k", "L", "m"}
    assert (found["n_cells"].values == 117).all()


def test_benchmark__no_label_at_all() -> None:
    made = cells(7, 30)
    with (
        pytest.warns(cd.InputWarning),
        pytest.raises(cd.SchemaError, match="'cell_type' is missing or blank in all 30 rows"),
    ):
        score(made.x, frame([None] * 30, made.obs["batch_id"]))


@pytest.mark.parametrize("clustering", ["leiden", "kmeans"])
@pytest.mark.parametrize("reading", ["batch_metrics", "all_metrics"])
def test_benchmark__no_batch_at_all(clustering: str, reading: str) -> None:
    made = cells(7, 60)
    with pytest.warns(cd.InputWarning, match="60 of 60"):
        found = score(
            made.x, frame(made.obs["cell_type"], [None] * 60), clustering=clustering,
            missing_batches=reading,
        )  # fmt: skip
    assert_sound(found)
    for name in BATCH_METRICS:
        assert statuses(found)[name] == "undefined: fewer than two cells"
        assert notes(found)[name].split(";")[0] == "insufficient_cells"
    if reading == "batch_metrics":
        bio = score(made, clustering=clustering, metrics="bio")
        np.testing.assert_array_equal(found["value"].values[0, 0, :9], bio["value"].values[0, 0])
    else:
        assert {statuses(found)[name] for name in BIO_METRICS} == {
            "undefined: no row has a label and a batch"
        }
        assert (found["n_cells"].values == 0).all()


def test_benchmark__categories_that_do_not_occur() -> None:
    made = cells(7, 120)
    obs = made.obs.assign(
        cell_type=pd.Categorical(made.obs["cell_type"], ["zzz", "k", "L", "m", "aaa"]),
        batch_id=pd.Categorical(made.obs["batch_id"], ["V", "u", "q"], ordered=True),
    )
    found, usual = score(made.x, obs), score(made)
    np.testing.assert_array_equal(found["value"].values, usual["value"].values)
    np.testing.assert_array_equal(found["note"].values, usual["note"].values)


def test_benchmark__names_that_are_numbers() -> None:
    """Numbers are names like any other: 10 comes before 9, and 1.0 is 1."""
    made = cells(7, 120)
    label = made.obs["cell_type"].map({"k": 10, "L": 9, "m": 2})
    batch = made.obs["batch_id"].map({"u": 1.0, "V": 2.5})
    found = score(made.x, frame(label, batch))
    text = score(made.x, frame(label.astype(str), batch.map({1.0: "1", 2.5: "2.5"})))
    np.testing.assert_array_equal(found["value"].values, text["value"].values)
    assert set(found["label"].values) == {"10", "9", "2"}
    assert set(found["batch"].values) == {"1", "2.5"}
    of_floats = score(made.x, frame(label.astype(float), batch))
    np.testing.assert_array_equal(found["value"].values, of_floats["value"].values)


# ---- the rows themselves ---------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_benchmark__rows_that_are_no_numbers(bad: float) -> None:
    made = cells(7, 120)
    x = made.x.copy()
    x[11, 3], x[100] = bad, bad
    found = score(x, made.obs)
    assert np.isnan(found["value"].values).all()
    assert set(statuses(found).values()) == {"undefined: 2 rows of the embedding have NaN or inf"}
    for name in METRIC_NAMES:
        assert notes(found)[name].split(";")[0] == "nonfinite_rows=2"
    assert (found["n_cells"].values == 120).all()


def test_benchmark__rows_that_are_no_numbers_and_left_out() -> None:
    """Left out by their label they count nowhere; by their batch, for the metrics of labels."""
    made = cells(7, 120)
    x = made.x.copy()
    x[11, 3], x[100] = np.nan, np.inf
    there = np.setdiff1d(np.arange(120), [11, 100])
    alone = score(made.x[there], made.obs.iloc[there])
    for column, lost in (("cell_type", ()), ("batch_id", BIO_METRICS)):
        obs = made.obs.copy()
        obs.loc[[11, 100], column] = None
        with pytest.warns(cd.InputWarning):
            found = score(x, obs)
        for name in METRIC_NAMES:
            if name in lost:
                assert notes(found)[name] == "nonfinite_rows=2"
            else:
                assert values(found)[name] == values(alone)[name], name


@pytest.mark.parametrize("rows", [[7], range(120)], ids=["one", "all"])
def test_benchmark__rows_of_zeros(rows: Any, caplog: pytest.LogCaptureFixture) -> None:
    """They have no direction, and BRAS says so; all other metrics are of distances."""
    made = cells(7, 120)
    x = made.x.copy()
    x[rows] = 0.0
    with caplog.at_level(logging.WARNING, "croma_dask"):
        found = score(x, made.obs)
    assert np.isnan(values(found)["BRAS"])
    assert statuses(found)["BRAS"].startswith("failed: SchemaError: the embedding has no direction")
    assert notes(found)["BRAS"].startswith("metric_failed=SchemaError:the embedding has no direct")
    assert notes(found)["BRAS"].endswith(";bras_definition=cosine_mean_other")
    said = [record for record in caplog.records if "BRAS of" in record.getMessage()]
    assert len(said) == 1
    assert said[0].exc_info is None
    rest = {name for name, status in statuses(found).items() if status == "ok"}
    assert rest == set(METRIC_NAMES) - {"BRAS"}
    assert_as_measured(found, x, made.obs)


def test_benchmark__rows_of_zeros_without_a_batch() -> None:
    made = cells(7, 120)
    x, obs = made.x.copy(), made.obs.copy()
    x[7] = 0.0
    obs.loc[7, "batch_id"] = None
    with pytest.warns(cd.InputWarning):
        found = score(x, obs)
    assert set(statuses(found).values()) == {"ok"}


@pytest.mark.parametrize("n_features", [1, 2])
def test_benchmark__few_features(n_features: int) -> None:
    made = cells(7, 120, n_features=n_features)
    found = score(made)
    assert_sound(found)
    assert_as_measured(found, made.x, made.obs, skip=("BRAS",))


def test_benchmark__without_features() -> None:
    with pytest.raises(cd.SchemaError, match="rows without features"):
        score(np.zeros((30, 0)), cells(1, 30).obs)


@pytest.mark.parametrize("scale", [1e-20, 1e20, 1e100], ids=str)
def test_benchmark__rows_of_any_length(scale: float) -> None:
    """Nothing overflows, and nothing vanishes."""
    made = cells(7, 120)
    usual, found = score(made), score(made.x * scale, made.obs)
    skip = ("BRAS",) if scale < 1e-12 else ()
    for name in set(METRIC_NAMES) - set(skip):
        assert values(found)[name] == pytest.approx(values(usual)[name], abs=1e-5), name


def test_benchmark__rows_far_from_the_origin() -> None:
    """A constant that is added moves no distance (and every direction)."""
    made = cells(7, 120)
    usual, found = score(made), score(made.x + 1e5, made.obs)
    for name in set(METRIC_NAMES) - {"BRAS"}:
        assert values(found)[name] == pytest.approx(values(usual)[name], abs=1e-6), name


def test_benchmark__rows_too_long_to_measure() -> None:
    made = cells(7, 30)
    with pytest.raises(cd.SchemaError, match="longer than 1e150"):
        score(made.x * 1e160, made.obs)


def test_benchmark__rows_and_manifest_of_other_lengths() -> None:
    made = cells(7, 40)
    with pytest.raises(cd.SchemaError, match="30 rows and the manifest 40"):
        score(made.x[:30], made.obs)
