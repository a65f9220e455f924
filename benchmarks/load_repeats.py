"""The same work again and again in one process: what it leaves behind, a run, once it is warm."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import child
from benchmarks.load_cases import Shape

__all__ = ["WORK", "measure"]

WARM = 0.2
"""Share of the runs after which a process has loaded, compiled and cached what it ever will."""


def _state() -> dict[str, int]:
    """Resident bytes, open files and threads of this process."""
    gc.collect()
    with open("/proc/self/statm") as f:
        resident = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "resident": resident, "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }  # fmt: skip


def measure(meter: child.Meter, work: str, runs: int, rows: int = 600) -> dict[str, Any]:
    """Do some work so many times.

    Returns
    -------
    dict
        ``seconds``; ``first`` and ``last`` state (resident bytes, files, threads) of the runs after
        a fifth of them; ``growth``: bytes a run between these, by the median of the first and of
        the last tenth of what was seen, so that no single moment decides.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with WORK[work](Path(folder), rows) as once:
            seen = []
            started = time.perf_counter()
            for number in range(runs):
                once()
                if number >= int(WARM * runs):
                    seen.append(_state())
            seconds = time.perf_counter() - started
    tenth = max(1, len(seen) // 10)

    def middle(part: list[dict[str, int]], name: str) -> int:
        return sorted(one[name] for one in part)[len(part) // 2]

    first = {name: middle(seen[:tenth], name) for name in seen[0]}
    last = {name: middle(seen[-tenth:], name) for name in seen[0]}
    apart = max(1, len(seen) - tenth)
    return {
        "seconds": seconds, "first": first, "last": last,
        "growth": (last["resident"] - first["resident"]) / apart,
    }  # fmt: skip


Once = Callable[[], object]


def _store(folder: Path, rows: int) -> str:
    import croma_dask as cd

    shape = Shape(rows, labels=3, levels=3, groups=rows // 4)
    return str(cd.write_cohort(folder / "cohort.zarr", shape.embedding(), shape.manifest()))


@contextlib.contextmanager
def _scores(folder: Path, rows: int, **options: Any) -> Iterator[Once]:
    """Score a store by its place: it is opened anew each time."""
    import croma_dask as cd

    place = _store(folder, rows)
    yield lambda: cd.score(place, confounder="center", k_candidates=[5, 11], **options)


@contextlib.contextmanager
def _scores_in_memory(folder: Path, rows: int) -> Iterator[Once]:
    import croma_dask as cd

    shape = Shape(rows, labels=3, levels=3)
    x, frame = shape.embedding(), shape.manifest()
    yield lambda: cd.score(x, frame, confounder="center", k_candidates=[5, 11])


@contextlib.contextmanager
def _streamed(folder: Path, rows: int) -> Iterator[Once]:
    """Scores whose lists go through scratch: all rows are streamed."""
    from croma_dask import layout

    before, layout.DIRECT_ROWS = layout.DIRECT_ROWS, 0
    try:
        with _scores(folder, rows, scratch=str(folder / "scratch")) as once:
            yield once
    finally:
        layout.DIRECT_ROWS = before


@contextlib.contextmanager
def _cluster(folder: Path, rows: int) -> Iterator[Once]:
    """Streamed scores on the processes of a cluster; the state is that of the client's process."""
    from distributed import Client, LocalCluster

    import croma_dask as cd
    from croma_dask import layout

    place = _store(folder, rows)
    before, layout.DIRECT_ROWS = layout.DIRECT_ROWS, 0
    try:
        with (
            LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield lambda: cd.score(
                place, confounder="center", k_candidates=[5, 11], client=client,
                scratch=str(folder / "scratch"),
            )  # fmt: skip
    finally:
        layout.DIRECT_ROWS = before


@contextlib.contextmanager
def _of_result(
    folder: Path, rows: int, function: Callable[[Any, str, Path], Any]
) -> Iterator[Once]:
    import croma_dask as cd
    from croma_dask.results import save

    place = str(folder / "result.zarr")
    save(cd.score(_store(folder, rows), confounder="center", k_candidates=[5, 11]), place)
    yield lambda: function(cd, place, folder)


def _bootstraps(folder: Path, rows: int) -> Any:
    return _of_result(
        folder, rows, lambda cd, place, _: cd.bootstrap(cd.open_result(place), n_draws=50)
    )


def _reports(folder: Path, rows: int) -> Any:
    return _of_result(
        folder, rows,
        lambda cd, place, to: cd.report(place, to / "r.html", n_draws=50, overwrite=True),
    )  # fmt: skip


def _saves(folder: Path, rows: int) -> Any:
    from croma_dask.results import save

    def both(cd: Any, place: str, to: Path) -> None:
        opened = cd.open_result(place)
        save(opened, to / "again.nc", overwrite=True)
        cd.open_result(to / "again.nc").close()
        opened.close()

    return _of_result(folder, rows, both)


@contextlib.contextmanager
def _benchmarks(folder: Path, rows: int) -> Iterator[Once]:
    import croma_dask as cd

    place = _store(folder, rows)
    yield lambda: cd.embedding_benchmark(place, label="label", batch="center", clustering="kmeans")


WORK: dict[str, Callable[[Path, int], contextlib.AbstractContextManager[Once]]] = {
    "scores": _scores,
    "scores of arrays": _scores_in_memory,
    "streamed scores": _streamed,
    "scores on a cluster": _cluster,
    "bootstraps": _bootstraps,
    "reports": _reports,
    "saves": _saves,
    "benchmarks": _benchmarks,
}
