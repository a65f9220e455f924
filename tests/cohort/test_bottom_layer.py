"""Errors, fingerprints and progress, which everything above stands on."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import croma_dask.errors as errors
from croma_dask.fingerprint import BLOCK_ROWS, BlockHasher, block_digest, combine, text_digest
from croma_dask.progress import Progress


def test_errors__are_what_others_would_catch():
    for name in ("SchemaError", "StoreError", "ChunkError", "MemoryLimitError"):
        assert issubclass(getattr(errors, name), (errors.CromaDaskError))
        assert issubclass(getattr(errors, name), ValueError)
    assert issubclass(errors.SupportError, RuntimeError)
    assert issubclass(errors.InputWarning, UserWarning)


def test_errors__rows_are_named_by_the_first_five():
    assert errors.name_rows([3]) == "row 3"
    assert errors.name_rows(np.array([3, 8])) == "rows 3, 8"
    assert errors.name_rows(range(22)) == "rows 0, 1, 2, 3, 4 and 17 more"
    assert errors.name_rows([1, 2], total=9) == "rows 1, 2 and 7 more"
    assert errors.name_items(["a", 1]) == "'a', 1"


@given(
    st.lists(st.integers(1, 6000), min_size=1, max_size=8),
    st.sampled_from(["<f2", ">f4", "f8"]),
    st.booleans(),
)
def test_fingerprint__independent_of_portions_order_and_endianness(portions, dtype, fortran):
    n = sum(portions)
    x = np.random.default_rng(n).standard_normal((n, 2)).astype(np.dtype(dtype).newbyteorder("="))
    expected = combine(
        [block_digest(x[i : i + BLOCK_ROWS]) for i in range(0, n, BLOCK_ROWS)], x.shape, x.dtype
    )
    variant = np.array(x, dtype=dtype, order="F" if fortran else "C")
    hasher = BlockHasher()
    for lo, hi in zip(np.cumsum([0, *portions[:-1]]), np.cumsum(portions), strict=True):
        hasher.update(variant[lo:hi])
    assert hasher.rows == n
    assert len(hasher.snapshot()) == -(-n // BLOCK_ROWS)
    assert hasher.finish(x.shape, dtype) == expected


def test_fingerprint__of_nothing_shape_and_dtype():
    prints = {combine([], (0, 2), "f4"), combine([], (0, 3), "f4"), combine([], (0, 2), "f8")}
    assert len(prints) == 3
    assert combine([], (0, 2), ">f4") in prints
    block = np.array([[1.5, 2]], dtype="<f4")
    assert block_digest(block) == hashlib.sha256(block.tobytes()).digest()
    assert text_digest("a", "bc") != text_digest("ab", "c")
    assert text_digest("é") == text_digest("é".encode())


def test_progress__lines_where_there_is_no_terminal(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("croma_dask.progress.time.monotonic", lambda: clock[0] + 100)
    stream = io.StringIO()
    with Progress("ingest", 1000, stream=stream) as bar:
        bar.skip(200)
        for _ in range(80):
            clock[0] += 1
            bar.advance(10)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "ingest: 250 of 1,000 rows, 10 rows/s, 1:15 left"
    assert lines[-1] == "ingest: 1,000 of 1,000 rows, 10 rows/s, took 1:20"
    assert len(lines) == 4


@pytest.mark.parametrize("quiet", [True, False])
def test_progress__short_or_quiet_steps_say_nothing(quiet: bool):
    stream = io.StringIO()
    with Progress("x", 3, quiet=quiet, stream=stream) as bar:
        bar.advance(3)
    assert bar.done == 3
    assert stream.getvalue() == ""


def test_progress__bar_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with Progress("in[red]gest", 100, "tiles", stream=stream) as bar:
        bar.advance(50)
        bar.advance(50)
    assert "in[red]gest" in stream.getvalue()
    assert "tiles/s" in stream.getvalue()
    assert "100%" in stream.getvalue()
