"""The same work again and again: nothing is left behind by a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import child, load_repeats
from croma_dask import layout
from tests.helpers.marks import first

QUICK = ["scores", "scores of arrays"]
SLOW = sorted(set(load_repeats.WORK) - set(QUICK))


def check(found: dict[str, Any], growth: float) -> None:
    for name in ("files", "threads"):
        assert found["last"][name] <= found["first"][name], found
    assert found["growth"] < growth, found


@pytest.mark.parametrize("work", first(1, QUICK))
def test_repeats__leave_no_file_thread_or_memory(work: str) -> None:
    """In a process of its own: others have files and threads that come and go."""
    check(child.run("load_repeats:measure", work=work, runs=20, rows=120), growth=64_000)


def test_streamed__puts_the_limit_back(tmp_path: Path) -> None:
    before = layout.DIRECT_ROWS
    with load_repeats.WORK["streamed scores"](tmp_path, 60):
        assert layout.DIRECT_ROWS == 0
    assert before == layout.DIRECT_ROWS


@pytest.mark.slow
@pytest.mark.parametrize("work", SLOW)
def test_repeats__of_everything_else(work: str) -> None:
    # The scheduler that lives in the client's process logs its last 100,000 transitions.
    growth = 60_000 if "cluster" in work else 4_000
    check(child.run("load_repeats:measure", work=work, runs=100, rows=400), growth=growth)


@pytest.mark.slow
def test_scores__a_thousand_in_one_process() -> None:
    check(child.run("load_repeats:measure", work="scores", runs=1_000, rows=400), growth=1_000)
