"""Files that xarray is about to open: what they claim, and what they lead to, looked at before.

xarray cuts an array into tasks, and reads what is small, by what the metadata say. A file of a few
kilobytes must not make it ask for terabytes, nor open another file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from croma_dask.cohort.codecs import check_codecs
from croma_dask.cohort.location import Location
from croma_dask.cohort.outside import check_links
from croma_dask.cohort.readers.hdf5_objects import check_dataset
from croma_dask.cohort.readers.hdf5_vetting import vet
from croma_dask.cohort.readers.trust import check_expansion, claimed_bytes
from croma_dask.errors import CromaDaskError, StoreError

__all__ = ["check_netcdf", "check_zarr"]

_USUAL_CHUNKS = 10_000
_CHUNKS_A_FILE = 100
_LEAST_CHUNK = 8
"""Bytes that a chunk takes in an HDF5 file at the least: its place in the list of chunks."""


def check_zarr(place: Location, name: str) -> None:
    """Look at a Zarr group of any version, which somebody may have made.

    Parameters
    ----------
    place
        The group; no chunk is read.
    name
        What messages call it.

    Raises
    ------
    StoreError
        There are links in it; an array claims a hundred times what is stored; its metadata cannot
        be read.
    SchemaError
        Chunks are pickled.
    """
    import zarr

    check_links(place)
    try:
        group = zarr.open_group(place.zarr_store(read_only=True), mode="r")
        arrays: list[tuple[str, Any]] = [
            (path, node) for path, node in group.members(max_depth=None) if hasattr(node, "shape")
        ]
    except (CromaDaskError, PermissionError):
        raise
    # There is no telling what zarr raises on metadata that its authors did not foresee.
    except Exception as err:
        raise StoreError(f"{name} is damaged, or no Zarr group: {err}") from err
    sizes: dict[str, int] | None = None
    for path, array in arrays:
        what = f"{name}, array {path!r}"
        check_codecs(array, what)
        plain = _plain(array.shape, array.dtype, what)
        n_chunks = _n_chunks(array.shape, array.shards or array.chunks, what)
        if plain <= _UNLISTED_BYTES and n_chunks <= _USUAL_CHUNKS:
            continue
        sizes = place.sizes() if sizes is None else sizes
        _check(plain, n_chunks, sum(sizes.values()), _CHUNKS_A_FILE * len(sizes), what)


_UNLISTED_BYTES = 2**20
"""An array that claims less is believed without a look at the files."""


def check_netcdf(path: Path, name: str) -> None:
    """Look at a netCDF 4 file, which somebody may have made.

    Parameters
    ----------
    path
        The file; no value is read.
    name
        What messages call it.

    Raises
    ------
    StoreError
        It cannot be read, refers to other files, or claims a hundred times what it holds.
    """
    import h5py

    size = os.path.getsize(path)
    try:
        vet([os.fspath(path)])
        with h5py.File(path, "r") as file:
            for dataset in _datasets(file, name):
                what = f"{name}, variable {dataset.name!r}"
                check_dataset(dataset)
                shape = dataset.shape or ()
                plain = _plain(shape, dataset.dtype, what)
                n_chunks = _n_chunks(shape, dataset.chunks or shape, what)
                _check(plain, n_chunks, size, size // _LEAST_CHUNK, what)
    except StoreError:
        raise
    except CromaDaskError as err:
        raise StoreError(str(err)) from err
    except PermissionError:
        raise
    # Nor what h5py does.
    except Exception as err:
        raise StoreError(f"{name} is damaged: {err}") from err


def _datasets(group: Any, name: str, depth: int = 0) -> Iterator[Any]:
    """All datasets below a group; what is written as netCDF has no links but hard ones."""
    import h5py

    if depth > _DEEPEST:
        raise StoreError(f"{name} is damaged: it has groups in groups without end")
    for key in group:
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise StoreError(
                f"{name}: {key!r} is a link to another place or file, which is not followed"
            )
        item = group[key]
        if isinstance(item, h5py.Dataset):
            yield item
        elif isinstance(item, h5py.Group):
            yield from _datasets(item, name, depth + 1)


_DEEPEST = 8


def _plain(shape: tuple[int, ...], dtype: Any, what: str) -> int:
    try:
        return claimed_bytes(shape, dtype)
    except (ValueError, TypeError, OverflowError) as err:
        raise StoreError(f"{what} is damaged: {err}") from err


def _n_chunks(shape: tuple[int, ...], chunks: tuple[int, ...], what: str) -> int:
    if len(chunks) != len(shape) or any(size < 1 for size in chunks) and 0 not in shape:
        raise StoreError(f"{what} is damaged: it has shape {shape} and chunks {chunks}")
    pairs = zip(shape, chunks, strict=True)
    return math.prod(-(-n // max(size, 1)) for n, size in pairs)


def _check(plain: int, n_chunks: int, stored: int, most_chunks: int, what: str) -> None:
    check_expansion(stored, plain, what)
    if n_chunks > max(_USUAL_CHUNKS, most_chunks):
        raise StoreError(f"{what} claims {n_chunks:,} chunks, far more than are stored")
