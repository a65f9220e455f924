"""BRAS: against brute force and scib-metrics, the same bits however rows come, and its edges."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.embedding.bras import bras
from croma_dask.embedding.outcome import Outcome
from croma_dask.errors import SchemaError
from croma_dask.index.source import ArraySource, TakenRows
from croma_dask.options import Options
from tests.helpers.plain_metrics import bras as plain_bras

if TYPE_CHECKING:
    from distributed import Client

ONE = Options(threads=1)

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def mixed(
    seed: int, n: int = 300, n_features: int = 8, n_labels: int = 4, n_batches: int = 3,
    offset: float = 0.0,
) -> Rows:  # fmt: skip
    """Rows, labels and batches; batches shift the rows a little."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(n_labels, n, p=rng.dirichlet(np.full(n_labels, 2.0))).astype(np.int32)
    batches = rng.choice(n_batches, n, p=rng.dirichlet(np.full(n_batches, 2.0))).astype(np.int32)
    x = rng.normal(size=(n, n_features)) + rng.normal(size=(n_labels, n_features))[labels]
    x += 0.5 * rng.normal(size=(n_batches, n_features))[batches]
    return x + offset, labels, batches


def of(x: Any, labels: np.ndarray, batches: np.ndarray, **how: Any) -> tuple[Outcome, np.ndarray]:
    source = x if hasattr(x, "pieces") else ArraySource(np.asarray(x))
    how.setdefault("options", ONE)
    return bras(source, labels, batches, **how)


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["pooled", "batches"])
@pytest.mark.parametrize("offset", [0.0, 3.0, 300.0, 30_000.0])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bras__equals_brute_force(other: Any, offset: float, dtype: str) -> None:
    """A common offset leaves a narrow cone, whose distances of 1e-9 have few digits left."""
    x, labels, batches = mixed(1, offset=offset)
    x = x.astype(dtype)
    batches[0], labels[1:3] = 3, 4  # a batch of one cell, and a label of two
    outcome, scores = of(x, labels, batches, other=other)
    value, expected = plain_bras(x, labels, batches, other=other)
    assert abs(outcome.value - value) < 1e-9
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-9)
    assert scores[0] == 1.0


@pytest.fixture(scope="module")
def library() -> Any:
    """The reference, whose import warns of what it could also use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import scib_metrics
    return scib_metrics


@pytest.mark.parametrize(("offset", "tolerance"), [(0.0, 1e-6), (3.0, 1e-6), (300.0, 1e-3)])
def test_bras__equals_scib_metrics(library: Any, offset: float, tolerance: float) -> None:
    """The library computes in float32, and is the one that errs for narrow cones."""
    x, labels, batches = mixed(2, 200, n_labels=2, offset=offset)
    outcome, _ = of(x, labels, batches)
    expected = library.bras(
        x, labels, batches, metric="cosine", between_cluster_distances="mean_other"
    )
    assert abs(outcome.value - float(expected)) < tolerance


def test_bras__of_a_geometry_one_can_check_by_hand() -> None:
    """One label: batch 0 along two axes, batch 1 along one of them and a third."""
    x = np.eye(3)[[0, 1, 0, 2]] * np.array([[1.0], [5.0], [2.0], [7.0]])
    labels, batches = np.zeros(4, np.int32), np.array([0, 0, 1, 1], np.int32)
    outcome, scores = of(x, labels, batches)
    # Cell 0: a = 1, and o = (0 + 1) / 2, so |s| = 1/2. Cell 1: a = 1, o = 1. And so on.
    np.testing.assert_allclose(scores, [0.5, 1.0, 0.5, 1.0], atol=1e-15)
    assert outcome.value == pytest.approx(0.75, abs=1e-15)
    assert outcome.status == "ok"
    assert outcome.note == (
        "average=labels;other=pooled;skipped_labels=0;bras_definition=cosine_mean_other"
    )


def test_bras__the_other_batches_count_by_cells_or_by_batches() -> None:
    x, labels, batches = mixed(3, 400, n_batches=3)
    rng = np.random.default_rng(3)
    batches = rng.choice(3, 400, p=[0.8, 0.15, 0.05]).astype(np.int32)
    x[batches == 2] += 1.0
    pooled, by_batch = (of(x, labels, batches, other=other)[0] for other in ("pooled", "batches"))
    assert abs(pooled.value - by_batch.value) > 1e-3
    assert "other=batches" in by_batch.note
    # Of two batches there is one other one: no difference, but for rounding.
    two = np.minimum(batches, 1)
    values = [of(x, labels, two, other=other)[0].value for other in ("pooled", "batches")]
    assert values[0] == pytest.approx(values[1], abs=1e-14)


def test_bras__labels_count_alike_whatever_their_size() -> None:
    x, labels, batches = mixed(4)
    outcome, scores = of(x, labels, batches)
    means = [scores[labels == c].mean() for c in range(4)]
    assert outcome.value == pytest.approx(np.mean(means), abs=1e-14)
    assert abs(outcome.value - scores.mean()) > 1e-6


@given(st.integers(0, 50), st.integers(2, 6), st.integers(1, 5))
def test_bras__is_between_0_and_1_whatever_the_lengths(
    seed: int, n_batches: int, n_features: int
) -> None:
    x, labels, batches = mixed(seed, 40, n_features, 3, n_batches)
    outcome, scores = of(x, labels, batches)
    kept = ~np.isnan(scores)
    assert (scores[kept] >= 0.0).all()
    assert (scores[kept] <= 1.0).all()
    lengths = np.ldexp(1.0, np.random.default_rng(seed).integers(-20, 20, 40))
    again, same = of(x * lengths[:, None], labels, batches)
    # In one dimension all rows have one of two directions.
    np.testing.assert_array_equal(same, scores)
    assert again == outcome


@pytest.mark.parametrize("n_features", [2, 50])
def test_bras__of_equal_directions_is_1(n_features: int) -> None:
    """What is left of distances between them is noise, and its ratios would be anything."""
    rng = np.random.default_rng(5)
    row = rng.normal(size=n_features) + 100.0
    x = row * rng.uniform(0.1, 10.0, size=(40, 1))
    labels, batches = np.zeros(40, np.int32), (np.arange(40) % 3).astype(np.int32)
    np.testing.assert_array_equal(of(x, labels, batches)[1], 1.0)
    # As part of a cohort that is spread out, too.
    more, more_labels, more_batches = mixed(5, 200, n_features)
    for stacked in ((more, x), (x, more)):
        which = (more_labels + 1, labels) if stacked[1] is x else (labels, more_labels + 1)
        both = (more_batches, batches) if stacked[1] is x else (batches, more_batches)
        _, scores = of(np.vstack(stacked), np.concatenate(which), np.concatenate(both))
        np.testing.assert_array_equal(scores[np.concatenate(which) == 0], 1.0)


# ---- the same bits -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> Rows:
    """More rows than a span has, and not a whole number of blocks."""
    x, labels, batches = mixed(6, 40_001, 3, 6, 4)
    labels[:10_000] = 0  # most of the blocks have not all cells
    return x.astype(np.float32), labels, batches


@pytest.mark.parametrize("other", ["pooled", "batches"])
def test_bras__chunks_threads_and_dtype_change_no_bit(large: Rows, other: Any) -> None:
    x, labels, batches = large
    outcome, scores = of(x, labels, batches, other=other)
    order = np.random.default_rng(0).permutation(len(x))
    taken = TakenRows(ArraySource(x[np.argsort(order)], step=999), order)
    for source in (ArraySource(x, step=777), ArraySource(x.astype(np.float64)), taken):
        for threads in (1, 3):
            options = Options(threads=threads)
            again, same = of(source, labels, batches, other=other, options=options)
            assert again == outcome
            np.testing.assert_array_equal(same, scores)


@pytest.mark.cluster
def test_bras__on_a_cluster_has_the_same_bits(
    large: Rows, cluster_client: Client, tmp_path: Path
) -> None:
    x, labels, batches = large
    outcome, scores = of(x, labels, batches)
    source = TakenRows(ArraySource(x), np.arange(len(x)))
    options = Options(scratch=str(tmp_path))
    again, same = of(source, labels, batches, options=options, client=cluster_client)
    assert again == outcome
    np.testing.assert_array_equal(same, scores)
    assert not any(tmp_path.iterdir())


# ---- edges ---------------------------------------------------------------------------------------


def test_bras__skips_labels_of_one_batch_and_of_a_batch_a_cell() -> None:
    x, labels, batches = mixed(7, n_batches=4)
    labels[:7] = [4, 4, 5, 5, 5, 6, 6]
    batches[:7] = [1, 1, 0, 1, 2, 3, 0]  # 4 has one batch; 5 and 6 have as many as cells
    outcome, scores = of(x, labels, batches)
    value, expected = plain_bras(x, labels, batches)
    assert outcome.value == pytest.approx(value, abs=1e-12)
    assert np.isnan(scores[:7]).all()
    np.testing.assert_allclose(scores, expected, atol=1e-12)
    assert "skipped_labels=3" in outcome.note


def test_bras__codes_that_do_not_occur_count_for_nothing() -> None:
    x, labels, batches = mixed(8)
    outcome, scores = of(x, labels, batches)
    again, same = of(x, labels * 3 + 2, batches * 5 + 1)
    assert again == outcome
    np.testing.assert_array_equal(same, scores)


@pytest.mark.parametrize(
    ("labels", "batches", "word"),
    [
        ([0], [0], "insufficient_cells"),
        ([0, 0, 1], [1, 1, 1], "insufficient_batches"),
        ([0, 0, 1, 1], [0, 0, 1, 1], "insufficient_labels"),
        ([0, 0, 1, 1], [0, 1, 0, 1], "insufficient_labels"),
    ],
)
def test_bras__is_undefined_where_no_label_has_mixed_batches(
    labels: list[int], batches: list[int], word: str
) -> None:
    x = np.random.default_rng(9).normal(size=(len(labels), 3))
    outcome, scores = of(x, np.array(labels, np.int32), np.array(batches, np.int32))
    assert math.isnan(outcome.value)
    assert np.isnan(scores).all()
    assert outcome.status.startswith("undefined: ")
    parts = outcome.note.split(";")
    assert (parts[0], parts[-1]) == (word, "bras_definition=cosine_mean_other")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("value", [0.0, 1e-13, np.nan, np.inf])
def test_bras__refuses_rows_without_a_direction(value: float, dtype: str) -> None:
    x, labels, batches = mixed(10)
    bad = [0, 3, 9, 12, 40, 77, 299]
    x = x.astype(dtype)
    x[bad] = 0.0
    x[bad, 2] = value
    what = "a length of at most 1e-12" if value < 1.0 else "NaN or inf"
    with pytest.raises(SchemaError, match=what) as told:
        of(x, labels, batches)
    assert "rows 0, 3, 9, 12, 40 and 2 more (7 of 300)" in str(told.value)
    # As a failed metric its message is a part of the note, which ; would end.
    failed = Outcome.failed(told.value, "bras_definition=cosine_mean_other")
    assert failed.note.count(";") == 1


def test_bras__takes_rows_as_long_as_numbers_are() -> None:
    x, labels, batches = mixed(11)
    outcome, scores = of(x, labels, batches)
    x[::2] *= 2.0**1000
    x[1::2] *= 2.0**-30
    again, same = of(x, labels, batches)
    np.testing.assert_allclose(same, scores, atol=1e-12)
    assert again.value == pytest.approx(outcome.value, abs=1e-12)


def test_bras__refuses_what_does_not_fit() -> None:
    x, labels, batches = mixed(12)
    with pytest.raises(SchemaError, match="expected 300 labels and batches"):
        of(x, labels[1:], batches)
    with pytest.raises(SchemaError, match="expected 'pooled' or 'batches'"):
        of(x, labels, batches, other="nearest")
