"""Files that are there whole or not at all, whenever a run is killed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

__all__ = ["digest_of", "write_lines", "write_whole"]

_PARTIAL = re.compile(r"\.[0-9a-f]{32}")
_DEAD_SECONDS = 600.0
"""A file that is being written is not touched for so long only if whoever wrote it is gone."""


def write_whole(path: Path, fill: Callable[[BinaryIO], object]) -> str:
    """Write a file, whole or not at all, and return its digest.

    Parameters
    ----------
    path
        Replaced where it is there; folders are made.
    fill
        Writes the content into an open file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _delete_partial(path.parent)
    # A name of its own (two runs may write the same table), not longer than that of the file.
    partial = path.with_name(f".{uuid.uuid4().hex}")
    try:
        with open(partial, "wb") as file:
            fill(file)
        digest = digest_of(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return digest


def _delete_partial(folder: Path) -> None:
    """Delete what runs that were killed have left half written."""
    for name in filter(_PARTIAL.fullmatch, os.listdir(folder)):
        # Another run may do the same at this moment.
        with contextlib.suppress(OSError):
            if time.time() - os.stat(folder / name).st_mtime > _DEAD_SECONDS:
                os.unlink(folder / name)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_lines(path: Path, lines: Iterable[str]) -> str:
    """Write lines of text, whole or not at all, and return the digest of the file."""
    return write_whole(path, lambda file: file.writelines(line.encode() for line in lines))
