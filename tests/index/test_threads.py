"""BLAS runs on one thread inside our own, and as before when they are done."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import croma_dask as cd
from croma_dask.index import direct, streamed
from croma_dask.index.threads import one_blas_thread
from tests.helpers.cohorts import lattice_cohort
from tests.helpers.engines import engine


def blas_threads() -> set[int]:
    """Threads of the BLAS that numpy multiplies with; numba loads scipy's beside it."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    mine = [pool for pool in pools if "numpy" in pool["filepath"]] or pools
    return {pool["num_threads"] for pool in mine}


def test_the_limit__lasts_from_the_first_to_the_last() -> None:
    before = blas_threads()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert inside.wait(10)
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}, "the other task still runs"
    finally:
        leave.set()
        thread.join()
    assert blas_threads() == before


def test_the_limit__is_lifted_after_an_error() -> None:
    before = blas_threads()
    with pytest.raises(ValueError, match="stop"), one_blas_thread():
        raise ValueError("stop")
    assert blas_threads() == before


@pytest.mark.filterwarnings("ignore:.*units")
@pytest.mark.parametrize(("name", "module"), [("direct", direct), ("streamed", streamed)])
def test_tasks__multiply_on_one_blas_thread(
    name: str, module: Any, rng: np.random.Generator
) -> None:
    before = blas_threads()
    seen: list[set[int]] = []
    real = module.sweep

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(blas_threads())
        return real(*args, **kwargs)

    cohort = lattice_cohort(rng, 200, n_features=4, reach=5)
    with pytest.MonkeyPatch.context() as patch, engine(name, range_rows=60):
        patch.setattr(module, "sweep", watched)
        cd.score(cohort.x, cohort.frame, confounder="center", k_candidates=[5], threads=3)
    assert seen == [{1}] * len(seen)
    assert seen
    assert blas_threads() == before


def test_after_a_run__the_caller_s_own_limit_of_blas_threads_works() -> None:
    """From threadpoolctl 3.8 on a thread that has set a limit and lives on shuts others out."""
    with one_blas_thread():
        pass
    with threadpool_limits(limits=1, user_api="blas"):
        assert blas_threads() == {1}
