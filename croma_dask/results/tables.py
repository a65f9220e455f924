"""Results as tidy frames, as text for people and as plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from croma_dask.embedding.summary import benchmark_frame, result_summary
from croma_dask.errors import SchemaError
from croma_dask.kinds import KINDS, kind_of
from croma_dask.outward import visible
from croma_dask.panel.table import panel_summary
from croma_dask.probe.table import sweep_frame, sweep_summary
from croma_dask.results.whole import told_if_incomplete

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["as_json", "summary", "to_frame"]

_Frame = Callable[[Any], "pd.DataFrame"]
_Text = Callable[[Any], str]

_USUAL = ("m", "subset", "k_candidate", "k")
"""Dims that every frame has a column for; `k_candidate` shares that of `k`."""


def to_frame(result: xr.Dataset | xr.DataTree) -> pd.DataFrame:
    """Tidy frame of a result, or of what was made of one.

    Parameters
    ----------
    result
        Dataset of one metric, or DataTree of several; of one model, or a panel. Or a bootstrap, a
        breakdown, worst groups, an explanation; a probe sweep, an embedding benchmark, ranks.

    Returns
    -------
    pandas.DataFrame
        One row a metric, `m`, subset or candidate k, and variable: columns `metric`, `variable`,
        `m`, `subset`, `k`, `value`. A result with other dims has a column for each, before `m`: a
        panel `model`. Variables along `sample` are left out: a Dataset's own ``to_dataframe``
        gives them. So is a bootstrap, whose differences have a column `other`.

        Of a breakdown and of worst groups: one row a model, m and cell. Of an explanation: one row
        a neighbour. Of a probe sweep see :func:`croma_dask.probe.table.sweep_frame`, of an
        embedding benchmark :func:`croma_dask.embedding.summary.benchmark_frame`, of ranks
        :func:`croma_dask.embedding.rank_report.leaderboard`.

    Raises
    ------
    SchemaError
        It is a cohort.
    """
    frame, _ = _own(_kind(result))
    with told_if_incomplete(result):
        return _tidy(result) if frame is None else frame(result)


def _tidy(result: xr.Dataset | xr.DataTree) -> pd.DataFrame:
    import pandas as pd

    nodes = _nodes(result)
    others = _other_dims(nodes)
    rows: list[dict[str, Any]] = []
    for name, dataset in nodes:
        for variable, array in dataset.data_vars.items():
            if "sample" in array.dims:
                continue
            values = array.values
            for at in np.ndindex(array.shape):
                where = dict(zip(array.dims, at, strict=True))
                rows.append(
                    {
                        "metric": name,
                        "variable": str(variable),
                        **{dim: _at(dataset, dim, where.get(dim), scalar=False) for dim in others},
                        "m": _at(dataset, "m", where.get("m")),
                        "subset": _at(dataset, "subset", where.get("subset"), scalar=False),
                        "k": _k(dataset, where),
                        # Texts are no numbers of numpy's.
                        "value": values[at].item() if hasattr(values[at], "item") else values[at],
                    }
                )
    columns = ["metric", "variable", *others, "m", "subset", "k", "value"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"m": "Int64", "k": "Int64"})


_COLUMNS = {
    "value": "value", "std": "std", "support": "support", "median_value": "median",
    "q_alpha": "q(alpha)", "ltm_alpha": "LTM", "f0": "F(0)",
}  # fmt: skip


def summary(result: xr.Dataset | xr.DataTree) -> str:
    """Headline numbers as a table for people.

    Parameters
    ----------
    result
        As of :func:`to_frame`.

    Returns
    -------
    str
        One line a metric (and `m`): value, spread over subsets, support, median, tail, F(0), and
        the operating k with tau. Of a panel: a table of models for each metric, and the ranking.
        Of a bootstrap: intervals, and models in pairs. Of a breakdown and of worst groups: a table
        of cells. Of an explanation: the sample, its values and its neighbours. Of a probe sweep:
        accuracy a split, APD and nIPD. Of an embedding benchmark: value and status of every metric.
        Of ranks: positions, intervals and tests.

    Raises
    ------
    SchemaError
        It is a cohort, or ranks without their statistics.
    """
    with told_if_incomplete(result):
        return _summary(result)


def _summary(result: xr.Dataset | xr.DataTree) -> str:
    kind = _kind(result)
    _, text = _own(kind)
    if text is not None:
        return text(result)
    if kind != "result" and kind_of(result) == "ranks":
        raise SchemaError(
            "expected ranks and their statistics together, as croma_dask.embedding.rank_report."
            "with_ranks() and `croma-dask rank --out` put them; found one of the two"
        )
    nodes = _nodes(result)
    if any("model" in dataset.dims for _, dataset in nodes):
        return panel_summary(dict(nodes))
    lines = [f"{'':12}" + "".join(f"{title:>10}" for title in _COLUMNS.values())]
    for name, dataset in nodes:
        radii = np.atleast_1d(dataset["m"].values) if "m" in dataset.coords else [None]
        for m in radii:
            row = dataset.sel(m=m) if m is not None and "m" in dataset.dims else dataset
            # Of one subset there is no spread, and 0 would read as if there were no doubt.
            told = [v for v in _COLUMNS if v != "std" or int(row["n_pairs"]) > 1]
            cells = "".join(
                f"{float(row[v]):>10.4f}" if v in told and v in row else f"{'':>10}"
                for v in _COLUMNS
            )
            note = f"m = {int(m)}" if m is not None else f"k = {int(row['k'])}"
            if name == "MaRI":
                note += f", tau = {float(row['tau']):.4g}"
            lines.append(f"{visible(name):12}{cells}   {note}")
    return "\n".join(lines)


def as_json(result: xr.Dataset | xr.DataTree) -> dict[str, Any]:
    """Nested plain values; NaN becomes null, as JSON has none."""
    with told_if_incomplete(result):
        return _as_json(result)


def _as_json(result: xr.Dataset | xr.DataTree) -> dict[str, Any]:
    from croma_dask.embedding.rank_report import ranks_as_plain

    kind = _kind(result)
    if kind == "ranks":
        return ranks_as_plain(cast("xr.DataTree", result))
    rows = {
        "sweep": "probes", "benchmark": "values", "breakdown": "cells", "explanation": "neighbors",
    }.get(kind)  # fmt: skip
    if rows is not None:
        return {
            "attrs": _plain(dict(result.attrs)),
            rows: [_plain(row) for row in to_frame(result).to_dict("records")],
        }
    found: dict[str, Any] = {"attrs": _plain(dict(result.attrs)), "metrics": {}}
    for name, dataset in _nodes(result):
        found["metrics"][name] = {
            "attrs": _plain(dict(dataset.attrs)),
            **{
                str(v): _plain(array.values.tolist())
                for variables in (dataset.coords, dataset.data_vars)
                for v, array in variables.items()
                if "sample" not in array.dims
            },
        }
    return found


def _kind(result: Any) -> str:
    """Kind of a result; ranks without their statistics have no table of their own."""
    kind = kind_of(result)
    if kind == "cohort":
        raise SchemaError(f"expected a result of croma-dask; found {KINDS[kind]}: score it first")
    return "unknown" if kind == "ranks" and "ranks" not in getattr(result, "children", ()) else kind


def _own(kind: str) -> tuple[_Frame | None, _Text | None]:
    """Find what lays a kind out that has a layout of its own: as a frame, and as text."""
    if kind == "sweep":
        return sweep_frame, sweep_summary
    if kind == "benchmark":
        return benchmark_frame, result_summary
    # Imported for those who have such a thing: with them comes all that makes it.
    if kind == "bootstrap":
        from croma_dask.uncertainty.table import bootstrap_text

        return None, bootstrap_text
    if kind in ("breakdown", "explanation"):
        from croma_dask.breakdown import text

        if kind == "breakdown":
            return text.breakdown_frame, text.breakdown_text
        return text.explanation_frame, text.explanation_text
    if kind == "ranks":
        from croma_dask.embedding.rank_report import leaderboard, rank_text

        return leaderboard, rank_text
    return None, None


def _nodes(result: Any) -> list[tuple[str, xr.Dataset]]:
    if hasattr(result, "children"):
        found = [(name, node.to_dataset()) for name, node in result.children.items()]
        return found or [(str(result.attrs.get("metric", "")), result.to_dataset())]
    return [(str(result.attrs.get("metric", "")), result)]


def _other_dims(nodes: list[tuple[str, xr.Dataset]]) -> list[str]:
    """Dims of the single numbers beside the usual ones, in the order in which they occur."""
    found = [
        str(dim)
        for _, dataset in nodes
        for array in dataset.data_vars.values()
        if "sample" not in array.dims
        for dim in array.dims
    ]
    return [dim for dim in dict.fromkeys(found) if dim not in _USUAL]


def _at(dataset: xr.Dataset, name: str, position: Any, *, scalar: bool = True) -> Any:
    if name not in dataset.coords:
        return position
    coordinate = dataset[name].values
    if coordinate.ndim == 0:
        return coordinate.item() if scalar else None
    return None if position is None else coordinate[position]


def _k(dataset: xr.Dataset, where: dict[Any, int]) -> Any:
    if "k_candidate" in where:
        return int(dataset["k_candidate"].values[where["k_candidate"]])
    if "k" in where:
        return int(dataset["k"].values[where["k"]])
    if "k" in dataset.coords and dataset["k"].dims == ("model",):
        # A panel: the operating k is each model's own.
        return _at(dataset, "k", where.get("model"))
    return _at(dataset, "k", None)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
