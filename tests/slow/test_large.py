"""Ten million rows: what can be said of them without reading any."""

from __future__ import annotations

import time

import pytest

import croma_dask as cd
from benchmarks import large
from croma_dask.cohort.store import StoredCohort

pytestmark = pytest.mark.slow

N, D = 10_000_000, 1_024


def test_plan__of_ten_million_rows_comes_in_seconds(tmp_path, record_property):
    place = large.sparse_store(tmp_path, N, D)
    on_disk = sum(f.stat().st_blocks * 512 for f in tmp_path.rglob("*") if f.is_file())
    assert on_disk < 2e9, "the embedding is a hole"
    assert StoredCohort(place).n_samples == N
    started = time.perf_counter()
    plan = cd.plan(place, confounder="center", memory="8GB", threads=2)
    seconds = time.perf_counter() - started
    record_property("seconds", seconds)
    print(f"seconds: {seconds:.1f}\n{plan}")
    assert seconds < 60
    assert (plan.engine, plan.n_samples) == ("streamed", N)
    assert plan.n_tasks <= 4_000
    assert plan.peak_memory <= 8e9
    assert plan.bytes_read >= 4 * N * D
    assert plan.unscoreable[0].n_units == N


def test_plan__refuses_ten_million_rows_that_do_not_fit(tmp_path):
    place = large.sparse_store(tmp_path, N, D)
    with pytest.raises(cd.MemoryLimitError, match="manifest and results"):
        cd.plan(place, confounder="center", memory="1GB", threads=2)
