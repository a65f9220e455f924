"""Fixtures and settings that several test folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from distributed import Client

# Compilation of a kernel inside the first example is no reason to fail that example for its time.
_COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("dev", max_examples=20, **_COMMON)
# Derandomised: a red run on one machine is red on the next, and a green one stays green.
settings.register_profile("ci", max_examples=40, derandomize=True, **_COMMON)
settings.register_profile("thorough", max_examples=500, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that start processes last: the cheap ones report first."""
    items.sort(key=lambda item: item.get_closest_marker("cluster") is not None)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260801)


@pytest.fixture(params=["synchronous", "threads"])
def scheduler(request: pytest.FixtureRequest) -> Iterator[str]:
    """Dask's schedulers without processes, one after the other."""
    with dask.config.set(scheduler=request.param):
        yield request.param


@pytest.fixture(scope="session")
def cluster_client() -> Iterator[Client]:
    """One cluster of two processes for the whole run (mark the test with ``cluster``).

    Not the default client: a test has to pass it on or to enter ``cluster_client.as_current()``.
    """
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",  # any free port: 8787 may be taken
            memory_limit="2GiB",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of small real data sets, which does not come with this repository.

    It is looked for beside the checkout, or where CROMA_DASK_TEST_DATA says.
    """
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CROMA_DASK_TEST_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"needs the folder of real data sets, not found at {folder}")
    return folder
