"""The command as a workflow manager calls it: processes, signals, exit codes, leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import xarray as xr

import croma_dask as cd
from tests.helpers.engines import engine
from tests.helpers.marks import first
from tests.helpers.processes import wait_until

METRICS = ("RI", "MaRI", "CRoMa")
OPTIONS = ("--confounder", "center", "--k", "15,21", "--m", "1,3", "--threads", "2")


@pytest.fixture(scope="module")
def direct(large_store: str) -> xr.DataTree:
    """What the streamed runs have to equal."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return cd.score(large_store, confounder="center", k_candidates=(15, 21), m=(1, 3))


def assert_equals_direct(path: Path, direct: xr.DataTree) -> None:
    with xr.open_datatree(path) as found:
        for name in METRICS:
            mine, other = found[name].to_dataset().load(), direct[name].to_dataset()
            for variable in other.data_vars:
                assert mine[variable].values.tobytes() == other[variable].values.tobytes()
            xr.testing.assert_equal(mine, other)


def test_score__exit_codes_of_a_process(shell: Callable, store: str, tmp_path: Path) -> None:
    """What is tested in this process elsewhere holds for the shell."""
    out = tmp_path / "r.csv"
    done = shell("score", store, *OPTIONS, "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert "CRoMa" in done.stdout
    assert out.exists()
    again = shell("score", store, *OPTIONS, "--out", out)
    assert again.returncode == 2
    assert again.stderr.startswith("error: ")
    assert len(again.stderr.splitlines()) == 1
    small = shell("plan", store, "--confounder", "center", "--memory", "1MB")
    assert small.returncode == 3
    assert len(small.stderr.splitlines()) == 1


def wait_for(process: subprocess.Popen[str], scratch: Path) -> None:
    """Wait until some of the lists are there."""
    deadline = time.monotonic() + 100
    while len(list(scratch.glob("*/range-*/lists-*.npz"))) < 8:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing was written"
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.cluster
@pytest.mark.parametrize("seconds", [0, 0.2, 0.5, 1])
def test_interrupt__while_workers_start_is_no_traceback(
    command: list[str], large_store: str, tmp_path: Path, seconds: float
) -> None:
    """As a terminal sends it: to all processes of the command."""
    out = tmp_path / "r.zarr"
    call = ["score", large_store, *OPTIONS, "--workers", "2", "--out", out]
    process = subprocess.Popen(
        [*command, *map(str, call)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    # The first process that it starts keeps track of what they share.
    wait_until(lambda: psutil.Process(process.pid).children(), "a process of the cluster")
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stderr.strip().splitlines()[-1].startswith("error: interrupted: start the same ")
    assert "Traceback" not in stderr
    assert not out.exists()


def test_interrupt__leaves_no_output_and_the_next_run_resumes(
    command: list[str], run: Callable, large_store: str, direct: xr.DataTree, tmp_path: Path,
    smallest_memory: Callable, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    scratch, out = tmp_path / "scratch", tmp_path / "r.zarr"
    memory = smallest_memory(large_store, threads=2, k_candidates=(15, 21), m=(1, 3))
    call = ["score", large_store, *OPTIONS, "--memory", memory, "--scratch", scratch, "--out", out]
    process = subprocess.Popen(
        [*command, *map(str, call)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(process, scratch)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert stderr.strip().splitlines()[-1].startswith("error: interrupted: start the same ")
    assert "Traceback" not in stderr
    assert [p.name for p in tmp_path.iterdir()] == ["scratch"], "no output, not even a part of one"
    assert list(scratch.glob("*/range-*/lists-*.npz")), "what was found is kept"

    # In this process, whose kernels are compiled: what was killed has left files and nothing else.
    done = run(*call)
    assert done.exit_code == 0, done.stderr
    assert "resuming" in caplog.text
    assert_equals_direct(out, direct)
    assert list(scratch.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.zarr", "scratch"]


# Each worker compiles its kernels; what two of them meet is tested on clusters that others share.
@pytest.mark.cluster
@pytest.mark.parametrize("workers", first(0, [1, 2]))
def test_workers__give_the_same_bits(
    workers: int, shell: Callable, large_store: str, direct: xr.DataTree, tmp_path: Path,
    smallest_memory: Callable,
) -> None:  # fmt: skip
    out = tmp_path / "r.nc"
    memory = smallest_memory(large_store, threads=1, k_candidates=(15, 21), m=(1, 3))
    done = shell(
        "score", large_store, *OPTIONS, "--memory", memory, "--workers", workers,
        "--scratch", tmp_path / "scratch", "--out", out,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert_equals_direct(out, direct)
    assert list((tmp_path / "scratch").iterdir()) == [], "it was streamed, and cleaned up"


@pytest.mark.cluster
def test_scheduler__an_address_where_none_answers_is_bad_usage(
    shell: Callable, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "1s")
    done = shell("plan", store, "--confounder", "center", "--scheduler", "nonsense:/")
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.cluster
def test_scheduler__plan_counts_its_workers(
    run: Callable, large_store: str, cluster_client: object
) -> None:
    address = cluster_client.scheduler.address  # type: ignore[attr-defined]
    with engine("streamed"):
        result = run("plan", large_store, "--confounder", "center", "--scheduler", address)
    assert result.exit_code == 0, result.stderr
    assert "2 processes x 1 at once" in result.stdout
