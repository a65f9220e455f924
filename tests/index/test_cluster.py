"""A cluster of two processes: whose client it is, and who else runs there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import croma_dask as cd
from tests.helpers.cohorts import lattice_cohort
from tests.helpers.engines import engine

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:.*units are undefined"),
]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[Path]:
    with cd.set_options(scratch=str(tmp_path / "scratch")):
        yield tmp_path / "scratch"


def test_cluster__a_client_that_is_not_the_default(cluster_client: Any) -> None:
    """as_completed(futures) looks for the default client; give it loop=client.loop."""
    cohort = lattice_cohort(np.random.default_rng(0), 300, n_features=3, reach=5)
    with engine("streamed", range_rows=100):
        cd.score(
            cohort.x, cohort.frame, confounder="center", k_candidates=[2], client=cluster_client
        )


def test_cluster__the_same_cohort_twice_at_a_time(cluster_client: Any) -> None:
    """The second run takes a scratch folder of its own, but its graph has the first one's keys.

    The prefix of the keys is the first 12 letters of the folder's name, which both share: the
    scheduler takes the first run's tasks for the second's, and its lists are never written.
    """
    cohort = lattice_cohort(np.random.default_rng(0), 600, n_features=3, reach=5)
    problems: list[BaseException] = []

    def run() -> None:
        try:
            # Not as_current(): that sets Dask's configuration, which all threads share, and two of
            # them that end in another order than they began leave it set for all later tests.
            cd.score(
                cohort.x,
                cohort.frame,
                confounder="center",
                k_candidates=[2, 6],
                client=cluster_client,
            )
        except BaseException as err:  # noqa: BLE001 - told to the main thread
            problems.append(err)

    with engine("streamed", range_rows=100):
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []
