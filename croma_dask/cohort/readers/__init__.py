"""Readers of embeddings, one module a format, all streamed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from croma_dask.cohort.location import Location
from croma_dask.cohort.readers.base import EmbeddingReader
from croma_dask.errors import SchemaError

__all__ = ["open_reader"]

_EXPECTED = (
    ".npy, .npz, .h5ad, .parquet, .h5, a Zarr array, or a folder of one .h5, .npy or .npz a slide"
)


def open_reader(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> EmbeddingReader:
    """Open a file or folder of embeddings by its kind.

    Parameters
    ----------
    path
        Local path or URL. What is at a URL and no Zarr array is copied here first.
    key
        Which array to read, where the file holds several.
    storage_options
        Options of the fsspec file system.

    Raises
    ------
    SchemaError
        There is nothing at `path`, its kind is unknown, or its content is not (rows, features).
    StoreError
        What is at a URL cannot be read, or there is no room for it here.
    """
    location = Location.of(path, storage_options)
    if not location.is_local:
        return _open_remote(location, key, storage_options)
    text = location.url
    if not os.path.exists(text):
        raise SchemaError(f"there is no {os.fspath(path)}")
    if os.path.isdir(text):
        return _open_folder(location, key)
    return _open_file(text, key)


def _open_file(path: str, key: str | None) -> EmbeddingReader:
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".npy":
        from croma_dask.cohort.readers.npy import NpyReader

        if key is not None:
            raise SchemaError("a .npy file holds one array; leave key= (--key) out")
        return NpyReader(path)
    if suffix == ".npz":
        from croma_dask.cohort.readers.npz import open_npz

        return open_npz(path, key)
    if suffix == ".h5ad":
        from croma_dask.cohort.readers.h5ad import H5adReader

        return H5adReader(path, key)
    if suffix in {".h5", ".hdf5"}:
        from croma_dask.cohort.readers.hdf5 import Hdf5Reader

        return Hdf5Reader(path, key)
    if suffix in {".parquet", ".pq"}:
        from croma_dask.cohort.readers.parquet import ParquetReader

        return ParquetReader(path, key)
    if suffix == ".zip":
        from croma_dask.cohort.readers.zarr_array import ZarrReader

        return ZarrReader(path, key)
    raise SchemaError(f"{os.path.basename(path)}: unknown kind of file; expected {_EXPECTED}")


def _open_folder(location: Location, key: str | None) -> EmbeddingReader:
    from croma_dask.cohort.readers.zarr_array import ZarrReader, is_zarr

    if is_zarr(location):
        return ZarrReader(location.url, key)
    from croma_dask.cohort.readers.folder import open_folder

    return open_folder(location.url, key)


def _open_remote(
    location: Location, key: str | None, storage_options: Mapping[str, Any] | None
) -> EmbeddingReader:
    from croma_dask.cohort.readers.folder import open_folder
    from croma_dask.cohort.readers.remote import RemoteReader
    from croma_dask.cohort.readers.zarr_array import ZarrReader, is_zarr

    about = location.about()
    if about is not None and about["type"] == "file":
        return RemoteReader(location, lambda path: _open_file(path, key))
    if is_zarr(location):
        return ZarrReader(location.url, key, storage_options)
    if about is None:
        raise SchemaError(f"there is no {location}")
    return RemoteReader(location, lambda path: open_folder(path, key))
