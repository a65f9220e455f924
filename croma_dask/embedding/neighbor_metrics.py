"""Metrics that look at the neighbours of rows: one search of a group, read by all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.approximate import Approximation
from croma_dask.cohort.design import Scope
from croma_dask.embedding.accuracy import N_VOTERS, SHORT, accuracy, folds, vote_block
from croma_dask.embedding.blocks import ListValues, Wanted, list_rows, read_lists
from croma_dask.embedding.budget import Budget, at_once, leiden_bytes
from croma_dask.embedding.calibrated import Calibrated
from croma_dask.embedding.clustering import by_leiden
from croma_dask.embedding.connectivity import GC_NEIGHBORS, graph_connectivity
from croma_dask.embedding.kbet import K_GRAPH, kbet
from croma_dask.embedding.kbet_plan import label_bytes, labels_at_once
from croma_dask.embedding.lisi import cilisi, clisi, ilisi
from croma_dask.embedding.needs import Needs
from croma_dask.embedding.opened import Opened
from croma_dask.embedding.outcome import Outcome
from croma_dask.embedding.recorder import Recorder
from croma_dask.embedding.request import CLUSTERED, Readings
from croma_dask.embedding.rows import GroupRows
from croma_dask.index.neighbors import Neighbors
from croma_dask.index.scratch import Scratch
from croma_dask.index.spec import ListSpec
from croma_dask.memory import LIBRARIES, allowed_bytes
from croma_dask.resume import take_folder
from croma_dask.search import Found, search

__all__ = ["NeighborMetrics"]


@dataclass(frozen=True)
class NeighborMetrics:
    """The metrics of one group of rows that are read off its neighbour lists.

    Attributes
    ----------
    opened, group
        The embedding, and the rows.
    needs, how
        Which metrics, and their readings.
    index
        Approximate index for the lists of any label; None for exact ones.
    keep
        Ends what the lists lie in when the caller is done.
    recorder
        Takes what is found.
    """

    opened: Opened
    group: GroupRows
    needs: Needs
    how: Readings
    index: Approximation | None
    keep: contextlib.ExitStack
    recorder: Recorder

    def all(self) -> None:
        """Search, and compute all of them."""
        if self.group.n_rows < 2:
            self._alone()
            return
        near, same, calibrated = self._searched()
        found = self._read(near, same)
        self._of_values(found, calibrated)
        # What steps keep depends on the lists, and "auto" may take another index the next time.
        lists = "exact" if calibrated is None else calibrated.lists
        if self.needs.leiden:
            self._attempt(CLUSTERED, calibrated, lambda: self._leiden(near, found, lists))
        if self.needs.kbet:
            self._attempt(["kBET"], calibrated, lambda: self._kbet(near, lists))

    def _alone(self) -> None:
        """Say that a single row has no neighbours."""
        names = [
            *(CLUSTERED if self.needs.leiden else ()),
            *(["cLISI"] if self.needs.clisi else ()), *(["Acc@kNN"] if self.needs.votes else ()),
            *(["GC"] if self.needs.gc else ()),
        ]  # fmt: skip
        self.recorder.undefined(names, self.group, "fewer than two cells", "insufficient_cells")

    def _attempt(self, names: Any, calibrated: Calibrated | None, compute: Any) -> None:
        more = "" if calibrated is None else calibrated.note
        self.recorder.attempt(names, self.group, compute, more=more)

    # -- the search -----------------------------------------------------------------------------

    def _searched(self) -> tuple[Neighbors, Neighbors | None, Calibrated | None]:
        """Search for the lists of any label and, where these do not hold them, of the same one."""
        spec = self.needs.spec
        if self.index is None or not spec.n_global:
            return self._search(spec).neighbors[0], None, None
        found = self._search(ListSpec(spec.n_global, 0), self.index)
        calibrated = None
        # What "auto" has taken; for another group of rows it may be another.
        taken = "exact" if found.index is None else found.index.kind
        before = str(self.recorder.said.get("index", taken))
        self.recorder.said["index"] = taken if taken == before else f"{before},{taken}"
        if found.sample is not None:
            calibrated = Calibrated.of(found, self.group, self.needs, self.how.lisi_compat)
            self.recorder.said.update(calibrated.said())
        same = None
        if self.needs.cilisi:
            # Exact: only rows of one label are compared for it.
            same = self._search(ListSpec(0, spec.n_typed, same_label=True)).neighbors[0]
        return found.neighbors[0], same, calibrated

    def _search(self, spec: ListSpec, index: Approximation | None = None) -> Found:
        group, n = self.group, self.group.n_rows
        scope = Scope(
            "dataset", group.rows, group.label.codes, np.zeros(n, np.int32),
            np.arange(n, dtype=np.int32), len(group.label.names),
        )  # fmt: skip
        return self._search_scope(scope, spec, index)

    def _search_scope(self, scope: Scope, spec: ListSpec, index: Approximation | None) -> Found:
        opened = self.opened
        return search(
            opened.embedding, [scope], spec, opened.options, client=opened.client,
            fixed=self._held(), keep=self.keep, seen=opened.profile, how=index,
            distance="euclidean",
        )  # fmt: skip

    def _held(self) -> int:
        """Bytes that the driver holds besides."""
        return Budget(self.recorder.n_rows).search(self.group.n_rows)

    def _read(self, near: Neighbors, same: Neighbors | None) -> ListValues:
        group, needs, opened = self.group, self.needs, self.opened
        batch = group.batch if needs.ilisi or needs.cilisi else None
        wanted = Wanted(
            label=group.label.codes, n_labels=len(group.label.names),
            batch=None if batch is None else batch.codes,
            n_batches=0 if batch is None else len(batch.names),
            fold=folds(group.label.codes) if needs.votes else None,
            clisi=needs.clisi, ilisi=needs.ilisi, cilisi=needs.cilisi, votes=needs.votes,
            edges=needs.edges, compat=self.how.lisi_compat,
        )  # fmt: skip
        return read_lists(
            near, wanted, opened.options, opened.client, opened.n_tasks, same_label=same
        )

    # -- metrics --------------------------------------------------------------------------------

    def _of_values(self, found: ListValues, calibrated: Calibrated | None) -> None:
        """Compute what the values of single rows add up to."""
        group, how, codes = self.group, self.how, self.group.label.codes
        n_labels = len(group.label.names)
        n_batches = 0 if group.batch is None else len(group.batch.names)
        for name in ("clisi", "ilisi", "cilisi"):
            if name in found:
                self.recorder.keep(name, group, found[name])
        if self.needs.clisi:
            self._attempt(["cLISI"], calibrated, lambda: {
                "cLISI": clisi(found["clisi"], n_labels, compat=how.lisi_compat)
            })  # fmt: skip
        if self.needs.ilisi:
            self._attempt(["iLISI"], calibrated, lambda: {
                "iLISI": ilisi(found["ilisi"], n_batches, compat=how.lisi_compat)
            })  # fmt: skip
        if self.needs.cilisi:
            self._attempt(["CiLISI"], None, lambda: {
                "CiLISI": cilisi(
                    found["cilisi"], codes, how.cilisi_average, compat=how.lisi_compat
                )
            })  # fmt: skip
        if self.needs.votes:
            self._attempt(["Acc@kNN"], calibrated, lambda: self._accuracy(found["votes"]))
        if self.needs.gc:
            width = list_rows(group.n_rows, GC_NEIGHBORS)
            self._attempt(["GC"], calibrated, lambda: {
                "GC": graph_connectivity(
                    found["edges"][:, :width], codes, n_labels, strong=how.gc_components == "strong"
                )
            })  # fmt: skip

    def _accuracy(self, votes: NDArray[np.int32]) -> dict[str, Outcome]:
        codes = self.group.label.codes
        fold = folds(codes)
        short = (votes == SHORT) & (fold >= 0)
        if short.any():
            votes = np.where(short, self._vote_again(fold), votes)
        outcome = accuracy(votes, codes, fold)
        correct = np.where(fold >= 0, (votes == codes).astype(np.float64), np.nan)
        self.recorder.keep("knn_correct", self.group, correct)
        return {"Acc@kNN": outcome}

    def _vote_again(self, fold: NDArray[np.int8]) -> NDArray[np.int32]:
        """Search among the rows of other folds alone, where lists of any row hold too few of them.

        Many cells of dropped labels around a cell leave few of its list that may vote.
        """
        group = self.group
        kept = np.flatnonzero(fold >= 0)
        codes = group.label.codes[kept]
        scope = Scope(
            "folds", kept if group.rows is None else group.rows[kept], codes,
            np.zeros(kept.size, np.int32), fold[kept].astype(np.int32), len(group.label.names),
        )  # fmt: skip
        found = self._search_scope(scope, ListSpec(N_VOTERS, 0), None)
        votes = np.full(group.n_rows, SHORT, np.int32)
        for block in found.neighbors[0].blocks():
            rows = slice(block.lo, block.hi)
            votes[kept[rows]] = vote_block(
                block.index, fold[kept[rows]], fold[kept], codes, complete=True
            )
        return votes

    def _leiden(self, near: Neighbors, found: ListValues, lists: str) -> dict[str, Outcome]:
        opened = self.opened
        held = leiden_bytes(self.group.n_rows)
        made = max(held.values())
        n = at_once("Leiden's graph", made, self._held(), opened.options, opened.n_tasks)
        clustered = by_leiden(
            opened, self.group, near, found["edges"], self.how, self._folder("leiden", lists),
            n_processes=n,
        )  # fmt: skip
        self.recorder.keep_clusters(self.group, clustered.clusters)
        return clustered.outcomes

    def _kbet(self, near: Neighbors, lists: str) -> dict[str, Outcome]:
        group, opened = self.group, self.opened
        assert group.batch is not None
        sizes = [int(size) for size in np.bincount(group.label.codes)]
        what = f"kBET of the largest label ({max(sizes)} cells)"
        at_once(what, label_bytes(max(sizes)), self._held(), opened.options, 1)
        room = allowed_bytes(opened.options.memory) - LIBRARIES - self._held()
        found = kbet(
            _Columns(near, list_rows(group.n_rows, K_GRAPH)), group.label.codes,
            group.batch.codes, components=self.how.kbet_components,
            expected=self.how.kbet_expected, folder=self._folder("kbet", lists).path,
            client=opened.client, n_threads=labels_at_once(sizes, room, opened.n_tasks),
            quiet=opened.options.quiet,
        )  # fmt: skip
        self.recorder.keep("kbet", group, found.accepted)
        return {"kBET": found.outcome}

    def _folder(self, what: str, lists: str) -> Scratch:
        """Folder in which a step keeps what it finds, and finds it again after an interruption."""
        key = self.opened.key(what, self.group, self.how, self.index, lists)
        return take_folder(self.opened.options, key, self.keep, _holds)


@dataclass(frozen=True)
class _Columns:
    """The first columns of the lists of a scope, block by block, as often as asked."""

    neighbors: Neighbors
    width: int

    def __iter__(self) -> Iterator[tuple[int, Any, Any]]:
        for block in self.neighbors.blocks():
            yield block.lo, block.index[:, : self.width], block.distance[:, : self.width]


def _holds(scratch: Scratch) -> bool:
    """Whether a step has left anything to go on from."""
    return any(Path(scratch.path).rglob("*.npz"))
