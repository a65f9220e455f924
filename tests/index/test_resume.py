"""A run that was cut short goes on where it was, with the same bits, and cleans up after itself."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import graph
from croma_dask.index import scratch as scratch_module
from croma_dask.index import streamed
from croma_dask.index.scratch import Scratch
from tests.helpers.cohorts import Cohort, lattice_cohort
from tests.helpers.compare import assert_same_bits
from tests.helpers.engines import engine

N, RANGE = 240, 60
PAIRS = 10  # of four ranges


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    with cd.set_options(scratch=str(folder), threads=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        yield folder


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return lattice_cohort(np.random.default_rng(11), N, n_features=3, reach=4, n_groups=80)


def score(cohort: Cohort) -> xr.DataTree:
    with engine("streamed", range_rows=RANGE):
        return cd.score(cohort.x, cohort.frame, confounder="center", k_candidates=[2, 6], m=[1, 3])


@pytest.fixture(scope="module")
def expected(cohort: Cohort) -> xr.DataTree:
    with engine("small"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cd.score(cohort.x, cohort.frame, confounder="center", k_candidates=[2, 6], m=[1, 3])


def assert_same(found: xr.DataTree, expected: xr.DataTree) -> None:
    for name in ("RI", "MaRI", "CRoMa"):
        assert_same_bits(found[name].to_dataset(), expected[name].to_dataset())


class Cut(Exception):
    """What a test throws into a run."""


def cut_after(n: int, function: Callable[..., Any], *, late: bool = False) -> Callable[..., Any]:
    """Let `function` be called n times, then raise (before it acts, or after)."""
    calls = iter(range(10**6))

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        cut = next(calls) >= n
        if cut and not late:
            raise Cut
        result = function(*args, **kwargs)
        if cut:
            raise Cut
        return result

    return wrapped


def cut_run(cohort: Cohort, scratch: Path) -> Path:
    """Leave a run behind that was cut half way; return its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "meet_blocks", cut_after(PAIRS // 2, streamed.meet_blocks))
        with pytest.raises(Cut):
            score(cohort)
    (run,) = scratch.iterdir()
    return run


def test_a_run_cut_half_way__resumes_with_the_same_bits(
    cohort: Cohort, expected: xr.DataTree, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut_run(cohort, scratch)
    fresh: list[int] = []

    def counted(*args: Any) -> int:
        fresh.append(streamed.meet_blocks(*args))
        return fresh[-1]

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING, "croma_dask"):
        patch.setattr(graph, "meet_blocks", counted)
        found = score(cohort)
    assert_same(found, expected)
    assert len(fresh) == PAIRS
    assert sum(pairs > 0 for pairs in fresh) == PAIRS - PAIRS // 2, "what was done is not redone"
    assert "resuming" in caplog.text
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("writes", range(0, 16, 3))
def test_a_run_cut_between_two_writes__resumes_with_the_same_bits(
    writes: int, late: bool, cohort: Cohort, expected: xr.DataTree, scratch: Path
) -> None:
    """A pair writes the lists of one side, then of the other: cut after every such write."""
    with pytest.MonkeyPatch.context() as patch:
        cut = cut_after(writes, Scratch.write_lists, late=late)
        patch.setattr(Scratch, "write_lists", lambda *args: cut(*args))
        with pytest.raises(Cut):
            score(cohort)
    assert_same(score(cohort), expected)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("writes", [0, 2])
def test_a_run_cut_while_it_delivers__resumes_with_the_same_bits(
    writes: int, late: bool, cohort: Cohort, expected: xr.DataTree, scratch: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        cut = cut_after(writes, Scratch.write_final, late=late)
        patch.setattr(Scratch, "write_final", lambda *args: cut(*args))
        with pytest.raises(Cut):
            score(cohort)
    assert_same(score(cohort), expected)
    assert list(scratch.iterdir()) == []


def test_half_a_file__is_never_taken_for_a_whole_one(
    cohort: Cohort, expected: xr.DataTree, scratch: Path
) -> None:
    """The process dies inside a write: what it wrote has a temporary name."""
    real = scratch_module.write_arrays
    calls = iter(range(1000))

    def torn(file: Any, arrays: Any) -> None:
        if next(calls) >= 12:
            file.write(b"half")
            raise Cut
        real(file, arrays)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch_module, "write_arrays", torn)
        with pytest.raises(Cut):
            score(cohort)
    assert_same(score(cohort), expected)
    assert list(scratch.iterdir()) == []


def test_cut_again_and_again__ends_with_the_same_bits(
    cohort: Cohort, expected: xr.DataTree, scratch: Path
) -> None:
    for _ in range(PAIRS - 1):
        with pytest.MonkeyPatch.context() as patch:
            fresh = cut_after(1, streamed._meet)
            patch.setattr(streamed, "_meet", fresh)
            with pytest.raises(Cut):
                score(cohort)
    assert_same(score(cohort), expected)
    assert list(scratch.iterdir()) == []


def test_another_cohort__does_not_resume_from_these_lists(
    cohort: Cohort, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One edited label, another k or one moved digit is another run."""
    cut_run(cohort, scratch)
    relabelled = cohort.frame.copy()
    relabelled.loc[5, "label"] = "1" if relabelled.loc[5, "label"] == "0" else "0"
    moved = cohort.x.copy()
    moved[7, 1] = np.nextafter(moved[7, 1], 9.0)
    regrouped = cohort.frame.assign(group_id=cohort.frame["group_id"].replace("3", "4"))
    for other in (
        Cohort(cohort.x, relabelled), Cohort(moved, cohort.frame), Cohort(cohort.x, regrouped),
    ):  # fmt: skip
        with engine("small"):
            truth = cd.score(other.x, other.frame, confounder="center", k_candidates=[2, 6],
                             m=[1, 3])  # fmt: skip
        assert_same(score(other), truth)
    assert "resuming" not in caplog.text
    assert len(list(scratch.iterdir())) == 1, "the cut run's lists wait for its own owner"


def test_a_killed_owner_s_folder__is_taken_over(
    cohort: Cohort, expected: xr.DataTree, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = cut_run(cohort, scratch)
    hold = "import sys, time; from croma_dask.index.scratch import Scratch\n"
    hold += (
        f"held = Scratch({str(run)!r}).lock(); print(held is not None, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline().strip() == b"True"
        assert Scratch(str(run)).lock() is None
        owner.kill()
    assert_same(score(cohort), expected)
    assert "resuming" in caplog.text
    assert list(scratch.iterdir()) == []


def test_a_living_owner_s_folder__is_left_alone(
    cohort: Cohort, expected: xr.DataTree, scratch: Path
) -> None:
    run = cut_run(cohort, scratch)
    with Scratch(str(run)).lock() or pytest.fail("the folder should be free"):
        before = {p: p.stat().st_mtime_ns for p in run.glob("range-*/*")}
        assert_same(score(cohort), expected)
        assert list(scratch.iterdir()) == [run]
        assert {p: p.stat().st_mtime_ns for p in run.glob("range-*/*")} == before


# In the default run test_one_worker_killed_and_one_paused kills one, of workers that have compiled.
@pytest.mark.slow
@pytest.mark.cluster
def test_a_worker_killed_in_mid_run__costs_its_tasks_only(
    cohort: Cohort, expected: xr.DataTree, scratch: Path, tmp_path: Path
) -> None:
    from distributed import Client, LocalCluster

    flag = str(tmp_path / "killed")
    real = streamed.meet_blocks

    def deadly(job: Any, i: int, j: int, *after: Any) -> int:
        """Die in the middle of one task, once."""
        import os
        import signal

        if (i, j) == (1, 3):
            try:
                open(flag, "x").close()
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return real(job, i, j, *after)

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
            memory_limit="2GiB", silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        client.as_current(),
        pytest.MonkeyPatch.context() as patch,
    ):  # fmt: skip
        patch.setattr(graph, "meet_blocks", deadly)
        found = score(cohort)
    assert os.path.exists(flag), "a worker was killed"
    assert_same(found, expected)
    assert list(scratch.iterdir()) == []
