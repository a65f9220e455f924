"""Rows of a stored array, read by chunks straight from local files where that is possible."""

from __future__ import annotations

import os
from io import FileIO
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort import layout
from croma_dask.cohort.checksums import CRC_BYTES, crc32c
from croma_dask.cohort.location import Location
from croma_dask.errors import StoreError

if TYPE_CHECKING:
    import zarr

__all__ = ["ChunkReader"]

_PIECE = 2**20
"""Bytes that are read, and added to the checksum while they are in the processor's cache."""

_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_CRC = {"name": "crc32c"}

_Version = tuple[int, int, int]
"""Inode and times of a file: what tells that it is the one that was checked."""

_checked: dict[tuple[str, str, int], _Version] = {}
"""What this process has checked, by store, array and chunk: handles are made anew in every task."""


class ChunkReader:
    """Read rows of the embedding array of a store; safe from many threads.

    Parameters
    ----------
    array, location, name
        The array, the store that it is in, and its name there.
    mend
        What to do about a damaged one.

    Attributes
    ----------
    shape, dtype, chunk_rows
        Of the array; the dtype in native byte order.

    Notes
    -----
    Uncompressed chunks of local files are read without zarr, which is several times faster
    (``benchmarks/README.md``); everything else goes through zarr. A chunk that has a checksum is
    compared with it whenever it is read whole. When only some of its rows are asked for, all of it
    is read and compared once, and again when the file has changed; as long as it has not, later
    reads of some rows read no more than these. Memory: the result and 1 MiB; through zarr the
    result and a chunk.
    """

    def __init__(
        self,
        array: zarr.Array[Any],
        location: Location,
        name: str = layout.EMBEDDING,
        mend: str = "ingest the cohort again",
    ) -> None:
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.dtype: np.dtype[Any] = np.dtype(array.dtype).newbyteorder("=")
        self.chunk_rows = int(array.chunks[0])
        self._array = array
        self._url = location.url
        self._location = location
        self._name = name
        self._mend = mend
        codecs = [codec.to_dict() for codec in getattr(array.metadata, "codecs", ())]
        self._has_crc = codecs == [_BYTES, _CRC]
        self._direct = (
            location.is_local and (codecs == [_BYTES] or self._has_crc) and _is_plain(array)
        )

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi, C-contiguous.

        Raises
        ------
        StoreError
            A chunk is missing, has the wrong size, or does not match its checksum.
        """
        out = np.empty((hi - lo, self.shape[1]), dtype=self.dtype)
        chunk = self.chunk_rows
        while lo < hi:
            index = lo // chunk
            stop = min(hi, (index + 1) * chunk)
            part = out[len(out) - (hi - lo) : len(out) - (hi - stop)]
            if self._direct:
                self._read_direct(index, lo - index * chunk, part)
            else:
                self._read_by_zarr(index, lo, stop, part)
            lo = stop
        return out

    def _read_by_zarr(self, index: int, lo: int, hi: int, out: NDArray[Any]) -> None:
        try:
            out[...] = self._array[lo:hi]
        except StoreError:  # says itself what it is
            raise
        except (ValueError, TypeError, RuntimeError, MemoryError) as err:  # what codecs raise
            raise self._damaged(index, f"cannot be read ({err})") from err
        if self.dtype.kind == "f":
            missing = bool(np.isnan(out[:, 0]).any())
        else:
            missing = not out.any() and not self._is_there(index)
        if missing:
            self._raise_missing(index)

    def _is_there(self, index: int) -> bool:
        """Whether a chunk that reads as nothing but fill values was written."""
        key = self._array.metadata.encode_chunk_key((index, 0))
        return self._location.joined(f"{self._name}/{key}").about() is not None

    def _read_direct(self, index: int, skip: int, out: NDArray[Any]) -> None:
        """Read rows of one chunk straight into `out`."""
        row_bytes = self.shape[1] * self.dtype.itemsize
        inside = self.chunk_rows * row_bytes
        expected = inside + CRC_BYTES * self._has_crc
        wanted = out.reshape(-1).view(np.uint8)
        key = self._url, self._name, index
        try:
            with open(f"{self._url}/{self._name}/c/{index}/0", "rb", buffering=0) as file:
                about = os.fstat(file.fileno())
                if about.st_size != expected:
                    raise self._damaged(index, f"has {about.st_size} bytes, expected {expected}")
                version = (about.st_ino, about.st_mtime_ns, about.st_ctime_ns)
                is_whole = len(out) == min(self.chunk_rows, self.shape[0] - index * self.chunk_rows)
                if not self._has_crc or (not is_whole and _checked.get(key) == version):
                    file.seek(skip * row_bytes)
                    self._fill(index, file, wanted)
                    return
                crc = self._crc_of_rest(index, file, skip * row_bytes, 0)
                for at in range(0, len(wanted), _PIECE):
                    piece = wanted[at : at + _PIECE]
                    self._fill(index, file, piece)
                    crc = crc32c(piece, crc)
                crc = self._crc_of_rest(index, file, inside - file.tell(), crc)
                stored = np.empty(CRC_BYTES, np.uint8)
                self._fill(index, file, stored)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._raise_missing(index)
        if int.from_bytes(stored.tobytes(), "little") != crc:
            raise self._damaged(index, "does not match its checksum")
        _checked[key] = version

    def _crc_of_rest(self, index: int, file: FileIO, n_bytes: int, crc: int) -> int:
        """Read bytes that nobody asked for, and add them to the checksum."""
        buffer = np.empty(min(n_bytes, _PIECE), np.uint8)
        while n_bytes:
            piece = buffer[:n_bytes]
            self._fill(index, file, piece)
            crc = crc32c(piece, crc)
            n_bytes -= len(piece)
        return crc

    def _fill(self, index: int, file: FileIO, out: NDArray[np.uint8]) -> None:
        """Read as many bytes as `out` holds."""
        view = memoryview(out.data)
        while len(view):
            count = file.readinto(view)
            if not count:
                raise self._damaged(index, "ends early")
            view = view[count:]

    def _damaged(self, index: int, problem: str) -> StoreError:
        lo = index * self.chunk_rows
        return StoreError(
            f"{self._url} is damaged: chunk {index} of {self._name!r} (rows {lo} to "
            f"{min(lo + self.chunk_rows, self.shape[0]) - 1}) {problem}; {self._mend}"
        )

    def _raise_missing(self, index: int) -> NoReturn:
        # ingest lets no NaN in and the fill value is NaN: NaN means that nothing was written here
        raise self._damaged(index, "is missing") from None


def _is_plain(array: zarr.Array[Any]) -> bool:
    """Whether a chunk's file is whole rows in native byte order, where the reader looks for it."""
    encoding = {"name": "default", "configuration": {"separator": "/"}}
    native = np.dtype(array.dtype).newbyteorder("<") == np.dtype(array.dtype).newbyteorder("=")
    return (
        native
        and array.chunks[1] == array.shape[1]
        and array.metadata.to_dict().get("chunk_key_encoding") == encoding
    )
