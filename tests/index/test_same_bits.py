"""Engine, chunks, ranges, memory, threads and cluster leave every bit of a result alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import fingerprint, layout, memory
from croma_dask.cohort.align import Embedding
from croma_dask.index.neighbors import grid_rows
from croma_dask.index.spec import ListSpec
from croma_dask.options import Options
from tests.helpers.cohorts import Cohort, features, lattice_cohort, manifest
from tests.helpers.compare import assert_same_bits
from tests.helpers.engines import ENGINES, engine
from tests.helpers.marks import first

METRICS = ("RI", "MaRI", "CRoMa")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A scratch folder of the test's own; nothing is left in it."""
    folder = tmp_path / "scratch"
    with cd.set_options(scratch=str(folder)), warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        yield folder
    assert not folder.exists() or list(folder.iterdir()) == []


def score(cohort: Cohort, x: Any = None, **options: Any) -> dict[str, xr.Dataset]:
    x = cohort.x if x is None else x
    found = cd.score(
        x, None if isinstance(x, xr.Dataset | str) else cohort.frame,
        confounder="center", design=cohort.design, k_candidates=[3, 8], m=[1, 4], **options,
    )  # fmt: skip
    return {name: found[name].to_dataset() for name in METRICS}


def assert_all_same(found: dict[str, xr.Dataset], expected: dict[str, xr.Dataset]) -> None:
    for name in METRICS:
        assert_same_bits(found[name], expected[name])


def cohort_of(kind: str, n: int = 700) -> Cohort:
    rng = np.random.default_rng(7)
    if kind == "ties":
        return lattice_cohort(rng, n, n_features=3, reach=5, n_groups=n // 4, n_zero=3)
    if kind == "paired":
        cohort = lattice_cohort(rng, n, n_features=4, reach=4, n_subsets=3, n_groups=n // 3)
        # a sample in two subsets has one embedding: a tie between scopes, not within one
        return Cohort(cohort.x + 0.25, cohort.frame, "paired_2x2")
    label, confounder = rng.integers(0, 4, n), rng.integers(0, 3, n)
    x = features(rng, label, confounder, 24)
    if kind == "tight":
        x = 5.0 + 1e-4 * x
    frame = manifest(label, confounder, rng.integers(0, n // 2, n))
    return Cohort(x.astype(np.float32), frame)


KINDS = ["plain", "tight", "ties", "paired"]


@pytest.mark.filterwarnings("ignore:.*rows are zero")
@pytest.mark.parametrize("kind", first(2, KINDS))
def test_engines__have_the_same_bits(kind: str) -> None:
    cohort = cohort_of(kind)
    results = {}
    for name in ENGINES:
        with engine(name, range_rows=130) as used:
            results[name] = score(cohort)
        assert used == {name}
    assert_all_same(results["direct"], results["small"])
    assert_all_same(results["streamed"], results["small"])


@pytest.mark.filterwarnings("ignore:.*rows are zero")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("range_rows", first(2, [64, 699, 130, 350, 700]))
def test_ranges__have_the_same_bits(kind: str, range_rows: int) -> None:
    cohort = cohort_of(kind)
    with engine("small"):
        expected = score(cohort)
    with engine("streamed", range_rows=range_rows):
        assert_all_same(score(cohort, threads=2), expected)


@pytest.mark.filterwarnings("ignore:.*rows are zero")
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_metric_alone__has_the_bits_it_has_in_company(kind: str, name: str) -> None:
    """CRoMa alone searches no global list and multiplies fewer pairs; RI alone no typed one."""
    cohort = cohort_of(kind)
    with engine("small"):
        expected = score(cohort)
    common = {"confounder_column": "center", "evaluation_design": cohort.design}
    with engine(name, range_rows=130):
        croma = cd.CRoMa.compute(cohort.x, cohort.frame, m=[1, 4], **common)
        ri = cd.RI.compute(cohort.x, cohort.frame, k_candidates=[3, 8], **common)
        mari = cd.MaRI.compute(cohort.x, cohort.frame, k_candidates=[3, 8], **common)
    assert_all_same({"CRoMa": croma, "RI": ri, "MaRI": mari}, expected)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("name", ["direct", "streamed"])
def test_threads__have_the_same_bits(name: str, threads: int) -> None:
    cohort = cohort_of("plain")
    with engine("small"):
        expected = score(cohort)
    with engine(name, range_rows=100):
        assert_all_same(score(cohort, threads=threads), expected)


def test_blocks_of_the_sums__do_not_follow_the_ranges() -> None:
    """More rows than one block of the grid on which float sums are made."""
    assert grid_rows(8) == fingerprint.BLOCK_ROWS == 4096, "another grid is another result"
    cohort = cohort_of("plain", 4_500)
    results = []
    for name, rows in (("direct", 0), ("streamed", 1_000), ("streamed", 1_700)):
        with engine(name, range_rows=rows):
            results.append(score(cohort))
    assert_all_same(results[1], results[0])
    assert_all_same(results[2], results[0])


def test_several_ranges_a_task__have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = cohort_of("ties")
    with engine("streamed", range_rows=50), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = score(cohort)
        monkeypatch.setattr(layout, "MOST_TASKS", 12)
        cut = layout.lay_out(
            Embedding(cohort.x, None), 700, ListSpec(8, 4), Options(), n_tasks=1, fixed=0
        )
        assert cut.per_block > 2
        assert cut.n_tasks <= 12
        assert_all_same(score(cohort), expected)


def test_memory__changes_the_ranges_and_no_bit() -> None:
    """From just enough for the smallest ranges to enough for one."""
    cohort = cohort_of("plain", 3_000)
    with engine("small"):
        expected = score(cohort)
    embedding, spec = Embedding(cohort.x, None), ListSpec(8, 4)
    fixed = memory.manifest_bytes(3_000, n_scores=11)
    cost = layout.range_cost(embedding, spec.clipped(3_000))
    counts = []
    for rows in (memory.SMALLEST_RANGE, 700, 1_500):
        limit = memory.streamed_bytes(cost, rows + 1, 1, fixed)
        cut = layout.lay_out(
            embedding, 3_000, spec, Options(memory=limit), n_tasks=1, fixed=fixed, streamed=True
        )
        counts.append(len(cut.edges) - 1)
        assert cut.peak <= limit
        with engine("streamed"):
            assert_all_same(score(cohort, memory=limit, threads=1), expected)
    assert counts == sorted(set(counts), reverse=True)
    assert counts[0] >= 10
    with engine("streamed"), pytest.raises(cd.MemoryLimitError, match="memory="):
        score(cohort, memory="60MB", threads=1)


CHUNKS: list[Any] = [700, 100, 64, (1, 298, 1, 400), (699, 1)]


@pytest.mark.filterwarnings("ignore:.*rows are zero")
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
def test_dask_chunks__have_the_same_bits(chunks: Any, name: str) -> None:
    cohort = cohort_of("ties")
    with engine("small"):
        expected = score(cohort)
    lazy = da.from_array(cohort.x, chunks=(chunks, 2))
    with engine(name, range_rows=130):
        assert_all_same(score(cohort, lazy), expected)


@pytest.mark.filterwarnings("ignore:.*rows are zero")
@pytest.mark.parametrize("chunk_rows", first(2, [37, 4096, 1, 128, 350]))
def test_store_chunks__have_the_same_bits(chunk_rows: int, tmp_path: Path) -> None:
    cohort = cohort_of("ties")
    with engine("small"):
        expected = score(cohort)
    path = str(tmp_path / "cohort.zarr")
    cd.write_cohort(path, cohort.x, cohort.frame, chunk_rows=chunk_rows)
    for name in ("small", "streamed"):
        with engine(name, range_rows=130):
            assert_all_same(score(cohort, cd.open_cohort(path)), expected)
            assert_all_same(score(cohort, path), expected)


@pytest.mark.parametrize("name", ENGINES)
def test_a_tile_map__has_the_bits_of_the_expanded_rows(name: str, tmp_path: Path) -> None:
    """A paired store keeps each tile once; expanded in memory the same rows score the same."""
    rng = np.random.default_rng(3)
    pool = features(rng, np.arange(300) % 2, np.arange(300) // 2 % 2, 5)
    parts = [rng.choice(300, 220, replace=False) for _ in range(3)]
    tile = np.concatenate(parts)
    frame = manifest(
        tile % 2, tile // 2 % 2, tile // 3, subset=np.repeat(["a", "b", "c"], 220),
        sample_id=[f"t{i}" for i in tile],
    )  # fmt: skip
    cohort = Cohort(pool[tile], frame, "paired_2x2")
    path = str(tmp_path / "cohort.zarr")
    cd.write_cohort(path, cohort.x, frame)
    with engine(name, range_rows=90):
        stored, plain = score(cohort, path), score(cohort)
    for name_ in METRICS:
        assert stored[name_].attrs["n_tiles"] < plain[name_].attrs["n_tiles"] == 660
        for result in (stored, plain):
            # two different arrays, so two fingerprints
            for attr in ("n_tiles", "embedding_fingerprint"):
                del result[name_].attrs[attr]
    assert_all_same(stored, plain)


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore:.*rows are zero")
@pytest.mark.parametrize("kind", first(0, ["paired", "ties"]))
def test_two_processes__have_the_same_bits(kind: str, cluster_client: Any, tmp_path: Path) -> None:
    cohort = cohort_of(kind)
    with engine("small"):
        expected = score(cohort)
    path = str(tmp_path / "cohort.zarr")
    cd.write_cohort(path, cohort.x, cohort.frame, chunk_rows=128)
    stored = score(cohort, path)
    with engine("streamed", range_rows=130), cluster_client.as_current():
        assert_all_same(score(cohort), expected)
        assert_all_same(score(cohort, path), stored)
