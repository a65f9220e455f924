"""What the distribution explorer of a report computes from: margins, codes, names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.report.encode import Blocks, packed_margins
from croma_dask.report.pick import m_values, main_m, scored

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Explorer"]

MOST_MARGINS = 8_000_000
"""Margins of all models and m together; beyond, fewer m are carried, at least one."""

MOST_NAMES = 10_000_000
"""Characters in the file that the ids of all samples, or the names of all groups, may take."""

WORST = 3000
"""Samples of each model and m that keep their ids where all would be too many."""


class Explorer:
    """What the explorer needs, put into blocks model by model.

    Parameters
    ----------
    croma
        CRoMa of a panel.
    blocks
        Where arrays go.

    Notes
    -----
    Rows that were not scored are left out.

    Memory: the margins of one model, their packed form, and the texts of the samples.
    """

    def __init__(self, croma: xr.Dataset, blocks: Blocks) -> None:
        self._croma, self._blocks = croma, blocks
        self._rows = np.flatnonzero(scored(croma))
        self._kept = _kept_m(m_values(croma), croma.sizes["model"] * self._rows.size)
        self._margins: list[list[dict[str, Any]]] = []
        self._worst: list[NDArray[np.int64]] = []

    def add(self, one: xr.Dataset) -> None:
        """Pack the margins of the next model, which are in memory."""
        array = one["sample_values"].isel(model=0)
        margins = []
        for j in self._kept:
            values = np.asarray((array.isel(m=j) if "m" in array.dims else array).values)
            values = values[self._rows].astype(np.float64)
            margins.append(self._blocks.array(packed_margins(values)))
            self._worst.append(_lowest(values, WORST))
        self._margins.append(margins)

    def finish(self, names: list[str]) -> dict[str, Any]:
        """Tell where everything is, and the names of all codes.

        Parameters
        ----------
        names
            Of the models, all of which were added.
        """
        croma, rows, blocks = self._croma, self._rows, self._blocks
        every = m_values(croma)
        n_rows = croma.sizes["sample"]
        found: dict[str, Any] = {
            "n": rows.size,
            "left_out": n_rows - rows.size,
            "models": names,
            "m": [every[j] for j in self._kept],
            "m_left_out": [m for j, m in enumerate(every) if j not in self._kept],
            "main_m": self._kept.index(main_m(every)),
            # As text: all of its digits tell which margin the quantile is.
            "alpha": repr(float(croma.attrs["alpha"])),
            "paired": croma.attrs.get("evaluation_design") == "paired_2x2",
            "margins": self._margins,
            "label": _coded(croma["label"].values[rows], blocks),
            "confounder": _coded(croma["confounder"].values[rows], blocks),
            "subset": _coded(croma["sample_subset"].values[rows], blocks),
        }
        found |= _names(croma, rows, self._worst, blocks)
        # Where not all have ids, a sample is told by its place in the manifest.
        by_row = found["ids"] is None and rows.size < n_rows
        found["rows"] = blocks.array(rows.astype(np.uint32)) if by_row else None
        return found


def _kept_m(every: list[int], size: int) -> list[int]:
    """Positions of the m that are carried: the main one, then as many as there is room for."""
    main = main_m(every)
    order = [main, *(j for j in range(len(every)) if j != main)]
    return sorted(order[: max(1, MOST_MARGINS // max(size, 1))])


def _lowest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Positions of the lowest values, NaN never among them."""
    count = min(count, int((~np.isnan(values)).sum()))
    if count == 0:
        return np.empty(0, np.int64)
    # NaN sorts behind every number.
    return np.argpartition(values, count - 1)[:count]


def _coded(texts: NDArray[Any], blocks: Blocks) -> dict[str, Any]:
    levels, codes = _levels(texts)
    return {"names": levels, "codes": blocks.codes(codes, len(levels))}


def _levels(texts: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """Distinct texts in order, and the code of each."""
    import pandas as pd

    codes, levels = pd.factorize(np.asarray(texts, dtype=object), sort=True)
    return [str(level) for level in levels], codes


def _names(
    croma: xr.Dataset, rows: NDArray[np.int64], worst: list[NDArray[np.int64]], blocks: Blocks
) -> dict[str, Any]:
    """Ids and groups of all samples, or of the worst ones alone where those are too long."""
    found: dict[str, Any] = {"ids": None, "groups": None, "worst": None}
    levels, codes = _levels(croma["group_id"].values[rows])
    groups = _fitting(levels, blocks)
    if groups is not None:
        found["groups"] = {"names": groups, "codes": blocks.codes(codes, len(levels))}
    # Ids of very large cohorts are read from the store here, and nowhere before.
    ids = [str(text) for text in croma["sample_id"].values[rows]]
    found["ids"] = _fitting(ids, blocks)
    if found["ids"] is None or groups is None:
        few = np.unique(np.concatenate(worst)) if worst else np.empty(0, np.int64)
        found["worst"] = {
            "rows": blocks.array(few.astype(np.uint32)),
            "ids": blocks.texts([ids[i] for i in few]),
            "groups": blocks.texts([levels[codes[i]] for i in few]),
            "each": WORST,
        }
    return found


def _fitting(texts: list[str], blocks: Blocks) -> dict[str, Any] | None:
    """Block of the texts, or None if it would be too large."""
    where = blocks.texts(texts)
    if blocks.size_of(where) <= MOST_NAMES:
        return where
    blocks.drop_last()
    return None
