"""Defects that a review has found, each with what it was."""

from __future__ import annotations

import dataclasses
import importlib
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.index.scratch import Scratch
from croma_dask.index.source import ArraySource, TakenRows
from croma_dask.robustness.statistics import GridSum
from tests.helpers.cohorts import manifest
from tests.helpers.compare import assert_same_bits
from tests.helpers.engines import engine

pytestmark = pytest.mark.filterwarnings("ignore:.*units")


def cohort(n: int = 400, d: int = 8) -> tuple[np.ndarray, object]:
    rng = np.random.default_rng(5)
    frame = manifest(rng.integers(0, 3, n), rng.integers(0, 2, n), rng.integers(0, 40, n))
    return rng.normal(size=(n, d)), frame


def test_dataarray_with_ids__is_matched_by_id() -> None:
    x, frame = cohort()
    rows = xr.DataArray(
        x, dims=("sample", "feature"), coords={"sample_id": ("sample", frame["sample_id"])}
    )
    shuffled = frame.sample(frac=1, random_state=0)
    common = {"confounder_column": "center", "k_candidates": [5, 11]}
    found = cd.RI.compute(rows, shuffled, **common)
    expected = cd.RI.compute(x[shuffled.index], shuffled, **common)
    assert found.sample_id.values.tolist() == shuffled["sample_id"].tolist()
    for name in ("value", "sample_values", "curve"):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-12)
    with pytest.raises(cd.SchemaError, match="400|1 only in the embedding"):
        cd.RI.compute(rows, shuffled.iloc[1:], **common)


def test_frame_indexed_by_id__is_matched_by_id() -> None:
    x, frame = cohort()
    rows = frame[["sample_id"]].join(pd.DataFrame(x)).set_index("sample_id")
    shuffled = frame.sample(frac=1, random_state=1)
    common = {"confounder_column": "center", "k_candidates": [5]}
    found = cd.RI.compute(rows, shuffled, **common)
    expected = cd.RI.compute(x, frame, **common)
    assert float(found.value) == float(expected.value)


@pytest.mark.parametrize("name", ["small", "direct", "streamed"])
@pytest.mark.parametrize("outlier", ["zero", "antipode"])
def test_one_outlier__does_not_send_everybody_to_the_second_look(name: str, outlier: str) -> None:
    rng = np.random.default_rng(1)
    x = (1.0 + 1e-3 * rng.normal(size=(600, 64))).astype(np.float32)
    x[17] = 0.0 if outlier == "zero" else -1.0
    frame = manifest(rng.integers(0, 3, 600), rng.integers(0, 2, 600), rng.integers(0, 60, 600))

    search = importlib.import_module("croma_dask.search")
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch, engine(name, range_rows=250):
        real = search.Found

        def watched(*args: object, **kwargs: object) -> object:
            found = real(*args, **kwargs)
            seen.append(sum(n.n_second_look for n in found.neighbors))
            return found

        patch.setattr(search, "Found", watched)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cd.InputWarning)
            cd.score(x, frame, confounder="center", k_candidates=[5])
    assert seen[0] <= 5


def test_tile_map__reads_every_chunk_once() -> None:
    rng = np.random.default_rng(0)
    reads: list[int] = []

    class Counting(ArraySource):
        def read(self, lo: int, hi: int) -> np.ndarray:
            reads.append(hi - lo)
            return super().read(lo, hi)

    x = rng.normal(size=(4_000, 3))
    rows = rng.permutation(4_000)[:2_000]
    taken = TakenRows(Counting(x, step=100), rows)
    assert np.array_equal(taken.read(0, 2_000), x[rows])
    assert len(reads) == 40
    assert sum(reads) <= 4_000


@pytest.mark.parametrize("cuts", [[10_000], [1, 4_095, 5_904], [3_000, 3_000, 4_000]])
def test_grid_sum__does_not_depend_on_the_cuts(cuts: list[int]) -> None:
    values = np.random.default_rng(2).normal(size=10_000)
    total, at = GridSum(), 0
    for cut in cuts:
        total.add(values[at : at + cut])
        at += cut
    grid = [values[lo : lo + 4096].sum() for lo in range(0, 10_000, 4096)]
    assert total.value() == grid[0] + grid[1] + grid[2]


def test_a_damaged_generation__falls_back_to_the_one_before(tmp_path: object) -> None:
    scratch = Scratch(str(tmp_path))
    for count in (1, 2):
        scratch.write_lists(0, {"met": np.arange(3) < count, "keys": np.zeros(2)})
    newest = sorted((tmp_path / "range-00000").glob("lists-*"))[-1]  # type: ignore[operator]
    newest.write_bytes(newest.read_bytes()[:40])
    assert scratch.met(0, 3).tolist() == [True, False, False]


def test_subsets__that_spill_give_the_same_bits(tmp_path: object) -> None:
    rng = np.random.default_rng(3)
    n = 40 * 60
    at = np.arange(n)
    frame = manifest(at % 2, at // 2 % 2, at // 4, subset=[f"s{i // 60:02d}" for i in at])
    x = rng.normal(size=(n, 4))
    common = {"confounder": "center", "design": "paired_2x2", "k_candidates": [5, 11]}
    kept = cd.score(x, frame, **common)

    layout = importlib.import_module("croma_dask.layout")
    search = importlib.import_module("croma_dask.search")
    real = layout.lay_out_batches

    def spilling(*args: object, **kwargs: object) -> object:

        return dataclasses.replace(real(*args, **kwargs), spill=True, rows=300)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "lay_out_batches", spilling)
        spilled = cd.score(x, frame, scratch=str(tmp_path), **common)
    for name in kept.children:
        assert_same_bits(spilled[name].to_dataset(), kept[name].to_dataset())
    assert list(tmp_path.iterdir()) == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(("nested", "kind", "value"), [("center", "OS", 1), ("label", "SO", 0)])
def test_a_design_that_decides_ri__is_told(nested: str, kind: str, value: int) -> None:
    x, _ = cohort(240)
    at = np.arange(240)
    frame = (
        manifest(at % 3, at // 8 % 4, at // 8 % 4)
        if nested == "center"
        else manifest(at % 4, at % 4 // 2, at // 12)
    )
    with pytest.warns(cd.SupportWarning, match=f"single {kind} candidate"):
        found = cd.RI.compute(x, frame, confounder_column="center", k_candidates=[20])
    assert float(found.value) == value


def test_results__tell_manifests_apart() -> None:
    x, frame = cohort()
    other = frame.copy()
    other.loc[:9, "label"] = "2"
    marks = [
        cd.RI.compute(x, f, confounder_column="center", k_candidates=[5]).attrs[
            "manifest_fingerprint"
        ]
        for f in (frame, other)
    ]
    assert marks[0] != marks[1]
