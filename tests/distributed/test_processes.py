"""Scores of a cluster of real processes have the bits of one process, whatever dies on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import graph
from croma_dask.index import streamed
from tests.helpers.cohorts import features, manifest
from tests.helpers.compare import assert_same_bits
from tests.helpers.engines import engine
from tests.helpers.processes import (
    PATIENCE,
    Driver,
    Processes,
    pids,
    progress,
    smallest_memory,
    wait_until,
)

pytestmark = pytest.mark.cluster

INDEX = ["exact", pytest.param("ivf", marks=pytest.mark.slow)]
"""Kinds of index that are searched."""

N, RANGE = 3_000, 250
ARGUMENTS: dict[str, Any] = {"k_candidates": (15, 21), "m": (1, 3)}
OPTIONS = ("--confounder", "center", "--k", "15,21", "--m", "1,3")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    with cd.set_options(scratch=str(folder), threads=1):
        yield folder


@pytest.fixture(scope="module", params=INDEX)
def kind(request: pytest.FixtureRequest) -> str:
    """Kind of index."""
    return str(request.param)


@pytest.fixture(scope="module")
def place(kind: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cohort with some equal distances, which go by row wherever they are found."""
    rng = np.random.default_rng(5)
    row = np.arange(N)
    label, center = row % 3, row // 3 % 3
    x = features(rng, label, center, 12, biology=0.4, shortcut=0.4).astype(np.float32)
    x[:300] = x[300:600]
    frame = manifest(label, center, row // 3)
    place = cd.write_cohort(tmp_path_factory.mktemp("processes") / "cohort.zarr", x, frame)
    if kind != "exact":
        cd.build_index(place, kind=kind, cluster_rows=100)
    return place


@pytest.fixture(scope="module")
def expected(place: str, kind: str, tmp_path_factory: pytest.TempPathFactory) -> xr.DataTree:
    """What one process finds; the exact search holds such a cohort in memory."""
    with cd.set_options(scratch=str(tmp_path_factory.mktemp("expected"))):
        return cd.score(place, confounder="center", index=kind, **ARGUMENTS)


def score(place: str, kind: str, client: Any) -> xr.DataTree:
    with engine("streamed", range_rows=RANGE):
        return cd.score(place, confounder="center", index=kind, client=client, **ARGUMENTS)


def assert_same(found: xr.DataTree, expected: xr.DataTree) -> None:
    assert set(found.children) == set(expected.children)
    for name in expected.children:
        assert_same_bits(found[name].to_dataset(), expected[name].to_dataset())


def assert_file_has(path: Path, expected: xr.DataTree) -> None:
    """A file keeps every byte; the texts of its coordinates are of another dtype."""
    with xr.open_datatree(path) as found:
        for name in expected.children:
            mine, other = found[name].to_dataset().load(), expected[name].to_dataset()
            for variable in other.data_vars:
                assert mine[variable].values.tobytes() == other[variable].values.tobytes()
            xr.testing.assert_equal(mine, other)


def libraries_of_numpy() -> list[str]:
    """Find the libraries that make numpy's products; others may be loaded later, unused."""
    code = "import json, numpy; from threadpoolctl import threadpool_info as info; "
    code += "print(json.dumps([p['filepath'] for p in info() if p['user_api'] == 'blas']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    assert found
    return found


# ---- an undisturbed run ----------------------------------------------------------------------


@pytest.mark.slow
def test_cluster__has_the_bits_of_one_process_and_one_blas_thread_a_task(
    cluster: Processes, place: str, kind: str, expected: xr.DataTree, scratch: Path, tmp_path: Path
) -> None:
    """Warnings are errors here: neither is the graph too large for Dask, nor anything else."""
    told = str(tmp_path / "threads")
    os.mkdir(told)
    complaints = cluster.logs().count("Traceback")
    real = streamed.meet_blocks

    def telling(job: Any, i: int, j: int, *after: Any) -> int:
        """Look at the libraries where the products are made."""
        import json
        import os

        from threadpoolctl import threadpool_info

        from croma_dask.index import streamed

        meet_ranges = streamed._meet

        def looking(*args: Any) -> None:
            threads = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
            with open(f"{told}/{os.getpid()}-{i}-{j}", "w") as out:
                json.dump(threads, out)
            meet_ranges(*args)

        streamed._meet = looking
        try:
            return real(job, i, j, *after)
        finally:
            streamed._meet = meet_ranges

    with cluster.client(2) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "meet_blocks", telling)
        found = score(place, kind, client)
        workers = {str(pid) for pid in pids(client).values()}
    assert_same(found, expected)
    assert list(scratch.iterdir()) == []
    looks = list(Path(told).iterdir())
    assert {path.name.split("-")[0] for path in looks} <= workers, "no task ran in this process"
    for path in looks:
        threads = json.loads(path.read_text())
        assert {threads[library] for library in libraries_of_numpy()} == {1}
    assert cluster.logs().count("Traceback") == complaints


# ---- workers that die or stand still ---------------------------------------------------------


@contextlib.contextmanager
def held_tasks(folder: Path) -> Iterator[Callable[[], set[int]]]:
    """Hold every task after it has written its first lists, before it writes those of the other
    side, while there is a file `hold`; yields who is held."""
    folder.mkdir()
    hold, place = folder / "hold", str(folder)
    hold.touch()
    real = streamed.meet_blocks

    def held(job: Any, i: int, j: int, *after: Any) -> int:
        import os
        import time

        from croma_dask.index.scratch import Scratch

        write = Scratch.write_lists

        def waiting(*args: Any) -> None:
            write(*args)
            with open(f"{place}/{os.getpid()}-{i}-{j}", "w"):
                pass
            while os.path.exists(f"{place}/hold"):
                time.sleep(0.01)

        Scratch.write_lists = waiting  # type: ignore[method-assign]
        try:
            return real(job, i, j, *after)
        finally:
            Scratch.write_lists = write  # type: ignore[method-assign]

    def at_work() -> set[int]:
        return {int(path.name.split("-")[0]) for path in folder.glob("*-*-*")}

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(graph, "meet_blocks", held)
            yield at_work
    finally:
        hold.unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.ci
def test_one_worker_killed_and_one_paused__same_bits(
    cluster: Processes, place: str, kind: str, expected: xr.DataTree, scratch: Path, tmp_path: Path
) -> None:
    with (
        cluster.client(2) as client,
        held_tasks(tmp_path / "tasks") as at_work,
        ThreadPoolExecutor(1) as pool,
    ):
        before = set(pids(client).values())
        running = pool.submit(score, place, kind, client)
        wait_until(lambda: running.done() or at_work() == before, "two tasks at work")
        killed, paused = before
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: running.done() or len(at_work()) == 3, "the worker that comes anew")
        os.kill(paused, signal.SIGSTOP)
        done = progress(scratch)
        try:
            (tmp_path / "tasks" / "hold").unlink()
            wait_until(lambda: running.done() or progress(scratch) > done, "work of the new one")
            assert not running.done(), "the paused worker has what others wait for"
        finally:
            os.kill(paused, signal.SIGCONT)
        found = running.result(timeout=PATIENCE)
        after = set(pids(client).values())
    assert killed not in after
    assert paused in after
    assert_same(found, expected)
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
def test_one_worker_lost_and_one_paused_until_it_is_given_up__same_bits(
    new_cluster: Callable[..., Processes], place: str, kind: str, expected: xr.DataTree,
    scratch: Path, tmp_path: Path,
) -> None:  # fmt: skip
    """The scheduler gives a worker up that is silent; when that wakes, its task is another's."""
    cluster = new_cluster(scheduler__worker_ttl="1s")
    for _ in range(3):
        # A nanny would end the paused one together with its task.
        cluster.add_worker(nanny=False)
    with (
        cluster.client(3) as client,
        held_tasks(tmp_path / "tasks") as at_work,
        ThreadPoolExecutor(1) as pool,
    ):
        address = {pid: worker for worker, pid in pids(client).items()}
        running = pool.submit(score, place, kind, client)
        wait_until(lambda: running.done() or at_work() == set(address), "three tasks at work")
        lost, paused, _ = address
        os.kill(lost, signal.SIGKILL)
        os.kill(paused, signal.SIGSTOP)
        try:
            (tmp_path / "tasks" / "hold").unlink()
            wait_until(
                lambda: address[paused] not in client.scheduler_info(n_workers=-1)["workers"],
                "the scheduler to give the paused worker up",
            )
            done = progress(scratch)
            wait_until(
                lambda: running.done() or progress(scratch) > done, "work of the last worker"
            )
        finally:
            os.kill(paused, signal.SIGCONT)
        found = running.result(timeout=PATIENCE)
    assert_same(found, expected)
    assert list(scratch.iterdir()) == []


# ---- drivers that die ------------------------------------------------------------------------


def kill_and_resume(
    call: list[object], points: list[int], scratch: Path, out: Path, drive: Callable[..., Driver]
) -> None:
    """Kill -9 the driver each time it has come so far, and let the last one end."""
    for number, point in enumerate(points):
        driver = drive(*call)
        wait_until(
            lambda driver=driver, point=point: (  # type: ignore[misc]
                driver.process.poll() is not None or progress(scratch) >= point
            ),
            f"{point} pairs",
        )
        assert driver.process.poll() is None, driver.end()
        driver.kill()
        assert not out.exists(), "no output, not even a part of one"
        assert progress(scratch) >= point, f"what driver {number} found is there"
    code, _, err = drive(*call).end()
    assert code == 0, err
    assert "resuming" in err
    assert "Traceback" not in err


def least(place: str, kind: str) -> tuple[str, int]:
    """Least memory that the command can do with, and the ranges that it makes of the rows."""
    memory = smallest_memory(place, index=kind, **ARGUMENTS)
    plan = cd.plan(place, confounder="center", memory=memory, threads=1, index=kind, **ARGUMENTS)
    assert plan.n_ranges > 4
    return memory, plan.n_ranges


@pytest.mark.slow
@pytest.mark.ci
def test_driver_killed__the_same_command_ends_with_the_same_bits(
    cluster: Processes, place: str, kind: str, expected: xr.DataTree, tmp_path: Path,
    drive: Callable[..., Driver],
) -> None:  # fmt: skip
    """On a cluster that is still busy with the dead driver's tasks, and scratch beside --out."""
    out = tmp_path / "r.zarr"
    memory, n = least(place, kind)
    call = ["score", place, *OPTIONS, "--index", kind, "--memory", memory]
    call += ["--scheduler", cluster.file, "--out", out]
    kill_and_resume(call, [2 * n], tmp_path / ".r.zarr.scratch", out, drive)
    assert_file_has(out, expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.zarr"], "and nothing is left"


@pytest.mark.slow
@pytest.mark.parametrize("where", ["threads", "workers", "scheduler"])
def test_driver_killed_at_five_random_points__same_bits(
    where: str, cluster: Processes, place: str, kind: str, expected: xr.DataTree, tmp_path: Path,
    drive: Callable[..., Driver],
) -> None:  # fmt: skip
    out = tmp_path / "r.zarr"
    memory, n = least(place, kind)
    rng = np.random.default_rng(["threads", "workers", "scheduler"].index(where))
    # Through an index not every range meets every other.
    points = sorted(int(p) for p in rng.integers(1, (n - 1) * (n if kind == "exact" else 2), 5))
    how = {
        "threads": ["--threads", 1],
        "workers": ["--workers", 2],
        "scheduler": ["--scheduler", cluster.file],
    }[where]
    call = ["score", place, *OPTIONS, "--index", kind, "--memory", memory, *how, "--out", out]
    kill_and_resume(call, points, tmp_path / ".r.zarr.scratch", out, drive)
    assert_file_has(out, expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.zarr"]
