"""Reader of ``.npy`` files: any order, byte order and real dtype, without loading the file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib import recfunctions
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import check_shape, file_signature
from croma_dask.cohort.readers.npy_header import read_header
from croma_dask.cohort.readers.trust import parsing
from croma_dask.errors import SchemaError

__all__ = ["NpyReader", "open_npy"]


def open_npy(path: str) -> NDArray[Any]:
    """Map a ``.npy`` file into memory; pickled content is refused.

    Raises
    ------
    SchemaError
        The file is truncated, holds Python objects, or is no ``.npy`` file.
    """
    name = os.path.basename(path)
    with parsing(name, ".npy file"), open(path, "rb") as file:
        header = read_header(file, os.fstat(file.fileno()).st_size, name, ".npy file")
        start = file.tell()
    with parsing(name, ".npy file"):
        if header.nbytes == 0:
            return np.empty(header.shape, header.dtype)
        array: NDArray[Any] = np.memmap(
            path,
            header.dtype,
            mode="r",
            shape=header.shape,
            order="F" if header.fortran else "C",
            offset=start,
        )
        return array


class NpyReader:
    """Rows of a ``.npy`` file.

    A structured file whose fields are all floats is a table of columns: it is read as
    (rows, fields). Memory: the rows asked for.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        name = os.path.basename(path)
        self._map: NDArray[Any] | None = open_npy(path)
        array = self._map
        self._fields = array.dtype.names
        if self._fields:
            self.shape, self.dtype = _table_shape(array, name)
        else:
            self.shape = check_shape(array.shape, name)
            self.dtype = array.dtype
        # rows of a C-ordered file are read, not mapped: pages of a map count as this process's
        self._offset = _offset(array) if array.flags.c_contiguous and not self._fields else None
        self.ids: NDArray[np.object_] | None = None
        self.manifest: pd.DataFrame | None = None
        self.source: dict[str, Any] = {"features": name, "reader": "npy"}
        self.signature: dict[str, Any] = file_signature(path)

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        if self._offset is not None:
            count = (hi - lo) * self.shape[1]
            skip = self._offset + lo * self.shape[1] * self.dtype.itemsize
            rows = np.fromfile(self.path, dtype=self.dtype, count=count, offset=skip)
            return rows.reshape(hi - lo, self.shape[1])
        if self._map is None:
            raise ValueError("the reader is closed")
        block = np.asarray(self._map[lo:hi])
        if self._fields:
            return recfunctions.structured_to_unstructured(block, dtype=self.dtype)
        return block

    def close(self) -> None:
        """Drop the map of the file."""
        self._map = None


def _offset(array: NDArray[Any]) -> int | None:
    return int(array.offset) if isinstance(array, np.memmap) else None


def _table_shape(array: NDArray[Any], name: str) -> tuple[tuple[int, int], np.dtype[Any]]:
    """Return shape and dtype of a structured array seen as a table of float columns."""
    assert array.dtype.names is not None
    kinds = [array.dtype[field] for field in array.dtype.names]
    if array.ndim != 1 or any(kind.kind != "f" or kind.shape for kind in kinds):
        raise SchemaError(
            f"{name} is structured with fields {', '.join(array.dtype.names)} that are not all "
            "floats; save the features alone, as one two-dimensional array"
        )
    return (len(array), len(kinds)), np.result_type(*kinds)
