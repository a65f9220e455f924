"""LISI of rows and the three metrics made of it: what scib-metrics says, where that is right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from croma_dask.embedding.lisi import (
    DEFINITION,
    cilisi,
    clisi,
    ilisi,
    lisi_block,
    lisi_definition,
    same_label_lisi,
)
from croma_dask.errors import SchemaError
from tests.helpers.marks import first
from tests.helpers.plain_metrics import cilisi as plain_cilisi
from tests.helpers.plain_metrics import exact_lists
from tests.helpers.plain_metrics import lisi as plain_lisi
from tests.helpers.scib import lisi_process

N = 160
Scib = Callable[..., np.ndarray]


@pytest.fixture(scope="module")
def scib() -> Iterator[Scib]:
    with lisi_process() as lisi:
        yield lisi


def others(x: Any, k: int = 89) -> tuple[np.ndarray, np.ndarray]:
    """Lists as this library has them: the row itself is not in its own."""
    index, distance = exact_lists(x, k + 1)
    return np.ascontiguousarray(index[:, 1:]), np.ascontiguousarray(distance[:, 1:])


def mixture(d: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of four overlapping groups, and their codes."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, N).astype(np.int32)
    return rng.normal(size=(N, d)) + 1.5 * rng.normal(size=(4, d))[codes], codes


def duplicated() -> np.ndarray:
    x, _ = mixture(seed=1)
    x[:40] = x[0]
    return x


# ---- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", first(1, [1.0, 0.01, 1e4]))
def test_lisi_block__is_scib_metrics(scib: Scib, scale: float) -> None:
    x, codes = mixture()
    index, distance = others(x * scale)
    expected = scib(index, distance, codes, 30)
    found = lisi_block(index, distance, codes, 4)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(np.median(found), np.median(expected), atol=1e-5)
    same = lisi_block(index, distance, codes, 4, compat="scib-metrics")
    np.testing.assert_allclose(same, expected, atol=1e-4)


def float32_case(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name.startswith("simplex"):
        index, distance = others(np.eye(N))
        return index, distance * float(name.partition(" x")[2] or 1.0)
    if name == "duplicates":
        return others(duplicated())
    index, distance = others(np.random.default_rng(3).normal(size=(N, 512)))
    return index, distance * {"isotropic": 1.0, "huge": 1e18, "zero": 0.0}[name]


@pytest.mark.parametrize(
    "name",
    [
        # All rows at one distance: beta doubles until every weight has gone, or almost.
        "simplex", "simplex x10", "simplex x70",
        "duplicates",  # the same for two rows that have more than 30 equal ones before them
        "huge",  # 50 halvings are not enough
        "zero",  # nothing can vanish
        "isotropic",  # distances that are large beside their spread: half of them vanish
    ],
)  # fmt: skip
def test_lisi_block__compat_repeats_what_float32_makes_of_it(scib: Scib, name: str) -> None:
    _, codes = mixture()
    index, distance = float32_case(name)
    expected = scib(index, distance, codes, 30)
    found = lisi_block(index, distance, codes, 4, compat="scib-metrics")
    right = lisi_block(index, distance, codes, 4)
    assert right.min() >= 1.0
    # Where a search ends between vanished and not, the last digit of the exponential decides,
    # which is the machine's: the outcome is -1 or the index of equal weights.
    lost = (found == -1.0) | (expected == -1.0)
    if name in ("zero", "isotropic"):
        assert not lost.any()
    if name == "huge":
        assert (found == -1.0).all()
        assert (expected == -1.0).all()
    if name == "duplicates":
        np.testing.assert_array_equal(np.flatnonzero(lost), [60, 108])
    off = np.abs(found - expected)[~lost]
    if name == "isotropic":
        assert np.mean(off < 1e-4) > 0.9
        assert np.abs(right - expected).max() > 0.05
    else:
        assert (off < 1e-4).all()
        assert (np.abs(right - expected)[~lost] < 1e-4).all()


def test_lisi_block__a_single_neighbour_is_one_category() -> None:
    index, codes = np.array([[1], [0]], np.int32), np.array([0, 1], np.int32)
    for at, of_library in ((0.0, -1.0), (2.5, 1.0)):
        distance = np.full((2, 1), at)
        assert (lisi_block(index, distance, codes, 2) == 1.0).all()
        same = lisi_block(index, distance, codes, 2, compat="scib-metrics")
        np.testing.assert_array_equal(same, of_library)


def test_lisi_block__solves_for_the_entropy_where_float32_cannot() -> None:
    """Against a root finder: weights of many dimensions and of far rows do not vanish."""
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 3, N).astype(np.int32)
    index, distance = others(rng.normal(size=(N, 512)))
    for shift in (0.0, 1e6):
        found = lisi_block(index, distance + shift, codes, 3)
        for r in range(0, N, 20):
            d = distance[r] - distance[r].min()

            def excess(beta: float, d: np.ndarray = d) -> float:
                p = np.exp(-beta * d)
                return math.log(p.sum()) + beta * float(p @ d) / p.sum() - math.log(30.0)

            p = np.exp(-brentq(excess, 1e-6, 1e6, xtol=1e-14) * d)
            shares = np.bincount(codes[index[r]], weights=p) / p.sum()
            assert found[r] == pytest.approx(1.0 / (shares @ shares), abs=1e-4)


def test_lisi_block__is_the_schedule_that_starts_at_one() -> None:
    x, codes = mixture(seed=7)
    for scale in (1.0, 30.0, 1e-3):
        found = lisi_block(*others(x * scale), codes, 4)
        np.testing.assert_allclose(found, plain_lisi(x * scale, codes), rtol=0, atol=1e-9)


def test_lisi_block__does_not_know_the_unit_of_distance() -> None:
    x, codes = mixture(seed=8)
    index, distance = others(x)
    expected = lisi_block(index, distance, codes, 4)
    for exponent in (-900, -100, -1, 3, 60, 900):
        found = lisi_block(index, np.ldexp(distance, exponent), codes, 4)
        np.testing.assert_array_equal(found, expected)


def test_lisi_block__published_values(shared_data: Path) -> None:
    folder = shared_data / "lisi_golden"
    obs = pd.read_csv(folder / "obs.csv")
    index, distance = others(np.load(folder / "X.npy"))
    for name in ("label1", "label2"):
        codes, levels = pd.factorize(obs[name], sort=True)
        found = lisi_block(index, distance, codes.astype(np.int32), len(levels))
        np.testing.assert_allclose(found, obs[f"golden_lisi_{name}"], atol=1e-4)


def test_lisi_block__equal_distances_weigh_alike() -> None:
    index = np.array([[1, 2, 3, 4]] * 3, np.int32)
    codes = np.array([0, 0, 0, 0, 1, 2], np.int32)
    expected = 1.0 / (0.75**2 + 0.25**2)
    for at in (0.0, 1e-9, 7.5, 1e5, 1e200):
        for perplexity in (2.0, 4.0, 30.0):
            found = lisi_block(index, np.full((3, 4), at), codes, 3, perplexity=perplexity)
            np.testing.assert_array_equal(found, np.full(3, expected))


def test_lisi_block__duplicates_are_never_below_one() -> None:
    _, codes = mixture()
    for x in (duplicated(), np.zeros((N, 3))):
        found = lisi_block(*others(x), codes, 4)
        assert np.isfinite(found).all()
        assert found.min() >= 1.0


def test_lisi_block__as_many_equal_rows_as_the_perplexity_are_all_that_counts() -> None:
    """Beyond it no bandwidth fits: the equal rows are the neighbours, all others are none."""
    index = np.tile(np.arange(1, 90, dtype=np.int32), (1, 1))
    codes = np.zeros(90, np.int32)
    codes[1:11] = 1
    codes[60:] = 2
    distance = np.r_[np.zeros(40), np.full(49, 3.0)][None]
    found = lisi_block(index, distance, codes, 3)
    assert found[0] == 40.0**2 / (10.0**2 + 30.0**2)


def test_lisi_block__too_few_neighbours_weigh_alike_and_none_is_nan() -> None:
    x, codes = mixture()
    index, distance = others(x, 20)
    index[1:, 12:] = -1
    index[3] = -1
    distance[index < 0] = np.nan
    found = lisi_block(index, distance, codes, 4)
    for row, n in ((0, 20), (1, 12)):
        shares = np.bincount(codes[index[row, :n]]) / n
        assert found[row] == pytest.approx(1.0 / (shares @ shares), rel=1e-15)
    np.testing.assert_array_equal(np.isnan(found), np.arange(N) == 3)
    assert lisi_block(index, distance, codes, 4, compat="scib-metrics")[3] == -1.0
    assert np.isnan(lisi_block(index[:, :0], distance[:, :0], codes, 4)).all()


@given(seed=st.integers(0, 2**31), n=st.integers(3, 60), k=st.integers(1, 70))
def test_lisi_block__rows_stand_alone_and_names_do_not_matter(seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)).round(int(rng.integers(0, 3)))  # with ties
    codes = rng.integers(0, 5, n).astype(np.int32)
    index, distance = others(x, min(k, n - 1))
    for compat in (None, "scib-metrics"):
        whole = lisi_block(index, distance, codes, 5, compat=compat)
        cut = int(rng.integers(0, n + 1))
        parts = [
            lisi_block(index[rows], distance[rows], codes, 5, compat=compat)
            for rows in (slice(0, cut), slice(cut, n))
        ]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        renamed = rng.permutation(7)[:5].astype(np.int32)[codes]
        np.testing.assert_array_equal(lisi_block(index, distance, renamed, 7, compat=compat), whole)
        order = rng.permutation(n)
        back = np.argsort(order).astype(np.int32)
        permuted = lisi_block(back[index[order]], distance[order], codes[order], 5, compat=compat)
        np.testing.assert_array_equal(permuted, whole[order])
    whole = lisi_block(index, distance, codes, 5)
    n_near = np.array([len(np.unique(codes[row])) for row in index])
    assert (whole >= 1.0).all()
    assert (whole <= n_near * (1 + 1e-12)).all()


def test_lisi_block__refuses_what_it_does_not_know() -> None:
    x, codes = mixture()
    index, distance = others(x)
    with pytest.raises(SchemaError, match="compat"):
        lisi_block(index, distance, codes, 4, compat="scib")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="shape"):
        lisi_block(index, distance[:, 1:], codes, 4)


# ---- cLISI and iLISI -----------------------------------------------------------------------------


def test_clisi__scales_the_median() -> None:
    values = np.array([1.0, 1.0, 1.5, 3.0, 2.0])
    outcome = clisi(values, 4)
    assert outcome.value == (4 - 1.5) / 3
    assert outcome.status == "ok"
    assert outcome.note.split(";") == [
        f"lisi_definition={DEFINITION}", "perplexity=30", "n_neighbors=4", "self_included=true",
        "statistic=median",
    ]  # fmt: skip
    assert ilisi(values, 4).value == 0.5 / 3
    assert "n_neighbors=90" in ilisi(np.tile(values, 50), 4).note


def test_clisi__is_not_clipped_and_minus_one_counts() -> None:
    values = np.array([-1.0, -1.0, 2.0])
    outcome = clisi(values, 2, compat="scib-metrics")
    assert outcome.value == 3.0
    assert outcome.note.endswith(";compat=scib-metrics")
    assert ilisi(values, 2).value == -2.0


def test_clisi__leaves_out_what_has_no_value() -> None:
    outcome = clisi(np.array([1.0, np.nan, 1.2, 1.4]), 2)
    assert outcome.value == pytest.approx(0.8)
    assert "undefined_cells=1" in outcome.note.split(";")


@pytest.mark.parametrize(("n", "categories", "reason"), [(2, 2, "cells"), (0, 0, "cells")])
def test_clisi__undefined_for_few_cells(n: int, categories: int, reason: str) -> None:
    for metric in (clisi, ilisi):
        outcome = metric(np.ones(n), categories)
        assert math.isnan(outcome.value)
        assert outcome.note.startswith(f"insufficient_{reason};lisi_definition=")
        assert outcome.status == "undefined: fewer than three cells"


def test_clisi__undefined_for_one_category() -> None:
    for metric, name, reason in (
        (clisi, "insufficient_labels", "one label"), (ilisi, "insufficient_batches", "one batch"),
    ):  # fmt: skip
        outcome = metric(np.ones(9), 1)
        assert math.isnan(outcome.value)
        assert outcome.note.split(";")[0] == name
        assert outcome.status == f"undefined: {reason}"


def test_lisi_definition__says_what_it_is() -> None:
    assert lisi_definition() == {
        "perplexity": 30.0, "n_neighbors": 90, "self_included": True, "def_version": DEFINITION,
    }  # fmt: skip


# ---- CiLISI --------------------------------------------------------------------------------------


def of_labels(
    x: np.ndarray, label: np.ndarray, batch: np.ndarray, *, k: int = 89
) -> tuple[Any, ...]:
    """Arguments of `same_label_lisi` but for the rows of a block: lists, tables."""
    n_labels, n_batches = int(label.max()) + 1, int(batch.max()) + 1
    index = np.full((len(x), k), -1, np.int32)
    distance = np.full((len(x), k), np.nan)
    for c in range(n_labels):
        rows = np.flatnonzero(label == c)
        if len(rows) < 2:
            continue
        near, d = others(x[rows], min(k, len(rows) - 1))
        index[rows, : near.shape[1]] = rows[near]
        distance[rows, : near.shape[1]] = d
    cells = np.bincount(label, minlength=n_labels)
    table = np.zeros((n_labels, n_batches), bool)
    table[label, batch] = True
    return index, distance, cells, table.sum(axis=1), n_batches


def ragged() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of 160, 40, 31, 12, 10, 9 and 1 cells; the one of 12 lies in a single batch."""
    rng = np.random.default_rng(11)
    label = np.repeat(np.arange(7), [N, 40, 31, 12, 10, 9, 1]).astype(np.int32)
    batch = rng.integers(0, 4, len(label)).astype(np.int32)
    batch[label == 1] = rng.integers(0, 2, 40)
    batch[label == 3] = 2
    order = rng.permutation(len(label))
    x = rng.normal(size=(len(label), 6)) + 0.7 * rng.normal(size=(4, 6))[batch]
    return x, label[order], batch[order]


def test_same_label_lisi__is_the_metric_among_the_cells_of_a_label(scib: Scib) -> None:
    x, label, batch = ragged()
    index, distance, cells, batches, n_batches = of_labels(x, label, batch)
    found = same_label_lisi(index, distance, batch, label, cells, batches, n_batches)
    expected = plain_cilisi(x, label, batch)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isnan(found), np.isin(label, [3, 5, 6]))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    rows = np.flatnonzero(label == 0)
    near, d = others(x[rows])
    values = scib(near, d, batch[rows], 30)
    np.testing.assert_allclose(found[rows], np.clip((values - 1) / 3, 0, 1), atol=1e-4)


def test_same_label_lisi__blocks_stand_alone() -> None:
    x, label, batch = ragged()
    index, distance, *tables = of_labels(x, label, batch)
    whole = same_label_lisi(index, distance, batch, label, *tables)
    for step in (1, 50):
        parts = [
            same_label_lisi(
                index[lo : lo + step], distance[lo : lo + step], batch, label[lo : lo + step],
                *tables,
            )
            for lo in range(0, len(x), step)
        ]  # fmt: skip
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_same_label_lisi__refuses_lists_that_are_too_short() -> None:
    x, label, batch = ragged()
    index, distance, *tables = of_labels(x, label, batch, k=88)
    with pytest.raises(SchemaError, match="lists of 89"):
        same_label_lisi(index, distance, batch, label, *tables)
    small = label != 0  # the largest other label has 40 cells
    same_label_lisi(index[small, :38], distance[small, :38], batch, label[small], *tables)


def test_cilisi__pools_cells_or_labels() -> None:
    values = np.array([0.0, 0.5, 1.0, 1.0, np.nan, 0.25])
    label = np.array([0, 0, 0, 0, 1, 2], np.int32)
    pooled = cilisi(values, label)
    assert pooled.value == pytest.approx(2.75 / 5)
    assert "average=samples" in pooled.note.split(";")
    of_label = cilisi(values, label, "labels", compat="scib-metrics")
    assert of_label.value == pytest.approx((2.5 / 4 + 0.25) / 2)
    assert {"average=labels", "compat=scib-metrics"} <= set(of_label.note.split(";"))
    with pytest.raises(SchemaError, match="average"):
        cilisi(values, label, "cells")  # type: ignore[arg-type]


def test_cilisi__undefined_without_an_eligible_label() -> None:
    for values in (np.full(4, np.nan), np.empty(0)):
        outcome = cilisi(values, np.zeros(len(values), np.int32))
        assert math.isnan(outcome.value)
        assert outcome.note.startswith("insufficient_labels;")
        assert outcome.status.startswith("undefined: no label")
