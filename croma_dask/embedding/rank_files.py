"""Open what values to rank are kept in: a file, a data frame, a Dataset."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from croma_dask import formats
from croma_dask.cohort.claims import check_netcdf, check_zarr
from croma_dask.cohort.listing import has_magic, matches
from croma_dask.cohort.location import Location
from croma_dask.cohort.readers.tables import read_text_table
from croma_dask.cohort.text import as_frame, to_text
from croma_dask.cohort.transfer import fetched
from croma_dask.errors import CromaDaskError, SchemaError, name_items
from croma_dask.outward import unguarded

__all__ = ["expanded", "open_table", "read_names"]


def expanded(item: Any, storage_options: Mapping[str, Any] | None) -> list[Any]:
    """Bring the URL of a pattern into those that it means; anything else stays as it is.

    Raises
    ------
    SchemaError
        Nothing matches.
    """
    if not isinstance(item, str | os.PathLike):
        return [item]
    place = Location.of(item, storage_options)
    if place.is_local or not has_magic(place.url) or place.about() is not None:
        return [item]
    found = [one.url for one, _ in matches(place)]
    if not found:
        raise SchemaError(f"nothing matches {place}")
    return found


def open_table(
    item: Any, at: int, storage_options: Mapping[str, Any] | None = None
) -> tuple[str, pd.DataFrame]:  # fmt: skip
    """Open one table.

    Parameters
    ----------
    item
        A path, data frame, Dataset or DataArray.
    at
        Its number, for messages about what has no name.
    storage_options
        Options of the fsspec file system of a path that is a URL.

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
    location = Location.of(item, storage_options)
    if location.is_local:
        return _read(os.fspath(item), os.fspath(item))
    about = location.about()
    if about is not None and about["type"] == "directory" and not location.url.endswith(".zarr"):
        raise _folder(location.url)
    with fetched(location) as local:
        return _read(str(local), location.url)


def _read(path: str, name: str) -> tuple[str, pd.DataFrame]:
    """Read a file of this machine, which messages call by a name."""
    if path.endswith((".nc", ".zarr")):
        with _opened(path, name) as dataset:
            formats.check_result(dataset.attrs, name)
            return _from_dataset(name, dataset)
    if os.path.isdir(path):
        raise _folder(name)
    import fsspec

    with fsspec.open(path, "rb", compression="infer") as raw, _speaking_of(name):
        frame = _as_written(read_text_table(raw, name))
    return name, _with_ids(name, frame)


def _folder(name: str) -> SchemaError:
    return SchemaError(
        f"{name} is a folder: name its wide tables, for example "
        f"{name.rstrip('/')}/benchmark/*_leiden_metrics_wide.csv"
    )


@contextlib.contextmanager
def _opened(path: str, name: str) -> Iterator[xr.Dataset]:
    """Open a Dataset that somebody saved, with what is ranked read."""
    is_zarr = path.endswith(".zarr")
    with contextlib.ExitStack() as keep:
        try:
            if is_zarr:
                check_zarr(Location.of(path), name)
            else:
                check_netcdf(Path(path), name)
            engine = "zarr" if is_zarr else "h5netcdf"
            opened = keep.enter_context(xr.open_dataset(path, engine=engine))
            if "value" in opened:
                opened["value"].load()
        except (CromaDaskError, PermissionError, FileNotFoundError):
            raise
        # There is no telling what libraries raise on files that their authors did not foresee.
        except Exception as err:
            raise SchemaError(f"{name} cannot be opened as a saved Dataset: {err}") from err
        yield opened


def _as_written(frame: pd.DataFrame) -> pd.DataFrame:
    """Take the apostrophes away that keep spreadsheets from reading names as formulas."""
    for name, column in frame.items():
        if column.str.startswith("'").any():
            frame[name] = column.map(unguarded, na_action="ignore")
    return frame.set_axis([unguarded(str(name)) for name in frame.columns], axis=1)


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
