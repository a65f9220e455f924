"""BLAS runs on one thread inside our own, and as before when they are done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import croma_dask as cd
from croma_dask.index import direct
from croma_dask.index.threads import one_blas_thread
from tests.helpers.cohorts import lattice_cohort
from tests.helpers.engines import engine


def blas_threads() -> set[int]:
    """Threads of the BLAS that numpy multiplies with; numba loads scipy's beside it."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    mine = [pool for pool in pools if "numpy" in pool["filepath"]] or pools
    return {pool["num_threads"] for pool in mine}


def test_the_limit__is_lifted_after_an_error() -> None:
    before = blas_threads()
    with pytest.raises(ValueError, match="stop"), one_blas_thread():
        raise ValueError("stop")
    assert blas_threads() == before


@pytest.mark.filterwarnings("ignore:.*units")
@pytest.mark.parametrize(("name", "module"), [("direct", direct)])
def test_tasks__multiply_on_one_blas_thread(
    name: str, module: Any, rng: np.random.Generator
) -> None:
    before = blas_threads()
    seen: set[int] = set()
    real = module.sweep

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.update(blas_threads())
        return real(*args, **kwargs)

    cohort = lattice_cohort(rng, 200, n_features=4, reach=5)
    with pytest.MonkeyPatch.context() as patch, engine(name, range_rows=60):
        patch.setattr(module, "sweep", watched)
        cd.score(cohort.x, cohort.frame, confounder="center", k_candidates=[5], threads=3)
    assert seen == {1}
    assert blas_threads() == before
