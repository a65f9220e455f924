"""The fuzzy graph within each label: gathered from blocks of lists, given out label by label.

kBET's graphs are those of single labels, so that of a row's list only neighbours of its own label
stay: 8 bytes each, in memory or in one file a label. The lists themselves go by in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from croma_dask.embedding.fuzzy import memberships
from croma_dask.errors import SchemaError
from croma_dask.kernels.typing import F32, F64, I32, Bool

__all__ = ["Block", "LabelEdges", "LabelLists", "gather_edges"]

Block: TypeAlias = tuple[int, I32, F64]
"""First row of a block; (rows, m) positions of each row's nearest others; their distances."""

_BUFFER = 64 << 20
"""Bytes of edges that wait in memory before they go to the files."""

_Part: TypeAlias = tuple[I32, I32, F32]
"""Of consecutive rows of a label: entries of each, their columns, their weights."""

_TYPES = {"count": np.int32, "column": np.int32, "weight": np.float32, "batch": np.int32}


@dataclass(frozen=True)
class LabelLists:
    """Lists of the rows of one label among themselves.

    Attributes
    ----------
    index
        (n_c, width) positions among the rows of the label, nearest first, -1 behind the last.
    weight
        (n_c, width) directed weights, 0 behind the last.
    batch
        (n_c,) batch of each row.
    """

    index: I32
    weight: F32
    batch: I32


@dataclass(frozen=True)
class LabelEdges:
    """Where the lists of each label are: in a folder that all workers see, or in here.

    Attributes
    ----------
    folder
        Folder; None where they are held in memory.
    held
        By label: what the files would hold.
    """

    folder: str | None
    held: dict[int, dict[str, I32 | F32]]

    def file(self, label: int, what: str) -> Path:
        """Place of what is kept of a label."""
        assert self.folder is not None
        return Path(self.folder) / f"kbet-{label:06d}.{what}"

    def read(self, label: int) -> LabelLists:
        """Return the lists of one label."""
        kept: dict[str, Any]
        if self.folder is None:
            kept = self.held[label]
        else:
            kept = {what: np.fromfile(self.file(label, what), t) for what, t in _TYPES.items()}
        count = kept["count"]
        width = int(count.max(initial=0))
        there = np.arange(width) < count[:, None]
        index = np.full(there.shape, -1, np.int32)
        index[there] = kept["column"]
        weight = np.zeros(there.shape, np.float32)
        weight[there] = kept["weight"]
        return LabelLists(index, weight, kept["batch"].astype(np.int32, copy=False))

    def delete(self) -> None:
        """Delete the files, of whichever labels there are."""
        if self.folder is not None:
            for what in _TYPES:
                for path in Path(self.folder).glob(f"kbet-*.{what}"):
                    path.unlink(missing_ok=True)


def gather_edges(
    blocks: Iterable[Block], labels: I32, batches: I32, wanted: Bool, *, folder: str | None = None
) -> LabelEdges:
    """Keep of all lists what lies within labels.

    Parameters
    ----------
    blocks
        The lists of all rows, in the order of the rows, cut in any way.
    labels, batches
        (n,) codes of all rows.
    wanted
        (L,) labels whose edges are kept.
    folder
        Where to keep them; None for memory.

    Returns
    -------
    LabelEdges
        The same whatever the cut.
    """
    sizes = np.bincount(labels, minlength=wanted.size)
    order = np.argsort(labels, kind="stable")
    place = np.empty(labels.size, np.int32)
    first = np.cumsum(sizes) - sizes
    place[order] = np.arange(labels.size) - np.repeat(first, sizes)
    edges = LabelEdges(folder, {})
    edges.delete()
    kept: dict[int, list[_Part]] = {int(c): [] for c in np.flatnonzero(wanted)}
    waiting = done = 0
    for lo, index, distance in blocks:
        if lo != done:
            raise SchemaError(f"a block of lists begins at row {lo}, expected row {done}")
        done += index.shape[0]
        own = labels[lo:done]
        weight = memberships(index, distance)
        inside = (index >= 0) & (labels[index] == own[:, None]) & (weight > 0)
        for c in np.flatnonzero(np.bincount(own, minlength=wanted.size) * wanted).tolist():
            rows = np.flatnonzero(own == c)
            there = inside[rows]
            column = place[index[rows][there]]
            kept[c].append((there.sum(axis=1, dtype=np.int32), column, weight[rows][there]))
            waiting += 8 * column.size + 4 * rows.size
        if folder is not None and waiting > _BUFFER:
            _append(edges, kept)
            waiting = 0
    if done != labels.size:
        raise SchemaError(f"the blocks of lists end at row {done}, expected {labels.size}")
    if folder is not None:
        _append(edges, kept)
    for c, parts in kept.items():
        batch = batches[order[first[c] : first[c] + sizes[c]]].astype(np.int32, copy=False)
        if folder is None:
            edges.held[c] = {**_joined(parts), "batch": batch}
            parts.clear()
        else:
            batch.tofile(edges.file(c, "batch"))
    return edges


def _joined(parts: Sequence[_Part]) -> dict[str, I32 | F32]:
    counts, columns, weights = zip(*parts, strict=True)
    return {
        "count": np.concatenate(counts),
        "column": np.concatenate(columns),
        "weight": np.concatenate(weights),
    }


def _append(edges: LabelEdges, kept: dict[int, list[_Part]]) -> None:
    """Move what waits to the files."""
    for c, parts in kept.items():
        if not parts:
            continue
        for what, array in _joined(parts).items():
            with open(edges.file(c, what), "ab") as f:
                array.tofile(f)
        parts.clear()
