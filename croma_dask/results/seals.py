"""Seals of results: digests by which a saved result is known to be what was written.

Chunks of a result have checksums of their own, as those of a store have (:func:`add_checksums`),
and are compared with these when they are read. A seal is about everything else, and is looked at
before a library opens the result.

Of a ``.zarr`` folder it is a file, ``zarr.json.sha256``, in the format of `sha256sum`: the root's
`zarr.json` holds attributes and metadata of the whole tree. It is no attribute: a result that
somebody changes with xarray and writes elsewhere would take that along.

Of a ``.nc`` file it stands behind the end of the HDF5 file, where HDF5 does not look: the places of
the chunks that have checksums, and a digest of all other bytes. A file that was written by somebody
else, or changed by HDF5 (which cuts it off), has none, and is opened as it is.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.checksums import codecs
from croma_dask.errors import StoreError

__all__ = ["add_checksums", "check_file", "check_folder", "is_sealed", "seal_file", "seal_folder"]

SEAL = "zarr.json.sha256"
_MARK = b"croma-dask seal1"
_TAIL = struct.Struct("<32sQ16s")
"""Digest, number of chunks, mark; before it the chunks, two 64-bit numbers each."""

_PIECE = 2**22
_SMALL = 2**14
"""Bytes from which a netCDF variable is cut into chunks, and so has checksums of its own."""

_MEND = "compute it again, or take a copy"


def add_checksums(written: Any, *, netcdf: bool) -> None:
    """Ask for checksums of all variables, in their encoding.

    Parameters
    ----------
    written
        Dataset or DataTree that is about to be written.
    netcdf
        Whether as netCDF (Fletcher-32, of numbers from 16 KiB; the seal covers the rest) or as
        Zarr (CRC-32C).
    """
    for node in getattr(written, "subtree", [written]):
        for variable in node.variables.values():
            if netcdf:
                # How it was cut up in another file says nothing about this one.
                for key in ("compressors", "chunksizes", "contiguous"):
                    variable.encoding.pop(key, None)
                is_large = variable.ndim and variable.nbytes >= _SMALL
                variable.encoding["fletcher32"] = bool(is_large and variable.dtype.kind in "biuf")
            else:
                variable.encoding.pop("fletcher32", None)
                variable.encoding["compressors"] = codecs(compress=True)


def seal_folder(folder: Path) -> None:
    """Write the seal of a ``.zarr`` result that is finished."""
    (folder / SEAL).write_text(f"{_digest_of(folder / 'zarr.json')}  zarr.json\n", encoding="ascii")


def is_sealed(folder: Path) -> bool:
    """Whether a ``.zarr`` result has a seal."""
    return (folder / SEAL).is_file()


def check_folder(folder: Path, name: str) -> None:
    """Compare a ``.zarr`` result with its seal; one without is not looked at.

    Parameters
    ----------
    folder
        The result; no values are read.
    name
        What messages call it.

    Raises
    ------
    StoreError
        Its metadata are not what was written, or chunks are missing.
    """
    if not is_sealed(folder):
        return
    stated = (folder / SEAL).read_bytes().split(b" ")[0]
    try:
        found = _digest_of(folder / "zarr.json")
    except OSError as err:
        raise StoreError(f"{name!r} is damaged: {err}; {_MEND}") from err
    if found.encode() != stated:
        raise StoreError(
            f"{name!r} was changed since it was written, or is damaged: zarr.json does not match "
            f"{SEAL}; {_MEND}, or delete {SEAL} if the change was meant"
        )
    document = json.loads((folder / "zarr.json").read_bytes())
    for path, about in document["consolidated_metadata"]["metadata"].items():
        lost = next((c for c in _chunks(about) if not (folder / path / c).is_file()), None)
        if lost is not None:
            raise StoreError(f"{name!r} is damaged: {path}/{lost}, a chunk, is missing; {_MEND}")


def _chunks(about: dict[str, Any]) -> Iterator[str]:
    """Files of the chunks of an array, by its metadata."""
    if about["node_type"] != "array":
        return
    sizes = about["chunk_grid"]["configuration"]["chunk_shape"]
    counts = [-(-n // size) for n, size in zip(about["shape"], sizes, strict=True)]
    for where in itertools.product(*map(range, counts)):
        yield "/".join(["c", *map(str, where)])


def seal_file(path: Path) -> None:
    """Append the seal to a ``.nc`` result that is finished."""
    apart = _checked_chunks(path)
    with open(path, "r+b") as file:
        end = file.seek(0, 2)
        digest = _digest_of_rest(file, apart, end)
        file.seek(end)
        file.write(apart.tobytes() + _TAIL.pack(digest, len(apart), _MARK))


def check_file(path: Path, name: str) -> None:
    """Compare a ``.nc`` result with its seal; one without is not looked at.

    Parameters
    ----------
    path
        The result. All of it is read but the chunks that have checksums of their own: values of
        samples.
    name
        What messages call it.

    Raises
    ------
    StoreError
        It is not what was written.
    """
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        if size < _TAIL.size:
            return
        file.seek(size - _TAIL.size)
        digest, count, mark = _TAIL.unpack(file.read(_TAIL.size))
        if mark != _MARK:
            return
        end = size - _TAIL.size - 16 * count
        if end >= 0:
            file.seek(end)
            apart = np.frombuffer(file.read(16 * count), "<i8").reshape(-1, 2)
            if _digest_of_rest(file, apart, end) == digest:
                return
    raise StoreError(f"{name!r} is damaged: it does not match the seal at its end; {_MEND}")


def _checked_chunks(path: Path) -> NDArray[np.int64]:
    """(n, 2) start and length of the chunks of a file that have checksums, from the first on."""
    import h5py

    found: list[tuple[int, int]] = []

    def look(_: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.fletcher32:
            node.id.chunk_iter(lambda chunk: found.append((chunk.byte_offset, chunk.size)))

    with h5py.File(path, "r") as file:
        file.visititems(look)
    return np.array(sorted(found), "<i8").reshape(-1, 2)


def _digest_of_rest(file: BinaryIO, apart: NDArray[np.int64], end: int) -> bytes:
    """SHA-256 of where the chunks lie, and of the bytes up to `end` that are none of theirs."""
    total = hashlib.sha256(apart.tobytes())
    at = 0
    for start, length in [*apart.tolist(), (end, 0)]:
        if not at <= start <= end:
            return b""
        file.seek(at)
        while at < start:
            part = file.read(min(_PIECE, start - at))
            if not part:
                return b""
            total.update(part)
            at += len(part)
        at = start + length
    return total.digest()


def _digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
