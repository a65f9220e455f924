"""The result of a benchmark: every name declared and documented, saved, and read back equal."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import schema_benchmark as declared
from croma_dask.embedding.label import Evaluated, label_scores
from croma_dask.embedding.outcome import METRIC_NAMES, Counts, Outcome, Scores
from croma_dask.embedding.rank_families import FAMILIES
from croma_dask.results import save, summary, to_frame
from tests.helpers.benchmarks import about, cells, frame, score
from tests.helpers.compare import assert_same_bits
from tests.helpers.embeddings import Embedding

pytestmark = pytest.mark.filterwarnings("ignore:.*units")

DECLARED = declared.BENCHMARK | declared.BENCHMARK_SAMPLES | declared.BENCHMARK_COORDINATES


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    """Two datasets by two methods, one of which is not there; names as they come in the wild."""
    made = cells(1, 120)
    label = (
        made.obs["cell_type"].map({"k": "Überklasse", "L": "肿瘤", "m": "a/b;c"}).to_numpy(object)
    )
    label[3] = None
    named = Embedding(made.x, frame(label, made.obs["batch_id"]))
    other = cells(2, 60)
    one_batch = Embedding(other.x, frame(other.obs["cell_type"], ["only"] * 60))
    given = {
        ("lung é", "MahmoodLab/UNI2-h"): (named.x, named.obs),
        ("lung é", "pca"): (one_batch.x, one_batch.obs),
        ("liver", "pca"): (other.x, other.obs),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.InputWarning)
        return score(given)


def plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(type(v) in (str, int, float) for v in value)
    return type(value) in (str, int, float)


def test_result__is_declared_name_by_name(result: xr.Dataset) -> None:
    assert set(result.variables) == set(DECLARED)
    assert set(result.data_vars) == {*declared.BENCHMARK, *declared.BENCHMARK_SAMPLES}
    for name, declaration in DECLARED.items():
        array = result[name]
        assert array.dims == declaration.dims, name
        assert array.dtype.kind == declaration.kind, name
        wanted = declaration.attrs()
        if declaration.kind == "O":
            assert all(type(value) is str for value in array.values.flat), name
        assert array.attrs == wanted, name
        assert array.attrs["long_name"]
        finite = (
            array.values[np.isfinite(array.values)] if declaration.kind == "f" else array.values
        )
        if declaration.valid_min is not None and name != "cluster":
            assert (finite >= declaration.valid_min).all(), name
        if declaration.valid_max is not None:
            assert (finite <= declaration.valid_max).all(), name
    assert list(result.sizes) == ["dataset", "method", "metric", "sample"] or set(result.sizes) == {
        "dataset",
        "method",
        "metric",
        "sample",
    }


def test_result__attributes_are_plain(result: xr.Dataset) -> None:
    for attrs in (result.attrs, *(v.attrs for v in result.variables.values())):
        assert all(plain(value) for value in attrs.values()), attrs
    assert result.attrs["metric"] == "embedding_benchmark"
    assert result.attrs["label_column"] == "cell_type"
    assert result.attrs["batch_column"] == "batch_id"
    readings = json.loads(result.attrs["readings"])
    assert readings["kbet_components"] == "carried"
    assert readings["lisi_compat"] == "none"


def test_result__names_are_no_attributes_of_a_dataset() -> None:
    """`found.value` has to be the variable: the one name that is not is read by item."""
    taken = {name for name in DECLARED if hasattr(xr.Dataset, name) or hasattr(xr.DataArray, name)}
    assert taken <= {"dataset"}


def test_result__metrics_say_what_they_are(result: xr.Dataset) -> None:
    assert tuple(result["metric"].values) == METRIC_NAMES
    family = {metric: name for name, members in FAMILIES.items() for metric in members}
    assert result["family"].values.tolist() == [family.get(m, "") for m in METRIC_NAMES]
    assert result["family"].sel(metric="iLISI").item() == "", "it is in no family"
    assert all(result["long_name"].values)
    assert (result["lowest"].values < result["highest"].values).all()


def test_result__rows_are_those_of_the_embeddings_one_behind_the_other(result: xr.Dataset) -> None:
    assert result.sizes["sample"] == 240
    assert result["sample_dataset"].values.tolist() == ["lung é"] * 180 + ["liver"] * 60
    assert result["sample_method"].values.tolist() == ["MahmoodLab/UNI2-h"] * 120 + ["pca"] * 120
    assert result["sample_id"].values[[0, 119, 120]].tolist() == ["cell-0000", "cell-0119",
                                                                   "cell-0000"]  # fmt: skip
    assert result["label"].values[3] == ""
    assert result["cluster"].values[3] == -1
    assert np.isnan(result["clisi"].values[3])
    # Of the second one no batch is compared with another.
    assert np.isnan(result["ilisi"].values[120:180]).all()
    assert np.isfinite(result["ilisi"].values[180:]).all()
    by_label = result["clisi"].groupby("label").median()
    assert set(by_label["label"].values) >= {"Überklasse", "肿瘤", "a/b;c", "k"}


def test_result__counts(result: xr.Dataset) -> None:
    at = result.sel({"dataset": "lung é", "method": "MahmoodLab/UNI2-h"})
    assert at["n_cells"].values.tolist() == [119] * 13
    assert at["n_labels"].values.tolist() == [3] * 13
    assert at["n_batches"].values.tolist() == [0] * 9 + [2] * 4
    assert at["n_dims"].item() == 8
    said = json.loads(at["about"].item())
    assert said["lisi_def_version"]
    assert said["lisi_perplexity"] == 30.0
    assert said["lisi_n_neighbors"] == 90
    assert said["lisi_self_included"] is True
    assert said["index"] == "exact"
    assert len(said["embedding_fingerprint"]) > 20


def read(path: Path) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if path.suffix == ".zarr":
            found = xr.open_zarr(path).load()
        else:
            found = xr.open_dataset(path, engine="h5netcdf").load()
    assert found.attrs.pop("format_version") == 1
    return found


@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
def test_save__reads_back_equal(result: xr.Dataset, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"result{suffix}"
    save(result, path)
    found = read(path)
    xr.testing.assert_identical(found, result)
    assert set(found.coords) == set(result.coords)
    pd.testing.assert_frame_equal(to_frame(found), to_frame(result))
    assert summary(found) == summary(result)
    # What was read may be saved again, over itself.
    save(found, path, overwrite=True)
    xr.testing.assert_identical(read(path), result)
    with pytest.raises(cd.SchemaError, match="exists already"):
        save(found, path)


def test_save__longer_names_are_not_cut(result: xr.Dataset, tmp_path: Path) -> None:
    """What a file says of the length of its texts is not for those that come after."""
    for suffix in (".nc", ".zarr"):
        save(result, tmp_path / f"short{suffix}")
        longer = read(tmp_path / f"short{suffix}")
        names = np.array(["MahmoodLab/UNI2-h-and-more-of-it", "pca"], object)
        longer = longer.assign_coords(method=names)
        save(longer, tmp_path / f"long{suffix}")
        assert read(tmp_path / f"long{suffix}")["method"].values[0].endswith("more-of-it")


def test_save__tables(result: xr.Dataset, tmp_path: Path) -> None:
    frame = to_frame(result)
    assert list(frame.columns) == [
        "dataset", "method", "metric", "value", "status", "note", "n_cells", "n_labels",
        "n_batches", "n_dims",
    ]  # fmt: skip
    assert len(frame) == 2 * 2 * 13
    save(result, tmp_path / "table.csv")
    found = pd.read_csv(
        tmp_path / "table.csv", keep_default_na=False, na_values={"value": [""]},
        float_precision="round_trip",
    )  # fmt: skip
    pd.testing.assert_frame_equal(found, frame, check_exact=True)
    save(result, tmp_path / "table.json")
    content = json.loads((tmp_path / "table.json").read_text())
    assert content["attrs"] == result.attrs
    of_json = pd.DataFrame(content["values"]).astype({"value": float})
    pd.testing.assert_frame_equal(of_json, frame, check_exact=True)
    pd.testing.assert_frame_equal(result.croma.to_frame(), frame)


def test_summary__has_a_line_for_each_metric(result: xr.Dataset) -> None:
    lines = summary(result).splitlines()
    assert len(lines) == 4 * 14
    assert lines[0] == "lung é by MahmoodLab/UNI2-h"
    value = result["value"].sel({"dataset": "lung é", "method": "pca", "metric": "GC"}).item()
    at = lines.index("lung é by pca")
    assert f"GC         {value:.4f}" in lines[at + 9]
    assert lines[at + 10].split(maxsplit=2) == ["kBET", "-", "undefined: one batch"]
    assert lines[lines.index("liver by MahmoodLab/UNI2-h") + 1].endswith("not computed")


def test_result__survives_xarray(result: xr.Dataset) -> None:
    best = result["value"].sel(metric="GC").idxmax("method")
    assert best.dims == ("dataset",)
    assert result.to_dataframe().shape[0] == 2 * 2 * 13 * 240
    both = xr.concat([result.drop_dims("sample"), result.drop_dims("sample")], "run")
    assert both.sizes["run"] == 2


def evaluated(method: str, n: int, **more: Any) -> Evaluated:
    texts = np.array([f"{method}-{i}" for i in range(n)], object)
    scores = Scores("d", method, {"GC": Outcome(0.5)}, Counts(n, 2, 1), **more)
    return Evaluated(scores, n, *[lambda lo, hi: texts[lo:hi]] * 2, None)


def test_label_scores__ids_of_very_many_rows_stay_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [evaluated("a", 3), evaluated("b", 4)]
    assert label_scores(found, {})["sample_id"].values[3] == "b-0"
    monkeypatch.setattr("croma_dask.memory.TEXT_IN_MEMORY", 6)
    small = label_scores(found, {})
    assert "sample_id" not in small.coords
    assert small["label"].values[6] == "b-3"


def test_label_scores__metrics_that_one_of_them_lacks() -> None:
    one = evaluated("a", 2, sample_values={"bras": np.array([1.0, 0.5])})
    one.scores.outcomes["BRAS"] = Outcome(0.75)
    found = label_scores([one, evaluated("b", 3)], {})
    assert found["metric"].values.tolist() == ["GC", "BRAS"]
    lacks = found.sel({"method": "b", "metric": "BRAS"})
    assert lacks["status"].item() == "not asked for"
    assert np.isnan(lacks["value"].item())
    np.testing.assert_array_equal(found["bras"].values, [1.0, 0.5, np.nan, np.nan, np.nan])


def test_about__says_what_the_numbers_are_of() -> None:
    made = cells(3, 60)
    one, same, other = (score(x, made.obs, metrics=["BRAS"])
                        for x in (made.x, made.x.copy(), made.x + 1))  # fmt: skip
    fingerprints = [about(found)["embedding_fingerprint"] for found in (one, same, other)]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    assert_same_bits(one, same)
