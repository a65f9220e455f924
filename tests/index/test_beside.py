"""Runs beside another, and values beside other candidates: defects that tests have found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import croma_dask as cd
from croma_dask import graph
from croma_dask.index.scratch import Scratch
from tests.helpers.cohorts import Cohort, features, lattice_cohort, manifest
from tests.helpers.engines import engine

pytestmark = pytest.mark.filterwarnings("ignore:.*units")


def test_a_run_beside_another__leaves_nothing_when_it_fails(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Its folder has a random name, so no later run can resume from it: it stays for ever."""
    cohort = lattice_cohort(rng, 200, n_features=3, reach=5)

    def cut(*args: object) -> int:
        raise KeyError("cut")

    def score() -> object:
        return cd.RI.compute(cohort.x, cohort.frame, k_candidates=[3], **cohort.arguments)

    with cd.set_options(scratch=str(tmp_path)), engine("streamed", range_rows=60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(graph, "meet_blocks", cut)
            with pytest.raises(KeyError, match="cut"):
                score()
            (own,) = tmp_path.iterdir()
            held = Scratch(str(own)).lock()
            assert held is not None
            with held, pytest.raises(KeyError, match="cut"):
                score()
        assert list(tmp_path.iterdir()) == [own]


def test_mari__does_not_depend_on_the_other_candidates(rng: np.random.Generator) -> None:
    """Decision 7: sums on a fixed grid of 4,096 rows; grid_rows makes it follow the largest k.

    The pooled value at one k then differs in its last bits with the other candidates. Partial sums
    of a fixed sub-grid (32 rows divide every block if blocks are multiples of 32) would not.
    """
    n = 4_500
    label, confounder = rng.integers(0, 3, n), rng.integers(0, 3, n)
    cohort = Cohort(features(rng, label, confounder, 3), manifest(label, confounder))
    bits = set()
    for largest in (None, 70, 100, 150, 300):
        ks = [9] if largest is None else [9, largest]
        curve = cd.MaRI.compute_curve(
            cohort.x, cohort.frame, k_values=ks, tau=0.1, **cohort.arguments
        )
        bits.add(curve.value.sel(k=9).values.tobytes())
    assert len(bits) == 1
