"""What is in a store, for people: counts, columns, and how labels spread over confounders."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from croma_dask.cohort.layout import TEXT_COLUMNS
from croma_dask.cohort.store import StoredCohort
from croma_dask.outward import cell, visible

__all__ = ["crosstab_text", "crosstabs", "describe", "describe_text"]

MAX_LEVELS = 12
MAX_LABELS = 30
MOST_COLUMNS, MOST_TABLES = 100, 20
"""Columns, and tables of label x column, that lines for a terminal tell."""

_NOT_CROSSED = {"label", "group_id", "subset", *TEXT_COLUMNS}


def describe(
    store: StoredCohort, *, columns: int | None = None, tables: int | None = None
) -> dict[str, Any]:
    """Summarise a store; everything in it can be written as JSON.

    Parameters
    ----------
    store
        A cohort store.
    columns, tables
        Look at the first so many columns only, and count for so many of them; None: all.

    Returns
    -------
    dict
        Sizes, fingerprints, one entry a column (kind, number of levels, missing cells, the first
        levels), and ``crosstab``: label x column counts for columns of at most 12 levels.

    Notes
    -----
    Reads the coded columns; text columns of many values are not read. Memory: two columns.
    """
    attrs = store.attrs
    told: dict[str, dict[str, Any]] = {}
    for name in store.columns[:columns]:
        entry: dict[str, Any] = {"kind": store.kind(name)}
        if store.kind(name) == "category":
            codes, levels = store.codes(name)
            entry.update(
                levels=len(levels), missing=int((codes < 0).sum()), first_levels=levels[:5]
            )
        told[name] = entry
    return {
        "place": store.url,
        "samples": store.n_samples,
        "tiles": store.n_tiles,
        "features": store.n_features,
        "dtype": str(store.dtype),
        "embedding_bytes": store.n_tiles * store.n_features * store.dtype.itemsize,
        "chunk_rows": store.chunk_rows,
        "created_at": attrs["created_at"],
        "created_by": attrs["created_by"],
        "source": json.loads(str(attrs["source"])),
        "fingerprint": store.fingerprint,
        "embedding_fingerprint": store.embedding_fingerprint,
        "columns": told,
        "crosstab": {
            name: {str(row): counts.to_dict() for row, counts in table.iterrows()}
            for name, table in crosstabs(store, most=tables).items()
        },
    }


def crosstabs(store: StoredCohort, *, most: int | None = None) -> dict[str, pd.DataFrame]:
    """Count label x column for every column that is small enough to look at.

    Parameters
    ----------
    store
        A cohort store.
    most
        Count for the first so many columns only.

    Returns
    -------
    dict
        Column name to counts, labels in rows and the column's levels in columns; columns of more
        than 12 levels are left out, and all of them where there are more than 30 labels.

    Notes
    -----
    Reads the codes of the label and of these columns, 4 bytes a row each; never the embedding.
    """
    names = [name for name in store.columns if store.kind(name) == "category"]
    if "label" not in names or len(store.levels("label")) > MAX_LABELS:
        return {}
    tables: dict[str, pd.DataFrame] = {}
    label_codes, labels = store.codes("label")
    seen = {store.array_of(name) for name in _NOT_CROSSED if name in store.columns}
    for name in names:
        if most is not None and len(tables) == most:
            break
        few = store.array_of(name) not in seen and 0 < len(store.levels(name)) <= MAX_LEVELS
        if not few:
            continue
        seen.add(store.array_of(name))
        codes, levels = store.codes(name)
        both = (label_codes >= 0) & (codes >= 0)
        counts = np.zeros((len(labels), len(levels)), dtype=np.int64)
        np.add.at(counts, (label_codes[both], codes[both]), 1)
        tables[name] = pd.DataFrame(counts, index=labels, columns=levels)
    return tables


def describe_text(store: StoredCohort) -> str:
    """Write the summary as lines for a terminal."""
    facts = describe(store, columns=MOST_COLUMNS, tables=0)
    tiles = ""
    if facts["tiles"] != facts["samples"]:
        tiles = f" of {facts['tiles']:,} tiles, each stored once"
    source = ", ".join(f"{key} {value}" for key, value in facts["source"].items() if value != "")
    lines = [
        facts["place"],
        f"  samples      {facts['samples']:,}{tiles}",
        f"  features     {facts['features']:,} {facts['dtype']}",
        f"  embedding    {_size(facts['embedding_bytes'])}, {facts['chunk_rows']:,} rows a chunk",
        f"  source       {source}",
        f"  written      {facts['created_at']} by {facts['created_by']}",
        f"  fingerprint  {facts['fingerprint']}",
        f"  of embedding {facts['embedding_fingerprint']}",
        "",
        "columns",
    ]
    width = max((len(cell(name)) for name in facts["columns"]), default=0)
    for name, entry in facts["columns"].items():
        lines.append(f"  {cell(name):<{width}}  {_column_text(entry)}")
    if (more := len(store.columns) - len(facts["columns"])) > 0:
        lines.append(f"  ... and {more:,} more (--json has all)")
    lines = [visible(line) for line in lines]
    tables = crosstabs(store, most=MOST_TABLES + 1)
    for name, table in list(tables.items())[:MOST_TABLES]:
        lines += ["", f"label x {cell(name)}"]
        lines += ["  " + line for line in crosstab_text(table).splitlines()]
    if len(tables) > MOST_TABLES:
        lines += ["", "... and more columns by label (--json has all)"]
    return "\n".join(lines)


def crosstab_text(table: pd.DataFrame) -> str:
    """Write counts of :func:`crosstabs` as lines."""
    return table.rename(index=cell, columns=cell).to_string()


def _column_text(entry: dict[str, Any]) -> str:
    if entry["kind"] == "text":
        return "text"
    shown = ", ".join(
        level if len(level) <= 24 else level[:23] + "…" for level in entry["first_levels"]
    )
    more = ", …" if entry["levels"] > len(entry["first_levels"]) else ""
    missing = f", {entry['missing']:,} missing" if entry["missing"] else ""
    levels = f"{entry['levels']:,} level" + ("" if entry["levels"] == 1 else "s")
    return f"{levels}{missing}: {shown}{more}"


def _size(n_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}" if unit != "bytes" else f"{n_bytes} bytes"
        n_bytes /= 1000
    return f"{n_bytes:,.3g} TB"
