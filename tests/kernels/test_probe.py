"""Probing against plain loops: what a row probes, and that a probed pair is taken exactly once."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.index import probing
from croma_dask.index.probing import (
    OwnGroup,
    ProbedRange,
    Probes,
    TypeCounts,
    _by_cluster,
    _one_way,
)
from croma_dask.index.ranges import Range
from croma_dask.index.source import Codes
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.constants import GLOBAL, OS, SO
from croma_dask.kernels.frame import Frame
from croma_dask.kernels.probe import (
    FULL,
    PROBE_OS,
    PROBE_SO,
    flags_of,
    is_ours,
    needed_radius,
    walk,
)

ALL = (FULL, PROBE_SO, PROBE_OS)


@dataclass
class World:
    """Rows in the order of clusters, with half squared distances to all centres."""

    codes: Codes
    edges: np.ndarray
    scores: np.ndarray

    @classmethod
    def make(
        cls, rng: np.random.Generator, n: int, n_clusters: int, levels: int, n_groups: int, *,
        ties: bool = True,
    ) -> World:  # fmt: skip
        edges = np.sort(rng.choice(np.arange(1, n), n_clusters - 1, replace=False))
        edges = np.concatenate([[0], edges, [n]]).astype(np.int64)
        codes = Codes(*(rng.integers(0, m, n).astype(np.int32) for m in (levels, levels, n_groups)))
        # A few values only: ties, and zeros that are not the own cluster's; or rounded below zero.
        scores = rng.integers(-1, 6, (n, n_clusters)) / 4 if ties else rng.random((n, n_clusters))
        return cls(codes, edges, scores.astype(np.float32))

    @property
    def n(self) -> int:
        return len(self.codes)

    @property
    def n_clusters(self) -> int:
        return len(self.edges) - 1

    @property
    def cluster(self) -> np.ndarray:
        return np.repeat(np.arange(self.n_clusters, dtype=np.int32), np.diff(self.edges))

    @property
    def counts(self) -> TypeCounts:
        return TypeCounts.of(self.codes, self.edges)

    def kind(self, i: int, j: int) -> int:
        same_label = self.codes.label[i] == self.codes.label[j]
        same_confounder = self.codes.confounder[i] == self.codes.confounder[j]
        if same_label == same_confounder:
            return GLOBAL
        return SO if same_label else OS

    def near(self, i: int) -> list[int]:
        """Clusters by distance from a row, its own one first."""
        home = self.cluster[i]
        return sorted(
            range(self.n_clusters), key=lambda c: (c != home, max(0.0, float(self.scores[i, c])), c)
        )

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.edges)

    def rows(self, i: int, c: int, kind: int = GLOBAL) -> list[int]:
        """Rows of a cluster (of a type)."""
        mine = range(self.edges[c], self.edges[c + 1])
        return [j for j in mine if kind in (GLOBAL, self.kind(i, j))]

    def members(self, i: int, c: int, kind: int = GLOBAL) -> list[int]:
        """Rows of a cluster (of a type) but those of the own group."""
        return [j for j in self.rows(i, c, kind) if self.codes.group[j] != self.codes.group[i]]

    def walked(
        self, probes: int, need_all: int, need_so: int, need_os: int
    ) -> list[dict[int, int]]:
        """Flags of the clusters that each row probes, by the kernel."""
        own = OwnGroup.of(self.codes)
        counts = self.counts
        order = np.lexsort((self.codes.confounder, self.codes.label)).astype(np.int32)
        self.pointer = np.zeros(self.n + 1, np.int64)
        room = np.full(self.n * self.n_clusters, -1, np.int32)
        walk(
            self.scores, self.cluster, self.codes.label, self.codes.confounder, order,
            own.all.astype(np.int64), own.so.astype(np.int64), own.os.astype(np.int64),
            counts.size, *counts.label, *counts.confounder, probes, need_all, need_so, need_os,
            self.pointer, room,
        )  # fmt: skip
        self.found = room[: self.pointer[-1]]
        rows = [self.found[a:b] for a, b in zip(self.pointer, self.pointer[1:], strict=False)]
        assert all((np.diff(codes >> 3) > 0).all() for codes in rows), "ascending, each once"
        return [{int(c) >> 3: int(c) & 7 for c in codes} for codes in rows]


SIZES = {"n": st.integers(8, 70), "clusters": st.integers(1, 8), "levels": st.integers(1, 3),
         "groups": st.integers(1, 12), "seed": st.integers(0, 10**6)}  # fmt: skip
NEEDS = {"probes": st.integers(0, 9), "need_all": st.integers(0, 12),
         "need_so": st.integers(0, 12), "need_os": st.integers(0, 12)}  # fmt: skip


def world(n: int, clusters: int, levels: int, groups: int, seed: int) -> World:
    return World.make(np.random.default_rng(seed), n, min(clusters, n - 1), levels, groups)


# ---- what a row probes -----------------------------------------------------------------------


@given(**SIZES, **NEEDS)
def test_walk__meets_what_is_needed_and_nothing_beyond(
    probes: int, need_all: int, need_so: int, need_os: int, **sizes: int
) -> None:
    """A loop over rows, not counts: own groups are left out one by one."""
    those = world(**sizes)
    for i, found in enumerate(those.walked(probes, need_all, need_so, need_os)):
        near = those.near(i)
        for kind, flag, need in ((GLOBAL, FULL, need_all), (SO, PROBE_SO, need_so),
                                 (OS, PROBE_OS, need_os)):  # fmt: skip
            mine = [c for c in near if found.get(c, 0) & (flag | FULL)]
            met = sum(len(those.members(i, c, kind)) for c in mine)
            there = sum(len(those.members(i, c, kind)) for c in near)
            assert met >= min(need, there), "all that is needed, or all that there is"
        full = [c for c in near if found.get(c, 0) & FULL]
        assert full == near[: len(full)], "the nearest ones, the own one first"
        assert len(full) >= min(probes, those.n_clusters)
        assert all(flags == FULL or not flags & FULL for flags in found.values())
        if len(full) > probes:
            own = sum(those.codes.group == those.codes.group[i])
            assert sum(those.sizes[c] for c in full[:-1]) < need_all + own, "one too many"
        for kind, flag, need in ((SO, PROBE_SO, need_so), (OS, PROBE_OS, need_os)):
            rows = {c: those.rows(i, c, kind) for c in near}
            farther = [c for c in near if found.get(c, 0) & flag]
            assert all(rows[c] for c in farther), "a cluster without any is passed by"
            if farther:
                # No cluster on the way is left out, and one fewer would not have been enough.
                last = near.index(farther[-1])
                assert farther == [c for c in near[len(full) : last + 1] if rows[c]]
                own = sum(len(rows[c]) - len(those.members(i, c, kind)) for c in near)
                assert sum(len(rows[c]) for c in near[:last]) < need + own


def test_walk__without_needs_probes_nothing_and_with_all_of_them_everything() -> None:
    those = world(40, 6, 2, 40, 1)
    assert those.walked(0, 0, 0, 0) == [{}] * 40
    assert those.walked(6, 0, 0, 0) == [dict.fromkeys(range(6), FULL)] * 40
    assert those.walked(0, 40, 0, 0) == [dict.fromkeys(range(6), FULL)] * 40
    typed = those.walked(0, 0, 40, 40)
    for i, found in enumerate(typed):
        for c in range(6):
            for kind, flag in ((SO, PROBE_SO), (OS, PROBE_OS)):
                assert bool(found.get(c, 0) & flag) == bool(those.rows(i, c, kind))


def test_walk__goes_on_behind_the_clusters_that_are_put_in_order_first() -> None:
    rng = np.random.default_rng(3)
    those = World.make(rng, 900, 300, 2, 900, ties=False)
    those.codes = replace(those.codes, group=np.arange(900, dtype=np.int32))
    need = 500
    for i, found in list(enumerate(those.walked(2, need, 0, 0)))[::45]:
        near = those.near(i)
        full = [c for c in near if found.get(c, 0) == FULL]
        assert full == near[: len(full)]
        assert len(full) > 128
        assert sum(those.sizes[full]) > need > sum(len(those.members(i, c)) for c in full[:-1])


@given(**SIZES, data=st.data())
def test_needed_radius__is_what_the_walk_would_need(data: st.DataObject, **sizes: int) -> None:
    those = world(**sizes)
    pairs = [(i, c) for i in range(those.n) for c in range(those.n_clusters)]
    some = data.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=30))
    counts = those.counts
    out = np.full((len(some), 3), -1, np.int64)
    needed_radius(
        those.scores, those.cluster, those.codes.label, those.codes.confounder,
        np.array([i for i, _ in some], np.int32), np.array([c for _, c in some], np.int32),
        counts.size, *counts.label, *counts.confounder, out,
    )  # fmt: skip
    for (i, goal), (clusters, so, os) in zip(some, out.tolist(), strict=True):
        before = those.near(i)[: those.near(i).index(goal)]
        rows = [those.kind(i, j) for c in before for j in range(those.edges[c], those.edges[c + 1])]
        assert (clusters, so, os) == (len(before), rows.count(SO), rows.count(OS))
        # The walk agrees: that many probes do not reach the cluster, one more does.
        if clusters:
            assert goal not in those.walked(clusters, 0, 0, 0)[i]
        assert those.walked(clusters + 1, 0, 0, 0)[i][goal] == FULL


# ---- who takes a pair ------------------------------------------------------------------------


@given(**SIZES, **NEEDS)
def test_flags_of__is_what_was_walked(
    probes: int, need_all: int, need_so: int, need_os: int, **sizes: int
) -> None:
    those = world(**sizes)
    found = those.walked(probes, need_all, need_so, need_os)
    for i in range(those.n):
        for c in range(those.n_clusters):
            assert flags_of(those.pointer, those.found, i, c) == found[i].get(c, 0)


@pytest.mark.parametrize("kind", [GLOBAL, SO, OS])
@pytest.mark.parametrize("mine", [0, FULL, PROBE_SO, PROBE_OS, PROBE_SO | PROBE_OS])
@pytest.mark.parametrize("theirs", [0, FULL, PROBE_SO, PROBE_OS, PROBE_SO | PROBE_OS])
def test_is_ours__a_pair_is_taken_once_and_fully_where_either_side_probes_fully(
    mine: int, theirs: int, kind: int
) -> None:
    typed = {GLOBAL: 0, SO: PROBE_SO, OS: PROBE_OS}[kind]
    useful = FULL | typed
    for own, other in ((3, 8), (8, 3)):
        taken = [
            (flag, side)
            for side, (flags, back) in enumerate(((mine, theirs), (theirs, mine)))
            for flag in ALL
            if flags & flag & useful
            and is_ours(flag, back, *((own, other) if side == 0 else (other, own)))
        ]
        assert len(taken) == bool((mine | theirs) & useful)
        if (mine | theirs) & FULL:
            assert taken[0][0] == FULL


# ---- the tiles and the walk over them --------------------------------------------------------


class Kept:
    """Lists long enough to hold every candidate, as the kernel wants them."""

    def __init__(self, n: int, spec: ListSpec) -> None:
        self.keys = np.full((n, 2 * spec.screened), -1, np.int64)
        self.fill = np.zeros((3, n), np.int32)
        self.threshold = np.full((3, n), -np.inf, np.float32)
        self.threshold[spec.length > 0] = np.inf
        self.limit = np.maximum(self.threshold, self.threshold[0])

    def entries(self, spec: ListSpec, r: int, q: int) -> list[tuple[float, int]]:
        keys = self.keys[r, spec.start[q] : spec.start[q] + self.fill[q, r]]
        distance = (keys >> 32).astype(np.int32).view(np.float32)
        return sorted(zip(distance.tolist(), (keys & 0xFFFFFFFF).tolist(), strict=True))


def ranges(those: World, cuts: list[int], rng: np.random.Generator) -> list[ProbedRange]:
    """Cut the walked rows at clusters, each range sorted as one is when it is loaded."""
    out = []
    centred = rng.normal(size=(those.n, 3)).astype(np.float32)
    for first, last in zip(cuts[:-1], cuts[1:], strict=True):
        lo, hi = int(those.edges[first]), int(those.edges[last])
        cluster = those.cluster[lo:hi]
        part = those.codes.take(slice(lo, hi))
        order = np.lexsort((np.arange(hi - lo), part.confounder, part.label, cluster))
        mine = part.take(order)
        place = np.empty(hi - lo, np.int32)
        place[order] = np.arange(hi - lo, dtype=np.int32)
        x = centred[lo:hi][order]
        empty: Any = np.empty(0)
        home = Range(
            lo, hi, empty, empty, x, np.full(hi - lo, 60.0, np.float32), empty, mine.label,
            mine.confounder, mine.group, (lo + order).astype(np.int32), place, empty,
            Frame(empty),
        )  # fmt: skip
        rows = lo + order
        codes = [those.found[those.pointer[r] : those.pointer[r + 1]] for r in rows]
        pointer = np.concatenate([[0], np.cumsum([len(c) for c in codes])]).astype(np.int64)
        probes = _by_cluster(home, pointer, np.concatenate([*codes, np.empty(0, np.int32)]))
        edges = those.edges[first : last + 1] - lo
        out.append(ProbedRange(home, probes, cluster, first, edges))
    return out


def sweep(
    one: ProbedRange, two: ProbedRange, spec: ListSpec, lists: dict[int, Kept],
    *, takes: dict[int, bool], tile: tuple[int, int, int],
) -> int:  # fmt: skip
    """Offer all pairs of one range with the clusters of another that it probes, in small tiles."""
    mine, theirs = lists[one.first], lists[two.first]
    buffer = np.empty(tile[0] * tile[1], np.float32)
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(("TILE_ROWS", "TILE_COLUMNS", "_GROUPS"), tile, strict=True):
            patch.setattr(probing, name, size)
        return _one_way(
            one, two, mine, theirs, spec, buffer, takes[one.first], takes[two.first], None  # type: ignore[arg-type]
        )  # fmt: skip


def swept(
    those: World,
    spec: ListSpec,
    n_ranges: int,
    seed: int,
    *,
    silent: int | None = None,
    tile: tuple[int, int, int] = (7, 5, 3),
) -> tuple[list[ProbedRange], dict[int, Kept]]:
    """Let all ranges meet; those with the number `silent` take nothing."""
    rng = np.random.default_rng(seed)
    inner = rng.choice(
        np.arange(1, max(2, those.n_clusters)), min(n_ranges, those.n_clusters) - 1, replace=False
    )
    parts = ranges(those, [0, *sorted(inner.tolist()), those.n_clusters], rng)
    lists = {part.first: Kept(len(part.home), spec) for part in parts}
    takes = {part.first: number != silent for number, part in enumerate(parts)}
    for i, one in enumerate(parts):
        for j, two in enumerate(parts):
            if i <= j:
                sweep(one, two, spec, lists, takes=takes, tile=tile)
            if i < j:
                sweep(two, one, spec, lists, takes=takes, tile=tile)
    return parts, lists


def expected_pairs(those: World, found: list[dict[int, int]]) -> list[set[int]]:
    """For each list the pairs that either side probes, in both directions."""
    out: list[set[Any]] = [set(), set(), set()]
    for i in range(those.n):
        for j in range(those.n):
            if those.codes.group[i] == those.codes.group[j]:
                continue
            flags = found[i].get(int(those.cluster[j]), 0) | found[j].get(int(those.cluster[i]), 0)
            kind = those.kind(i, j)
            if flags & FULL:
                out[GLOBAL].add((i, j))
            if kind == SO and flags & (FULL | PROBE_SO):
                out[SO].add((i, j))
                out[GLOBAL].add((i, j))
            if kind == OS and flags & (FULL | PROBE_OS):
                out[OS].add((i, j))
                out[GLOBAL].add((i, j))
    return out


@given(**SIZES, **NEEDS, n_ranges=st.integers(1, 4))
def test_scan_probed__offers_each_probed_pair_once_to_each_of_its_rows(
    probes: int, need_all: int, need_so: int, need_os: int, n_ranges: int, **sizes: int
) -> None:
    """Lists so long that nothing is dropped: what they hold is what was offered, repeats too."""
    those = world(**sizes)
    found = those.walked(probes, need_all, need_so, need_os)
    spec = ListSpec(those.n, those.n)
    parts, lists = swept(those, spec, n_ranges, sizes["seed"])
    held: list[Counter[tuple[int, int]]] = [Counter(), Counter(), Counter()]
    for part in parts:
        for r, own in enumerate(part.home.position.tolist()):
            for q in range(3):
                for _, row in lists[part.first].entries(spec, r, q):
                    held[q][own, row] += 1
    for q, pairs in enumerate(expected_pairs(those, found)):
        assert held[q] == Counter(pairs)


@pytest.mark.parametrize("tile", [(50, 30, 2), (1_024, 2_048, 64)])
@pytest.mark.parametrize("n_ranges", [1, 2])
def test_typed_groups__leave_out_most_pairs_that_are_alike(
    n_ranges: int, tile: tuple[int, int, int]
) -> None:
    """Clusters large enough to be cut, of rows that nearly all share both label and confounder."""
    rng = np.random.default_rng(12)
    those = World.make(rng, 600, 3, 2, 300, ties=False)
    those.edges = np.array([0, 210, 390, 600])
    those.codes = replace(
        those.codes,
        label=(rng.random(600) < 0.2).astype(np.int32),
        confounder=(rng.random(600) < 0.1).astype(np.int32),
    )
    found = those.walked(0, 0, 150, 60)
    spec = ListSpec(600, 600)
    parts, lists = swept(those, spec, n_ranges, 12, tile=tile)
    flags = np.zeros((600, 3), int)
    for i, mine in enumerate(found):
        flags[i, list(mine)] = list(mine.values())
    probed = flags[:, those.cluster] | flags[:, those.cluster].T
    codes = those.codes
    same_label = codes.label[:, None] == codes.label
    same_confounder = codes.confounder[:, None] == codes.confounder
    other = codes.group[:, None] != codes.group
    so = other & same_label & ~same_confounder & (probed & PROBE_SO > 0)
    os = other & ~same_label & same_confounder & (probed & PROBE_OS > 0)
    held = np.zeros((3, 600, 600), int)
    for part in parts:
        for r, own in enumerate(part.home.position.tolist()):
            for q in range(3):
                for _, row in lists[part.first].entries(spec, r, q):
                    held[q, own, row] += 1
    for q, wanted in enumerate((so | os, so, os)):
        np.testing.assert_array_equal(held[q], wanted)
    whole = sum(
        np.outer(flags[:, c] & flag > 0, those.cluster == c)[same].sum()
        for c in range(3)
        for flag, same in ((PROBE_SO, same_label), (PROBE_OS, same_confounder))
    )
    multiplied = 0
    for one in parts:
        for two in parts:
            multiplied += sweep(
                one, two, spec, {part.first: Kept(len(part.home), spec) for part in parts},
                takes=dict.fromkeys(lists, True), tile=tile,
            )  # fmt: skip
    assert so.sum() / 2 < multiplied < whole / 2


def test_scan_probed__tells_own_distances_and_drops_only_the_farther_ones() -> None:
    """Short lists, which are cut over and over again."""
    those = World.make(np.random.default_rng(5), 240, 8, 2, 90)
    found = those.walked(3, 0, 40, 30)
    spec = ListSpec(6, 3)
    parts, lists = swept(those, spec, 3, 5)
    home = {
        int(p): (part.home.centred[r], part.home.half[r])
        for part in parts
        for r, p in enumerate(part.home.position)
    }
    partners: dict[tuple[int, int], list[int]] = defaultdict(list)
    for q, pairs in enumerate(expected_pairs(those, found)):
        for i, j in pairs:
            partners[q, i].append(j)
    for part in parts:
        for r, own in enumerate(part.home.position.tolist()):
            x, half = home[own]
            for q in range(3):
                distance = sorted(
                    float(half + home[j][1] - x @ home[j][0]) for j in partners[q, own]
                )
                got = lists[part.first].entries(spec, r, q)
                length = min(int(spec.length[q]), len(distance))
                assert len({row for _, row in got}) == len(got) >= length
                np.testing.assert_allclose(
                    [d for d, _ in got[:length]], distance[:length], rtol=0, atol=2e-5
                )


@pytest.mark.parametrize("spec", [ListSpec(500, 0), ListSpec(0, 500)])
def test_scan_probed__of_one_kind_of_list_fills_that_alone(spec: ListSpec) -> None:
    those = world(60, 5, 2, 20, 9)
    found = those.walked(2 if spec.n_global else 0, 0, *[0 if spec.n_global else 30] * 2)
    parts, lists = swept(those, spec, 2, 9)
    pairs = expected_pairs(those, found)
    for part in parts:
        for r, own in enumerate(part.home.position.tolist()):
            for q in range(3):
                got = {row for _, row in lists[part.first].entries(spec, r, q)}
                wanted = {j for i, j in pairs[q] if i == own} if spec.length[q] else set()
                assert got == wanted


@pytest.mark.parametrize("silent", [0, 1])
def test_scan_probed__a_side_that_has_met_the_other_takes_nothing(silent: int) -> None:
    those = world(60, 6, 2, 30, 4)
    found = those.walked(2, 0, 10, 12)
    spec = ListSpec(those.n, those.n)
    parts, lists = swept(those, spec, 2, 4, silent=silent)
    pairs = expected_pairs(those, found)
    for number, part in enumerate(parts):
        for r, own in enumerate(part.home.position.tolist()):
            for q in range(3):
                got = {row for _, row in lists[part.first].entries(spec, r, q)}
                wanted = {j for i, j in pairs[q] if i == own}
                assert got == (set() if number == silent else wanted)


def test_by_cluster__probes_survive_being_written_down() -> None:
    those = world(50, 5, 2, 20, 2)
    those.walked(1, 0, 12, 9)
    (part,) = ranges(those, [0, those.n_clusters], np.random.default_rng(0))
    kept = {name: np.array(array) for name, array in part.probes.arrays().items()}
    again = Probes.of_arrays(kept)
    for name in Probes.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(again, name), getattr(part.probes, name))
    counts = those.counts
    twin = TypeCounts.of_arrays(counts.arrays())
    np.testing.assert_array_equal(twin.size, np.diff(those.edges))
    for a, b in zip((*twin.label, *twin.confounder), (*counts.label, *counts.confounder),
                    strict=True):  # fmt: skip
        np.testing.assert_array_equal(a, b)


@given(**SIZES)
def test_own_group__counts_row_by_row(**sizes: int) -> None:
    those = world(**sizes)
    own = OwnGroup.of(those.codes)
    for i in range(those.n):
        mine = [j for j in range(those.n) if those.codes.group[j] == those.codes.group[i]]
        assert own.all[i] == len(mine)
        kinds = [those.kind(i, j) for j in mine]
        assert (own.so[i], own.os[i]) == (kinds.count(SO), kinds.count(OS))
