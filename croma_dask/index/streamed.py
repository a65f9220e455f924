"""Tasks of a streamed search: what one worker does with one pair of ranges.

Nothing here knows of a scheduler. A task gets a :class:`Job` (paths, edges, lengths) and the
numbers of ranges; rows come from the source and lists from the scratch folder.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.errors import StoreError
from croma_dask.index.finish import (
    certify,
    copied_at_once,
    deliver,
    in_scope_order,
    replace_failing,
    second_look,
)
from croma_dask.index.graphs import Widening, offer_graph
from croma_dask.index.lists import Lists
from croma_dask.index.probing import ProbedRange, Probes, Radius, sweep_probed
from croma_dask.index.range_blocks import RangeBlocks
from croma_dask.index.ranges import Range, load_range
from croma_dask.index.scratch import Scratch
from croma_dask.index.source import OfAnother, RowSource, TakenRows
from croma_dask.index.spec import ListSpec
from croma_dask.index.stored import Partition, StoredIndex
from croma_dask.index.sweep import exact_distances, sweep, tile_buffer
from croma_dask.index.threads import one_blas_thread
from croma_dask.kernels.frame import Frame
from croma_dask.kernels.typing import F64, I32

__all__ = ["Job", "allow_tasks", "count_tasks", "finish_range", "meet_blocks", "stop_tasks"]


@dataclass(frozen=True)
class Job(RangeBlocks):
    """All that the tasks of a search share; small, sent to a worker once.

    Attributes
    ----------
    source
        Rows (tiles) by reference.
    scratch
        Folder of the run.
    edges
        Edges of the ranges in the scope, one more than there are ranges.
    per_block
        Ranges that one task takes on each side.
    spec
        Lists to deliver.
    frame
        Distance, and origin of the screening.
    radius
        How far rows look in the index that is their source; None for everywhere.
    widening
        Of an index with a graph a shard: how rows ask it again; None without graphs.
    """

    source: RowSource
    scratch: Scratch
    edges: tuple[int, ...]
    per_block: int
    spec: ListSpec
    frame: Frame
    radius: Radius | None = None
    widening: Widening | None = None

    def load(self, number: int, *, whole: bool = False) -> Range:
        """Read a range; of an index its sketch, unless it is to be screened by `whole` rows."""
        lo, hi = self.edges[number], self.edges[number + 1]
        codes, tiles = self.scratch.read_codes(number)
        if self.radius is not None:
            basis = None if whole else self.partition.basis
            cluster = self.clusters(number)[1]
            return load_range(self.source, codes, lo, hi, self.frame, cluster, basis)
        if tiles is None:
            return load_range(self.source, codes, lo, hi, self.frame)
        moved = _Shifted(TakenRows(self.source, tiles), lo)
        return load_range(moved, codes, lo, hi, self.frame)

    @property
    def partition(self) -> Partition:
        """Partition of the index."""
        assert isinstance(self.source, StoredIndex)
        return self.source.partition

    def clusters(self, number: int) -> tuple[int, I32]:
        """First cluster of a range, and the cluster of each of its rows."""
        lo, hi = self.edges[number], self.edges[number + 1]
        edges = self.partition.cluster_edges
        first, last = np.searchsorted(edges, [lo, hi])
        which = np.arange(first, last, dtype=np.int32)
        return int(first), np.repeat(which, np.diff(edges[first : last + 1]))

    def probed(self, number: int, home: Range) -> ProbedRange:
        """Return a range with what its rows probe."""
        first, cluster = self.clusters(number)
        lo, hi = self.edges[number], self.edges[number + 1]
        edges = self.partition.cluster_edges
        mine = edges[first : np.searchsorted(edges, hi) + 1] - lo
        kept = self.scratch.read(f"range-{number:05d}/probes.npz")
        return ProbedRange(home, Probes.of_arrays(kept), cluster, first, mine)

    def touches(self, number: int) -> Any:
        """(n_ranges,) which ranges the rows of one look into."""
        if self.radius is None:
            return np.ones(self.n_ranges, bool)
        return self.scratch.read(f"range-{number:05d}/reach.npz")["reach"]

    def partners(self, number: int) -> Any:
        """(n_ranges,) which ranges one has to meet: that it looks into, or that look into it."""
        mine = self.touches(number).copy()
        if self.radius is not None:
            for other in range(self.n_ranges):
                mine[other] |= self.touches(other)[number]
        return mine


@dataclass(frozen=True)
class _Shifted(OfAnother):
    """A source that holds only the rows of one range, addressed as the scope addresses them."""

    source: RowSource
    by: int

    @property
    def n_rows(self) -> int:
        return self.by + self.source.n_rows

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        return self.source.read(lo - self.by, hi - self.by)

    def pieces(self, lo: int, hi: int) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
        return self.source.pieces(lo - self.by, hi - self.by)


_stopped: set[str] = set()
"""Scratch folders of runs that were interrupted in this process; their tasks end at the next
tile, instead of keeping the process alive until they are done."""


class Stopped(Exception):
    """The run that a task belongs to was interrupted."""


def stop_tasks(scratch: Scratch) -> None:
    """Let the tasks of a run that are under way in this process end at their next tile."""
    _stopped.add(scratch.path)


def allow_tasks(scratch: Scratch) -> None:
    """Let the tasks of a run go on again."""
    _stopped.discard(scratch.path)


def _check(job: Job) -> None:
    if job.scratch.path in _stopped:
        raise Stopped(job.scratch.path)


def meet_blocks(job: Job, block_i: int, block_j: int, *_after: Any) -> int:
    """Let all ranges of two blocks meet; return the number of pairs of rows that were new.

    `_after` are the results of the tasks that have to be over before this one.
    """
    pairs = 0
    buffer = tile_buffer()
    if job.radius is not None:
        # Its BLAS is the compiled kernels', and has to be there when threads are limited.
        importlib.import_module("scipy.linalg.cython_blas")
    with one_blas_thread():
        for i in job.members(block_i):
            met = job.scratch.met(i, job.n_ranges)
            partners = [
                j
                for j in job.members(block_j)
                if j >= i
                and (i == j or job.touches(i)[j] or job.touches(j)[i])
                and not (met[j] and job.scratch.met(j, job.n_ranges)[i])
            ]
            if not partners:
                continue
            # The lists of i stay in memory while its partners come and go.
            side_i = _Side.take_up(job, i)
            for j in partners:
                if j == i:
                    _meet(job, side_i, side_i, buffer)
                    pairs += len(side_i.home) ** 2 // 2
                    continue
                side_j = _Side.take_up(job, j)
                _meet(job, side_i, side_j, buffer)
                side_j.put_down(job)
                pairs += len(side_i.home) * len(side_j.home)
                del side_j
            side_i.put_down(job)
    return pairs


@dataclass
class _Side:
    """A range in a task: its rows, its lists, whom they have met, and what is measured so far."""

    number: int
    home: Range
    lists: Lists
    met: Any
    probed: ProbedRange | None
    distance: F64 | None = None

    @classmethod
    def take_up(cls, job: Job, number: int) -> _Side:
        home = job.load(number)
        packed = job.scratch.read_lists(number)
        probed = job.probed(number, home) if job.radius is not None else None
        if packed is None:
            nobody = np.zeros(job.n_ranges, bool)
            return cls(number, home, Lists.empty(len(home), job.spec), nobody, probed)
        return cls(number, home, Lists.unpack(packed, job.spec), packed["met"], probed)

    def measure(self, job: Job, partner: Range) -> None:
        """Measure what has entered the lists from a partner, while its rows are in memory."""
        self.lists.settle(job.spec)
        self.distance = exact_distances(self.home, self.lists, job.spec, [partner])

    def put_down(self, job: Job) -> None:
        """Write a new generation, if there is anything new."""
        if self.distance is not None:
            packed = self.lists.pack(job.spec, self.distance)
            job.scratch.write_lists(self.number, {**packed, "met": self.met})


def _meet(job: Job, side_i: _Side, side_j: _Side, buffer: Any) -> None:
    same = side_i is side_j
    take_i, take_j = not side_i.met[side_j.number], not side_j.met[side_i.number]
    for side in (side_i,) if same else (side_i, side_j):
        if side.distance is not None:
            side.lists.know(side.distance, job.spec)
    check = functools.partial(_check, job)
    if side_i.probed is not None and side_j.probed is not None:
        sweep_probed(
            side_i.probed, side_j.probed, side_i.lists, side_j.lists, job.spec, buffer,
            take_one=take_i, take_two=take_j, check=check,
        )  # fmt: skip
    else:
        sweep(
            side_i.home, side_j.home, side_i.lists, side_j.lists, job.spec, buffer,
            take_i=take_i, take_j=take_j, check=check,
        )  # fmt: skip
    if same and take_i and job.widening is not None:
        assert isinstance(job.source, StoredIndex)
        offer_graph(
            job.source, side_i.number, side_i.home, side_i.lists, job.spec, job.widening, buffer
        )
    if take_i:
        side_i.measure(job, side_j.home)
        side_i.met[side_j.number] = True
    if take_j and not same:
        side_j.measure(job, side_i.home)
        side_j.met[side_i.number] = True


def _same(home: Range) -> Range:
    return home


def count_tasks(*finished: int) -> int:
    """Wait for other tasks, by depending on them."""
    return len(finished)


def finish_range(job: Job, number: int, *_after: Any) -> int:
    """Deliver the lists of a range and search its failing rows again; return how many failed."""
    done = job.scratch.n_failing(number)
    if done is not None:
        return done
    with one_blas_thread():
        home = job.load(number)
        packed = job.scratch.read_lists(number)
        if packed is None or not packed["met"][job.partners(number)].all():
            # The newest lists were damaged, and the ones before them count again.
            raise StoreError(
                f"lists of range {number} in {job.scratch.path} were damaged; start the same run "
                "again, it goes on from what is whole"
            )
        distance = packed["distance"]
        lists = Lists.unpack(packed, job.spec)
        del packed
        if job.radius is not None:
            _finish_probed(job, number, home, lists, distance)
            return 0
        found = deliver(lists, distance, job.spec)
        failing = certify(home, lists, found, job.spec)
        del lists, distance
        # The lists' memory is free now: as many failing rows are copied at once as fit it.
        at_once = copied_at_once(home, 96 * job.spec.screened * len(home))
        for part in failing.parts(at_once):
            partners = [
                functools.partial(_same, home) if k == number else functools.partial(job.load, k)
                for k in range(job.n_ranges)
            ]
            again, _ = second_look(home, part, partners, job.spec, tile_buffer())
            replace_failing(found, part, again, job.spec)
        found = in_scope_order(home, found)
        job.scratch.write_final(
            number, found.index[:, : job.spec.indexed], found.distance, int(failing.rows.size)
        )
    return int(failing.rows.size)


def _finish_probed(job: Job, number: int, home: Range, lists: Lists, distance: F64) -> None:
    """Deliver what the rows of a range have met, under the names of the scope, in its order.

    There is no certificate: what was not met cannot be told from what was dropped.
    """
    names = job.scratch.read("places.npz")["row"]
    found = deliver(lists, distance, job.spec, names)
    row = names[home.position]
    order = np.argsort(row)
    job.scratch.write(f"range-{number:05d}/rows.npz", {"row": row[order]})
    job.scratch.write_final(
        number, found.index[order, : job.spec.n_global], found.distance[order], 0
    )
