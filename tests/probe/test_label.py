"""The labelled result of a sweep: what it declares, what it keeps, what can be made of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from croma_dask import downstream, schema, set_options
from croma_dask.cohort.align import Embedding
from croma_dask.options import Options
from croma_dask.probe.fit import C_GRID
from croma_dask.probe.label import label_sweep
from croma_dask.probe.opened import Protocol, Rows
from croma_dask.probe.run import run_sweep
from tests.probe.glue import cohort

X, CONFOUNDERS, LABELS = cohort(np.full((2, 3), 13), seed=61, n_features=4)
SCHEDULE = downstream.linear_schedule(2, 3, 6, 3)
HOW = Protocol(SCHEDULE, iterations=4, seed=3, validation_fraction=0.5)

NAMES = {"other centre": 20, "肿瘤": 31, "all": len(X)}
"""Test sets and their rows."""

CENTERS, CLASSES = ["A/1", "Süd"], ["tumour", "Überklasse", "肿瘤"]


def options(folder: Path) -> dict[str, Any]:
    return {"scratch": str(folder), "threads": 1, "quiet": True}


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """What comes of arrays: levels and classes are numbers."""
    return downstream.probe_sweep_over_test_sets(
        X, CONFOUNDERS, LABELS, schedule=SCHEDULE, iterations=4, seed=3, validation_fraction=0.5,
        test_sets={name: (X[:n], LABELS[:n]) for name, n in NAMES.items()},
        **options(tmp_path_factory.mktemp("arrays")),
    )  # fmt: skip


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """What comes of names."""
    embedding = Embedding(X, None)
    found = run_sweep(
        Rows(embedding, None, LABELS, "rows"), CONFOUNDERS,
        {name: Rows(embedding, np.arange(n), LABELS[:n], name) for name, n in NAMES.items()},
        HOW, Options(**options(tmp_path_factory.mktemp("named"))),
    )  # fmt: skip
    return label_sweep(
        found, HOW, confounders=CENTERS, labels=CLASSES, attrs={"confounder": "center"}
    )


@pytest.fixture(params=["arrays", "named"])
def result(request: pytest.FixtureRequest) -> xr.Dataset:
    whole: xr.Dataset = request.getfixturevalue(request.param)
    return whole.copy(deep=True)


# ---- what is declared ------------------------------------------------------------------------


@pytest.mark.parametrize("name", schema.SWEEP)
def test_coordinate__is_as_declared(name: str, result: xr.Dataset) -> None:
    declared = schema.SWEEP[name]
    assert name in result.coords
    found = result[name]
    assert found.dims == declared.dims
    # Text stands for names; where there are none, their numbers.
    numbered = declared.kind == "O" and result.label.dtype.kind == "i"
    assert found.dtype.kind == ("i" if numbered else declared.kind)
    assert found.attrs["long_name"] == declared.long_name
    assert declared.long_name
    for end, holds in (("valid_min", np.greater_equal), ("valid_max", np.less_equal)):
        bound = getattr(declared, end)
        assert found.attrs.get(end) == bound
        if bound is not None:
            assert holds(found.values, bound).all()


def test_coordinates__are_the_declared_ones_and_no_others(result: xr.Dataset) -> None:
    assert set(result.coords) == set(schema.SWEEP)
    assert result.sizes == {"split": 3, "iteration": 4, "confounder": 2, "label": 3}


def test_variables__are_the_test_sets(result: xr.Dataset) -> None:
    assert list(result.data_vars) == ["in_domain", *NAMES]
    for name in result.data_vars:
        found = result[name]
        assert found.dims == schema.ACCURACY.dims
        assert found.dtype.kind == schema.ACCURACY.kind
        assert found.attrs["long_name"] == schema.ACCURACY.long_name
        assert found.attrs["test_set"] == name
        assert found.attrs["n_classes"] == 3
        assert ((found >= 0.0) & (found <= 1.0)).all()
    tested = {name: result[name].attrs["n_test_rows"] for name in NAMES}
    assert tested == NAMES


def test_variables__without_test_sets(tmp_path: Path) -> None:
    found = downstream.probe_sweep_over_test_sets(
        X, CONFOUNDERS, LABELS, schedule=SCHEDULE[::2], iterations=1, validation_fraction=0.5,
        **options(tmp_path),
    )  # fmt: skip
    assert list(found.data_vars) == ["in_domain"]
    assert found.sizes["iteration"] == 1


# ---- what the coordinates say ----------------------------------------------------------------


def test_coordinates__say_what_was_done(result: xr.Dataset) -> None:
    seeds = random.Random(3).sample(range(10_000), 4)
    assert result.replicate_seed.values.tolist() == seeds
    assert result.split.values.tolist() == [0, 1, 2]
    assert result.iteration.values.tolist() == [0, 1, 2, 3]
    v = downstream.schedule_cramers_v(SCHEDULE)
    np.testing.assert_array_equal(result.cramers_v.values, v)
    assert (v[0], v[-1]) == (0.0, 1.0)
    for split, (cells, _) in enumerate(SCHEDULE):
        table = np.zeros((2, 3), int)
        for i, j, take in cells:
            table[i, j] = take
        np.testing.assert_array_equal(result.training_table.isel(split=split).values, table)
        assert result.training_rows[split] == table.sum()
    held_out = result.in_domain.attrs["n_test_rows"]
    most = {most for _, most in SCHEDULE}.pop()
    assert held_out == len(X) - 6 * (most + round(0.5 * most) + 1)


def test_coordinates__say_what_was_fitted(result: xr.Dataset) -> None:
    assert np.isin(result.C.values, C_GRID).all()
    # Fits end early where nothing can do better any more, and there only.
    perfect = result.validation_score.values == 1.0
    np.testing.assert_array_equal((result.fits.values < len(C_GRID)) & ~perfect, False)
    stopped = np.searchsorted(C_GRID, result.C.values) + 1
    np.testing.assert_array_equal(result.fits.values[perfect], stopped[perfect])
    assert (result.lbfgs_iterations.values[result.converged.values] < 100).all()
    assert result.attrs["probes_not_converged"] == int((~result.converged).sum())


def test_names__stand_for_levels_and_classes(named: xr.Dataset, arrays: xr.Dataset) -> None:
    assert named.confounder.values.tolist() == CENTERS
    assert named.label.values.tolist() == CLASSES
    assert named.training_table.sel(confounder="Süd", label="肿瘤").values.tolist() == [
        cells[5][2] for cells, _ in SCHEDULE
    ]
    assert arrays.confounder.values.tolist() == [0, 1]
    assert arrays.label.values.tolist() == [0, 1, 2]
    for name in arrays.data_vars:
        np.testing.assert_array_equal(named[name].values, arrays[name].values)


def test_attrs__say_where_it_came_from(named: xr.Dataset, arrays: xr.Dataset) -> None:
    for result in (named, arrays):
        assert result.attrs["metric"] == "probe_sweep"
        assert result.attrs["seed"] == 3
        assert result.attrs["rows_per_slide"] == 1
        assert result.attrs["validation_fraction"] == 0.5
        assert result.attrs["arrangement"] == "shuffled"
        assert len(result.attrs["embedding_fingerprint"]) == 64
    assert named.attrs["confounder"] == "center"
    assert arrays.attrs["n_rows"] == len(X)


# ---- files -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["zarr", "netcdf"])
def test_result__comes_back_identical(kind: str, result: xr.Dataset, tmp_path: Path) -> None:
    before = result.copy(deep=True)
    if kind == "zarr":
        result.to_zarr(tmp_path / "r.zarr", consolidated=False)
        opened = xr.open_zarr(tmp_path / "r.zarr", consolidated=False)
    else:
        result.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
        opened = xr.open_dataset(tmp_path / "r.nc", engine="h5netcdf")
    with opened as found:
        found.load()
        xr.testing.assert_identical(found, before)
        assert found.attrs == before.attrs
        for name in before.variables:
            # Text may come back as numpy's own; it is the same text.
            if before[name].dtype != object:
                assert found[name].dtype == before[name].dtype, name
        # In which order a Zarr group lists them is the file system's affair.
        assert set(found.data_vars) == set(before.data_vars)
        assert downstream.apd(found) == downstream.apd(before)
        assert downstream.nipd(found) == downstream.nipd(before)
    xr.testing.assert_identical(result, before)


@pytest.mark.filterwarnings("error")
def test_test_set__by_itself_comes_back_identical(result: xr.Dataset, tmp_path: Path) -> None:
    result["肿瘤"].to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
    with xr.open_dataarray(tmp_path / "r.nc", engine="h5netcdf") as found:
        xr.testing.assert_identical(found.load(), result["肿瘤"])


# ---- reductions ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["in_domain", *NAMES])
def test_reductions__give_the_same_of_every_form(name: str, result: xr.Dataset) -> None:
    array = result[name]
    v, chance = result.cramers_v.values, 1 / 3
    drop = downstream.apd(array)
    area = downstream.nipd(array)
    assert -1.0 <= drop <= 0.5
    assert area == area
    for form in (array.T, array.values, array.values.tolist()):
        assert downstream.apd(form) == drop
    assert downstream.nipd(array.T) == area
    for form in (array, array.T, array.values, array.values.tolist()):
        # The given ones count where the result has its own.
        assert downstream.nipd(form, v, chance) == area
    assert downstream.nipd(array, v) == downstream.nipd(array, chance=chance) == area


def test_reductions__of_a_dataset_are_those_of_the_held_out_rows(result: xr.Dataset) -> None:
    assert downstream.apd(result) == downstream.apd(result["in_domain"])
    assert downstream.nipd(result) == downstream.nipd(result["in_domain"])
    assert downstream.apd(result) != downstream.apd(result["all"])


def test_reductions__equal_the_reference(arrays: xr.Dataset) -> None:
    reference = pytest.importorskip("croma.downstream")
    for name in arrays.data_vars:
        values = arrays[name].values
        assert downstream.apd(arrays[name]) == pytest.approx(
            reference.apd(values), rel=0, abs=1e-15
        )
        area = reference.nipd(values, arrays.cramers_v.values, 1 / 3)
        assert downstream.nipd(arrays[name]) == pytest.approx(area, rel=0, abs=1e-15)


def test_probe_sweep__is_the_variable_of_the_held_out_rows(
    arrays: xr.Dataset, tmp_path: Path
) -> None:
    with set_options(**options(tmp_path)):
        found = downstream.probe_sweep(
            X, CONFOUNDERS, LABELS, schedule=SCHEDULE, iterations=4, seed=3,
            validation_fraction=0.5,
        )  # fmt: skip
    xr.testing.assert_identical(found, arrays["in_domain"])
