"""Selection against sorting: nothing nearer than the threshold is ever dropped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.index.ranges import load_range
from croma_dask.index.source import ArraySource, Codes
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.constants import GLOBAL, OS, SO
from croma_dask.kernels.frame import Frame
from croma_dask.kernels.select import keep_least, scan_tile, settle


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=60), st.data())
def test_keep_least__brings_the_least_to_the_front(keys: list[int], data: st.DataObject) -> None:
    keep = data.draw(st.integers(1, len(keys)))
    behind = [7, -7]
    a = np.array(keys + behind, np.int64)
    keep_least(a, len(keys), keep)
    assert sorted(a[:keep].tolist()) == sorted(keys)[:keep]
    assert sorted(a[: len(keys)].tolist()) == sorted(keys)
    assert a[len(keys) :].tolist() == behind


@pytest.mark.parametrize("values", [[5] * 40, [5] * 20 + [4] * 20, list(range(40)), [3, 5] * 20])
def test_keep_least__ends_on_equal_and_sorted_keys(values: list[int]) -> None:
    for order in (values, values[::-1]):
        for keep in (1, 7, 20, 39, 40):
            a = np.array(order, np.int64)
            keep_least(a, len(order), keep)
            assert sorted(a[:keep].tolist()) == sorted(values)[:keep]


class Side:
    """Lists of one range as the kernel wants them."""

    def __init__(self, n: int, spec: ListSpec) -> None:
        self.keys = np.full((n, 2 * spec.screened), -1, np.int64)
        self.fill = np.zeros((3, n), np.int32)
        self.threshold = np.full((3, n), -np.inf, np.float32)
        self.threshold[spec.length > 0] = np.inf
        self.limit = np.maximum(self.threshold, self.threshold[0])

    def settled(self, spec: ListSpec) -> list[list[list[tuple[float, int]]]]:
        """Sorted (distance, row) entries of every list of every row."""
        settle(self.keys, self.fill, self.threshold, self.limit, spec.length, spec.start)
        out = []
        for r in range(self.keys.shape[0]):
            lists = []
            for q in range(3):
                keys = self.keys[r, spec.start[q] : spec.start[q] + self.fill[q, r]]
                distance = (keys >> 32).astype(np.int32).view(np.float32)
                rows = (keys & 0xFFFFFFFF).astype(int)
                lists.append(sorted(zip(distance.tolist(), rows.tolist(), strict=True)))
            out.append(lists)
        return out


def kind_of(home: object, i: int, other: object, j: int) -> int:
    same_label = home.label[i] == other.label[j]  # type: ignore[attr-defined]
    same_confounder = home.confounder[i] == other.confounder[j]  # type: ignore[attr-defined]
    if same_label == same_confounder:
        return GLOBAL
    return SO if same_label else OS


@pytest.mark.parametrize("spec", [ListSpec(4, 2), ListSpec(5, 0), ListSpec(0, 3)])
@pytest.mark.parametrize(
    ("same", "takes"),
    [(True, (True, True)), (False, (True, True)), (False, (True, False)), (False, (False, True))],
)
def test_scan_tile__keeps_the_nearest_of_each_type_on_both_sides(
    spec: ListSpec, same: bool, takes: tuple[bool, bool], rng: np.random.Generator
) -> None:
    n, d = 150, 4
    x = rng.normal(size=(2 * n, d))
    codes = Codes(
        rng.integers(0, 3, 2 * n).astype(np.int32), rng.integers(0, 2, 2 * n).astype(np.int32),
        rng.integers(0, 60, 2 * n).astype(np.int32),
    )  # fmt: skip
    frame = Frame(np.zeros(d))
    source = ArraySource(x)
    home = load_range(source, codes.take(slice(0, n)), 0, n, frame)
    other = home if same else load_range(source, codes.take(slice(n, 2 * n)), n, 2 * n, frame)
    mine = Side(n, spec)
    theirs = mine if same else Side(n, spec)
    # several tiles of odd sizes, as the sweep cuts them
    for i0 in range(0, n, 64):
        for j0 in range(0, n, 90):
            i1, j1 = min(n, i0 + 64), min(n, j0 + 90)
            first = max(j0, i0) if same else j0
            if same and j1 <= i0 + 1:
                continue
            tile = np.ascontiguousarray(home.centred[i0:i1] @ other.centred[first:j1].T)
            scan_tile(
                tile, same, i0, first, spec.length, spec.start,
                home.half, home.label, home.confounder, home.group, home.position,
                other.half, other.label, other.confounder, other.group, other.position,
                other.run_end,
                takes[0], mine.keys, mine.fill, mine.threshold, mine.limit,
                takes[1], theirs.keys, theirs.fill, theirs.threshold, theirs.limit,
            )  # fmt: skip
    for take, side, one, two in ((takes[0], mine, home, other), (takes[1], theirs, other, home)):
        found = side.settled(spec)
        for i in range(n):
            exact = one.half[i].astype(float) + two.half - one.centred[i] @ two.centred.T
            eligible = [j for j in range(n) if two.group[j] != one.group[i]]
            for q in range(3):
                length = int(spec.length[q])
                if not take or length == 0:
                    assert found[i][q] == []
                    continue
                fits = [j for j in eligible if q == GLOBAL or kind_of(one, i, two, j) == q]
                expected = sorted(exact[fits].tolist())[:length]
                got = [distance for distance, _ in found[i][q]]
                np.testing.assert_allclose(got, np.maximum(expected, 0.0), rtol=0, atol=2e-6)
                assert {row for _, row in found[i][q]} <= {int(two.position[j]) for j in fits}
                assert len({row for _, row in found[i][q]}) == len(got) == min(length, len(fits))
                # what was dropped lies at the threshold or beyond it
                kept = {row for _, row in found[i][q]}
                dropped = [exact[j] for j in fits if int(two.position[j]) not in kept]
                assert min(dropped, default=np.inf) >= side.threshold[q, i] - 2e-6
