"""Results as tables and files: what is in them, and that they come back as they were."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import whole_folders
from croma_dask.errors import SchemaError
from croma_dask.results import FORMATS, check_target, save, summary, to_frame
from tests.faces.conftest import make_cohort

METRICS = ("RI", "MaRI", "CRoMa")


@pytest.fixture
def result(store: str, scored: Callable) -> xr.DataTree:
    return scored(store)


@pytest.fixture
def paired(paired_store: str, scored: Callable) -> xr.DataTree:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scored(paired_store, design="paired_2x2", m=2)


# ---- tables ----------------------------------------------------------------------------------


def cell(frame: pd.DataFrame, **where: Any) -> float:
    for column, value in where.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1
    return float(frame["value"].iloc[0])


def test_to_frame__has_every_number_once(result: xr.DataTree) -> None:
    frame = to_frame(result)
    assert list(frame.columns) == ["metric", "variable", "m", "subset", "k", "value"]
    assert not frame.duplicated(["metric", "variable", "m", "subset", "k"]).any()
    expected = sum(
        array.size
        for name in METRICS
        for array in result[name].to_dataset().data_vars.values()
        if "sample" not in array.dims
    )
    assert len(frame) == expected
    for name in METRICS:
        for variable, array in result[name].to_dataset().data_vars.items():
            mine = frame[(frame.metric == name) & (frame.variable == variable)]["value"]
            if "sample" not in array.dims:
                np.testing.assert_array_equal(
                    mine.astype(float), array.values.ravel().astype(float)
                )


def test_to_frame__says_what_a_number_belongs_to(result: xr.DataTree, paired: xr.DataTree) -> None:
    frame = result.croma.to_frame()
    k = int(result["RI"].k)
    assert cell(frame, metric="RI", variable="value", k=k) == float(result["RI"].value)
    for at in (15, 21):
        curve = float(result["RI"].curve.sel(k_candidate=at))
        assert cell(frame, metric="RI", variable="curve", k=at) == curve
    for m in (1, 3):
        value = float(result["CRoMa"].value.sel(m=m))
        assert cell(frame, metric="CRoMa", variable="value", m=m) == value
    assert frame[frame.metric == "CRoMa"]["k"].isna().all()
    assert frame[frame.metric != "CRoMa"]["m"].isna().all()
    by_subset = to_frame(paired)
    for subset in ("set/0", "set/1", "set/2"):
        value = float(paired["MaRI"].pair_values.sel(subset=subset))
        assert cell(by_subset, metric="MaRI", variable="pair_values", subset=subset) == value
    assert (by_subset[by_subset.metric == "CRoMa"]["m"] == 2).all()


def test_to_frame__of_one_metric_and_of_a_metric_by_itself(result: xr.DataTree, store: str) -> None:
    whole = to_frame(result)
    one = result["RI"].to_dataset().croma.to_frame()
    pd.testing.assert_frame_equal(one, whole[whole.metric == "RI"].reset_index(drop=True))
    alone = cd.RI.compute(cd.open_cohort(store), confounder_column="center", k_candidates=[15, 21])
    pd.testing.assert_frame_equal(to_frame(alone), one)


def test_to_frame__works_on_what_was_read_back(result: xr.DataTree, tmp_path: Path) -> None:
    save(result, tmp_path / "r.nc")
    with xr.open_datatree(tmp_path / "r.nc") as found:
        pd.testing.assert_frame_equal(
            found.croma.to_frame().astype({"subset": object}),
            to_frame(result).astype({"subset": object}),
        )


def test_summary__has_a_line_a_metric_and_radius(result: xr.DataTree, paired: xr.DataTree) -> None:
    lines = summary(result).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["RI", "MaRI", "CRoMa", "CRoMa"]
    assert lines[0].split() == ["value", "std", "support", "median", "q(alpha)", "LTM", "F(0)"]
    assert [line.split()[0] for line in summary(paired).splitlines()[1:]] == list(METRICS)
    assert summary(result["CRoMa"].to_dataset()).splitlines()[-1] == lines[-1]


def test_groupby_label__works_on_results_and_on_what_was_read_back(
    result: xr.DataTree, tmp_path: Path
) -> None:
    save(result, tmp_path / "r.zarr")
    frame = pd.DataFrame(
        {name: result["CRoMa"][name].values for name in ("label", "confounder")}
    ).assign(value=result["CRoMa"].sample_values.sel(m=3).values)
    back = xr.open_datatree(tmp_path / "r.zarr")
    for tree in (result, back):
        values = tree["CRoMa"].sample_values.sel(m=3)
        for by in ("label", "confounder"):
            medians = values.groupby(by).median()
            expected = frame.groupby(by)["value"].median()
            assert medians[by].values.tolist() == expected.index.tolist()
            np.testing.assert_array_equal(medians.values, expected.to_numpy())
    whole = result["CRoMa"].to_dataset().groupby("label").mean()
    assert whole.sample_values.sizes == {"label": 3, "m": 2}


# ---- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["result", "paired"])
@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
def test_save__comes_back_identical_in_plain_xarray(
    which: str, suffix: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tree = request.getfixturevalue(which)
    before = {name: tree[name].to_dataset().copy(deep=True) for name in METRICS}
    path = tmp_path / f"r{suffix}"
    save(tree, path)
    with xr.open_datatree(path) as found:
        # The file says its version as well.
        assert found.attrs == {**tree.attrs, "format_version": 1}
        for name in METRICS:
            read = found[name].to_dataset().load()
            assert read.attrs.pop("format_version") == 1
            xr.testing.assert_identical(read, before[name])
            xr.testing.assert_identical(tree[name].to_dataset(), before[name])
            for variable, array in before[name].data_vars.items():
                assert found[name][variable].dtype == array.dtype, variable
    assert list(tmp_path.iterdir()) == [path]


def test_save__needs_no_option_and_raises_no_warning_in_another_process(
    result: xr.DataTree, tmp_path: Path
) -> None:
    """Who gets the file has xarray and zarr, and need not know of this library."""
    save(result, tmp_path / "r.zarr")
    save(result, tmp_path / "r.nc")
    code = (
        "import sys, xarray as xr\n"
        "for path in sys.argv[1:]:\n"
        "    tree = xr.open_datatree(path)\n"
        "    print(*sorted(tree.children), tree['CRoMa'].sample_values.groupby('label').median()"
        ".sizes['label'], tree['CRoMa'].m.values.tolist())\n"
        "    tree.close()\n"
        "assert 'croma_dask' not in sys.modules\n"
    )
    paths = [str(tmp_path / "r.zarr"), str(tmp_path / "r.nc")]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["CRoMa MaRI RI 3 [1, 3]"] * 2


@pytest.mark.parametrize("suffix", [".zarr"])
def test_save__of_what_was_read_back_keeps_longer_strings(
    suffix: str, result: xr.DataTree, tmp_path: Path
) -> None:
    """pitfalls 46: a width that is remembered from the first file cuts what comes later."""
    long = "zz_" + "longer than before " * 4
    text = ("sample_id", "label", "confounder")
    save(result, tmp_path / f"first{suffix}")
    with xr.open_datatree(tmp_path / f"first{suffix}") as found:
        node = found["RI"].to_dataset().load()
    for name in text:
        values = node[name].values.astype(object)
        values[3] = long
        node[name] = node[name].copy(data=values)
    save(xr.DataTree.from_dict({"RI": node}), tmp_path / f"second{suffix}")
    with xr.open_datatree(tmp_path / f"second{suffix}") as found:
        for name in text:
            assert found["RI"][name].values[3] == long
            assert found["RI"][name].values[4] == result["RI"][name].values[4]


def test_save__names_with_slashes_and_other_scripts(tmp_path: Path) -> None:
    x, frame = make_cohort(90)
    renamed = frame.rename(columns={"center": "MahmoodLab/UNI2-h:v1 é"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        tree = cd.score(x, renamed, confounder="MahmoodLab/UNI2-h:v1 é", k_candidates=[15], m=1)
    for suffix in FORMATS:
        save(tree, tmp_path / f"r{suffix}")
    for suffix in (".zarr", ".nc"):
        with xr.open_datatree(tmp_path / f"r{suffix}") as found:
            assert found["RI"].confounder.attrs["column"] == "MahmoodLab/UNI2-h:v1 é"
            assert set(found["RI"].confounder.values) == {"A/1", "B", "C"}
            assert set(found["RI"].label.values) == {"tumour", "Überklasse", "肿瘤"}
            assert found["RI"].sample_id.values.tolist() == frame["sample_id"].tolist()


def test_save__json_has_null_where_there_is_no_number(
    store: str, scored: Callable, tmp_path: Path
) -> None:
    """Nothing can be scored at m = 40: every statistic is NaN."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = scored(store, m=(1, 40))
    save(tree, tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["metrics"]["CRoMa"]["value"][1] is None
    assert found["metrics"]["CRoMa"]["f0"][1] is None
    assert found["metrics"]["CRoMa"]["support"] == [1.0, 0.0]
    assert found["metrics"]["RI"]["tau"] is None
    for word in ("NaN", "Infinity"):
        assert word not in text


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("late", [False, True])
def test_save__that_fails_leaves_nothing_and_what_was_there(
    suffix: str, late: bool, result: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when it is written, or when it is put in place."""
    path = tmp_path / f"r{suffix}"
    save(result, path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    full = OSError(errno.ENOSPC, "No space left on device")
    if late:

        def no_room(*args: Any, **kwargs: Any) -> None:
            raise full

        for name in ("replace", "rename"):
            monkeypatch.setattr(os, name, no_room)
    else:
        method = {".zarr": "to_zarr", ".nc": "to_netcdf"}.get(suffix)
        target: Any = xr.DataTree if method else Path
        method = method or "write_text"
        real = getattr(target, method)

        def half(self: Any, *args: Any, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            raise full

        monkeypatch.setattr(target, method, half)
    with pytest.raises(OSError, match="No space left"):
        save(result, path, overwrite=True)
    monkeypatch.undo()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    with pytest.raises(SchemaError, match="exists already"):
        save(result, path)


def test_save__puts_the_old_result_back_where_the_new_one_cannot_be_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old folder is out of the way by then."""
    path = tmp_path / "r.zarr"
    attrs = {"metric": "RI", "croma_dask_version": "0.1.0"}
    old, new = (xr.Dataset({"value": value}, attrs=attrs) for value in (0.25, 0.75))
    save(old, path)
    rename, failed = os.rename, []

    def fails(source: Any, target: Any) -> None:
        if Path(target) == path and not path.exists() and not failed:
            failed.append(source)
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    # As where the system cannot let two folders change places in one step.
    monkeypatch.setattr(whole_folders, "_exchange", lambda one, other: False)
    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(OSError, match="Input/output error"):
        save(new, path, overwrite=True)
    monkeypatch.undo()
    assert len(failed) == 1
    assert list(tmp_path.iterdir()) == [path]
    with cd.open_result(path) as found:
        assert found.identical(old)
    save(new, path, overwrite=True)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", FORMATS)
def test_save__does_not_replace_unless_told(
    suffix: str, result: xr.DataTree, tmp_path: Path
) -> None:
    path = tmp_path / f"r{suffix}"
    save(result, path)
    with pytest.raises(SchemaError, match="exists already; remove it or pass"):
        save(result, path)
    save(xr.DataTree.from_dict({"RI": result["RI"].to_dataset()}), path, overwrite=True)
    assert list(tmp_path.iterdir()) == [path]


def test_check_target__says_what_is_wrong(tmp_path: Path) -> None:
    assert check_target(tmp_path / "r.zarr").url == str(tmp_path / "r.zarr")
    with pytest.raises(SchemaError, match=r"ends in '\.txt'; expected one of \.zarr, \.nc"):
        check_target(tmp_path / "r.txt")
    with pytest.raises(SchemaError, match="does not exist"):
        check_target(tmp_path / "none" / "r.nc")


def test_save__netcdf_that_has_no_room_is_refused_before_it_is_written(
    result: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDF5 fails on a full disk, too, and crashes the process at its end."""

    def full(fd: int, offset: int, length: int) -> None:
        assert length > sum(node.to_dataset().nbytes for node in result.subtree)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(cd.StoreError, match="no room for it: about .* make room, or name another"):
        save(result, tmp_path / "r.nc")
    assert list(tmp_path.iterdir()) == []
