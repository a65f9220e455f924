"""Rows by reference: whatever they come from, blocks hold the same rows."""

from __future__ import annotations

import pickle
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import croma_dask as cd
from croma_dask import fingerprint
from croma_dask.cohort import StoredCohort
from croma_dask.errors import SchemaError
from croma_dask.index.profile import check_profile, combine_profiles, profile_rows
from croma_dask.index.ranges import load_range, read_native
from croma_dask.index.source import (
    ArraySource,
    Codes,
    NpySource,
    RowSource,
    StoreSource,
    TakenRows,
    spool,
)
from croma_dask.kernels.frame import Frame
from tests.helpers.cohorts import manifest

N, D = 230, 5


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(N, D)).astype(np.float32)


@pytest.fixture(params=["array", "npy", "store", "spooled", "taken"])
def source(request: pytest.FixtureRequest, x: np.ndarray, tmp_path: Path) -> RowSource:
    if request.param == "array":
        return ArraySource(x, step=64)
    if request.param == "npy":
        np.save(tmp_path / "x.npy", x)
        return NpySource(str(tmp_path / "x.npy"), N, D, x.dtype)
    if request.param == "spooled":
        lazy = da.from_array(x, chunks=(33, 2))
        return spool(lazy, str(tmp_path / "rows.npy"), step=50)
    if request.param == "store":
        frame = manifest(np.arange(N) % 2, np.arange(N) // 2 % 2)
        cd.write_cohort(str(tmp_path / "c.zarr"), x, frame, chunk_rows=37)
        return StoreSource(StoredCohort(str(tmp_path / "c.zarr")))
    order = np.random.default_rng(1).permutation(N)
    return TakenRows(ArraySource(x[np.argsort(order)], step=41), order[np.arange(N)])


def test_blocks__are_the_rows(source: RowSource, x: np.ndarray) -> None:
    if isinstance(source, TakenRows):
        x = np.asarray(source.source.read(0, N))[source.rows]
    assert (source.n_rows, source.n_features) == (N, D)
    assert source.dtype == np.float32
    for lo, hi in ((0, N), (0, 1), (36, 38), (63, 129), (N - 1, N), (5, 5)):
        np.testing.assert_array_equal(source.read(lo, hi), x[lo:hi])
    np.testing.assert_array_equal(read_native(source, 10, 200), x[10:200])


def test_sources__travel_by_reference(source: RowSource, x: np.ndarray) -> None:
    sent = pickle.dumps(source)
    np.testing.assert_array_equal(pickle.loads(sent).read(30, 60), source.read(30, 60))
    if isinstance(source, NpySource | StoreSource):
        assert len(sent) < 2_000


def test_taken_rows__repeat_and_reorder(x: np.ndarray, rng: np.random.Generator) -> None:
    rows = rng.integers(0, N, 500)
    taken = TakenRows(ArraySource(x, step=16), rows)
    np.testing.assert_array_equal(taken.read(0, 500), x[rows])
    np.testing.assert_array_equal(taken.read(99, 101), x[rows[99:101]])


@pytest.mark.parametrize("dtype", ["f2", ">f4", "i2", "?"])
def test_read_native__converts_block_by_block(dtype: str, x: np.ndarray) -> None:
    raw = (x * 3).astype(dtype)
    found = read_native(ArraySource(raw, step=19), 7, 222, np.arange(215)[::-1])
    assert found.dtype == (np.float32 if dtype in ("f2", ">f4") else np.float64)
    ratio = found[::-1].astype(float)
    expected = raw[7:222].astype(float)
    same = ratio / np.where(np.abs(ratio).max(1) == 0, 1, np.abs(ratio).max(1))[:, None]
    other = expected / np.where(np.abs(expected).max(1) == 0, 1, np.abs(expected).max(1))[:, None]
    np.testing.assert_array_equal(same, other)


def test_load_range__sorts_by_cell_and_knows_the_way_back(
    x: np.ndarray, rng: np.random.Generator
) -> None:
    codes = Codes(*(rng.integers(0, k, N).astype(np.int32) for k in (3, 4, 50)))
    lo, hi = 40, 190
    found = load_range(ArraySource(x), codes.take(slice(lo, hi)), lo, hi, Frame(np.zeros(D)))
    assert len(found) == 150
    cell = found.label * 4 + found.confounder
    assert (np.diff(cell) >= 0).all()
    np.testing.assert_array_equal(found.x, x[found.position])
    np.testing.assert_array_equal(found.group, codes.group[found.position])
    np.testing.assert_array_equal(found.position[found.place], np.arange(lo, hi))
    for i in range(150):
        end = found.run_end[i]
        assert (cell[i:end] == cell[i]).all()
        assert end == 150 or cell[end] != cell[i]


# ---- the first pass --------------------------------------------------------------------------


def profile(x: np.ndarray, *cuts: int) -> object:
    edges = [0, *cuts, len(x)]
    parts = [
        profile_rows(ArraySource(x), a, b, digest=True)
        for a, b in zip(edges[:-1], edges[1:], strict=True)
    ]
    return combine_profiles(parts)


def test_profile__adds_up_over_spans(rng: np.random.Generator) -> None:
    """Spans begin on the grid of 4,096 rows; what they see together is what one span sees."""
    x = rng.normal(size=(9_000, 3))
    x[[3, 4_096, 8_999]] = 0.0
    whole, parts = profile(x), profile(x, 4_096, 8_192)
    for seen in (whole, parts):
        assert (seen.n_rows, seen.n_zero, seen.n_bad) == (9_000, 3, 0)
        assert seen.first_zero == [3, 4_096, 8_999]
        unit = x / np.where(x.any(axis=1), np.linalg.norm(x, axis=1), 1.0)[:, None]
        np.testing.assert_allclose(seen.mean, unit.mean(axis=0), rtol=0, atol=1e-14)
        digest = fingerprint.combine(seen.digests, x.shape, x.dtype)
        hasher = fingerprint.BlockHasher()
        hasher.update(x)
        assert digest == hasher.finish(x.shape, x.dtype)
    check_profile(parts)


@pytest.mark.parametrize("cuts", [(), (4_096,), (4_096, 8_192)])
def test_profile__finds_what_is_no_number_anywhere(
    cuts: tuple[int, ...], rng: np.random.Generator
) -> None:
    for rows in ([0], [8_999], [511, 512, 4_095, 4_096, 8_191, 8_192], list(range(100))):
        x = rng.normal(size=(9_000, 3)).astype(np.float32)
        x[rows, 1] = np.nan
        x[rows[-1], 2] = -np.inf
        seen = profile(x, *cuts)
        assert (seen.n_bad, seen.n_inf) == (len(rows), 1)
        assert seen.first_bad == rows[:5]
        with pytest.raises(SchemaError, match=f"{len(rows)} of 9000"):
            check_profile(seen)


def test_profile__two_spans_of_one_direction_each_are_not_collapsed() -> None:
    x = np.zeros((8_192, 2))
    x[:4_096, 0] = 1.0
    x[4_096:, 1] = 1.0
    check_profile(profile(x, 4_096))
    x[4_096:] = [2.0, 0.0]
    with pytest.raises(SchemaError, match="identical"):
        check_profile(profile(x, 4_096))


def test_profile__zero_rows_first_do_not_hide_a_collapse_or_make_one() -> None:
    x = np.zeros((4_500, 2))
    with pytest.raises(SchemaError, match="identical"):
        check_profile(profile(x, 4_096))
    x[4_200] = 1.0
    check_profile(profile(x, 4_096))
