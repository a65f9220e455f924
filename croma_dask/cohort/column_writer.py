"""Write the manifest's columns into a store: codes with names, or text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort import layout
from croma_dask.cohort.checksums import codecs

if TYPE_CHECKING:
    import zarr

    from croma_dask.cohort.layout import Column

__all__ = ["write_columns"]


def write_columns(
    root: zarr.Group, columns: Iterable[Column], tile_of_sample: NDArray[np.int64] | None
) -> list[layout.ColumnRef]:
    """Write all columns and the tile map.

    Parameters
    ----------
    root
        Group of the store.
    columns
        A column that is the second name of another comes after it.
    tile_of_sample
        Stored row of each sample, or None.

    Returns
    -------
    list of ColumnRef
        What the root attribute ``columns`` has to say.
    """
    refs: dict[str, layout.ColumnRef] = {}
    for column in columns:
        if column.alias_of is not None:
            array = refs[column.alias_of].array
        else:
            array = f"column_{len(refs)}"
            _write_column(root, column, array)
        refs[column.name] = layout.ColumnRef(column.name, column.kind, array)
    if tile_of_sample is not None:
        tiles = tile_of_sample.astype(np.int64, copy=False)
        _write_vector(root, layout.TILE, tiles, "stored row of each sample")
    return list(refs.values())


def _write_column(root: zarr.Group, column: Column, array: str) -> None:
    if column.kind == "category":
        _write_vector(root, array, column.codes, column.name)
        levels = np.array(column.levels, dtype=object)
        _write_texts(root, f"{array}_name", levels, column.name, dim=f"{array}_level")
    else:
        _write_texts(root, array, column.text(), column.name, dim=layout.SAMPLE_DIM)


def _write_vector(root: zarr.Group, array: str, values: NDArray[Any], long_name: str) -> None:
    stored = root.create_array(
        array,
        shape=values.shape,
        overwrite=True,
        chunks=(max(1, min(len(values), layout.CODE_CHUNK)),),
        dtype=values.dtype,
        compressors=codecs(compress=True),
        fill_value=-1,
        dimension_names=(layout.SAMPLE_DIM,),
        attributes={"long_name": long_name},
    )
    stored[:] = values


def _write_texts(
    root: zarr.Group, array: str, values: NDArray[np.object_], long_name: str, dim: str
) -> None:
    rows = _rows_of_text(values)
    stored = root.create_array(
        array,
        shape=values.shape,
        overwrite=True,
        chunks=(rows,),
        dtype="string",
        compressors=codecs(compress=True),
        fill_value="",
        dimension_names=(dim,),
        attributes={"long_name": long_name},
    )
    # slice by slice: zarr would hold all encoded chunks at once
    for lo in range(0, len(values), rows):
        stored[lo : lo + rows] = values[lo : lo + rows]


def _rows_of_text(values: NDArray[np.object_]) -> int:
    """Rows of a chunk of text, from the mean length of some of the values."""
    some = values[:: max(1, len(values) // 1024)]
    length = sum(map(len, some)) / max(1, len(some))
    most = min(layout.TEXT_CHUNK, int(layout.TEXT_CHUNK_LENGTH / max(length, 1.0)))
    return max(1, min(len(values), most))
