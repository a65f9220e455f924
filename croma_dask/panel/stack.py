"""Put the results of single models side by side, one after the other as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.panel.models import as_panel, tree_of
from croma_dask.panel.ranking import with_ranking
from croma_dask.schema import text_array
from croma_dask.schema_panel import FACTS, MISSING, MODEL, RANKS, SHARED, TREE

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Stack"]

_JOINED = ("dataset", "croma_dask_version")
"""Attributes that models may differ in: a panel names all of them."""


class Stack:
    """A panel in the making.

    Models are put in one by one, each into its place of arrays that are made with the first, so
    that no more than one result is held twice. Lazy (dask) variables stay lazy.

    Parameters
    ----------
    names
        Of the models, in order.

    Notes
    -----
    Memory: the variables of all models, and the result that is being put in.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._nodes: dict[str, _Node] = {}
        self._attrs: dict[str, Any] = {}
        self._n = 0

    def put(self, result: Any) -> None:
        """Put the next model in.

        Parameters
        ----------
        result
            Of one model, of the rows and the request of those before it: nothing is checked here.
        """
        one = as_panel(result, self.names[self._n])
        attrs = {name: value for name, value in one.attrs.items() if name in TREE}
        self._attrs = _merged(self._attrs, attrs) if self._n else attrs
        for metric, node in one.children.items():
            if self._n == 0:
                self._nodes[metric] = _Node(len(self.names))
            self._nodes[metric].put(self._n, node.to_dataset())
        self._n += 1

    def panel(self) -> xr.DataTree:
        """Return the panel, with ranks where CRoMa is in it."""
        nodes = {metric: node.dataset(self.names) for metric, node in self._nodes.items()}
        if "CRoMa" in nodes:
            nodes["CRoMa"] = with_ranking(nodes["CRoMa"])
        return tree_of(nodes, self._attrs)


class _Node:
    """One metric of a panel in the making."""

    def __init__(self, n_models: int) -> None:
        self.n_models = n_models
        self.order: dict[str, None] = {}
        self.columns: dict[str, _Column] = {}
        self.facts: dict[str, _Column] = {}
        self.shared: dict[str, xr.Variable] = {}
        self.coords: dict[str, xr.Variable] = {}
        self.attrs: dict[str, Any] = {}

    def put(self, at: int, dataset: xr.Dataset) -> None:
        for key, array in dataset.data_vars.items():
            name = str(key)
            if name in RANKS:
                continue  # those of another panel
            self.order.setdefault(name)
            if name in SHARED:
                self.shared.setdefault(name, array.variable)
            else:
                self._along(self.columns, at, name, array.variable, None)
        for key, array in dataset.coords.items():
            name = str(key)
            if name == "model":
                continue
            if "model" in array.dims:
                self._along(self.facts, at, name, array.variable, MISSING.get(name))
            else:
                self.coords.setdefault(name, array.variable)
        self.attrs = _merged(self.attrs, dataset.attrs) if at else dict(dataset.attrs)

    def _along(
        self, where: dict[str, _Column], at: int, name: str, variable: xr.Variable, missing: Any
    ) -> None:
        if name not in where:
            where[name] = _Column(self.n_models, variable, missing)
        where[name].put(at, variable)

    def dataset(self, names: Sequence[str]) -> xr.Dataset:
        import xarray as xr

        coords = {
            "model": xr.Variable(("model",), text_array(names), MODEL.attrs()),
            **{name: self.facts[name].variable() for name in ("k", *FACTS) if name in self.facts},
            **self.coords,
        }
        data = {
            name: self.columns[name].variable() if name in self.columns else self.shared[name]
            for name in self.order
        }
        return xr.Dataset(data, coords, self.attrs)


class _Column:
    """One variable of all models: one array, or lazy parts."""

    def __init__(self, n_models: int, like: xr.Variable, missing: Any) -> None:
        self.dims, self.attrs = like.dims, like.attrs
        self.shape, self.dtype = (n_models, *like.shape[1:]), like.dtype
        if missing is None:
            missing = {"f": np.nan, "b": False}.get(like.dtype.kind, 0)
        self.missing = missing
        self.parts: list[Any] | None = None
        self.array: Any = None
        if hasattr(like.data, "dask"):
            self.parts = [None] * n_models
        else:
            self.array = np.full(self.shape, missing, like.dtype)

    def put(self, at: int, variable: xr.Variable) -> None:
        if self.parts is not None:
            self.parts[at] = variable.data
            return
        values = np.asarray(variable.data)
        # Candidates of a search, say, may be counted in a narrower integer by one of the models.
        wider = np.promote_types(self.array.dtype, values.dtype)
        if wider != self.array.dtype:
            self.array = self.array.astype(wider)
        self.array[at] = values[0]

    def variable(self) -> xr.Variable:
        import xarray as xr

        data = self.array
        if self.parts is not None:
            import dask.array as da

            gap = da.full((1, *self.shape[1:]), self.missing, dtype=self.dtype)
            data = da.concatenate([gap if part is None else part for part in self.parts])
        return xr.Variable(self.dims, data, self.attrs)


def _merged(mine: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of the models so far, and those of one more.

    Those that only some have, or that differ, are no attributes of the panel; but it names all
    versions and data sets, and its date is that of its last result.
    """
    found: dict[str, Any] = {}
    for name, value in mine.items():
        if name not in other:
            continue
        theirs = other[name]
        if name == "created":
            found[name] = max(str(value), str(theirs))
        elif name in _JOINED:
            parts = [*str(value).split(", "), *str(theirs).split(", ")]
            found[name] = ", ".join(dict.fromkeys(parts))
        elif type(value) is type(theirs) and value == theirs:
            found[name] = value
    return found
