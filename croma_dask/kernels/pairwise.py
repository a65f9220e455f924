"""Sums of Euclidean distances over labels, as integers: the same bits in whatever order pairs meet.

A squared distance is summed over the features one after the other, each step a fused multiply-add
that is rounded once: `s = fma(x - y, x - y, s)`. Swapping the rows, features of padding (which are
0 in both rows), blocks and vector units change nothing, and equal rows are at exactly 0.

The distance is then rounded to a whole number of grid steps, and whole numbers can be added in any
order. Rows are scaled by a power of two that makes every distance less than 1, and `magic` is such
that a double between `magic` and twice that ends at the grid: in `distance + magic` the bits above
those of `magic` are the whole number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from croma_dask.kernels.jit import inlined, kernel
from croma_dask.kernels.typing import F64, I32, I64, Floats, Scalar

__all__ = ["COLUMNS", "add_columns", "farthest", "fma"]

COLUMNS = 128
"""Rows on the other side of a block. Their features, transposed, are read again for every four
rows on this side: from the nearest cache up to 32 features, from the second up to a thousand
(measured: at 56 and 512 features 128 columns are as fast as 256 and a fifth faster than 64)."""

_ROWS = 4
"""Rows on this side that are done together, so that a column is loaded once for four of them."""

_STEP = 4
"""Features that are done between a load and a store of the sums."""


def _fma(_context: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), generate


fma: Any = intrinsic(_fma)
"""`a * b + c`, rounded once: one instruction where there is one, the same bits elsewhere."""


@kernel
def farthest(x: Floats, origin: F64) -> float:
    """Largest distance of a row from `origin`, to a few units in the last place.

    Divided by its largest difference each row's squares can neither overflow nor vanish.
    """
    found = 0.0
    for i in range(x.shape[0]):
        largest = 0.0
        for f in range(x.shape[1]):
            largest = max(largest, abs(np.float64(x[i, f]) - origin[f]))
        if largest == 0.0:
            continue
        total = 0.0
        for f in range(x.shape[1]):
            part = (np.float64(x[i, f]) - origin[f]) / largest
            total += part * part
        found = max(found, largest * math.sqrt(total))
    return found


@inlined
def _squares(rows: F64, panel: F64, out: F64) -> None:
    """Squared distances of `_ROWS` rows to the `COLUMNS` columns of a transposed panel."""
    s0, s1, s2, s3 = out[0], out[1], out[2], out[3]
    x0, x1, x2, x3 = rows[0], rows[1], rows[2], rows[3]
    for c in range(COLUMNS):
        s0[c] = 0.0
        s1[c] = 0.0
        s2[c] = 0.0
        s3[c] = 0.0
    # Written out: LLVM keeps the sixteen values in registers and vectorises over the columns.
    for f in range(0, rows.shape[1], _STEP):
        p0, p1, p2, p3 = panel[f], panel[f + 1], panel[f + 2], panel[f + 3]
        x00, x01, x02, x03 = x0[f], x0[f + 1], x0[f + 2], x0[f + 3]
        x10, x11, x12, x13 = x1[f], x1[f + 1], x1[f + 2], x1[f + 3]
        x20, x21, x22, x23 = x2[f], x2[f + 1], x2[f + 2], x2[f + 3]
        x30, x31, x32, x33 = x3[f], x3[f + 1], x3[f + 2], x3[f + 3]
        for c in range(COLUMNS):
            q0, q1, q2, q3 = p0[c], p1[c], p2[c], p3[c]
            d0, d1, d2, d3 = x00 - q0, x01 - q1, x02 - q2, x03 - q3
            s0[c] = fma(d3, d3, fma(d2, d2, fma(d1, d1, fma(d0, d0, s0[c]))))
            d0, d1, d2, d3 = x10 - q0, x11 - q1, x12 - q2, x13 - q3
            s1[c] = fma(d3, d3, fma(d2, d2, fma(d1, d1, fma(d0, d0, s1[c]))))
            d0, d1, d2, d3 = x20 - q0, x21 - q1, x22 - q2, x23 - q3
            s2[c] = fma(d3, d3, fma(d2, d2, fma(d1, d1, fma(d0, d0, s2[c]))))
            d0, d1, d2, d3 = x30 - q0, x31 - q1, x32 - q2, x33 - q3
            s3[c] = fma(d3, d3, fma(d2, d2, fma(d1, d1, fma(d0, d0, s3[c]))))


@inlined
def _whole(squares: F64, magic: float) -> None:
    """Replace squared distances by `distance + magic`."""
    for r in range(_ROWS):
        s = squares[r]
        for c in range(COLUMNS):
            s[c] = math.sqrt(s[c]) + magic


@inlined
def _stretches(label: I32, lo: int, hi: int, out: I64) -> int:
    """Write where labels change among the columns lo..hi; return how many stretches there are."""
    n = 0
    for c in range(lo, hi):
        if c == lo or label[c] != label[c - 1]:
            out[n] = c - lo
            n += 1
    out[n] = hi - lo
    return n


@inlined
def _add_to_columns(bits: I64, base: Scalar, label: I32, r: int, n: int, sums: I64) -> None:
    """Add up what rows r..r+n of one side are away from each column, by the rows' labels."""
    width = sums.shape[1]
    if n == _ROWS and label[r] == label[r + 3]:
        b0, b1, b2, b3 = bits[0], bits[1], bits[2], bits[3]
        target = sums[label[r]]
        for c in range(width):
            target[c] += (b0[c] + b1[c]) + (b2[c] + b3[c]) - _ROWS * base
        return
    for k in range(n):
        b = bits[k]
        target = sums[label[r + k]]
        for c in range(width):
            target[c] += b[c] - base


@inlined
def _add_to_rows(
    bits: I64, base: Scalar, label: I32, stretches: I64, n_stretches: int, r: int, n: int,
    sums: I64,
) -> None:  # fmt: skip
    """Add up what each of the rows r..r+n is away from the columns, by the columns' labels."""
    b0, b1, b2, b3 = bits[0], bits[1], bits[2], bits[3]
    for s in range(n_stretches):
        lo, hi = stretches[s], stretches[s + 1]
        t0 = t1 = t2 = t3 = -(hi - lo) * base
        for c in range(lo, hi):
            t0 += b0[c]
            t1 += b1[c]
            t2 += b2[c]
            t3 += b3[c]
        target = sums[label[lo]]
        target[r] += t0
        if n > 1:
            target[r + 1] += t1
        if n > 2:
            target[r + 2] += t2
        if n > 3:
            target[r + 3] += t3


@kernel
def add_columns(
    x: Floats, label_x: I32, sums_x: I64, y: Floats, label_y: I32, sums_y: I64, c0: int,
    scale: float, magic: float, same: bool, take_x: bool, take_y: bool,
) -> None:  # fmt: skip
    """Let all rows of one range meet `COLUMNS` rows of another one, for both sides.

    Parameters
    ----------
    x, y
        (n, D) and (m, D) rows, each sorted by label.
    label_x, label_y
        Their labels.
    sums_x, sums_y
        (L, n) and (L, m) sums over the rows of each label of the distances, in grid steps.
    c0
        First row of y.
    scale, magic
        As in the module's docstring.
    same
        x and y are one range: of two of its rows each pair is met once, when `c0` comes to the
        second one.
    take_x, take_y
        Which side is to learn of the pairs.
    """
    n, d = x.shape
    width = min(COLUMNS, y.shape[0] - c0)
    padded = (d + _STEP - 1) // _STEP * _STEP
    panel = np.zeros((padded, COLUMNS))
    for c in range(width):
        for f in range(d):
            panel[f, c] = np.float64(y[c0 + c, f]) * scale
    columns = sums_y[:, c0 : c0 + width]
    labels = label_y[c0 : c0 + width]
    stretches = np.empty(COLUMNS + 1, np.int64)
    n_stretches = _stretches(labels, 0, width, stretches)
    rows = np.zeros((_ROWS, padded))
    squares = np.empty((_ROWS, COLUMNS))
    bits = squares.view(np.int64)
    base = np.float64(magic).view(np.int64)
    # Within one range: rows before the columns meet them for both; the columns meet one another
    # as rows, both ways round, and each learns of it once.
    last = c0 + width if same else n
    for r in range(0, last, _ROWS):
        count = min(_ROWS, last - r)
        for k in range(count):
            for f in range(d):
                rows[k, f] = np.float64(x[r + k, f]) * scale
        _squares(rows, panel, squares)
        _whole(squares, magic)
        if take_x:
            _add_to_rows(bits, base, labels, stretches, n_stretches, r, count, sums_x)
        if take_y and not (same and r >= c0):
            _add_to_columns(bits, base, label_x, r, count, columns)
