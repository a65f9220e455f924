"""What counts alone tell: candidates of every row, and who cannot be scored."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import croma_dask as cd
from croma_dask.cohort.design import Scope, scopes_of, supply_of
from croma_dask.cohort.manifest import ColumnNames, read_manifest
from croma_dask.robustness.preflight import unscoreable, warn_same_split
from tests.helpers.cohorts import manifest


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 6)), min_size=2, max_size=40
    )
)
def test_supply__is_what_counting_pairs_gives(rows: list[tuple[int, int, int]]) -> None:
    label, confounder, group = (np.array(v, np.int32) for v in zip(*rows, strict=True))
    supply = supply_of(Scope("dataset", None, label, confounder, group, 4))
    other = group[:, None] != group[None, :]
    same_label = label[:, None] == label[None, :]
    same_confounder = confounder[:, None] == confounder[None, :]
    assert supply.so.tolist() == (other & same_label & ~same_confounder).sum(axis=1).tolist()
    assert supply.os.tolist() == (other & ~same_label & same_confounder).sum(axis=1).tolist()


def test_unscoreable__counts_units_by_cell() -> None:
    cells = [("a", "x")] * 5 + [("a", "y")] * 5 + [("b", "x")] * 5 + [("b", "y")] * 2
    cells += [("c", "y")] * 3
    checked = read_manifest(
        manifest(*zip(*cells, strict=True)), ColumnNames("center"), paired=False
    )
    one, two, three = unscoreable(checked, scopes_of(checked, "all"), [1, 2, 3])
    assert (one.n, one.no_so, one.no_os) == (3, 3, 0)
    assert one.cells == (("c", "y", 3),)
    assert one.first == (17, 18, 19)
    # b x y has two rows: the five b x have two SO, and none of them three
    assert two.n == 3
    assert three.cells[0] == ("b", "x", 5)
    assert three.n == 8


def test_pbmc__six_rows_are_known_in_milliseconds(shared_data: Path) -> None:
    obs = pd.read_csv(shared_data / "symphony_pbmc1200" / "obs.csv", dtype=str)
    frame = manifest(obs["cell_type"], obs["donor"], sample_id=obs["sample_id"])
    checked = read_manifest(frame, ColumnNames("center"), paired=False)
    start = time.perf_counter()
    (found,) = unscoreable(checked, scopes_of(checked, "all"), [5])
    assert time.perf_counter() - start < 0.05
    assert found.n == 6
    assert sum(count for _, _, count in found.cells) == 6


@pytest.mark.parametrize("n", [1_000_000])
def test_a_million_rows__take_no_time(n: int) -> None:
    rng = np.random.default_rng(0)
    label, confounder, group = (rng.integers(0, k, n).astype(np.int32) for k in (8, 5, 5_000))
    start = time.perf_counter()
    supply = supply_of(Scope("dataset", None, label, confounder, group, 8))
    assert time.perf_counter() - start < 5.0
    row = 123_456
    other = group != group[row]
    so = other & (label == label[row]) & (confounder != confounder[row])
    assert supply.so[row] == so.sum()


def two_names(levels: list[str]) -> pd.DataFrame:
    """Sixty rows of three labels, in twelve groups, with a confounder of these levels."""
    at = np.arange(60)
    labels = np.array(["a", "b", "c"])[at % 3]
    return manifest(labels, np.array(levels)[at % len(levels)], group=[f"g{i // 5}" for i in at])


def test_one_partition_of_two_names__is_said_first_and_plainly(rng: np.random.Generator) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = cd.score(
            rng.normal(size=(60, 4)), two_names(["z", "x", "y"]), confounder="center",
            k_candidates=[3], m=1,
        )  # fmt: skip
    assert str(said[0].message) == (
        "'center' and the label 'label' split the rows in the same way: nothing is SO or OS, so "
        "nothing can be scored"
    )
    assert float(result["RI"].support) == 0.0


@pytest.mark.parametrize("levels", [["x", "x", "y"], ["x", "y", "z", "x", "y", "y"], list("pqrs")])
def test_other_partitions__are_not_said_to_be_the_same(
    levels: list[str], recwarn: pytest.WarningsRecorder
) -> None:
    warn_same_split(read_manifest(two_names(levels), ColumnNames("center"), paired=False))
    assert not list(recwarn)
