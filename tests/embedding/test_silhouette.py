"""ASW: against scikit-learn and brute force, the same bits however it is cut up, and its bounds."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import math
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.embedding import distance_layout, distance_sums, distance_tasks
from croma_dask.embedding import silhouette_bounds as silhouette_bounds_module
from croma_dask.embedding.distance_layout import SumsCost, lay_out_sums, task_bytes
from croma_dask.embedding.distance_sums import grid_of
from croma_dask.embedding.silhouette import asw, silhouette
from croma_dask.embedding.silhouette_bounds import asw_interval, bounds_bytes, silhouette_bounds
from croma_dask.errors import MemoryLimitError, SchemaError
from croma_dask.index.source import ArraySource, TakenRows
from croma_dask.memory import LIBRARIES
from croma_dask.options import Options
from tests.helpers.plain_metrics import silhouettes as plain_silhouettes

if TYPE_CHECKING:
    from distributed import Client

ONE = Options(threads=1)


def clusters(
    seed: int, n: int, n_features: int, n_labels: int, apart: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of labels of unlike sizes, in no order."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(n_labels, 2.0))
    codes = rng.choice(n_labels, n, p=share).astype(np.int32)
    codes[:n_labels] = np.arange(n_labels)
    centres = rng.normal(size=(n_labels, n_features)) * apart
    return rng.normal(size=(n, n_features)) + centres[codes], codes


def of(x: Any, codes: np.ndarray, **how: Any) -> np.ndarray:
    """Silhouettes of rows in memory."""
    source = x if hasattr(x, "pieces") else ArraySource(np.asarray(x))
    how.setdefault("options", ONE)
    return silhouette(source, codes, int(codes.max()) + 1, **how)


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Stream whatever the size, by ranges of so many rows."""

    def make(rows: int, most_tasks: int = 4_000) -> None:
        monkeypatch.setattr(distance_layout, "RESIDENT_ROWS", 0)
        monkeypatch.setattr(distance_layout, "LARGEST_RANGE", rows)
        monkeypatch.setattr(distance_layout, "MOST_TASKS", most_tasks)

    return make


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int16", ">f8"])
@pytest.mark.parametrize("n_features", [1, 3, 50])
def test_silhouette__equals_sklearn(dtype: str, n_features: int) -> None:
    from sklearn.metrics import silhouette_samples

    x, codes = clusters(n_features, 700, n_features, 6)
    x = (x * 50).astype(dtype)
    found = of(x, codes)
    expected = silhouette_samples(x.astype(np.float64), codes)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)
    assert abs(asw(found, codes).value - expected.mean()) < 1e-9
    np.testing.assert_allclose(found[:40], plain_silhouettes(x, codes)[:40], rtol=0, atol=1e-13)


def test_silhouette__of_data_with_one_far_row_is_as_exact() -> None:
    x, codes = clusters(1, 600, 8, 4)
    x[17] += 1e7
    # Not scikit-learn: its distances are differences of squares, too large here for their digits.
    expected = plain_silhouettes(x, codes)
    found = of(x, codes)
    assert np.abs(found - expected).max() < 1e-8
    assert abs(found.mean() - expected.mean()) < 1e-9
    # As the first row, from which the bound on the distances is taken, too.
    order = np.r_[17, np.delete(np.arange(600), 17)]
    assert np.abs(of(x[order], codes[order]) - expected[order]).max() < 1e-8


def test_silhouette__far_from_the_origin_loses_nothing() -> None:
    x, codes = clusters(2, 300, 6, 3)
    x = np.round(x * 2**20) / 2**20  # so that adding and subtracting 2^24 is exact
    np.testing.assert_array_equal(of(x + 2.0**24, codes), of(x, codes))


@given(st.integers(-900, 400), st.integers(0, 5))
def test_silhouette__is_the_same_in_any_unit(exponent: int, seed: int) -> None:
    x, codes = clusters(seed, 60, 5, 4)
    np.testing.assert_array_equal(of(np.ldexp(x, exponent), codes), of(x, codes))


def test_silhouette__features_that_are_zero_change_no_bit() -> None:
    x, codes = clusters(3, 200, 5, 3)
    for more in (1, 3, 4, 11):
        np.testing.assert_array_equal(of(np.pad(x, ((0, 0), (0, more))), codes), of(x, codes))


def test_silhouette__of_a_single_cell_is_zero() -> None:
    x, codes = clusters(4, 90, 4, 3)
    codes[codes == 2] = 1
    codes[0] = 2
    found = of(x, codes)
    assert found[0] == 0.0
    np.testing.assert_allclose(found, plain_silhouettes(x, codes), atol=1e-13)


def test_silhouette__equal_rows_are_at_distance_zero() -> None:
    rng = np.random.default_rng(5)
    same = np.tile(rng.normal(size=(1, 7)) * 1e5, (90, 1))
    codes = np.arange(90, dtype=np.int32) % 3
    np.testing.assert_array_equal(of(same, codes), 0.0)
    # Equal within a label only: a is exactly 0, so the silhouette exactly 1.
    three = rng.normal(size=(3, 7))[codes]
    np.testing.assert_array_equal(of(three, codes), 1.0)


def test_silhouette__labels_that_do_not_occur_count_for_nothing() -> None:
    x, codes = clusters(6, 100, 4, 3)
    found = silhouette(ArraySource(x), codes * 4 + 1, 12, options=ONE)
    np.testing.assert_array_equal(found, of(x, codes))


def test_asw__is_undefined_with_one_label_or_a_label_a_cell() -> None:
    x, codes = clusters(7, 30, 4, 3)
    for few in (np.zeros(30, np.int32), np.arange(30, dtype=np.int32)):
        found = of(x, few)
        assert np.isnan(found).all()
        outcome = asw(found, few)
        assert math.isnan(outcome.value)
        assert outcome.note.startswith("insufficient_labels_or_cells;")
        assert outcome.status.startswith("undefined: ")
        assert asw_interval(ArraySource(x), few, 30, options=ONE).status == outcome.status
    outcome = asw(of(x, codes), codes)
    assert outcome.status == "ok"
    assert outcome.note == "asw=exact;distance=euclidean;average=cells"


def test_asw__is_not_rescaled() -> None:
    """Two labels that lie across each other: every cell is nearer to the other one."""
    x = np.array([[0.0], [10.0], [4.0], [6.0]])
    codes = np.array([0, 0, 1, 1], np.int32)
    # Of the outer cells a = 10 and b = 5; of the inner ones a = 2 and b = 5.
    np.testing.assert_array_equal(of(x, codes), [-0.5, -0.5, 0.6, 0.6])
    assert asw(of(x, codes), codes).value == pytest.approx(0.05, abs=1e-16)


# ---- sums ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [1.0, 1e5])
def test_distance_sums__err_by_half_a_step_a_pair(far: float) -> None:
    x, codes = clusters(8, 400, 9, 5)
    x[0] *= far
    with contextlib.ExitStack() as keep:
        sums = distance_sums.distance_sums(ArraySource(x), codes, 5, options=ONE, keep=keep)
        parts = list(sums.pieces())
    largest = max(np.sqrt(((x - row) ** 2).sum(axis=1)).max() for row in x)
    # What the docstring promises: 400 rows have nine bits, so the grid has 51.
    assert sums.step <= 2.0 * largest * 2.0**-50
    wide = x.astype(np.longdouble)
    for part in parts:
        for at in range(0, part.rows.size, 7):
            d = np.sqrt(((wide - wide[part.rows[at]]) ** 2).sum(axis=1))
            for c in range(5):
                exact = d[codes == c].sum()
                allowed = 0.5 * sums.step * (codes == c).sum() + 1e-15 * float(exact)
                assert abs(float(part.total[c, at] * np.longdouble(sums.step) - exact)) <= allowed


def test_distance_sums__count_each_pair_for_both_rows() -> None:
    x, codes = clusters(9, 333, 4, 4)
    with contextlib.ExitStack() as keep:
        sums = distance_sums.distance_sums(ArraySource(x), codes, 4, options=ONE, keep=keep)
        (part,) = sums.pieces()
    between = np.array([part.total[:, part.label == c].sum(axis=1) for c in range(4)])
    np.testing.assert_array_equal(between, between.T)
    np.testing.assert_array_equal(sums.count, np.bincount(codes))


@given(
    st.floats(0.0, 1e160, allow_subnormal=True), st.integers(1, 2**25 - 1)
)  # fmt: skip
def test_grid_of__makes_sums_fit(bound: float, n: int) -> None:
    scale, magic, step = grid_of(bound, n)
    largest = bound * scale * (1.0 + 1e-12)
    assert largest < 1.0
    # Of scaled distances: a step is what `magic` leaves, and so many of them fit 63 bits.
    assert np.spacing(magic) == step * scale
    assert magic >= 2.0
    assert n * math.ceil(largest / np.spacing(magic)) < 2**63
    if bound > 1e-290:
        assert step <= 2.0 * bound * 2.0 ** -min(51, 62 - n.bit_length())


# ---- the same bits -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cohort() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with some that are equal, labels, and silhouettes found in one piece."""
    x, codes = clusters(10, 901, 6, 7)
    x = x.astype(np.float32)
    x[100:200] = x[300:400]
    return x, codes, of(x, codes)


Cohort = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.mark.parametrize("threads", [2, 5])
def test_silhouette__threads_change_no_bit(cohort: Cohort, threads: int) -> None:
    x, codes, expected = cohort
    np.testing.assert_array_equal(of(x, codes, options=Options(threads=threads)), expected)


@pytest.mark.parametrize(("rows", "most_tasks"), [(64, 4_000), (173, 4_000), (300, 4_000), (90, 6)])
@pytest.mark.parametrize("threads", [1, 3])
def test_silhouette__ranges_change_no_bit(
    cohort: Cohort, tmp_path: Path, small_ranges: Callable[..., None], rows: int, most_tasks: int,
    threads: int,
) -> None:  # fmt: skip
    x, codes, expected = cohort
    small_ranges(rows, most_tasks)
    options = Options(threads=threads, scratch=str(tmp_path))
    np.testing.assert_array_equal(of(x, codes, options=options), expected)
    assert not any(tmp_path.iterdir()), "scratch is deleted"


def test_silhouette__sources_change_no_bit(
    cohort: Cohort, tmp_path: Path, small_ranges: Callable[..., None]
) -> None:
    x, codes, expected = cohort
    order = np.random.default_rng(0).permutation(901)
    stored = x[np.argsort(order)]  # row order[i] of it is row i of x
    for source in (
        ArraySource(x, step=37), ArraySource(x.astype(np.float64)),
        TakenRows(ArraySource(stored, step=100), order),
    ):  # fmt: skip
        np.testing.assert_array_equal(of(source, codes), expected)
    small_ranges(200)
    source = TakenRows(ArraySource(stored, step=100), order)
    options = Options(threads=1, scratch=str(tmp_path))
    np.testing.assert_array_equal(of(source, codes, options=options), expected)


@pytest.mark.cluster
@pytest.mark.slow
def test_silhouette__on_a_cluster_has_the_same_bits(
    cohort: Cohort, tmp_path: Path, small_ranges: Callable[..., None], cluster_client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    x, codes, _ = cohort
    x, codes = np.tile(x, (5, 1)), np.roll(np.tile(codes, 5), 7)
    expected = of(x, codes)
    small_ranges(1200)
    monkeypatch.setattr("croma_dask.embedding.spans.SPAN_ROWS", 4096)  # two of them
    options = Options(scratch=str(tmp_path), memory="900MB")
    order = np.random.default_rng(0).permutation(len(x))
    stored = TakenRows(ArraySource(x[np.argsort(order)]), order)
    source = TakenRows(stored, np.arange(len(x)))
    found = of(source, codes, options=options, client=cluster_client)
    np.testing.assert_array_equal(found, expected)


# ---- interruption --------------------------------------------------------------------------------


class Cut(Exception):
    """What a test throws into a run."""


def cut_after(n: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Let `function` be called n times, then raise instead."""
    calls = itertools.count()

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) >= n:
            raise Cut
        return function(*args, **kwargs)

    return wrapped


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("cut", [0, 1, 2, 7, 12, 19])
def test_silhouette__resumes_with_the_same_bits(
    cohort: Cohort, tmp_path: Path, small_ranges: Callable[..., None], cut: int, threads: int,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Cut when a file is about to be written: of a pair one side may know, and the other not."""
    x, codes, expected = cohort
    small_ranges(250)  # four ranges: ten pairs, and two files for six of them
    options = Options(threads=threads, scratch=str(tmp_path))
    with monkeypatch.context() as patch:
        write = distance_tasks.InScratch.write
        patch.setattr(distance_tasks.InScratch, "write", cut_after(cut, write))
        if cut < 16:
            with pytest.raises(Cut):
                of(x, codes, options=options)
        else:
            np.testing.assert_array_equal(of(x, codes, options=options), expected)
    # Memory of another size does not make it another run.
    small_ranges(300)
    with caplog.at_level(logging.WARNING, "croma_dask"):
        np.testing.assert_array_equal(of(x, codes, options=options), expected)
    assert ("resuming" in caplog.text) == (0 < cut < 16)
    assert not any(tmp_path.iterdir())


def test_silhouette__a_resumed_run_does_only_what_is_left(
    cohort: Cohort, tmp_path: Path, small_ranges: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    x, codes, expected = cohort
    small_ranges(250)
    options = Options(threads=1, scratch=str(tmp_path))
    met = distance_tasks._meet
    with monkeypatch.context() as patch:
        patch.setattr(distance_tasks, "_meet", cut_after(6, met))
        with pytest.raises(Cut):
            of(x, codes, options=options)
    left = cut_after(4, met)
    monkeypatch.setattr(distance_tasks, "_meet", left)
    np.testing.assert_array_equal(of(x, codes, options=options), expected)


def test_silhouette__other_rows_or_labels_are_another_run(
    cohort: Cohort, tmp_path: Path, small_ranges: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    x, codes, expected = cohort
    small_ranges(250)
    options = Options(threads=1, scratch=str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(distance_tasks, "_meet", cut_after(6, distance_tasks._meet))
        with pytest.raises(Cut):
            of(x, codes, options=options)
    other = x.copy()
    other[900, 0] += 1.0
    with caplog.at_level(logging.WARNING, "croma_dask"):
        assert (of(other, codes, options=options) != expected).any()
        assert (of(x, codes[::-1].copy(), options=options) != expected).any()
        assert "resuming" not in caplog.text
        np.testing.assert_array_equal(of(x, codes, options=options), expected)
        assert "resuming" in caplog.text


def test_silhouette__other_rows_of_one_embedding_are_another_run(
    cohort: Cohort, tmp_path: Path, small_ranges: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    x, _, _ = cohort
    codes = (np.arange(400) % 3).astype(np.int32)
    first, last = (TakenRows(ArraySource(x), at + np.arange(400)) for at in (0, 500))
    expected = of(x[500:900], codes)
    small_ranges(150)
    how: dict[str, Any] = {"options": Options(threads=1, scratch=str(tmp_path)), "key": "x"}
    with monkeypatch.context() as patch:
        patch.setattr(distance_tasks, "_meet", cut_after(4, distance_tasks._meet))
        with pytest.raises(Cut):
            of(first, codes, **how)
    np.testing.assert_array_equal(of(last, codes, **how), expected)


def test_silhouette__tasks_of_an_interrupted_run_end(
    cohort: Cohort, tmp_path: Path, small_ranges: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    x, codes, expected = cohort
    small_ranges(250)
    options = Options(threads=2, scratch=str(tmp_path))
    ended: list[type] = []
    begun = itertools.count()
    add = distance_tasks.add_columns

    def interrupted(*args: Any) -> None:
        if next(begun) == 3:
            raise KeyboardInterrupt
        add(*args)

    meet = distance_sums.meet_blocks

    def told(*args: Any) -> int:
        try:
            return meet(*args)
        except BaseException as err:
            ended.append(type(err))
            raise

    with monkeypatch.context() as patch:
        patch.setattr(distance_tasks, "add_columns", interrupted)
        patch.setattr(distance_sums, "meet_blocks", told)
        with pytest.raises(KeyboardInterrupt):
            of(x, codes, options=options)
    assert set(ended) <= {KeyboardInterrupt, distance_tasks.Stopped}
    assert not distance_tasks._stopped
    np.testing.assert_array_equal(of(x, codes, options=options), expected)


# ---- refusals and memory -------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2e150, -1e200])
def test_silhouette__refuses_rows_that_are_no_numbers(value: float) -> None:
    x, codes = clusters(11, 50, 3, 3)
    x[[0, 7, 21], 1] = value
    for call in (silhouette, silhouette_bounds):
        with pytest.raises(SchemaError, match=r"rows 0, 7, 21 \(3 of 50\)"):
            call(ArraySource(x), codes, 3, options=ONE)


def test_silhouette__takes_large_and_tiny_numbers() -> None:
    x, codes = clusters(12, 80, 3, 3)
    expected = plain_silhouettes(x, codes)
    for unit in (1e149, 1e-160, 1e-300):
        np.testing.assert_allclose(of(x * unit / 10, codes), expected, atol=1e-12)


def test_silhouette__refuses_labels_that_do_not_fit() -> None:
    x, codes = clusters(13, 50, 3, 3)
    with pytest.raises(SchemaError, match="expected 50 labels from 0 to 1"):
        silhouette(ArraySource(x), codes, 2, options=ONE)
    with pytest.raises(SchemaError, match="expected 50 labels"):
        silhouette(ArraySource(x), codes[1:], 3, options=ONE)
    with pytest.raises(SchemaError, match="expected 50 labels"):
        silhouette_bounds(ArraySource(x), codes[1:], 3, options=ONE)


def test_lay_out_sums__stays_within_the_memory() -> None:
    cost = SumsCost(50, 4, 60, 4096 * 50 * 4)
    for memory in ("400MB", "600MB", "2GB"):
        for tasks in (1, 2, 8):
            options = Options(memory=memory, threads=tasks)
            try:
                layout = lay_out_sums(cost, 1_000_000, options, n_tasks=tasks)
            except MemoryLimitError:
                continue
            assert layout.engine == "streamed"
            assert (
                layout.peak
                == sum(layout.terms.values())
                <= int(memory[:-2].rstrip("G")) * (10**9 if "G" in memory else 10**6)
            )
            longest = int(np.diff(layout.edges).max())
            assert layout.terms["rows"] == tasks * task_bytes(cost, longest)["rows"]
            assert layout.n_tasks <= 4_000 + 200
    small = lay_out_sums(cost, 20_000, Options(memory="600MB", threads=1), n_tasks=1)
    assert (small.engine, small.scratch) == ("direct", 0)


@pytest.mark.parametrize(
    ("cost", "worst"),
    [
        (SumsCost(200_000, 8, 5, 10**6), "rows"),
        (SumsCost(50, 4, 300_000, 10**6), "sums by label"),
        (SumsCost(50, 4, 5, 10**9), "chunk"),
    ],
)
def test_lay_out_sums__names_the_largest_term(cost: SumsCost, worst: str) -> None:
    options = Options(memory=LIBRARIES + (60 << 20), threads=1)
    with pytest.raises(MemoryLimitError, match=f"the largest term is '{worst}'") as told:
        lay_out_sums(cost, 100_000, options, n_tasks=1)
    assert ("merge labels" in str(told.value)) == (worst == "sums by label")


# ---- bounds --------------------------------------------------------------------------------------


def ends(outcome: Any) -> tuple[float, float]:
    parts = dict(part.split("=") for part in outcome.note.split(";"))
    assert parts["asw"] == "interval"
    assert parts["value"] == "midpoint"
    low, high = float(parts["low"]), float(parts["high"])
    assert outcome.value == 0.5 * (low + high)
    assert -1.0 <= low <= high <= 1.0
    return low, high


def odd_shapes(seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Rows and labels on which bounds could fail."""
    rng = np.random.default_rng(seed)
    x, codes = clusters(seed, 120, int(rng.integers(1, 9)), 5, float(rng.choice([0, 1, 10])))
    yield "as it is", x, codes
    yield "far away", x + 1e9, codes
    yield "far apart", x + 1e6 * codes[:, None], codes
    yield "one far row", np.where(np.arange(120)[:, None] == 3, x * 1e8, x), codes
    yield "tiny", x * 1e-170, codes
    yield "equal rows", np.round(x / 3), codes
    yield "all equal", np.tile(x[:1], (120, 1)), codes
    yield "equal labels", x[:5][codes], codes
    yield "on a line", np.outer(rng.normal(size=120) ** 3, np.ones(3)), codes
    yield "few of most labels", x, np.repeat(np.arange(4, dtype=np.int32), [1, 1, 2, 116])
    yield "labels that do not occur", x, 3 * codes + 1
    yield "almost a label a row", x, np.arange(120, dtype=np.int32) // 2
    yield "on a ring", np.c_[np.cos(np.arange(120.0)), np.sin(np.arange(120.0))], codes


@pytest.mark.parametrize("seed", range(6))
def test_silhouette_bounds__contain_every_silhouette(seed: int) -> None:
    for name, x, codes in odd_shapes(seed):
        exact = of(x, codes)
        if name == "tiny":  # whose squares are 0 in the brute force
            exact = of(x * 2.0**400, codes)
        n_labels = int(codes.max()) + 1
        source = ArraySource(x)
        low, high = silhouette_bounds(source, codes, n_labels, options=ONE)
        assert (low <= exact + 1e-12).all(), name
        assert (high >= exact - 1e-12).all(), name
        a, b = ends(asw_interval(source, codes, n_labels, options=ONE))
        assert a <= math.fsum(exact) / exact.size <= b, name


def test_silhouette_bounds__are_tight_where_a_label_is_a_point() -> None:
    """Labels of equal rows: nothing is left open but rounding."""
    x, codes = clusters(20, 60, 4, 3)
    rows = x[:3][codes]
    a, b = ends(asw_interval(ArraySource(rows), codes, 3, options=ONE))
    assert b - a < 1e-6
    low, high = silhouette_bounds(ArraySource(rows), codes, 3, options=ONE)
    np.testing.assert_allclose(low, of(rows, codes), atol=1e-6)
    np.testing.assert_allclose(high, of(rows, codes), atol=1e-6)


def test_silhouette_bounds__come_closer_with_distance() -> None:
    widths = []
    for apart in (1.0, 10.0, 100.0):
        x, codes = clusters(21, 400, 10, 4, apart)
        a, b = ends(asw_interval(ArraySource(x), codes, 4, options=ONE))
        widths.append(b - a)
    assert widths[0] > widths[1] > widths[2]


def test_silhouette_bounds__blocks_and_threads_change_no_bit() -> None:
    x, codes = clusters(23, 40_000, 3, 4)
    expected = silhouette_bounds(ArraySource(x), codes, 4, options=ONE)
    for source in (
        ArraySource(x, step=977),
        TakenRows(ArraySource(x[::-1]), np.arange(40_000)[::-1]),
    ):
        found = silhouette_bounds(source, codes, 4, options=Options(threads=3))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.cluster
def test_silhouette_bounds__on_a_cluster_have_the_same_bits(
    cluster_client: Client, tmp_path: Path
) -> None:
    x, codes = clusters(24, 40_000, 3, 4)
    expected = silhouette_bounds(ArraySource(x), codes, 4, options=ONE)
    options = Options(scratch=str(tmp_path))
    found = silhouette_bounds(ArraySource(x), codes, 4, options=options, client=cluster_client)
    np.testing.assert_array_equal(found, expected)
    assert not any(tmp_path.iterdir())


def test_silhouette_bounds__refuse_what_does_not_fit_the_memory() -> None:
    source = ArraySource(np.broadcast_to(np.float32(1), (40_000, 4_096)))
    codes = np.arange(40_000, dtype=np.int32) // 3
    options = Options(threads=2, memory="1GB")
    with pytest.raises(MemoryLimitError, match="the largest term is 'sums by label'") as told:
        asw_interval(source, codes, 13_334, options=options)
    assert "with 1 task at once" in str(told.value)


def test_bounds_bytes__is_what_they_hold() -> None:
    rng = np.random.default_rng(25)
    x, codes = rng.normal(size=(80_000, 12)), rng.integers(0, 9_000, 80_000).astype(np.int32)
    run: dict[str, Any] = {"options": Options(threads=2)}
    silhouette_bounds(ArraySource(x[:100]), np.arange(100, dtype=np.int32) % 3, 3, **run)
    terms = bounds_bytes(len(x), 12, 9_000, x.dtype, n_tasks=2)

    def no_bounds(*arguments: Any) -> None:
        """What memory happened to hold is no bound, and may be too large for a sum."""
        for bounds in arguments[-2:]:
            bounds.fill(0.0)

    gc.collect()
    tracemalloc.start()
    try:
        # The first pass: the second one compares every row with every label.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(silhouette_bounds_module, "bound_rows", no_bounds)
            asw_interval(ArraySource(x), codes, 9_000, **run)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # An array's rows are not copied, and bounds come when the parts have gone.
    assert 0.3 * sum(terms.values()) < peak < sum(terms.values())
