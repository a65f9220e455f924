"""What a plot is to be drawn of: the metric, the models and m, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import SchemaError, name_items
from croma_dask.kinds import KINDS, Kind, kind_of
from croma_dask.panel.models import as_panel, datasets_of
from croma_dask.plotting import theme

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "UNNAMED",
    "at_m",
    "interval_note",
    "m_note",
    "model_names",
    "neutral_of",
    "nodes_of",
    "of_metric",
    "one_model",
]

UNNAMED = ""
"""Name of the only model of a result that has no dimension `model`."""


def of_metric(
    result: Any, metric: str, *, model: str | Sequence[str] | None = None, need: str = "",
    kind: Kind = "result",
) -> xr.Dataset:  # fmt: skip
    """Take one metric of a result, with a dimension `model` whether or not it had one.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` or :func:`croma_dask.bootstrap` returned, or a node of it.
    metric
        Name of a node.
    model
        Name or names, in the order in which they are drawn; None for all of them.
    need
        Variable that the plot is drawn of.
    kind
        Kind of result that the plot needs.

    Returns
    -------
    xarray.Dataset
        Variables are views. The model of a result without `model` is called :data:`UNNAMED`;
        the coordinate `panel_position` says where a model stood, for its colour.

    Raises
    ------
    SchemaError
        The result is of another kind or lacks the metric, the variable or a model.
    """
    found = kind_of(result)
    if found != kind:
        needed = "bootstrap() or half_samples()" if kind == "bootstrap" else "score()"
        what = KINDS[found] if found != "unknown" else f"a {type(result).__name__}"
        raise SchemaError(f"this plot is drawn of a result of {needed}; found {what}")
    nodes = nodes_of(result)
    if metric not in nodes:
        raise SchemaError(f"the result has no metric {metric!r}; it has {name_items(list(nodes))}")
    node = nodes[metric]
    # One model of a panel, taken by sel(model=...), still says its name.
    name = (
        str(node["model"].item()) if "model" in node.coords and not node["model"].ndim else UNNAMED
    )
    panel = as_panel(node, name)[metric].to_dataset()
    if need and need not in panel:
        raise SchemaError(
            f"{metric} of this result has no {need!r}; it has "
            f"{name_items([str(name) for name in panel.data_vars], limit=8)}"
        )
    panel = panel.assign_coords(panel_position=("model", np.arange(panel.sizes["model"])))
    if model is None:
        return panel
    if model_names(panel) == [UNNAMED]:
        raise SchemaError("the result is of one model, which has no name: leave model= out")
    return panel.isel(model=_positions(panel, [model] if isinstance(model, str) else model))


def nodes_of(result: Any) -> dict[str, xr.Dataset]:
    """Take a result of score() or bootstrap() apart: metric name -> Dataset that names it."""
    import xarray as xr

    if isinstance(result, xr.Dataset | xr.DataTree) and not getattr(result, "children", ()):
        # A Dataset of a bootstrap says that it is one, and of which metric.
        metric = result.attrs.get("resampled_metric", result.attrs.get("metric"))
        result = result if isinstance(result, xr.Dataset) else result.to_dataset()
        return datasets_of(result.assign_attrs(metric=metric))
    return {name: node.assign_attrs(metric=name) for name, node in datasets_of(result).items()}


def _positions(panel: xr.Dataset, wanted: Iterable[str]) -> list[int]:
    there = model_names(panel)
    names = list(wanted)
    missing = [name for name in names if name not in there]
    if missing or not names:
        raise SchemaError(
            f"model={name_items(missing) or 'none'}: the result has the models "
            f"{name_items(there, limit=20)}"
        )
    return [there.index(name) for name in names]


def model_names(panel: xr.Dataset) -> list[str]:
    """Names of the models."""
    return [str(name) for name in panel["model"].values]


def one_model(panel: xr.Dataset) -> xr.Dataset:
    """Take the only model of a choice.

    Raises
    ------
    SchemaError
        There are several: names them.
    """
    if panel.sizes["model"] != 1:
        raise SchemaError(
            f"this plot is of one model, and the result has {panel.sizes['model']}: say which, "
            f"model={name_items(model_names(panel), limit=20)}"
        )
    return panel.isel(model=0)


def at_m(dataset: xr.Dataset, m: int | None) -> xr.Dataset:
    """Take one `m`: the only one, or the one that is asked for.

    Raises
    ------
    SchemaError
        It is not there, or there are several and none is asked for: lists them.
    """
    if "m" not in dataset.coords:
        if m is not None:
            raise SchemaError(f"m={m}: {dataset.attrs.get('metric')} has no m; leave it out")
        return dataset
    there = [int(at) for at in np.atleast_1d(dataset["m"].values)]
    if m is None and len(there) > 1:
        raise SchemaError(f"the result has several m: say which, m={name_items(there, limit=20)}")
    if m is not None and m not in there:
        raise SchemaError(f"m={m} is not in the result; it has {name_items(there, limit=20)}")
    return (
        dataset.isel(m=there.index(there[0] if m is None else m)) if dataset["m"].ndim else dataset
    )


def neutral_of(array: xr.DataArray) -> float | None:
    """Value of an embedding that favours neither side, where the variable has one."""
    found = array.attrs.get("neutral_value")
    return None if found is None else float(found)


def m_note(dataset: xr.Dataset) -> str:
    """Say which `m` was taken, for a label; empty of metrics that have none."""
    return f"m = {int(dataset['m'])}" if "m" in dataset.coords else ""


def interval_note(dataset: xr.Dataset) -> str:
    """Say what the intervals of a bootstrap or of half samples are, as its attrs tell.

    How sure a score is depends on whether the neighbours were held fixed, so it is said wherever
    intervals are drawn.
    """
    attrs = dataset.attrs
    level = theme.percent(float(attrs.get("level", 0.95)))
    over = f" over {theme.plain(attrs['resampled'])}" if "resampled" in attrs else ""
    neighbors = f", neighbours {attrs['neighbors']}" if "neighbors" in attrs else ""
    return f"{level} interval{over}{neighbors}"


def title_of(one: xr.Dataset, metric: str) -> str:
    """Name the model, where it has a name, the metric and m."""
    what = ", ".join(part for part in (metric, m_note(one)) if part)
    name = str(one["model"].item())
    return f"{name}: {what}" if name != UNNAMED else what
