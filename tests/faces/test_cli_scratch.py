"""What the command leaves on the way: beside its output, for the same command, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from croma_dask import graph
from croma_dask.index import streamed
from croma_dask.index.scratch import Scratch
from tests.helpers.engines import engine

OPTIONS = ("--confounder", "center", "--k", "15", "--m", "1", "--threads", "1", "-q")


class Cut(Exception):
    """What a test throws into a run."""


@pytest.fixture
def score(run: Callable, store: str) -> Callable:
    """Call the command so that it streams."""

    def call(*options: object) -> Any:
        with engine("streamed", range_rows=50):
            return run("score", store, *OPTIONS, *options)

    return call


@pytest.fixture
def interrupted(score: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Call the command, and cut it after three tasks."""

    def call(*options: object) -> None:
        calls = iter(range(3))

        def meet(*args: Any) -> int:
            if next(calls, None) is None:
                raise Cut
            return streamed.meet_blocks(*args)

        with monkeypatch.context() as patch:
            patch.setattr(graph, "meet_blocks", meet)
            with pytest.raises(Cut):
                score(*options)

    return call


def test_scratch__is_beside_the_output_and_goes_with_the_run(
    score: Callable, interrupted: Callable, tmp_path: Path
) -> None:
    out = tmp_path / "r.csv"
    interrupted("--out", out)
    assert [path.name for path in tmp_path.iterdir()] == [".r.csv.scratch"]
    assert list(tmp_path.glob(".r.csv.scratch/*/range-*/lists-*"))
    # Another one for the same output finds nothing of its own; what it leaves is the result alone.
    assert score("--out", out, "--m", "2").exit_code == 0
    assert list(tmp_path.iterdir()) == [out]


def test_scratch__of_another_output_is_another_folder(
    score: Callable, interrupted: Callable, tmp_path: Path
) -> None:
    interrupted("--out", tmp_path / "a.csv")
    interrupted("--out", tmp_path / "b.csv")
    assert score("--out", tmp_path / "a.csv").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.csv.scratch", "a.csv"]


def test_scratch__named_is_where_it_is_named(
    score: Callable, interrupted: Callable, tmp_path: Path
) -> None:
    call = ("--out", tmp_path / "r.csv", "--scratch", tmp_path / "s")
    interrupted(*call)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert score(*call).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "s"]
    assert list((tmp_path / "s").iterdir()) == []


def test_no_resume__reads_nothing_of_what_was_left(
    score: Callable, interrupted: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "r.csv"
    interrupted("--out", out)
    fresh: list[int] = []

    def meet(*args: Any) -> int:
        fresh.append(streamed.meet_blocks(*args))
        return fresh[-1]

    monkeypatch.setattr(graph, "meet_blocks", meet)
    assert score("--out", out, "--no-resume").exit_code == 0
    assert all(fresh)
    assert list(tmp_path.iterdir()) == [out]


def test_keep_scratch__serves_the_same_command(
    score: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "r.csv"
    assert score("--out", out, "--keep-scratch").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [".r.csv.scratch", "r.csv"]
    first = out.read_bytes()
    monkeypatch.setattr(Scratch, "write_lists", lambda *args: pytest.fail("searched"))
    assert score("--out", out, "--overwrite").exit_code == 0
    assert out.read_bytes() == first
    assert list(tmp_path.iterdir()) == [out]
