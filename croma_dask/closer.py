"""Rows of a scope that are searched exactly beside an approximate search of all rows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from croma_dask.index.finish import Delivered
from croma_dask.index.neighbors import IndexedLists
from croma_dask.index.probed import merge_samples, sample_range
from croma_dask.index.probing import Radius
from croma_dask.index.ranges import read_native
from croma_dask.index.source import Codes, TakenRows
from croma_dask.index.streamed import Job, allow_tasks, stop_tasks
from croma_dask.kernels.typing import F64, I32, I64
from croma_dask.options import Options
from croma_dask.progress import Progress
from croma_dask.tasks import run_graph

__all__ = ["CloserLook", "ExactSearch"]

AT_ONCE = 4096
"""Queries that are searched together, while every row of the scope is read once."""


@dataclass(frozen=True)
class ExactSearch:
    """Exact search of some rows of a scope through the shards of an index.

    Attributes
    ----------
    job, codes, row
        The approximate search; codes, and row of the scope, at each place of the index.
    terms
        Bytes that a task takes, by name.
    options, client, n_tasks
        Where it runs.
    """

    job: Job
    codes: Codes
    row: I32
    terms: Mapping[str, int]
    options: Options
    client: Any
    n_tasks: int

    def search(self, places: I64, what: str) -> tuple[Delivered, I32]:
        """Exact lists of the rows at some places, and the places of the index of their entries.

        Parameters
        ----------
        places
            (q,) places of the index.
        what
            What the queries are for, as the progress says it.
        """
        with self.progress(what, places.size) as progress:
            parts = [
                self.some(places[lo : lo + AT_ONCE], progress)
                for lo in range(0, max(places.size, 1), AT_ONCE)
            ]
        return (
            Delivered(
                np.concatenate([part.index for part, _ in parts]),
                np.concatenate([part.distance for part, _ in parts]),
            ),
            np.concatenate([at for _, at in parts]),
        )

    def progress(self, what: str, n_queries: int) -> Progress:
        """Progress of a search of so many queries."""
        return Progress(what, n_queries * self.row.shape[0], "row pairs", self.options.quiet)

    def some(self, places: I64, progress: Progress) -> tuple[Delivered, I32]:
        """Search the rows at some places, all of them at once."""
        job, mine = self.job, self.codes.take(places)
        source = TakenRows(job.source, places.astype(np.int64))
        token = uuid.uuid4().hex
        file = f"queries-{token}.npz"
        job.scratch.write(
            file,
            {
                "x": read_native(source, 0, places.size, frame=job.frame),
                "label": mine.label, "confounder": mine.confounder, "group": mine.group,
            },
        )  # fmt: skip
        # Ranges are read in the order of the index: any radius will do for that.
        shared = f"croma-job-{token}"
        graph: dict[str, Any] = {shared: replace(job, radius=Radius(0, 0, 0))}
        last = [f"croma-sample-{token}-{number}" for number in range(job.n_ranges)]
        graph |= {key: (sample_range, shared, n, file) for n, key in enumerate(last)}
        work = {key: places.size * (job.edges[n + 1] - job.edges[n]) for n, key in enumerate(last)}
        allow_tasks(job.scratch)
        try:
            parts = run_graph(
                graph, last, client=self.client, n_threads=self.n_tasks, terms=self.terms,
                on_done=lambda key, _: progress.advance(work.get(key, 0)),
                on_stop=lambda: stop_tasks(job.scratch),
            )  # fmt: skip
        finally:
            job.scratch.delete(file)
        return merge_samples(parts, job.spec, self.row)


@dataclass(frozen=True)
class CloserLook:
    """Gives rows of an approximate search their exact lists, where a decision hangs on them.

    It goes in rounds. Which rows a round looks at is written down before it begins, and what it
    finds part by part: whoever resumes looks at the same ones, and comes to the same bits.

    Attributes
    ----------
    exact
        How rows are searched.
    lists
        Lists of all rows.
    """

    exact: ExactSearch
    lists: IndexedLists

    def chosen(self, name: str) -> tuple[I64, F64] | None:
        """Rows of the scope that a round of an interrupted run has chosen, and its note."""
        kept = self.exact.job.scratch.find(f"closer-{name}.npz")
        return None if kept is None else (kept["rows"], kept["note"])

    def look(self, name: str, rows: I64, note: F64) -> None:
        """Search some rows of the scope exactly; their lists then cover the approximate ones.

        Parameters
        ----------
        name
            Of the round: whatever its choice depends on beside the lists.
        rows
            (q,) int64.
        note
            What the caller has to know of them when it resumes.
        """
        scratch = self.exact.job.scratch
        if self.chosen(name) is None:
            scratch.write(f"closer-{name}.npz", {"rows": rows, "note": note})
        place = np.empty(self.exact.row.shape[0], np.int64)
        place[self.exact.row] = np.arange(place.shape[0])
        # In the order of the index: rows that lie together are read together.
        rows = rows[np.argsort(place[rows])]
        with self.exact.progress("closer look", rows.size) as progress:
            for number, lo in enumerate(range(0, rows.size, AT_ONCE)):
                part = rows[lo : lo + AT_ONCE]
                file = f"closer-{name}-{number:03d}.npz"
                kept = scratch.find(file)
                if kept is None:
                    found, _ = self.exact.some(place[part], progress)
                    scratch.write(file, {"index": found.index, "distance": found.distance})
                else:
                    found = Delivered(kept["index"], kept["distance"])
                    progress.skip(part.size * place.shape[0])
                self.lists.cover(part, found)
