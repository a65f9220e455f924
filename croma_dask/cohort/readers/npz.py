"""Readers of ``.npz`` archives, member by member and never unpickled.

Two layouts: one two-dimensional member, or one vector a tile (PathoROB's), named by its id.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import check_shape, choose_key, file_signature, find_ids
from croma_dask.errors import SchemaError, name_items

__all__ = ["MemberReader", "VectorsReader", "open_npz"]


class Header(NamedTuple):
    """What the header of a ``.npy`` member says."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def read_header(stream: IO[bytes], what: str) -> Header:
    """Read the header of a member, and leave the stream where its data begin.

    Raises
    ------
    SchemaError
        The member is no ``.npy``, or holds Python objects.
    """
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            header = Header(*np.lib.format.read_array_header_1_0(stream))
        else:
            header = Header(*np.lib.format.read_array_header_2_0(stream))
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as err:
        raise SchemaError(f"{what} is not a readable array: {err}") from err
    if header.dtype.hasobject:
        raise SchemaError(
            f"{what} has embedding dtype object (pickled Python objects), which is never loaded; "
            "convert to float and save again"
        )
    return header


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
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as err:
        raise SchemaError(f"{name} is not a readable .npz archive: {err}") from err
    try:
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
    except SchemaError:
        archive.close()
        raise


def _ids_beside(
    archive: zipfile.ZipFile, headers: dict[str, Header], n_rows: int, name: str
) -> NDArray[np.object_] | None:
    """Read the member that names the rows, where the archive has one."""

    def load(header: Header) -> NDArray[Any]:
        member = next(m for m, known in headers.items() if known is header)
        what = f"{name}, member {member!r}"
        try:
            with archive.open(f"{member}.npy") as stream:
                read_header(stream, what)
                return np.frombuffer(stream.read(), header.dtype).reshape(header.shape)
        except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as err:
            raise SchemaError(f"{what} is damaged: {err}") from err

    return find_ids(n_rows, headers.get, load, name)


def _header(archive: zipfile.ZipFile, entry: str, name: str) -> Header:
    with archive.open(entry) as stream:
        return read_header(stream, f"{name}, member {entry.removesuffix('.npy')!r}")


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
        self._stream = archive.open(f"{member}.npy")
        read_header(self._stream, self._what)
        self._start = self._stream.tell()
        self._columns: NDArray[Any] | None = None
        if header.fortran:
            data = self._stream.read()
            self._columns = np.frombuffer(data, self.dtype).reshape(self.shape, order="F")
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
        if self._stream.tell() != start:
            self._stream.seek(start)  # from then on zipfile no longer checks the checksum
        try:
            data = self._stream.read((hi - lo) * row_bytes)
        except (EOFError, zipfile.BadZipFile, zlib.error) as err:
            raise SchemaError(f"{self._what} is damaged: {err}") from err
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
        with self._archive.open(f"{member}.npy") as stream:
            header = read_header(stream, what)
            if header.shape != self.shape[1:] or header.dtype != self.dtype:
                raise SchemaError(
                    f"{what} has shape {header.shape} {header.dtype}, the first member "
                    f"{name_items([self._members[0]])} has {self.shape[1:]} {self.dtype}"
                )
            try:
                data = stream.read()
            except (EOFError, zipfile.BadZipFile, zlib.error) as err:
                raise SchemaError(f"{what} is damaged: {err}") from err
        if len(data) != self.shape[1] * self.dtype.itemsize:
            raise SchemaError(f"{what} is truncated")
        return np.frombuffer(data, self.dtype)

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()
