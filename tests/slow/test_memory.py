"""Peaks that were measured, of whole processes, against what `plan` said before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from benchmarks import cohorts, memory, streamed
from croma_dask.cohort.store import StoredCohort

pytestmark = pytest.mark.slow

N, D = 24_000, 1_024
"""More rows than are ever searched in memory."""

FEW = 10_000
"""Rows that the smallest memory streams all the same, in ranges of 256."""

MB = 1_000_000


@pytest.fixture(autouse=True, scope="module")
def _small_machine_s_threads() -> Iterator[None]:
    """Two tasks at once, wherever this runs: each more takes its own share of the memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "CHILD", memory.CHILD.replace("memory=sys", "threads=2, memory=sys"))
        yield


def smallest(place: str, **options: str) -> str:
    """The least memory that a plan allows, as the refusal names it."""
    with pytest.raises(cd.MemoryLimitError) as refusal:
        cd.plan(place, confounder="center", memory=1, threads=2, **options)
    found = re.search(r"at least ([\d.]+) MB", str(refusal.value))
    assert found is not None
    return f"{int(float(found[1])) + 1}MB"


def check(place: str, allowed: str, folder: Path, record_property) -> tuple[float, float]:
    """Score in a process of its own: what it took stays below what plan said."""
    planned, peak, said, took, n_ranges = memory.measure(place, allowed, str(folder / "scratch"))
    for name, value in (
        ("allowed", allowed), ("planned MB", planned / MB), ("measured MB", peak / MB),
        ("planned s", said), ("measured s", took), ("ranges", n_ranges),
    ):  # fmt: skip
        record_property(name, value)
        print(f"{name}: {value}")
    assert peak <= planned
    assert planned <= float(allowed.removesuffix("MB")) * MB
    return peak, n_ranges


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    return streamed.store(tmp_path_factory.mktemp("float32"), N, D)


def test_peak__in_the_smallest_memory_that_a_plan_allows(tmp_path, record_property):
    place = streamed.store(tmp_path, FEW, D)
    peak, n_ranges = check(place, smallest(place), tmp_path, record_property)
    assert n_ranges > 30
    assert peak < 512 * MB


def test_peak__in_512_mb(place, tmp_path, record_property):
    peak, n_ranges = check(place, "512MB", tmp_path, record_property)
    assert n_ranges > 1
    assert peak < 512 * MB


@pytest.mark.parametrize("n", [2_000, FEW])
def test_peak__of_what_is_held_in_memory(n, tmp_path, record_property):
    _, n_ranges = check(streamed.store(tmp_path, n, D), "1000MB", tmp_path, record_property)
    assert n_ranges == 1


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_peak__of_other_dtypes(dtype, tmp_path, record_property):
    """float64: a chunk of 4,096 rows counts 100 MB while it is read, so 512 MB are too little."""
    frame = cohorts.manifest(N)
    rows = cohorts.embedding(frame, D).astype(dtype)
    place = cd.write_cohort(tmp_path / "cohort.zarr", rows, frame)
    del rows
    allowed = "512MB" if dtype == "float16" else "700MB"
    _, n_ranges = check(place, allowed, tmp_path, record_property)
    assert n_ranges > 1


def paired_store(folder: Path, n_subsets: int, rows: int, n_tiles: int) -> str:
    """Complete 2x2 subsets that draw their tiles from one pool, in any order."""
    rng = np.random.default_rng(0)
    pool = cohorts.manifest(n_tiles)
    cell = np.arange(n_tiles) % 4
    tile = np.concatenate(
        [
            rng.permutation(
                np.concatenate(
                    [rng.choice(np.flatnonzero(cell == c), rows // 4, replace=False)
                     for c in range(4)]
                )
            )
            for _ in range(n_subsets)
        ]
    )  # fmt: skip
    frame = pd.DataFrame(
        {
            "sample_id": pool["sample_id"].to_numpy()[tile],
            "label": np.char.add("label-", (cell[tile] // 2).astype(str)),
            "center": np.char.add("center-", (cell[tile] % 2).astype(str)),
            "group_id": tile,
            "subset": np.repeat([f"set-{i:04d}" for i in range(n_subsets)], rows),
        }
    )
    used = np.unique(tile)
    values = xr.DataArray(
        cohorts.embedding(pool, D)[used], dims=("sample", "feature"),
        coords={"sample_id": ("sample", pool["sample_id"].to_numpy().astype(object)[used])},
    )  # fmt: skip
    return cd.write_cohort(folder / "cohort.zarr", values, frame)


@pytest.mark.parametrize(("n_subsets", "rows", "streams"), [(2, 14_000, True), (300, 100, False)])
def test_peak__of_a_paired_store_with_a_tile_map(
    n_subsets, rows, streams, tmp_path, record_property, monkeypatch
):
    """Large subsets are streamed each by itself; small ones go side by side, in batches."""
    monkeypatch.setattr(
        memory, "CHILD",
        memory.CHILD.replace('confounder="center"', 'confounder="center", design="paired_2x2"'),
    )  # fmt: skip
    place = paired_store(tmp_path, n_subsets, rows, 20_000)
    assert StoredCohort(place).n_tiles < n_subsets * rows, "tiles repeat"
    peak, n_ranges = check(place, "512MB", tmp_path, record_property)
    assert (n_ranges > 1) == streams
    assert peak < 512 * MB
