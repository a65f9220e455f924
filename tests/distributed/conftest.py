"""Clusters that several tests share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.processes import Driver, Processes, processes


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[..., Processes]]:
    """Make a cluster without workers, for one test."""
    with contextlib.ExitStack() as keep:

        def make(**config: object) -> Processes:
            return keep.enter_context(processes(tmp_path / "cluster", **config))

        yield make


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Two workers, for the whole folder: each compiles its kernels once."""
    with processes(tmp_path_factory.mktemp("cluster")) as found:
        for _ in range(2):
            found.add_worker()
        yield found


@pytest.fixture
def drive() -> Iterator[Callable[..., Driver]]:
    """Start the command; none of them outlives the test."""
    started: list[Driver] = []

    def start(*arguments: object) -> Driver:
        started.append(Driver(*arguments))
        return started[-1]

    yield start
    for driver in started:
        if driver.process.returncode is None:
            driver.kill()
