"""All neighbours by other libraries, each called in a process of its own, on one file of rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import child, timing

K = 51
WANTED = 0.97
"""Recall that the parameter of a search is chosen for."""

BLOCK = 8192
Row = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """Unit rows in a plain file: read when they are needed, so that each library holds its own."""

    folder: str
    n: int
    d: int

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """All rows, block by block, with the place of the first."""
        for lo in range(0, self.n, BLOCK):
            count = min(BLOCK, self.n - lo) * self.d
            path = Path(self.folder) / "unit.f32"
            found = np.fromfile(path, np.float32, count, offset=4 * lo * self.d)
            yield lo, found.reshape(-1, self.d)

    def take(self, places: np.ndarray) -> np.ndarray:
        """Rows at ascending places."""
        parts = []
        for lo, block in self.blocks():
            a, b = np.searchsorted(places, [lo, lo + len(block)])
            parts.append(block[places[a:b] - lo])
        return np.concatenate(parts)


@dataclass(frozen=True)
class Truth:
    """Exact neighbours of some rows.

    Attributes
    ----------
    queries
        (q,) rows, ascending.
    nearest
        (q, K) their nearest rows, nearest first.
    """

    queries: np.ndarray
    nearest: np.ndarray

    @classmethod
    def of(cls, folder: str, use: str, among: str) -> Truth:
        """Read it.

        Parameters
        ----------
        folder
            Where it lies.
        use
            ``tuning``, or ``checking`` for other queries.
        among
            ``others`` for all rows but the query, ``foreign`` for those of other groups.
        """
        with np.load(Path(folder) / "truth.npz") as file:
            return cls(file[use], file[f"{use}_{among}"])

    def recall(self, found: np.ndarray, k: int = K - 1) -> float:
        """Share of the nearest k that are among the first k found."""
        pairs = zip(found, self.nearest, strict=True)
        return float(np.mean([np.isin(exact[:k], mine[:k]).mean() for mine, exact in pairs]))


@dataclass(frozen=True)
class Contender:
    """A library's index.

    Attributes
    ----------
    build
        Builds it.
    search
        Unit rows (q, D) -> (q, K + 1) places of the nearest ones, themselves included.
    settings, tune
        Values to try until the recall is reached, ascending, and what sets one.
    """

    build: Callable[[], None]
    search: Callable[[np.ndarray], np.ndarray]
    settings: tuple[int, ...] = ()
    tune: Callable[[int], None] = print


def without_self(found: np.ndarray, own: np.ndarray) -> np.ndarray:
    """(q, K) of (q, K + 1): without the row itself, where that is not there without the last."""
    mine = found == own[:, None]
    mine &= np.cumsum(mine, axis=1) == 1
    mine[~mine.any(axis=1), -1] = True
    return found[~mine].reshape(len(found), -1)


def measure(meter: child.Meter, name: str, folder: str, n: int, d: int) -> Row:
    """Build, choose the parameter of the search, then search with all rows."""
    rows = Rows(folder, n, d)
    if name == "pynndescent":
        return _pynndescent(meter, rows)
    contender = {
        "flat": _faiss_flat, "ivf": _faiss_ivf, "hnsw": _faiss_hnsw, "usearch": _usearch,
    }[name](rows)  # fmt: skip
    meter.peak()
    found: Row = {"build": timing.timed(contender.build)}
    tuning = Truth.of(folder, "tuning", "others")
    queries = rows.take(tuning.queries)
    for setting in contender.settings:
        contender.tune(setting)
        found["setting"] = setting
        if tuning.recall(without_self(contender.search(queries), tuning.queries)) >= WANTED:
            break
    started = time.perf_counter()
    lists = np.empty((n, K), np.int32)
    for lo, block in rows.blocks():
        own = np.arange(lo, lo + len(block))
        lists[own] = without_self(contender.search(block), own)
    found["search"] = time.perf_counter() - started
    checking = Truth.of(folder, "checking", "others")
    return found | {"peak": meter.peak(), "recall": checking.recall(lists[checking.queries])}


def _steps(least: int, most: int) -> tuple[int, ...]:
    """Whole numbers, each a fifth larger than the one before."""
    count = int(np.log(most / least) / np.log(1.2)) + 1
    return tuple(sorted({min(most, round(least * 1.2**e)) for e in range(count + 1)}))


def _faiss_flat(rows: Rows) -> Contender:
    import faiss

    index = faiss.IndexFlatIP(rows.d)

    def build() -> None:
        for _, block in rows.blocks():
            index.add(block)

    return Contender(build, lambda x: index.search(x, K + 1)[1])


def _faiss_ivf(rows: Rows) -> Contender:
    """4 sqrt(n) cells, trained on 64 rows a cell."""
    import faiss

    cells = max(1, int(4 * rows.n**0.5))
    cells = min(cells, rows.n // 64)
    picked = np.random.default_rng(0).choice(rows.n, min(rows.n, 64 * cells), replace=False)
    quantizer = faiss.IndexFlatIP(rows.d)
    index = faiss.IndexIVFFlat(quantizer, rows.d, cells, faiss.METRIC_INNER_PRODUCT)

    def build() -> None:
        index.train(rows.take(np.sort(picked)))
        for _, block in rows.blocks():
            index.add(block)

    def tune(probes: int) -> None:
        index.nprobe = probes

    # The quantizer is used through the index: it has to live as long.
    return Contender(
        build, lambda x, _=quantizer: index.search(x, K + 1)[1], _steps(1, cells), tune
    )


def _faiss_hnsw(rows: Rows) -> Contender:
    import faiss

    index = faiss.IndexHNSWFlat(rows.d, 32, faiss.METRIC_INNER_PRODUCT)

    def build() -> None:
        for _, block in rows.blocks():
            index.add(block)

    def tune(width: int) -> None:
        index.hnsw.efSearch = width

    return Contender(build, lambda x: index.search(x, K + 1)[1], _steps(K + 1, 2_000), tune)


def _usearch(rows: Rows) -> Contender:
    from usearch.index import Index

    threads = len(os.sched_getaffinity(0))
    index = Index(ndim=rows.d, metric="ip", dtype="f32")

    def build() -> None:
        for lo, block in rows.blocks():
            index.add(np.arange(lo, lo + len(block)), block, threads=threads)

    def search(x: np.ndarray) -> np.ndarray:
        return index.search(x, K + 1, threads=threads).keys.astype(np.int64)

    def tune(width: int) -> None:
        index.expansion_search = width

    return Contender(build, search, _steps(K + 1, 2_000), tune)


def _pynndescent(meter: child.Meter, rows: Rows) -> Row:
    """Its graph is the answer: there is nothing to search, and nothing to choose afterwards."""
    import pynndescent

    def graph(x: np.ndarray) -> np.ndarray:
        # On unit rows this is the order of the cosine distance, by its fastest kernel.
        index = pynndescent.NNDescent(
            x, metric="euclidean", n_neighbors=K + 1, random_state=0, n_jobs=-1
        )
        return np.asarray(index.neighbor_graph[0])

    rng = np.random.default_rng(0)
    compiling = timing.timed(lambda: graph(rng.random((2_000, rows.d), np.float32)))
    meter.peak()
    x = np.concatenate([block for _, block in rows.blocks()])
    started = time.perf_counter()
    found = graph(x)
    seconds = time.perf_counter() - started
    lists = without_self(found, np.arange(rows.n))
    checking = Truth.of(rows.folder, "checking", "others")
    return {
        "build": seconds, "search": 0.0, "peak": meter.peak(), "compiling": compiling,
        "recall": checking.recall(lists[checking.queries]),
    }  # fmt: skip
