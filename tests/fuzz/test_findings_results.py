"""What fuzzing has found in reading results, and in reports of them."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.errors import SchemaError, StoreError
from croma_dask.results import save
from croma_dask.results.whole import told_if_incomplete

N = 60


@pytest.fixture(scope="module")
def scored() -> xr.DataTree:
    at = np.arange(N)
    frame = {
        "sample_id": [f"s{i}" for i in at],
        "label": [f"l{i % 2}" for i in at],
        "center": [f"c{i // 2 % 3}" for i in at],
        "group_id": [f"g{i // 3}" for i in at],
    }
    x = np.random.default_rng(0).standard_normal((N, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cd.score(x, frame, confounder="center", k_candidates=[3, 5], m=2, quiet=True)


def test_result__metadata_that_are_a_link_are_not_read(scored: xr.DataTree, tmp_path: Path):
    save(scored, tmp_path / "r.zarr")
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (tmp_path / "r.zarr" / "zarr.json").unlink()
    os.symlink(secret, tmp_path / "r.zarr" / "zarr.json")
    with pytest.raises(StoreError, match="symbolic links in this folder .*zarr.json"):
        cd.open_result(tmp_path / "r.zarr")


def test_result__metadata_that_are_a_folder(scored: xr.DataTree, tmp_path: Path):
    save(scored, tmp_path / "r.zarr")
    (tmp_path / "r.zarr" / "zarr.json").unlink()
    (tmp_path / "r.zarr" / "zarr.json").mkdir()
    with pytest.raises(StoreError, match="no result of croma-dask"):
        cd.open_result(tmp_path / "r.zarr")


@pytest.mark.parametrize("attributes", ["x", 3, ["a"]])
def test_result__attributes_that_are_none(scored: xr.DataTree, tmp_path: Path, attributes: object):
    save(scored, tmp_path / "r.zarr")
    root = tmp_path / "r.zarr" / "zarr.json"
    root.write_text(json.dumps({**json.loads(root.read_text()), "attributes": attributes}))
    with pytest.raises(StoreError):
        cd.open_result(tmp_path / "r.zarr")


def changed(scored: xr.DataTree, metric: str, node: xr.Dataset) -> xr.DataTree:
    nodes = {name: child.to_dataset() for name, child in scored.children.items()}
    return xr.DataTree.from_dict({"/": scored.to_dataset(), **nodes, metric: node})


def test_report__of_samples_without_ids(scored: xr.DataTree, tmp_path: Path):
    node = scored["CRoMa"].to_dataset().drop_vars("sample_id")
    with pytest.raises(
        SchemaError, match="parts missing or changed: .*CRoMa: sample_id is missing"
    ):
        cd.report(changed(scored, "CRoMa", node), tmp_path / "page.html", n_draws=0)
    assert not (tmp_path / "page.html").exists()


def test_report__of_an_operating_k_that_is_none(scored: xr.DataTree, tmp_path: Path):
    node = scored["RI"].to_dataset().assign_coords(k=np.nan)
    with pytest.raises(SchemaError, match="parts missing or changed: .*RI: k is of dtype float64"):
        cd.report(changed(scored, "RI", node), tmp_path / "page.html", n_draws=0)


def test_late_read__that_fails_is_of_the_file(scored: xr.DataTree):
    with pytest.raises(StoreError, match="cannot be read: Can't synchronously read data"):
        with told_if_incomplete(scored):
            raise OSError("Can't synchronously read data")
    with pytest.raises(FileNotFoundError), told_if_incomplete(scored):
        raise FileNotFoundError(2, "No such file")


def test_report__of_a_sweep_that_is_none(tmp_path: Path):
    attrs = {"metric": "probe_sweep", "croma_dask_version": cd.__version__}
    sweep = xr.Dataset({"value": ("metric", np.zeros(3))}, {"metric": list("abc")}, attrs)
    with pytest.raises(SchemaError, match="parts missing or changed: .*cramers_v is missing"):
        cd.report(sweep, tmp_path / "page.html", n_draws=0)


def test_result__late_texts_that_are_no_utf8(scored: xr.DataTree, tmp_path: Path):
    save(scored, tmp_path / "r.nc")
    raw = (tmp_path / "r.nc").read_bytes()
    # As an older release or another program writes it: without a seal.
    raw = raw[: raw.rindex(b"croma-dask seal")]
    (tmp_path / "r.nc").write_bytes(raw.replace(b"s17", b"\xff17"))
    with h5py.File(tmp_path / "r.nc", "r+"):
        pass
    with cd.open_result(tmp_path / "r.nc") as opened:
        with pytest.raises(StoreError, match="sample_id' cannot be read .*utf-8"):
            opened["RI"]["sample_id"].load()
