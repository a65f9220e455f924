"""From names to the indices that schedules count in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.errors import SchemaError, name_items, name_rows

__all__ = ["PATHOROB_ORDER", "names_to_indices"]

PATHOROB_ORDER: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "camelyon": (("RUMC", "UMCU"), ("normal", "tumor")),
    "tcga": (
        ("Asterand", "Christiana Healthcare", "Roswell Park", "University of Pittsburgh"),
        (
            "Breast_invasive_carcinoma",
            "Colon_adenocarcinoma",
            "Lung_adenocarcinoma",
            "Lung_squamous_cell_carcinoma",
        ),
    ),
    "tolkach_esca": (
        ("VALSET2_WNS", "VALSET4_CHA_FULL"),
        ("TUMOR", "MUSC_PROP", "SH_OES", "SH_MAG", "REGR_TU", "ADVENT"),
    ),
}
"""Centres and classes of PathoROB's cohorts, in the order in which its schedules count them."""


def names_to_indices(values: Iterable[Any], order: Sequence[Any]) -> NDArray[np.int64]:
    """Replace names by their positions in a stated order.

    The order is stated and not found out, because a schedule means its cells by number: sorting
    the names of a cohort would confound other cells than the schedule was written for.

    Parameters
    ----------
    values
        One name a row: a column of a manifest, an array, a list.
    order
        Every name once, in index order.

    Returns
    -------
    ndarray
        (n_rows,) int64 positions in `order`.

    Raises
    ------
    SchemaError
        `order` holds a name twice, or `values` one that is not in `order`. Names are compared as
        they are, capitals and blanks included.

    Examples
    --------
    >>> from croma_dask.probe.names import PATHOROB_ORDER, names_to_indices
    >>> centers, classes = PATHOROB_ORDER["camelyon"]
    >>> names_to_indices(["UMCU", "RUMC", "UMCU"], centers)
    array([1, 0, 1])
    """
    if isinstance(order, str):
        raise SchemaError(f"order is a sequence of names, found the text {order!r}")
    known = list(order)
    at = {name: position for position, name in enumerate(known)}
    if len(at) < len(known):
        twice = [name for name in at if known.count(name) > 1]
        raise SchemaError(
            f"order names {name_items(twice)} more than once; expected every name once"
        )
    column = np.asarray(values if hasattr(values, "__array__") else list(values), dtype=object)
    if column.ndim != 1:
        raise SchemaError(f"values are one name a row, found an array of shape {column.shape}")
    codes, found = pd.factorize(column, use_na_sentinel=False)
    position = np.array([at.get(name, -1) for name in found], dtype=np.int64)
    if (position < 0).any():
        raise _unknown(codes, found, position, known)
    return position[codes]


def _unknown(
    codes: NDArray[np.intp], found: Any, position: NDArray[np.int64], known: list[Any]
) -> SchemaError:
    """Name what is not in the order, and where."""
    counts = np.bincount(codes, minlength=len(found))
    parts = []
    for code in np.flatnonzero(position < 0)[:5]:
        rows = np.flatnonzero(codes == code)[:5]
        parts.append(f"{found[code]!r} ({name_rows(rows, total=int(counts[code]))})")
    missing = int((position < 0).sum())
    more = f" and {missing - len(parts)} more" if missing > len(parts) else ""
    total = int(counts[position < 0].sum())
    return SchemaError(
        f"{total} of {codes.size} rows hold a name that is not in order: {', '.join(parts)}{more}; "
        f"order has {name_items(known, limit=20)}"
    )
