"""The embedding scorer that scfoundry ships, run on exact neighbour lists.

The scorer searches neighbours by pynndescent, which may miss some. Its two searches (its own, and
the one in diffusion space inside scib-metrics' kBET) are replaced here by a brute-force one in
float64; everything else is the scorer's and its libraries' own doing.

It runs in a process of its own (:func:`oracle_process`): the module ignores all warnings for good
and sets variables of the environment when it is imported, and a process that has loaded jax cannot
fork without a warning any more, which other tests do.
"""

from __future__ import annotations

import importlib.util
import logging
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from tests.helpers.plain_metrics import LIST, exact_lists

__all__ = ["Oracle", "Scored", "oracle_process", "score"]


@dataclass
class Scored:
    """What the scorer says of one embedding.

    Attributes
    ----------
    values, notes
        By metric; only metrics of the group that was asked for.
    counts
        By metric: cells, dimensions, labels and batches as the scorer's table has them.
    kept
        (n,) rows that it was computed on.
    clusters
        (n,) cluster of each row, -1 where left out; None without the metrics of the labels.
    clisi, ilisi
        (n,) LISI of each row, unscaled, NaN where left out; None where not computed.
    cilisi
        (n,) scaled LISI of each row among those of its label, NaN where its label is skipped.
    kbet
        By label the share of accepted cells, NaN where it is skipped.
    kbet_steady
        The same with the largest eigenvalues of each label as exact ones, which they are before
        rounding. The library computes a label's transitions in float32; where the largest
        eigenvalue comes out one unit below 1, its factor is 1e7 instead of 1 and the trivial
        coordinate alone decides who is near whom.
    """

    values: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    counts: dict[str, tuple[float, ...]] = field(default_factory=dict)
    kept: Any = None
    clusters: Any = None
    clisi: Any = None
    ilisi: Any = None
    cilisi: Any = None
    kbet: dict[str, float] = field(default_factory=dict)
    kbet_steady: dict[str, float] = field(default_factory=dict)


@lru_cache(maxsize=1)
def _scorer() -> Any:
    """Load the scorer's module from where the package lies; the package itself is not imported."""
    spec = importlib.util.find_spec("scfoundry")
    assert spec is not None, "scfoundry belongs to the extra 'test'"
    assert spec.submodule_search_locations is not None
    (folder,) = spec.submodule_search_locations
    path = Path(folder) / "pipeline" / "bin" / "benchmark" / "embedding_metrics.py"
    inner = importlib.util.spec_from_file_location("scfoundry_embedding_metrics", path)
    assert inner is not None
    assert inner.loader is not None
    # Every label is another shape to jax, which compiles for it: without taking its time over it.
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    )
    module = importlib.util.module_from_spec(inner)
    inner.loader.exec_module(module)
    logging.getLogger("scib_metrics").setLevel(logging.WARNING)
    return module


def _arguments(scorer: Any, **options: Any) -> Any:
    """Its own defaults, as its own parser gives them."""
    with mock.patch.object(sys, "argv", ["_", "--embedding-dir=_", "--method=_", "--output-dir=_"]):
        arguments = scorer.parse_args()
    unknown = set(options) - set(vars(arguments))
    assert not unknown, unknown
    vars(arguments).update(options)
    return arguments


class _Recorder:
    """Keep what a function returned, call by call."""

    def __init__(self, function: Any, **always: Any) -> None:
        self.function = function
        self.always = always
        self.results: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.results.append(self.function(*args, **kwargs, **self.always))
        return self.results[-1]


def score(
    x: np.ndarray,
    obs: pd.DataFrame,
    *,
    groups: str = "all",
    label: str = "cell_type",
    batch: str = "batch_id",
    exact: bool = True,
    bras: bool = True,
    **options: Any,
) -> Scored:
    """Score an embedding in this process.

    Parameters
    ----------
    x, obs
        (n, d) rows and their columns.
    groups
        ``bio``, ``batch`` or ``all``; with ``all`` rows without a batch are left out of both, as
        the scorer does it.
    label, batch
        Columns.
    exact
        Brute-force lists; False leaves the scorer's own search (and its compilation) in place.
    bras
        Whether BRAS is part of it: in float32, and some two seconds of compilation a label.
    options
        Arguments of the scorer by their names, as `clustering` or `batch_max_cells`.

    Returns
    -------
    Scored
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _score(x, obs, groups, label, batch, exact, bras, options)


def _score(
    x: np.ndarray, obs: pd.DataFrame, groups: str, label: str, batch: str, exact: bool,
    bras: bool, options: dict[str, Any],
) -> Scored:  # fmt: skip
    scorer = _scorer()
    import anndata
    import scib_metrics
    from scib_metrics import nearest_neighbors
    from scib_metrics.metrics import _lisi as lisi_module

    def lists(rows: np.ndarray, k: int) -> Any:
        index, distance = exact_lists(rows, k)
        return nearest_neighbors.NeighborsResults(
            indices=index, distances=distance.astype(np.float32)
        )

    def shared(rows: np.ndarray, k: int, n_jobs: int = -1) -> Any:
        return lists(rows, scorer.valid_neighbor_count(len(rows), k))

    def diffused(rows: np.ndarray, n_neighbors: int, **_: Any) -> Any:
        return lists(rows, min(n_neighbors, len(rows)))

    lisi = _Recorder(lisi_module.lisi_knn)
    lisi_of_labels = _Recorder(_in_one_shape(lisi_module.lisi_knn))
    by_label = _Recorder(scib_metrics.kbet_per_label, return_df=True)
    steady = _Recorder(_with_exact_ones(scib_metrics.kbet_per_label), return_df=True)

    def kbet(*args: Any, **kwargs: Any) -> Any:
        steady(*args, **kwargs)
        return by_label(*args, **kwargs)[0]

    arguments = _arguments(scorer, **options)
    with ExitStack() as patches:
        put = patches.enter_context
        if exact:
            put(mock.patch.object(scorer, "build_knn", shared))
            put(mock.patch.object(nearest_neighbors, "pynndescent", diffused))
        put(mock.patch.object(lisi_module, "lisi_knn", lisi))
        put(mock.patch.object(scib_metrics, "lisi_knn", lisi_of_labels))
        put(mock.patch.object(scib_metrics, "kbet_per_label", kbet))
        if not bras:
            put(mock.patch.object(scib_metrics, "bras", return_value=np.nan))
        folder = Path(put(tempfile.TemporaryDirectory()))
        columns = {name: pd.Categorical(obs[name]) for name in {label, batch}}
        frame = pd.DataFrame(columns, index=[str(i) for i in range(len(obs))])
        anndata.AnnData(np.asarray(x), obs=frame).write_h5ad(folder / "set.h5ad")
        bio, predictions, mixing = scorer.compute_one(
            path=folder / "set.h5ad", method="method", label_key=label, batch_key=batch,
            args=arguments, compute_bio=groups != "batch", compute_batch=groups != "bio",
        )  # fmt: skip
    kept = obs[label].notna().to_numpy()
    if groups != "bio":
        kept &= obs[batch].notna().to_numpy()
    found = Scored(kept=kept)
    for table in (bio, mixing):
        if table is None:
            continue
        for row in table.itertuples():
            if row.metric == "BRAS" and not bras:
                continue
            found.values[row.metric] = float(row.value)
            found.notes[row.metric] = row.note
            found.counts[row.metric] = (row.n_cells, row.n_dims, row.n_labels, row.n_batches)
    if predictions is not None:
        found.clusters = np.full(len(obs), -1)
        rows = predictions["barcode"].astype(int).to_numpy()
        found.clusters[rows] = predictions[f"{arguments.clustering}_label"].astype(int).to_numpy()
    per_cell = iter(lisi.results)
    if "cLISI" in found.values:
        found.clisi = _spread(next(per_cell, None), kept)
    if "iLISI" in found.values and not options.get("batch_max_cells"):
        found.ilisi = _spread(next(per_cell, None), kept)
        found.cilisi = _cilisi(lisi_of_labels.results, obs, kept, label, batch)
    for _, table in by_label.results:
        found.kbet = dict(zip(table["cluster"], table["kBET"].astype(float), strict=True))
    for _, table in steady.results:
        found.kbet_steady = dict(zip(table["cluster"], table["kBET"].astype(float), strict=True))
    return found


def _with_exact_ones(kbet_per_label: Any) -> Any:
    """Put the largest eigenvalues right, one for each component of a label's graph."""
    from scib_metrics.utils import _diffusion_nn as module
    from scipy.sparse.csgraph import connected_components

    eigen = module._compute_eigen

    def exact(transitions: Any, **how: Any) -> Any:
        values, vectors = eigen(transitions, **how)
        values = values.copy()
        values[: connected_components(transitions)[0]] = 1.0
        return values, vectors

    def steady(*args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(module, "_compute_eigen", exact):
            return kbet_per_label(*args, **kwargs)

    return steady


def _in_one_shape(lisi_knn: Any) -> Any:
    """Lay out lists of a few sizes in one, so that jax need not compile for each label.

    A row's index depends on no other row, and an entry that is the row itself has no weight.
    """

    def padded(lists: Any, categories: np.ndarray, perplexity: float) -> np.ndarray:
        n, k = lists.indices.shape
        rows = -(-n // 512) * 512
        index = np.repeat(np.arange(rows)[:, None], LIST, axis=1)
        distance = np.zeros(index.shape, np.float32)
        index[:n, :k], distance[:n, :k] = lists.indices, lists.distances
        more = np.concatenate([categories, np.full(rows - n, categories[0], dtype=object)])
        whole = type(lists)(indices=index, distances=distance)
        found: np.ndarray = lisi_knn(whole, more, perplexity=perplexity)[:n]
        return found

    return padded


def _spread(values: Any, kept: np.ndarray) -> Any:
    """Lay values of the rows that were kept out over all rows."""
    if values is None:
        return None
    laid = np.full(len(kept), np.nan)
    laid[kept] = values
    return laid


def _cilisi(
    results: list[Any], obs: pd.DataFrame, kept: np.ndarray, label: str, batch: str
) -> np.ndarray:
    """Scaled and clipped, label by label, in the order in which the scorer went through them."""
    laid = np.full(len(obs), np.nan)
    calls = iter(results)
    for _, rows in sorted(obs[kept].groupby(label, observed=True).indices.items()):
        at = np.flatnonzero(kept)[rows]
        n_batches = obs[batch].iloc[at].nunique()
        if len(at) >= 10 and n_batches >= 2:
            laid[at] = np.clip((next(calls) - 1.0) / (n_batches - 1), 0.0, 1.0)
    assert next(calls, None) is None, "labels that the scorer took but this did not"
    return laid


class Oracle:
    """Ask the scorer's process."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def score(self, x: np.ndarray, obs: pd.DataFrame, **how: Any) -> Scored:
        """Do as :func:`score` does, over there."""
        return self._pool.submit(score, x, obs, **how).result()


@contextmanager
def oracle_process() -> Iterator[Oracle]:
    """Start the process of the scorer; it loads jax and scanpy once (some 5 s)."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        yield Oracle(pool)
