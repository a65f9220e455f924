"""The neighbours of one row, from one pass over the embedding.

They are one list, of all types, nearest first by (distance, row); it reaches as far as its caller
needs, and what is of which type is told from the codes of the scope.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.design import Scope
from croma_dask.errors import SchemaError
from croma_dask.index.source import RowSource
from croma_dask.kernels import dots_numpy, screen
from croma_dask.kernels.typing import F64, I32, I64, Floats
from croma_dask.robustness import evidence as ev

__all__ = ["RowList", "Wanted", "listed", "search_row"]

_IN_NUMPY = 1 << 29
"""Values of an embedding up to which numpy is done before kernels would be compiled (measured:
0.2 million rows of 1,024 features a second)."""

_AT_ONCE = 1024
"""Rows that are measured at once: what is copied of them stays small."""


@dataclass(frozen=True)
class Wanted:
    """How far the list of a row has to reach, and what there is.

    Attributes
    ----------
    scope, row
        Where the row is searched, and its position there.
    k, m
        Neighbours of any type; SO and OS neighbours each.
    n, n_so, n_os
        Candidates of another group that exist: any, SO, OS.
    """

    scope: Scope
    row: int
    k: int
    m: int
    n: int
    n_so: int
    n_os: int

    @classmethod
    def of(cls, scope: Scope, row: int, k: int, m: int) -> Wanted:
        """Count the candidates of a row."""
        masks = _masks(scope, row)
        return cls(scope, row, k, m, *(int(mask.sum()) for mask in masks))

    def reached(self, found: RowList) -> bool:
        """Whether a list holds the k nearest candidates, and the m nearest SO and OS ones."""
        have = (
            len(found.index),
            int((found.kind == ev.SO).sum()),
            int((found.kind == ev.OS).sum()),
        )
        need = (min(self.k, self.n), min(self.m, self.n_so), min(self.m, self.n_os))
        return all(h >= n for h, n in zip(have, need, strict=True))


@dataclass(frozen=True)
class RowList:
    """Nearest candidates of one row, without a gap.

    Attributes
    ----------
    index
        (n,) positions in the scope.
    distance
        (n,) cosine distances.
    kind
        (n,) type, as in robustness/evidence.py.
    """

    index: I64
    distance: F64
    kind: NDArray[np.int8]

    @property
    def typed_rank(self) -> I64:
        """(n,) rank among the SO, or among the OS neighbours; 0 of others."""
        rank = np.zeros(len(self.index), np.int64)
        for kind in (ev.SO, ev.OS):
            mine = self.kind == kind
            rank[mine] = np.arange(1, int(mine.sum()) + 1)
        return rank

    def typed_distances(self, kind: int, m: int) -> F64:
        """(m,) distances of the m nearest of a type, NaN behind the last."""
        found = np.full(m, np.nan)
        mine = self.distance[self.kind == kind][:m]
        found[: len(mine)] = mine
        return found


def _masks(scope: Scope, row: int) -> tuple[NDArray[np.bool_], ...]:
    """(n,) each: candidates of another group, and those of them that are SO and OS."""
    eligible = scope.group != scope.group[row]
    same_label = scope.label == scope.label[row]
    same_confounder = scope.confounder == scope.confounder[row]
    return (
        eligible,
        eligible & same_label & ~same_confounder,
        eligible & ~same_label & same_confounder,
    )


def listed(scope: Scope, row: int, index: I64, distance: F64) -> RowList:
    """Tell the types of the candidates of a row, which are nearest first."""
    kind = ev.kinds_at(index[None].astype(np.int32), scope, np.array([row]))[0]
    return RowList(index, distance, kind)


def search_row(source: RowSource, wanted: Wanted) -> RowList:
    """Search the neighbours of one row exactly, in one pass over the rows of its scope.

    Parameters
    ----------
    source
        Rows of the scope.
    wanted
        Row, and how far its list has to reach.

    Raises
    ------
    SchemaError
        A row holds NaN or inf, so that a distance is no number.

    Notes
    -----
    The same distances as those of every search, bit for bit (kernels/dots_numpy.py), to all
    candidates; so nothing is screened and nothing has to be certified. Memory: a chunk, 2 MiB
    beside it, and about 40 bytes a row of the scope.
    """
    distance = _distances(source, wanted.row)
    masks = _masks(wanted.scope, wanted.row)
    if np.isnan(distance[masks[0]]).any():
        raise SchemaError(
            "the embedding holds NaN or inf: a distance of this sample is no number; leave these "
            "rows out or embed them again"
        )
    reach = max(
        _reach(distance[mask], most)
        for mask, most in zip(masks, (wanted.k, wanted.m, wanted.m), strict=True)
    )
    near = np.flatnonzero(masks[0] & (distance <= reach))
    near = near[np.argsort(distance[near], kind="stable")]
    return listed(wanted.scope, wanted.row, near, distance[near])


def _reach(distance: F64, most: int) -> float:
    """Distance of the last of the nearest `most`; below all others where there is none."""
    most = min(most, distance.size)
    return float(np.partition(distance, most - 1)[most - 1]) if most else -1.0


def _distances(source: RowSource, row: int) -> F64:
    """(n,) distance of every row of a scope from one of them."""
    measure = _compiled if source.n_rows * source.n_features > _IN_NUMPY else _in_numpy
    query = screen.native(source.read(row, row + 1))
    out = np.empty(source.n_rows)
    for where, rows in source.pieces(0, source.n_rows):
        part = np.empty(rows.shape[0])
        for lo in range(0, rows.shape[0], _AT_ONCE):
            x = screen.native(rows[lo : lo + _AT_ONCE])
            measure(query, x, part[lo : lo + x.shape[0]])
        out[where] = part
    return out


def _in_numpy(query: Floats, x: Floats, out: F64) -> None:
    norms = dots_numpy.squared_norms(query), dots_numpy.squared_norms(x)
    with np.errstate(invalid="ignore", over="ignore"):
        dots_numpy.pair_distances(query, norms[0], x, norms[1], *_pairs(x.shape[0]), out)


def _compiled(query: Floats, x: Floats, out: F64) -> None:
    from croma_dask.kernels import dots

    norms = np.empty(1), np.empty(x.shape[0])
    dots.squared_norms(query, norms[0])
    dots.squared_norms(x, norms[1])
    dots.pair_distances(query, norms[0], x, norms[1], *_pairs(x.shape[0]), out)


def _pairs(n: int) -> tuple[I32, I32]:
    """Positions of the query and of each of n rows."""
    return np.zeros(n, np.int32), np.arange(n, dtype=np.int32)
