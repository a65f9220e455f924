"""Files of arrays whose damage is noticed: arrays by name, and rows that are read apart.

Scratch is gone on from by later runs, so it is looked at as strictly as a store: a bit that has
flipped anywhere in a file is an error, never another number.
"""

from __future__ import annotations

import errno
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from croma_dask.cohort.checksums import CRC_BYTES, crc32c
from croma_dask.errors import StoreError

__all__ = ["read_arrays", "read_rows", "write_arrays", "write_rows"]

_OF_THE_FILE = (None, errno.EINVAL, errno.EISDIR, errno.ENOTDIR)
"""What the system says of a file that is not what it should be: a folder, places outside of it."""

_SUFFIX = ".npy"
_BLOCK = 2**18
"""Bytes of the rows that share a checksum."""

_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def write_arrays(file: BinaryIO, arrays: Mapping[str, Any]) -> None:
    """Write arrays as an `.npz` file that lists its own names, so that none can go missing.

    Parameters
    ----------
    file
        Empty, and seekable.
    arrays
        By name; no objects.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            # Without the time, which an archive cannot hold if the clock is wrong enough.
            info = zipfile.ZipInfo(name + _SUFFIX)
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
        archive.comment = "\n".join(arrays).encode()


def read_arrays(path: Path, keys: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Read arrays from a file of :func:`write_arrays`.

    Parameters
    ----------
    path
        The file.
    keys
        Names of the arrays to read; all without.

    Raises
    ------
    FileNotFoundError
        There is none.
    StoreError
        It is not what was written: every array is compared with its checksum, and its size with
        that of the file before memory is taken for it.
    """
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(_SUFFIX) for name in archive.namelist()]
            if archive.comment.decode().split("\n") != (names or [""]):
                raise ValueError("arrays are missing")
            return {key: _read_member(archive, key) for key in keys or names}
    except FileNotFoundError:
        raise
    except (
        OSError, ValueError, KeyError, EOFError, RuntimeError, NotImplementedError,
        OverflowError, SyntaxError, zipfile.BadZipFile, struct.error, zlib.error,
    ) as err:  # fmt: skip
        # Too many open files, a disk that does not answer: these say nothing of the file.
        if isinstance(err, OSError) and err.errno not in _OF_THE_FILE:
            raise
        raise StoreError(f"{path} is damaged ({err})") from err


def _read_member(archive: zipfile.ZipFile, name: str) -> Any:
    info = archive.getinfo(name + _SUFFIX)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise ValueError(f"{name} is not stored as it is written")
    with archive.open(info) as member:
        _check_header(member, name, info.file_size)
    with archive.open(info) as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
        # To the end, where the archive compares the checksum.
        if member.read():
            raise ValueError(f"{name} has another size than it says")
    return array


def _check_header(member: IO[bytes], name: str, size: int) -> None:
    """Check that a header asks for as many bytes as there are, before any are taken for it."""
    version = np.lib.format.read_magic(member)
    if version not in _READ_HEADER:
        raise ValueError(f"{name} is of a version that was never written")
    shape, _, dtype = _READ_HEADER[version](member)
    count = 1
    for n in shape:
        count *= int(n)
    if dtype.hasobject or count * dtype.itemsize != size - member.tell():
        raise ValueError(f"{name} has another size than it says")


def write_rows(path: Path, rows: Any) -> None:
    """Write the rows of an array, a checksum behind every block of them.

    Parameters
    ----------
    path
        Overwritten.
    rows
        (n, width), any numbers.
    """
    step = _rows_of_block(rows.dtype, rows.shape[1])
    with open(path, "wb") as file:
        for lo in range(0, rows.shape[0], step):
            block = np.ascontiguousarray(rows[lo : lo + step]).reshape(-1).view(np.uint8)
            file.write(block.data)
            file.write(crc32c(block).to_bytes(CRC_BYTES, "little"))


def read_rows(path: Path, dtype: Any, lo: int, hi: int, width: int) -> Any:
    """Read rows lo..hi of a file of :func:`write_rows`.

    Parameters
    ----------
    path
        The file.
    dtype, width
        As it was written.
    lo, hi
        Rows wanted.

    Returns
    -------
    ndarray, shape (hi - lo, width)

    Raises
    ------
    StoreError
        It is missing, cut short, or not what was written.

    Notes
    -----
    Plain reads, not a map: pages of a map would count as memory of the process. Memory: the blocks
    that the rows lie in.
    """
    dtype = np.dtype(dtype)
    row_bytes = dtype.itemsize * width
    if not row_bytes or hi <= lo:
        return np.empty((hi - lo, width), dtype)
    step = _rows_of_block(dtype, width)
    first = lo // step
    out = np.empty((-(-hi // step) - first) * step * row_bytes, np.uint8)
    at = 0
    try:
        with open(path, "rb") as file:
            full, rest = divmod(os.fstat(file.fileno()).st_size, step * row_bytes + CRC_BYTES)
            n = full * step + max(0, rest - CRC_BYTES) // row_bytes
            file.seek(first * (step * row_bytes + CRC_BYTES))
            for row in range(first * step, min(hi, n), step):
                block = out[at : at + min(step, n - row) * row_bytes]
                count = file.readinto(block.data)
                stored = int.from_bytes(file.read(CRC_BYTES), "little")
                if count != len(block) or crc32c(block) != stored:
                    raise StoreError(
                        f"{path} is damaged (from row {row} on it does not match its checksum)"
                    )
                at += len(block)
    except IsADirectoryError as err:
        raise StoreError(f"{path} is damaged (it is a folder)") from err
    found = out[(lo - first * step) * row_bytes :][: (hi - lo) * row_bytes]
    if hi > n:
        raise StoreError(f"{path} is damaged (it ends early)")
    return found.view(dtype).reshape(hi - lo, width)


def _rows_of_block(dtype: np.dtype[Any], width: int) -> int:
    return max(1, _BLOCK // max(1, dtype.itemsize * width))
