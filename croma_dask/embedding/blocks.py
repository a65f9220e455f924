"""What is read off the neighbour lists, a block of rows a task: LISI values, votes, edges."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from croma_dask.embedding.accuracy import vote_block
from croma_dask.embedding.lisi import N_NEIGHBORS, Compat, lisi_block, same_label_lisi
from croma_dask.index.neighbors import Lists, Neighbors, ResidentLists, grid_rows
from croma_dask.index.resident import resident
from croma_dask.index.scratch import Scratch
from croma_dask.options import Options
from croma_dask.progress import Progress
from croma_dask.resume import own_folder
from croma_dask.tasks import run_graph

__all__ = ["ListValues", "Wanted", "list_rows", "read_lists"]

ListValues: TypeAlias = dict[str, Any]
"""Values of all rows by name."""


def list_rows(n_rows: int, length: int = N_NEIGHBORS) -> int:
    """Others in a list of a length that counts the row itself: never all of the other rows.

    The reference asks for at most n - 1 entries, itself among them.
    """
    return max(0, min(length, n_rows - 1) - 1)


@dataclass(frozen=True)
class Wanted:
    """What is to be read off the lists of a scope.

    Attributes
    ----------
    label, batch, fold
        (n,) int32 labels and batches, int8 folds; None where nothing asks for them.
    n_labels, n_batches
        Numbers of them.
    clisi, ilisi, cilisi, votes
        Which values of a row are wanted.
    edges
        Neighbours of a row to return, for graphs.
    compat
        As of :func:`croma_dask.embedding.lisi.lisi_block`.
    """

    label: NDArray[np.int32]
    n_labels: int
    batch: NDArray[np.int32] | None = None
    n_batches: int = 0
    fold: NDArray[np.int8] | None = None
    clisi: bool = False
    ilisi: bool = False
    cilisi: bool = False
    votes: bool = False
    edges: int = 0
    compat: Compat = None

    def arrays(self) -> dict[str, Any]:
        """Codes as they are kept for the tasks, with what is known of each label."""
        found: dict[str, Any] = {"label": self.label}
        if self.batch is not None:
            found["batch"] = self.batch
            cells = np.unique(self.label.astype(np.int64) * self.n_batches + self.batch)
            found["label_cells"] = np.bincount(self.label, minlength=self.n_labels)
            found["label_batches"] = np.bincount(cells // self.n_batches, minlength=self.n_labels)
        if self.fold is not None:
            found["fold"] = self.fold
        return found


@dataclass(frozen=True)
class _Job:
    """What the tasks share: places and flags; codes lie in a file."""

    lists: Lists
    same_label: Lists | None
    folder: str
    n_rows: int
    n_global: int
    flags: Mapping[str, Any]

    def codes(self) -> dict[str, Any]:
        return Scratch(self.folder).read("codes.npz")


def read_lists(
    neighbors: Neighbors, wanted: Wanted, options: Options, client: Any, n_threads: int, *,
    same_label: Neighbors | None = None,
) -> ListValues:  # fmt: skip
    """Read the values of all rows off their lists.

    Parameters
    ----------
    neighbors
        Lists of the scope: of any label, and behind them of the same one where CiLISI is wanted.
    wanted
        What to read.
    options, client, n_threads
        Where codes are kept for the tasks, and where these run.
    same_label
        Lists of the same label, where they are not behind the others.

    Returns
    -------
    dict
        (n,) ``clisi``, ``ilisi`` (LISI of every row), ``cilisi`` (scores), ``votes`` (predicted
        labels); ``edges`` (n, e) positions. What was asked for.

    Notes
    -----
    Memory: a block of lists a task, and what is returned.
    """
    # Lists in memory are this process's.
    all_lists = [part.lists for part in (neighbors, same_label) if part is not None]
    where = None if any(isinstance(part, ResidentLists) for part in all_lists) else client
    with contextlib.ExitStack() as keep:
        folder = own_folder(options, "codes-", keep)
        Scratch(folder).write("codes.npz", wanted.arrays())
        flags = {
            name: getattr(wanted, name)
            for name in (
                "n_labels", "n_batches", "clisi", "ilisi", "cilisi", "votes", "edges", "compat",
            )
        }  # fmt: skip
        apart = None if same_label is None else same_label.lists
        job = _Job(neighbors.lists, apart, folder, neighbors.n_rows, neighbors.spec.n_global, flags)
        token = uuid.uuid4().hex
        shared = f"croma-lists-{token}"
        step = grid_rows(neighbors.spec.indexed)
        spans = [(lo, min(neighbors.n_rows, lo + step)) for lo in range(0, neighbors.n_rows, step)]
        keys = {f"croma-read-{token}-{lo:012d}": (lo, hi) for lo, hi in spans}
        graph: dict[str, Any] = {shared: job}
        graph |= {key: (_read_span, shared, lo, hi) for key, (lo, hi) in keys.items()}
        with Progress("neighbour metrics", neighbors.n_rows, "rows", options.quiet) as progress:
            parts = run_graph(
                graph, list(keys), client=where, n_threads=n_threads,
                on_done=lambda key, _: progress.advance(keys[key][1] - keys[key][0]),
            )  # fmt: skip
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _read_span(job: _Job, lo: int, hi: int) -> dict[str, Any]:
    flags = job.flags
    with resident((job.folder, "codes"), job.codes) as codes:
        index, distance = job.lists.read(lo, hi)
        near = slice(0, min(job.n_global, list_rows(job.n_rows)))
        found: dict[str, Any] = {}
        for name, column in (("clisi", "label"), ("ilisi", "batch")):
            if flags[name]:
                found[name] = lisi_block(
                    index[:, near], distance[:, near], codes[column],
                    flags["n_labels" if column == "label" else "n_batches"],
                    compat=flags["compat"],
                )  # fmt: skip
        if flags["cilisi"]:
            if job.same_label is None:
                same, far = index[:, job.n_global :], distance[:, job.n_global :]
            else:
                same, far = job.same_label.read(lo, hi)
            found["cilisi"] = same_label_lisi(
                same, far, codes["batch"],
                codes["label"][lo:hi], codes["label_cells"], codes["label_batches"],
                flags["n_batches"], compat=flags["compat"],
            )  # fmt: skip
        if flags["votes"]:
            found["votes"] = vote_block(
                index[:, : job.n_global], codes["fold"][lo:hi], codes["fold"], codes["label"],
                complete=job.n_global >= job.n_rows - 1,
            )  # fmt: skip
        if flags["edges"]:
            found["edges"] = np.array(index[:, : flags["edges"]], np.int32)
    return found
