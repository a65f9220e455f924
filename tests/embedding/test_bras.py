"""BRAS: against brute force and scib-metrics, the same bits however rows come, and its edges."""

from __future__ import annotations

import gc
import math
import tracemalloc
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.embedding import moments
from croma_dask.embedding.bras import BRAS_DEFINITION, bras, bras_bytes
from croma_dask.embedding.bras_cells import Cells
from croma_dask.embedding.outcome import Outcome
from croma_dask.embedding.spans import rows_at_once
from croma_dask.errors import MemoryLimitError, SchemaError
from croma_dask.index.source import ArraySource, TakenRows
from croma_dask.memory import LIBRARIES
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


def brute_scores(x: Any, labels: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """Scores of cells in extended precision: all pairs, and the guard of tiny mean distances."""
    u = np.asarray(x, np.longdouble)
    u = u / np.sqrt((u * u).sum(axis=1, keepdims=True))
    found = np.full(len(labels), np.nan)
    for i, (label, batch) in enumerate(zip(labels, batches, strict=True)):
        d = ((u - u[i]) ** 2).sum(axis=1) / 2
        own, rest = (labels == label) & (batches == batch), (labels == label) & (batches != batch)
        means = [d[own].sum() / (own.sum() - 1), d[rest].mean()]
        a, o = (mean if mean >= 1e-12 else 0.0 for mean in means)
        found[i] = 1 - abs(o - a) / max(a, o) if max(a, o) > 0 else 1.0
    return found


@pytest.mark.parametrize("width", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 3e-6, 1e-6])
@pytest.mark.parametrize("kind", ["label", "batch", "first row elsewhere"])
def test_bras__of_a_narrow_cone_is_as_exact_as_unit_vectors(width: float, kind: str) -> None:
    """Label 0 is spread out, and label 1, or a batch of it, is a narrow cone somewhere else.

    A float64 unit vector is off by 1e-16, of which the cone's width is that much larger a part.
    """
    rng = np.random.default_rng(13)
    labels = np.repeat(np.arange(2, dtype=np.int32), 150)
    batches = rng.integers(0, 3, 300).astype(np.int32)
    x = rng.normal(size=(300, 20))
    axis = rng.normal(size=20)
    axis *= 5.0 / np.linalg.norm(axis)
    narrow = (labels == 1) & ((batches == 0) | (kind != "batch"))
    shift = 0.7 * rng.normal(size=(3, 20))[batches]
    x[narrow] = axis + 5.0 * width / np.sqrt(20) * (rng.normal(size=(300, 20)) + shift)[narrow]
    if kind == "first row elsewhere":
        x[150] = -axis
    outcome, scores = of(x, labels, batches)
    expected = brute_scores(x, labels, batches)
    error = np.abs(scores - expected)
    assert error[labels == 0].max() < 4e-15
    assert error[labels == 1].max() < 1e-13 + 2e-16 / width
    assert abs(outcome.value - np.mean([expected[:150].mean(), expected[150:].mean()])) < 1e-10


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
@pytest.mark.slow
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


# ---- memory --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded() -> Rows:
    """Several spans of rows, and almost as many cells as rows."""
    rng = np.random.default_rng(14)
    labels, batches = (rng.integers(0, m, 98_304).astype(np.int32) for m in (60, 2_000))
    return rng.normal(size=(98_304, 16)).astype(np.float32), labels, batches


def test_bras__holds_no_more_than_it_says(crowded: Rows) -> None:
    x, labels, batches = crowded
    of(x[:200], labels[:200] % 3, batches[:200] % 3)  # compiles
    n_cells = Cells.of(labels, batches).size.size
    terms = bras_bytes(len(x), 16, n_cells, 60, x.dtype, n_tasks=2)
    gc.collect()
    tracemalloc.start()
    try:
        of(x, labels, batches, options=Options(threads=2))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.5 * sum(terms.values()) < peak < sum(terms.values())


def test_bras__parts_are_added_as_they_come(crowded: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more of them than fit are there at once, and how many does not move a bit."""
    x, labels, batches = crowded
    monkeypatch.setattr(moments, "_PART", 1 << 20)  # spans of one block
    expected, scores = of(x, labels, batches)
    held, most = weakref.WeakSet[Any](), 0
    add = moments._add_span

    def added(*args: Any) -> Any:
        nonlocal most
        part = add(*args)
        held.add(part)
        most = max(most, len(held))
        return part

    monkeypatch.setattr(moments, "_WAITING", 0)  # as many as run
    monkeypatch.setattr(moments, "_add_span", added)
    outcome, same = of(x, labels, batches, options=Options(threads=2))
    assert most <= 3  # two, and the one that is being added
    assert outcome == expected
    np.testing.assert_array_equal(same, scores)


def test_bras_bytes__of_few_cells_is_little() -> None:
    few, many = (bras_bytes(10**6, 512, cells, 100, n_tasks=8) for cells in (1_000, 200_000))
    assert sum(few.values()) < 450e6
    assert max(many, key=lambda name: many[name]) == "sums by label and batch"
    # However many cells there are, a task holds those of its rows only, and of fewer rows.
    many = moments.moment_bytes(10**6, 512, 200_000, "f4", step=4096, n_tasks=8)
    assert many["sums of the tasks"] <= 9 * 4096 * (512 * 8 + 16)


@pytest.mark.parametrize(
    ("memory", "fixed", "worst"),
    [
        (LIBRARIES + (20 << 20), 0, "libraries"),
        (LIBRARIES + (20 << 20), 1 << 30, "values held besides"),
    ],
)
def test_bras__refuses_what_does_not_fit_the_memory(
    crowded: Rows, memory: int, fixed: int, worst: str
) -> None:
    x, labels, batches = crowded
    with pytest.raises(MemoryLimitError, match=f"the largest term is '{worst}'") as told:
        of(x, labels, batches, options=Options(threads=2, memory=memory), fixed=fixed)
    assert "sums by label and batch 1" in str(told.value)
    # Fewer tasks at once are tried before it gives up.
    assert "with 1 task at once" in str(told.value)


def test_bras__names_sums_that_do_not_fit_the_memory() -> None:
    source = ArraySource(np.broadcast_to(np.float32(1), (40_000, 4_096)))
    batches = np.arange(40_000, dtype=np.int32) // 2
    labels = np.zeros(40_000, np.int32)
    with pytest.raises(MemoryLimitError, match="the largest term is 'sums by label and batch'"):
        of(source, labels, batches, options=Options(threads=2, memory="1GB"))


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
    failed = Outcome.failed(told.value, BRAS_DEFINITION)
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


def test_bras__converts_wide_rows_a_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 rows of 8,192 features took 400 MB a task; the bits are those of larger blocks."""
    rng = np.random.default_rng(31)
    x = rng.normal(size=(1_500, 9_000)).astype(np.float32)
    labels = rng.integers(0, 3, 1_500).astype(np.int32)
    batches = rng.integers(0, 2, 1_500).astype(np.int32)
    assert rows_at_once(ArraySource(x)) == 932
    outcome, scores = bras(ArraySource(x), labels, batches, options=Options())
    for module in ("bras", "moments"):
        monkeypatch.setattr(f"croma_dask.embedding.{module}.rows_at_once", lambda _: 4096)
    whole, of_whole = bras(ArraySource(x), labels, batches, options=Options())
    assert outcome.value == whole.value
    np.testing.assert_array_equal(scores, of_whole)
    terms = bras_bytes(30_000, 8_192, 40, 20, np.float32, step=1024, n_tasks=2)
    assert terms["rows of the tasks"] < 300e6
