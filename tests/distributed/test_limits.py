"""A cluster that cannot do the work says so, in words that help, and soon."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

import croma_dask as cd
from benchmarks import streamed
from croma_dask import tasks
from croma_dask.cohort.store import StoredCohort
from croma_dask.graph import pair_graph
from croma_dask.index.scratch import Scratch
from croma_dask.index.source import StoreSource
from croma_dask.index.spec import ListSpec
from croma_dask.index.streamed import Job
from croma_dask.kernels.frame import Frame
from croma_dask.tasks import run_graph
from tests.faces.conftest import make_cohort
from tests.helpers.processes import PATIENCE, Driver, Processes, smallest_memory, wait_until

pytestmark = pytest.mark.cluster

GREEDY = """
from croma_dask.index import streamed

def meet_blocks(*args):
    import time

    held = bytearray(2 << 30)  # more than the worker may have
    time.sleep(600)  # until the nanny has seen it
    return len(held)

streamed.meet_blocks = meet_blocks
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    return cd.write_cohort(tmp_path_factory.mktemp("limits") / "cohort.zarr", *make_cohort(3_000))


def assert_refused(driver: Driver, *parts: str) -> str:
    """Exit code 3; one line of error, no traceback, no table."""
    code, out, err = driver.end()
    assert code == 3, err
    assert out == ""
    assert "Traceback" not in err
    last = err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    for part in parts:
        assert part in last
    return err


@pytest.mark.slow
@pytest.mark.ci
def test_absurd_limit__is_refused_before_anything_runs(
    new_cluster: Callable[..., Processes], place: str, tmp_path: Path,
    drive: Callable[..., Driver],
) -> None:  # fmt: skip
    """Whatever is asked for, a run takes no more than what the worker has."""
    cluster = new_cluster()
    cluster.add_worker(memory="300MB")
    call = ["score", place, "--confounder", "center", "--scheduler", cluster.file]
    call += ["--out", tmp_path / "r.zarr"]
    assert_refused(drive(*call), "largest term is 'libraries'", "allowed 180.00 MB")
    err = assert_refused(
        drive(*call, "--memory", "8GB"), "largest term is 'libraries'", "172.89 MB"
    )
    assert "the smallest worker is limited to 300.00 MB" in err
    assert [path.name for path in tmp_path.iterdir()] == ["cluster"]


@pytest.mark.slow
@pytest.mark.ci
def test_workers_that_die_of_memory__are_an_error_that_names_the_term(
    new_cluster: Callable[..., Processes], place: str, tmp_path: Path,
    drive: Callable[..., Driver],
) -> None:  # fmt: skip
    """What was planned is one thing: here a task takes two gigabytes all the same."""
    cluster = new_cluster(scheduler__allowed_failures=0)
    cluster.add_worker(memory="1GB", preload=GREEDY)
    memory = smallest_memory(place)
    call = ["score", place, "--confounder", "center", "--scheduler", cluster.file]
    call += ["--memory", memory, "--out", tmp_path / "r.zarr"]
    assert_refused(
        drive(*call), "a worker died", "croma-pairs-", "largest term is 'libraries'",
        "give the workers more", "a new run resumes",
    )  # fmt: skip
    # Nothing was done, so nothing is kept but the folder's lock and cut.
    assert not list(tmp_path.glob(".r.zarr.scratch/*/range-*/lists-*"))


def slow_tasks(n: int) -> tuple[dict[str, Any], list[str]]:
    """Tasks that wait for one another."""
    keys = [f"croma-test-{number}" for number in range(n)]
    graph: dict[str, Any] = {}
    for key, before in zip(keys, [None, *keys], strict=False):
        graph[key] = (divmod, 7, 2) if before is None else (max, before, before)
    return graph, keys


def test_full_workers__are_not_waited_for_for_ever(
    new_cluster: Callable[..., Processes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask pauses a worker at a share of its limit; one that is full before it starts stays so."""
    monkeypatch.setattr(tasks, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(tasks, "PATIENCE_SECONDS", 1.0)
    cluster = new_cluster(worker__memory__pause=0.01)
    cluster.add_worker()
    graph, keys = slow_tasks(3)
    with cluster.client(1) as client:
        wait_until(
            lambda: all(
                worker["status"] == "paused"
                for worker in client.scheduler_info(n_workers=-1)["workers"].values()
            ),
            "the worker to be paused",
        )
        with pytest.raises(cd.MemoryLimitError, match=r"1 workers are paused.*term is 'rows'"):
            run_graph(graph, keys, client=client, terms={"rows": 10**9, "lists": 10**6})


@pytest.mark.slow
def test_no_worker_left__is_told_and_one_that_joins_goes_on(
    new_cluster: Callable[..., Processes], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(tasks, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(tasks, "PATIENCE_SECONDS", 1.0)
    cluster = new_cluster()
    cluster.add_worker(nanny=False)
    graph, keys = slow_tasks(3)
    with cluster.client(1) as client, ThreadPoolExecutor(1) as pool:
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"], "its end")
        with caplog.at_level(logging.WARNING, "croma_dask"):
            running = pool.submit(run_graph, graph, keys, client=client)
            wait_until(lambda: "no worker left" in caplog.text, "a word about it")
        assert not running.done()
        cluster.add_worker()
        assert running.result(timeout=PATIENCE) == [(3, 1)] * 3


@pytest.mark.slow
def test_scheduler_killed__is_an_error_of_one_line(
    new_cluster: Callable[..., Processes], place: str, tmp_path: Path,
    drive: Callable[..., Driver],
) -> None:  # fmt: skip
    cluster = new_cluster()
    cluster.add_worker()
    out, scratch = tmp_path / "r.zarr", tmp_path / ".r.zarr.scratch"
    call = ["score", place, "--confounder", "center", "--memory", smallest_memory(place)]
    call += ["--out", out]
    driver = drive(*call, "--scheduler", cluster.file)
    wait_until(
        lambda: driver.process.poll() is not None or list(scratch.glob("*/range-*/lists-*")),
        "the first lists",
    )
    cluster.kill()
    code, _, err = driver.end()
    assert code == 2, err
    assert "its scheduler is gone" in err.strip().splitlines()[-1]
    code, _, err = drive(*call, "--threads", 1).end()
    assert code == 0, err
    assert "resuming" in err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::croma_dask.SupportWarning")
def test_worker__holds_what_was_planned_and_never_more(
    new_cluster: Callable[..., Processes], tmp_path: Path, record_property: Callable[..., None]
) -> None:
    """Two ranges with their lists, a chunk and a tile, however many rows there are."""
    place = streamed.store(tmp_path, 24_000, 1_024)
    cluster = new_cluster()
    for _ in range(2):
        cluster.add_worker()

    def peak() -> int:
        import resource

        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with cluster.client(2) as client:
        bare = client.run(peak)
        options: dict[str, Any] = {"confounder": "center", "memory": "512MB", "client": client}
        plan = cd.plan(place, **options)
        assert plan.engine == "streamed"
        cd.score(place, scratch=str(tmp_path / "scratch"), **options)
        peaks = client.run(peak)
    for worker, total in peaks.items():
        record_property("planned MB", plan.peak_memory / 1e6)
        record_property("measured MB", (total - bare[worker]) / 1e6)
        print(
            f"planned {plan.peak_memory / 1e6:.0f} MB, took {(total - bare[worker]) / 1e6:.0f} MB"
        )
        assert total - bare[worker] <= plan.peak_memory


@pytest.mark.slow
def test_graph_of_ten_million_rows__is_no_large_graph(
    cluster: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a scheduler that has thousands of tasks to hand out, though none of them does anything."""

    def nothing(*args: Any) -> int:
        return 0

    for name in ("meet_blocks", "finish_range"):
        monkeypatch.setattr(f"croma_dask.graph.{name}", nothing)
    n_ranges = 88
    source = StoreSource(StoredCohort(str(tmp_path / "cohort.zarr")))
    edges = tuple(int(e) for e in np.linspace(0, 10_000_000, n_ranges + 1))
    job = Job(source, Scratch(str(tmp_path)), edges, 1, ListSpec(51, 5), Frame(np.zeros(1024)))
    graph, last, work = pair_graph(job)
    done: list[str] = []
    with (
        cluster.client(1) as client,
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "1MiB"}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        found = run_graph(graph, last, client=client, on_done=lambda key, _: done.append(key))
    assert found == [0] * n_ranges
    assert set(work) < set(done)
    assert len(done) == len(set(done)) == len(graph) - 1
