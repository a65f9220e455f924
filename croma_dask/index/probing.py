"""Which clusters the rows of a range probe, and the tiles of pairs that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.index.lists import Lists
from croma_dask.index.partition import scores
from croma_dask.index.ranges import Range
from croma_dask.index.source import Codes
from croma_dask.index.spec import ListSpec
from croma_dask.index.sweep import TILE_COLUMNS, TILE_ROWS
from croma_dask.kernels.typing import F32, I32, I64

__all__ = ["OwnGroup", "Probes", "Radius", "TypeCounts", "find_probes", "sweep_probed"]

_GROUPS = 64
"""Groups of rows that meet their clusters in one call of the kernel, which hears no interrupt."""

_BLOCK_ENTRIES = 8 << 20
"""Scores of a block of rows against all centres: 32 MiB."""


@dataclass(frozen=True)
class Radius:
    """How far rows look.

    Attributes
    ----------
    probes
        Nearest clusters that a row probes fully.
    so, os
        SO and OS candidates that a row has to meet.
    """

    probes: int
    so: int
    os: int


@dataclass(frozen=True)
class TypeCounts:
    """Rows of each label and each confounder in every cluster, sparse.

    Attributes
    ----------
    size
        (C,) int64 rows of each cluster that are scored.
    label, confounder
        (pointer, cluster, other, count): for each label the clusters that hold rows of it, by
        confounder; for each confounder by label.
    """

    size: I64
    label: tuple[I64, I32, I32, I32]
    confounder: tuple[I64, I32, I32, I32]

    @classmethod
    def of(cls, codes: Codes, cluster_edges: I64) -> TypeCounts:
        """Count rows that lie in the order of the index."""
        n_clusters = cluster_edges.shape[0] - 1
        size = np.diff(cluster_edges)
        cluster = np.repeat(np.arange(n_clusters, dtype=np.int64), size)
        n_labels, n_confounders = int(codes.label.max()) + 1, int(codes.confounder.max()) + 1
        key = (codes.label.astype(np.int64) * n_confounders + codes.confounder) * n_clusters
        cells, count = np.unique(key + cluster, return_counts=True)
        of_cluster = (cells % n_clusters).astype(np.int32)
        label, confounder = np.divmod(cells // n_clusters, n_confounders)
        return cls(
            size.astype(np.int64),
            _grouped(label, of_cluster, confounder, count, n_labels),
            _grouped(confounder, of_cluster, label, count, n_confounders),
        )

    def arrays(self) -> dict[str, Any]:
        """Plain arrays, to keep."""
        return {
            "size": self.size,
            **{f"label_{i}": a for i, a in enumerate(self.label)},
            **{f"confounder_{i}": a for i, a in enumerate(self.confounder)},
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> TypeCounts:
        """Take up what was kept."""
        return cls(
            arrays["size"],
            tuple(arrays[f"label_{i}"] for i in range(4)),
            tuple(arrays[f"confounder_{i}"] for i in range(4)),
        )


def _grouped(level: I64, cluster: I32, other: I64, count: I64, n: int) -> tuple[I64, I32, I32, I32]:
    order = np.argsort(level, kind="stable")
    pointer = np.zeros(n + 1, np.int64)
    pointer[1:] = np.cumsum(np.bincount(level, minlength=n))
    return (
        pointer, cluster[order], other[order].astype(np.int32), count[order].astype(np.int32),
    )  # fmt: skip


@dataclass(frozen=True)
class OwnGroup:
    """Rows of the own group that a row meets in vain.

    Attributes
    ----------
    all, so, os
        (n,) int32 rows of the own group: all of them, and those that would be SO and OS rows.
    """

    all: I32
    so: I32
    os: I32

    @classmethod
    def of(cls, codes: Codes) -> OwnGroup:
        """Count in all rows of a scope."""
        n_labels, n_confounders = int(codes.label.max()) + 1, int(codes.confounder.max()) + 1
        group = codes.group.astype(np.int64)
        alike = _occurrences((group * n_labels + codes.label) * n_confounders + codes.confounder)
        return cls(
            _occurrences(group),
            _occurrences(group * n_labels + codes.label) - alike,
            _occurrences(group * n_confounders + codes.confounder) - alike,
        )

    def take(self, rows: Any) -> OwnGroup:
        """Take the counts of some rows."""
        return OwnGroup(self.all[rows], self.so[rows], self.os[rows])


def _occurrences(key: I64) -> I32:
    """How often the key of each row occurs."""
    _, inverse, count = np.unique(key, return_inverse=True, return_counts=True)
    return count[inverse].astype(np.int32)


@dataclass(frozen=True)
class Probes:
    """Probes of the rows of a range, by row and by cluster.

    Attributes
    ----------
    pointer, codes
        Of the row at each place of the range the codes `cluster * 8 + flags`, ascending.
    cluster, flag
        (T,) cluster (ascending) and flag of each group of rows that probe alike.
    key
        (T,) label of a group with SO probes, confounder of one with OS probes, -1.
    edges, rows
        (T + 1,) and (E,) places of the rows of each group.
    """

    pointer: I64
    codes: I32
    cluster: I32
    flag: I32
    key: I32
    edges: I64
    rows: I32

    def arrays(self) -> dict[str, Any]:
        """Plain arrays, to keep."""
        return {f"probe_{name}": getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> Probes:
        """Take up what was kept."""
        return cls(**{name: arrays[f"probe_{name}"] for name in cls.__dataclass_fields__})


def find_probes(
    home: Range, cluster: I32, own: OwnGroup, counts: TypeCounts, centres: tuple[F32, F32],
    radius: Radius, spec: ListSpec, *, graph: bool = False,
) -> Probes:  # fmt: skip
    """Choose the clusters that every row of a range probes.

    Parameters
    ----------
    home
        The range.
    cluster, own
        Of the row at each place of the range.
    counts, centres
        Of the whole cohort; the centres as the rows are compared with them, and their half-norms.
    radius
        How far to look.
    spec
        Lists to fill.
    graph
        Whether neighbours of any type come from a graph of the range's rows: of its own clusters
        a row then probes the typed rows only.
    """
    from croma_dask.kernels.probe import walk

    places, halves = centres
    n, n_clusters = len(home), places.shape[0]
    step = max(16, min(4096, _BLOCK_ENTRIES // n_clusters))
    buffer = np.empty((min(step, n), n_clusters), np.float32)
    room = np.empty(min(step, n) * n_clusters, np.int32)
    pointers, parts = [np.zeros(1, np.int64)], []
    for lo in range(0, n, step):
        hi = min(n, lo + step)
        near = scores(home.centred[lo:hi], home.half[lo:hi], places, halves, buffer)
        order = np.lexsort((home.confounder[lo:hi], home.label[lo:hi])).astype(np.int32)
        pointer = np.zeros(hi - lo + 1, np.int64)
        walk(
            near, cluster[lo:hi], home.label[lo:hi], home.confounder[lo:hi], order,
            own.all[lo:hi].astype(np.int64), own.so[lo:hi].astype(np.int64),
            own.os[lo:hi].astype(np.int64), counts.size, *counts.label, *counts.confounder,
            radius.probes if spec.n_global else 0, int(spec.length[0]),
            max(radius.so, int(spec.length[1])) if spec.n_typed else 0,
            max(radius.os, int(spec.length[2])) if spec.n_typed else 0, pointer, room,
        )  # fmt: skip
        part = room[: pointer[-1]].copy()
        if graph:
            part, pointer = _without_own(part, pointer, cluster, typed=bool(spec.n_typed))
        parts.append(part)
        pointers.append(pointers[-1][-1] + pointer[1:])
    return _by_cluster(home, np.concatenate(pointers), np.concatenate(parts))


def _without_own(codes: I32, pointer: I64, cluster: I32, *, typed: bool) -> tuple[I32, I64]:
    """Turn full probes of the range's own clusters into typed ones, or drop them."""
    from croma_dask.kernels.probe import FULL, PROBE_OS, PROBE_SO

    at = codes >> 3
    own = ((codes & 7) == FULL) & (at >= cluster[0]) & (at <= cluster[-1])
    if typed:
        return np.where(own, at * 8 + (PROBE_SO | PROBE_OS), codes).astype(np.int32), pointer
    kept = np.concatenate([[0], np.cumsum(~own)])
    return codes[~own], kept[pointer].astype(np.int64)


def _by_cluster(home: Range, pointer: I64, codes: I32) -> Probes:
    """Group the rows that probe a cluster alike."""
    from croma_dask.kernels.probe import FULL, PROBE_OS, PROBE_SO

    row = np.repeat(np.arange(len(home), dtype=np.int32), np.diff(pointer))
    cluster, flags = codes >> 3, codes & 7
    n_labels = int(home.label.max(initial=0)) + 1
    n_confounders = int(home.confounder.max(initial=0)) + 1
    groups = 1 + n_labels + n_confounders
    keys, rows = [], []
    for flag, offset, level in (
        (FULL, 0, None), (PROBE_SO, 1, home.label), (PROBE_OS, 1 + n_labels, home.confounder),
    ):  # fmt: skip
        mine = np.flatnonzero(flags & flag)
        which = row[mine]
        part = cluster[mine].astype(np.int64) * groups + offset
        keys.append(part if level is None else part + level[which])
        rows.append(which)
    key, row = np.concatenate(keys), np.concatenate(rows)
    order = np.argsort(key, kind="stable")
    key, row = key[order], row[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    of_cluster, place = np.divmod(key[first], groups)
    is_so = (place >= 1) & (place <= n_labels)
    flag_of = np.where(place == 0, FULL, np.where(is_so, PROBE_SO, PROBE_OS))
    level_of = np.where(place == 0, -1, np.where(is_so, place - 1, place - 1 - n_labels))
    return Probes(
        pointer, codes, of_cluster.astype(np.int32), flag_of.astype(np.int32),
        level_of.astype(np.int32), np.append(first, key.shape[0]).astype(np.int64), row,
    )  # fmt: skip


@dataclass(frozen=True)
class ProbedRange:
    """A range with its probes, and where its clusters lie.

    Attributes
    ----------
    home, probes
        The range and what its rows probe.
    cluster
        (n,) cluster of the row at each place.
    first
        Cluster of the first row.
    edges
        Places where its clusters start, and the end.
    """

    home: Range
    probes: Probes
    cluster: I32
    first: int
    edges: I64


def sweep_probed(
    one: ProbedRange, two: ProbedRange, lists_one: Lists, lists_two: Lists, spec: ListSpec,
    buffer: F32, *, take_one: bool = True, take_two: bool = True,
    check: Callable[[], None] | None = None,
) -> int:  # fmt: skip
    """Offer all probed pairs of two ranges (of one, when both are the same) to their lists.

    Returns
    -------
    int
        Pairs that were multiplied.
    """
    pairs = _one_way(one, two, lists_one, lists_two, spec, buffer, take_one, take_two, check)
    if one is not two:
        pairs += _one_way(two, one, lists_two, lists_one, spec, buffer, take_two, take_one, check)
    return pairs


def _one_way(
    one: ProbedRange, two: ProbedRange, lists_one: Lists, lists_two: Lists, spec: ListSpec,
    buffer: F32, take_one: bool, take_two: bool, check: Callable[[], None] | None,
) -> int:  # fmt: skip
    """Pairs of rows of one range with the clusters of another that they probe.

    The nearest come first: each cluster with itself, then full probes, then typed ones. What
    follows has then less chance of entering a list that it would leave again.
    """
    from croma_dask.kernels.probe import ALL_ROWS, FULL, OTHER_ROWS, OWN_ROWS, sweep_groups

    a, b, probes = one.home, two.home, one.probes
    width = a.centred.shape[1]
    left = np.empty((TILE_ROWS, width), np.float32)
    right = np.empty((TILE_COLUMNS, width), np.float32)
    last = two.first + two.edges.shape[0] - 1
    lo, hi = (int(t) for t in np.searchsorted(probes.cluster, [two.first, last]))
    full = lo + np.flatnonzero(probes.flag[lo:hi] == FULL)
    typed = lo + np.flatnonzero(probes.flag[lo:hi] != FULL)
    turns = [(full, ALL_ROWS)] if one is not two else [(full, OWN_ROWS), (full, OTHER_ROWS)]
    pairs = 0
    for groups, whose in [*turns, (typed, ALL_ROWS)]:
        for g0 in range(0, groups.shape[0], _GROUPS):
            if check is not None:
                check()
            some = groups[g0 : g0 + _GROUPS]
            at = probes.cluster[some] - two.first
            pairs += sweep_groups(
                some, whose, probes.flag, probes.key, probes.edges, probes.rows,
                two.edges[at], two.edges[at + 1], spec.length, spec.start, left, right, buffer,
                a.centred, a.half, a.label, a.confounder, a.group, a.position, one.cluster,
                b.centred, b.half, b.label, b.confounder, b.group, b.position,
                two.probes.pointer, two.probes.codes,
                take_one, lists_one.keys, lists_one.fill, lists_one.threshold, lists_one.limit,
                take_two, lists_two.keys, lists_two.fill, lists_two.threshold, lists_two.limit,
            )  # fmt: skip
    return pairs
