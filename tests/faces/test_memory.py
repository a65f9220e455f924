"""The byte arithmetic: whole numbers in, whole numbers out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask import memory
from croma_dask.cohort.align import Embedding
from croma_dask.errors import MemoryLimitError, SchemaError
from croma_dask.index.spec import ListSpec
from croma_dask.layout import lay_out, range_cost
from croma_dask.memory import RangeCost
from croma_dask.options import Options

COST = RangeCost(n_features=10, itemsize=4, screened=3, chunk=100)
LIBRARIES = memory.streamed_bytes(RangeCost(0, 0, 0, 0), 0, 0, 0)


def test_row__is_exact_values_screening_values_and_codes() -> None:
    assert COST.row == 10 * (4 + 4) + 64


def test_row__of_float64_is_half_as_much_again() -> None:
    assert RangeCost(1000, 8, 3, 100).row == 1000 * 12 + 64


def test_lists__are_keys_and_known_distances() -> None:
    assert COST.lists == 28 * 3


def test_closing__is_one_range_at_a_time() -> None:
    assert COST.closing == 40 * 3


def test_task__holds_the_rows_of_two_ranges() -> None:
    assert memory.task_bytes(COST, 7)["rows"] == 2 * 7 * 144


def test_task__holds_the_lists_of_two_ranges_and_closes_one() -> None:
    assert memory.task_bytes(COST, 7)["lists"] == 2 * 7 * 84 + 7 * 120


def test_task__holds_one_tile_of_products() -> None:
    assert memory.task_bytes(COST, 7)["tile"] == 1024 * 2048 * 4


def test_task__holds_one_chunk() -> None:
    assert memory.task_bytes(COST, 7)["chunk"] == 100


def test_task__is_the_sum_of_its_terms() -> None:
    assert memory.task_total(COST, 7) == sum(memory.task_bytes(COST, 7).values())


def test_streamed__counts_every_task_and_the_rest_once() -> None:
    assert memory.streamed_bytes(COST, 7, 3, 11) == 3 * memory.task_total(COST, 7) + 11 + LIBRARIES


def test_direct__holds_all_rows_once_and_a_tile_a_thread() -> None:
    a_thread = memory.task_total(COST, 0)
    assert (
        memory.direct_bytes(COST, 9, 2, 11) == 9 * (144 + 84 + 120) + 2 * a_thread + 11 + LIBRARIES
    )


def test_manifest__of_many_samples_leaves_ids_where_they_are() -> None:
    n = memory.TEXT_IN_MEMORY
    blocks = 16 * memory.TEXT_BLOCK
    per_row = (memory.manifest_bytes(n + 1, n_scores=6) - blocks) // (n + 1)
    # As text, and three times as it is read or saved; beyond, some blocks.
    assert memory.manifest_bytes(n, n_scores=6) == n * (per_row + 65 + 3 * 8)


def test_manifest__of_long_ids_leaves_them_where_they_are() -> None:
    short, long = (
        memory.manifest_bytes(20_000, n_scores=6, id_length=length) for length in (8, 10_000)
    )
    assert memory.holds_ids(20_000, 8)
    assert not memory.holds_ids(20_000, 10_000)
    assert 0 < long - short < 16 * memory.TEXT_BLOCK


def test_manifest__grows_with_the_columns_of_a_store() -> None:
    none, many = (
        memory.manifest_bytes(10, n_scores=6, n_columns=columns) for columns in (0, 10_000)
    )
    assert 100_000_000 < many - none < 500_000_000


def test_manifest__grows_with_the_scores() -> None:
    more = memory.manifest_bytes(10, n_scores=7) - memory.manifest_bytes(10, n_scores=6)
    assert more == 10 * 9


def test_scratch__is_two_generations_and_the_final_lists() -> None:
    assert memory.scratch_bytes(10, 75, 61) == 10 * (2 * 16 * 75 + 12 * 61 + 24)


@pytest.mark.parametrize("n_tasks", [1, 2, 16])
def test_largest_range__fits_and_one_row_more_does_not(n_tasks: int) -> None:
    cost = RangeCost(1024, 4, 75, 1 << 24)
    rows = memory.largest_range(cost, 4 << 30, n_tasks, 12345)
    fits = [memory.streamed_bytes(cost, r, n_tasks, 12345) <= 4 << 30 for r in (rows, rows + 1)]
    assert fits == [True, False]


def test_largest_range__accepts_what_its_refusal_asks_for() -> None:
    cost = RangeCost(1024, 4, 75, 1 << 24)
    least = memory.streamed_bytes(cost, memory.SMALLEST_RANGE, 2, 500)
    assert memory.largest_range(cost, least, 2, 500) == memory.SMALLEST_RANGE


def test_largest_range__refuses_a_byte_less() -> None:
    cost = RangeCost(1024, 4, 75, 1 << 24)
    least = memory.streamed_bytes(cost, memory.SMALLEST_RANGE, 2, 500)
    with pytest.raises(MemoryLimitError, match=r"at least .*--memory.*threads="):
        memory.largest_range(cost, least - 1, 2, 500)


@pytest.mark.parametrize(
    ("cost", "term"),
    [
        (RangeCost(1 << 20, 8, 75, 1 << 20), "rows"),
        (RangeCost(64, 4, 20_000, 1 << 20), "lists"),
        (RangeCost(1024, 4, 75, 1 << 30), "chunk"),
    ],
)
def test_largest_range__names_the_term_to_blame(cost: RangeCost, term: str) -> None:
    with pytest.raises(MemoryLimitError, match=f"largest term is '{term}'"):
        memory.largest_range(cost, 450 << 20, 1, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512MB", 512_000_000),
        ("512MiB", 512 << 20),
        ("4GB", 4_000_000_000),
        ("1.5 GB", 1_500_000_000),
        ("1024", 1024),
        (1 << 20, 1 << 20),
        (2.5e9, 2_500_000_000),
    ],
)
def test_parse_bytes__reads_what_people_write(text: str | float, expected: int) -> None:
    assert memory.parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["much", "4 apples", "0", "-1GB", 0, -5, "nan", "GB4"])
def test_parse_bytes__refuses_what_is_no_size(text: str | float) -> None:
    with pytest.raises(SchemaError, match="memory"):
        memory.parse_bytes(text)


@pytest.mark.parametrize(
    ("n", "expected"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1_500_000_000, "1.50 GB"), (2e12, "2.00 TB")],
)
def test_format_bytes__is_read_by_people(n: float, expected: str) -> None:
    assert memory.format_bytes(n) == expected


def test_allowed__by_default_is_six_tenths_of_what_there_is() -> None:
    assert 0 < memory.allowed_bytes(None) <= 0.6 * _physical()


def _physical() -> int:
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# ---- from an embedding to bytes --------------------------------------------------------------


def embedding(n: int, d: int, dtype: str = "float32") -> Embedding:
    """Rows that take no memory."""
    return Embedding(np.broadcast_to(np.zeros((), dtype), (n, d)), None)


@pytest.mark.parametrize(
    ("dtype", "itemsize"), [("float16", 4), ("float32", 4), ("float64", 8), ("int8", 8), (">f4", 4)]
)
def test_range_cost__counts_values_as_they_are_searched(dtype: str, itemsize: int) -> None:
    assert range_cost(embedding(9, 4, dtype), ListSpec(5, 5)).itemsize == itemsize


def test_range_cost__counts_a_store_s_chunk() -> None:
    from croma_dask.cohort.store import StoredCohort

    class Stub(StoredCohort):
        n_tiles, n_features, dtype, chunk_rows = 50_000, 8, np.dtype("f4"), 1000  # type: ignore[assignment]

    found = range_cost(Embedding(Stub("nowhere"), None), ListSpec(5, 5))
    assert found.chunk == 1000 * 8 * 4


@pytest.mark.parametrize(
    ("n", "compiled", "engine"),
    [
        (200, True, "small"), (447, True, "direct"), (4_000, False, "small"),
        (4_473, False, "direct"), (20_000, False, "direct"), (20_001, False, "streamed"),
    ],
)  # fmt: skip
def test_engine__follows_from_the_rows(
    n: int, compiled: bool, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croma_dask.layout.is_compiled", lambda: compiled)
    found = lay_out(embedding(n, 64), n, ListSpec(51, 5), Options(memory="8GB"), n_tasks=2, fixed=0)
    assert found.engine == engine


def test_engine__streams_what_does_not_fit() -> None:
    roomy = lay_out(embedding(9_000, 1024), 9_000, ListSpec(51, 5), Options(memory="1GB"),
                    n_tasks=2, fixed=0)  # fmt: skip
    tight = lay_out(embedding(9_000, 1024), 9_000, ListSpec(51, 5), Options(memory="450MB"),
                    n_tasks=2, fixed=0)  # fmt: skip
    assert (roomy.engine, tight.engine) == ("direct", "streamed")


@given(
    n=st.integers(1, 20_000_000),
    d=st.sampled_from([1, 50, 1024, 4096]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    k=st.integers(0, 2000),
    m=st.integers(0, 200),
    allowed=st.integers(300 << 20, 64 << 30),
    n_tasks=st.integers(1, 64),
    n_workers=st.integers(1, 32),
)
def test_layout__never_exceeds_what_is_allowed(
    n: int, d: int, dtype: str, k: int, m: int, allowed: int, n_tasks: int, n_workers: int
) -> None:
    """Every layout fits, covers each row once, and stays within the tasks of a graph."""
    stub = SimpleNamespace(n_tiles=n, n_features=d, dtype=np.dtype(dtype), stored=False, data=None)
    try:
        found = lay_out(
            stub, n, ListSpec(k, m), Options(memory=allowed), n_tasks=n_tasks, fixed=100 * n // 8,  # type: ignore[arg-type]
            n_workers=n_workers,
        )  # fmt: skip
    except MemoryLimitError:
        return
    assert found.peak <= allowed
    assert found.edges[0] == 0
    assert found.edges[-1] == n
    assert (np.diff(found.edges) > 0).all()
    assert np.diff(found.edges).max() <= max(1 << 17, 20_000)
    assert found.n_tasks <= 4_000
    assert found.bytes_read >= n * d * np.dtype(dtype).itemsize
