"""Tasks of an approximate search beside those of the exact one: probing, and the exact sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from croma_dask.index.finish import (
    Delivered,
    certify,
    copied_at_once,
    deliver,
    replace_failing,
    second_look,
)
from croma_dask.index.lists import Lists
from croma_dask.index.probing import OwnGroup, TypeCounts, find_probes
from croma_dask.index.ranges import Range, load_range
from croma_dask.index.source import ArraySource, Codes
from croma_dask.index.spec import ListSpec
from croma_dask.index.streamed import Job
from croma_dask.index.sweep import exact_distances, sweep, tile_buffer
from croma_dask.index.threads import one_blas_thread
from croma_dask.kernels.order import nearest_first
from croma_dask.kernels.typing import I32

__all__ = ["merge_samples", "probe_range", "sample_range", "write_scope"]


def write_scope(job: Job, codes: Codes, row: I32) -> None:
    """Keep what the tasks need to know of the rows of a scope, in the order of the index.

    Parameters
    ----------
    job
        The search.
    codes
        Codes at each place of the index.
    row
        (N,) row of the scope at each place.
    """
    own = OwnGroup.of(codes)
    counts = TypeCounts.of(codes, job.partition.cluster_edges)
    job.scratch.write("counts.npz", counts.arrays())
    job.scratch.write("places.npz", {"row": row})
    for number in range(job.n_ranges):
        part = slice(job.edges[number], job.edges[number + 1])
        job.scratch.write_codes(number, codes.take(part), None)
        mine = own.take(part)
        job.scratch.write(
            f"range-{number:05d}/own.npz", {"all": mine.all, "so": mine.so, "os": mine.os}
        )


def probe_range(job: Job, number: int) -> int:
    """Choose what the rows of a range probe; return how many probes that are."""
    name = f"range-{number:05d}/"
    kept = job.scratch.find(name + "reach.npz")
    if kept is not None and job.scratch.find(name + "probes.npz") is not None:
        return int(kept["entries"])
    assert job.radius is not None
    with one_blas_thread():
        home = job.load(number)
        _, cluster = job.clusters(number)
        order = home.position - home.lo
        own = OwnGroup(**job.scratch.read(name + "own.npz")).take(order)
        counts = TypeCounts.of_arrays(job.scratch.read("counts.npz"))
        partition = job.partition
        probes = find_probes(
            home, cluster, own, counts, partition.sketches, job.radius, job.spec,
            graph=job.widening is not None,
        )  # fmt: skip
    starts = partition.cluster_edges[:-1][np.unique(probes.cluster)]
    reach = np.arange(job.n_ranges) == number
    reach[np.unique(np.searchsorted(job.edges, starts, side="right") - 1)] = True
    job.scratch.write(name + "probes.npz", probes.arrays())
    entries = int(probes.rows.shape[0])
    job.scratch.write(name + "reach.npz", {"reach": reach, "entries": np.array(entries)})
    return entries


def sample_range(job: Job, number: int, queries_name: str) -> Delivered:
    """Search the rows of one range for the nearest ones to the queries of a file, exactly.

    Returns
    -------
    Delivered
        For each query the nearest rows of this range, as rows of the scope.
    """
    kept = job.scratch.read(queries_name)
    codes = Codes(kept["label"], kept["confounder"], kept["group"])
    with one_blas_thread():
        home = job.load(number, whole=True)
        queries = load_range(ArraySource(kept["x"]), codes, 0, len(codes), job.frame)
        spec = replace(job.spec, sketched=False).clipped(len(home) + 1)
        # Of equal distances the lower row of the scope counts, wherever the index has it.
        names = job.scratch.read("places.npz")["row"]
        found = _search(queries, home, spec, names)
        order = queries.place
    return _padded(Delivered(found.index[order], found.distance[order]), spec, job.spec)


def _search(queries: Range, partner: Range, spec: ListSpec, names: I32) -> Delivered:
    lists = Lists.empty(len(queries), spec)
    nobody = _closed(len(partner), spec)
    buffer = tile_buffer()
    sweep(queries, partner, lists, nobody, spec, buffer, take_j=False)
    lists.settle(spec)
    distance = exact_distances(queries, lists, spec, [partner])
    found = deliver(lists, distance, spec, names)
    failing = certify(queries, lists, found, spec)
    named = replace(partner, position=names[partner.position])
    for part in failing.parts(copied_at_once(queries)):
        again, _ = second_look(queries, part, [lambda: named], spec, buffer)
        replace_failing(found, part, again, spec)
    return found


def _closed(n: int, spec: ListSpec) -> Lists:
    """Make lists that nothing can enter."""
    lists = Lists.empty(0, spec)
    lists.threshold = np.full((3, n), -np.inf, np.float32)
    lists.limit = lists.threshold
    return lists


def _padded(found: Delivered, spec: ListSpec, wanted: ListSpec) -> Delivered:
    """Bring the lists of a short range to the full length."""
    n = found.index.shape[0]
    index = np.full((n, wanted.delivered), -1, np.int32)
    distance = np.full((n, wanted.delivered), np.nan)
    for q in range(3):
        a, b, k = int(spec.offset[q]), int(wanted.offset[q]), int(spec.deliver[q])
        index[:, b : b + k] = found.index[:, a : a + k]
        distance[:, b : b + k] = found.distance[:, a : a + k]
    return Delivered(index, distance)


def merge_samples(parts: Sequence[Delivered], spec: ListSpec, row: I32) -> tuple[Delivered, Any]:
    """Put the lists of a sample from all ranges together.

    Parameters
    ----------
    parts
        One a range.
    spec
        Lists to deliver.
    row
        (N,) row of the scope at each place of the index.

    Returns
    -------
    delivered, place
        The exact lists of the sample, as rows of the scope; and (n, delivered) the places of the
        index of their entries, -1 behind the last.
    """
    index, out, places = [], [], []
    back = np.empty(row.shape[0], np.int32)
    back[row] = np.arange(row.shape[0], dtype=np.int32)
    for q in range(3):
        mine = slice(int(spec.offset[q]), int(spec.offset[q] + spec.deliver[q]))
        rows = np.concatenate([part.index[:, mine] for part in parts], axis=1)
        distance = np.concatenate([part.distance[:, mine] for part in parts], axis=1)
        distance = np.where(rows >= 0, distance, np.inf)
        i, d = nearest_first(rows, distance, int(spec.deliver[q]))
        index.append(i)
        out.append(d)
        places.append(np.where(i >= 0, back[i], -1).astype(np.int32))
    return (
        Delivered(np.concatenate(index, axis=1), np.concatenate(out, axis=1)),
        np.concatenate(places, axis=1),
    )
