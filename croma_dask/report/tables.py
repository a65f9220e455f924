"""Breakdowns of a report: by label, confounder, cells, subset, and the worst groups."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.report.pick import m_values, main_m, scored
from croma_dask.report.words import Words, isolated

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Breakdowns", "empty_cells"]

WORST_GROUPS = 25

KEYS = ("label", "confounder")

MOST_LEVELS = 3
"""Levels of a group that its line names."""

MOST_ROWS = 200_000
"""Rows of a table, of all models and m together, beyond which it is left out."""

_COLUMNS = [
    ("n_samples", "n", "integer", ""),
    ("share", "Share of {units}", "percent", "Of all {units}, those of this {group}."),
    (
        "tail_share",
        "Share of the tail",
        "percent",
        "Of the {units} at or below the {alpha} quantile of all margins, those of this {group}: "
        "many times its share of {units} where it brings the worst of them.",
    ),
    ("support", "Support", "percent", "Share with a margin."),
    ("median_value", "Median margin", "number", "-1 to 1."),
    ("q_alpha", "{quantile}", "number", "The worst stay at or below it."),
    ("ltm_alpha", "Lower-tail mean", "number", "Mean of the margins at or below the quantile."),
    ("f0", "F(0)", "percent", "Share with a margin of 0 or below."),
]


class Breakdowns:
    """CRoMa broken down by what the samples are, model by model.

    Parameters
    ----------
    croma
        CRoMa of a panel.
    words
        Names of the columns.
    """

    def __init__(self, croma: xr.Dataset, words: Words) -> None:
        self._words = words
        self._m = m_values(croma)
        self._titles = {
            "label": words.label, "confounder": words.confounder, "subset": "subset",
            "group": words.group,
        }  # fmt: skip
        asked: list[tuple[str, ...]] = [("label",), ("confounder",), KEYS]
        if words.paired:
            asked.append(("subset",))
        n_levels = {
            name: len(set(croma[coordinate].values.tolist()))
            for name, coordinate in (
                ("label", "label"), ("confounder", "confounder"), ("subset", "sample_subset")
            )
        }  # fmt: skip
        size = croma.sizes["model"] * len(self._m)
        self._asked: list[tuple[str, ...]] = []
        self._left_out: list[tuple[str, ...]] = []
        for by in asked:
            fits = math.prod(n_levels[name] for name in by) * size <= MOST_ROWS
            (self._asked if fits else self._left_out).append(by)
        self._parts: list[list[xr.Dataset]] = []
        self._worst: list[tuple[list[list[str]], list[Any]]] = []
        self._columns: list[dict[str, Any]] = []
        self._croma = croma

    def add(self, one: xr.Dataset) -> None:
        """Break down the next model, whose margins are in memory."""
        from croma_dask.breakdown import breakdown

        self._parts.append(
            [breakdown(one, by=by if len(by) > 1 else by[0], metric="CRoMa") for by in self._asked]
        )
        self._worst.append(self._worst_groups(one))

    def finish(self) -> dict[str, Any]:
        """Put the tables of all models together.

        Returns
        -------
        dict
            `tables`: `keys` (title, and text a row) that all models share, `columns`, and
            `values`, by model and m, each (row, column). `left_out`: titles of tables that would
            be too long. `m`, `main_m`.
        """
        tables = [
            self._table([parts[i] for parts in self._parts], by) for i, by in enumerate(self._asked)
        ]
        keys, note = self._keys_of_groups()
        tables.append(
            {
                "title": f"Worst {self._words.group} by lower-tail mean",
                "note": note,
                "keys_by_model": keys,
                "columns": self._columns,
                "values": [values for _, values in self._worst],
            }
        )
        return {
            "tables": tables,
            "left_out": [self._title(by) for by in self._left_out],
            "m": self._m,
            "main_m": main_m(self._m),
        }

    def _title(self, by: tuple[str, ...]) -> str:
        return "By " + " and ".join(self._titles[name] for name in by)

    def _worst_groups(self, one: xr.Dataset) -> tuple[list[list[str]], list[Any]]:
        """Names and values by m: every model has worst groups of its own at each m."""
        from croma_dask.breakdown import worst_groups

        names, values = [], []
        for j in range(len(self._m)):
            here = one.isel(m=j) if "m" in one.dims else one
            # Groups without a value come last; there may be no other.
            worst = worst_groups(here, n=WORST_GROUPS, metric="CRoMa", min_defined=0)
            # The quantile of a few samples says little; the table is wide without it.
            worst = worst.drop_vars("q_alpha")
            self._columns, stacked = _values([worst], ("group",), self._words)
            names.append([str(text) for text in worst["group"].values])
            values.append(stacked[0, 0])
        return names, values

    def _keys_of_groups(self) -> tuple[list[list[list[dict[str, Any]]]], str]:
        """Keys by model and m of the worst groups, and what is true of all of them."""
        listed_groups = [names for names, _ in self._worst]
        every = {group for by_m in listed_groups for groups in by_m for group in groups}
        shown, notes = {}, []
        for name in KEYS:
            held = _levels_in(self._croma, name, every)
            kinds = set(held.values())
            if len(every) > 1 and len(kinds) == 1:
                notes.append(f"{self._titles[name]} {_short(kinds.pop(), most=12)}")
            else:
                shown[name] = {group: _short(levels) for group, levels in held.items()}
        keys = [
            [
                [
                    {"title": self._titles["group"], "texts": groups},
                    *(
                        {"title": self._titles[name], "texts": [texts[g] for g in groups]}
                        for name, texts in shown.items()
                    ),
                ]
                for groups in by_m
            ]
            for by_m in listed_groups
        ]
        return keys, f"Each of them holds {' and '.join(notes)}." if notes else ""

    def _table(self, broken: list[xr.Dataset], by: tuple[str, ...]) -> dict[str, Any]:
        first = broken[0]
        index = np.indices([first.sizes[name] for name in by]).reshape(len(by), -1)
        columns, stacked = _values(broken, by, self._words)
        # Cells without a sample are told of among the warnings, and would be dashes here.
        keep = np.flatnonzero(stacked[0, 0, :, 0] > 0)
        keys = [
            {
                "title": self._titles[name],
                "texts": [str(first[name].values[i]) for i in index[d][keep]],
            }
            for d, name in enumerate(by)
        ]
        return {
            "title": self._title(by), "keys": keys, "columns": columns,
            "values": stacked[:, :, keep],
        }  # fmt: skip


def empty_cells(panel: xr.DataTree) -> tuple[int, list[tuple[str, str]]]:
    """How many cells of label and confounder hold no scored sample, and the first few of them."""
    dataset = next(iter(panel.children.values())).to_dataset()
    rows = scored(dataset)
    label, confounder = (np.asarray(dataset[n].values)[rows].tolist() for n in KEYS)
    there = set(zip(label, confounder, strict=True))
    labels, confounders = sorted(set(label)), sorted(set(confounder))
    missing = (pair for pair in itertools.product(labels, confounders) if pair not in there)
    return len(labels) * len(confounders) - len(there), list(itertools.islice(missing, 5))


def _levels_in(croma: xr.Dataset, name: str, groups: set[str]) -> dict[str, tuple[str, ...]]:
    """Levels of the label or the confounder that occur in each of some groups, in order."""
    import pandas as pd

    of_group = pd.Series(np.asarray(croma["group_id"].values, object))
    rows = np.flatnonzero(scored(croma) & of_group.isin(groups).to_numpy())
    levels = pd.Series(np.asarray(croma[name].values, object)[rows])
    found = levels.groupby(of_group.to_numpy()[rows]).unique()
    return {str(group): tuple(sorted(some)) for group, some in found.items()}


def _short(levels: tuple[str, ...], most: int = MOST_LEVELS) -> str:
    """Name the first few, and how many more there are."""
    more = f" +{len(levels) - most}" if len(levels) > most else ""
    return ", ".join(map(isolated, levels[:most])) + more


def _values(
    broken: list[xr.Dataset], by: tuple[str, ...], words: Words
) -> tuple[list[dict[str, Any]], Any]:
    """Columns, and (model, m, row, column) values, of breakdowns of one model each."""
    first = broken[0]
    n_m = first.sizes.get("m", 1)
    names = [name for name, *_ in _COLUMNS if name in first]
    stacked = []
    for one in broken:
        parts = []
        for name in names:
            array = one[name].isel(model=0) if "model" in one[name].dims else one[name]
            if "m" not in array.dims:
                array = array.expand_dims({"m": n_m})
            values = array.transpose("m", *by).values.astype(np.float64)
            parts.append(values.reshape(n_m, -1))
        stacked.append(np.stack(parts, axis=-1))
    alpha = float(first.attrs["alpha"])
    quantile = {0.0: "Least margin", 1.0: "Largest margin"}.get(
        alpha, f"{100 * alpha:g} % quantile"
    )
    said = {
        "quantile": quantile, "units": words.units, "group": words.group,
        "alpha": f"{100 * alpha:g} %",
    }  # fmt: skip
    columns = [
        {"title": title.format(**said), "kind": kind, "hint": hint.format(**said)}
        for name, title, kind, hint in _COLUMNS
        if name in first
    ]
    return columns, np.stack(stacked)
