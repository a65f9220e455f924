"""One model or several: every result can be seen as a panel, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import SchemaError, name_items
from croma_dask.schema import METRICS, text_array
from croma_dask.schema_panel import FACTS, MODEL, SHARED, TREE

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["as_panel", "datasets_of", "drop_model", "is_panel", "names_of", "tree_of"]


def datasets_of(result: Any) -> dict[str, xr.Dataset]:
    """Take a result apart into its metrics.

    Parameters
    ----------
    result
        DataTree with a node a metric, or Dataset of one metric (attrs["metric"] names it).

    Returns
    -------
    dict
        Metric name to Dataset, in the order of the tree. Nothing is copied or computed.

    Raises
    ------
    SchemaError
        It is anything else: says what.
    """
    import xarray as xr

    if isinstance(result, xr.DataTree) and result.children:
        foreign = [name for name in result.children if name not in METRICS]
        if foreign:
            raise SchemaError(
                f"expected a result with a node for each of {', '.join(METRICS)}; found the node "
                f"{name_items(foreign)}"
            )
        return {name: node.to_dataset() for name, node in result.children.items()}
    if isinstance(result, xr.DataTree):
        result = result.to_dataset()
    if not isinstance(result, xr.Dataset):
        raise SchemaError(
            "expected a result of croma-dask (a DataTree, or a Dataset of one metric); found "
            f"{'nothing' if result is None else 'a ' + type(result).__name__}"
        )
    metric = result.attrs.get("metric")
    if metric not in METRICS:
        found = f"one of {metric!r}" if metric else "a Dataset that names no metric in its attrs"
        raise SchemaError(
            f"expected a result of one of {', '.join(METRICS)}, as score() returns it; found "
            + found
        )
    return {str(metric): result}


def is_panel(result: Any) -> bool:
    """Whether a result is one of several models (or of one, by name): it has a dim `model`.

    Raises
    ------
    SchemaError
        As :func:`datasets_of`.
    """
    return any("model" in dataset.dims for dataset in datasets_of(result).values())


def names_of(result: Any) -> list[str]:
    """Names of the models of a panel, in order; none of a result that is no panel."""
    for dataset in datasets_of(result).values():
        if "model" in dataset.dims:
            return [str(name) for name in dataset["model"].values]
    return []


def as_panel(result: Any, name: str = "embedding") -> xr.DataTree:
    """See a result as a panel.

    Parameters
    ----------
    result
        Panel, or result of one model; a Dataset becomes a tree of one node.
    name
        What the model of the latter is called.

    Returns
    -------
    xarray.DataTree
        Every node has the dim `model`, first in all variables but those of
        :data:`croma_dask.schema_panel.SHARED`; the attrs of :data:`croma_dask.schema_panel.FACTS`
        and `k` are coordinates along it. No ranks are added. Arrays are views, lazy ones stay so.

    Raises
    ------
    SchemaError
        As :func:`datasets_of`.
    """
    nodes = {
        metric: dataset if "model" in dataset.dims else _with_model(dataset, name)
        for metric, dataset in datasets_of(result).items()
    }
    shared = result.attrs if hasattr(result, "children") else {
        key: value for key, value in result.attrs.items() if key in TREE
    }  # fmt: skip
    return tree_of(nodes, {key: value for key, value in shared.items() if key not in FACTS})


def drop_model(dataset: xr.Dataset) -> xr.Dataset:
    """Take the dim `model` away again from something made of a result that had none.

    Parameters
    ----------
    dataset
        Has at most one model.

    Returns
    -------
    xarray.Dataset
        Without `model`; what was along it as a coordinate of
        :data:`croma_dask.schema_panel.FACTS` is among the attrs again, and `k` is a number.
    """
    if "model" not in dataset.dims:
        return dataset
    if dataset.sizes["model"] != 1:
        raise SchemaError(
            f"only one model can be dropped; found {dataset.sizes['model']} "
            f"({name_items(dataset['model'].values.tolist())})"
        )
    one = dataset.isel(model=0).drop_vars("model")
    facts = {name: one[name].values.item() for name in FACTS if name in one.coords}
    one = one.drop_vars(list(facts))
    one.attrs = {**one.attrs, **facts}
    return one


def tree_of(nodes: Mapping[str, xr.Dataset], attrs: Mapping[str, Any]) -> xr.DataTree:
    """Put Datasets of metrics together to a result."""
    import xarray as xr

    tree = xr.DataTree.from_dict(dict(nodes))
    tree.attrs = dict(attrs)
    return tree


def _with_model(dataset: xr.Dataset, name: str) -> xr.Dataset:
    """Put the dim `model`, of length 1, before all others."""
    import xarray as xr

    def along(variable: Any) -> xr.Variable:
        # A new axis and not expand_dims: that is a view too, but one that may not be written to.
        return xr.Variable(
            ("model", *variable.dims), variable.data[np.newaxis], variable.attrs
        )  # fmt: skip

    data = {
        str(key): array.variable if key in SHARED else along(array.variable)
        for key, array in dataset.data_vars.items()
    }
    coords: dict[str, Any] = {str(key): array.variable for key, array in dataset.coords.items()}
    # Scalars where one model was selected of a panel; of a single result the facts are attrs.
    for key in {"k", *FACTS} & coords.keys():
        coords[key] = along(coords[key])
    coords["model"] = xr.Variable(("model",), text_array([name]), MODEL.attrs())
    attrs = dict(dataset.attrs)
    for key, fact in FACTS.items():
        if key in attrs and key not in coords:
            values = np.empty(1, dtype={"O": object, "i": np.int64, "f": np.float64}[fact.kind])
            values[0] = attrs.pop(key)
            coords[key] = xr.Variable(("model",), values, fact.attrs())
    return xr.Dataset(data, coords, attrs)
