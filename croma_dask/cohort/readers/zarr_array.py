"""Reader of Zarr arrays, version 2 or 3, consolidated or not, in folders, archives and URLs."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort import layout
from croma_dask.cohort.codecs import check_codecs
from croma_dask.cohort.location import Location
from croma_dask.cohort.outside import check_links
from croma_dask.cohort.readers.base import (
    BlockSource,
    block_edges,
    check_shape,
    choose_key,
    find_ids,
    no_signature,
)
from croma_dask.cohort.readers.trust import (
    check_archive,
    check_chunks,
    check_expansion,
    claimed_bytes,
    parsing,
)
from croma_dask.errors import InputWarning, MemoryLimitError, SchemaError, StoreError

__all__ = ["ZarrReader", "is_zarr"]

_DEEPEST = 20
_MARKS = ("zarr.json", ".zarray", ".zgroup")


def is_zarr(location: Location) -> bool:
    """Whether a folder or URL holds a Zarr array or group."""
    if location.is_local:
        # not opened: the mark itself may be a link to anywhere
        return any(os.path.lexists(os.path.join(location.url, mark)) for mark in _MARKS)
    return any(location.read_bytes(mark) is not None for mark in _MARKS)


class _Stored(NamedTuple):
    """What there is of a local store."""

    nbytes: int
    files: int


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
        self._name = name
        self.shape: tuple[int, int]
        self.dtype: np.dtype[Any]
        self.ids: NDArray[np.object_] | None
        stored = _look(location) if location.is_local else None
        if path.lower().endswith(".zip"):
            self._store = zarr.storage.ZipStore(location.url, mode="r", read_only=True)
        else:
            self._store = location.zarr_store(read_only=True)
        try:
            with parsing(name, "Zarr array or group"):
                node = zarr.open(self._store, mode="r")
            with _unpacking(name):
                array, key, self.ids = _choose(node, key, name, stored)
                what = name if key is None else f"{name}, array {key!r}"
                self.shape = check_shape(array.shape, what)
                self.dtype = np.dtype(array.dtype)
                _warn_absent(array, name)
                edges = block_edges(self.shape, self.dtype.itemsize, _chunk_rows(array))
        except BaseException:
            self._store.close()
            raise
        self._rows = BlockSource(
            edges, lambda i: np.asarray(array[int(edges[i]) : int(edges[i + 1])])
        )
        self.manifest: pd.DataFrame | None = None
        self.source: dict[str, Any] = {"features": name, "reader": "zarr", "key": key or ""}
        # a folder of chunks has no time of its own: a resumed ingest compares rows
        self.signature: dict[str, Any] = no_signature()

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        with _unpacking(self._name):
            return self._rows.read(lo, hi)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


@contextlib.contextmanager
def _unpacking(name: str) -> Iterator[None]:
    """Turn what goes wrong within chunks into an error that names the store.

    Shapes and chunks are held against what is stored before; what is left is the header that
    compressed bytes begin with, which blosc and others believe.
    """
    try:
        with parsing(name):
            yield
    except MemoryError as err:
        raise MemoryLimitError(
            f"{name}: a chunk asks for more memory than there is: it is damaged, or memory is short"
        ) from err


def _choose(
    node: Any, key: str | None, name: str, stored: _Stored | None
) -> tuple[Any, str | None, NDArray[np.object_] | None]:
    """Return the array to read, its path in the group that it is of, and the ids beside it."""
    import zarr

    if not isinstance(node, zarr.Group):
        _check_array(node, name, stored)
        return node, key, None
    arrays = _arrays(node, stored)
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
    n_rows = int(array.shape[0]) if array.shape else 0
    if key == layout.EMBEDDING and node.attrs.get("format") == layout.FORMAT:
        return array, key, _cohort_ids(node, n_rows, name)
    beside = key.rpartition("/")[0]

    def load(item: Any) -> NDArray[Any]:
        if stored is not None:
            check_expansion(stored.nbytes, math.prod(item.shape) * 8, f"the ids of {name}")
        return np.asarray(item[:])

    ids = find_ids(n_rows, lambda wanted: arrays.get(f"{beside}/{wanted}".strip("/")), load, name)
    return array, key, ids


def _check_array(array: Any, name: str, stored: _Stored | None) -> None:
    """Refuse an array whose chunks run code, or are larger than what is there could hold."""
    check_codecs(array, name)
    if stored is not None:
        chunks = array.shards or array.chunks
        nbytes = claimed_bytes(chunks, np.dtype(array.dtype))
        check_expansion(stored.nbytes, nbytes, f"{name}: a chunk")
        sizes = zip(array.shape, chunks, strict=True)
        check_chunks(math.prod(-(-n // max(1, size)) for n, size in sizes), stored.files, name)


def _chunk_rows(array: Any) -> int:
    return int((array.shards or array.chunks)[0])


def _look(location: Location) -> _Stored:
    """Return what a local store holds.

    Raises
    ------
    SchemaError
        A member of an archive grows out of measure.
    StoreError
        There is a symbolic link in it.
    """
    if os.path.isfile(location.url):
        with parsing(location.name, "Zarr archive"), zipfile.ZipFile(location.url) as archive:
            check_archive(archive, location.name)
            for entry in archive.infolist():
                what = f"{location.name}, member {entry.filename!r}"
                check_expansion(entry.compress_size, entry.file_size, what)
            return _Stored(os.path.getsize(location.url), len(archive.infolist()))
    check_links(location)
    sizes = location.sizes()
    return _Stored(sum(sizes.values()), len(sizes))


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


def _arrays(group: Any, stored: _Stored | None, prefix: str = "") -> dict[str, Any]:
    """Return all arrays below a group by their path."""
    if prefix.count("/") > _DEEPEST:
        # in an archive a group without a name is its own child
        raise SchemaError(f"groups in groups, {_DEEPEST} deep and more: {prefix[:40]!r}")
    found: dict[str, Any] = {}
    for name, array in group.arrays():
        _check_array(array, f"array {prefix + name!r}", stored)
        found[prefix + name] = array
    for name, child in group.groups():
        found.update(_arrays(child, stored, f"{prefix}{name}/"))
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
