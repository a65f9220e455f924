"""From screened entries to exact lists, and the second look, against sorting."""

from __future__ import annotations

import numpy as np
import pytest

from croma_dask.index.ranges import load_range
from croma_dask.index.source import ArraySource, Codes
from croma_dask.index.spec import ListSpec
from croma_dask.kernels import dots_numpy
from croma_dask.kernels.band import insert, scan_band
from croma_dask.kernels.frame import Frame
from croma_dask.kernels.order import nearest_first
from croma_dask.kernels.rerank import collect_pairs, find, spread


@pytest.mark.parametrize("room", [1, 3, 8])
def test_insert__keeps_the_least_by_distance_and_row(room: int, rng: np.random.Generator) -> None:
    distance, row = np.full(room, np.nan), np.full(room, -1, np.int32)
    offered: list[tuple[float, int]] = []
    n = 0
    for candidate in rng.permutation(40):
        d = float(rng.integers(0, 4))  # many ties
        offered.append((d, int(candidate)))
        n = insert(distance, row, n, d, int(candidate))
        kept = sorted(offered)[:room]
        assert n == len(kept)
        assert list(zip(distance[:n].tolist(), row[:n].tolist(), strict=True)) == kept


def test_nearest_first__sorts_by_distance_then_row(rng: np.random.Generator) -> None:
    row = np.array([rng.permutation(30)[:12] for _ in range(20)], np.int32)
    distance = rng.integers(0, 3, row.shape).astype(float)
    row[:, 9:] = -1
    distance[:, 9:] = np.inf
    for deliver in (0, 4, 9, 12, 15):
        index, out = nearest_first(row, distance, deliver)
        assert index.shape == out.shape == (20, deliver)
        for r in range(20):
            expected = sorted(zip(distance[r, :9].tolist(), row[r, :9].tolist(), strict=True))
            expected = expected[:deliver]
            got = list(zip(out[r].tolist(), index[r].tolist(), strict=True))
            assert got[: len(expected)] == expected
            assert (index[r, len(expected) :] == -1).all()
            assert np.isnan(out[r, len(expected) :]).all()


def test_find__binary_search() -> None:
    rows = np.array([2, 3, 5, 9, 100], np.int32)
    assert [find(rows, 4, v) for v in (2, 3, 5, 9, 4, 1, 100)] == [0, 1, 2, 3, -1, -1, -1]
    assert find(rows, 0, 2) == -1


def test_collect_pairs__asks_for_each_unknown_pair_once() -> None:
    """One row: global holds 4, 7, 9; SO holds 7 and 11; 9 is known from before."""
    spec = ListSpec(1, 1)
    keys = np.zeros((1, 2 * spec.screened), np.int64)
    keys[0, spec.start[0] : spec.start[0] + 3] = [4, 7, 9]
    keys[0, spec.start[1] : spec.start[1] + 2] = [7, 11]
    fill = np.array([[3], [2], [0]], np.int32)
    distance = np.full((1, spec.screened), np.nan)
    where = np.full((1, spec.screened), -1, np.int32)
    query, candidate = np.zeros(8, np.int32), np.zeros(8, np.int32)
    known = np.array([[9]], np.int32), np.array([[0.25]]), np.array([1], np.int32)
    n = collect_pairs(
        keys, fill, spec.start, spec.length, 0, 1, *known, distance, where, query, candidate
    )
    assert candidate[:n].tolist() == [4, 7, 11]
    spread(where, fill, spec.length, 0, 1, np.array([0.4, 0.7, 1.1]), distance)
    so = int(spec.base[1])
    assert distance[0, :3].tolist() == [0.4, 0.7, 0.25]
    assert distance[0, so : so + 2].tolist() == [0.7, 1.1]
    assert np.isnan(distance[0, so + 2])


def test_scan_band__measures_what_is_in_reach_and_keeps_the_least(rng: np.random.Generator) -> None:
    n, d = 80, 3
    x = rng.integers(-2, 3, (n, d)).astype(np.float32)
    x[~x.any(axis=1)] = 1.0
    codes = Codes(*(rng.integers(0, size, n).astype(np.int32) for size in (3, 2, 40)))
    home = load_range(ArraySource(x), codes, 0, n, Frame(np.zeros(d)))
    spec = ListSpec(6, 2)
    reach = np.full((3, n), 0.6)
    reach[0, ::3] = -np.inf  # these rows only fail in their typed lists
    reach[1, ::2] = 1.5
    index = np.full((n, spec.delivered), -1, np.int32)
    distance = np.full((n, spec.delivered), np.nan)
    count = np.zeros((3, n), np.int32)
    tile = np.ascontiguousarray(home.centred @ home.centred.T)
    for j0, j1 in ((0, 33), (33, n)):  # lists grow over tiles
        scan_band(
            np.ascontiguousarray(tile[:, j0:j1]), 0, j0,
            home.x, home.norm, home.half, home.label, home.confounder, home.group,
            home.x, home.norm, home.half, home.label, home.confounder, home.group, home.position,
            reach, spec.offset, spec.deliver, index, distance, count, False,
        )  # fmt: skip
    pairs = np.array([(i, j) for i in range(n) for j in range(n)], np.int32)
    exact = np.empty(n * n)
    dots_numpy.pair_distances(home.x, home.norm, home.x, home.norm, pairs[:, 0], pairs[:, 1], exact)
    exact = exact.reshape(n, n)
    screened = home.half[:, None].astype(float) + home.half[None, :] - tile
    for i in range(n):
        same_label = home.label == home.label[i]
        same_confounder = home.confounder == home.confounder[i]
        types = [np.ones(n, bool), same_label & ~same_confounder, ~same_label & same_confounder]
        for q in range(3):
            inside = types[q] & (home.group != home.group[i]) & (screened[i] <= reach[q, i])
            fits = [(exact[i, j], int(home.position[j])) for j in np.flatnonzero(inside)]
            expected = sorted(fits)[: int(spec.deliver[q])]
            part = slice(int(spec.offset[q]), int(spec.offset[q]) + len(expected))
            got = list(zip(distance[i, part].tolist(), index[i, part].tolist(), strict=True))
            assert got == expected
            assert count[q, i] == len(expected)
