"""What the distribution explorer of a report computes from: margins, codes, names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.report.encode import Blocks, margins32
from croma_dask.report.pick import main_radius, radii

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["explorer"]

MOST_MARGINS = 8_000_000
"""Margins of all models and m together, 4 bytes each; beyond, fewer m are carried, at least one."""

MOST_NAMES = 10_000_000
"""Characters in the file that the ids of all samples, or the names of all groups, may take."""

WORST = 3000
"""Samples of each model and m that keep their ids where all would be too many."""


def explorer(croma: xr.Dataset, names: list[str], blocks: Blocks) -> dict[str, Any]:
    """Put what the explorer needs into blocks.

    Parameters
    ----------
    croma
        CRoMa of a panel.
    names
        Of the models.
    blocks
        Where arrays go.

    Returns
    -------
    dict
        Where they are, and the names of all codes. Rows that were not scored are left out.

    Notes
    -----
    Memory: a float64 copy of the margins of one model and m at a time, their packed form, and the
    texts of the samples.
    """
    first = croma["undefined_type"].isel(model=0)
    if "m" in first.dims:
        first = first.isel(m=0)
    rows = np.flatnonzero(first.values != -1)
    n = rows.size
    kept = _kept_radii(croma, len(names) * n)
    margins, worst = [], []
    for i in range(len(names)):
        of_model = []
        for j in kept:
            array = croma["sample_values"].isel(model=i)
            values = np.asarray((array.isel(m=j) if "m" in array.dims else array).values)[rows]
            single = margins32(values.astype(np.float64))
            of_model.append(blocks.array(single))
            worst.append(_lowest(single, WORST))
        margins.append(of_model)
    found: dict[str, Any] = {
        "n": n,
        "left_out": int(first.size - n),
        "models": names,
        "m": [radii(croma)[j] for j in kept],
        "m_left_out": [m for j, m in enumerate(radii(croma)) if j not in kept],
        "main_m": kept.index(main_radius(radii(croma))),
        "alpha": float(croma.attrs["alpha"]),
        "paired": croma.attrs.get("evaluation_design") == "paired_2x2",
        "margins": margins,
        "label": _coded(croma["label"].values[rows], blocks),
        "confounder": _coded(croma["confounder"].values[rows], blocks),
        "subset": _coded(croma["sample_subset"].values[rows], blocks),
    }
    return found | _names(croma, rows, worst, blocks)


def _kept_radii(croma: xr.Dataset, size: int) -> list[int]:
    """Positions of the radii that are carried: the main one, then as many as there is room for."""
    every = radii(croma)
    main = main_radius(every)
    order = [main, *(j for j in range(len(every)) if j != main)]
    return sorted(order[: max(1, MOST_MARGINS // max(size, 1))])


def _lowest(values: NDArray[np.float32], count: int) -> NDArray[np.int64]:
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
