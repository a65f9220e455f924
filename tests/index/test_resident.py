"""Loaded shards: once a process, never too many."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from croma_dask.index.resident import release, resident


class Shard:
    """Counts itself while it lives."""

    alive = 0
    most = 0
    loads = 0

    def __init__(self) -> None:
        Shard.alive += 1
        Shard.loads += 1
        Shard.most = max(Shard.most, Shard.alive)

    def __del__(self) -> None:
        Shard.alive -= 1


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    release()
    Shard.alive = Shard.most = Shard.loads = 0
    yield
    release()


def test_resident__is_loaded_once() -> None:
    with resident("a", Shard) as first:
        pass
    with resident("a", Shard) as second:
        assert second is first
    assert Shard.loads == 1


def test_resident__lets_go_of_the_one_not_used_for_longest() -> None:
    for key in ("a", "b", "a", "c"):
        with resident(key, Shard, most=2):
            pass
    assert Shard.loads == 3
    with resident("a", Shard, most=2):
        assert Shard.loads == 3
    with resident("b", Shard, most=2):
        assert Shard.loads == 4
    assert Shard.alive == 2
    assert Shard.most == 2


def test_resident__a_load_that_fails_leaves_no_trace() -> None:
    def fail() -> Shard:
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such"), resident("a", fail):
        pass
    with resident("a", Shard):
        assert Shard.loads == 1


def test_resident__keeps_what_is_in_use() -> None:
    with resident("a", Shard) as held:
        release()
        assert Shard.alive == 1
        with pytest.raises(RuntimeError, match="another one of 1"), resident("b", Shard):
            pass
        with resident("a", Shard) as again:
            assert again is held
    held = again = None
    release()
    assert Shard.alive == 0


def test_resident__threads_share_loads_and_keep_to_the_bound() -> None:
    def load() -> Shard:
        time.sleep(0.002)
        return Shard()

    problems = []

    def work(number: int) -> None:
        try:
            for step in range(12):
                with resident((number + step) // 3 % 3, load, most=2) as shard:
                    assert isinstance(shard, Shard)
                    time.sleep(0.001)
                del shard
        except BaseException as err:
            problems.append(err)
            raise

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
    assert Shard.most <= 2


def test_resident__two_that_want_the_same_wait_for_one_load() -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow() -> Shard:
        started.set()
        go_on.wait(10)
        return Shard()

    found = []

    def work() -> None:
        with resident("a", slow) as shard:
            found.append(shard)

    threads = [threading.Thread(target=work) for _ in range(2)]
    threads[0].start()
    assert started.wait(10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert Shard.loads == 1
    assert found[0] is found[1]
