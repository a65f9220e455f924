"""Every name that a breakdown, a list of worst groups and an explanation carry, declared once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.schema import METRICS, Variable, check_declared

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "AXES",
    "BREAKDOWN",
    "EXPLANATION",
    "EXPLANATION_COORDINATES",
    "WORST",
    "WORST_COORDINATES",
    "build_breakdown",
]

AXES: dict[str, Variable] = {
    "label": Variable(("label",), "O", "biological class", "Sorted as text."),
    "confounder": Variable(("confounder",), "O", "confounder level", "Sorted as text."),
    "subset": Variable(("subset",), "O", "subset", "Sorted as text."),
    "group": Variable(("group",), "O", "independence group", "Sorted as text."),
}
"""What a result may be broken down by, in the words of a result; each is a dimension."""


def _of_cells(metric: str) -> dict[str, Variable]:
    """Variables of a cell: the dims of the breakdown come in front."""
    whole = METRICS[metric]
    low, high = whole["sample_values"].valid_min, whole["sample_values"].valid_max
    neutral = whole["sample_values"].neutral

    def ranged(long_name: str, comment: str = "") -> Variable:
        return Variable((), "f", long_name, comment, low, high, neutral)

    found = {
        "n_samples": Variable((), "i", "scored units of the cell", valid_min=0),
        "n_defined": Variable((), "i", "units of the cell that have a value", valid_min=0),
        "support": Variable(
            (), "f", "fraction of the cell's scored units that are defined",
            "n_defined / n_samples; NaN without any unit.", 0.0, 1.0,
        ),
    }  # fmt: skip
    if metric != "CRoMa":
        found["value"] = ranged(
            f"{whole['value'].long_name}, pooled over the cell",
            "Sum of SO evidence over sum of SO and OS evidence; NaN where there is none.",
        )
    found |= {
        "median_value": ranged("median of the defined sample values of the cell"),
        "q_alpha": ranged("alpha-quantile of these", "Linear interpolation."),
        "ltm_alpha": ranged("lower-tail mean of these", "Mean of those at or below q_alpha."),
    }
    if metric == "CRoMa":
        found["f0"] = Variable(
            (), "f", "F(0): fraction of the cell's defined units with margin <= 0", "", 0.0, 1.0
        )
    return found


BREAKDOWN: dict[str, dict[str, Variable]] = {metric: _of_cells(metric) for metric in METRICS}
"""Metric -> variable -> declaration."""

WORST: dict[str, Variable] = {
    "share": Variable(
        ("group",), "f", "share of the scored units that lie in the group", "", 0.0, 1.0
    ),
    "tail_share": Variable(
        ("group",), "f", "share of the cohort's lower tail that lies in the group",
        "The tail: units at or below the alpha-quantile of all. Above `share`: the group is worse "
        "than its size explains.", 0.0, 1.0,
    ),
}  # fmt: skip
"""What a list of worst groups has in addition."""

WORST_COORDINATES: dict[str, Variable] = {
    "label": Variable(("group",), "O", "labels in the group", "Sorted, joined by ', '."),
    "confounder": Variable(
        ("group",), "O", "confounder levels in the group", "Sorted, joined by ', '."
    ),
}
"""Coordinates along `group` of a list of worst groups."""

EXPLANATION: dict[str, Variable] = {
    "kind": Variable(
        ("neighbor",), "O", "type of the neighbour",
        "Label first, confounder second, same or other: SO, OS, SS or OO.",
    ),
    "distance": Variable(("neighbor",), "f", "cosine distance from the sample", "", 0.0, 2.0),
    "neighbor_rank": Variable(
        ("neighbor",), "i", "rank among all candidates of another group",
        "By (distance, row); 1 is the nearest.", 1,
    ),
    "typed_rank": Variable(
        ("neighbor",), "i", "rank among the candidates of the same type",
        "Of SO and OS neighbours; 0 of SS and OO ones.", 0,
    ),
    "manifest_row": Variable(("neighbor",), "i", "row of the manifest", valid_min=0),
    "d_so": Variable(
        (), "f", "mean distance of the m nearest SO candidates", "NaN where fewer exist.", 0.0, 2.0
    ),
    "d_os": Variable(
        (), "f", "mean distance of the m nearest OS candidates", "NaN where fewer exist.", 0.0, 2.0
    ),
    "margin": Variable(
        (), "f", "cross-confounder robustness margin of the sample",
        "(d_OS - d_SO) / (d_OS + d_SO), as in sample_values of CRoMa.", -1.0, 1.0, 0.0,
    ),
    "ri": Variable(
        (), "f", "robustness index of the sample at k", "NaN without a typed neighbour within k.",
        0.0, 1.0, 0.5,
    ),
    "mari": Variable(
        (), "f", "margin-aware robustness index of the sample at k and tau",
        "NaN without a typed neighbour within k, or where no tau was given.", 0.0, 1.0, 0.5,
    ),
    "n_candidates": Variable((), "i", "rows of another group in the scope", valid_min=0),
    "n_so": Variable((), "i", "SO candidates in the scope", valid_min=0),
    "n_os": Variable((), "i", "OS candidates in the scope", valid_min=0),
}  # fmt: skip
"""Variables of an explanation."""

EXPLANATION_COORDINATES: dict[str, Variable] = {
    "neighbor_id": Variable(("neighbor",), "O", "sample that is a neighbour"),
    "label": Variable(("neighbor",), "O", "biological class of the neighbour"),
    "confounder": Variable(("neighbor",), "O", "confounder level of the neighbour"),
    "group_id": Variable(("neighbor",), "O", "independence group of the neighbour"),
    "k": Variable((), "i", "neighbours that ri and mari look at", valid_min=1),
    "m": Variable((), "i", "nearest neighbours of each type (SO, OS)", valid_min=1),
    "tau": Variable(
        (), "f", "bandwidth of mari", "Cosine distance; NaN where none was given.", 0.0
    ),
}  # fmt: skip
"""Coordinates of an explanation."""


def build_breakdown(
    declared: Mapping[str, Variable],
    values: Mapping[str, tuple[Sequence[str], Any]],
    coords: Mapping[str, xr.Variable],
    attrs: Mapping[str, Any],
) -> xr.Dataset:
    """Label numbers whose dims follow from the request.

    Parameters
    ----------
    declared
        Every variable that there has to be.
    values
        Dims and data of each.
    coords, attrs
        Coordinates, complete; what the Dataset says of itself.

    Raises
    ------
    KeyError
        A declared variable is missing or an undeclared one is given: a defect of the caller.
    """
    import xarray as xr

    check_declared(declared, values)
    data = {}
    for name, variable in declared.items():
        dims, array = values[name]
        array = np.asarray(array)
        if variable.kind == "i":
            array = array.astype(np.int64)
        data[name] = xr.Variable(tuple(dims), array, variable.attrs())
    return xr.Dataset(data, dict(coords), dict(attrs))
