"""Texts along `sample` in a netCDF file, read when they are asked for.

xarray reads a column of texts whole when it opens a file, only to learn that it holds texts. Ids of
ten million samples, and four more such columns in each of three metrics, take minutes and gigabytes
that way, whatever is wanted of the result.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.errors import StoreError

if TYPE_CHECKING:
    import h5netcdf
    import xarray as xr

__all__ = ["LazyText", "texts_along_sample"]

_ROWS = 1 << 18
"""Rows that are read at once."""


@dataclass(frozen=True)
class LazyText:
    """A variable of a file, and whether it is a coordinate there."""

    variable: xr.Variable
    is_coordinate: bool


@dataclass(frozen=True)
class _Column:
    """What dask reads pieces of; it can be sent to a worker.

    Attributes
    ----------
    file, written
        Path of the file, and when it was written, in nanoseconds.
    name
        Of the variable, from the root of the file.
    shape
        (n,) of samples.
    """

    file: str
    written: int
    name: str
    shape: tuple[int, ...]

    dtype = np.dtype(object)

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.shape)

    def __getitem__(self, key: Any) -> NDArray[np.object_]:
        """Read texts; slices only."""
        import h5py

        if os.stat(self.file).st_mtime_ns != self.written:
            raise StoreError(
                f"{self.file!r} was written again while a result of it was open; open it again"
            )
        try:
            with h5py.File(self.file) as file:
                found: NDArray[np.object_] = file[self.name].asstr()[key]
        # There is no telling what h5py raises on texts that are damaged, or none.
        except Exception as err:
            raise StoreError(
                f"{self.file!r} is damaged: {self.name!r} cannot be read ({err}); compute it "
                "again, or take a copy"
            ) from err
        return found


def texts_along_sample(path: Path) -> dict[str, dict[str, LazyText]]:
    """Find the texts along `sample` of every group of a file; reads none of them.

    Parameters
    ----------
    path
        netCDF 4 file.

    Returns
    -------
    dict
        Path of the group ("/" of the file itself) to name to what is there: (n,) dask arrays of
        Python strings.
    """
    import h5netcdf

    written = os.stat(path).st_mtime_ns
    with h5netcdf.File(path, "r") as file:
        groups = {"/": file, **{f"/{name}": group for name, group in file.groups.items()}}
        return {place: _of_group(group, str(path), written) for place, group in groups.items()}


def _of_group(group: h5netcdf.Group, path: str, written: int) -> dict[str, LazyText]:
    import dask.array as da
    import xarray as xr

    found = {}
    variables = dict(group.variables.items())
    coordinates = {*_named(group.attrs), *(n for v in variables.values() for n in _named(v.attrs))}
    for name, variable in variables.items():
        # Texts of any length; those of a fixed one are bytes, which xarray leaves alone.
        if np.dtype(variable.dtype).kind not in "OU" or "sample" not in variable.dimensions:
            continue
        column = _Column(path, written, variable.name, tuple(variable.shape))
        chunks = tuple(min(_ROWS, n) if dim == "sample" else n for dim, n in zip(
            variable.dimensions, column.shape, strict=True
        ))  # fmt: skip
        data = da.from_array(
            column, chunks=chunks, meta=np.empty((0,) * column.ndim, object), fancy=False
        )
        about = {key: value for key, value in variable.attrs.items() if key != "coordinates"}
        found[str(name)] = LazyText(
            xr.Variable(tuple(variable.dimensions), data, about), str(name) in coordinates
        )
    return found


def _named(attrs: Mapping[str, Any]) -> list[str]:
    """Names that a variable or a group gives as its coordinates."""
    value = attrs.get("coordinates", "")
    return value.split() if isinstance(value, str) else []
