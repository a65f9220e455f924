"""From the numbers of a resampling to its labelled result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask import schema
from croma_dask.errors import SchemaError, name_items
from croma_dask.panel.models import drop_model, is_panel
from croma_dask.schema_uncertainty import OTHER, RESAMPLED, build_bootstrap, higher_is_better

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Compare",
    "Widths",
    "check_level",
    "check_nodes",
    "check_whole",
    "describe",
    "tree_of_draws",
]

F64 = NDArray[np.float64]

Widths = Callable[[F64, F64, float], dict[str, Any]]
"""Values (models, radii), draws (draws, models, radii) and level to the intervals, by suffix."""

Compare = Callable[..., dict[str, Any]]
"""The same, and `higher_is_better`, to differences and ranks."""


def tree_of_draws(
    result: Any, nodes: Mapping[str, xr.Dataset], drawn: Mapping[str, Mapping[str, F64]],
    about: dict[str, Any], widths: Widths, compare: Compare, *, keep_draws: bool,
) -> xr.DataTree:  # fmt: skip
    """Make a result of draws.

    Parameters
    ----------
    result
        What was resampled: of one model or several.
    nodes
        Its metrics, each with the dim `model`.
    drawn
        Metric to statistic to (draws, models, radii).
    about
        Attributes of the result; `level` among them.
    widths, compare
        How intervals and comparisons are made of draws.
    keep_draws
        Whether the draws are in the result.
    """
    import xarray as xr

    found = {}
    for metric, dataset in nodes.items():
        values: dict[str, Any] = {}
        for statistic in RESAMPLED[metric]:
            draws = drawn[metric][statistic]
            of_cohort = np.asarray(dataset[statistic], np.float64).reshape(draws.shape[1:])
            parts = {"": of_cohort, **widths(of_cohort, draws, about["level"])}
            if keep_draws:
                parts["_draws"] = draws
            if dataset.sizes["model"] > 1:
                better = higher_is_better(statistic)
                parts |= compare(of_cohort, draws, about["level"], higher_is_better=better)
            values |= {statistic + suffix: array for suffix, array in parts.items()}
        labelled = _labelled(metric, dataset, values, about)
        found[metric] = labelled if is_panel(result) else drop_model(labelled)
    tree = xr.DataTree.from_dict(found)
    tree.attrs = {**result.attrs, **about}
    return tree


def _labelled(
    metric: str, dataset: xr.Dataset, values: dict[str, Any], about: dict[str, Any]
) -> xr.Dataset:
    import xarray as xr

    swept = "m" in dataset.dims
    if not swept:
        values = {name: array[..., 0] for name, array in values.items()}
    kept = {"model", "m"} if swept else {"model"}
    coords = {str(n): c.variable for n, c in dataset.coords.items() if set(c.dims) <= kept}
    if dataset.sizes["model"] > 1:
        coords["other"] = xr.Variable(("other",), dataset["model"].values, OTHER.attrs())
    attrs = {**dataset.attrs, **about, "resampled_metric": metric}
    return build_bootstrap(metric, values, coords, attrs)


def describe(
    nodes: Mapping[str, xr.Dataset], *, n_draws: int, seed: int, level: float, n_groups: int,
    interval: str, neighbors: str,
) -> dict[str, Any]:  # fmt: skip
    """Return what a resampling says of itself."""
    from croma_dask import __version__

    first = next(iter(nodes.values()))
    return {
        "metric": "bootstrap",
        "n_draws": int(n_draws),
        "seed": int(seed),
        "level": float(level),
        "n_groups": int(n_groups),
        "interval": interval,
        "neighbors": neighbors,
        "resampled": first.attrs.get("group_column", "group_id"),
        "croma_dask_version": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def check_whole(**numbers: tuple[Any, int]) -> None:
    """Check arguments that are whole numbers from some number on.

    Raises
    ------
    SchemaError
        One is not.
    """
    for name, (number, least) in numbers.items():
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not whole or number < least:
            raise SchemaError(f"{name} must be a whole number from {least} on, found {number!r}")


def check_level(level: Any) -> None:
    """Check the level of intervals.

    Raises
    ------
    SchemaError
        It is no number between 0 and 1.
    """
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0.0 < level < 1.0:
        raise SchemaError(f"level must be between 0 and 1 (0.95 for 95 %), found {level!r}")


def check_nodes(nodes: Mapping[str, xr.Dataset]) -> None:
    """Check that a result has what a resampling is made of.

    Raises
    ------
    SchemaError
        It is something else, or was made by an earlier version.
    """
    for metric, dataset in nodes.items():
        made_of = schema.EVIDENCE.get(metric, ("sample_values",))
        needed = (*made_of, *RESAMPLED[metric], "undefined_type", "group_id")
        missing = [name for name in needed if name not in dataset]
        if missing:
            raise SchemaError(
                f"{metric} has no {name_items(missing)}, which a bootstrap is made of: this is no "
                "result of score(), or one of an earlier version; score the cohort again"
            )
