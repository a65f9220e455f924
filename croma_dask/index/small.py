"""The search of a small scope in plain numpy: done before a compiler would have started."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from croma_dask.index.finish import Delivered
from croma_dask.index.ranges import read_native
from croma_dask.index.source import Codes, RowSource
from croma_dask.index.spec import ListSpec
from croma_dask.kernels import dots_numpy, screen
from croma_dask.kernels.constants import U64
from croma_dask.kernels.frame import Distance, Frame
from croma_dask.kernels.order import nearest_first
from croma_dask.kernels.products import products
from croma_dask.kernels.typing import F64, I32, I64, Bool, Floats

__all__ = ["search_small"]

_BLOCK_BYTES = 4 << 20
"""Size of a block of queries' distances."""


def search_small(
    source: RowSource, codes: Codes, spec: ListSpec, distance: Distance = "cosine"
) -> tuple[Delivered, int]:
    """Exact lists of all rows of a scope, block of queries by block of queries.

    The same distances, ties and lists as the compiled search, bit for bit; the screening is in
    float64, where the error band is so narrow that only true ties fall into it.

    Parameters
    ----------
    source, codes
        Rows of the scope and their codes.
    spec
        Lists to deliver.
    distance
        ``cosine`` or ``euclidean``.

    Returns
    -------
    delivered, failing
        (n, delivered) lists in the order of the scope, and how many rows needed a second look.
    """
    n = source.n_rows
    spec = spec.clipped(n)
    frame, x, norm = _frame(source, distance)
    centred = np.empty(x.shape)
    half, length = frame.centre(x, norm, centred)
    longest, largest_half = float(length.max(initial=0.0)), float(half.max(initial=0.0))
    index, found, failing = [], [], np.zeros(n, bool)
    step = max(1, _BLOCK_BYTES // (8 * max(n, 1)))
    for lo in range(0, n, step):
        hi = min(n, lo + step)
        dots = np.empty((hi - lo, n))
        products(centred[lo:hi], centred, dots)
        screened = half[lo:hi, None] + half[None, :] - dots
        eligible = codes.group[lo:hi, None] != codes.group[None, :]
        same_label = codes.label[lo:hi, None] == codes.label[None, :]
        same_confounder = (codes.confounder[lo:hi, None] == codes.confounder[None, :]) & (
            not spec.same_label
        )
        masks = (
            eligible,
            eligible & same_label & ~same_confounder,
            eligible & ~same_label & same_confounder,
        )
        # A scope of one row has lists without places.
        nobody = np.zeros(hi - lo, bool)
        parts = [(np.empty((hi - lo, 0), np.int32), np.empty((hi - lo, 0)), nobody)]
        for q, mask in enumerate(masks):
            wanted = int(spec.deliver[q])
            if wanted:
                bound = functools.partial(
                    frame.error_bound, x.shape[1], length[lo:hi], half[lo:hi], longest,
                    largest_half, unit=U64,
                )  # fmt: skip
                part = _nearest(
                    x, norm, frame, lo, screened, mask, bound, wanted, int(spec.length[q])
                )
                failing[lo:hi] |= part[2]
                parts.append(part)
        index.append(np.concatenate([p[0] for p in parts], axis=1))
        found.append(np.concatenate([p[1] for p in parts], axis=1))
    return Delivered(np.concatenate(index), np.concatenate(found)), int(failing.sum())


def _frame(source: RowSource, distance: Distance) -> tuple[Frame, Floats, F64]:
    """All rows, their `<x, x>` where the distance needs it, and where their screening begins."""
    n = source.n_rows
    if distance == "euclidean":
        x = read_native(source, 0, n, frame=Frame(np.zeros(source.n_features), distance))
        wide = x.astype(np.float64, copy=False)
        largest = float(np.sqrt(np.einsum("ij,ij->i", wide, wide).max(initial=0.0)))
        return Frame.euclidean(wide.mean(axis=0), largest), x, np.zeros(n)
    x = read_native(source, 0, n)
    norm = dots_numpy.squared_norms(x)
    return Frame(screen.unit_sum(x, norm) / max(n, 1)), x, norm


def _nearest(
    x: Floats,
    norm: F64,
    frame: Frame,
    lo: int,
    screened: F64,
    mask: Bool,
    bound: Callable[..., F64],
    wanted: int,
    length: int,
) -> tuple[I32, F64, Bool]:
    """Nearest `wanted` of the masked candidates of a block of queries, and who had to be redone."""
    rows, n = screened.shape
    masked = np.where(mask, screened, np.inf)
    length = min(length, n)
    if length < n:
        part = np.argpartition(masked, length - 1, axis=1)[:, :length].astype(np.int32)
        dropped_from = np.take_along_axis(masked, part, axis=1).max(axis=1)
    else:
        part = np.broadcast_to(np.arange(n, dtype=np.int32), (rows, n)).copy()
        dropped_from = np.full(rows, np.inf)
    used = np.take_along_axis(mask, part, axis=1)
    distance = np.full(part.shape, np.inf)
    query, column = np.nonzero(used)
    distance[query, column] = _exact(x, norm, frame, lo + query, part[query, column])
    index, exact = nearest_first(np.where(used, part, -1).astype(np.int32), distance, wanted)
    last = frame.screened(exact[:, wanted - 1])
    error = bound(last=last)
    with np.errstate(invalid="ignore"):
        failing = np.isfinite(dropped_from) & ~(last < dropped_from - error)
    for r in np.flatnonzero(failing):
        band = np.flatnonzero(masked[r] <= last[r] + error[r]).astype(np.int32)
        d = _exact(x, norm, frame, np.full(band.size, lo + r), band)
        index[r : r + 1], exact[r : r + 1] = nearest_first(band[None], d[None], wanted)
    return index, exact, failing


def _exact(x: Floats, norm: F64, frame: Frame, query: I64, candidate: I32) -> F64:
    out = np.empty(query.shape[0])
    rows = query.astype(np.int32)
    if frame.is_euclidean:
        dots_numpy.pair_euclidean(x, x, rows, candidate, out)
    else:
        dots_numpy.pair_distances(x, norm, x, norm, rows, candidate, out)
    return out
