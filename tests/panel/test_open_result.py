"""What was saved is opened as it was, lazily; what is no result is refused by its name."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import croma_dask as cd
from croma_dask.results import open_result, save, summary, to_frame
from tests.helpers.compare import assert_same_bits
from tests.panel.conftest import NAMES, N, make_arrays, make_frame

SUFFIXES = [".zarr", ".nc"]


def only(tree: xr.DataTree, metric: str) -> xr.DataTree:
    """The same result of one metric: writing and reading take a while for each variable."""
    found = xr.DataTree.from_dict({metric: tree[metric].to_dataset()})
    found.attrs = tree.attrs
    return found


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_open_result__gives_back_what_was_saved(
    suffix: str, panel: xr.DataTree, singles: dict[str, xr.DataTree], tmp_path: Path
) -> None:
    for at, result in enumerate((panel, singles[NAMES[0]]["MaRI"].to_dataset())):
        save(result, tmp_path / f"{at}{suffix}")
        with open_result(tmp_path / f"{at}{suffix}") as found:
            assert type(found) is type(result)
            assert found.identical(result)
            assert found.attrs == result.attrs
            nodes = getattr(found, "children", {"": found})
            for name, node in nodes.items():
                assert list(node.coords) == list((result[name] if name else result).coords)
            assert summary(found) == summary(result)
            assert to_frame(found).equals(to_frame(result))


@pytest.mark.parametrize("suffix", [".nc", pytest.param(".zarr", marks=pytest.mark.slow)])
def test_open_result__reads_samples_when_they_are_asked_for(
    suffix: str, panel: xr.DataTree, tmp_path: Path
) -> None:
    save(only(panel, "CRoMa"), tmp_path / f"r{suffix}")
    with open_result(str(tmp_path / f"r{suffix}")) as found:
        node = found["CRoMa"].to_dataset()
        for name, variable in node.variables.items():
            assert hasattr(variable.data, "dask") == ("sample" in variable.dims), name
            if panel["CRoMa"][name].dtype == object:
                assert variable.dtype == object, name
        assert node.label.values.tolist() == panel["CRoMa"].label.values.tolist()


def test_open_result__of_netcdf_reads_no_text_of_samples(
    panel: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """xarray would read each such column whole, only to learn that it holds texts."""
    place = tmp_path / "r.nc"
    save(only(panel, "CRoMa"), place)
    read: list[str] = []
    real = h5py.Dataset.__getitem__

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if h5py.check_string_dtype(self.dtype) and self.size >= N:
            read.append(self.name)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counting)
    with open_result(place) as found:
        assert read == []
        assert found["CRoMa"].label[:5].values.tolist() == panel["CRoMa"].label.values[:5].tolist()
        assert read == ["/CRoMa/label"], "and the counting counts"
        save(only(panel, "CRoMa"), place, overwrite=True)
        with pytest.raises(cd.StoreError, match="was written again while a result of it was open"):
            found["CRoMa"].group_id.compute()


@pytest.mark.parametrize("suffix", [".zarr", pytest.param(".nc", marks=pytest.mark.slow)])
def test_open_result__of_results_that_are_combined_and_saved_again(
    suffix: str, panel: xr.DataTree, singles: dict[str, xr.DataTree], tmp_path: Path
) -> None:
    opened = {}
    for at, (name, tree) in enumerate(singles.items()):
        save(only(tree, "CRoMa"), tmp_path / f"{at}{suffix}")
        opened[name] = open_result(tmp_path / f"{at}{suffix}")
    combined = cd.combine_results(opened)
    save(combined, tmp_path / f"panel{suffix}")
    with open_result(tmp_path / f"panel{suffix}") as found:
        assert_same_bits(found["CRoMa"].to_dataset().compute(), panel["CRoMa"].to_dataset())
        one = found.sel(model=NAMES[1])
        np.testing.assert_array_equal(
            one["CRoMa"].sample_values, singles[NAMES[1]]["CRoMa"].sample_values
        )
        save(found, tmp_path / f"panel{suffix}", overwrite=True)
    with open_result(tmp_path / f"panel{suffix}") as found:
        assert found.identical(combined)
    for tree in opened.values():
        tree.close()


def test_open_result__of_other_results(tmp_path: Path) -> None:
    """A sweep and a benchmark: anything that says which version made it, and is no store."""
    for metric in ("probe_sweep", "embedding_benchmark"):
        attrs = {"metric": metric, "croma_dask_version": "0.1.0"}
        result = xr.Dataset({"value": (("a",), [0.5])}, {"a": np.array(["x"], object)}, attrs)
        for suffix in SUFFIXES:
            save(result, tmp_path / f"{metric}{suffix}")
            with open_result(tmp_path / f"{metric}{suffix}") as found:
                assert found.equals(result)
                assert found.attrs == attrs


def test_open_result__refuses_what_is_none(
    stores: dict[str, str], singles: dict[str, xr.DataTree], tmp_path: Path
) -> None:
    single = only(singles[NAMES[0]], "CRoMa")

    def refusal(place: Any) -> str:
        with pytest.raises(cd.StoreError) as found:
            open_result(place)
        return str(found.value)

    assert "there is no result" in refusal(tmp_path / "no.zarr")
    assert "a cohort store: score it first" in refusal(stores[NAMES[0]])
    for suffix in (".csv", ".json"):
        save(single, tmp_path / f"r{suffix}")
        assert "numbers only" in refusal(tmp_path / f"r{suffix}")
    (tmp_path / "folder").mkdir()
    assert "a folder without a Zarr group" in refusal(tmp_path / "folder")
    zarr.open_group(tmp_path / "other.zarr", mode="w").create_array("x", data=np.ones(3))
    assert "is no result of croma-dask" in refusal(tmp_path / "other.zarr")
    zarr.create_array(tmp_path / "array.zarr", data=np.ones(3))
    assert "are of no group" in refusal(tmp_path / "array.zarr")
    (tmp_path / "text.nc").write_text("no netCDF")
    assert "no netCDF 4 file" in refusal(tmp_path / "text.nc")
    with h5py.File(tmp_path / "x.nc", "w") as file:
        file["y"] = np.ones(3)
    assert "is no result of croma-dask" in refusal(tmp_path / "x.nc")
    save(single, tmp_path / "cut.nc")
    whole = (tmp_path / "cut.nc").read_bytes()
    (tmp_path / "cut.nc").write_bytes(whole[: len(whole) // 2])
    assert "damaged" in refusal(tmp_path / "cut.nc")
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "no netCDF 4 file" in refusal(tmp_path / "pickled.npy")


def test_open_result__of_kept_neighbours_and_an_index_says_what_they_are(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cd.score(
            make_arrays()[NAMES[0]], make_frame(), confounder="center", metrics="CRoMa", m=1,
            keep_neighbors=tmp_path / "kept",
        )  # fmt: skip
    with pytest.raises(cd.StoreError, match="kept neighbours: croma_dask.open_neighbors"):
        open_result(tmp_path / "kept")
    group = zarr.open_group(tmp_path / "i.zarr", mode="w")
    group.attrs.update({"format": "croma-dask index", "croma_dask_version": "0.1.0"})
    with pytest.raises(cd.StoreError, match="an index"):
        open_result(tmp_path / "i.zarr")


def test_save__never_replaces_a_store(
    stores: dict[str, str], panel: xr.DataTree, tmp_path: Path
) -> None:
    group = zarr.open_group(tmp_path / "i.zarr", mode="w")
    about = {"croma_dask_version": "0.1.0", "embedding_fingerprint": "x"}
    group.attrs.update({"format": "croma-dask index", **about})
    for place in (stores[NAMES[0]], tmp_path / "i.zarr"):
        with pytest.raises(cd.SchemaError, match="is no result of croma-dask"):
            save(panel, place, overwrite=True)


def test_to_frame__of_a_panel_has_a_column_of_models(
    panel: xr.DataTree, singles: dict[str, xr.DataTree]
) -> None:
    frame = to_frame(panel)
    assert list(frame.columns) == ["metric", "variable", "model", "m", "subset", "k", "value"]
    for name in NAMES:
        mine = frame[frame.model == name].drop(columns="model").reset_index(drop=True)
        shared = ("n_pairs", "value_rank", "ltm_rank", "mean_rank", "pareto_front")
        alone = to_frame(singles[name])
        for part in (mine, alone):
            part["value"] = part["value"].astype(float)
        expected = alone[~alone.variable.isin(shared)].reset_index(drop=True)
        assert mine[~mine.variable.isin(shared)].reset_index(drop=True).equals(expected)
    ranks = frame[(frame.variable == "value_rank") & (frame.m == 3)].set_index("model")["value"]
    assert [ranks[name] for name in NAMES] == panel["CRoMa"].value_rank.sel(m=3).values.tolist()


def test_save__csv_and_json_of_a_panel_hold_its_numbers(panel: xr.DataTree, tmp_path: Path) -> None:
    import pandas as pd

    save(panel, tmp_path / "p.csv")
    found = pd.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
    at = (found.metric == "CRoMa") & (found.variable == "value") & (found.m == "3")
    assert found[at].model.tolist() == list(NAMES)
    values = [float(v) for v in found[at].value]
    assert values == panel["CRoMa"].value.sel(m=3).values.tolist()
    save(panel, tmp_path / "p.json")
    read = json.loads((tmp_path / "p.json").read_text())
    croma = read["metrics"]["CRoMa"]
    assert croma["model"] == list(NAMES)
    assert croma["value"] == panel["CRoMa"].value.values.tolist()
    assert croma["pareto_front"] == panel["CRoMa"].pareto_front.values.tolist()
    assert read["metrics"]["RI"]["k"] == panel["RI"].k.values.tolist()
    assert read["metrics"]["RI"]["dtype"] == ["float32", "float64", "float16"]


def test_summary__has_a_table_a_metric_and_the_ranking(panel: xr.DataTree) -> None:
    blocks = [block.splitlines() for block in summary(panel).split("\n\n")]
    assert [block[0] for block in blocks] == [
        "RI", "MaRI", "CRoMa, m = 1", "CRoMa, m = 3", "ranking by CRoMa, m = 1",
        "ranking by CRoMa, m = 3",
    ]  # fmt: skip
    for block in blocks:
        assert len({len(line) for line in block[2:]} - {len(block[1])}) <= 2
    assert blocks[0][1].split() == ["model", "value", "LTM", "support", "k"]
    assert blocks[2][1].split() == ["model", "value", "LTM", "F(0)", "support"]
    for at, name in enumerate(NAMES):
        line = blocks[3][2 + at]
        assert line.strip().startswith(name)
        croma = panel["CRoMa"].sel(model=name, m=3)
        expected = [croma.value, croma.ltm_alpha, croma.f0, croma.support]
        cells = line.replace(name, "", 1).split()
        assert [float(cell) for cell in cells] == pytest.approx(
            [float(v) for v in expected], abs=6e-5
        )
        assert int(blocks[1][2 + at].split()[-1]) == int(panel["MaRI"].k.sel(model=name))
    croma = panel["CRoMa"].sel(m=1)
    order = np.argsort(croma.mean_rank.values, kind="stable")
    for line, at in zip(blocks[4][2:], order, strict=True):
        one = croma.isel(model=at)
        assert line.strip().startswith(NAMES[at])
        cells = line.replace(NAMES[at], "", 1).split()
        assert [float(c) for c in cells[:3]] == [one.value_rank, one.ltm_rank, one.mean_rank]
        assert (cells[3:] == ["*"]) == bool(one.pareto_front)


def test_summary__has_no_rank_where_there_is_no_value(panel: xr.DataTree) -> None:
    from croma_dask.panel.ranking import with_ranking

    croma = panel["CRoMa"].to_dataset()
    croma["value"][:] = np.nan
    line = summary(with_ranking(croma)).splitlines()[-1]
    assert line.split()[-3::2] == ["-", "-"]
    assert "*" not in line


@pytest.mark.parametrize("what", ["is gone", "was replaced"])
def test_open_result__what_lies_there_later_is_not_what_was_opened(
    singles: dict[str, xr.DataTree], tmp_path: Path, what: str
) -> None:
    """Values that were not read yet became NaN, and those of another result."""
    place, single = tmp_path / "r.zarr", singles[NAMES[0]]
    save(single, place)
    with open_result(place) as opened:
        if what == "is gone":
            shutil.rmtree(place)
        else:
            save(single, place, overwrite=True)
        name = next(n for n, v in opened["RI"].variables.items() if hasattr(v.data, "dask"))
        with pytest.raises(cd.StoreError, match=f"{what} since it was opened"):
            opened["RI"][name].load()
        with pytest.raises(cd.StoreError, match=f"{what} since it was opened"):
            save(opened, tmp_path / "other.zarr")
        assert not (tmp_path / "other.zarr").exists()
