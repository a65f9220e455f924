"""Reader of one two-dimensional dataset of an HDF5 file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import (
    BlockSource,
    block_edges,
    check_shape,
    choose_key,
    file_signature,
    find_ids,
)
from croma_dask.errors import SchemaError

if TYPE_CHECKING:
    import h5py

__all__ = ["COORDS_KEYS", "FEATURE_KEYS", "Hdf5Reader", "dataset_rows", "open_hdf5"]

# What pathology feature extractors call their datasets.
FEATURE_KEYS = ("features", "feats")
COORDS_KEYS = ("coords", "coordinates")


def open_hdf5(path: str) -> h5py.File:
    """Open an HDF5 file for reading.

    Raises
    ------
    SchemaError
        It is truncated or no HDF5 file.
    """
    import h5py

    try:
        return h5py.File(path, "r")
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except OSError as err:
        raise SchemaError(f"{os.path.basename(path)} is not a readable HDF5 file: {err}") from err


def dataset_rows(dataset: h5py.Dataset) -> BlockSource:
    """Read a dataset by whole chunks, so that each is decompressed once in a pass."""
    chunk = dataset.chunks[0] if dataset.chunks else None
    edges = block_edges(dataset.shape, dataset.dtype.itemsize, chunk)
    return BlockSource(edges, lambda i: dataset[int(edges[i]) : int(edges[i + 1])])


class Hdf5Reader:
    """Rows of a dataset of an HDF5 file.

    Parameters
    ----------
    path
        Local path.
    key
        Path of the dataset in the file. Without it: ``features`` or ``feats``, or the only
        two-dimensional dataset.

    Notes
    -----
    A dataset ``sample_id`` or ``sample_ids`` of as many entries, beside the features or at the root
    of the file, names the rows. Memory: the rows asked for and one chunk of the dataset; the ids.
    """

    def __init__(self, path: str, key: str | None = None) -> None:
        self.path = path
        self.name = os.path.basename(path)
        self._file = open_hdf5(path)
        try:
            self.key, dataset = self._find(key)
            self.shape = check_shape(dataset.shape, f"{self.name}, dataset {self.key!r}")
        except SchemaError:
            self._file.close()
            raise
        self.dtype: np.dtype[Any] = dataset.dtype
        self._rows = dataset_rows(dataset)
        self.ids: NDArray[np.object_] | None = self._find_ids(dataset)
        self.manifest: pd.DataFrame | None = None
        self.source: dict[str, Any] = {"features": self.name, "reader": "hdf5", "key": self.key}
        self.signature: dict[str, Any] = {**file_signature(path), "key": self.key}

    def _find(self, key: str | None) -> tuple[str, h5py.Dataset]:
        import h5py

        datasets: dict[str, h5py.Dataset] = {}

        def visit(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                datasets[name] = item

        self._file.visititems(visit)
        if key is None:
            key = next((known for known in FEATURE_KEYS if known in datasets), None)
        several = {name: item.shape for name, item in datasets.items() if item.ndim >= 2}
        flat = {name: shape for name, shape in several.items() if len(shape) == 2}
        name = choose_key(
            self.name,
            "dataset",
            key.strip("/") if key else None,
            known=datasets,
            candidates=flat or several,
        )
        return name, datasets[name]

    def _find_ids(self, dataset: h5py.Dataset) -> NDArray[np.object_] | None:
        for group in (dataset.parent, self._file):
            ids = find_ids(self.shape[0], group.get, lambda item: item[...], self.name)
            if ids is not None:
                return ids
        return None

    def coordinates(self) -> NDArray[Any] | None:
        """Return the pixel coordinates of the rows, where the file has them; (n, 2 or more)."""
        for name in COORDS_KEYS:
            if name in self._file:
                coords = np.asarray(self._file[name][...])
                if coords.ndim == 2 and coords.shape[0] == self.shape[0] and coords.shape[1] >= 2:
                    return coords
        return None

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        return self._rows.read(lo, hi)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
