"""Reader of one two-dimensional dataset of an HDF5 file."""

from __future__ import annotations

import functools
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
from croma_dask.cohort.readers.hdf5_chunks import read_rows
from croma_dask.cohort.readers.hdf5_objects import (
    check_dataset,
    datasets,
    find,
    read_whole,
    warn_absent,
)
from croma_dask.cohort.readers.hdf5_vetting import vet
from croma_dask.cohort.readers.trust import parsing

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

    with parsing(os.path.basename(path), "HDF5 file"):
        vet([path])
        return h5py.File(path, "r")


def dataset_rows(dataset: h5py.Dataset) -> BlockSource:
    """Read a dataset by whole chunks, so that each is decompressed once in a pass."""
    chunk = dataset.chunks[0] if dataset.chunks else None
    edges = block_edges(dataset.shape, dataset.dtype.itemsize, chunk)
    return BlockSource(edges, lambda i: read_rows(dataset, edges[i], edges[i + 1]))


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
        self.shape: tuple[int, int]
        self.dtype: np.dtype[Any]
        self.ids: NDArray[np.object_] | None
        try:
            with parsing(self.name):
                self.key, dataset = self._find(key)
                what = f"{self.name}, dataset {self.key!r}"
                self.shape = check_shape(dataset.shape, what)
                self.dtype = dataset.dtype
                warn_absent(dataset, what)
                self._rows = dataset_rows(dataset)
                self.ids = self._find_ids(dataset)
        except BaseException:
            self._file.close()
            raise
        self.manifest: pd.DataFrame | None = None
        self.source: dict[str, Any] = {"features": self.name, "reader": "hdf5", "key": self.key}
        self.signature: dict[str, Any] = {**file_signature(path), "key": self.key}

    def _find(self, key: str | None) -> tuple[str, h5py.Dataset]:
        import h5py

        known = dict(datasets(self._file))
        key = key.strip("/") if key else None
        if key is None:
            # a link by that name is what was meant, too: what it leads to is looked at below
            links = (h5py.SoftLink, h5py.ExternalLink)
            key = next(
                (
                    name
                    for name in FEATURE_KEYS
                    if name in known or isinstance(self._file.get(name, getlink=True), links)
                ),
                None,
            )
        if key is not None and isinstance(found := find(self._file, key), h5py.Dataset):
            return key, found
        several = {name: item.shape for name, item in known.items() if item.ndim >= 2}
        flat = {name: shape for name, shape in several.items() if len(shape) == 2}
        name = choose_key(self.name, "dataset", key, known=known, candidates=flat or several)
        check_dataset(known[name])
        return name, known[name]

    def _find_ids(self, dataset: h5py.Dataset) -> NDArray[np.object_] | None:
        for group in (dataset.parent, self._file):
            ids = find_ids(
                self.shape[0],
                functools.partial(find, group),
                lambda item: read_whole(item, f"the ids of {self.name}"),
                self.name,
            )
            if ids is not None:
                return ids
        return None

    def coordinates(self) -> NDArray[Any] | None:
        """Return the pixel coordinates of the rows, where the file has them; (n, 2 or more)."""
        with parsing(self.name):
            for name in COORDS_KEYS:
                item = find(self._file, name)
                shape = getattr(item, "shape", None)
                if shape and len(shape) == 2 and shape[0] == self.shape[0] and shape[1] >= 2:
                    return read_whole(item, f"{name} of {self.name}")
        return None

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        with parsing(self.name):
            return self._rows.read(lo, hi)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
