"""Kept neighbours: what is taken over, what never is, and what a reader may meet on disk."""

from __future__ import annotations

import fcntl
import importlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner

import croma_dask as cd
from croma_dask import schema, whole_folders
from croma_dask.cli import main
from croma_dask.cohort.design import Scope
from croma_dask.cohort.location import Location
from croma_dask.cohort.store import StoredCohort
from croma_dask.index import kept, kept_lists, kept_writer, neighbors
from croma_dask.index.neighbors import Neighbors
from croma_dask.index.profile import Profile
from croma_dask.index.spec import ListSpec
from tests.helpers.cohorts import Cohort, features, manifest
from tests.helpers.compare import assert_same_bits
from tests.helpers.engines import ENGINES, engine
from tests.helpers.oracle import distances

METRICS = ("RI", "MaRI", "CRoMa")
ROOT = Path(__file__).resolve().parents[2]
N = 240
K, M = 8, 4

search_module = importlib.import_module("croma_dask.search")
profile_module = importlib.import_module("croma_dask.index.profile")
evaluate_module = importlib.import_module("croma_dask.robustness.evaluate")


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    """The engine that compiles nothing, unless a test asks for another one."""
    with engine("small"), warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        yield


def make(design: str = "all", *, n: int = N) -> Cohort:
    """Two confounder and two group columns; paired, either confounder makes complete 2x2."""
    rng = np.random.default_rng(11)
    at = rng.permutation(n)
    few = 2 if design == "paired_2x2" else 3
    label, center = at % few, at // few % few
    scanner = at // few // few % 2
    subset = None if design == "all" else [f"set/{s}" for s in at % 7 % 3]
    frame = manifest(label, center, at // 3, subset=subset)
    frame["scanner"] = [f"s{v}" for v in scanner]
    frame["patient"] = [f"p{v}" for v in at // 5]
    return Cohort(features(rng, label, center, 6).astype(np.float32), frame, design)


@pytest.fixture
def cohort() -> Cohort:
    return make()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "neighbours[1].zarr"


def score(
    cohort: Cohort, where: Path | None = None, confounder: str = "center", **options: Any
) -> xr.DataTree:
    given = {"k_candidates": (3, K), "m": [1, M]} | options
    x = given.pop("x", cohort.x)
    frame = None if isinstance(x, str | xr.Dataset) else cohort.frame
    return cd.score(
        x, frame, confounder=confounder, design=cohort.design, keep_neighbors=where, **given
    )


def assert_same(found: xr.DataTree, expected: xr.DataTree, reused: str) -> None:
    """All bits of a fresh run; only the note on what was taken over differs."""
    assert list(found.children) == list(expected.children)
    for name in expected.children:
        left, right = found[name].to_dataset(), expected[name].to_dataset()
        assert left.attrs.pop("neighbors_reused") == reused
        assert right.attrs.pop("neighbors_reused") == ""
        assert_same_bits(left, right)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Lengths of the lists of every search from now on."""
    seen: list[tuple[int, int]] = []
    search = search_module.search

    def record(embedding: Any, scopes: Any, spec: ListSpec, *args: Any, **kwargs: Any) -> Any:
        seen.append((spec.n_global, spec.n_typed))
        return search(embedding, scopes, spec, *args, **kwargs)

    monkeypatch.setattr(evaluate_module, "search", record)
    return seen


@pytest.fixture
def no_distances(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called on, nothing that finds neighbours or reads rows may run."""

    def forbid() -> None:
        def refuse(*args: object, **kwargs: object) -> None:
            raise AssertionError("distances were computed, or rows read")

        monkeypatch.setattr(evaluate_module, "search", refuse)
        monkeypatch.setattr(StoredCohort, "read_tiles", refuse)
        for module, name in (
            ("graph", "pair_graph"), ("index.streamed", "meet_blocks"),
            ("index.direct", "search_resident"), ("index.small", "search_small"),
            ("index.profile", "_look"),
        ):  # fmt: skip
            owner = importlib.import_module(f"croma_dask.{module}")
            monkeypatch.setattr(owner, name, refuse)

    return forbid


def messages(caplog: pytest.LogCaptureFixture) -> str:
    text = "\n".join(r.getMessage() for r in caplog.records)
    caplog.clear()
    return text


# ---- what is taken over ------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["all", "paired_2x2"])
@pytest.mark.parametrize("name", ENGINES)
def test_second_confounder__costs_ri_and_mari_no_distance(
    name: str, design: str, tmp_path: Path, place: Path, no_distances: Callable, caplog: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cohort = make(design)
    store = cd.write_cohort(str(tmp_path / "cohort.zarr"), cohort.x, cohort.frame, chunk_rows=64)
    expected = score(cohort, None, "scanner", metrics=("RI", "MaRI"), x=store)
    # Chunks that no scope and no block of the metrics ends with.
    monkeypatch.setattr(kept_writer, "grid_rows", lambda width: 37)
    monkeypatch.setattr(neighbors, "grid_rows", lambda width: 50)
    with engine(name, range_rows=70):
        first = score(cohort, place, x=store, scratch=str(tmp_path / "scratch"))
    assert first["RI"].attrs["neighbors_reused"] == ""
    no_distances()
    with caplog.at_level(logging.WARNING, logger="croma_dask"):
        found = score(cohort, place, "scanner", metrics=("RI", "MaRI"), x=store)
    assert_same(found, expected, "global")
    assert f"neighbours of {place} reused: no distances computed for RI, MaRI" in messages(caplog)


@pytest.mark.parametrize("design", ["all", "paired_2x2"])
def test_same_column__costs_nothing_at_all(
    design: str, tmp_path: Path, place: Path, no_distances: Callable, caplog: Any
) -> None:
    cohort = make(design)
    store = cd.write_cohort(str(tmp_path / "cohort.zarr"), cohort.x, cohort.frame)
    expected = score(cohort, x=store)
    assert_same(score(cohort, place, x=store), expected, "")
    no_distances()
    with caplog.at_level(logging.WARNING, logger="croma_dask"):
        again = score(cohort, place, x=store)
    assert_same(again, expected, "global,typed")
    assert "no distances computed for RI, MaRI, CRoMa" in messages(caplog)
    opened = score(cohort, place, x=cd.open_cohort(store))
    assert_same(opened, expected, "global,typed")


@pytest.mark.parametrize("design", ["all", "paired_2x2"])
def test_croma_of_a_second_column__searches_typed_lists_only(
    design: str, place: Path, searches: list, caplog: Any
) -> None:
    cohort = make(design)
    expected = {c: score(cohort, None, c) for c in ("center", "scanner")}
    score(cohort, place)
    before = cd.open_neighbors(place).load()
    searches.clear()
    with caplog.at_level(logging.WARNING, logger="croma_dask"):
        assert_same(score(cohort, place, "scanner"), expected["scanner"], "global")
    assert searches == [(0, M)]
    assert "of other labels or confounders ('label' and 'center')" in messages(caplog)
    after = cd.open_neighbors(place).load()
    for variable in ("neighbor_index", "neighbor_distance", "unit_sum", "first_row"):
        assert after[variable].values.tobytes() == before[variable].values.tobytes()
    assert not after.so_distance.equals(before.so_distance)
    assert after.attrs["confounder_column"] == "scanner"
    assert_same(score(cohort, place, "scanner"), expected["scanner"], "global,typed")
    assert searches == [(0, M)], "and they were kept"
    assert_same(score(cohort, place), expected["center"], "global")


@pytest.mark.parametrize("name", ["direct", "streamed"])
def test_typed_lists_alone__have_the_same_bits_in_every_engine(
    name: str, tmp_path: Path, place: Path
) -> None:
    cohort = make()
    expected = score(cohort, None, "scanner")
    with engine(name, range_rows=70):
        score(cohort, place, scratch=str(tmp_path / "scratch"))
        found = score(cohort, place, "scanner", scratch=str(tmp_path / "scratch"))
    assert_same(found, expected, "global")
    assert_same(score(cohort, place, "scanner"), expected, "global,typed")


@pytest.mark.parametrize("asked", [{"k_candidates": (2, 5)}, {"m": 2}, {"m": [3, 1]}])
def test_smaller_k_and_m__are_prefixes(asked: dict, cohort: Cohort, place: Path) -> None:
    score(cohort, place)
    files = {f: f.stat().st_ino for f in place.rglob("*") if f.is_file()}
    assert_same(score(cohort, place, **asked), score(cohort, **asked), "global,typed")
    assert {f: f.stat().st_ino for f in place.rglob("*") if f.is_file()} == files


def test_one_part__comes_from_a_run_that_needed_the_other(
    cohort: Cohort, place: Path, searches: list
) -> None:
    """CRoMa first, then RI, then both; and what is not asked for stays."""
    expected = {name: score(cohort, metrics=name) for name in METRICS}
    searches.clear()
    assert_same(score(cohort, place, metrics="CRoMa"), expected["CRoMa"], "")
    assert set(cd.open_neighbors(place).dims) >= {"nearest"}
    assert "neighbor_index" not in cd.open_neighbors(place)
    assert_same(score(cohort, place, metrics="RI"), expected["RI"], "")
    assert {"neighbor_index", "so_distance"} <= set(cd.open_neighbors(place).data_vars)
    assert_same(score(cohort, place, metrics="MaRI"), expected["MaRI"], "global")
    assert_same(score(cohort, place), score(cohort), "global,typed")
    assert searches == [(0, M), (K, 0), (K, M)]


def test_a_typed_part__joins_a_larger_k(cohort: Cohort, place: Path, searches: list) -> None:
    expected = score(cohort, k_candidates=(3, 20))
    score(cohort, place)
    searches.clear()
    assert_same(score(cohort, place, k_candidates=(3, 20)), expected, "typed")
    assert searches == [(20, 0)]
    found = cd.open_neighbors(place)
    assert (found.attrs["k"], found.attrs["m"]) == (20, M)


def as_array(kind: str, x: np.ndarray, frame: pd.DataFrame, folder: Path) -> Any:
    if kind == "dask":
        return da.from_array(x, chunks=((100, 1, N - 101), 2))
    if kind == "zarr":
        array = zarr.create_array(zarr.storage.LocalStore(folder), shape=x.shape, dtype=x.dtype)
        array[:] = x
        return array
    if kind == "big-endian":
        return np.asfortranarray(x.astype(">f4"))
    return x


@pytest.mark.parametrize("kind", ["numpy", "dask", "zarr", "big-endian"])
def test_arrays__are_known_by_their_fingerprint(
    kind: str, cohort: Cohort, tmp_path: Path, place: Path, searches: list
) -> None:
    x = as_array(kind, cohort.x, cohort.frame, tmp_path / "array.zarr")
    expected = score(cohort, None, "scanner")
    assert_same(score(cohort, place, "scanner", x=x), expected, "")
    searches.clear()
    assert_same(score(cohort, place, "scanner", x=x), expected, "global,typed")
    store = cd.write_cohort(str(tmp_path / "cohort.zarr"), cohort.x, cohort.frame)
    assert_same(score(cohort, place, "scanner", x=store), expected, "global,typed")
    assert searches == []


def test_zero_rows__are_told_again(cohort: Cohort, place: Path) -> None:
    cohort.x[[3, 70]] = 0.0
    told = "2 of 240 embedding rows are zero .rows 3, 70."
    for confounder, reused in (("center", ""), ("scanner", "global"), ("scanner", "global,typed")):
        with pytest.warns(cd.InputWarning, match=told):
            found = score(cohort, place, confounder)
        with pytest.warns(cd.InputWarning, match=told):
            assert_same(found, score(cohort, None, confounder), reused)
        assert found["RI"].attrs["n_zero_rows"] == 2


def test_first_pass__is_not_made_again(
    cohort: Cohort, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = cd.write_cohort(str(tmp_path / "cohort.zarr"), cohort.x, cohort.frame)
    expected = score(cohort, None, "scanner", x=store)
    score(cohort, place, x=store)
    monkeypatch.setattr(profile_module, "_look", None)
    assert_same(score(cohort, place, "scanner", x=store), expected, "global")


def test_scopes_shorter_than_k__keep_what_there_is(place: Path) -> None:
    cohort = make("paired_2x2", n=60)
    asked = {"k_candidates": (5, 30), "m": 12}
    expected = score(cohort, None, "scanner", **asked)
    score(cohort, place, **asked)
    assert_same(score(cohort, place, "scanner", **asked), expected, "global")
    assert_same(score(cohort, place, "scanner", **asked), expected, "global,typed")
    huge = {"k_candidates": (5, 500), "m": 400}
    expected = score(cohort, None, "scanner", **huge)
    score(cohort, place, "scanner", **huge)
    assert_same(score(cohort, place, "scanner", **huge), expected, "global,typed")


# ---- what never is -----------------------------------------------------------------------------


def other_value(cohort: Cohort, where: Path) -> dict[str, Any]:
    cohort.x[7, 2] = np.nextafter(cohort.x[7, 2], np.float32(9))
    return {}


def other_groups(cohort: Cohort, where: Path) -> dict[str, Any]:
    return {"group": "patient"}


def other_row_order(cohort: Cohort, where: Path) -> dict[str, Any]:
    """The same array, whose rows now belong to the samples the other way round."""
    ids = cohort.frame["sample_id"].to_numpy()[::-1]
    return {
        "x": xr.DataArray(
            cohort.x, dims=("sample", "feature"), coords={"sample_id": ("sample", ids)}
        )
    }


def other_design(cohort: Cohort, where: Path) -> dict[str, Any]:
    cohort.design = "all"
    cohort.frame["sample_id"] = [f"t{i}" for i in range(N)]
    return {}


def fewer_subsets(cohort: Cohort, where: Path) -> dict[str, Any]:
    one = cohort.frame["subset"] == "set/1"
    cohort.frame.loc[one, "center"] = "0"
    return {"skip_incomplete": True}


def tampered(**attrs: Any) -> Callable[[Cohort, Path], dict[str, Any]]:
    def change(cohort: Cohort, where: Path) -> dict[str, Any]:
        found = zarr.open_group(where, mode="r+", use_consolidated=False).attrs
        found.update(attrs)
        del found["layout_checksum"]  # which would tell that somebody has changed them
        return {}

    return change


@pytest.mark.parametrize(
    ("design", "change", "told"),
    [
        ("all", other_value, "of another embedding"),
        ("all", other_groups, "of other rows or groups"),
        ("all", other_row_order, "of other rows or groups"),
        ("paired_2x2", other_design, "of other rows or groups and of the design 'paired_2x2'"),
        ("paired_2x2", fewer_subsets, "of other rows or groups"),
        ("all", tampered(index="pynndescent"), "found by the index 'pynndescent'"),
        ("all", tampered(index_parameters="x"), "found with the index parameters 'x'"),
        ("all", tampered(created_by="croma-dask 0.0.1"), "found by croma-dask 0.0.1"),
        ("all", tampered(evaluation_design="x"), "of the design 'x'"),
    ],
)
def test_key__that_differs_is_never_reused(
    design: str, change: Callable, told: str, place: Path, searches: list, caplog: Any
) -> None:
    cohort = make(design)
    score(cohort, place)
    options = change(cohort, place)
    expected = score(cohort, **options)
    searches.clear()
    with caplog.at_level(logging.WARNING, logger="croma_dask"):
        assert_same(score(cohort, place, **options), expected, "")
    assert f"are {told}: searching anew, and replacing them" in messages(caplog)
    assert searches == [(K, M)]
    assert_same(score(cohort, place, **options), expected, "global,typed")
    assert len(searches) == 1


@pytest.mark.parametrize(
    ("asked", "told", "searched", "reused"),
    [
        ({"k_candidates": (3, 9)}, "the kept neighbours reach k = 8, not 9", (9, 0), "typed"),
        ({"m": 5}, "SO and OS neighbours reach m = 4, not 5", (0, 5), "global"),
        ({"m": 5, "k_candidates": [9]}, "SO and OS neighbours reach m = 4, not 5", (9, 5), ""),
    ],
)
def test_larger_k_or_m__is_searched_and_kept(
    asked: dict, told: str, searched: Any, reused: str, cohort: Cohort, place: Path,
    searches: list, caplog: Any,
) -> None:  # fmt: skip
    score(cohort, place)
    expected = score(cohort, **asked)
    searches.clear()
    with caplog.at_level(logging.WARNING, logger="croma_dask"):
        assert_same(score(cohort, place, **asked), expected, reused)
    assert told in messages(caplog)
    assert searches == [searched]
    assert_same(score(cohort, place, **asked), expected, "global,typed")


def test_other_label__keeps_the_neighbours_and_not_the_typed_ones(
    cohort: Cohort, place: Path
) -> None:
    score(cohort, place)
    cohort.frame["label"] = cohort.frame["label"].to_numpy()[::-1]
    assert_same(score(cohort, place), score(cohort), "global")


def test_array_changed_in_place__is_noticed_when_nothing_could_be_reused(
    cohort: Cohort, place: Path
) -> None:
    """Lists of another embedding do not stay beside new ones because nobody asked for them."""
    score(cohort, place)
    cohort.x[7, 2] += 1
    score(cohort, place, metrics="RI", k_candidates=(3, 20))
    assert "so_distance" not in cd.open_neighbors(place)
    assert_same(score(cohort, place), score(cohort), "global")


# ---- what lies there ---------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["all", "paired_2x2"])
def test_neighbors__are_those_of_a_brute_force(design: str, place: Path) -> None:
    cohort = make(design, n=90)
    score(cohort, place)
    found = cd.open_neighbors(place)
    frame = cohort.frame
    rows = found.manifest_row.values if "manifest_row" in found else np.arange(90)
    assert ("manifest_row" in found) == (design == "paired_2x2")
    assert found.subset.values.tolist() == (
        ["dataset"] if design == "all" else ["set/0", "set/1", "set/2"]
    )
    edges = [*found.first_row.values.tolist(), 90]
    for lo, hi in zip(edges[:-1], edges[1:], strict=True):
        mine = rows[lo:hi]
        part = frame.iloc[mine]
        d = distances(cohort.x[mine])
        label, center, group = (part[c].to_numpy() for c in ("label", "center", "group_id"))
        eligible = group[:, None] != group[None, :]
        same_label = label[:, None] == label[None, :]
        same_center = center[:, None] == center[None, :]
        so, os_ = eligible & same_label & ~same_center, eligible & ~same_label & same_center
        for i in range(hi - lo):
            order = np.lexsort((np.arange(hi - lo), np.where(eligible[i], d[i], np.inf)))
            order = order[: min(K, int(eligible[i].sum()))]
            np.testing.assert_array_equal(found.neighbor_index[lo + i, : len(order)], order)
            np.testing.assert_allclose(
                found.neighbor_distance[lo + i, : len(order)], d[i, order], rtol=0, atol=1e-12
            )
            assert (found.neighbor_index[lo + i, len(order) :] == -1).all()
            for name, mask in (("so_distance", so), ("os_distance", os_)):
                want = np.full(M, np.nan)
                near = np.sort(d[i, mask[i]])[:M]
                want[: len(near)] = near
                np.testing.assert_allclose(found[name][lo + i], want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("design", ["all", "paired_2x2"])
def test_dataset__is_as_declared_and_plain_xarray_opens_it(design: str, place: Path) -> None:
    cohort = make(design)
    score(cohort, place)
    mine = cd.open_neighbors(place)
    with xr.open_zarr(place) as found:
        assert "layout_checksum" in found.attrs
        del found.attrs["layout_checksum"]
        xr.testing.assert_identical(found.load(), mine.load())
    present = set(schema.NEIGHBORS) - (set() if design == "paired_2x2" else {"manifest_row"})
    assert set(mine.data_vars) == present
    for name, variable in mine.data_vars.items():
        declared = schema.NEIGHBORS[str(name)]
        assert variable.dims == declared.dims
        assert variable.dtype.kind == declared.kind
        assert variable.attrs == declared.attrs()
    names = set(map(str, mine.variables)) | set(map(str, mine.dims))
    assert not names & (set(dir(xr.Dataset)) | set(dir(xr.DataArray)))
    assert dict(mine.sizes) == {
        "sample": N, "neighbor": K, "nearest": M, "feature": 6,
        "subset": 1 if design == "all" else 3,
    }  # fmt: skip
    assert all(isinstance(v, str | int | float | list) for v in mine.attrs.values())
    expected = {
        "format": "croma-dask neighbors", "format_version": 1, "status": "complete", "k": K,
        "m": M, "n_rows": N, "n_tiles": N, "evaluation_design": design, "index": "exact",
        "index_parameters": "", "recall": 1.0, "distance": "cosine", "n_zero_rows": 0,
        "label_column": "label", "confounder_column": "center", "group_column": "group_id",
        "created_by": f"croma-dask {cd.__version__}",
    }  # fmt: skip
    assert {name: mine.attrs[name] for name in expected} == expected


def test_nothing_else__is_left(cohort: Cohort, place: Path) -> None:
    for confounder in ("center", "scanner", "center"):
        score(cohort, place, confounder)
        assert list(place.parent.iterdir()) == [place]


def test_off_by_default(cohort: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert score(cohort)["RI"].attrs["neighbors_reused"] == ""
    assert list(tmp_path.iterdir()) == []


def file_there(place: Path) -> None:
    place.write_text("mine")


def folder_there(place: Path) -> None:
    place.mkdir()
    (place / "thesis.tex").write_text("mine")


def cohort_there(place: Path) -> None:
    cohort = make()
    cd.write_cohort(str(place), cohort.x, cohort.frame)


def result_there(place: Path) -> None:
    from croma_dask.results import save

    save(score(make()), place)


def array_there(place: Path) -> None:
    zarr.create_array(zarr.storage.LocalStore(place), shape=(3,), dtype="f4")[:] = 1


def nonsense_there(place: Path) -> None:
    place.mkdir()
    (place / "zarr.json").write_text("[1, 2")


@pytest.mark.parametrize(
    "something",
    [file_there, folder_there, cohort_there, result_there, array_there, nonsense_there],
)
def test_something_else__is_left_alone(
    something: Callable, cohort: Cohort, place: Path, no_distances: Callable
) -> None:
    something(place)
    files = [place] if place.is_file() else [f for f in place.rglob("*") if f.is_file()]
    before = {f: f.read_bytes() for f in files}
    no_distances()
    with pytest.raises(cd.StoreError, match="holds no neighbours.*left alone; name another place"):
        score(cohort, place)
    with pytest.raises(cd.StoreError, match="holds no neighbours"):
        cd.open_neighbors(place)
    assert {f: f.read_bytes() for f in before} == before


def test_folder_of_models__names_their_folders(cohort: Cohort, place: Path) -> None:
    """Whoever scores or explains one model by the folder of a panel is told where its own are."""
    models = {"lab/large": cohort.x, "small": cohort.x[::-1].copy()}
    cd.score(
        models, cohort.frame, confounder="center", design=cohort.design, k_candidates=[3], m=1,
        keep_neighbors=place,
    )  # fmt: skip
    (place / "notes").mkdir()
    told = f"{place} holds the neighbours of 'lab/large', 'small', a folder each: name one"
    one = place / "lab%2Flarge"
    for refused in (
        lambda: score(cohort, place),
        lambda: cd.open_neighbors(place),
        lambda: cd.explain(
            cohort.x, cohort.frame["sample_id"][0], manifest=cohort.frame, neighbors=place,
            confounder="center",
        ),
    ):  # fmt: skip
        with pytest.raises(cd.StoreError, match=re.escape(f"{told}, as {one}")):
            refused()
    assert cd.open_neighbors(one).attrs["k"] == 3


def test_result__may_not_overwrite_kept_neighbours(cohort: Cohort, place: Path) -> None:
    from croma_dask.results import save

    result = score(cohort, place)
    with pytest.raises(cd.SchemaError, match="no result of croma-dask"):
        save(result, place, overwrite=True)


def test_empty_folder__is_a_place(cohort: Cohort, place: Path) -> None:
    place.mkdir()
    with pytest.raises(cd.StoreError, match="there is nothing here"):
        cd.open_neighbors(place)
    score(cohort, place)
    assert cd.open_neighbors(place).sizes["sample"] == N


def test_unfinished__is_refused_and_replaced(cohort: Cohort, place: Path, caplog: Any) -> None:
    expected = score(cohort, place)
    tampered(status="writing")(cohort, place)
    with pytest.raises(cd.StoreError, match="were not finished"):
        cd.open_neighbors(place)
    with caplog.at_level(logging.WARNING, logger="croma_dask"):
        assert_same(score(cohort, place), expected, "")
    assert "were not finished: searching anew" in messages(caplog)
    assert_same(score(cohort, place), expected, "global,typed")


def test_newer_version__is_refused_and_left_alone(cohort: Cohort, place: Path) -> None:
    score(cohort, place)
    tampered(format_version=99)(cohort, place)
    before = (place / "zarr.json").read_bytes()
    for use in (cd.open_neighbors, lambda place: score(cohort, place)):
        with pytest.raises(cd.StoreError, match="version 99, .* up to 1: pip install --upgrade"):
            use(place)
    assert (place / "zarr.json").read_bytes() == before


def test_bad_places__are_refused_before_the_search(
    cohort: Cohort, tmp_path: Path, no_distances: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_distances()
    with pytest.raises(cd.SchemaError, match="folder of .* does not exist"):
        score(cohort, tmp_path / "no" / "n.zarr")
    with pytest.raises(cd.StoreError, match="there is nothing here"):
        cd.open_neighbors(tmp_path / "n.zarr")
    full = shutil.disk_usage(tmp_path)._replace(free=N * (12 * K + 16 * M) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(cd.MemoryLimitError, match="take 38.40 kB on disk.*keep_neighbors="):
        score(cohort, tmp_path / "n.zarr")


@pytest.mark.parametrize("name", ["neighbor_index", "neighbor_distance", "os_distance"])
@pytest.mark.parametrize("lost", ["chunk", "array", "half"])
def test_damage__is_an_error_and_no_number(
    name: str, lost: str, cohort: Cohort, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_lists, "_PAUSE", 0.0)
    monkeypatch.setattr(kept_writer, "grid_rows", lambda width: 100)
    score(cohort, place)
    chunk = place / name / "c" / "1" / "0"
    if lost == "array":
        shutil.rmtree(place / name)
    elif lost == "chunk":
        chunk.unlink()
    else:
        chunk.write_bytes(chunk.read_bytes()[:-100])
    problem = r"\(rows 100 to 199\) cannot be read .*" if lost == "half" else "is missing"
    told = f"damaged: .*{name}.* {problem}; remove the folder and score again"
    with pytest.raises(cd.StoreError, match=told):
        score(cohort, place)


# ---- others at the same place ------------------------------------------------------------------


def lists_of(place: Path) -> kept_lists.KeptLists:
    found = kept_lists.find_kept(Location.of(place))
    assert found is not None
    return kept_lists.KeptLists(found, 0, ListSpec(K, M))


def test_reader__goes_on_when_only_the_other_part_is_replaced(
    cohort: Cohort, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_writer, "grid_rows", lambda width: 50)
    score(cohort, place)
    expected = cd.open_neighbors(place).neighbor_index.values
    reader = lists_of(place)
    np.testing.assert_array_equal(reader.read(0, 50)[0], expected[:50])
    reader.read_typed(0, 50)
    score(cohort, place, "scanner")
    np.testing.assert_array_equal(reader.read(50, N)[0], expected[50:])
    with pytest.raises(cd.StoreError, match="another run has replaced the neighbours"):
        reader.read_typed(50, N)


@pytest.mark.parametrize("opened", [True, False])
def test_reader__never_mixes_two_searches(
    opened: bool, cohort: Cohort, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same shape, other embedding: nothing in the arrays themselves gives it away."""
    monkeypatch.setattr(kept_writer, "grid_rows", lambda width: 50)
    score(cohort, place)
    reader = lists_of(place)
    if opened:
        reader.read(0, 50)
    cohort.x[:] = cohort.x[::-1]
    score(cohort, place)
    with pytest.raises(cd.StoreError, match="another run has replaced the neighbours"):
        reader.read(50, 60)


def test_reader__waits_while_a_folder_is_put_in_place(
    cohort: Cohort, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(cohort, place)
    reader = lists_of(place)
    aside = place.with_name("aside")
    reader.kept.array("neighbor_index")
    os.rename(place, aside)

    def back(seconds: float) -> None:
        if seconds and aside.exists():
            os.rename(aside, place)

    monkeypatch.setattr(kept_lists.time, "sleep", back)
    index, _ = reader.read(0, N)
    np.testing.assert_array_equal(index, cd.open_neighbors(place).neighbor_index.values)


def test_what_another_run_put_there__stays(
    cohort: Cohort, place: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """While SO and OS are searched for this column, somebody replaces everything."""
    score(cohort, place)
    other = make()
    other.x[:] = other.x[::-1]
    search, done = evaluate_module.search, []

    def race(*args: Any, **kwargs: Any) -> Any:
        found = search(*args, **kwargs)
        if not done:
            done.append(True)
            score(other, place)
        return found

    monkeypatch.setattr(evaluate_module, "search", race)
    with (
        caplog.at_level(logging.WARNING, logger="croma_dask"),
        pytest.raises(cd.StoreError, match="another run has replaced the neighbours"),
    ):
        score(cohort, place, "scanner")
    assert "another run has meanwhile kept neighbours" in messages(caplog)
    assert_same(score(other, place), score(other), "global,typed")
    assert list(place.parent.iterdir()) == [place]


def test_interrupted_writing__leaves_what_was_there(
    cohort: Cohort, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = score(cohort, place)
    with monkeypatch.context() as patch:
        patch.setattr(kept_writer, "seal", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            score(cohort, place, "scanner")
        with pytest.raises(KeyboardInterrupt):
            score(cohort, place.with_name("new.zarr"))
    assert list(place.parent.iterdir()) == [place]
    assert_same(score(cohort, place), expected, "global,typed")


def test_leftovers_of_killed_runs__go_and_those_of_running_ones_stay(
    cohort: Cohort, place: Path
) -> None:
    dead = place.with_name(f".{place.name}.partial-dead")
    alive = place.with_name(f".{place.name}.partial-alive")
    others = place.with_name(".other.zarr.partial-x")
    for folder in (dead, alive, others):
        folder.mkdir()
        (folder / "zarr.json").write_text("{}")
    handle = os.open(alive, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        score(cohort, place)
        assert set(place.parent.iterdir()) == {place, alive, others}
    finally:
        os.close(handle)
    score(cohort, place, "scanner")
    assert set(place.parent.iterdir()) == {place, others}


def test_killed_while_writing__leaves_nothing_that_is_taken_for_neighbours(
    cohort: Cohort, tmp_path: Path, place: Path
) -> None:
    store = cd.write_cohort(str(tmp_path / "cohort.zarr"), cohort.x, cohort.frame)
    code = f"""
import os, signal
import croma_dask as cd
from croma_dask.index import kept_writer
kept_writer.seal = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
cd.score({store!r}, confounder="center", k_candidates=[{K}], m={M}, keep_neighbors={str(place)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT)
    assert done.returncode == -9
    assert not place.exists()
    assert len(list(tmp_path.glob(".neighbours*"))) == 1
    assert_same(score(cohort, place), score(cohort), "")
    assert set(tmp_path.iterdir()) == {place, tmp_path / "cohort.zarr"}


def test_put__of_many_at_once_leaves_one_whole_folder(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    place = tmp_path / "place"

    def write(number: int) -> None:
        with whole_folders.beside(place) as partial:
            for name in "abc":
                (partial / name).write_text(str(number))
            whole_folders.put(partial, place, check=lambda path: None)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(60)))
    assert len({(place / name).read_text() for name in "abc"}) == 1
    assert [p for p in tmp_path.iterdir() if "partial" in p.name or p == place] == [place]


def test_put__that_fails_puts_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "old").touch()
    rename = os.rename

    def fail(a: Path, b: Path) -> None:
        if "partial" in a.name and not place.exists():
            raise PermissionError("no")
        rename(a, b)

    with whole_folders.beside(place) as partial:
        (partial / "new").touch()
        monkeypatch.setattr(whole_folders.os, "rename", fail)
        # A file system on which two folders cannot change places in one step.
        monkeypatch.setattr(whole_folders, "_exchange", lambda one, other: False)
        with pytest.raises(PermissionError):
            whole_folders.put(partial, place, check=lambda path: None)
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")] == [
        "place", "place/old",
    ]  # fmt: skip


def test_file_system_without_links__copies(
    cohort: Cohort, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def refuse(source: Path, target: Path) -> None:
        if place in Path(source).parents:
            raise PermissionError("no links here")
        link(source, target)

    monkeypatch.setattr(kept_writer.os, "link", refuse)
    score(cohort, place)
    expected = score(cohort, None, "scanner")
    assert_same(score(cohort, place, "scanner"), expected, "global")
    assert_same(score(cohort, place, "scanner"), expected, "global,typed")


# ---- in parts ----------------------------------------------------------------------------------


def test_lists__of_kept_scopes_are_a_neighbors(place: Path) -> None:
    cohort = make("paired_2x2")
    score(cohort, place)
    found = kept_lists.find_kept(Location.of(place))
    assert found is not None
    start = int(cd.open_neighbors(place).first_row[1])
    mine = Neighbors(40, ListSpec(5, 2), kept_lists.KeptLists(found, start, ListSpec(5, 2)), 0, "k")
    block, typed = next(mine.blocks()), next(mine.typed_blocks())
    assert block.index.shape == (40, 5)
    assert block.index.dtype == np.int32
    assert typed.so.shape == typed.os.shape == (40, 2)
    opened = cd.open_neighbors(place).isel(sample=slice(start, start + 40))
    np.testing.assert_array_equal(block.distance, opened.neighbor_distance[:, :5])
    np.testing.assert_array_equal(typed.os, opened.os_distance[:, :2])


def test_writing_and_reading__hold_a_block_and_not_the_lists(place: Path) -> None:
    """100,000 rows are 70 MB of lists."""
    n, spec = 100_000, ListSpec(51, 5)

    class Made:
        def read(self, lo: int, hi: int) -> Any:
            at = np.arange(lo, hi, dtype=np.int32)[:, None] + np.arange(51, dtype=np.int32)
            return at % n, at / n

        def read_typed(self, lo: int, hi: int) -> Any:
            return np.full((hi - lo, 10), 0.5)

    codes = np.zeros(n, np.int32)
    scope = Scope("dataset", None, codes, codes, codes, 1)
    found = Neighbors(n, spec, Made(), 0, "made")
    profile = Profile(n, 0, 0, 0, [], [], np.ones(4), np.ones(4), 1.0)
    columns = {"label_column": "label", "confounder_column": "center"}
    key = kept.Key("e", "g", "all", "r")
    tracemalloc.start()
    kept_writer.keep_neighbors(
        place, key, [scope], [found], spec, profile, columns, typed_key="t", old=None
    )
    there = kept_lists.find_kept(Location.of(place))
    assert there is not None
    again = Neighbors(n, spec, kept_lists.KeptLists(there, 0, spec), 0, "kept")
    for block, made in zip(again.blocks(), found.blocks(), strict=True):
        assert block.index.tobytes() == made.index.tobytes()
        assert block.distance.tobytes() == made.distance.tobytes()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_key__goes_through_attrs() -> None:
    key = kept.Key("e", "g", "all", "croma-dask 1", "ivf", "{}")
    assert kept.Key.of(key.attrs()) == key
    assert key.differences(key) == []
    assert len(key.differences(kept.Key("", "", "", "", "", ""))) == 6


# ---- the command -------------------------------------------------------------------------------


def test_command__keeps_and_takes_over(cohort: Cohort, tmp_path: Path, place: Path) -> None:
    store = cd.write_cohort(str(tmp_path / "cohort.zarr"), cohort.x, cohort.frame)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(
            main, ["score", store, "--k", f"3,{K}", "--m", f"1,{M}", *arguments],
            catch_exceptions=False,
        )  # fmt: skip

    out = tmp_path / "result.json"
    for confounder, reused in (("center", ""), ("scanner", "global"), ("scanner", "global,typed")):
        done = run(
            "--confounder", confounder, "--keep-neighbors", str(place), "--out", str(out),
            "--overwrite",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        found = json.loads(out.read_text())["metrics"]["RI"]
        assert found["attrs"]["neighbors_reused"] == reused
        expected = score(cohort, None, confounder)
        assert found["value"] == float(expected["RI"].value)
    done = run("--confounder", "center", "--keep-neighbors", str(tmp_path / "a.zarr"),
               "--out", str(tmp_path / "a.zarr"))  # fmt: skip
    assert done.exit_code == 2
    assert "--out and --keep-neighbors name the same place" in done.output
    done = CliRunner().invoke(
        main, ["score", store, "--confounder", "center", "--keep-neighbors", store]
    )
    assert done.exit_code == 2
    assert "holds no neighbours" in done.stderr
