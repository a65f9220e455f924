"""An embedding that is to be scored: its rows by reference, looked at once."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask import __version__
from croma_dask.cluster import for_client, tasks_a_process
from croma_dask.cohort.align import Embedding
from croma_dask.embedding.extent import find_bad
from croma_dask.embedding.rows import GroupRows
from croma_dask.embedding.spans import blocks
from croma_dask.fingerprint import text_digest
from croma_dask.first_pass import look_over, open_source
from croma_dask.index.profile import Profile, check_profile
from croma_dask.index.source import NpySource, RowSource, TakenRows
from croma_dask.options import Options

__all__ = ["Opened", "open_embedding"]


@dataclass(frozen=True)
class Opened:
    """An embedding, and where work on it runs.

    Attributes
    ----------
    embedding, source
        Its rows: for the search, and by reference. The first carries its fingerprint.
    profile
        What one pass over all rows has seen; rows that are no numbers left out of it.
    bad
        (tiles,) rows with NaN or inf; None where there are none.
    options, client, n_tasks
        Memory, threads, scratch; cluster or None; tasks at once in a process.
    """

    embedding: Embedding
    source: RowSource
    profile: Profile
    bad: NDArray[np.bool_] | None
    options: Options
    client: Any
    n_tasks: int

    def tiles(self, rows: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return the stored rows of some rows of the manifest; None where they are all in order."""
        of_row = self.embedding.tile_of_row
        if rows is None:
            return of_row
        return rows if of_row is None else of_row[rows]

    def rows(self, group: GroupRows) -> RowSource:
        """Rows of a group, by reference."""
        tiles = self.tiles(group.rows)
        return self.source if tiles is None else TakenRows(self.source, tiles)

    def key(self, what: str, group: GroupRows, *how: object) -> str:
        """Name what a step keeps in scratch by all that it depends on."""
        tiles = self.tiles(group.rows)
        arrays = [group.label.codes]
        arrays += [] if group.batch is None else [group.batch.codes]
        parts: list[str | bytes] = [a.tobytes() for a in arrays]
        parts += [] if tiles is None else [np.ascontiguousarray(tiles).tobytes()]
        said = repr((__version__, self.embedding.fingerprint, [len(p) for p in parts], how))
        return text_digest(what, said, *parts)

    def n_bad(self, group: GroupRows) -> int:
        """Rows of a group with NaN or inf."""
        if self.bad is None:
            return 0
        tiles = self.tiles(group.rows)
        return int(np.count_nonzero(self.bad if tiles is None else self.bad[tiles]))


def open_embedding(
    embedding: Embedding, options: Options, client: Any, keep: contextlib.ExitStack
) -> Opened:
    """Open an embedding and look at each of its rows.

    Parameters
    ----------
    embedding
        Rows that a manifest refers to.
    options, client
        What the run may use.
    keep
        Deletes what had to be written for it when the caller is done.

    Raises
    ------
    SchemaError
        Rows are so long that their distances cannot be computed.
    """
    options = for_client(options, client)
    source = open_source(embedding, options, keep, streamed=True, workers=client is not None)
    profile, digest = look_over(source, embedding, options, client, "euclidean")
    bad = _find_bad(source) if profile.n_bad else None
    # The search looks at the same rows again otherwise, and refuses what it is not asked about.
    profile = replace(profile, n_bad=0, n_inf=0, first_bad=[])
    check_profile(profile, "euclidean")
    data = embedding.data
    if isinstance(source, NpySource):
        # What was lazy has been computed: not once more.
        data = np.load(source.path, mmap_mode="r", allow_pickle=False)
    return Opened(
        replace(embedding, data=data, fingerprint=digest), source, profile, bad, options, client,
        tasks_a_process(client, options),
    )  # fmt: skip


def _find_bad(source: RowSource) -> NDArray[np.bool_]:
    # Finite values that are too large for it are refused with the profile.
    bad = np.zeros(source.n_rows, bool)
    for lo, hi in blocks(0, source.n_rows):
        bad[lo + find_bad(source.read(lo, hi))] = True
    return bad
