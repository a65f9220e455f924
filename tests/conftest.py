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
settings.register_profile("ci", max_examples=20, derandomize=True, **_COMMON)
settings.register_profile("thorough", max_examples=500, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


# Files that share what takes long. A process of the test run compiles each kernel once and starts
# one cluster: what needs the same is run by the same process. Without xdist this changes nothing.
_TOGETHER = (
    # Kernels of indexes.
    (
        "index/test_approximate.py", "index/test_descent.py", "index/test_index_store.py",
        "index/test_euclidean_index.py", "kernels/test_probe.py", "robustness/test_near_ties.py",
        "robustness/test_calibration.py", "embedding/test_benchmark_index.py",
        "faces/test_cli_index.py",
    ),
    # The cluster that is shared, and kernels of the streamed search.
    (
        "index/test_same_bits.py", "index/test_cluster.py", "index/test_resume.py",
        "index/test_resume_options.py", "index/test_review.py", "probe/test_sweep_parity.py",
        "probe/test_sweep_run.py", "faces/test_cli_process.py", "faces/test_plan.py",
    ),
    # Kernels of the embedding benchmark.
    (
        "embedding/test_parity.py", "embedding/test_benchmark_bits.py", "embedding/test_bras.py",
        "embedding/test_kbet.py", "embedding/test_leiden.py", "embedding/test_silhouette.py",
        "embedding/test_benchmark.py", "embedding/test_benchmark_edges.py",
        "embedding/test_benchmark_result.py", "embedding/test_benchmark_resume.py",
        "embedding/test_fuzzy.py", "embedding/test_lisi.py", "faces/test_cli_benchmark.py",
        "faces/test_examples_embedding.py",
    ),
)  # fmt: skip

# These take ten seconds and more each, and are begun before the many short ones: what is begun last
# is what one process waits for.
_LONG = (
    "distributed/test_processes.py", "distributed/test_limits.py", "contract/test_repository.py",
    "robustness/test_parity.py", "cohort/test_store.py", "robustness/test_properties.py",
    "cohort/test_cli.py", "contract/test_doctests.py", "contract/test_api.py",
    "index/test_euclidean.py", "probe/test_fit.py", "robustness/test_tau.py",
)  # fmt: skip

_PARTNERS = {
    f"tests/{file}": f"together-{number}"
    for number, files in enumerate(_TOGETHER)
    for file in files
}
_ORDER = {
    f"tests/{file}": at
    for at, file in enumerate([file for files in (*_TOGETHER, _LONG) for file in files])
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests that start processes last: the cheap ones report first.

    Of several processes each is handed one file after the other, and the long ones come first.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _ORDER.get(item.nodeid.split("::")[0], len(_ORDER)))
    else:
        items.sort(key=lambda item: item.get_closest_marker("cluster") is not None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand whole files out, and those that share what takes long to the same process."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return _PARTNERS.get(file, file)

    # In the order of collection, not by how many tests there are.
    config.option.loadscopereorder = False
    return Together(config, log)


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
