"""What becomes of what a run leaves in scratch: gone on with, used again, or deleted."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import graph, resume
from croma_dask.index import streamed
from croma_dask.index.scratch import Scratch
from croma_dask.options import Options
from tests.helpers.cohorts import Cohort, lattice_cohort
from tests.helpers.compare import assert_same_bits
from tests.helpers.engines import engine

N, RANGE, PAIRS = 240, 60, 10


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    with (
        cd.set_options(scratch=str(folder), threads=1),
        warnings.catch_warnings(),
        caplog.at_level(logging.WARNING, "croma_dask"),
    ):
        warnings.simplefilter("ignore", cd.SupportWarning)
        yield folder


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return lattice_cohort(np.random.default_rng(11), N, n_features=3, reach=4, n_groups=80)


def score(cohort: Cohort, *, range_rows: int = RANGE, **options: Any) -> xr.DataTree:
    arguments: dict[str, Any] = {"k_candidates": [2, 6], "m": [1, 3], **options}
    with engine("streamed", range_rows=range_rows):
        return cd.score(cohort.x, cohort.frame, confounder="center", **arguments)


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


@contextlib.contextmanager
def counted(most: int = 10**6) -> Iterator[list[int]]:
    """Count the pairs of rows that each task finds new; throw when so many tasks were done."""
    fresh: list[int] = []

    def meet(*args: Any) -> int:
        if len(fresh) >= most:
            raise Cut
        fresh.append(streamed.meet_blocks(*args))
        return fresh[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "meet_blocks", meet)
        yield fresh


def cut_run(cohort: Cohort, **options: Any) -> None:
    with counted(PAIRS // 2), pytest.raises(Cut):
        score(cohort, **options)


# ---- start afresh ----------------------------------------------------------------------------


def test_no_resume__deletes_what_an_interrupted_run_left(
    cohort: Cohort, expected: xr.DataTree, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut_run(cohort)
    (run,) = scratch.iterdir()
    (run / "range-00000" / "stray").touch()
    with counted() as fresh:
        found = score(cohort, resume=False)
        assert all(pairs > 0 for pairs in fresh)
    assert len(fresh) == PAIRS
    assert_same(found, expected)
    assert "starting afresh: as asked for" in caplog.text
    assert "resuming" not in caplog.text
    assert list(scratch.iterdir()) == []


def test_no_resume__leaves_other_runs_alone(cohort: Cohort, scratch: Path) -> None:
    cut_run(cohort)
    left = {path: path.stat().st_mtime_ns for path in scratch.glob("*/range-*/*")}
    score(cohort, k_candidates=[2], resume=False)
    assert {path: path.stat().st_mtime_ns for path in scratch.glob("*/range-*/*")} == left


def test_no_resume__of_a_first_run_says_nothing(
    cohort: Cohort, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with cd.set_options(resume=False):
        score(cohort)
    assert caplog.text == ""


# ---- keep ------------------------------------------------------------------------------------


def test_keep_scratch__the_same_call_searches_nothing_and_cleans_up(
    cohort: Cohort, expected: xr.DataTree, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    score(cohort, keep_scratch=True)
    (run,) = scratch.iterdir()
    assert f"what was found stays in {run}" in caplog.text
    caplog.clear()
    with counted(0) as fresh:
        assert_same(score(cohort, keep_scratch=True), expected)
        assert list(scratch.iterdir()) == [run]
        assert_same(score(cohort, range_rows=30), expected)
    assert fresh == []
    assert "are used again" in caplog.text
    assert list(scratch.iterdir()) == []


def test_keep_scratch__and_no_resume_searches_again(
    cohort: Cohort, expected: xr.DataTree, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    score(cohort, keep_scratch=True)
    with counted() as fresh:
        assert_same(score(cohort, resume=False), expected)
    assert len(fresh) == PAIRS
    assert "starting afresh" in caplog.text
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("kept", [True, False])
def test_another_argument_or_cohort__takes_nothing_over(
    kept: bool, cohort: Cohort, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of a finished run nor of an interrupted one."""
    if kept:
        score(cohort, keep_scratch=True)
    else:
        cut_run(cohort)
    caplog.clear()
    moved = cohort.x.copy()
    moved[7, 1] = np.nextafter(moved[7, 1], 9.0)
    swapped = cohort.frame.assign(center=cohort.frame["center"].to_numpy()[::-1])
    others: list[tuple[Cohort, dict[str, Any]]] = [
        (cohort, {"k_candidates": [2, 5]}),
        (cohort, {"m": [1, 2]}),
        (cohort, {"group": "sample_id"}),
        (Cohort(moved, cohort.frame), {}),
        (Cohort(cohort.x, swapped), {}),
    ]
    for other, options in others:
        with counted() as fresh:
            found = score(other, **options)
        assert len(fresh) == PAIRS
        assert all(pairs > 0 for pairs in fresh)
        arguments = {"k_candidates": [2, 6], "m": [1, 3], **options}
        with engine("small"):
            truth = cd.score(other.x, other.frame, confounder="center", **arguments)
        assert_same(found, truth)
    assert caplog.text == ""
    assert len(list(scratch.iterdir())) == 1


# ---- the same run, cut otherwise -------------------------------------------------------------


def test_longer_ranges_than_the_first_time__go_on_with_the_first_ones(
    cohort: Cohort, expected: xr.DataTree, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """More memory, or fewer workers: the ranges of the run that was interrupted still fit."""
    cut_run(cohort)
    with counted() as fresh:
        assert_same(score(cohort, range_rows=120), expected)
    assert "resuming" in caplog.text
    assert len(fresh) == PAIRS
    assert sum(pairs > 0 for pairs in fresh) == PAIRS - PAIRS // 2
    assert list(scratch.iterdir()) == []


def test_shorter_ranges_than_the_first_time__start_afresh(
    cohort: Cohort, expected: xr.DataTree, scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Less memory: those of the run that was interrupted would not fit."""
    cut_run(cohort)
    (first,) = scratch.iterdir()
    with counted() as fresh:
        meet = graph.meet_blocks

        def late(*args: Any) -> int:
            """Work while another worker still has a task of the first driver."""
            with pytest.raises(FileNotFoundError):
                Scratch(str(first)).write_lists(0, {"met": np.ones(4, bool)})
            return meet(*args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(graph, "meet_blocks", late)
            assert_same(score(cohort, range_rows=40), expected)
    assert "with more memory" in caplog.text
    assert "resuming" not in caplog.text
    assert len(fresh) == 21
    assert all(pairs > 0 for pairs in fresh)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("contents", [None, b"", b"half a file"])
def test_without_the_edges_of_its_ranges__nothing_is_gone_on_with(
    contents: bytes | None, cohort: Cohort, expected: xr.DataTree, scratch: Path
) -> None:
    cut_run(cohort)
    (cut,) = scratch.glob("*/cut.npz")
    cut.unlink()
    if contents is not None:
        cut.write_bytes(contents)
    with counted() as fresh:
        assert_same(score(cohort), expected)
    assert all(pairs > 0 for pairs in fresh)
    assert list(scratch.iterdir()) == []


# ---- folders ---------------------------------------------------------------------------------


def test_own_folder__goes_with_its_run_and_with_those_that_were_killed(tmp_path: Path) -> None:
    options = Options(scratch=str(tmp_path))
    (tmp_path / "rows-dead").mkdir()
    (tmp_path / "rows-dead" / "rows.npy").write_bytes(b"rows")
    (tmp_path / "lists-of-others").mkdir()
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        mine = Path(resume.own_folder(options, "rows-", first))
        other = Path(resume.own_folder(options, "rows-", second))
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            [mine.name, other.name, "lists-of-others"]
        )
    assert [path.name for path in tmp_path.iterdir()] == ["lists-of-others"]


def test_own_folder__goes_when_the_run_fails(tmp_path: Path) -> None:
    with contextlib.suppress(Cut), contextlib.ExitStack() as keep:
        folder = resume.own_folder(Options(scratch=str(tmp_path / "new")), "lists-", keep)
        assert os.path.isdir(folder)
        raise Cut
    assert list((tmp_path / "new").iterdir()) == []


def leave_a_run(folder: str, name: str) -> Scratch:
    run = Scratch(str(Path(folder) / name))
    held = run.lock()
    assert held is not None
    held.close()
    run.write("cut.npz", {"edges": np.array([0, 1])})
    return run


def test_scratch_beside__goes_with_all_that_was_left_for_this_result(tmp_path: Path) -> None:
    result = tmp_path / "r.zarr"
    with resume.scratch_beside(result) as folder:
        assert Path(folder) == tmp_path / ".r.zarr.scratch"
        leave_a_run(folder, "one")
        leave_a_run(folder, "two")
    assert list(tmp_path.iterdir()) == []


def test_scratch_beside__leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    with resume.scratch_beside(tmp_path / "r.zarr") as folder:
        leave_a_run(folder, "one")
        held = leave_a_run(folder, "two").lock()
    assert held is not None
    with held:
        assert [path.name for path in Path(folder).iterdir()] == ["two"]


@pytest.mark.parametrize("keep", [True, False])
def test_scratch_beside__stays_when_the_run_fails_or_is_told_to_keep_it(
    keep: bool, tmp_path: Path
) -> None:
    with (
        contextlib.suppress(Cut),
        resume.scratch_beside(tmp_path / "r.zarr", keep_scratch=keep) as folder,
    ):
        leave_a_run(folder, "one")
        if not keep:
            raise Cut
    assert [path.name for path in Path(folder).iterdir()] == ["one"]


def test_scratch_beside__is_not_there_when_nothing_is_in_it(tmp_path: Path) -> None:
    with resume.scratch_beside(tmp_path / "r.zarr"):
        pass
    with contextlib.suppress(Cut), resume.scratch_beside(tmp_path / "r.zarr") as folder:
        os.mkdir(folder)
        raise Cut
    assert list(tmp_path.iterdir()) == []
