"""Which cluster a run gets, what of it it takes, and what its tasks are called there."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.utils
import numpy as np
import pytest

import croma_dask as cd
from croma_dask import cluster as choice
from croma_dask.graph import pair_graph
from croma_dask.index.scratch import Scratch
from croma_dask.index.spec import ListSpec
from croma_dask.index.streamed import Job
from croma_dask.kernels.frame import Frame
from croma_dask.options import Options
from croma_dask.tasks import run_graph
from tests.faces.conftest import make_cohort
from tests.helpers.engines import engine
from tests.helpers.processes import Processes


def client_of(*limits: int, threads: int = 1) -> Any:
    """What is asked of a client, as one of such workers would answer."""
    workers = {f"w{i}": {"memory_limit": n, "nthreads": threads} for i, n in enumerate(limits)}
    return SimpleNamespace(scheduler_info=lambda n_workers: {"workers": workers})


# ---- how much of a cluster -------------------------------------------------------------------


def test_for_client__takes_its_share_of_the_smallest_worker() -> None:
    client = client_of(8 * 10**9, 4 * 10**9, threads=3)
    assert choice.for_client(Options(), client).memory == 2_400_000_000
    assert choice.workers_of(client) == 2
    assert choice.tasks_a_process(client, Options(threads=7)) == 3


def test_for_client__what_is_asked_for_holds_as_far_as_it_fits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = client_of(4 * 10**9)
    with caplog.at_level(logging.WARNING, "croma_dask"):
        assert choice.for_client(Options(memory="3GB"), client).memory == "3GB"
        assert caplog.text == ""
        lowered = choice.for_client(Options(memory="4GB"), client).memory
    assert isinstance(lowered, int)
    assert 3 * 10**9 < lowered < 3.2 * 10**9, "a worker is paused at 80 % of its limit"
    assert "limited to 4.00 GB" in caplog.text


def test_for_client__without_limits_or_a_client_nothing_changes() -> None:
    for client in (None, client_of(), client_of(0)):
        assert choice.for_client(Options(memory="3GB"), client) == Options(memory="3GB")
        assert choice.for_client(Options(), client) == Options()
    assert choice.workers_of(None) == 1
    assert choice.tasks_a_process(None, Options(threads=7)) == 7


# ---- which cluster ---------------------------------------------------------------------------


def test_connect__to_nothing_is_no_client() -> None:
    with choice.connect() as client:
        assert client is None


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"workers": 2, "scheduler": "tcp://there:1"}, "give either"),
        ({"threads_per_worker": 2}, "--workers"),
        ({"threads_per_worker": 2, "scheduler": "tcp://there:1"}, "--workers"),
    ],
)
def test_connect__bad_arguments(arguments: dict[str, Any], part: str) -> None:
    with pytest.raises(cd.SchemaError, match=part), choice.connect(**arguments):
        pytest.fail("connected")


def test_active_client__is_none_that_never_got_a_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask keeps a client whose scheduler did not answer as the active one."""
    import distributed

    assert choice.active_client() is None
    monkeypatch.setattr(distributed, "get_client", lambda: SimpleNamespace(status="connecting"))
    with caplog.at_level(logging.WARNING, "croma_dask"):
        assert choice.active_client() is None
    assert "no connection" in caplog.text
    running = SimpleNamespace(status="running")
    monkeypatch.setattr(distributed, "get_client", lambda: running)
    assert choice.active_client() is running


def test_connect__a_file_that_is_no_scheduler_s(tmp_path: Path) -> None:
    for text in ("{}", "no json"):
        (tmp_path / "s.json").write_text(text)
        with (
            pytest.raises(cd.SchemaError, match="no Dask scheduler"),
            choice.connect(scheduler=str(tmp_path / "s.json")),
        ):
            pytest.fail("connected")


@pytest.mark.parametrize("other", ["0.0.1", None])
def test_connect__workers_of_another_version_are_refused(other: str | None) -> None:
    mine = {"packages": {"croma_dask": cd.__version__}}
    found = {"scheduler": mine, "workers": {"tcp://w:1": {"packages": {"croma_dask": other}}}}
    client = SimpleNamespace(get_versions=lambda packages: found)
    with pytest.raises(cd.SchemaError, match=r"tcp://w:1 has .*croma-dask") as refusal:
        choice._check_versions(client)
    assert (other or "no croma-dask") in str(refusal.value)
    found["workers"] = {"tcp://w:1": mine}
    choice._check_versions(client)


@pytest.mark.cluster
def test_connect__started_workers_have_one_thread_for_everything_and_their_limit(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    before = dict(os.environ)
    with (
        caplog.at_level(logging.INFO, "croma_dask"),
        choice.connect(workers=1, memory="1GB", threads_per_worker=2) as client,
    ):
        (settings,) = client.run(
            lambda: {k: v for k, v in os.environ.items() if k.endswith("_NUM_THREADS")}
        ).values()
        (worker,) = client.scheduler_info(n_workers=-1)["workers"].values()
        assert client.dashboard_link in caplog.text
        options = choice.for_client(Options(memory="1GB"), client)
    assert set(settings.values()) == {"1"}
    assert {"NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"} <= set(settings)
    assert worker["nthreads"] == 2
    assert options.memory == "1GB", "there is room for what was asked for"
    assert os.environ["OMP_NUM_THREADS"] == before["OMP_NUM_THREADS"]
    assert "NUMBA_NUM_THREADS" not in os.environ


@pytest.mark.cluster
def test_connect__to_a_scheduler_by_its_file_or_its_address(cluster: Processes) -> None:
    address = json.loads(cluster.file.read_text())["address"]
    for scheduler in (str(cluster.file), address):
        with choice.connect(scheduler=scheduler) as client:
            assert client.scheduler.address == address


@pytest.mark.cluster
def test_dashboard__is_told_on_request(cluster: Processes, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from croma_dask.cli import main

    place = cd.write_cohort(tmp_path / "cohort.zarr", *make_cohort(90))
    call = ["plan", place, "--confounder", "center", "--dashboard"]
    told = CliRunner().invoke(main, [*call, "--scheduler", str(cluster.file)])
    assert told.exit_code == 0, told.stderr
    assert told.stderr.startswith("dashboard: http://")
    told = CliRunner().invoke(main, call)
    assert told.exit_code == 2
    assert "--dashboard" in told.stderr


# ---- names -----------------------------------------------------------------------------------


def test_names__are_few_groups_on_a_dashboard(tmp_path: Path) -> None:
    """A token with no digit in it would be a part of the name; they have 32 hexadecimal digits."""
    edges = tuple(range(0, 121, 10))
    job = Job(None, Scratch(str(tmp_path)), edges, 1, ListSpec(5, 1), Frame(np.zeros(3)))  # type: ignore[arg-type]
    for _ in range(50):
        graph, _, _ = pair_graph(job)
        assert {dask.utils.key_split(key) for key in graph} == {
            "croma-job", "croma-pairs", "croma-all", "croma-finish",
        }  # fmt: skip


@pytest.mark.cluster
@pytest.mark.slow
def test_names__of_all_that_a_score_runs_on_a_cluster(
    cluster: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it has a name of its own, and every name is explained."""
    monkeypatch.setattr("croma_dask.first_pass._PROFILE_ROWS", 4096)
    place = cd.write_cohort(tmp_path / "cohort.zarr", *make_cohort(6_000))

    def prefixes(dask_scheduler: Any) -> dict[str, int]:
        return {name: len(p.groups) for name, p in dask_scheduler.task_prefixes.items()}

    with cluster.client(1) as client, cd.set_options(scratch=str(tmp_path / "scratch")):
        before = client.run_on_scheduler(prefixes)
        with engine("streamed", range_rows=3_000):
            cd.score(
                place, confounder="center", metrics="CRoMa", m=1, client=client,
            )  # fmt: skip
        after = client.run_on_scheduler(prefixes)
    known = {"croma-job", "croma-profile", "croma-pairs", "croma-all", "croma-finish"}
    assert set(after) - set(before) <= known
    assert known - {"croma-job"} <= set(after)


@pytest.mark.cluster
def test_run_graph__on_a_cluster_as_on_threads(cluster: Processes) -> None:
    graph: dict[str, Any] = {"croma-two-1": 2, "croma-pow-1": (pow, "croma-two-1", 5)}
    graph["croma-sum-1"] = (sum, ["croma-pow-1", "croma-two-1"])
    told: dict[str, Any] = {}
    with cluster.client(1) as client:
        found = run_graph(
            graph, ["croma-sum-1"], client=client,
            on_done=lambda key, result: told.update({key: result}),
        )  # fmt: skip
    assert found == run_graph(graph, ["croma-sum-1"]) == [34]
    assert told == {"croma-pow-1": 32, "croma-sum-1": 34}


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("raised", "expected"),
    [(ZeroDivisionError, ZeroDivisionError), (FileNotFoundError, cd.StoreError)],
)
def test_run_graph__what_a_task_raises_ends_the_run(
    raised: type[Exception], expected: type[Exception], cluster: Processes
) -> None:
    def broken() -> None:
        raise raised(2, "not there", "/data/cohort.zarr")

    def never(*before: Any) -> None:
        raise AssertionError("ran")

    stopped: list[str] = []
    graph: dict[str, Any] = {f"croma-broken-{raised.__name__}-1": (broken,)}
    graph["croma-never-1"] = (never, next(iter(graph)))
    call: Callable[..., Any] = run_graph
    with cluster.client(1) as client:
        with pytest.raises(expected) as error:
            call(graph, list(graph), client=client, on_stop=lambda: stopped.append("stop"))
        assert client.futures == {} or all(f.status != "pending" for f in client.futures.values())
    assert stopped == ["stop"]
    if expected is cd.StoreError:
        assert "/data/cohort.zarr" in str(error.value)
