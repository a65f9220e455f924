"""A file of an object store, with the few methods of :class:`pathlib.Path` that tables need."""

from __future__ import annotations

import fnmatch
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from croma_dask.cohort.location import Location
from croma_dask.cohort.transfer import published
from croma_dask.whole_files import digest_of

__all__ = ["RemotePath"]


@dataclass(frozen=True)
class RemotePath:
    """A place of a file or a folder at a URL.

    An object store writes an object whole or not at all, so :meth:`put` is all that
    :func:`croma_dask.whole_files.write_whole` needs of it.

    Attributes
    ----------
    location
        URL, and the options that open it.
    """

    location: Location

    def __str__(self) -> str:
        """Show the URL as a message may."""
        return str(self.location)

    def __truediv__(self, name: str) -> RemotePath:
        """Return a place inside of this one."""
        return RemotePath(self.location.joined(name))

    def __lt__(self, other: RemotePath) -> bool:
        """Sort as text."""
        return self.location.url < other.location.url

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self.location.name

    @property
    def stem(self) -> str:
        """Last part of the URL without its ending."""
        return Path(self.name).stem

    @property
    def parent(self) -> RemotePath:
        """Return the folder that holds this."""
        return RemotePath(self.location.parent)

    def read_bytes(self) -> bytes:
        """Read a file.

        Raises
        ------
        FileNotFoundError
            There is none.
        StoreError
            It cannot be read, after several tries.
        """
        content = self.parent.location.read_bytes(self.name)
        if content is None:
            raise FileNotFoundError(2, "No such file", str(self))
        return content

    def open(self, mode: str = "rb") -> io.BytesIO:
        """Read a file, and return it as if it were open."""
        if mode != "rb":
            raise ValueError(f"mode {mode!r}: files at a URL are only read; write them with put")
        return io.BytesIO(self.read_bytes())

    def put(self, fill: Callable[[BinaryIO], Any]) -> str:
        """Write a file, whole or not at all, and return its digest."""
        with published(self.location, overwrite=True) as local:
            with open(local, "wb") as file:
                fill(file)
            return digest_of(local)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete a file.

        Raises
        ------
        FileNotFoundError
            There is none, where that matters.
        """
        self.location.unlink(missing_ok=missing_ok)

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield what lies directly here and is called so."""
        for name in self.location.names():
            if fnmatch.fnmatchcase(name, pattern):
                yield self / name
