"""Files that are there whole or not at all, whenever a run is killed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

__all__ = ["Target", "digest_of", "replacing", "write_lines", "write_whole"]

_PARTIAL = re.compile(r"\.[0-9a-f]{32}")
_DEAD_SECONDS = 600.0
"""A file that is being written is not touched for so long only if whoever wrote it is gone."""


class Target(Protocol):
    """A place that is no local file, and can be written whole."""

    def put(self, fill: Callable[[BinaryIO], object]) -> str:
        """Write the content, whole or not at all, and return its digest."""
        ...

    def open(self, mode: str = "rb") -> io.BytesIO:
        """Read the content."""
        ...


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Put a file in its place when it is written, whole or not at all.

    Parameters
    ----------
    path
        Replaced where it is there. Folders are :mod:`croma_dask.whole_folders`'s.

    Yields
    ------
    pathlib.Path
        Where to write: beside it, on the same file system, so that the last step is one rename. A
        block that fails leaves nothing there, and what was at the place.
    """
    # A name of its own (two runs may write the same file), not longer than that of the file.
    partial = path.with_name(f".{uuid.uuid4().hex}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path | Target, fill: Callable[[BinaryIO], object]) -> str:
    """Write a file, whole or not at all, and return its digest.

    Parameters
    ----------
    path
        Replaced where it is there; folders are made.
    fill
        Writes the content into an open file.
    """
    if not isinstance(path, Path):
        return path.put(fill)
    path.parent.mkdir(parents=True, exist_ok=True)
    _delete_partial(path.parent)
    with replacing(path) as partial:
        with open(partial, "wb") as file:
            fill(file)
        digest = digest_of(partial)
    return digest


def _delete_partial(folder: Path) -> None:
    """Delete what runs that were killed have left half written."""
    for name in filter(_PARTIAL.fullmatch, os.listdir(folder)):
        # Another run may do the same at this moment.
        with contextlib.suppress(OSError):
            if time.time() - os.stat(folder / name).st_mtime > _DEAD_SECONDS:
                os.unlink(folder / name)


def digest_of(path: Path | Target) -> str:
    """SHA-256 of a file, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_lines(path: Path | Target, lines: Iterable[str]) -> str:
    """Write lines of text, whole or not at all, and return the digest of the file."""
    return write_whole(path, lambda file: file.writelines(line.encode() for line in lines))
