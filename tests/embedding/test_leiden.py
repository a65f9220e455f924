"""Leiden: partitions against scanpy's, the choice of a resolution against scfoundry's scorer."""

from __future__ import annotations

import ast
import importlib.util
import random
import signal
import subprocess
import sys
import threading
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from croma_dask.embedding import leiden, leiden_partition, leiden_processes, leiden_runs
from croma_dask.embedding.extras import MissingLibraryError, require
from croma_dask.embedding.fuzzy import memberships, symmetric
from croma_dask.embedding.leiden import (
    RESOLUTIONS,
    Leiden,
    leiden_neighbors,
    leiden_note,
    leiden_scan,
)
from croma_dask.embedding.leiden_job import LeidenJob
from croma_dask.embedding.leiden_partition import Edges, Network, RandomNumbers
from croma_dask.errors import MemoryLimitError
from croma_dask.index.scratch import Scratch
from tests.helpers.marks import first
from tests.helpers.plain_metrics import exact_lists
from tests.helpers.processes import wait_until


@pytest.fixture(scope="module")
def scanpy() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import scanpy

    return scanpy


def cells(seed: int, n: int, spread: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """A mixture of eight Gaussians in float32, and which each cell is of."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 8, n).astype(np.int32)
    x = (rng.normal(size=(8, 12)) * spread)[codes] + rng.normal(size=(n, 12))
    return x.astype(np.float32), codes


def graph_of(x: np.ndarray) -> Any:
    """The graph that scanpy has of the same cells (test_fuzzy.py)."""
    n = len(x)
    index, distance = exact_lists(x.astype(np.float64), leiden_neighbors(n))
    index, distance = index[:, 1:].copy(), distance[:, 1:].copy()
    return symmetric(index, memberships(index, distance), n)


def partition_of(scanpy: Any, graph: Any, resolution: float) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = scanpy.AnnData(np.zeros((graph.shape[0], 1), np.float32))
        scanpy.tl.leiden(
            adata, resolution, flavor="igraph", n_iterations=2, directed=False, random_state=0,
            adjacency=graph.astype(np.float32), key_added="found",
        )  # fmt: skip
    return adata.obs["found"].astype(int).to_numpy()


def assert_equal(found: Leiden, expected: Leiden) -> None:
    assert np.array_equal(found.clusters, expected.clusters)
    assert found.scan == expected.scan
    assert leiden_note(found) == leiden_note(expected)


# ---- partitions --------------------------------------------------------------------------------


def test_clusters__are_those_of_scanpy_on_real_cells(scanpy: Any) -> None:
    """From the embedding on, at all resolutions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = scanpy.datasets.pbmc68k_reduced()
    graph = graph_of(np.asarray(adata.obsm["X_pca"], np.float32))
    network = Network(Edges.of(graph))
    for resolution in RESOLUTIONS:
        found = network.clusters(resolution, 0)
        assert found.dtype == np.int32
        assert np.array_equal(found, partition_of(scanpy, graph, resolution))


@pytest.mark.parametrize(("seed", "n", "spread"), [(1, 1200, 0.8), (2, 2000, 0.3)])
def test_clusters__are_those_of_scanpy_on_made_up_cells(
    scanpy: Any, seed: int, n: int, spread: float
) -> None:
    graph = graph_of(cells(seed, n, spread)[0])
    network = Network(Edges.of(graph))
    for resolution in (0.1, 0.7, 1.6, 3.0, 6.0):
        expected = partition_of(scanpy, graph, resolution)
        assert np.array_equal(network.clusters(resolution, 0), expected)


@pytest.mark.parametrize("n", [2, 3, 7, 14, 15, 16, 40])
def test_clusters__are_those_of_scanpy_on_few_cells(scanpy: Any, n: int) -> None:
    graph = graph_of(cells(n, n)[0])
    network = Network(Edges.of(graph))
    for resolution in (0.1, 1.0, 6.0):
        expected = partition_of(scanpy, graph, resolution)
        assert np.array_equal(network.clusters(resolution, 0), expected)


def test_clusters__depend_on_the_seed_alone() -> None:
    network = Network(Edges.of(graph_of(cells(2, 600, 0.3)[0])))
    first = network.clusters(1.0, 0)
    assert not np.array_equal(network.clusters(1.0, 1), first)
    np.random.default_rng(0)
    random.random()
    assert np.array_equal(network.clusters(1.0, 0), first)


def test_clusters__leave_igraph_with_its_own_random_numbers() -> None:
    import igraph

    ring = igraph.Graph.Ring(50)
    random.seed(7)
    before = ring.community_leiden("modularity").membership
    Network(Edges.of(graph_of(cells(0, 50)[0]))).clusters(1.0, 0)
    random.seed(7)
    assert ring.community_leiden("modularity").membership == before


def test_clusters__of_threads_that_come_at_once_are_the_same() -> None:
    """igraph has one source of random numbers, and gives Python the word while it runs."""
    network = Network(Edges.of(graph_of(cells(3, 500)[0])))
    expected = [network.clusters(r, 0) for r in (0.5, 1.0, 1.5, 2.0)]
    found: dict[int, np.ndarray] = {}

    def run(at: int) -> None:
        found[at] = network.clusters((0.5, 1.0, 1.5, 2.0)[at % 4], 0)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert all(np.array_equal(found[at], expected[at % 4]) for at in range(8))


def test_clusters__can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """igraph would drop a KeyboardInterrupt of its callback, and go on with another number."""
    network = Network(Edges.of(graph_of(cells(3, 300)[0])))

    sent = []

    class Interrupted(RandomNumbers):
        def random(self) -> float:
            # In this thread, and once: what the process is sent may be taken by another thread, or
            # sent again while the first is on its way, and reach Python when this test has ended.
            if not sent:
                sent.append(True)
                signal.raise_signal(signal.SIGINT)
            return super().random()

    monkeypatch.setattr(leiden_partition, "RandomNumbers", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        network.clusters(1.0, 0)


def test_edges__are_there_once_with_twice_their_weight() -> None:
    graph = graph_of(cells(4, 200)[0])
    edges = Edges.of(graph)
    assert 2 * edges.source.size == graph.nnz
    assert (edges.source < edges.target).all()
    assert list(edges.pairs()) == list(
        zip(edges.source.tolist(), edges.target.tolist(), strict=True)
    )
    dense = graph.toarray()
    assert np.array_equal(edges.weight, 2.0 * dense[edges.source, edges.target])


@given(st.lists(st.sampled_from(["bits", "random", "randint", "gauss"]), max_size=60))
def test_random_numbers__are_those_that_scanpy_gives_igraph(calls: list[str]) -> None:
    from scanpy._utils.random import _RNGIgraph

    ours, theirs = RandomNumbers(0), _RNGIgraph(0)
    for call in calls:
        if call == "bits":
            assert ours.getrandbits(32) == theirs.getrandbits(32)
        elif call == "random":
            assert ours.random() == theirs.random()
        elif call == "randint":
            assert ours.randint(3, 999) == theirs.randint(3, 999)
        else:
            assert ours.gauss(1.0, 2.0) == theirs.gauss(1.0, 2.0)


# ---- the choice --------------------------------------------------------------------------------


@given(st.integers(2, 40))
def test_leiden_neighbors__are_as_many_as_scanpy_takes(n: int) -> None:
    assert leiden_neighbors(n) == (15 if n >= 15 else 1 + int(0.5 * n))


def scorer() -> Callable[..., tuple[np.ndarray, str]]:
    """The scorer's scan; importing its module would bring jax, and silence warnings for good."""
    spec = importlib.util.find_spec("scfoundry")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    tree = ast.parse((folder / "pipeline/bin/benchmark/embedding_metrics.py").read_text())
    wanted = {"leiden_scan_resolution", "parse_resolutions"}
    body = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name in wanted]
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    module = ast.fix_missing_locations(ast.Module([future, *body], []))
    names: dict[str, Any] = {"np": np, "sklearn": sklearn}
    exec(compile(module, "scorer", "exec"), names)  # scfoundry's, as it was installed

    def scan(codes: np.ndarray, made: dict[float, np.ndarray], match: bool) -> Any:
        class Frame(dict[str, Any]):
            pass

        def cluster(adata: Any, *, resolution: float, key_added: str, **_: Any) -> None:
            adata.obs[key_added] = pd.Series(made[resolution].astype(str))

        names["ad"] = SimpleNamespace(AnnData=lambda x: SimpleNamespace(obs=Frame()))
        names["sc"] = SimpleNamespace(
            pp=SimpleNamespace(neighbors=lambda *_, **__: None), tl=SimpleNamespace(leiden=cluster)
        )
        arguments = Namespace(
            leiden_resolutions=None, leiden_neighbors=15, leiden_metric="euclidean",
            leiden_random_state=0, leiden_flavor="igraph", leiden_max_resolution=6.0,
            leiden_no_match_n_labels=not match,
        )  # fmt: skip
        return names["leiden_scan_resolution"](np.zeros((codes.size, 1)), codes, arguments)

    return scan


class Made:
    """Clusters that were made up, and which of them were asked for."""

    def __init__(self, clusters: dict[float, np.ndarray], width: int = 1) -> None:
        self.width = width
        self.made = clusters
        self.asked: list[float] = []

    def make(self, resolutions: Any) -> None:
        self.asked += resolutions

    def clusters(self, resolution: float) -> np.ndarray:
        assert resolution in self.asked
        return self.made[resolution]

    def scan(self, codes: np.ndarray, n_labels: int, **how: Any) -> Leiden:
        @contextmanager
        def given(*_: Any, **__: Any) -> Iterator[Made]:
            yield self

        n = codes.size
        graph = symmetric(np.full((n, 1), -1, np.int32), np.zeros((n, 1)), n)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(leiden, "partitions", given)
            return leiden_scan(graph, codes, n_labels, **how)


BEYOND = (3.5, 4.0, 4.5, 5.0, 5.5, 6.0)


@settings(max_examples=20)
@given(
    st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 14), st.booleans(), st.integers(1, 8)
)
def test_leiden_scan__chooses_as_the_reference(
    seed: int, n_labels: int, most: int, match: bool, width: int
) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(60) % n_labels).astype(np.int32)
    made = {}
    for resolution in (*RESOLUTIONS, *BEYOND):
        n = int(rng.integers(1, most + 1))
        made[resolution] = np.where(
            rng.random(60) < 0.5, codes % n, rng.permutation(np.arange(60) % n)
        ).astype(np.int32)
        made[resolution][:n] = np.arange(n)
    clusters, note = SCAN(codes, made, match)
    source = Made(made, width)
    found = source.scan(codes, n_labels, selection="match_n_labels" if match else "best_nmi")
    assert leiden_note(found) == note
    assert found.clusters.tolist() == clusters.astype(int).tolist()
    assert len(set(source.asked)) == len(source.asked)
    assert found.n_evaluated <= len(source.asked)


SCAN = scorer()


def counts(**given: int) -> dict[float, np.ndarray]:
    """Clusters at each resolution by their number: ``r0_1=3``; the others make one."""
    made = {}
    for resolution in (*RESOLUTIONS, *BEYOND):
        n = given.get(f"r{resolution}".replace(".", "_"), 1)
        made[resolution] = (np.arange(24) % n).astype(np.int32)
    return made


def test_leiden_scan__goes_on_until_there_are_enough_clusters() -> None:
    codes = (np.arange(24) % 6).astype(np.int32)
    found = Made(counts(r1_0=5, r4_0=7, r4_5=6)).scan(codes, 6)
    assert (found.resolution, found.n_clusters, found.n_evaluated) == (4.0, 7, 32)
    assert [tried.resolution for tried in found.scan[-2:]] == [3.5, 4.0]
    # As soon as there are enough: that 4.5 would fit is never seen, also where it was made.
    assert Made(counts(r1_0=4, r4_0=9, r4_5=6), width=6).scan(codes, 6).n_evaluated == 32
    assert Made(counts(r1_0=9)).scan(codes, 6).n_evaluated == 30
    assert Made(counts()).scan(codes, 6).n_evaluated == 36


def test_leiden_scan__never_goes_on_for_the_best_nmi() -> None:
    codes = (np.arange(24) % 6).astype(np.int32)
    found = Made(counts(r0_5=3, r2_0=3)).scan(codes, 6, selection="best_nmi")
    assert (found.resolution, found.n_evaluated) == (0.5, 30)


def test_leiden_scan__of_equal_ones_takes_the_lowest() -> None:
    """Whatever the numbers of the clusters are: NMI does not know them."""
    codes = np.random.default_rng(0).integers(0, 4, 24).astype(np.int32)
    made = counts(r0_3=5, r0_4=5, r0_9=5)
    made[0.4] = 4 - made[0.4]
    assert Made(made).scan(codes, 5).resolution == 0.3


def test_leiden_note__writes_resolutions_as_the_reference() -> None:
    found = Leiden(np.zeros(1, np.int32), 1.0, 4, "match_n_labels", 5, ())
    assert leiden_note(found) == (
        "clustering=leiden;selection=match_n_labels;resolution=1.0;n_clusters=4;"
        "target_n_labels=5;scan_n=0"
    )
    assert RESOLUTIONS == tuple(np.round(np.arange(0.1, 3.0 + 1e-9, 0.1), 2).tolist())


def test_leiden_scan__of_cells_without_neighbours_makes_each_a_cluster() -> None:
    graph = symmetric(np.full((3, 1), -1, np.int32), np.zeros((3, 1)), 3)
    found = leiden_scan(graph, np.zeros(3, np.int32), 1)
    assert found.clusters.tolist() == [0, 1, 2]


def test_leiden_scan__without_igraph_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "igraph", None)
    graph = symmetric(np.full((3, 1), -1, np.int32), np.zeros((3, 1)), 3)
    with pytest.raises(MissingLibraryError, match=r"pip install 'croma-dask\[embedding\]'"):
        leiden_scan(graph, np.zeros(3, np.int32), 1)
    with pytest.raises(ImportError, match="counting needs 'nonesuch'"):
        require("nonesuch", "embedding", "counting")


# ---- where it runs -----------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, np.ndarray]:
    """A graph that is called large."""
    monkeypatch.setattr(leiden_runs, "FEW_EDGES", 0)
    x, codes = cells(6, 400)
    return graph_of(x), codes


FEW = (0.5, 1.0, 2.5)


def here(graph: Any, codes: np.ndarray) -> Leiden:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leiden_runs, "FEW_EDGES", graph.nnz)
        return leiden_scan(graph, codes, 8, resolutions=FEW)


@pytest.mark.cluster
def test_leiden_scan__is_the_same_in_processes_and_goes_on_from_what_is_done(
    large: tuple[Any, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, codes = large
    expected = here(graph, codes)
    scratch = Scratch(str(tmp_path))
    found = leiden_scan(graph, codes, 8, resolutions=FEW, n_processes=2, scratch=scratch)
    assert_equal(found, expected)

    def none(*_: Any) -> None:
        raise AssertionError("everything was done before")

    monkeypatch.setattr(leiden_runs, "LeidenProcesses", none)
    again = leiden_scan(graph, codes, 8, resolutions=FEW, n_processes=2, scratch=scratch)
    assert_equal(again, expected)
    # Of another graph, or with another seed, it is another scan.
    with pytest.raises(AssertionError, match="everything was done"):
        leiden_scan(2.0 * graph, codes, 8, resolutions=FEW, scratch=scratch)
    with pytest.raises(AssertionError, match="everything was done"):
        leiden_scan(graph, codes, 8, resolutions=FEW, scratch=scratch, seed=1)


@pytest.mark.cluster
def test_leiden_scan__is_the_same_on_a_cluster(
    large: tuple[Any, np.ndarray], tmp_path: Path, cluster_client: Any
) -> None:
    graph, codes = large
    found = leiden_scan(
        graph, codes, 8, resolutions=FEW, client=cluster_client, scratch=Scratch(str(tmp_path))
    )
    assert_equal(found, here(graph, codes))


@pytest.mark.cluster
def test_leiden_scan__keeps_what_is_done_when_a_process_is_killed(
    large: tuple[Any, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, codes = large
    scratch = Scratch(str(tmp_path))
    asked: list[Any] = []
    ask = leiden_processes.LeidenProcesses.cluster_at

    def kill_at_the_third(self: Any, resolution: float) -> int:
        asked.append(self)
        if len(asked) == 3:
            self.kill()
        return ask(self, resolution)

    monkeypatch.setattr(leiden_processes.LeidenProcesses, "cluster_at", kill_at_the_third)
    with pytest.raises(MemoryLimitError, match="killed"):
        leiden_scan(graph, codes, 8, resolutions=FEW, scratch=scratch)
    children = [child.process for child in asked[0]._all]
    assert [child.poll() for child in children] == [-signal.SIGKILL]
    job = LeidenJob.prepare(scratch, Edges.of(graph), 0)
    assert sum(job.find(resolution) is not None for resolution in FEW) == 2


@pytest.mark.cluster
def test_leiden_scan__tells_why_a_process_has_ended(
    large: tuple[Any, np.ndarray], tmp_path: Path
) -> None:
    graph, codes = large
    scratch = Scratch(str(tmp_path))
    job = LeidenJob.prepare(scratch, Edges.of(graph), 0)
    with leiden_processes.LeidenProcesses(job, 1) as processes:
        (tmp_path / job.folder / "edges.npz").unlink()
        with pytest.raises(RuntimeError, match="FileNotFoundError"):
            processes.cluster_at(1.0)


SCRIPT = """
import sys
import numpy as np
from croma_dask.embedding import leiden_runs
from croma_dask.embedding.leiden import leiden_scan
from croma_dask.embedding.fuzzy import symmetric
from croma_dask.index.scratch import Scratch
leiden_runs.FEW_EDGES = 0
n = 30_000
index = np.random.default_rng(0).integers(0, n, (n, 14)).astype(np.int32)
index[index == np.arange(n)[:, None]] = -1
graph = symmetric(index, np.ones(index.shape), n)
print("started", flush=True)
leiden_scan(graph, np.zeros(n, np.int32), 1, scratch=Scratch(sys.argv[1]))
"""


@pytest.mark.cluster
@pytest.mark.parametrize("sent", first(1, [signal.SIGKILL, signal.SIGINT]))
def test_leiden_scan__leaves_no_process_behind(tmp_path: Path, sent: signal.Signals) -> None:
    """Interrupted it ends in the middle of a resolution, and its processes end when it is gone."""
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        wait_until(lambda: children_of(run.pid), "a process of the scan")
        children = children_of(run.pid)
        run.send_signal(sent)
        wait_until(lambda: not any(map(is_alive, children)), "its processes to end")
        assert run.wait(30) != 0
    finally:
        run.kill()
        run.communicate()


def children_of(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def is_alive(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
