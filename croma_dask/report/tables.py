"""Breakdowns of a report: by label, confounder, cells, subset, and the worst groups."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.report.pick import main_radius, radii
from croma_dask.report.words import Words

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["breakdowns", "empty_cells"]

WORST_GROUPS = 25

KEYS = ("label", "confounder")

MOST_ROWS = 200_000
"""Rows of a table, of all models and m together, beyond which it is left out."""

_COLUMNS = [
    ("n_samples", "n", "integer", ""),
    ("support", "Support", "percent", "Share with a margin."),
    ("median_value", "Median margin", "number", "-1 to 1."),
    ("q_alpha", "{alpha} quantile", "number", "The worst samples stay at or below it."),
    ("ltm_alpha", "Lower-tail mean", "number", "Mean of the margins at or below the quantile."),
    ("f0", "F(0)", "percent", "Share with a margin of 0 or below."),
]


def breakdowns(panel: xr.DataTree, words: Words) -> dict[str, Any]:
    """Break CRoMa down by what the samples are.

    Returns
    -------
    dict
        `tables`: `keys` (title, and text a row) that all models share, `columns`, and `values`, by
        model and m, each (row, column). `left_out`: titles of tables that would be too long.
    """
    from croma_dask.breakdown import breakdown

    croma = panel["CRoMa"].to_dataset()
    titles = {
        "label": words.label, "confounder": words.confounder, "subset": "subset",
        "group": words.group,
    }  # fmt: skip
    asked: list[tuple[str, ...]] = [("label",), ("confounder",), ("label", "confounder")]
    if words.paired:
        asked.append(("subset",))
    found: dict[str, Any] = {"tables": [], "left_out": []}
    n_levels = {
        name: len(set(croma[coordinate].values.tolist()))
        for name, coordinate in (
            ("label", "label"), ("confounder", "confounder"), ("subset", "sample_subset")
        )
    }  # fmt: skip
    for by in asked:
        title = "By " + " and ".join(titles[name] for name in by)
        n_rows = math.prod(n_levels[name] for name in by)
        if n_rows * croma.sizes["model"] * croma.sizes.get("m", 1) > MOST_ROWS:
            found["left_out"].append(title)
            continue
        broken = breakdown(croma, by=by if len(by) > 1 else by[0], metric="CRoMa")
        found["tables"].append(_table(broken, by, {name: titles[name] for name in by}, title))
    found["tables"].append(_worst_groups(croma, words))
    return found


def empty_cells(panel: xr.DataTree) -> tuple[int, list[tuple[str, str]]]:
    """How many cells of label and confounder hold no scored sample, and the first few of them."""
    dataset = next(iter(panel.children.values())).to_dataset()
    scored = dataset["undefined_type"].isel(model=0)
    rows = (scored.isel(m=0) if "m" in scored.dims else scored).values != -1
    label, confounder = (np.asarray(dataset[n].values)[rows].tolist() for n in KEYS)
    there = set(zip(label, confounder, strict=True))
    labels, confounders = sorted(set(label)), sorted(set(confounder))
    missing = (pair for pair in itertools.product(labels, confounders) if pair not in there)
    return len(labels) * len(confounders) - len(there), list(itertools.islice(missing, 5))


def _table(
    broken: xr.Dataset, by: tuple[str, ...], titles: dict[str, str], title: str
) -> dict[str, Any]:
    sizes = [broken.sizes[name] for name in by]
    index = np.indices(sizes).reshape(len(by), -1)
    columns, stacked = _values(broken, by)
    # Cells without a sample are told of among the warnings, and would be dashes here.
    counts = stacked[0, 0, :, 0]
    keep = np.flatnonzero(counts > 0)
    keys = [
        {"title": titles[name], "texts": [str(broken[name].values[i]) for i in index[d][keep]]}
        for d, name in enumerate(by)
    ]
    return {"title": title, "keys": keys, "columns": columns, "values": stacked[:, :, keep]}


def _values(broken: xr.Dataset, by: tuple[str, ...]) -> tuple[list[dict[str, Any]], Any]:
    """Columns, and (model, m, row, column) values."""
    columns, parts = [], []
    n_models, n_radii = broken.sizes["model"], broken.sizes.get("m", 1)
    sizes = [broken.sizes[name] for name in by]
    for name, title, kind, hint in _COLUMNS:
        if name not in broken:
            continue
        array = broken[name]
        for dim, size in (("m", n_radii), ("model", n_models)):
            if dim not in array.dims:
                array = array.expand_dims({dim: size})
        values = array.transpose("model", "m", *by).values.astype(np.float64)
        parts.append(values.reshape(n_models, n_radii, int(np.prod(sizes))))
        share = f"{100 * float(broken.attrs['alpha']):g} %"
        columns.append({"title": title.format(alpha=share), "kind": kind, "hint": hint})
    return columns, np.stack(parts, axis=-1)


def _worst_groups(croma: xr.Dataset, words: Words) -> dict[str, Any]:
    """Worst groups of each model at each m: every one has its own, so keys go by model and m."""
    from croma_dask.breakdown import worst_groups

    keys: list[Any] = []
    values: list[Any] = []
    columns: list[dict[str, Any]] = []
    every = radii(croma)
    for i in range(croma.sizes["model"]):
        of_model, of_values = [], []
        for j in range(len(every)):
            one = croma.isel(model=[i])
            if "m" in one.dims:
                one = one.isel(m=j)
            # Groups without a value come last; there may be no other.
            worst = worst_groups(one, n=WORST_GROUPS, metric="CRoMa", min_defined=0)
            columns, stacked = _values(_without(worst, "m"), ("group",))
            of_model.append(
                [
                    {"title": words.group, "texts": [str(g) for g in worst["group"].values]},
                    *(
                        {"title": title, "texts": [str(text) for text in worst[name].values]}
                        for name, title in (
                            ("label", words.label), ("confounder", words.confounder)
                        )
                    ),
                ]
            )  # fmt: skip
            of_values.append(stacked[0, 0])
        keys.append(of_model)
        values.append(of_values)
    return {
        "title": f"Worst {words.group} by lower-tail mean",
        "keys_by_model": keys, "columns": columns, "values": values,
        "main_m": main_radius(every),
    }  # fmt: skip


def _without(dataset: xr.Dataset, dim: str) -> xr.Dataset:
    return dataset.isel({dim: 0}) if dim in dataset.dims else dataset
