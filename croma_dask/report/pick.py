"""Single numbers out of labelled results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["UNNAMED", "fact", "interval", "m_values", "main_m", "number", "ranked", "scored"]

UNNAMED = "dataset"
"""What a data set is called that nobody has named: nothing worth telling."""


def number(dataset: xr.Dataset | None, name: str, **where: int | None) -> float:
    """Return one number of a variable or coordinate.

    Parameters
    ----------
    dataset
        Result; None has no numbers.
    name
        Variable or coordinate; one that is not there is NaN.
    **where
        Position along each dim; dims that the variable lacks are left alone.

    Returns
    -------
    float
        NaN where there is none.
    """
    if dataset is None or name not in dataset.variables:
        return float("nan")
    variable = dataset.variables[name]
    at = {dim: i for dim, i in where.items() if dim in variable.dims and i is not None}
    return float(variable.isel(at).values)


def interval(
    intervals: xr.Dataset | None, name: str, value: float, **where: int | None
) -> list[float]:
    """Value with the ends of its bootstrap interval, NaN where there is none."""
    return [
        value,
        number(intervals, f"{name}_low", **where),
        number(intervals, f"{name}_high", **where),
    ]


def fact(dataset: xr.Dataset, name: str, model: int, default: Any = None) -> Any:
    """Return what a result says of one model, be it among the attrs or along `model`."""
    if name in dataset.coords:
        variable = dataset.variables[name]
        found = variable.isel(model=model).values if "model" in variable.dims else variable.values
        return np.asarray(found).item()
    return dataset.attrs.get(name, default)


def m_values(dataset: xr.Dataset) -> list[int]:
    """Return every m of CRoMa."""
    return [int(m) for m in np.atleast_1d(dataset["m"].values)]


def main_m(found: list[int]) -> int:
    """Position of the m that the headline is of: 5, the default, or else the first."""
    return found.index(5) if 5 in found else 0


def ranked(nodes: dict[str, xr.Dataset], n_models: int) -> list[int]:
    """Positions of the models, the best mean rank at the main m first; as given without ranks."""
    croma = nodes.get("CRoMa")
    if croma is None or "mean_rank" not in croma:
        return list(range(n_models))
    m = main_m(m_values(croma))
    ranks = [number(croma, "mean_rank", model=i, m=m) for i in range(n_models)]
    # What has no rank is last; ties stay in the order that was given.
    return sorted(range(n_models), key=lambda i: (ranks[i] != ranks[i], ranks[i]))


def scored(dataset: xr.Dataset) -> NDArray[np.bool_]:
    """(rows,) whether each row was scored: incomplete subsets may have been left out."""
    why = dataset["undefined_type"]
    return np.asarray(why.isel({dim: 0 for dim in why.dims if dim != "sample"}).values != -1)
