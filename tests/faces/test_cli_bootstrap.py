"""`croma-dask bootstrap`: draws of results, and half samples of their cohorts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.results import save
from croma_dask.uncertainty.table import bootstrap_text


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two stores of the same 96 rows in 24 groups, and their results."""
    folder = tmp_path_factory.mktemp("bootstrap")
    rng = np.random.default_rng(6)
    at = np.arange(96)
    frame = pd.DataFrame(
        {"tile": at.astype(str), "label": np.array(["a", "b"])[at % 2],
         "center": np.array(["x", "y"])[at // 2 % 2], "group_id": (at // 4).astype(str)}
    )  # fmt: skip
    found: dict[str, Any] = {}
    for name, width in (("uni", 4), ("virchow", 6)):
        x = rng.normal(size=(96, width))
        found[name] = cd.write_cohort(folder / f"{name}.zarr", x, frame, sample_id="tile")
        tree = cd.score(
            found[name], confounder="center", metrics="CRoMa", m=1, sample_id="tile", quiet=True
        )
        save(tree, folder / f"{name}-result.zarr")
        found[f"{name} result"] = folder / f"{name}-result.zarr"
    return found


def test_bootstrap__half_samples_of_one_result(
    places: dict[str, Any], run: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "sure.zarr"
    done = run(
        "bootstrap", places["uni result"], "--half-samples", places["uni"], "--pairs", 2,
        "--seed", 3, "--level", 0.9, "--sample-id", "tile", "--out", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    with cd.open_result(places["uni result"]) as result:
        expected = cd.half_samples(
            result, places["uni"], n_pairs=2, seed=3, level=0.9, sample_id="tile"
        )
    assert done.stdout.startswith(bootstrap_text(expected))
    assert done.stdout.startswith("4 halves of 24 groups")
    with cd.open_result(out) as found:
        xr.testing.assert_equal(found["CRoMa"].to_dataset(), expected["CRoMa"].to_dataset())


def test_bootstrap__half_samples_of_models_in_their_order(
    places: dict[str, Any], run: Callable[..., Any], tmp_path: Path
) -> None:
    results = (places["uni result"], places["virchow result"])
    cohorts = ("--half-samples", places["uni"], "--half-samples", places["virchow"])
    out, names = tmp_path / "sure.nc", ("--name", "U", "--name", "V")
    arguments = ("bootstrap", *results, *names, "--pairs", 2, "--sample-id", "tile", "-q")
    done = run(*arguments, *cohorts, "--out", out)
    assert (done.exit_code, done.output) == (0, "")
    alone = {}
    for name, place in (("U", "uni"), ("V", "virchow")):
        with cd.open_result(places[f"{place} result"]) as result:
            alone[name] = cd.half_samples(result, places[place], n_pairs=2, sample_id="tile")
    with cd.open_result(out) as found:
        croma = found["CRoMa"].to_dataset()
        assert croma.model.values.tolist() == ["U", "V"]
        for name, tree in alone.items():
            error = float(tree["CRoMa"].value_std_error)
            assert float(croma.value_std_error.sel(model=name)) == pytest.approx(error, rel=1e-12)
    few = run(*arguments, *cohorts[:2])
    assert few.exit_code == 2
    assert "--half-samples is given 1 times for 2 models (U, V)" in few.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pairs", 3), "--pairs is an option of --half-samples COHORT"),
        (("--index", "ivf"), "--index is an option of --half-samples"),
        (("--sample-id", "tile"), "--sample-id is an option of --half-samples"),
        (("--half-samples", "{uni}", "--draws", 10), "half samples have --pairs"),
        (("--half-samples", "nowhere.zarr"), "nowhere.zarr"),
    ],
)
def test_bootstrap__refuses_what_would_be_ignored(
    options: tuple[Any, ...], message: str, places: dict[str, Any], run: Callable[..., Any]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = run("bootstrap", places["uni result"], *(str(o).format(**places) for o in options))
    assert done.exit_code == 2
    assert message in done.output
