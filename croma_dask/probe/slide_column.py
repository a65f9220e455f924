"""Slides that a column names: whether they are what the sweep takes for slides."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.manifest import Coded
from croma_dask.errors import SchemaError, name_items
from croma_dask.probe.schedule import as_count

__all__ = ["slide_rows"]

I64 = NDArray[np.int64]


def slide_rows(slides: Coded, used: I64, cell: I64, rows_per_slide: int | None, column: str) -> int:
    """Check that slides are runs of equally many rows of a cell; return how many.

    Parameters
    ----------
    slides
        Slide of every row of the cohort.
    used, cell
        Rows that the sweep uses, ascending, and their cells.
    rows_per_slide
        What the caller says; None takes the size of the first slide.
    column
        Where the slides are from.

    Raises
    ------
    SchemaError
        Slides have other sizes, or their rows do not follow one another within their cell: naming
        the first five and how many.
    """
    code = slides.codes[used].astype(np.int64)
    # The sweep cuts a cell into slides in the order of its rows; rows of other cells between them
    # do not matter.
    order = np.argsort(cell, kind="stable")
    code, cell = code[order], cell[order]
    edges = np.flatnonzero((np.diff(code, prepend=-1) != 0) | (np.diff(cell, prepend=-1) != 0))
    length = np.diff(np.append(edges, code.size))
    run = cell[edges] * len(slides.names) + code[edges]
    names, count = np.unique(run, return_counts=True)
    if (count > 1).any():
        torn = [slides.names[int(key % len(slides.names))] for key in names[count > 1]]
        raise SchemaError(
            f"rows of {len(torn)} of {names.size} slides of column {column!r} do not follow one "
            f"another within their label and confounder: {name_items(torn)}; sort the cohort by "
            "slide"
        )
    size = int(length[0]) if rows_per_slide is None else as_count(rows_per_slide, "rows_per_slide")
    odd = np.flatnonzero(length != size)
    if odd.size:
        told = [f"{slides.names[int(code[edges[at]])]} ({length[at]})" for at in odd]
        raise SchemaError(
            f"{odd.size} of {length.size} slides of column {column!r} do not have {size} rows: "
            f"{name_items(told)}; a sweep takes slides of equally many rows, so leave rows or "
            "slides out"
            + ("" if rows_per_slide is not None else ", or name the size as rows_per_slide=")
        )
    return size
