"""The neighbours of one sample are those of a brute force, with the distances of the scores."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import croma_dask as cd
from croma_dask.breakdown import row_lists
from croma_dask.schema_breakdown import EXPLANATION, EXPLANATION_COORDINATES
from tests.helpers.cohorts import Cohort, lattice_cohort, manifest, random_cohort
from tests.helpers.oracle import SAME, distances

K, M = [3, 9], [2, 4]


def score(cohort: Cohort, **more: Any) -> xr.DataTree:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cd.score(
            cohort.x, cohort.frame, confounder="center", design=cohort.design, k_candidates=K, m=M,
            **more,
        )  # fmt: skip


def small(seed: int) -> Cohort:
    return random_cohort(seed, least=70, most=110)


def told_by_force(cohort: Cohort, row: int, k: int, m: int) -> list[dict[str, Any]]:
    """Neighbours as the specification lists them, in loops."""
    frame = cohort.frame
    mine = range(len(frame))
    if cohort.design == "paired_2x2":
        mine = [j for j in mine if frame["subset"][j] == frame["subset"][row]]
    d = distances(np.asarray(cohort.x)[list(mine)])[list(mine).index(row)]
    candidates = sorted(
        (float(d[at]), j)
        for at, j in enumerate(mine)
        if frame["group_id"][j] != frame["group_id"][row]
    )
    found, seen = [], {"SO": 0, "OS": 0}
    for rank, (distance, j) in enumerate(candidates, start=1):
        same = tuple(bool(frame[c][j] == frame[c][row]) for c in ("label", "center"))
        kind = SAME[same]
        typed = 0
        if kind in seen:
            seen[kind] += 1
            typed = seen[kind]
        if rank <= k or 1 <= typed <= m:
            found.append(
                {
                    "neighbor_id": frame["sample_id"][j], "label": frame["label"][j],
                    "confounder": frame["center"][j], "group_id": frame["group_id"][j],
                    "kind": kind, "distance": distance, "neighbor_rank": rank, "typed_rank": typed,
                    "manifest_row": j,
                }
            )  # fmt: skip
    return found


def assert_told(found: xr.Dataset, expected: list[dict[str, Any]], *, exact: bool = False) -> None:
    assert found.sizes["neighbor"] == len(expected)
    for name in expected[0] if expected else ():
        values = [row[name] for row in expected]
        if name == "distance":
            np.testing.assert_allclose(found[name], values, rtol=0, atol=0 if exact else 1e-13)
        else:
            assert found[name].values.tolist() == values, name


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_explain__equals_brute_force_and_the_result(seed: int, tmp_path: Path) -> None:
    cohort = small(seed)
    result = score(cohort, keep_neighbors=tmp_path / "kept")
    k, tau = int(result["RI"].k), float(result["MaRI"].tau)
    values = {name: result[name]["sample_values"] for name in ("RI", "MaRI")}
    frame = cohort.frame
    for row in range(0, len(frame), len(frame) // 5):
        subset = {"subset": frame["subset"][row]} if "subset" in frame else {}
        for m in M:
            how: dict[str, Any] = {"manifest": frame, "k": k, "m": m, "tau": tau, **subset}
            found = cd.explain(
                cohort.x, frame["sample_id"][row], neighbors=tmp_path / "kept", **how
            )
            again = cd.explain(cohort.x, frame["sample_id"][row], confounder="center", **how)
            xr.testing.assert_equal(found, again)
            assert_told(found, told_by_force(cohort, row, k, m))
            assert again.attrs["neighbors"] == "searched"
            margin = result["CRoMa"]["sample_values"].sel(m=m).values[row]
            np.testing.assert_array_equal(found["margin"], margin)
            np.testing.assert_array_equal(found["ri"], values["RI"].values[row])
            np.testing.assert_allclose(found["mari"], values["MaRI"].values[row], atol=1e-12)
            if margin == margin:
                d_so, d_os = float(found["d_so"]), float(found["d_os"])
                assert (d_os - d_so) / (d_os + d_so) == margin
                mine = found["distance"].values[
                    (found["kind"].values == "SO") & (found["typed_rank"].values <= m)
                ]
                assert mine.size == m
                assert d_so == pytest.approx(mine.mean(), abs=1e-13)


def test_explain__kept_lists_spare_the_pass_where_they_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = small(1)
    place = cd.write_cohort(tmp_path / "cohort.zarr", cohort.x, cohort.frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cd.score(
            place, confounder="center", k_candidates=[60], m=1, keep_neighbors=tmp_path / "kept"
        )
    row = 9
    kinds = [told["kind"] for told in told_by_force(cohort, row, 60, 0)]
    assert {"SO", "OS"} <= set(kinds)
    found = cd.explain(place, cohort.frame["sample_id"][row], neighbors=tmp_path / "kept")
    assert found.attrs["neighbors"] == "kept"
    assert (int(found["k"]), int(found["m"])) == (60, 1)
    assert found.attrs["sample_label"] == cohort.frame["label"][row]
    assert found.attrs["sample_manifest_row"] == row
    further = cd.explain(
        place, cohort.frame["sample_id"][row], neighbors=tmp_path / "kept", k=65, m=3
    )
    assert further.attrs["neighbors"] == "kept, searched"
    assert_told(further, told_by_force(cohort, row, 65, 3))

    def refuse(*_: Any) -> Any:
        raise AssertionError("the embedding was read")

    monkeypatch.setattr(row_lists, "_distances", refuse)
    xr.testing.assert_identical(
        found, cd.explain(place, cohort.frame["sample_id"][row], neighbors=tmp_path / "kept")
    )


def test_explain__kept_lists_of_all_types_serve_another_confounder(tmp_path: Path) -> None:
    cohort = small(1)
    score(cohort, keep_neighbors=tmp_path / "kept")
    frame = cohort.frame.assign(scanner=np.where(np.arange(len(cohort)) % 3, "a", "b"))
    found = cd.explain(
        cohort.x, frame["sample_id"][8], manifest=frame, neighbors=tmp_path / "kept",
        confounder="scanner", m=2,
    )  # fmt: skip
    other = Cohort(cohort.x, frame.assign(center=frame["scanner"]))
    assert_told(found, told_by_force(other, 8, max(K), 2))
    assert found["confounder"].attrs["column"] == "scanner"


@pytest.mark.parametrize("seed", [0, 1])
def test_explain__ties_duplicates_and_zero_rows(seed: int, rng: np.random.Generator) -> None:
    cohort = lattice_cohort(rng, 60, n_groups=20 if seed else None, n_zero=2)
    zero = int(np.flatnonzero(~cohort.x.any(axis=1))[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = cd.score(cohort.x, cohort.frame, confounder="center", metrics="CRoMa", m=3)
    for row in (0, 17, zero):
        found = cd.explain(
            cohort.x, cohort.frame["sample_id"][row], manifest=cohort.frame, confounder="center",
            k=20, m=3,
        )  # fmt: skip
        assert_told(found, told_by_force(cohort, row, 20, 3), exact=True)
        np.testing.assert_array_equal(found["margin"], result["CRoMa"]["sample_values"][row])


@pytest.mark.parametrize("dtype", ["float16", "float32", ">f8", "int32"])
def test_explain__lists_are_the_same_however_rows_are_stored(dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    x = (rng.normal(size=(90, 70)) * 40).astype(dtype)
    at = np.arange(90)
    frame = manifest(at % 2, at // 2 % 3)
    expected = told_by_force(Cohort(x, frame), 11, 12, 4)
    how: dict[str, Any] = {"confounder": "center", "k": 12, "m": 4}
    chunked = da.from_array(x, chunks=(17, 70))
    first = cd.explain(x, "s0011", manifest=frame, **how)
    assert_told(first, expected)
    xr.testing.assert_equal(first, cd.explain(chunked, "s0011", manifest=frame, **how))
    if dtype == "float32":
        place = cd.write_cohort(tmp_path / "c.zarr", x, frame, chunk_rows=13)
        for cohort in (place, cd.open_cohort(place), cd.open_cohort(place).isel(sample=slice(90))):
            xr.testing.assert_equal(first, cd.explain(cohort, "s0011", **how))


def test_explain__of_a_store_that_keeps_repeated_tiles_once(tmp_path: Path) -> None:
    cohort = small(2)
    place = cd.write_cohort(tmp_path / "c.zarr", cohort.x, cohort.frame)
    repeated = cohort.frame["sample_id"].value_counts()
    several = repeated.index[repeated > 1][0]
    names = cohort.frame["subset"][cohort.frame["sample_id"] == several].tolist()
    with pytest.raises(cd.SchemaError, match=rf"occurs in {len(names)} subsets .*--subset"):
        cd.explain(place, several, confounder="center", design="paired_2x2")
    for name in names:
        row = int(
            np.flatnonzero(
                (cohort.frame["sample_id"] == several) & (cohort.frame["subset"] == name)
            )[0]
        )
        found = cd.explain(place, several, confounder="center", subset=name, k=7, m=2)
        assert_told(found, told_by_force(cohort, row, 7, 2))
        assert found.attrs["sample_subset"] == name
    with pytest.raises(cd.SchemaError, match=r"does not occur in the subset 'none', but in 'set"):
        cd.explain(place, several, confounder="center", subset="none")


def test_explain__fewer_candidates_than_asked_for() -> None:
    x = np.eye(4)
    frame = manifest([0, 0, 1, 1], [0, 1, 0, 1])
    found = cd.explain(x, "s0000", manifest=frame, confounder="center", k=9, m=2)
    assert found["kind"].values.tolist() == ["SO", "OS", "OO"]
    assert (int(found["n_candidates"]), int(found["n_so"]), int(found["n_os"])) == (3, 1, 1)
    assert np.isnan([found["d_so"], found["d_os"], found["margin"], found["mari"]]).all()
    assert float(found["ri"]) == 0.5
    alone = manifest([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1])
    one = cd.explain(x, "s0000", manifest=alone, confounder="center")
    assert one["kind"].values.tolist() == ["OO"]
    assert np.isnan(float(one["ri"]))


def test_explain__refuses_neighbours_of_something_else(tmp_path: Path) -> None:
    cohort = small(1)
    score(cohort, keep_neighbors=tmp_path / "kept")
    frame, first = cohort.frame, cohort.frame["sample_id"][0]
    how: dict[str, Any] = {"neighbors": tmp_path / "kept"}
    with pytest.raises(cd.StoreError, match="are of another embedding: they say nothing"):
        cd.explain(cohort.x * 2, first, manifest=frame, **how)
    with pytest.raises(cd.StoreError, match="of other rows or groups"):
        cd.explain(cohort.x, first, manifest=frame.assign(group_id=frame["sample_id"]), **how)
    with pytest.raises(cd.StoreError, match="there is nothing here; score with keep_neighbors"):
        cd.explain(cohort.x, first, manifest=frame, neighbors=tmp_path / "nowhere")
    shutil.copytree(tmp_path / "kept", tmp_path / "damaged")
    stored = zarr.open_group(tmp_path / "damaged", mode="r+", use_consolidated=False)
    stored["neighbor_distance"][0, 0] = 0.5
    with pytest.raises(cd.StoreError, match=r"damaged is damaged.*remove the folder"):
        cd.explain(cohort.x, first, manifest=frame, neighbors=tmp_path / "damaged", k=40)
    shutil.copytree(tmp_path / "kept", tmp_path / "typed")
    stored = zarr.open_group(tmp_path / "typed", mode="r+", use_consolidated=False)
    stored["so_distance"][0, 0] = 0.5
    with pytest.raises(cd.StoreError, match=r"typed is damaged"):
        cd.explain(cohort.x, first, manifest=frame, neighbors=tmp_path / "typed")


def test_explain__needs_a_confounder(tmp_path: Path) -> None:
    cohort = small(1)
    first = cohort.frame["sample_id"][0]
    with pytest.raises(cd.SchemaError, match="--confounder"):
        cd.explain(cohort.x, first, manifest=cohort.frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cd.score(
            cohort.x, cohort.frame, confounder="center", metrics="RI", k_candidates=[4],
            keep_neighbors=tmp_path / "kept",
        )  # fmt: skip
    how: dict[str, Any] = {"manifest": cohort.frame, "neighbors": tmp_path / "kept"}
    with pytest.raises(cd.SchemaError, match="kept, for any confounder"):
        cd.explain(cohort.x, first, **how)
    assert_told(
        cd.explain(cohort.x, first, confounder="center", **how), told_by_force(cohort, 0, 4, 5)
    )


def test_explain__of_typed_lists_alone_reads_the_embedding_and_compares(tmp_path: Path) -> None:
    cohort = small(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cd.score(
            cohort.x, cohort.frame, confounder="center", metrics="CRoMa", m=6,
            keep_neighbors=tmp_path / "kept",
        )  # fmt: skip
    how: dict[str, Any] = {"manifest": cohort.frame, "neighbors": tmp_path / "kept"}
    found = cd.explain(cohort.x, cohort.frame["sample_id"][30], **how)
    assert found.attrs["neighbors"] == "kept, searched"
    assert_told(found, told_by_force(cohort, 30, 51, 6))


def test_explain__names_ids_like_an_unknown_one() -> None:
    cohort = small(1)
    how: dict[str, Any] = {"manifest": cohort.frame, "confounder": "center"}
    with pytest.raises(cd.SchemaError, match=r"no sample 's00012' .*did you mean 's0012'"):
        cd.explain(cohort.x, "s00012", **how)
    with pytest.raises(cd.SchemaError, match=r"no sample '\?' .*the first are 's0000', 's0001'"):
        cd.explain(cohort.x, "?", **how)
    twice = cohort.frame.assign(sample_id=["same"] * len(cohort))
    with pytest.raises(cd.SchemaError, match=r"'same' is in rows 0, 1, .*paired_2x2"):
        cd.explain(cohort.x, "same", manifest=twice, confounder="center")
    with pytest.raises(cd.SchemaError, match="the design 'all' has none"):
        cd.explain(cohort.x, "s0001", design="all", subset="a", **how)
    for wrong in ({"k": 0}, {"m": 0}, {"tau": 0.0}, {"k": 1.5}):
        with pytest.raises(cd.SchemaError, match=next(iter(wrong))):
            cd.explain(cohort.x, "s0001", **how, **wrong)


def test_explain__of_a_skipped_subset_and_of_broken_rows() -> None:
    rng = np.random.default_rng(1)
    at = np.arange(20)
    label = np.where(at < 16, at % 2, 0)
    frame = manifest(label, at // 2 % 2, subset=np.where(at < 16, "whole", "broken"))
    x = rng.normal(size=(20, 3))
    how: dict[str, Any] = {"manifest": frame, "confounder": "center", "design": "paired_2x2"}
    with pytest.warns(cd.SupportWarning), pytest.raises(cd.SchemaError, match="was skipped"):
        cd.explain(x, "s0019", skip_incomplete=True, **how)
    x[3] = np.nan
    frame = frame.drop(columns="subset").assign(label=at % 2)
    with pytest.raises(cd.SchemaError, match="NaN or inf"):
        cd.explain(x, "s0001", manifest=frame, confounder="center")


def test_schema__every_variable_is_declared() -> None:
    cohort = small(1)
    found = cd.explain(cohort.x, "s0001", manifest=cohort.frame, confounder="center", tau=0.2)
    assert list(found.data_vars) == list(EXPLANATION)
    assert set(found.coords) == set(EXPLANATION_COORDINATES)
    for name, declared in {**EXPLANATION, **EXPLANATION_COORDINATES}.items():
        assert found[name].dims == declared.dims
        assert found[name].dtype.kind == declared.kind
        assert found[name].attrs["long_name"] == declared.long_name
        assert not hasattr(xr.Dataset(), name)
        assert ("units" in found[name].attrs) == (declared.kind != "O")


@pytest.mark.slow
def test_explain__compiled_distances_are_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(3000, 130)).astype(np.float32)
    at = np.arange(3000)
    frame = manifest(at % 3, at // 3 % 2)
    how: dict[str, Any] = {"manifest": frame, "confounder": "center"}
    for rows in (x, x.astype(np.float64)):
        monkeypatch.setattr(row_lists, "_IN_NUMPY", 1 << 40)
        expected = cd.explain(rows, "s0042", **how)
        monkeypatch.setattr(row_lists, "_IN_NUMPY", 0)
        xr.testing.assert_identical(expected, cd.explain(rows, "s0042", **how))
