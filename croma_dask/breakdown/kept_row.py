"""The neighbours of one row, from lists that a search has kept."""

from __future__ import annotations

import numpy as np

from croma_dask.breakdown.row_lists import RowList, Wanted, listed
from croma_dask.errors import StoreError
from croma_dask.index.kept_lists import Kept, KeptLists
from croma_dask.index.spec import ListSpec
from croma_dask.robustness import evidence as ev

__all__ = ["check_kept", "kept_row"]


def kept_row(kept: Kept, start: int, wanted: Wanted) -> RowList:
    """Read the kept list of one row, of any type; empty where none are kept.

    Parameters
    ----------
    kept, start
        Kept neighbours, and where the scope begins in them.
    wanted
        The row.
    """
    if not kept.n_global:
        return listed(wanted.scope, wanted.row, np.empty(0, np.int64), np.empty(0))
    lists = KeptLists(kept, start, ListSpec(kept.n_global, 0))
    index, distance = (part[0] for part in lists.read(wanted.row, wanted.row + 1))
    there = index >= 0
    return listed(wanted.scope, wanted.row, index[there].astype(np.int64), distance[there])


def check_kept(
    kept: Kept, start: int, wanted: Wanted, found: RowList, stored: RowList, *, typed: bool
) -> None:
    """Compare what was found with what is kept.

    Parameters
    ----------
    kept, start, wanted
        As in :func:`kept_row`.
    found, stored
        The list that is told, and the kept one.
    typed
        Whether the kept typed lists are of the same labels and confounders.

    Raises
    ------
    StoreError
        They differ: the folder is damaged.
    """
    n = min(len(found.index), len(stored.index))
    same = np.array_equal(found.index[:n], stored.index[:n]) and np.array_equal(
        found.distance[:n], stored.distance[:n]
    )
    if typed and same:
        m = min(wanted.m, kept.n_typed)
        lists = KeptLists(kept, start, ListSpec(0, kept.n_typed))
        have = lists.read_typed(wanted.row, wanted.row + 1)[0]
        for number, kind in enumerate((ev.SO, ev.OS)):
            kept_one = have[number * kept.n_typed :][:m]
            same &= np.array_equal(kept_one, found.typed_distances(kind, m), equal_nan=True)
    if not same:
        raise StoreError(
            f"{kept.shown} is damaged: the neighbours that it keeps of this sample are not those "
            "that the embedding gives; remove the folder and score again"
        )
