"""Columns of the metric table: what a benchmark or its ranks say of every method, by family."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.errors import InputWarning, SchemaError, SupportWarning, name_items
from croma_dask.kinds import KINDS, kind_of

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Block", "Column", "Table", "table_of"]

F64 = NDArray[np.float64]

_OTHERS = "not ranked"
"""Heading of metrics that have no family."""


@dataclass(frozen=True)
class Column:
    """Numbers of one metric, one a method.

    Attributes
    ----------
    head
        What stands above it.
    values
        (n_methods,) float64; NaN where there is none.
    reasons
        Why there is none, one a method; empty where there is a value, or nothing is known.
    is_rank
        1 is the best; else the highest value is.
    """

    head: str
    values: F64
    reasons: tuple[str, ...]
    is_rank: bool


@dataclass(frozen=True)
class Block:
    """Columns of one family, with its heading."""

    head: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Table:
    """Methods from top to bottom, blocks from left to right, and what it is a table of."""

    methods: tuple[str, ...]
    blocks: tuple[Block, ...]
    title: str


def table_of(result: Any, dataset: str | None, *, ranks: bool) -> Table:
    """Lay out what there is to show.

    Parameters
    ----------
    result
        Benchmark, ranks, or ranks with statistics.
    dataset
        Which data set; None for the only one of a benchmark, or the mean over all of ranks.
    ranks
        Add family ranks and the aggregate rank to the values of a benchmark of several methods.

    Raises
    ------
    SchemaError
        It is neither; the data set is not there, or has to be named.
    """
    kind = kind_of(result)
    if kind == "benchmark":
        return _of_benchmark(result, dataset, ranks=ranks)
    if kind == "ranks":
        return _of_ranks(
            result["ranks"].to_dataset() if hasattr(result, "children") else result, dataset
        )
    what = KINDS[kind] if kind != "unknown" else f"a {type(result).__name__}"
    raise SchemaError(
        "a metric table is drawn of a result of embedding_benchmark() or rank_embeddings(); "
        f"found {what}"
    )


def _of_benchmark(result: xr.Dataset, dataset: str | None, *, ranks: bool) -> Table:
    there = _texts(result["dataset"])
    if dataset is None and len(there) > 1:
        raise SchemaError(
            f"the benchmark has several data sets: say which, dataset={name_items(there)}, or "
            "draw rank_embeddings(result), which is over all of them"
        )
    chosen = there[0] if dataset is None else _known(dataset, there)
    # As a mapping: method= and the like are arguments of sel itself.
    one = result.isel({"dataset": [there.index(chosen)]})
    methods, metrics = _texts(one["method"]), _texts(one["metric"])
    families = _texts(one["family"])
    values = one["value"].transpose("dataset", "method", "metric").values[0].astype(np.float64)
    reasons = one["status"].transpose("dataset", "method", "metric").values[0].astype(str)
    rank = _ranked(one) if ranks and len(methods) > 1 else None
    order = np.arange(len(methods))
    if rank is not None:
        aggregate = _by_method(rank["aggregate_rank"], methods)
        order = np.argsort(aggregate, kind="stable")
    blocks = []
    for family in _in_order(families):
        columns = []
        for at in [at for at, name in enumerate(families) if name == family]:
            why = ["" if text == "ok" else text for text in reasons[order, at].tolist()]
            columns.append(Column(metrics[at], values[order, at], tuple(why), False))
        if rank is not None and family in _texts(rank["family"]):
            found = _by_method(rank["family_rank"].sel({"family": family}), methods)[order]
            columns.append(_rank_column("rank", found))
        blocks.append(Block(_readable(family), tuple(columns)))
    if rank is not None:
        blocks.append(Block("all families", (_rank_column("rank", aggregate[order]),)))
    return Table(tuple(methods[at] for at in order), tuple(blocks), chosen)


def _ranked(one: xr.Dataset) -> xr.Dataset | None:
    """Rank the methods of one data set; None where there is nothing to rank."""
    from croma_dask.embedding.ranks import rank_embeddings

    with warnings.catch_warnings():
        # What is not ranked is a dash in the table.
        warnings.simplefilter("ignore", InputWarning)
        warnings.simplefilter("ignore", SupportWarning)
        try:
            return rank_embeddings(one)
        except SchemaError:
            return None


def _of_ranks(ranks: xr.Dataset, dataset: str | None) -> Table:
    there = _texts(ranks["dataset"])
    if dataset is None:
        at, last, head = slice(None), ranks["mean_rank"], f"mean over {len(there)} data sets"
        head = there[0] if len(there) == 1 else head
    else:
        place = there.index(_known(dataset, there))
        at, last, head = (
            slice(place, place + 1),
            ranks["aggregate_rank"].isel(dataset=place),
            dataset,
        )
    overall = last.values.astype(np.float64)
    order = np.argsort(overall, kind="stable")
    metrics = _texts(ranks["metric"])
    of_metric = _mean(ranks["metric_rank"].isel(dataset=at), "metric")[order]
    of_family = _mean(ranks["family_rank"].isel(dataset=at), "family")[order]
    families = _texts(ranks["metric_family"])
    blocks = []
    for number, family in enumerate(_texts(ranks["family"])):
        # A benchmark need not have computed all metrics: ranks do not say why there are none.
        members = [
            i
            for i, name in enumerate(families)
            if name == family and not np.isnan(of_metric[:, i]).all()
        ]
        if not members:
            continue
        columns = [_rank_column(metrics[i], of_metric[:, i]) for i in members]
        columns.append(_rank_column("rank", of_family[:, number]))
        blocks.append(Block(_readable(family), tuple(columns)))
    blocks.append(Block("all families", (_rank_column("rank", overall[order]),)))
    methods = _texts(ranks["method"])
    return Table(tuple(methods[i] for i in order), tuple(blocks), f"ranks, {head}")


def _mean(array: xr.DataArray, last: str) -> F64:
    """Mean over the data sets that have a value, (method, last)."""
    return np.asarray(array.mean("dataset", skipna=True).transpose("method", last).values)


def _rank_column(head: str, values: F64) -> Column:
    return Column(head, np.asarray(values, np.float64), ("",) * len(values), True)


def _by_method(array: xr.DataArray, methods: list[str]) -> F64:
    """Values of the only data set in the order of methods; NaN for those that were not ranked."""
    found = dict(zip(_texts(array["method"]), array.isel(dataset=0).values.tolist(), strict=True))
    return np.array([found.get(name, np.nan) for name in methods], np.float64)


def _known(dataset: str, there: list[str]) -> str:
    if dataset not in there:
        raise SchemaError(f"dataset={dataset!r}: the result has {name_items(there)}")
    return dataset


def _texts(array: xr.DataArray) -> list[str]:
    return [str(value) for value in array.values]


def _in_order(families: list[str]) -> list[str]:
    """Families in the order of their first metric, those without a name last."""
    return sorted(dict.fromkeys(families), key=lambda name: not name)


def _readable(family: str) -> str:
    return family.replace("_", " ") or _OTHERS
