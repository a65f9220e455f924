"""cLISI, iLISI and CiLISI: how many labels, or batches, there are around a cell in effect.

All three are made of the local inverse Simpson index of a cell's nearest neighbours
(:mod:`croma_dask.kernels.lisi`), at perplexity 30 on 90 entries of which the cell itself is one:
89 neighbours. Lists never hold the cell itself here, so that is 89 columns.

=======  ==============================================  ===================================
Metric   Of                                              Value
=======  ==============================================  ===================================
cLISI    labels among the nearest cells                  (L - median) / (L - 1), not clipped
iLISI    batches among the nearest cells                 (median - 1) / (B - 1), not clipped
CiLISI   batches among the nearest cells of the label    mean of (LISI - 1) / (B_c - 1), each
                                                         clipped to [0, 1]
=======  ==============================================  ===================================

L labels, B batches, B_c batches of a cell's own label. Higher is better.

The source is scib-metrics 0.5.10, computed in float64: within 1e-4 a cell where its float32 holds.
It does not hold where all weights of a cell become too small: where distances are large beside
their spread, as in isotropic data of 512 features, and where more neighbours than the perplexity
share the least distance, as copies of one cell do. That library then gives some other number, or
-1. Here the index is the right one, never below 1, and that of equal weights where all distances
are equal. ``compat="scib-metrics"`` repeats that library's float32 search with what comes of it.
Fewer than three cells define no value.

A block function takes rows by the block and holds nothing beyond them: 12 bytes an entry of the
lists, and the codes of the whole scope. The values of all cells are 8 bytes each, twice for the
median.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from croma_dask.embedding.outcome import Outcome
from croma_dask.errors import SchemaError
from croma_dask.kernels.typing import F64, I32, I64

__all__ = [
    "DEFINITION",
    "MIN_LABEL_CELLS",
    "N_NEIGHBORS",
    "PERPLEXITY",
    "cilisi",
    "clisi",
    "ilisi",
    "lisi_block",
    "lisi_definition",
    "same_label_lisi",
]

DEFINITION = "self-counted-1"
"""Which LISI this is: the cell itself takes one of the 90 places of its list."""

PERPLEXITY = 30.0
N_NEIGHBORS = 90
"""Length of a list, the cell itself counted; the lists of this library are one column shorter."""

MIN_LABEL_CELLS = 10
"""Cells that a label needs for CiLISI."""

Compat = Literal["scib-metrics"] | None
Average = Literal["samples", "labels"]


def lisi_definition() -> dict[str, str | int | float]:
    """Return what the LISI of this release is, for the attributes of a result."""
    return {
        "perplexity": PERPLEXITY,
        "n_neighbors": N_NEIGHBORS,
        "self_included": True,
        "def_version": DEFINITION,
    }


def lisi_block(
    index: I32,
    distance: F64,
    codes: I32,
    n_categories: int,
    *,
    perplexity: float = PERPLEXITY,
    compat: Compat = None,
) -> F64:
    """Local inverse Simpson index of the rows of a block.

    Parameters
    ----------
    index, distance
        (rows, k) nearest others of each row, -1 behind the last; all columns count.
    codes
        (n,) category of every row of the scope.
    n_categories
        Number of categories.
    perplexity
        Number of neighbours that count in effect.
    compat
        ``"scib-metrics"``: the search of that library in float32, in which weights may vanish;
        -1 where all have, as it gives too.

    Returns
    -------
    ndarray
        (rows,) float64 from 1 to `n_categories`; NaN for rows without neighbours (-1 with
        `compat`).
    """
    rows, k = index.shape
    width = np.full(rows, k, np.int32)
    return _lisi(
        index, distance, codes, n_categories, width, np.full(rows, float(perplexity)), compat
    )


def clisi(values: F64, n_labels: int, *, compat: Compat = None) -> Outcome:
    """Cell-type LISI: (L - m) / (L - 1), with m the median of the cells' index over labels.

    1 where every cell lies among its own label, 0 where all labels are mixed; not clipped.
    Undefined with fewer than three cells or two labels.

    Parameters
    ----------
    values
        (n,) index of every cell of the scope; NaN is left out.
    n_labels
        Number of labels.
    compat
        What `values` were made with, for the note.
    """
    return _median_outcome(values, n_labels, "labels", compat)


def ilisi(values: F64, n_batches: int, *, compat: Compat = None) -> Outcome:
    """Integration LISI: (m - 1) / (B - 1), with m the median of the cells' index over batches.

    0 where every cell lies among its own batch, 1 where all batches are mixed; not clipped.
    Undefined with fewer than three cells or two batches. Parameters as in :func:`clisi`.
    """
    return _median_outcome(values, n_batches, "batches", compat)


def same_label_lisi(
    index: I32,
    distance: F64,
    batch_codes: I32,
    label_codes: I32,
    label_cells: I64,
    label_batches: I64,
    n_batches: int,
    *,
    compat: Compat = None,
) -> F64:
    """CiLISI of the rows of a block: LISI over batches among the cells of the own label.

    With n_c cells of the label, the perplexity is p = min(30, n_c - 1) and the list has
    min(3 p, n_c - 1) entries with the cell itself.

    Parameters
    ----------
    index, distance
        (rows, k) nearest others of the same label, -1 behind the last; k of 89 is enough, and of
        n_c - 2 where all labels of the block are smaller than that.
    batch_codes
        (n,) batch of every row of the scope.
    label_codes
        (rows,) label of the rows of the block.
    label_cells, label_batches
        (L,) cells and batches of each label.
    n_batches
        Number of batches in the scope.
    compat
        As in :func:`lisi_block`.

    Returns
    -------
    ndarray
        (rows,) float64 (LISI - 1) / (B_c - 1), clipped to [0, 1]; NaN for rows of labels with
        fewer than 10 cells or a single batch.
    """
    cells = np.asarray(label_cells, np.int64)[label_codes]
    batches = np.asarray(label_batches, np.int64)[label_codes]
    perplexity = np.maximum(np.minimum(PERPLEXITY, cells - 1.0), 1.0)
    width = np.minimum(3 * perplexity, cells - 1).astype(np.int32) - np.int32(1)
    eligible = (cells >= MIN_LABEL_CELLS) & (batches >= 2)
    if eligible.any() and index.shape[1] < int(width[eligible].max()):
        raise SchemaError(
            f"CiLISI needs lists of {int(width[eligible].max())} cells of the same label, "
            f"found {index.shape[1]} columns"
        )
    width[~eligible] = 0
    lisi = _lisi(index, distance, batch_codes, n_batches, width, perplexity, compat)
    score = np.clip((lisi - 1.0) / np.maximum(batches - 1, 1), 0.0, 1.0)
    score[~eligible] = np.nan
    return score


def cilisi(
    values: F64,
    label_codes: I32,
    average: Average = "samples",
    *,
    compat: Compat = None,
) -> Outcome:
    """Cell-type aware iLISI: mean over cells of the batch mixing inside their own label.

    In [0, 1]. Undefined where no label has 10 cells and two batches.

    Parameters
    ----------
    values
        (n,) what :func:`same_label_lisi` gave every cell of the scope, in their order.
    label_codes
        (n,) label of every cell.
    average
        ``"samples"``: mean over all cells, so that large labels weigh more; ``"labels"``: mean
        over the labels of the mean over their cells.
    compat
        What `values` were made with, for the note.
    """
    if average not in ("samples", "labels"):
        raise SchemaError(f'average is "samples" or "labels", not {average!r}')
    protocol = _protocol(None, compat, f"average={average}", f"min_label_cells={MIN_LABEL_CELLS}")
    finite = np.isfinite(values)
    if not finite.any():
        reason = f"no label with {MIN_LABEL_CELLS} cells and two batches"
        return Outcome.undefined(reason, f"insufficient_labels;{protocol}")
    used = values[finite]
    if average == "samples":
        return Outcome(float(np.mean(used)), protocol)
    codes = np.asarray(label_codes)[finite]
    sums = np.bincount(codes, weights=used)
    counts = np.bincount(codes)
    return Outcome(float(np.mean(sums[counts > 0] / counts[counts > 0])), protocol)


def _lisi(
    index: I32,
    distance: F64,
    codes: I32,
    n_categories: int,
    width: I32,
    perplexity: F64,
    compat: Compat,
) -> F64:
    # numba is imported with the kernels, and only where they run.
    from croma_dask.kernels.lisi import lisi_rows

    if compat not in (None, "scib-metrics"):
        raise SchemaError(f'compat is None or "scib-metrics", not {compat!r}')
    if index.shape != distance.shape:
        raise SchemaError(f"lists of shape {index.shape} and distances of {distance.shape} differ")
    out = np.empty(index.shape[0])
    # One layout and one type: the kernel is compiled once.
    lisi_rows(
        np.ascontiguousarray(index, np.int32), np.ascontiguousarray(distance, np.float64),
        np.ascontiguousarray(codes, np.int32), int(n_categories), width, perplexity,
        compat is not None, out,
    )  # fmt: skip
    return out


def _median_outcome(
    values: F64, n_categories: int, what: Literal["labels", "batches"], compat: Compat
) -> Outcome:
    n = len(values)
    defined = ~np.isnan(values)
    missing = n - int(defined.sum())
    extra = [f"undefined_cells={missing}"] if missing else []
    protocol = _protocol(n, compat, "statistic=median", *extra)
    if n < 3 or missing == n:
        return Outcome.undefined("fewer than three cells", f"insufficient_cells;{protocol}")
    if n_categories < 2:
        reason = "one label" if what == "labels" else "one batch"
        return Outcome.undefined(reason, f"insufficient_{what};{protocol}")
    median = float(np.median(values[defined] if missing else values))
    part = n_categories - median if what == "labels" else median - 1.0
    return Outcome(part / (n_categories - 1), protocol)


def _protocol(n: int | None, compat: Compat, *more: str) -> str:
    """Note that says how it was computed; lists are shorter where `n` cells do not fill them."""
    length = N_NEIGHBORS if n is None else max(1, min(N_NEIGHBORS, n - 1))
    parts = [
        f"lisi_definition={DEFINITION}",
        f"perplexity={PERPLEXITY:g}",
        f"n_neighbors={length}",
        "self_included=true",
        *more,
    ]
    if compat is not None:
        parts.append(f"compat={compat}")
    return ";".join(parts)
