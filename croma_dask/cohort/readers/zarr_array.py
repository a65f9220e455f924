"""Reader of Zarr arrays, version 2 or 3, consolidated or not, in folders, archives and URLs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort import layout
from croma_dask.cohort.location import Location
from croma_dask.cohort.readers.base import (
    BlockSource,
    block_edges,
    check_shape,
    choose_key,
    find_ids,
    no_signature,
)
from croma_dask.errors import InputWarning, SchemaError, StoreError

__all__ = ["ZarrReader", "is_zarr"]

_MARKS = ("zarr.json", ".zarray", ".zgroup")


def is_zarr(location: Location) -> bool:
    """Whether a folder or URL holds a Zarr array or group."""
    return any(location.read_bytes(mark) is not None for mark in _MARKS)


class ZarrReader:
    """Rows of a Zarr array.

    Parameters
    ----------
    path
        Folder, ``.zip`` archive or URL.
    key
        Path of the array in a group. Without it: the only two-dimensional one.
    storage_options
        Options of the fsspec file system.

    Notes
    -----
    Rows are named by an array ``sample_id`` or ``sample_ids`` of as many entries beside the one
    that is read; those of a cohort store by its own ``sample_id``. An array inside of a group that
    is opened by its own path is bare. Memory: the rows asked for and one block of whole chunks, at
    most 256 MiB; the ids.
    """

    def __init__(
        self,
        path: str,
        key: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        import zarr

        location = Location.of(path, storage_options)
        name = location.name
        self._store: Any
        if path.lower().endswith(".zip"):
            self._store = zarr.storage.ZipStore(location.url, mode="r", read_only=True)
        else:
            self._store = location.zarr_store(read_only=True)
        try:
            node = zarr.open(self._store, mode="r")
        except (FileNotFoundError, ValueError, KeyError) as err:
            raise SchemaError(f"{name} is not a readable Zarr array or group: {err}") from err
        ids = None
        if isinstance(node, zarr.Group):
            arrays = _arrays(node)
            several = {path: a.shape for path, a in arrays.items() if len(a.shape) >= 2}
            flat = {path: shape for path, shape in several.items() if len(shape) == 2}
            key = choose_key(
                name,
                "array",
                key.strip("/") if key else None,
                known=arrays,
                candidates=flat or several,
            )
            array = arrays[key]
            if key == layout.EMBEDDING and node.attrs.get("format") == layout.FORMAT:
                ids = _cohort_ids(node, int(array.shape[0]), name)
            else:
                beside = key.rpartition("/")[0]
                ids = find_ids(
                    int(array.shape[0]),
                    lambda wanted: arrays.get(f"{beside}/{wanted}".strip("/")),
                    lambda item: item[:],
                    name,
                )
        else:
            array = node
        self.shape = check_shape(array.shape, name if key is None else f"{name}, array {key!r}")
        self.dtype = np.dtype(array.dtype)
        _warn_absent(array, name)
        shards = getattr(array, "shards", None)
        chunk = int((shards or array.chunks)[0])
        edges = block_edges(self.shape, self.dtype.itemsize, chunk)
        self._rows = BlockSource(
            edges, lambda i: np.asarray(array[int(edges[i]) : int(edges[i + 1])])
        )
        self.ids: NDArray[np.object_] | None = ids
        self.manifest: pd.DataFrame | None = None
        self.source: dict[str, Any] = {"features": name, "reader": "zarr", "key": key or ""}
        # a folder of chunks has no time of its own: a resumed ingest compares rows
        self.signature: dict[str, Any] = no_signature()

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        return self._rows.read(lo, hi)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def _cohort_ids(group: Any, n_tiles: int, name: str) -> NDArray[np.object_]:
    """Return the sample id of each stored row of a cohort store.

    Raises
    ------
    StoreError
        The store is not finished, of another version, or damaged.
    """
    attrs = dict(group.attrs)
    problem = layout.describe_mismatch(attrs, name)
    if problem is not None:
        raise problem
    refs = {ref.name: ref for ref in layout.parse_columns(str(attrs["columns"]))}
    try:
        texts = np.asarray(group[refs["sample_id"].array][:]).astype(object)
    except KeyError as err:
        raise StoreError(f"{name} is damaged: its column sample_id is missing") from err
    if refs["sample_id"].kind == "category":
        names = np.asarray(group[refs["sample_id"].names_array][:]).astype(object)
        texts = np.append(names, "")[texts.astype(np.int64)]
    if layout.TILE in group:
        # every tile belongs to a sample; where to several, they have one id
        tiles = np.asarray(group[layout.TILE][:], dtype=np.int64)
        ids = np.full(n_tiles, "", dtype=object)
        ids[tiles] = texts
    else:
        ids = texts
    if (ids == "").any():
        raise StoreError(f"{name} is damaged: part of its column sample_id is missing")
    return ids


def _arrays(group: Any, prefix: str = "") -> dict[str, Any]:
    """Return all arrays below a group by their path."""
    found: dict[str, Any] = {}
    for name, array in group.arrays():
        found[prefix + name] = array
    for name, child in group.groups():
        found.update(_arrays(child, f"{prefix}{name}/"))
    return found


def _warn_absent(array: Any, name: str) -> None:
    """Warn where chunks are absent, which read as if they held the fill value."""
    absent = array.nchunks - array.nchunks_initialized
    if absent:
        warnings.warn(
            f"{name}: {absent} of {array.nchunks} chunks are not there and read as "
            f"{array.fill_value}; was it written to the end?",
            InputWarning,
            stacklevel=3,
        )
