"""Move the rows of a reader into a writer, a chunk at a time, and look at each of them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import EmbeddingReader, check_finite_cast, convert
from croma_dask.cohort.rows import RowPlan
from croma_dask.cohort.writer import CohortWriter
from croma_dask.errors import SchemaError, name_items, name_rows
from croma_dask.progress import Progress

__all__ = ["stream"]


def stream(
    reader: EmbeddingReader,
    writer: CohortWriter,
    plan: RowPlan,
    target: np.dtype[Any],
    progress: bool,
) -> None:
    """Move all rows from the reader to the writer, checking each.

    Parameters
    ----------
    reader, writer
        Source and destination; the writer may have rows of an earlier run.
    plan
        Which rows of the reader repeat a tile.
    target
        dtype that is stored.
    progress
        Show progress on standard error.

    Raises
    ------
    SchemaError
        A row holds NaN or infinity (all of them are counted, the first five named), or a repeated
        tile comes with other features.

    Notes
    -----
    Memory: one chunk as it is read, converted and written.
    """
    n_rows = reader.shape[0]
    start = writer.position
    if plan.file_tile is not None or not writer.same_source:
        writer.replay()
        start = 0
    repeats = _RepeatCheck(plan)
    with Progress("ingest", n_rows, quiet=not progress) as bar:
        bar.skip(start)
        for lo in range(start, n_rows, writer.chunk_rows):
            hi = min(lo + writer.chunk_rows, n_rows)
            rows = convert(reader.read(lo, hi), target)
            if not np.isfinite(rows).all():
                _raise_not_finite(reader, lo, target, writer.chunk_rows)
            writer.write(repeats.new_rows(lo, rows))
            bar.advance(hi - lo)


def _raise_not_finite(
    reader: EmbeddingReader, start: int, target: np.dtype[Any], step: int
) -> None:
    """Count the rows that are not finite, from the first one found to the end, and raise."""
    found: dict[str, list[NDArray[np.int64]]] = {"NaN": [], "infinity": []}
    for lo in range(start, reader.shape[0], step):
        rows = convert(reader.read(lo, min(lo + step, reader.shape[0])), target)
        for kind, mask in (("NaN", np.isnan(rows)), ("infinity", np.isinf(rows))):
            found[kind].append(np.flatnonzero(mask.any(axis=1)) + lo)
    parts = []
    for kind, pieces in found.items():
        where = np.concatenate(pieces)
        if len(where):
            count = f"{len(where):,} row" + ("s" if len(where) > 1 else "")
            parts.append(f"{kind} in {count} ({_name_rows(where, reader.ids)})")
    raise SchemaError(
        f"the embedding has {' and '.join(parts)}{check_finite_cast(reader.dtype, target)}; leave "
        "these rows out or repair them"
    )


def _name_rows(rows: NDArray[np.int64], ids: NDArray[np.object_] | None) -> str:
    text = name_rows(rows)
    if ids is not None:
        text += f", ids {name_items([str(ids[row]) for row in rows[:5]], total=len(rows))}"
    return text


class _RepeatCheck:
    """Keep the first row of each tile, and require that the others are equal to it."""

    def __init__(self, plan: RowPlan) -> None:
        self.tiles = plan.file_tile
        self._next = 0
        if self.tiles is not None:
            counts = np.bincount(self.tiles, minlength=plan.n_tiles)
            self._slot = np.where(counts > 1, np.cumsum(counts > 1) - 1, -1)
            self._digests = np.zeros((int((counts > 1).sum()), 16), dtype=np.uint8)

    def new_rows(self, lo: int, rows: NDArray[Any]) -> NDArray[Any]:
        """Return those of the rows, which start at row `lo` of the file, that are new tiles."""
        if self.tiles is None:
            return rows
        tiles = self.tiles[lo : lo + len(rows)]
        keep = np.zeros(len(rows), dtype=bool)
        for i, tile in enumerate(tiles):
            slot = self._slot[tile]
            new = tile == self._next
            if slot >= 0:
                # adding zero makes -0.0 and 0.0 the same bytes
                digest = hashlib.blake2b((rows[i] + 0).tobytes(), digest_size=16).digest()
                stored = np.frombuffer(digest, dtype=np.uint8)
                if new:
                    self._digests[slot] = stored
                elif not np.array_equal(self._digests[slot], stored):
                    self._raise(int(tile), lo + i)
            if new:
                keep[i] = True
                self._next += 1
        return rows[keep]

    def _raise(self, tile: int, row: int) -> None:
        assert self.tiles is not None
        first = int(np.flatnonzero(self.tiles == tile)[0])
        raise SchemaError(
            f"rows {first} and {row} of the embedding belong to the same tile but have different "
            "features; a tile that is repeated in several subsets must have one embedding"
        )
