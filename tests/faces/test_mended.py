"""Defects of plan, saving and sizes that tests have found, each with what it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import memory
from croma_dask.cohort.align import Embedding
from croma_dask.index.spec import ListSpec
from croma_dask.layout import lay_out
from croma_dask.options import Options
from croma_dask.results import save
from tests.faces.conftest import make_cohort, make_paired

pytestmark = pytest.mark.filterwarnings("ignore:.*units")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return cd.write_cohort(tmp_path / "c.zarr", *make_cohort())


def test_save__netcdf_keeps_longer_strings(store: str, tmp_path: Path) -> None:
    """h5netcdf reads text as <U4 and remembers it: saving again cut what was longer."""
    result = cd.score(store, confounder="center", k_candidates=[15], m=1)
    save(result, tmp_path / "a.nc")
    with xr.open_datatree(tmp_path / "a.nc") as found:
        node = found["RI"].to_dataset().load()
    values = node["sample_id"].values.astype(object)
    values[3] = "longer than it was before"
    node["sample_id"] = node["sample_id"].copy(data=values)
    save(xr.DataTree.from_dict({"RI": node}), tmp_path / "b.nc")
    with xr.open_datatree(tmp_path / "b.nc") as found:
        assert found["RI"].sample_id.values[3] == "longer than it was before"


@pytest.mark.parametrize("engine", ["small", "streamed"])
def test_plan__terms_add_up_to_the_peak(engine: str, tmp_path: Path) -> None:
    """`libraries`, mostly the largest term, was missing from streamed plans."""
    place = cd.write_cohort(tmp_path / "l.zarr", *make_cohort(3_000))
    plan = cd.plan(
        place, confounder="center", threads=2, memory="390MB" if engine == "streamed" else "1GB"
    )
    assert sum(plan.memory_terms.values()) == plan.peak_memory


def test_refusal__names_the_libraries_where_they_are_the_largest() -> None:
    """Said "the largest term is 'transient'" (12 MB) where libraries take 336 of 382 MB."""
    with pytest.raises(cd.MemoryLimitError, match="largest term is 'libraries'"):
        memory.largest_range(memory.RangeCost(6, 4, 75, 4000), 1_000_000, 2, 0)


@pytest.mark.parametrize("size", ["1e400GB", ""])
def test_parse_bytes__refuses(size: str) -> None:
    """'1e400GB' was an OverflowError, '' was one byte."""
    with pytest.raises(cd.SchemaError):
        memory.parse_bytes(size)


def test_plan__bytes_read_is_what_is_read() -> None:
    """A range is read as the first of its pairs n_blocks + 1 times in two, not n_blocks times."""
    n = 3_000
    found = lay_out(
        Embedding(np.broadcast_to(np.float32(0), (n, 6)), None),
        n,
        ListSpec(21, 5),
        Options(memory="384MB"),
        n_tasks=2,
        fixed=0,
        streamed=True,
    )
    n_ranges = len(found.edges) - 1
    assert found.per_block == 1
    loads = n_ranges * (n_ranges + 1) // 2 + n_ranges * (n_ranges - 1) // 2 + 2 * n_ranges
    assert found.bytes_read == pytest.approx(loads / n_ranges * n * 6 * 4, rel=0.02)


def test_plan__scratch_of_all_streamed_subsets(tmp_path: Path) -> None:
    """Subsets keep their scratch until the end: the plan counted the largest alone."""
    x, frame = make_paired(2, 3_000)
    common = {"confounder": "center", "design": "paired_2x2", "memory": "392MB", "threads": 2}
    one = cd.plan(x[:3000], frame[:3000], **common)
    two = cd.plan(x, frame, **common)
    assert one.scratch_bytes > 0
    assert two.scratch_bytes == 2 * one.scratch_bytes
