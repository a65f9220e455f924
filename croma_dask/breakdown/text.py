"""Breakdowns and explanations for people: tables as text and as frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.outward import cell, visible
from croma_dask.schema_breakdown import AXES

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["breakdown_frame", "breakdown_text", "explanation_frame", "explanation_text"]

_TITLES = {
    "n_samples": "samples", "n_defined": "defined", "value": "value", "median_value": "median",
    "q_alpha": "q(alpha)", "ltm_alpha": "LTM", "f0": "F(0)", "share": "share",
    "tail_share": "of tail",
}  # fmt: skip


def breakdown_frame(table: xr.Dataset) -> pd.DataFrame:
    """Frame of a breakdown, or of worst groups.

    Returns
    -------
    pandas.DataFrame
        One row a model, m and cell, in this order; their names, then a column a variable.
        Empty cells are in it.
    """
    names = [name for name in ("model", "m") if name in table.dims]
    dims = [*names, *(str(dim) for dim in table.dims if dim not in names)]
    beside = [name for name in AXES if name in table.coords and name not in dims]
    keep = {*dims, *beside, *map(str, table.data_vars), "k", "m"}
    table = table.drop_vars([name for name in table.variables if name not in keep])
    frame = table.to_dataframe(dim_order=dims).reset_index()
    settings = [name for name in ("k", "m") if name in frame and name not in dims]
    return frame[[*dims, *beside, *settings, *map(str, table.data_vars)]]


def explanation_frame(told: xr.Dataset) -> pd.DataFrame:
    """Frame of an explanation: one row a neighbour, nearest first."""
    along = [str(name) for name, v in told.variables.items() if v.dims == ("neighbor",)]
    first = ["neighbor_rank", "kind", "typed_rank", "distance", "neighbor_id"]
    frame = told[along].to_dataframe().reset_index(drop=True)
    return frame[[*first, *(name for name in along if name not in first)]]


def breakdown_text(table: xr.Dataset, *, most: int = 40) -> str:
    """Lay a breakdown, or a list of worst groups, out.

    Parameters
    ----------
    table
        As :func:`breakdown` or :func:`worst_groups` returns it.
    most
        Rows of a table; what is left out is counted.

    Returns
    -------
    str
        A table for each model and m. Cells without samples are left out.
    """
    axes = [str(dim) for dim in table["n_samples"].dims]
    blocks = []
    for name, one in _slices(table):
        frame = breakdown_frame(one)
        frame = frame[frame["n_samples"] > 0]
        ordered = one.attrs.get("ordered_by")
        title = f"{one.attrs.get('metric', '')} by {' x '.join(_named(table, axes))}{name}"
        if ordered:
            title += f"; worst {_TITLES.get(ordered, ordered)}{_where(one)} first"
        text = [*axes, *(axis for axis in AXES if axis in frame and axis not in axes)]
        numbers = [v for v in _TITLES if v in frame]
        heads = [*_named(table, text), *(_TITLES[v] for v in numbers)]
        rows = [
            [*(str(v) for v in row[: len(text)]), *(_number(v) for v in row[len(text) :])]
            for row in frame[[*text, *numbers]].head(most).itertuples(index=False)
        ]
        lines = [visible(title), *_table(heads, rows, len(text))]
        if len(frame) > most:
            lines.append(f"... and {len(frame) - most:,} more (--out writes all)")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def explanation_text(told: xr.Dataset) -> str:
    """Lay an explanation out: who the sample is, its values, its neighbours."""
    about = told.attrs
    where = f", subset {about['sample_subset']}" if about["sample_subset"] != "dataset" else ""
    k, m = int(told["k"]), int(told["m"])
    lines = [
        f"sample {about['sample_id']}: label {about['sample_label']}, {about['confounder_column']} "
        f"{about['sample_confounder']}, group {about['sample_group_id']}{where}",
        f"candidates of another group: {int(told['n_candidates']):,}, of them "
        f"{int(told['n_so']):,} SO (same label, other {about['confounder_column']}) and "
        f"{int(told['n_os']):,} OS (other label, same {about['confounder_column']})",
        f"m = {m}: mean distance {_number(told['d_so'].item())} to SO, "
        f"{_number(told['d_os'].item())} to OS, margin {_number(told['margin'].item())}",
        f"k = {k}: RI {_number(told['ri'].item())}, MaRI {_number(told['mari'].item())}"
        + ("" if told["tau"] == told["tau"] else " (give --tau)"),
        "",
    ]
    frame = explanation_frame(told)
    names = [
        "neighbor_rank",
        "kind",
        "typed_rank",
        "distance",
        "neighbor_id",
        "label",
        "confounder",
    ]
    rows = [
        [kind, str(sample), str(label), str(confounder), str(group), f"{rank:,}",
         str(typed) if typed else "", f"{distance:.6g}"]
        for rank, kind, typed, distance, sample, label, confounder, group in frame[
            [*names, "group_id"]
        ].itertuples(index=False)
    ]  # fmt: skip
    heads = [
        "type", "sample", about["label_column"], about["confounder_column"], about["group_column"],
        "rank", "of type", "distance",
    ]  # fmt: skip
    return "\n".join([*map(visible, lines), *_table(heads, rows, 5)])


def _slices(table: xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """One Dataset a model and m, and what to call it."""
    dims = [dim for dim in ("model", "m") if dim in table.dims]
    for at in np.ndindex(*(table.sizes[dim] for dim in dims)):
        one = table.isel(dict(zip(dims, at, strict=True)))
        named = [f"{dim} = {one[dim].item()}" for dim in ("model", "m") if dim in one.coords]
        named += [f"k = {int(one['k'])}"] if "k" in one.coords else []
        yield "".join(f", {name}" for name in named), one


def _where(table: xr.Dataset) -> str:
    """Say at which radius and of which model groups were ordered."""
    m, model = (table.attrs.get(f"ordered_by_{name}") for name in ("m", "model"))
    return ("" if m is None else f" at m = {m}") + ("" if model is None else f" of {model}")


def _named(table: xr.Dataset, axes: Sequence[str]) -> list[str]:
    """Names of the columns that axes came from."""
    return [str(table.attrs.get(f"{axis}_column", axis)) for axis in axes]


def _number(value: Any) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:.4f}"
    return f"{value:,}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], n_text: int) -> list[str]:
    """Columns of equal width: the first ones to the left, numbers to the right."""
    shown = [[cell(text) for text in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if at < n_text else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in shown
    ]
