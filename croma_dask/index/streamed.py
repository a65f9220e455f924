"""Tasks of a streamed search: what one worker does with one pair of ranges.

Nothing here knows of a scheduler. A task gets a :class:`Job` (paths, edges, lengths) and the
numbers of ranges; rows come from the source and lists from the scratch folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.index.finish import (
    certify,
    deliver,
    in_scope_order,
    replace_failing,
    second_look,
)
from croma_dask.index.lists import Lists
from croma_dask.index.ranges import Range, load_range
from croma_dask.index.scratch import Scratch
from croma_dask.index.source import RowSource, TakenRows
from croma_dask.index.spec import ListSpec
from croma_dask.index.sweep import exact_distances, sweep, tile_buffer
from croma_dask.index.threads import one_blas_thread
from croma_dask.kernels.typing import F64

__all__ = ["Job", "finish_range", "meet_blocks", "scope_source"]


@dataclass(frozen=True)
class Job:
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
    mean
        (D,) mean of the unit vectors.
    """

    source: RowSource
    scratch: Scratch
    edges: tuple[int, ...]
    per_block: int
    spec: ListSpec
    mean: F64

    @property
    def n_ranges(self) -> int:
        """Number of ranges."""
        return len(self.edges) - 1

    @property
    def n_blocks(self) -> int:
        """Number of blocks of ranges that tasks pair up."""
        return -(-self.n_ranges // self.per_block)

    def members(self, block: int) -> range:
        """Ranges of a block."""
        return range(
            block * self.per_block, min(self.n_ranges, (block + 1) * self.per_block)
        )

    def load(self, number: int) -> Range:
        """Read a range."""
        lo, hi = self.edges[number], self.edges[number + 1]
        codes, tiles = self.scratch.read_codes(number)
        if tiles is None:
            return load_range(self.source, codes, lo, hi, self.mean)
        moved = _Shifted(TakenRows(self.source, tiles), lo)
        return load_range(moved, codes, lo, hi, self.mean)


@dataclass(frozen=True)
class _Shifted:
    """A source that holds only the rows of one range, addressed as the scope addresses them."""

    source: RowSource
    by: int

    @property
    def n_rows(self) -> int:
        return self.by + self.source.n_rows

    @property
    def n_features(self) -> int:
        return self.source.n_features

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def step(self) -> int:
        return self.source.step

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        return self.source.read(lo - self.by, hi - self.by)


def scope_source(source: RowSource, rows: Any) -> RowSource:
    """Rows of a scope: all of the source, or some."""
    return source if rows is None else TakenRows(source, np.asarray(rows, np.int64))


def meet_blocks(job: Job, block_i: int, block_j: int, *_after: Any) -> int:
    """Let all ranges of two blocks meet; return the number of pairs of rows that were new.

    `_after` are the results of the tasks that have to be over before this one.
    """
    pairs = 0
    buffer = tile_buffer()
    with one_blas_thread():
        for i in job.members(block_i):
            met = job.scratch.met(i, job.n_ranges)
            partners = [
                j
                for j in job.members(block_j)
                if j >= i and not (met[j] and job.scratch.met(j, job.n_ranges)[i])
            ]
            if not partners:
                continue
            range_i = job.load(i)
            for j in partners:
                range_j = range_i if j == i else job.load(j)
                _meet(job, i, j, range_i, range_j, buffer)
                pairs += len(range_i) * len(range_j)
    return pairs


def _meet(
    job: Job, i: int, j: int, range_i: Range, range_j: Range, buffer: Any
) -> None:
    sides = [(i, range_i, j)] if i == j else [(i, range_i, j), (j, range_j, i)]
    lists, met = [], []
    for number, home, partner in sides:
        packed = job.scratch.read_lists(number)
        done = np.zeros(job.n_ranges, bool) if packed is None else packed["met"]
        met.append(done)
        if done[partner]:
            lists.append(Lists.closed(len(home), job.spec))
        elif packed is None:
            lists.append(Lists.empty(len(home), job.spec))
        else:
            lists.append(Lists.unpack(packed, job.spec))
        del packed
    takes = [not done[partner] for done, (_, _, partner) in zip(met, sides, strict=True)]
    sweep(
        range_i, range_j, lists[0], lists[-1], job.spec, buffer,
        take_i=takes[0], take_j=takes[-1],
    )  # fmt: skip
    for side, (number, home, partner) in enumerate(sides):
        if not takes[side]:
            continue
        lists[side].settle(job.spec)
        other = range_j if number == i else range_i
        distance = exact_distances(home, lists[side], job.spec, [other])
        packed = lists[side].pack(job.spec, distance)
        met[side][partner] = True
        # Room for the file's arrays before the buffer is needed again: the peak is here.
        lists[side] = Lists.closed(0, job.spec)
        job.scratch.write_lists(number, {**packed, "met": met[side]})


def finish_range(job: Job, number: int, *_after: Any) -> int:
    """Deliver the lists of a range and search its failing rows again; return how many failed."""
    done = job.scratch.n_failing(number)
    if done is not None:
        return done
    with one_blas_thread():
        home = job.load(number)
        packed = job.scratch.read_lists(number)
        if packed is None or not packed["met"].all():
            raise RuntimeError(f"range {number} has not met all others")
        distance = packed["distance"]
        lists = Lists.unpack(packed, job.spec)
        del packed
        found = deliver(lists, distance, job.spec)
        failing = certify(home, lists, found, job.spec)
        del lists, distance
        # The lists' memory is free now: as many failing rows are copied at once as fit it.
        at_once = max(256, 96 * job.spec.screened * len(home) // (8 * home.x.shape[1] + 64))
        for part in failing.parts(at_once):
            partners = (
                home if k == number else job.load(k) for k in range(job.n_ranges)
            )
            again, _ = second_look(home, part, partners, job.spec, tile_buffer())
            replace_failing(found, part, again, job.spec)
        found = in_scope_order(home, found)
        job.scratch.write_final(number, found.index, found.distance, int(failing.rows.size))
    return int(failing.rows.size)
