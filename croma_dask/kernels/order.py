"""The last sort: exact lists in the order (distance, row)."""

from __future__ import annotations

import numpy as np

from croma_dask.kernels.typing import F64, I32


def nearest_first(row: I32, distance: F64, deliver: int) -> tuple[I32, F64]:
    """Sort every row of candidates by (distance, row) and keep the first `deliver`.

    Parameters
    ----------
    row, distance
        (n, K) candidates; `row` is -1 and `distance` infinite where there is none.
    deliver
        Columns of the result.

    Returns
    -------
    index, distance
        (n, deliver), -1 and NaN behind the last candidate.
    """
    order = np.lexsort((row, distance), axis=-1)[:, :deliver]
    index = np.full((row.shape[0], deliver), -1, np.int32)
    out = np.full((row.shape[0], deliver), np.nan)
    width = order.shape[1]
    index[:, :width] = np.take_along_axis(row, order, axis=1)
    out[:, :width] = np.take_along_axis(distance, order, axis=1)
    out[index < 0] = np.nan
    return index, out
