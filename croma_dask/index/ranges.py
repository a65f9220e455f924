"""A range of rows as a task holds it: exact rows, screening rows, codes, sorted by cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask.index.source import Codes, RowSource
from croma_dask.kernels import screen
from croma_dask.kernels.frame import Frame
from croma_dask.kernels.typing import F32, F64, I32, Floats

__all__ = ["Range", "load_range", "read_native"]


_SKETCHED = 1024
"""Rows whose centred unit vectors are made at once, to be sketched."""


@dataclass(frozen=True)
class Range:
    """Rows lo..hi of a scope, ordered by (label, confounder, row).

    Attributes
    ----------
    x, norm
        (n, D) exact rows, float32 or float64, and their `<x, x>`.
    centred, half, length
        (n, D) float32 centred unit vectors (or a sketch of them), their half-norm terms, and their
        lengths.
    position
        (n,) position in the scope of each row held here.
    place
        (n,) inverse: where row `lo + i` of the scope is held here.
    run_end
        (n,) end of the run of equal (label, confounder) that a row lies in.
    frame
        How the rows are screened.
    """

    lo: int
    hi: int
    x: Floats
    norm: F64
    centred: F32
    half: F32
    length: F64
    label: I32
    confounder: I32
    group: I32
    position: I32
    place: I32
    run_end: I32
    frame: Frame

    def __len__(self) -> int:
        return self.hi - self.lo

    @property
    def longest(self) -> float:
        """Largest length of a centred row."""
        return float(self.length.max(initial=0.0))

    @property
    def largest_half(self) -> float:
        """Largest half-norm term."""
        return float(self.half.max(initial=0.0))

    def confounders(self, *, same_label: bool) -> I32:
        """Confounders as rows of other ranges are compared with them.

        Rows of one label are of one type when no two of them share a confounder: so that there are
        lists of the same label, a code that no row has.
        """
        if same_label:
            return np.full(len(self), np.iinfo(np.int32).min, np.int32)
        return self.confounder


def read_native(
    source: RowSource, lo: int, hi: int, order: Any = None, frame: Frame | None = None
) -> Floats:
    """Rows lo..hi as native floats, chunk by chunk, each put where `order` wants it.

    Rows of a frame are as its distance takes them; by default as the cosine distance does.
    """
    convert = screen.native if frame is None else frame.native
    dtype = np.dtype(source.dtype)
    out: Floats = np.empty((hi - lo, source.n_features), screen.native_dtype(dtype))
    for where, rows in source.pieces(lo, hi):
        out[where if order is None else order[where]] = convert(rows)
    return out


def load_range(
    source: RowSource, codes: Codes, lo: int, hi: int, frame: Frame, cluster: I32 | None = None,
    basis: F32 | None = None,
) -> Range:  # fmt: skip
    """Read rows lo..hi of a scope.

    Parameters
    ----------
    source
        Rows of the scope.
    codes
        Codes of the rows lo..hi (not of the whole scope).
    lo, hi
        Range of positions in the scope.
    frame
        Distance, and origin of the screening.
    cluster
        (hi - lo,) cluster of each row, ascending: rows are then ordered by (cluster, label,
        confounder, row).
    basis
        (D, r) directions of a sketch, which then takes the place of the centred rows.
    """
    from croma_dask.kernels.dots import squared_norms

    n = hi - lo
    keys = (np.arange(n), codes.confounder, codes.label)
    order = np.lexsort(keys if cluster is None else (*keys, cluster))
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    x = read_native(source, lo, hi, place, frame)
    norm = np.zeros(n)
    if not frame.is_euclidean:
        squared_norms(x, norm)
    centred, half, length = _screening(x, norm, frame, basis)
    label, confounder = codes.label[order], codes.confounder[order]
    change = np.flatnonzero((np.diff(label) != 0) | (np.diff(confounder) != 0)) + 1
    ends = np.append(change, n)
    run_end = ends[np.searchsorted(ends, np.arange(n), side="right")].astype(np.int32)
    return Range(
        lo=lo,
        hi=hi,
        x=x,
        norm=norm,
        centred=centred,
        half=half.astype(np.float32),
        length=length,
        label=label,
        confounder=confounder,
        group=codes.group[order],
        position=(lo + order).astype(np.int32),
        place=place,
        run_end=run_end,
        frame=frame,
    )


def _screening(x: Floats, norm: F64, frame: Frame, basis: F32 | None) -> tuple[F32, F64, F64]:
    """Centred unit vectors or their sketch, half-norms and lengths."""
    if basis is None or not basis.shape[1]:
        centred = np.empty(x.shape, np.float32)
        return centred, *frame.centre(x, norm, centred)
    n = x.shape[0]
    sketch = np.empty((n, basis.shape[1]), np.float32)
    half, length = np.empty(n), np.empty(n)
    block = np.empty((_SKETCHED, x.shape[1]), np.float32)
    for lo in range(0, n, _SKETCHED):
        hi = min(n, lo + _SKETCHED)
        part = block[: hi - lo]
        half[lo:hi], length[lo:hi] = frame.centre(x[lo:hi], norm[lo:hi], part)
        np.matmul(part, basis, out=sketch[lo:hi])
    return sketch, half, length
