"""Settings: what may be set, for how long, and what overrides what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import croma_dask as cd
from croma_dask import options
from croma_dask.options import Options, current, merged, set_options


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = current()
    yield
    options._current = before


def test_set_options__unknown_key_names_the_known_ones() -> None:
    before = current()
    with pytest.raises(cd.SchemaError, match=r"'memroy'.*'memory'.*'quiet'.*'scratch'.*'threads'"):
        set_options(memroy="4GB")
    assert current() == before


def test_set_options__as_a_context_manager() -> None:
    before = current()
    with set_options(threads=3, memory="1GB"):
        assert (current().threads, current().memory) == (3, "1GB")
        with set_options(threads=1):
            assert (current().threads, current().memory) == (1, "1GB")
        assert current().threads == 3
    assert current() == before


def test_set_options__goes_back_when_the_block_fails() -> None:
    before = current()
    with pytest.raises(ZeroDivisionError), set_options(threads=3):
        _ = 1 / 0
    assert current() == before


def test_set_options__stays_without_a_block() -> None:
    set_options(threads=3)
    assert current().threads == 3


def test_merged__none_leaves_a_setting_as_it_is() -> None:
    with set_options(threads=3, scratch="there"):
        assert merged(threads=None, memory="1GB") == Options("1GB", 3, "there", True)
    with pytest.raises(cd.SchemaError, match="no option is called 'nonsense'"):
        merged(nonsense=None)


def test_threads__are_all_cores_by_default_and_never_none() -> None:
    import os

    assert Options().n_threads == len(os.sched_getaffinity(0))
    assert Options(threads=5).n_threads == 5
    assert Options(threads=0).n_threads == 1


def test_options__hold_where_no_argument_is_given_and_yield_where_one_is(store: str) -> None:
    with set_options(memory="3GB", threads=1):
        plan = cd.plan(store, confounder="center")
        assert (plan.allowed_memory, plan.tasks_at_once) == (3_000_000_000, 1)
        plan = cd.plan(store, confounder="center", memory="2GB", threads=2)
        assert (plan.allowed_memory, plan.tasks_at_once) == (2_000_000_000, 2)
    with set_options(memory=1), pytest.raises(cd.MemoryLimitError):
        cd.score(store, confounder="center")


def test_quiet__is_the_default_in_python(
    store: str, scored: Callable, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert current().quiet
    scored(store)
    assert capfd.readouterr() == ("", "")
