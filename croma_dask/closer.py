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

AT_ONCE = 1_280
"""Queries that are searched together: a sample of the default size is."""


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
        parts = [self._some(places[lo : lo + AT_ONCE], what)
                 for lo in range(0, max(places.shape[0], 1), AT_ONCE)]  # fmt: skip
        return (
            Delivered(
                np.concatenate([part.index for part, _ in parts]),
                np.concatenate([part.distance for part, _ in parts]),
            ),
            np.concatenate([at for _, at in parts]),
        )

    def _some(self, places: I64, what: str) -> tuple[Delivered, I32]:
        job, mine = self.job, self.codes.take(places)
        token = uuid.uuid4().hex
        file = f"queries-{token}.npz"
        job.scratch.write(
            file,
            {
                "x": read_native(TakenRows(job.source, places.astype(np.int64)), 0, places.size),
                "label": mine.label, "confounder": mine.confounder, "group": mine.group,
            },
        )  # fmt: skip
        # Ranges are read in the order of the index: any radius will do for that.
        shared = f"croma-job-{token}"
        graph: dict[str, Any] = {shared: replace(job, radius=Radius(0, 0, 0))}
        last = [f"croma-sample-{token}-{number}" for number in range(job.n_ranges)]
        graph |= {key: (sample_range, shared, n, file) for n, key in enumerate(last)}
        pairs = places.size * self.row.shape[0]
        each = pairs // job.n_ranges
        allow_tasks(job.scratch)
        with Progress(what, pairs, "row pairs", self.options.quiet) as progress:
            parts = run_graph(
                graph, last, client=self.client, n_threads=self.n_tasks, terms=self.terms,
                on_done=lambda key, _: progress.advance(each if key in last else 0),
                on_stop=lambda: stop_tasks(job.scratch),
            )  # fmt: skip
        job.scratch.delete(file)
        return merge_samples(parts, job.spec, self.row)


@dataclass(frozen=True)
class CloserLook:
    """Replaces lists of an approximate search by exact ones, where a decision hangs on them.

    It goes in rounds. Which rows a round has looked at is kept in scratch: whoever resumes looks at
    the same ones, and comes to the same bits.

    Attributes
    ----------
    exact
        How rows are searched.
    lists
        Lists of all rows.
    """

    exact: ExactSearch
    lists: IndexedLists

    def begun(self, number: int) -> tuple[I64, F64] | None:
        """Rows of the scope that a round of an interrupted run has looked at, and its note."""
        kept = self.exact.job.scratch.find(_name(number))
        if kept is None:
            return None
        self.lists.put(kept["rows"], Delivered(kept["index"], kept["distance"]))
        return kept["rows"], kept["note"]

    def look(self, number: int, rows: I64, note: F64) -> None:
        """Search some rows of the scope exactly, and put their lists in the place of the others.

        Parameters
        ----------
        number
            Of the round.
        rows
            (q,) int64.
        note
            What the caller has to know of them when it resumes.
        """
        place = np.empty(self.exact.row.shape[0], np.int64)
        place[self.exact.row] = np.arange(place.shape[0])
        # In the order of the index: rows that lie together are read together.
        rows = rows[np.argsort(place[rows])]
        found, _ = self.exact.search(place[rows], "closer look")
        self.exact.job.scratch.write(
            _name(number),
            {"rows": rows, "note": note, "index": found.index, "distance": found.distance},
        )
        self.lists.put(rows, found)


def _name(number: int) -> str:
    return f"closer-{number}.npz"
