"""The exact engine at sizes where it takes hours: some of its tasks, timed, and added up."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import child, timing

if TYPE_CHECKING:
    import xarray as xr

POOLED = (
    ("RI", "value"),
    ("MaRI", "value"),
    ("CRoMa", "value"),
    ("CRoMa", "ltm_alpha"),
    ("CRoMa", "f0"),
)
"""What an approximate run tells the error of."""

Row = dict[str, Any]


def values_of(tree: xr.DataTree) -> dict[str, float]:
    """Return every value of which an approximate run tells the error."""
    return {f"{metric} {name}": float(tree[metric][name]) for metric, name in POOLED}


def at_candidates(tree: xr.DataTree) -> dict[str, dict[str, float]]:
    """RI and MaRI at every candidate k, by its digits."""
    return {
        f"{metric} value": {
            str(k): float(value)
            for k, value in zip(
                tree[metric]["k_candidate"].values, tree[metric]["curve"].values, strict=True
            )
        }
        for metric in ("RI", "MaRI")
    }


def whole(_: child.Meter, place: str, folder: str, memory: str | None) -> Row:
    """Score exactly, whole."""
    import croma_dask as cd

    timing.warm_up()
    found: list[xr.DataTree] = []
    how: dict[str, Any] = {"memory": memory, "scratch": f"{folder}/scratch", "resume": False}
    seconds = timing.timed(lambda: found.append(cd.score(place, confounder="center", **how)))
    return {
        "seconds": seconds, "values": values_of(found[0]), "k": int(found[0]["RI"]["k"]),
        "curves": at_candidates(found[0]),
    }  # fmt: skip


def tasks(_: child.Meter, place: str, folder: str, memory: str | None, turns: int) -> Row:
    """Time tasks of the exact search as it would be laid out, and add up what all would take.

    As many tasks at once as the search runs. The first ranges of it meet themselves, then each
    other, in `turns` rounds: the first of them stands for all first meetings, the last for all
    later ones. What follows the tasks (finishing, scoring) is left out: the exact engine is
    credited with it.
    """
    from croma_dask import memory as mem
    from croma_dask.cohort.manifest import ColumnNames
    from croma_dask.cohort.store import StoredCohort
    from croma_dask.first_pass import look_over
    from croma_dask.index.scratch import Scratch
    from croma_dask.index.source import Codes, StoreSource
    from croma_dask.index.streamed import Job, meet_blocks
    from croma_dask.index.tournament import rounds
    from croma_dask.kernels.frame import Frame
    from croma_dask.layout import lay_out
    from croma_dask.options import merged
    from croma_dask.robustness.request import Request, prepare
    from croma_dask.score import DEFAULT_K, DEFAULT_METRICS

    timing.warm_up()
    options = merged(memory=memory)
    request = Request.of(DEFAULT_METRICS, k_candidates=DEFAULT_K, m=5)
    inputs = prepare(StoredCohort(place), None, ColumnNames("center"), "all")
    n, scope, at_once = inputs.manifest.n_rows, inputs.scopes[0], options.n_threads
    source = StoreSource(inputs.embedding.data)
    started = time.perf_counter()
    profile, _digest = look_over(source, inputs.embedding, options, None)
    first_pass = time.perf_counter() - started
    layout = lay_out(
        inputs.embedding, n, request.spec, options, n_tasks=at_once, streamed=True,
        fixed=mem.manifest_bytes(n, n_scores=request.n_scores),
    )  # fmt: skip
    scratch = Scratch(tempfile.mkdtemp(dir=folder))
    spec = request.spec.clipped(n)
    job = Job(source, scratch, layout.edges, layout.per_block, spec, Frame(profile.mean))
    codes = Codes(scope.label, scope.confounder, scope.group)
    players = min(job.n_blocks, 2 * at_once)
    for number in range(job.members(players - 1).stop):
        part = slice(job.edges[number], job.edges[number + 1])
        scratch.write_codes(number, codes.take(part), None)
    seconds: list[float] = []
    with ThreadPoolExecutor(at_once) as pool:
        for pairs in rounds(players)[: turns + 1]:
            started = time.perf_counter()
            list(pool.map(lambda pair: meet_blocks(job, *pair), pairs))
            seconds.append((time.perf_counter() - started) / len(pairs))
    scratch.remove()
    blocks, first = job.n_blocks, job.n_blocks // 2
    later = blocks * (blocks - 1) // 2 - first
    total = blocks * seconds[0] + first * seconds[1] + later * seconds[-1]
    return {
        "seconds": first_pass + total, "tasks": layout.n_tasks, "first_pass": first_pass,
        "a_task": seconds, "rows": int(np.diff(layout.edges).max()),
    }  # fmt: skip


def auto_switches(d: int) -> int:
    """Least rows of D features, from 20,000 on, for which `auto` builds an index."""
    from croma_dask import memory as mem
    from croma_dask.cohort.align import Embedding
    from croma_dask.cost import choose, estimate_exact
    from croma_dask.options import merged
    from croma_dask.robustness.request import Request
    from croma_dask.score import DEFAULT_K, DEFAULT_METRICS

    request = Request.of(DEFAULT_METRICS, k_candidates=DEFAULT_K, m=5)
    options = merged()

    def switched(n: int) -> bool:
        # Only shape and dtype count: one row that repeats.
        rows = Embedding(np.broadcast_to(np.zeros((1, d), np.float32), (n, d)), None)
        cost = estimate_exact(
            rows, [n], request.spec, options, n_tasks=options.n_threads, n_workers=1,
            fixed=mem.manifest_bytes(n, n_scores=request.n_scores),
        )  # fmt: skip
        return choose(cost, n, d, request.spec, served=True, built=False).kind != "exact"

    low, high = 20_000, 2_000_000
    while high - low > 10_000:
        middle = (low + high) // 2
        low, high = (low, middle) if switched(middle) else (middle, high)
    return high
