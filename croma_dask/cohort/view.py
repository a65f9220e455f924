"""A cohort at a glance: its shape, its columns, and how labels spread over small columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from croma_dask import markup
from croma_dask.cohort.layout import EMBEDDING, TEXT_COLUMNS
from croma_dask.cohort.open import store_of
from croma_dask.cohort.summary import (
    MAX_LABELS,
    MAX_LEVELS,
    crosstab_text,
    crosstabs,
)
from croma_dask.outward import named, visible

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["CohortView", "view_cohort"]

MAX_STORED = 20_000_000
"""Rows of a store whose codes are counted: 0.1 s a column and 10 million rows (measured)."""

MAX_IN_MEMORY = 200_000
"""Rows whose text is counted: they are not coded, and take far longer."""

MAX_TABLES = 4


@dataclass(frozen=True)
class CohortView:
    """What is shown of a cohort.

    Attributes
    ----------
    sentence
        Its shape, and where it is.
    columns
        Names of its columns.
    tables
        Column name to counts of label x column.
    note
        Why there are no tables; empty where there are.
    """

    sentence: str
    columns: tuple[str, ...]
    tables: dict[str, pd.DataFrame]
    note: str

    def __str__(self) -> str:
        """Lay it out as lines."""
        lines = [f"cohort: {self.sentence}", f"columns: {self._listed()}"]
        lines = [visible(line) for line in lines]
        for name, counts in self.tables.items():
            lines += ["", f"label x {visible(name)}", crosstab_text(counts)]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def _listed(self) -> str:
        """Names of the columns, or of the first of very many."""
        return named(self.columns) or "none"

    def _repr_html_(self) -> str:
        """Lay it out as HTML."""
        tables = "".join(
            markup.table(
                ["label", *map(str, counts.columns)],
                [[str(row), *(f"{n:,}" for n in at)] for row, at in zip(
                    counts.index, counts.to_numpy(), strict=True)],
                caption=f"samples by label and {name}",
            )
            for name, counts in self.tables.items()
        )  # fmt: skip
        columns = markup.facts([("columns", self._listed())])
        notes = [self.note] if self.note else []
        return markup.block("croma-dask: a cohort", self.sentence, columns + tables, notes)


def view_cohort(cohort: xr.Dataset) -> CohortView:
    """Look at a cohort without reading its embedding.

    Parameters
    ----------
    cohort
        Dataset with an ``embedding (sample, feature)``.

    Returns
    -------
    CohortView
        Printable. Labels are counted of a cohort as it was opened, of at most 20 million rows,
        and of columns in memory of at most 200,000 rows; nothing lazy is computed otherwise.
    """
    embedding = cohort[EMBEDDING]
    n_rows = int(embedding.shape[0])
    width = f" x {embedding.shape[1]:,} features" if embedding.ndim == 2 else ""
    store = store_of(cohort)
    place = cohort.attrs.get("croma_store", "")
    where = f", {place}" if store is not None else f", selected from {place}" if place else ""
    columns = tuple(str(name) for name in cohort.variables if name != EMBEDDING)
    tables: dict[str, pd.DataFrame] = {}
    note = ""
    if store is not None and n_rows <= MAX_STORED:
        tables = crosstabs(store, most=MAX_TABLES)
    elif store is None and n_rows <= MAX_IN_MEMORY:
        tables = _count(cohort)
    if not tables and "label" in columns:
        note = (
            "Labels are not counted here: columns are lazy, large, or have too many levels "
            f"(over {MAX_LABELS} labels, {MAX_LEVELS} of a column)."
        )
    return CohortView(
        f"{n_rows:,} samples{width} of {embedding.dtype}{where}", columns, tables, note
    )


def _count(cohort: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Count columns that are not lazy."""
    import pandas as pd

    def column(name: str) -> pd.Series | None:
        variable = cohort.variables[name]
        if variable.chunks is not None or variable.dims != cohort[EMBEDDING].dims[:1]:
            return None
        values = pd.Series(variable.values)
        # As in a store, an empty cell is a missing one, and belongs to no level.
        return values.mask(values == "")

    skipped = {EMBEDDING, "label", "group_id", "subset", *TEXT_COLUMNS}
    label = column("label") if "label" in cohort.variables else None
    if label is None or label.nunique() > MAX_LABELS:
        return {}
    tables: dict[str, pd.DataFrame] = {}
    for name in map(str, cohort.variables):
        if name in skipped or len(tables) == MAX_TABLES:
            continue
        values = column(name)
        if values is not None and values.dtype == object and 0 < values.nunique() <= MAX_LEVELS:
            counts = pd.crosstab(label, values)
            tables[name] = counts.rename_axis(index=None, columns=None)
    return tables
