"""A graph of tasks run on threads: results, calls back, and ends before its time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from croma_dask.tasks import run_graph


def chain(n: int) -> tuple[dict[str, Any], list[str]]:
    """Each task adds one to what the task before it found."""
    graph: dict[str, Any] = {"one": 1, "t-0": (sum, ["one", "one"])}
    for number in range(1, n):
        graph[f"t-{number}"] = (sum, ["one", f"t-{number - 1}"])
    return graph, [f"t-{number}" for number in range(n)]


def test_run_graph__returns_what_is_wanted_in_that_order() -> None:
    graph, keys = chain(5)
    assert run_graph(graph, [keys[4], keys[0]], n_threads=2) == [6, 2]
    assert run_graph(graph, [], n_threads=1) == []


def test_run_graph__tells_of_every_task_in_this_thread() -> None:
    graph, keys = chain(5)
    told: dict[str, Any] = {}
    threads = set()

    def on_done(key: str, result: Any) -> None:
        told[key] = result
        threads.add(threading.get_ident())

    run_graph(graph, keys[-1:], n_threads=2, on_done=on_done)
    assert told == {key: 2 + number for number, key in enumerate(keys)}
    assert threads == {threading.get_ident()}


def test_run_graph__two_at_once_are_told_of_their_own_tasks_only() -> None:
    """Dask calls back for every graph of the process."""
    meet = threading.Barrier(2, timeout=20)

    def run(name: str) -> set[str]:
        graph: dict[str, Any] = {f"{name}-{i}": (meet.wait,) for i in range(4)}
        told: set[str] = set()
        run_graph(graph, list(graph), n_threads=1, on_done=lambda key, _: told.add(key))
        return told

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, "ab")) == [{f"{n}-{i}" for i in range(4)} for n in "ab"]


class Broken(Exception):
    """What a task raises."""


def test_run_graph__stops_before_it_waits_for_what_is_under_way() -> None:
    """A task that is told to end does; were `on_stop` called after it, nobody would tell it."""
    started, stopped = threading.Event(), threading.Event()

    def long() -> None:
        started.set()
        assert stopped.wait(20)

    def broken() -> None:
        assert started.wait(20)
        raise Broken

    with pytest.raises(Broken):
        run_graph(
            {"long": (long,), "broken": (broken,)}, ["long", "broken"], n_threads=2,
            on_stop=stopped.set,
        )  # fmt: skip
    assert stopped.is_set()


def test_run_graph__an_interrupt_is_one_whoever_sees_it() -> None:
    calls = []

    def interrupted(key: str, result: Any) -> None:
        raise KeyboardInterrupt

    graph, keys = chain(3)
    with pytest.raises(KeyboardInterrupt):
        run_graph(graph, keys, on_done=interrupted, on_stop=lambda: calls.append("stop"))
    assert calls == ["stop"]


def test_run_graph__a_run_that_ends_well_is_not_stopped() -> None:
    graph, keys = chain(3)
    run_graph(graph, keys, on_stop=lambda: pytest.fail("stopped"))
