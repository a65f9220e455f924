"""All neighbours of one cohort: faiss, usearch, bare pynndescent, and what croma-dask does."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import child, cohorts, timing
from benchmarks.competitors import WANTED, K, Row, Truth

OTHERS = {
    "faiss flat": ("flat", "faiss `IndexFlatIP`"),
    "faiss ivf": ("ivf", "faiss `IndexIVFFlat`, nprobe {setting}"),
    "faiss hnsw": ("hnsw", "faiss `IndexHNSWFlat`, M = 32, efSearch {setting}"),
    "usearch": ("usearch", "usearch, expansion {setting}"),
    "pynndescent": ("pynndescent", "pynndescent, n_neighbors 52"),
}
OURS = {
    "ours exact": ("exact", "croma-dask, exact"),
    "ours ivf": ("ivf", "croma-dask, `ivf`, {probes} of {clusters} clusters"),
    "ours pynndescent": ("pynndescent", "croma-dask, `pynndescent`"),
}
_TUNING, _CHECKING = 500, 1_000


def prepare(_: child.Meter, folder: str, n: int, d: int) -> Row:
    """Write the store, the unit rows, and the true neighbours of some rows."""
    place = cohorts.Clustered().store(Path(folder) / "cohort.zarr", n, d)
    group = cohorts.Clustered().codes(n)[2]
    drawn = np.random.default_rng(0).choice(n, _TUNING + _CHECKING, replace=False)
    arrays = {"tuning": np.sort(drawn[:_TUNING]), "checking": np.sort(drawn[_TUNING:])}
    rows = []
    with open(Path(folder) / "unit.f32", "wb") as file:
        for block in cohorts.Clustered().blocks(n, d):
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            block.tofile(file)
            rows.append(block)
    x = np.concatenate(rows)
    del rows
    for use in ("tuning", "checking"):
        places = arrays[use]
        nearest: dict[str, list[np.ndarray]] = {"others": [], "foreign": []}
        for some in np.array_split(places, max(1, places.size // 50)):
            for query, near in zip(some, x[some] @ x.T, strict=True):
                near[query] = -np.inf
                nearest["others"].append(_first(near))
                near[group == group[query]] = -np.inf
                nearest["foreign"].append(_first(near))
        arrays |= {f"{use}_{among}": np.stack(lists) for among, lists in nearest.items()}
    np.savez(Path(folder) / "truth.npz", **arrays)
    return {"place": place}


def _first(near: np.ndarray) -> np.ndarray:
    some = np.argpartition(near, -K)[-K:]
    return some[np.argsort(-near[some])]


def ours(meter: child.Meter, kind: str, folder: str, place: str) -> Row:
    """Build the index and score; then score again from the kept lists, to tell the search apart."""
    import croma_dask as cd

    # Keeping lists is told to users each time.
    logging.getLogger("croma_dask").setLevel(logging.ERROR)
    timing.warm_up(*({kind} - {"exact"}))
    scratch = f"{folder}/scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    how: dict[str, Any] = {"scratch": scratch, "keep_scratch": True}
    index = f"{folder}/index.zarr"
    shutil.rmtree(index, ignore_errors=True)
    meter.peak()
    build = 0.0
    if kind == "exact":
        index = kind
    else:
        build = timing.timed(lambda: cd.build_index(place, kind, path=index, scratch=scratch))
    attrs: dict[str, Any] = {}

    def score() -> None:
        attrs.update(dict(cd.score(place, confounder="center", index=index, **how)["RI"].attrs))

    whole = timing.timed(score)
    found: Row = {"build": build, "score": whole, "peak": meter.peak()}
    found["search"] = whole - timing.timed(score)
    found |= {"probes": attrs.get("probes"), "clusters": attrs.get("n_clusters")}
    truth = Truth.of(folder, "checking", "foreign")
    found["recall"] = truth.recall(_lists(place, index, how, truth.queries))
    shutil.rmtree(scratch, ignore_errors=True)
    return found


def _lists(place: str, index: str, how: dict[str, Any], queries: np.ndarray) -> np.ndarray:
    """Lists of some rows, as the score that was just made has left them."""
    from croma_dask.cohort.manifest import ColumnNames
    from croma_dask.cohort.store import StoredCohort
    from croma_dask.options import merged
    from croma_dask.robustness.evaluate import searched
    from croma_dask.robustness.request import Request, prepare
    from croma_dask.score import DEFAULT_K, DEFAULT_METRICS

    request = Request.of(DEFAULT_METRICS, k_candidates=DEFAULT_K, m=5, index=index)
    inputs = prepare(StoredCohort(place), None, ColumnNames("center"), "all")
    with contextlib.ExitStack() as keep:
        found = searched(
            inputs, request.spec, request.n_scores, merged(**how), None, keep, how=request.how
        )
        parts = []
        for block in found.neighbors[0].blocks():
            a, b = np.searchsorted(queries, [block.lo, block.hi])
            parts.append(block.index[queries[a:b] - block.lo])
    return np.concatenate(parts)


def main(
    n: int = 200_000, d: int = 512, threads: int = 2, only: Sequence[str] = (),
    folder: str | None = None,
) -> None:  # fmt: skip
    """Compare in turn, in one run; `only` some of OTHERS and OURS.

    From 20,000 rows on: below, our exact search keeps no lists.
    """
    found: list[tuple[str, Row]] = []
    threads = min(threads, len(os.sched_getaffinity(0)))
    with cohorts.kept_folder(folder) as kept:
        here = kept / f"peers-{n}-{d}"
        here.mkdir(exist_ok=True)
        place = child.run("peers:prepare", folder=str(here), n=n, d=d)["place"]
        for name in only or (*OTHERS, *OURS):
            title = (OTHERS | OURS)[name][1]
            about: Row = {"threads": threads, "folder": str(here)}
            try:
                if name in OTHERS:
                    row = child.run("competitors:measure", name=OTHERS[name][0], n=n, d=d, **about)
                else:
                    row = child.run("peers:ours", kind=OURS[name][0], place=place, **about)
            except subprocess.CalledProcessError as err:
                # One library that runs out of memory must not cost what the others have measured.
                print(f"{name}: failed ({err.returncode})\n")
                continue
            found.append((title.format(**row), row))
    timing.table(
        [f"{n:,} x {d:,}, k = {K}, {threads} threads", "build, s", "search, s", "together",
         f"recall@{K - 1}", "peak memory", "with scores"],
        [
            (title, f"{r['build']:.1f}", f"{r['search']:.1f}", f"{r['build'] + r['search']:.1f}",
             f"{r['recall']:.4f}", f"{r['peak'] / 1e6:,.0f} MB",
             f"{r['build'] + r['score']:.1f}" if "score" in r else "")
            for title, r in found
        ],
    )  # fmt: skip
    print(
        f"""
Rows as `cohorts.Clustered` draws them. Each library holds them itself, in a process of its own;
peaks are above a bare Python, libraries included. faiss and usearch: the least parameter with which
{WANTED} of the neighbours of {_TUNING} queries are found (choosing it is not timed). Recall is of
{_CHECKING:,} other queries, among all rows but the query; for croma-dask among the rows of other
groups, since it finds no others. Its search also finds the nearest SO and OS rows of every row,
measures distances in float64, reads the rows from a store and searches a sample exactly. The graph
of pynndescent is the answer.
"""
    )
    for title, row in found:
        if "compiling" in row:
            print(f"Compiling, {row['compiling']:.0f} s of {title}, is left out.")
