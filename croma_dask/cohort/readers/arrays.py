"""Readers of arrays that are already open: numpy, memory maps, dask, zarr, xarray."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.align import _ids_of
from croma_dask.cohort.readers.base import BlockSource, check_shape, no_signature
from croma_dask.errors import SchemaError

__all__ = ["ArrayReader"]


class ArrayReader:
    """Rows of an array-like with ``shape``, ``dtype`` and slicing.

    Parameters
    ----------
    array
        numpy array or memory map, dask array, zarr array, h5py dataset, xarray DataArray (whose
        ``sample_id`` coordinate names its rows), pandas DataFrame (whose index does, if it is of
        text), or a nested list.
    name
        How to call it in messages and in the store's attributes.

    Notes
    -----
    Memory: the rows asked for; for dask one chunk of its rows more.
    """

    def __init__(self, array: Any, name: str = "features") -> None:
        self.ids: NDArray[np.object_] | None = None
        self.manifest: pd.DataFrame | None = None
        array = self._unwrap(array)
        if not (hasattr(array, "shape") and hasattr(array, "dtype")):
            array = np.asarray(array)
        self.shape = check_shape(array.shape, name)
        self.dtype = np.dtype(array.dtype)
        self._array = array
        self._blocks: BlockSource | None = None
        if hasattr(array, "dask") and hasattr(array, "chunks"):
            if any(np.isnan(size) for sizes in array.chunks for size in sizes):
                raise SchemaError(f"{name} has unknown chunk sizes; call compute_chunk_sizes()")
            edges = np.cumsum((0, *array.chunks[0]))
            self._blocks = BlockSource(
                list(edges),
                lambda i: np.asarray(array[int(edges[i]) : int(edges[i + 1])].compute()),
            )
        kind = type(array).__module__.split(".")[0]
        self.source: dict[str, Any] = {"features": "array", "reader": kind}
        # nothing identifies an array between two runs: a resumed write compares its rows
        self.signature: dict[str, Any] = no_signature()

    def _unwrap(self, array: Any) -> Any:
        """Take the data out of a DataArray, rows first, or a data frame, and its sample ids."""
        if isinstance(array, pd.DataFrame):
            self.ids = _ids_of(array)
            return array.to_numpy()
        if not (hasattr(array, "dims") and hasattr(array, "coords")):
            return array
        if set(array.dims) == {"sample", "feature"}:
            array = array.transpose("sample", "feature")
        if "sample_id" in array.coords and array.coords["sample_id"].dims == array.dims[:1]:
            self.ids = _ids_of(array)
        # without dask, .data would load everything; slices of the DataArray read what they cover
        return array if array.chunks is None else array.data

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        if self._blocks is not None:
            return self._blocks.read(lo, hi)
        return np.asarray(self._array[lo:hi])

    def close(self) -> None:
        """Nothing to close: the array belongs to the caller."""
