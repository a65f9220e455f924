"""Open what values to rank are kept in: a file, a data frame, a Dataset."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from croma_dask.cohort.readers.tables import read_text_table
from croma_dask.cohort.text import as_frame, to_text
from croma_dask.errors import SchemaError, name_items

__all__ = ["open_table", "read_names"]


def open_table(item: Any, at: int) -> tuple[str, pd.DataFrame]:
    """Open one table.

    Parameters
    ----------
    item
        A path, data frame, Dataset or DataArray.
    at
        Its number, for messages about what has no name.

    Returns
    -------
    name : str
        What messages call it.
    frame : pandas.DataFrame
        Among its columns the texts `sample_id` and `method`. A Dataset is a long table.
    """
    if isinstance(item, xr.DataArray):
        item = item.to_dataset(name="value")
    if isinstance(item, xr.Dataset):
        return _from_dataset(f"Dataset {at}", item)
    if isinstance(item, pd.DataFrame):
        return f"table {at}", _with_ids(f"table {at}", item)
    if not isinstance(item, str | os.PathLike):
        raise SchemaError(f"table {at}: expected a path or a table, found {type(item).__name__}")
    path = os.fspath(item)
    if path.endswith((".nc", ".zarr")):
        engine = "zarr" if path.endswith(".zarr") else "h5netcdf"
        with xr.open_dataset(path, engine=engine) as opened:
            return _from_dataset(path, opened)
    if os.path.isdir(path):
        raise SchemaError(
            f"{path} is a folder: name its wide tables, for example "
            f"{path.rstrip('/')}/benchmark/*_leiden_metrics_wide.csv"
        )
    import fsspec

    with fsspec.open(path, "rb", compression="infer") as raw, _speaking_of(path):
        frame = read_text_table(raw, path)
    return path, _with_ids(path, frame)


def read_names(name: str, frame: pd.DataFrame, column: str) -> NDArray[np.object_]:
    """Read a column of names as text, so that ``001`` stays what it is.

    Raises
    ------
    SchemaError
        There is no such column, or a name is missing.
    """
    if column not in frame:
        raise SchemaError(
            f"{name} has no column {column!r}; it has {name_items(list(frame.columns))}"
        )
    with _speaking_of(name):
        texts = to_text(frame[column], column)
    empty = np.flatnonzero(texts == "")
    if empty.size:
        rows = name_items((int(row) + 1 for row in empty), total=empty.size)
        raise SchemaError(f"{name}: {column!r} is empty in row {rows} below the header")
    return texts


def _with_ids(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    # A pivoted frame keeps its ids in the index; an index without names only counts the rows.
    ids = [level for level in frame.index.names if level not in (None, *frame.columns)]
    if ids:
        frame = frame.reset_index(level=ids)
    with _speaking_of(name):
        frame = as_frame(frame)
    if "sample_id" not in frame and "dataset" in frame:
        frame = frame.rename(columns={"dataset": "sample_id"})
    return frame.assign(
        sample_id=read_names(name, frame, "sample_id"), method=read_names(name, frame, "method")
    )


def _from_dataset(name: str, dataset: xr.Dataset) -> tuple[str, pd.DataFrame]:
    if "value" not in dataset:
        there = name_items(map(str, dataset.data_vars)) or "none"
        raise SchemaError(f"{name} has no variable 'value' (it has {there}): it is no benchmark")
    array = dataset["value"]
    dims = ("dataset", "method", "metric")
    # One data set or method that was selected is a scalar coordinate.
    scalar = [dim for dim in dims if dim not in array.dims and dim in array.coords]
    array = array.expand_dims(scalar)
    if set(array.dims) != set(dims) or any(dim not in array.coords for dim in dims):
        raise SchemaError(
            f"{name}: 'value' has the dims {name_items(map(str, array.dims))}; expected 'dataset', "
            "'method' and 'metric', with their names"
        )
    array = array.transpose(*dims)
    datasets, methods, metrics = (array[dim].values.astype(object) for dim in dims)
    at = np.indices(array.shape).reshape(3, -1)
    frame = pd.DataFrame(
        {"sample_id": datasets[at[0]], "method": methods[at[1]], "metric": metrics[at[2]]}
    ).assign(value=array.values.ravel())
    return name, _with_ids(name, frame)


@contextlib.contextmanager
def _speaking_of(name: str) -> Iterator[None]:
    """Let what reads manifests name this table."""
    try:
        yield
    except SchemaError as err:
        text = str(err).removeprefix(name).lstrip(": ").replace("the manifest", "the table")
        raise SchemaError(f"{name}: {text}") from err
