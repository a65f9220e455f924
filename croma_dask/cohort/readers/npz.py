"""Readers of ``.npz`` archives, member by member and never unpickled.

Two layouts: one two-dimensional member, or one vector a tile (PathoROB's), named by its id.
"""

from __future__ import annotations

import os
import zipfile
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import check_shape, choose_key, file_signature, find_ids
from croma_dask.cohort.readers.npy_header import Header, read_header
from croma_dask.cohort.readers.trust import check_archive, check_expansion, parsing
from croma_dask.errors import SchemaError, name_items

__all__ = ["MemberReader", "VectorsReader", "open_npz"]


def open_npz(path: str, key: str | None = None) -> MemberReader | VectorsReader:
    """Open an ``.npz`` in whichever of the two layouts it has.

    Parameters
    ----------
    path
        Local path.
    key
        Member to read, for archives of several two-dimensional ones.
    """
    name = os.path.basename(path)
    with parsing(name, ".npz archive"):
        archive = zipfile.ZipFile(path)
    try:
        check_archive(archive, name)
        entries = [entry for entry in archive.namelist() if entry.endswith(".npy")]
        if len(set(entries)) < len(entries):
            raise SchemaError(f"{name} holds two members of one name")
        members = {entry.removesuffix(".npy"): entry for entry in entries}
        # a vector a tile can mean a hundred thousand members: the first one tells
        if key is None and members and len(_header(archive, entries[0], name).shape) == 1:
            others = [m for m in list(members)[1:20] if _ndim(archive, members[m], name) != 1]
            if not others:
                return VectorsReader(path, archive, list(members))
        headers = {m: _header(archive, entry, name) for m, entry in members.items()}
        flat = [member for member, header in headers.items() if len(header.shape) == 2]
        several = [member for member, header in headers.items() if len(header.shape) >= 2]
        chosen = choose_key(name, "member", key, known=members, candidates=flat or several)
        reader = MemberReader(path, archive, chosen, headers[chosen])
        reader.ids = _ids_beside(archive, headers, reader.shape[0], name)
        return reader
    except BaseException:
        archive.close()
        raise


def _ids_beside(
    archive: zipfile.ZipFile, headers: dict[str, Header], n_rows: int, name: str
) -> NDArray[np.object_] | None:
    """Read the member that names the rows, where the archive has one."""

    def load(header: Header) -> NDArray[Any]:
        member = next(m for m, known in headers.items() if known is header)
        what = f"{name}, member {member!r}"
        with parsing(what), archive.open(f"{member}.npy") as stream:
            _header_of(archive, stream, f"{member}.npy", what)
            return _whole(archive, stream, f"{member}.npy", header, what).reshape(header.shape)

    return find_ids(n_rows, headers.get, load, name)


def _header(archive: zipfile.ZipFile, entry: str, name: str) -> Header:
    what = f"{name}, member {entry.removesuffix('.npy')!r}"
    with parsing(what, "array"), archive.open(entry) as stream:
        return _header_of(archive, stream, entry, what)


def _header_of(archive: zipfile.ZipFile, stream: IO[bytes], entry: str, what: str) -> Header:
    """Read a header from the beginning of a member."""
    return read_header(stream, archive.getinfo(entry).file_size, what, "array")


def _whole(
    archive: zipfile.ZipFile, stream: IO[bytes], entry: str, header: Header, what: str
) -> NDArray[Any]:
    """Read all data of a member, as one vector, where an archive may hold that much."""
    check_expansion(archive.getinfo(entry).compress_size, header.nbytes, what)
    # one byte more: only at its end is a member's checksum compared
    data = stream.read(header.nbytes + 1)
    if len(data) != header.nbytes:
        raise SchemaError(f"{what} has {len(data)} bytes of data, expected {header.nbytes}")
    return np.frombuffer(data, header.dtype)


def _ndim(archive: zipfile.ZipFile, entry: str, name: str) -> int:
    return len(_header(archive, entry, name).shape)


class MemberReader:
    """Rows of one two-dimensional member, read from the archive as a stream.

    A member ``sample_id`` or ``sample_ids`` of as many entries names the rows.

    Memory: the rows asked for; a member in Fortran order is held as a whole, since its rows are
    spread over all of it.
    """

    def __init__(self, path: str, archive: zipfile.ZipFile, member: str, header: Header) -> None:
        name = os.path.basename(path)
        self._what = f"{name}, member {member!r}"
        self.shape = check_shape(header.shape, self._what)
        self.dtype = header.dtype
        self._archive = archive
        entry = f"{member}.npy"
        self._columns: NDArray[Any] | None = None
        with parsing(self._what):
            self._stream = archive.open(entry)
        try:
            with parsing(self._what):
                _header_of(archive, self._stream, entry, self._what)
                self._start = self._stream.tell()
                if header.fortran:
                    values = _whole(archive, self._stream, entry, header, self._what)
                    self._columns = values.reshape(self.shape, order="F")
        except BaseException:
            self._stream.close()  # as long as it is open, so is the archive
            raise
        self.ids: NDArray[np.object_] | None = None
        self.manifest: pd.DataFrame | None = None
        self.source: dict[str, Any] = {"features": name, "reader": "npz", "key": member}
        self.signature: dict[str, Any] = {**file_signature(path), "key": member}

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        if self._columns is not None:
            return self._columns[lo:hi]
        row_bytes = self.shape[1] * self.dtype.itemsize
        start = self._start + lo * row_bytes
        with parsing(self._what):
            if self._stream.tell() != start:
                self._stream.seek(start)  # from then on zipfile no longer checks the checksum
            data = self._stream.read((hi - lo) * row_bytes)
        if len(data) < (hi - lo) * row_bytes:
            raise SchemaError(f"{self._what} is truncated")
        return np.frombuffer(data, self.dtype).reshape(hi - lo, self.shape[1])

    def close(self) -> None:
        """Close the archive."""
        self._stream.close()
        self._archive.close()


class VectorsReader:
    """Rows of an archive that has one vector a tile; the members' names are the ids.

    PathoROB writes ids as ``<slide_id>-<patch_id>``, hence :attr:`id_separator`. Memory: the rows
    asked for, and the archive's list of members.
    """

    id_separator = "-"

    def __init__(self, path: str, archive: zipfile.ZipFile, members: list[str]) -> None:
        self._name = os.path.basename(path)
        self._archive = archive
        self._members = members
        header = _header(archive, f"{members[0]}.npy", self._name)
        self.shape = check_shape((len(members), header.shape[0]), self._name)
        self.dtype = header.dtype
        self.ids: NDArray[np.object_] | None = np.array(members, dtype=object)
        self.manifest: pd.DataFrame | None = None
        self.source: dict[str, Any] = {"features": self._name, "reader": "npz of vectors"}
        self.signature: dict[str, Any] = file_signature(path)

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        rows = np.empty((hi - lo, self.shape[1]), dtype=self.dtype)
        for i, member in enumerate(self._members[lo:hi]):
            rows[i] = self._vector(member)
        return rows

    def _vector(self, member: str) -> NDArray[Any]:
        what = f"{self._name}, member {member!r}"
        with parsing(what), self._archive.open(f"{member}.npy") as stream:
            header = _header_of(self._archive, stream, f"{member}.npy", what)
            if header.shape != self.shape[1:] or header.dtype != self.dtype:
                raise SchemaError(
                    f"{what} has shape {header.shape} {header.dtype}, the first member "
                    f"{name_items([self._members[0]])} has {self.shape[1:]} {self.dtype}"
                )
            return _whole(self._archive, stream, f"{member}.npy", header, what)

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()
