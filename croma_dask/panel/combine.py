"""Make a panel of results that were scored one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import SchemaError, name_items
from croma_dask.panel.models import datasets_of, is_panel
from croma_dask.panel.names import by_name
from croma_dask.panel.rows import (
    check_same_rows,
    rows_of_result,
    same_embeddings,
    warn_same_embeddings,
)
from croma_dask.panel.stack import Stack

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["combine_results"]

_REQUEST = {
    "metric_version": "version of the metric's definition",
    "evaluation_design": "design",
    "confounder_column": "confounder column",
    "label_column": "label column",
    "group_column": "group column",
    "distance": "distance",
    "alpha": "alpha",
    "tau_choice": "choice of tau",
}
"""Attributes that have to be the same, and what they are called."""


def combine_results(results: Mapping[str, xr.DataTree | xr.Dataset]) -> xr.DataTree:
    """Make a panel of results that were scored one by one.

    Parameters
    ----------
    results
        Model name to its result: what :func:`croma_dask.score` or a metric's ``compute`` returned,
        or :func:`croma_dask.open_result` opened. One of several models may be put in by
        ``panel.sel(model=name)``.

    Returns
    -------
    xarray.DataTree
        What :func:`croma_dask.score` of all of them would have returned: a dim `model` in the
        order of `results`, and ranks. Variables that only some models have, those of approximate
        searches, are NaN (False, 0) for the others. Lazy variables stay lazy.

    Raises
    ------
    SchemaError
        There are no results; one is no result, or is a panel itself; they are not of the same
        request (metrics, m, k_candidates, alpha, tau, design, columns) or not of the same rows:
        says what differs, of the first result and of which other one. Each may have its own
        recommended tau, but a pinned one has to be that of all.

    Warns
    -----
    InputWarning
        Several models have the same embedding.

    Notes
    -----
    Memory: the variables of all models once more, unless they are lazy.
    """
    given: Any = results
    # A result is a mapping itself, of variables or of nodes.
    if not isinstance(given, Mapping) or hasattr(given, "data_vars"):
        raise SchemaError(
            f"expected a mapping {{'name of the model': result, ...}}; found a "
            f"{type(given).__name__}"
        )
    if not results:
        raise SchemaError("there are no results to combine")
    named = {name: datasets_of(result) for name, result in by_name(given).items()}
    for name, nodes in named.items():
        lacking = [metric for metric, node in nodes.items() if "sample_values" not in node]
        if lacking:
            raise SchemaError(
                f"{name!r} is no result of scoring: its {', '.join(lacking)} has no sample_values"
            )
    panels = [str(name) for name, result in results.items() if is_panel(result)]
    if panels:
        raise SchemaError(
            f"the result {name_items(panels)} is of several models itself; put each of them in by "
            "its name: {name: panel.sel(model=name), ...}"
        )
    first = next(iter(named))
    rows = rows_of_result(first, next(iter(named[first].values())))
    for name, nodes in list(named.items())[1:]:
        _check_same_request((first, named[first]), (name, nodes))
        check_same_rows(rows, rows_of_result(name, next(iter(nodes.values()))))
        _check_same_scope((first, named[first]), (name, nodes))
    warn_same_embeddings(
        same_embeddings({name: embedding_of(nodes) for name, nodes in named.items()})
    )
    stack = Stack(list(named))
    for result in results.values():
        stack.put(result)
    return stack.panel()


def embedding_of(nodes: Mapping[str, xr.Dataset]) -> str:
    """Fingerprint of the embedding of a result of one model; "" where it says none."""
    dataset = next(iter(nodes.values()))
    if "embedding_fingerprint" in dataset.coords:
        return str(dataset["embedding_fingerprint"].item())
    return str(dataset.attrs.get("embedding_fingerprint", ""))


Named = tuple[str, Mapping[str, "xr.Dataset"]]


def _check_same_request(first: Named, other: Named) -> None:
    """Refuse results of another request."""
    (mine, a), (theirs, b) = first, other
    start = f"{theirs!r} is not of the same request as {mine!r}: "
    advice = "; score all models with the same arguments"
    if set(a) != set(b):
        raise SchemaError(
            f"{start}it has the metrics {', '.join(b)}, and {mine!r} has {', '.join(a)}{advice}"
        )
    for metric in a:
        for name, what in _REQUEST.items():
            one, two = a[metric].attrs.get(name), b[metric].attrs.get(name)
            if one != two:
                raise SchemaError(
                    f"{start}{metric} has the {what} {two!r}, and {one!r} in {mine!r}{advice}"
                )
        numbers = [("m", "m"), ("k_candidate", "k_candidates")]
        if a[metric].attrs.get("tau_choice") == "pinned":
            # A recommended one is that of the embedding, and differs.
            numbers.append(("tau", "a pinned tau"))
        for name, what in numbers:
            one, two = (_values(nodes[metric], name) for nodes in (a, b))
            if one != two:
                raise SchemaError(
                    f"{start}{metric} has {what} = {two}, and {one} in {mine!r}{advice}"
                )


def _check_same_scope(first: Named, other: Named) -> None:
    """Refuse results of the same rows of which not the same ones were scored."""
    (mine, a), (theirs, b) = first, other
    for metric in a:
        one, two = (_values(nodes[metric], "subset") for nodes in (a, b))
        prints = [nodes[metric].attrs.get("manifest_fingerprint") for nodes in (a, b)]
        if one != two or prints[0] != prints[1]:
            counts = [nodes[metric].attrs.get("n_rows_used") for nodes in (a, b)]
            raise SchemaError(
                f"{theirs!r} is not of the same request as {mine!r}: {counts[1]} units in "
                f"{len(np.atleast_1d(two))} subsets were scored, and {counts[0]} in "
                f"{len(np.atleast_1d(one))} in {mine!r} (skip_incomplete, or a metric that was "
                "computed of other rows); score all models with the same arguments"
            )


def _values(dataset: xr.Dataset, name: str) -> Any:
    """Values of a variable: a number, a list, or None where there is none."""
    return dataset[name].values.tolist() if name in dataset else None
