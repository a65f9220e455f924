"""The graph of a streamed search: small, complete, and ordered only where it has to be."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from croma_dask.cohort.align import Embedding
from croma_dask.cohort.store import StoredCohort
from croma_dask.graph import pair_graph
from croma_dask.index.scratch import Scratch
from croma_dask.index.source import StoreSource
from croma_dask.index.spec import ListSpec
from croma_dask.index.streamed import Job, finish_range, meet_blocks
from croma_dask.kernels.frame import Frame
from croma_dask.layout import MOST_TASKS, lay_out
from croma_dask.options import Options

SPEC = ListSpec(51, 5)


def job_of(edges: tuple[int, ...], per_block: int, tmp_path: Path) -> Job:
    """A job on a store that is not there: nothing of it is opened to build a graph."""
    source = StoreSource(StoredCohort(str(tmp_path / "cohort.zarr")))
    return Job(
        source, Scratch(str(tmp_path / "scratch")), edges, per_block, SPEC, Frame(np.zeros(1024))
    )


def split(graph: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pair tasks and finishing tasks."""
    tasks = {k: v for k, v in graph.items() if isinstance(v, tuple)}
    pairs = {k: v for k, v in tasks.items() if v[0] is meet_blocks}
    finishing = {k: v for k, v in tasks.items() if v[0] is finish_range}
    return pairs, finishing


@pytest.mark.parametrize(
    ("allowed", "n_tasks"), [("2GB", 2), ("8GB", 2), ("8GB", 16), ("100GB", 16)]
)
def test_graph__of_ten_million_rows_is_small(allowed: str, n_tasks: int, tmp_path: Path) -> None:
    n, d = 10_000_000, 1_024
    rows = Embedding(np.broadcast_to(np.float32(0), (n, d)), None)
    layout = lay_out(rows, n, SPEC, Options(memory=allowed), n_tasks=n_tasks, fixed=0)
    assert layout.engine == "streamed"
    graph, last, work = pair_graph(job_of(layout.edges, layout.per_block, tmp_path))
    for dump in (pickle.dumps, cloudpickle.dumps):
        assert len(dump(graph)) < 1 << 20
    assert layout.n_tasks == len(work) <= MOST_TASKS
    assert len(last) == len(layout.edges) - 1
    assert sum(work.values()) == pytest.approx(n * n / 2, rel=1e-6)
    assert not list(tmp_path.iterdir()), "nothing was written"


@pytest.mark.parametrize("n_ranges", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("per_block", [1, 2, 3, 5])
def test_graph__has_each_pair_of_ranges_exactly_once(
    n_ranges: int, per_block: int, tmp_path: Path
) -> None:
    job = job_of(tuple(range(0, 10 * n_ranges + 1, 10)), per_block, tmp_path)
    graph, last, work = pair_graph(job)
    pairs, finishing = split(graph)
    met = Counter(
        (i, j)
        for _, shared, block_i, block_j, *_ in pairs.values()
        for i in job.members(block_i)
        for j in job.members(block_j)
        if j >= i
    )
    assert set(met) == {(i, j) for i in range(n_ranges) for j in range(i, n_ranges)}
    assert set(met.values()) == {1}
    assert set(work) == set(pairs)
    assert sorted(v[2] for v in finishing.values()) == list(range(n_ranges))
    assert last == list(finishing)


@pytest.mark.parametrize("n_blocks", [1, 2, 5, 8])
def test_graph__a_task_waits_for_the_last_tasks_of_its_two_blocks_only(
    n_blocks: int, tmp_path: Path
) -> None:
    pairs, _ = split(pair_graph(job_of(tuple(range(n_blocks + 1)), 1, tmp_path))[0])
    latest: dict[int, str] = {}
    for key, (_, _, i, j, *after) in pairs.items():
        assert set(after) == {latest[b] for b in (i, j) if b in latest}
        assert len(after) == len(set(after))
        latest[i] = latest[j] = key


@pytest.mark.parametrize("n_blocks", [1, 2, 5])
def test_graph__a_range_is_finished_when_all_pairs_are_over(n_blocks: int, tmp_path: Path) -> None:
    """Rows that fail the certificate are searched again, for which a range meets all others."""
    graph = pair_graph(job_of(tuple(range(n_blocks + 1)), 1, tmp_path))[0]
    pairs, finishing = split(graph)
    for key in finishing:
        before, found = [key], set()
        while before:
            task = graph[before.pop()]
            parts = task[1:] if isinstance(task, tuple) else ()
            new = {part for part in parts if isinstance(part, str)} - found
            found |= new
            before += new
        assert found >= set(pairs)


@pytest.mark.parametrize("n_blocks", [2, 6, 9])
def test_graph__keeps_half_as_many_workers_busy_as_there_are_blocks(
    n_blocks: int, tmp_path: Path
) -> None:
    """In a round every block is in one pair: as deep as there are rounds, and no deeper."""
    pairs, _ = split(pair_graph(job_of(tuple(range(n_blocks + 1)), 1, tmp_path))[0])
    depth: dict[str, int] = {}
    for key, (_, _, _, _, *after) in pairs.items():
        depth[key] = 1 + max((depth[k] for k in after), default=0)
    assert max(depth.values()) == n_blocks + n_blocks % 2


def test_graph__names_belong_to_one_run(tmp_path: Path) -> None:
    """A scheduler takes equal keys for equal tasks, and would skip those of a second run."""
    job = job_of((0, 10, 20), 1, tmp_path)
    assert not set(pair_graph(job)[0]) & set(pair_graph(job)[0])


def test_graph__carries_the_job_once_and_numbers_otherwise(tmp_path: Path) -> None:
    graph = pair_graph(job_of(tuple(range(0, 101, 10)), 1, tmp_path))[0]
    jobs = [key for key, value in graph.items() if isinstance(value, Job)]
    assert len(jobs) == 1
    for key, task in graph.items():
        if key != jobs[0]:
            assert all(isinstance(part, int | str) for part in task[1:])
    for part in split(graph):
        assert all(task[1] == jobs[0] for task in part.values())
