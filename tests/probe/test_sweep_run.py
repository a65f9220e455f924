"""How a sweep runs leaves its numbers alone: threads, memory, scratch, interruptions."""

from __future__ import annotations

import functools
import logging
import os
import pickle
import random
import re
import signal
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
import sklearn
import xarray as xr
import zarr

from croma_dask import downstream, schema, set_options
from croma_dask.cohort.align import Embedding
from croma_dask.errors import MemoryLimitError, SchemaError
from croma_dask.index import resident
from croma_dask.index.scratch import Scratch
from croma_dask.options import Options
from croma_dask.probe import job, layout, opened, run
from croma_dask.probe.job import SweepJob
from croma_dask.probe.label import label_sweep
from croma_dask.probe.opened import Protocol, Rows
from croma_dask.probe.run import run_sweep
from tests.helpers.compare import assert_same_bits
from tests.helpers.marks import first
from tests.probe.glue import cohort

X, CONFOUNDERS, LABELS = cohort(np.full((2, 2), 14), seed=51, n_features=5)
SCHEDULE = downstream.linear_schedule(2, 2, 6, 3)
REPLICATES = 3
PROBES = len(SCHEDULE) * REPLICATES

THERE, TRUE = cohort(np.full((2, 2), 6), seed=52, n_features=5)[::2]


def arguments(x: Any = X, there: Any = THERE, **changed: Any) -> dict[str, Any]:
    """One sweep, as it is or changed."""
    return {
        "embeddings": x, "confounders": CONFOUNDERS, "labels": LABELS, "schedule": SCHEDULE,
        "iterations": REPLICATES, "validation_fraction": 0.5, "test_sets": {"there": (there, TRUE)},
        **changed,
    }  # fmt: skip


def sweep(**how: Any) -> xr.Dataset:
    options = {name: how.pop(name) for name in list(how) if name in OPTIONS}
    return downstream.probe_sweep_over_test_sets(**arguments(**how), **options)


OPTIONS = {"threads", "memory", "scratch", "resume", "keep_scratch", "quiet", "client"}


@functools.cache
def expected() -> xr.Dataset:
    """Undisturbed, in memory, on one thread."""
    return sweep(threads=1)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    with caplog.at_level(logging.WARNING, "croma_dask"):
        with set_options(scratch=str(tmp_path / "undisturbed"), quiet=True):
            expected()
        with set_options(scratch=str(folder), quiet=True, threads=1):
            yield folder


def stored(x: np.ndarray, path: Path) -> Any:
    array = zarr.create_array(str(path), shape=x.shape, chunks=(9, x.shape[1]), dtype=x.dtype)
    array[:] = x
    return array


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The rows as arrays that a sweep reads from."""
    folder = tmp_path_factory.mktemp("on_disk")
    return {"x": stored(X, folder / "x.zarr"), "there": stored(THERE, folder / "there.zarr")}


class Cut(Exception):
    """What a test throws into a run."""


def cut_after(n: int, function: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter(range(10**6))

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) >= n:
            raise Cut
        return function(*args, **kwargs)

    return wrapped


def cut_run(module: Any, what: str, n: int, **how: Any) -> None:
    """Run until something was called so many times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, what, cut_after(n, getattr(module, what)))
        with pytest.raises(Cut):
            sweep(**how)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the probes that are fitted, and the blocks of rows that one predicts."""
    done = {"fit_probe": 0, "predict": 0}

    def counted(name: str) -> Callable[..., Any]:
        function = getattr(job, name)

        def call(*args: Any) -> Any:
            done[name] += 1
            return function(*args)

        return call

    for name in done:
        monkeypatch.setattr(job, name, counted(name))
    return done


def files_of(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


# ---- options ---------------------------------------------------------------------------------


def test_sweep__does_each_probe_once_and_cleans_up(
    work: dict[str, int], scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert_same_bits(sweep(), expected())
    # Both test sets have one block of rows.
    assert work == {"fit_probe": PROBES, "predict": 2 * PROBES}
    assert list(scratch.iterdir()) == []
    assert caplog.text == ""


@pytest.mark.parametrize("where", ["in memory", "on disk"])
@pytest.mark.parametrize(
    "how",
    [
        {"threads": 3}, {"threads": 2, "memory": "3GB"}, {"resume": False}, {"quiet": False},
        {"keep_scratch": True}, {"scratch": "elsewhere"},
    ],
    ids=str,
)  # fmt: skip
def test_options__leave_the_bits_alone(
    where: str, how: dict[str, Any], on_disk: dict[str, Any], tmp_path: Path
) -> None:
    if "scratch" in how:
        how = {"scratch": str(tmp_path / how["scratch"])}
    rows = on_disk if where == "on disk" else {}
    assert_same_bits(sweep(**rows, **how), expected())


@pytest.mark.parametrize("threads", [1, 3])
def test_memory__too_little_for_the_rows_of_a_replicate_leaves_the_bits_alone(
    threads: int, on_disk: dict[str, Any], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out = layouts(monkeypatch)
    assert_same_bits(sweep(**on_disk, threads=threads), expected())
    little = laid_out[0].peak - 1
    assert_same_bits(sweep(**on_disk, threads=threads, memory=little), expected())
    assert [found.most > 0 for found in laid_out] == [True, False]
    assert list(scratch.iterdir()) == []


def layouts(patch: pytest.MonkeyPatch) -> list[layout.SweepLayout]:
    """Collect how sweeps are laid out from here on."""
    found: list[layout.SweepLayout] = []

    def lay_out(*args: Any, **how: Any) -> layout.SweepLayout:
        found.append(layout.lay_out_sweep(*args, **how))
        return found[-1]

    patch.setattr(opened, "lay_out_sweep", lay_out)
    return found


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of five test rows, and tasks of two blocks."""
    monkeypatch.setattr(job, "BLOCK_ROWS", 5)
    monkeypatch.setattr(layout, "BLOCK_ROWS", 5)
    monkeypatch.setattr(layout, "_SPAN", 10)


@pytest.mark.usefixtures("short_blocks")
def test_blocks__leave_the_bits_alone(on_disk: dict[str, Any]) -> None:
    """Hits of short blocks and short tasks add up to those of long ones."""
    assert_same_bits(sweep(**on_disk, threads=3), expected())


@pytest.mark.usefixtures("short_blocks")
def test_rows__that_are_some_of_the_stored_ones(scratch: Path, tmp_path: Path) -> None:
    """Taken from a larger embedding, in another order; a test set of the same embedding."""
    rng = np.random.default_rng(3)
    at = rng.permutation(100)
    own, other = at[: len(X)], at[len(X) : len(X) + len(THERE)]
    pool = rng.normal(size=(100, X.shape[1]))
    pool[own], pool[other] = X, THERE
    how = Protocol(SCHEDULE, iterations=REPLICATES, validation_fraction=0.5)
    for data in (pool, stored(pool, tmp_path / "pool.zarr")):
        embedding = Embedding(data, None)
        found = label_sweep(
            run_sweep(
                Rows(embedding, own, LABELS, "rows"), CONFOUNDERS,
                {"there": Rows(embedding, other, TRUE, "test rows")}, how,
                Options(threads=2, scratch=str(scratch), quiet=True),
            ),
            how, confounders=range(2), labels=range(2), attrs=dict(n_rows=len(X)),
        )  # fmt: skip
        found.attrs["embedding_fingerprint"] = expected().attrs["embedding_fingerprint"]
        assert_same_bits(found, expected())
    assert list(scratch.iterdir()) == []


# ---- what is read ----------------------------------------------------------------------------


class Counted:
    """Rows that count how often each of them is read."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype
        self.reads: list[tuple[int, int]] = []

    def __getitem__(self, where: slice) -> np.ndarray:
        self.reads.append((where.start, where.stop))
        return self.rows[where]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_rows__of_a_replicate_are_read_once(threads: int) -> None:
    x, there = Counted(X), Counted(THERE)
    assert_same_bits(sweep(x=x, there=there, threads=threads), expected())
    # All rows to look at them, those of each replicate, and all to test on them.
    assert len(x.reads) == 1 + REPLICATES + 1
    assert there.reads == [(0, len(THERE))] * 2


def test_rows__that_no_split_trains_on_are_not_read_for_a_replicate() -> None:
    x = Counted(X)
    keep = functools.partial(map, list)  # the order of the input, in every replicate
    sweep(x=x, arrange_slides=lambda cells, rng: list(keep(cells)))
    last = [
        max(np.flatnonzero((CONFOUNDERS == i) & (LABELS == j))[take + round(0.5 * take) - 1]
            for cells, _ in SCHEDULE for a, b, take in cells if take and (a, b) == (i, j))
        for i in range(2) for j in range(2)
    ]  # fmt: skip
    assert max(last) + 1 < len(X)
    assert {stop for _, stop in x.reads[1:-1]} == {max(last) + 1}


def test_rows__with_little_memory_are_read_by_each_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out = layouts(monkeypatch)
    sweep(x=Counted(X))
    x = Counted(X)
    assert_same_bits(sweep(x=x, memory=laid_out[0].peak - 1), expected())
    # Training rows and validation rows.
    assert len(x.reads) == 1 + 2 * PROBES + 1


@pytest.mark.parametrize("fails", [False, True])
def test_rows__of_a_replicate_are_let_go_of(fails: bool, on_disk: dict[str, Any]) -> None:
    if fails:
        cut_run(run, "fit_split", 4, **on_disk)
    else:
        sweep(**on_disk)
    assert len(resident._slots) == 0


# ---- interruptions ---------------------------------------------------------------------------

SEAMS = [
    (run, "fit_split", 0), (run, "fit_split", 1), (run, "fit_split", 5),
    (run, "score_span", 0), (run, "score_span", 1),
    # The orders of the replicates, the probes, the hits of two test sets.
    (Scratch, "write", 0), (Scratch, "write", 2), (Scratch, "write", REPLICATES),
    (Scratch, "write", REPLICATES + 4), (Scratch, "write", REPLICATES + PROBES),
    (Scratch, "write", REPLICATES + PROBES + 1),
    (run, "read_hits", 1), (run, "balanced_accuracy", 7),
]  # fmt: skip


@pytest.mark.parametrize(("module", "what", "n"), SEAMS)
def test_a_sweep_cut_anywhere__ends_with_the_same_bits_and_does_nothing_twice(
    module: Any, what: str, n: int, on_disk: dict[str, Any], work: dict[str, int], scratch: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    cut_run(module, what, n, **on_disk)
    left = list(scratch.iterdir())
    fits, hits = (len(list(scratch.glob(f"*/{kind}-*.npz"))) for kind in ("fit", "hits"))
    assert len(left) == bool(fits), "without a probe there is nothing to go on from"
    assert not fits or f"stays in {left[0]}" in caplog.text
    caplog.clear()
    work.update(dict.fromkeys(work, 0))
    assert_same_bits(sweep(**on_disk), expected())
    assert work == {"fit_probe": PROBES - fits, "predict": (2 - hits) * PROBES}
    assert ("resuming" in caplog.text) == bool(fits)
    assert list(scratch.iterdir()) == []


def test_seams__lie_where_they_are_said_to_lie(scratch: Path) -> None:
    done = []
    for module, what, n in SEAMS:
        cut_run(module, what, n, resume=False)
        kinds = ("order", "fit", "hits")
        done.append(tuple(len(list(scratch.glob(f"*/{kind}-*.npz"))) for kind in kinds))
    r, p = REPLICATES, PROBES
    assert done == [
        (0, 0, 0), (r, 1, 0), (r, 5, 0), (r, p, 0), (r, p, 1), (0, 0, 0), (0, 0, 0), (0, 0, 0),
        (r, 4, 0), (r, p, 0), (r, p, 1), (r, p, 2), (r, p, 2),
    ]  # fmt: skip


def test_a_cut_sweep__goes_on_with_other_options(
    on_disk: dict[str, Any], work: dict[str, int], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On more threads, with less memory, from rows that are held otherwise."""
    laid_out = layouts(monkeypatch)
    cut_run(run, "fit_split", 2, **on_disk)
    cut_run(run, "fit_split", 3, **on_disk, threads=1, memory=laid_out[0].peak - 1)
    assert [found.most > 0 for found in laid_out] == [True, False]
    work.update(dict.fromkeys(work, 0))
    assert_same_bits(sweep(threads=3), expected())
    # The second run finds what the first has done, and calls for it as well.
    assert work["fit_probe"] == PROBES - 3
    assert list(scratch.iterdir()) == []


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("what", "n"), [("fit_split", 0), ("fit_split", 5), ("score_span", 1)])
def test_a_sweep_killed_by_the_system__goes_on_with_the_same_bits(
    what: str, n: int, on_disk: dict[str, Any], work: dict[str, int], scratch: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    calls = iter(range(1000))
    function = getattr(run, what)

    def deadly(*args: Any) -> int:
        if next(calls) == n:
            os.kill(os.getpid(), signal.SIGKILL)
        return int(function(*args))

    child = os.fork()
    if child == 0:
        try:
            setattr(run, what, deadly)
            sweep(**on_disk)
        finally:
            os._exit(7)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    assert os.WTERMSIG(ended[1]) == signal.SIGKILL
    (left,) = scratch.iterdir()
    done = n if what == "fit_split" else PROBES
    assert len(list(left.glob("fit-*.npz"))) == done
    assert_same_bits(sweep(**on_disk), expected())
    assert work["fit_probe"] == PROBES - done
    assert ("resuming" in caplog.text) == bool(done)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("name", ["fit-00001-002.npz", "hits-000-000000000000.npz"])
@pytest.mark.parametrize("contents", [b"", b"half a file"])
def test_a_damaged_file__is_made_again(
    name: str, contents: bytes, work: dict[str, int], scratch: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The machine went down while it was on its way to the disk."""
    sweep(keep_scratch=True)
    (left,) = scratch.iterdir()
    (left / name).write_bytes(contents)
    work.update(dict.fromkeys(work, 0))
    assert_same_bits(sweep(), expected())
    assert work == {"fit_probe": "fit" in name, "predict": PROBES * ("hits" in name)}
    assert f"{name} cannot be read" in caplog.text
    assert list(scratch.iterdir()) == []


@pytest.mark.cluster
def test_a_sweep_cut_on_threads__goes_on_in_two_processes(
    on_disk: dict[str, Any], scratch: Path, cluster_client: Any
) -> None:
    cut_run(run, "fit_split", 4, **on_disk)
    (left,) = scratch.iterdir()
    before = files_of(left)
    found = sweep(**on_disk, client=cluster_client, keep_scratch=True)
    assert_same_bits(found, expected())
    fits = [path for path in left.glob("fit-*.npz") if path in before]
    assert len(fits) == 4
    assert all(path.stat().st_mtime_ns == before[path] for path in fits)


# ---- afresh, and kept ------------------------------------------------------------------------


def test_no_resume__starts_afresh(
    on_disk: dict[str, Any], work: dict[str, int], scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut_run(run, "score_span", 1, **on_disk)
    (left,) = scratch.iterdir()
    (left / "stray").touch()
    caplog.clear()
    work.update(dict.fromkeys(work, 0))
    assert_same_bits(sweep(**on_disk, resume=False), expected())
    assert work == {"fit_probe": PROBES, "predict": 2 * PROBES}
    assert f"deleting what the same run left in {left}" in caplog.text
    assert "resuming" not in caplog.text
    assert list(scratch.iterdir()) == []


def test_no_resume__of_a_first_run_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    sweep(resume=False)
    assert caplog.text == ""


def test_keep_scratch__the_same_call_fits_nothing_and_cleans_up(
    on_disk: dict[str, Any], work: dict[str, int], scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert_same_bits(sweep(**on_disk, keep_scratch=True), expected())
    (left,) = scratch.iterdir()
    assert f"stays in {left}" in caplog.text
    work.update(dict.fromkeys(work, 0))
    assert_same_bits(sweep(keep_scratch=True), expected())
    assert list(scratch.iterdir()) == [left]
    assert_same_bits(sweep(**on_disk), expected())
    assert work == {"fit_probe": 0, "predict": 0}
    assert list(scratch.iterdir()) == []


def test_the_same_sweep_elsewhere__is_left_alone(
    work: dict[str, int], scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweep(keep_scratch=True)
    (left,) = scratch.iterdir()
    before = files_of(left)
    held = Scratch(str(left)).lock()
    assert held is not None
    with held:
        work.update(dict.fromkeys(work, 0))
        assert_same_bits(sweep(keep_scratch=True), expected())
    assert work["fit_probe"] == PROBES
    assert "working beside it" in caplog.text
    assert list(scratch.iterdir()) == [left]
    assert files_of(left) == before


def test_failures__before_anything_was_found_leave_no_rows(scratch: Path) -> None:
    bad = X.copy()
    bad[3, 1] = np.nan
    with pytest.raises(SchemaError):
        sweep(x=bad)
    with pytest.raises(MemoryLimitError):
        sweep(memory="1MB")
    assert not scratch.exists() or list(scratch.iterdir()) == []


# ---- whose results they are ------------------------------------------------------------------


def moved(x: np.ndarray) -> np.ndarray:
    found = x.copy()
    found[7, 1] = np.nextafter(found[7, 1], 9.0)
    return found


def backwards(cells: Any, rng: random.Random) -> Any:
    return [[list(slides)[::-1] for slides in level] for level in cells]


SWAPPED = np.where(np.arange(len(TRUE)) == 2, 1 - TRUE, TRUE)

OTHER: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1001},
    "replicates": {"iterations": REPLICATES - 1},
    "validation": {"validation_fraction": 0.34},
    "schedule": {"schedule": downstream.linear_schedule(2, 2, 6, 4)},
    "order of the splits": {"schedule": [SCHEDULE[0], *SCHEDULE[:0:-1]]},
    "slides": {"rows_per_slide": 2, "schedule": [(cells, 3) for cells, _ in SCHEDULE]},
    "arrangement": {"arrange_slides": backwards},
    "rows": {"x": moved(X)},
    "dtype": {"x": X.astype(np.float32)},
    "labels": {"labels": LABELS[::-1].copy()},
    "confounders": {"confounders": CONFOUNDERS[::-1].copy()},
    "name of the test set": {"test_sets": {"here": (THERE, TRUE)}},
    "test rows": {"test_sets": {"there": (moved(THERE), TRUE)}},
    "test labels": {"test_sets": {"there": (THERE, SWAPPED)}},
    "another test set": {"test_sets": {"there": (THERE, TRUE), "here": (THERE, SWAPPED)}},
    "no test set": {"test_sets": None},
}


@pytest.mark.parametrize(
    ("name", "kept"),
    first(4, [("seed", True), ("test labels", True), *((name, False) for name in OTHER)]),
)
def test_another_sweep__takes_nothing_over(
    name: str, kept: bool, work: dict[str, int], scratch: Path, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Neither of a finished sweep nor of an interrupted one."""
    if kept:
        sweep(keep_scratch=True)
    else:
        cut_run(run, "score_span", 1)
    (left,) = scratch.iterdir()
    before = files_of(left)
    caplog.clear()
    work.update(dict.fromkeys(work, 0))
    found = sweep(**OTHER[name])
    assert work["fit_probe"] == found["C"].size
    assert_same_bits(found, sweep(**OTHER[name], scratch=str(tmp_path / "truth")))
    assert caplog.text == ""
    assert list(scratch.iterdir()) == [left]
    assert files_of(left) == before


@pytest.mark.parametrize("module", [sklearn, run])
def test_another_version__takes_nothing_over(
    module: Any, work: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(keep_scratch=True)
    work.update(dict.fromkeys(work, 0))
    monkeypatch.setattr(module, "__version__", "0.0.1")
    sweep()
    assert work["fit_probe"] == PROBES


@pytest.mark.filterwarnings("ignore:classes 0 are trained and have no held-out row")
def test_another_confounder__takes_nothing_over_even_where_the_order_of_rows_is_the_same(
    work: dict[str, int], tmp_path: Path
) -> None:
    """Two cells of a class that follow one another, and are all in front of the held-out rows."""
    labels = np.repeat([0, 1], [7, 20])
    one = np.repeat([0, 1, 1, 2], [3, 4, 10, 10])
    other = np.repeat([0, 1, 1, 2], [4, 3, 10, 10])
    x = np.random.default_rng(4).normal(size=(27, 3)) + labels[:, None]
    how: dict[str, Any] = {
        "x": x,
        "labels": labels,
        "test_sets": None,
        "schedule": [([(0, 0, 2), (1, 0, 2), (1, 1, 4)], 5), ([(1, 0, 2), (2, 1, 4)], 5)],
        "arrange_slides": lambda cells, rng: cells,
    }
    sweep(**how, confounders=one, keep_scratch=True)
    work.update(dict.fromkeys(work, 0))
    found = sweep(**how, confounders=other)
    assert work["fit_probe"] == found["C"].size
    assert_same_bits(found, sweep(**how, confounders=other, scratch=str(tmp_path / "truth")))


# ---- size ------------------------------------------------------------------------------------


class Unread:
    """Rows that nobody reads."""

    dtype = np.dtype(np.float32)

    def __init__(self, n_rows: int, n_features: int) -> None:
        self.shape = (n_rows, n_features)

    def __getitem__(self, where: Any) -> Any:
        raise AssertionError("read")


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take rows for finite without a look at them."""
    monkeypatch.setattr(opened, "look_over", lambda *args: (SimpleNamespace(n_bad=0), "digest"))


@pytest.mark.usefixtures("unseen")
@pytest.mark.slow
def test_graph__of_ten_million_rows_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fits and the scores of the largest schedule, each with the node that all tasks share."""
    graphs: list[dict[str, Any]] = []

    def kept(graph: dict[str, Any], *args: Any, **how: Any) -> None:
        graphs.append(graph)
        if len(graphs) == 2:
            raise Cut

    monkeypatch.setattr(run, "run_graph", kept)
    rows = Unread(10_000_000, 1_024)
    cell = np.arange(rows.shape[0]) % 16
    with pytest.raises(Cut):
        downstream.probe_sweep(
            rows, cell // 4, cell % 4, iterations=20, memory="8GB", rows_per_slide=30,
            schedule=downstream.pathorob_schedule("tcga", rows_per_slide=30),
        )  # fmt: skip
    fits, scores = graphs
    assert len(fits) == 1 + 7 * 20
    assert 1 < len(scores) <= 1 + 257
    for graph in graphs:
        assert sum(isinstance(node, SweepJob) for node in graph.values()) == 1
        for dump in (pickle.dumps, cloudpickle.dumps):
            assert len(dump(graph)) < 1 << 20


@pytest.mark.usefixtures("unseen")
def test_plan__counts_the_orders_of_all_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that are few numbers each they are most of what the process holds."""
    laid_out = layouts(monkeypatch)
    monkeypatch.setattr(run, "run_graph", cut_after(0, run.run_graph))
    rows = Unread(17 * 4 * 2_000, 2)
    cell = np.arange(rows.shape[0]) % 4
    codes = cell // 2, cell % 2
    schedule = downstream.pathorob_schedule("camelyon", rows_per_slide=2_000)
    tracemalloc.start()
    try:
        with pytest.raises(Cut):
            downstream.probe_sweep(
                rows, *codes, schedule=schedule, rows_per_slide=2_000, iterations=30
            )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= laid_out[0].terms["orders and labels"] <= 1.25 * peak


# ---- what is refused -------------------------------------------------------------------------


def test_memory__too_little_names_the_split_and_its_rows(scratch: Path) -> None:
    x = Counted(X)
    largest = [
        ([(0, 0, 2), (1, 1, 2)], 6),
        ([(0, 0, 6), (1, 1, 5)], 6),
        ([(0, 0, 4), (1, 1, 4)], 6),
    ]
    with pytest.raises(MemoryLimitError) as refusal:
        sweep(x=x, schedule=largest, memory="5MB", threads=3)
    # 6 + 5 to train on, and round(3), round(2.5) to choose C by.
    assert re.search(r"largest split \(1\) .* 16 rows x 5 features in float64", str(refusal.value))
    assert "may take 5.00 MB" in str(refusal.value)
    assert "3 at once" in str(refusal.value)
    assert x.reads == []
    (enough,) = re.findall(r"raise memory= \(--memory\) to ([\d.]+ \wB)", str(refusal.value))
    assert sweep(schedule=largest, memory=enough, threads=3).sizes["split"] == 3
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows__that_are_no_numbers_are_named(bad: float) -> None:
    x, there = X.copy(), THERE.copy()
    x[[40, 3, 17, 5, 8, 21], [0, 1, 2, 3, 4, 0]] = bad
    there[11, 2] = bad
    with pytest.raises(
        SchemaError, match=r"embeddings .* rows 3, 5, 8, 17, 21 and 1 more \(6 of 56"
    ):
        sweep(x=x)
    with pytest.raises(SchemaError, match=r"test set 'there' holds NaN .* row 11 \(1 of 24\)"):
        sweep(there=there)


@pytest.mark.parametrize("name", ["in_domain", *schema.SWEEP, "", 3, None])
def test_test_sets__names_that_are_taken_or_none(name: Any) -> None:
    x = Counted(X)
    with pytest.raises(SchemaError, match=f"test set {name!r}"):
        sweep(x=x, test_sets={"fine": (THERE, TRUE), name: (THERE, TRUE)})
    assert x.reads == []


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ((THERE[:, :4], TRUE), "has 4 features, the embeddings of the sweep have 5"),
        ((THERE[:0], TRUE[:0]), "no rows"),
        ((THERE, TRUE[:-1]), "has 23 rows, the embedding has 24"),
        ((THERE, TRUE - 1), "0 or larger, found -1"),
        ((THERE, TRUE * 1.0), "whole numbers .* found float64"),
        ((THERE, TRUE[:, None]), "one index a row"),
        ((THERE[0], TRUE), "two dimensions"),
        ((THERE.astype(str), TRUE), "real numbers"),
        ((THERE, TRUE, TRUE), r"must be \(embeddings, labels\)"),
        (THERE, r"must be \(embeddings, labels\)"),
    ],
)
def test_test_sets__that_are_none(given: Any, part: str) -> None:
    x = Counted(X)
    with pytest.raises(SchemaError, match=f"test set 'odd'.*{part}"):
        sweep(x=x, test_sets={"odd": given})
    assert x.reads == []


# ---- labels that the sweep does not have -----------------------------------------------------


def test_test_sets__labels_that_the_sweep_does_not_have_count_as_missed() -> None:
    reference = pytest.importorskip("croma.downstream")
    foreign = np.where(np.arange(len(TRUE)) % 3 == 0, 7, TRUE)
    sets = {
        "known": (THERE[foreign < 2], foreign[foreign < 2]),
        "with others": (THERE, foreign),
        "all others": (THERE[:5], np.array([2, 3, 3, 2, 9])),
    }
    found = sweep(test_sets=sets)
    asked = arguments(test_sets=sets)
    rows = [asked.pop(name) for name in ("embeddings", "confounders", "labels")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        truth = reference.probe_sweep_over_test_sets(*rows, **asked)
    for name, accuracies in truth.items():
        assert np.abs(found[name].values - accuracies).max() == 0.0, name
    # Two classes of which some are found, and a third of which none can be.
    np.testing.assert_allclose(
        found["with others"].values, found["known"].values * 2 / 3, rtol=0, atol=1e-15
    )
    assert (found["all others"].values == 0.0).all()
    assert found.sizes["label"] == 2
    assert {name: found[name].attrs["n_classes"] for name in found.data_vars} == dict.fromkeys(
        found.data_vars, 2
    )
