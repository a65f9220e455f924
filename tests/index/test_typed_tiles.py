"""CRoMa alone multiplies only what shares a label or a confounder, and finds the same."""

from __future__ import annotations

import numpy as np
import pytest

import croma_dask as cd
from croma_dask.index.ranges import load_range
from croma_dask.index.source import ArraySource, Codes
from croma_dask.index.sweep import _typed_tiles
from croma_dask.kernels.frame import Frame
from tests.helpers.cohorts import manifest
from tests.helpers.engines import engine


@pytest.mark.parametrize(("n_labels", "n_confounders"), [(2, 2), (5, 4), (40, 30)])
def test_typed_tiles__cover_every_typed_pair_once(n_labels: int, n_confounders: int) -> None:
    rng = np.random.default_rng(n_labels)
    ranges = []
    for lo, hi in ((0, 1500), (1500, 2700)):
        codes = Codes(
            rng.integers(0, n_labels, hi - lo).astype(np.int32),
            rng.integers(0, n_confounders, hi - lo).astype(np.int32),
            np.arange(hi - lo, dtype=np.int32),
        )
        rows = ArraySource(rng.normal(size=(2700, 3)))
        ranges.append(load_range(rows, codes, lo, hi, Frame(np.zeros(3))))
    first, second = ranges
    visits = np.zeros((1500, 1200), np.int64)
    for i0, i1, j0, j1 in _typed_tiles(first, second, labels_only=False):
        visits[i0:i1, j0:j1] += 1
    typed = (first.label[:, None] == second.label) != (
        first.confounder[:, None] == second.confounder
    )
    assert visits.max() == 1
    assert (visits[typed] == 1).all()


@pytest.mark.parametrize("name", ["direct", "streamed"])
def test_croma_alone__equals_croma_with_the_others(name: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(700, 16))
    frame = manifest(
        rng.integers(0, 7, 700), rng.integers(0, 5, 700), group=rng.integers(0, 70, 700)
    )
    with engine("small"):
        together = cd.score(x, frame, confounder="center", m=[1, 4])["CRoMa"].to_dataset()
    with engine(name, range_rows=300):
        alone = cd.CRoMa.compute(x, frame, confounder_column="center", m=[1, 4])
    for variable in together.data_vars:
        assert alone[variable].identical(together[variable]), variable
