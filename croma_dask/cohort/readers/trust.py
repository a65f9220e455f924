"""How far a file is believed: what it claims is held against what it holds, before memory is asked.

Parsers of other libraries fail on a damaged or hostile file in whichever way their code happens to
(``IndexError``, ``OverflowError``, an error of the archive's module, ...). Here that becomes one
error, which names the file.
"""

from __future__ import annotations

import contextlib
import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from croma_dask.errors import CromaDaskError, SchemaError

__all__ = [
    "LARGEST_EXPANSION",
    "UNCHECKED_BYTES",
    "check_archive",
    "check_chunks",
    "check_expansion",
    "claimed_bytes",
    "parsing",
]

# Compressed text and labels shrink tenfold, rarely thirtyfold. A file made to exhaust memory grows
# a thousandfold (deflate) or more.
LARGEST_EXPANSION = 100
# What is smaller than this when unpacked is no danger, and may be as regular as it likes.
UNCHECKED_BYTES = 256 * 2**20

_USUAL_CHUNKS = 10_000  # Zarr takes two seconds for as many that are absent
_WORDS = 200


@contextlib.contextmanager
def parsing(what: str, kind: str = "") -> Iterator[None]:
    """Turn what a parser raises inside of the block into an error that names the file.

    Parameters
    ----------
    what
        The file, or the part of it.
    kind
        What it should have been: the message then says that it is not a readable one; without
        it, that it is damaged.

    Raises
    ------
    SchemaError
        The parser failed. Errors of this library, warnings, a lack of permission or of memory pass
        as they are.
    """
    try:
        yield
    except (CromaDaskError, Warning, MemoryError, PermissionError):
        raise
    except IsADirectoryError as err:
        raise SchemaError(f"{what} is a folder; expected a file") from err
    # there is no telling what a parser raises on content that its author did not foresee
    except Exception as err:
        words = " ".join(str(err).split())[:_WORDS] or type(err).__name__
        fault = f"is not a readable {kind}" if kind else "is damaged"
        raise SchemaError(f"{what} {fault}: {words}") from err


def claimed_bytes(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """Return the bytes of an array that is yet only claimed; it may be any number.

    Raises
    ------
    ValueError
        A size is negative.
    """
    sizes = [int(size) for size in shape]
    if any(size < 0 for size in sizes):
        raise ValueError(f"negative size in shape {tuple(sizes)}")
    return math.prod(sizes) * dtype.itemsize


def check_expansion(stored: int, plain: int, what: str) -> None:
    """Refuse what is to be read as a whole and would grow beyond what data of any kind do.

    Parameters
    ----------
    stored
        Bytes on disk.
    plain
        Bytes in memory, as the file claims.
    what
        For the message.

    Raises
    ------
    SchemaError
        It is larger than 256 MiB and a hundred times what is stored.
    """
    if plain > max(UNCHECKED_BYTES, LARGEST_EXPANSION * stored):
        raise SchemaError(
            f"{what} claims {plain:,} bytes of which the file holds {stored:,}; expected at most "
            f"{LARGEST_EXPANSION} times as many: it is damaged, or made to exhaust memory"
        )


def check_archive(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse an archive whose directory claims members that it cannot hold.

    Raises
    ------
    SchemaError
        A member would end behind the end of the file, or is stored as it is and yet of another
        size.
    """
    assert archive.fp is not None
    size = archive.fp.seek(0, os.SEEK_END)
    for entry in archive.infolist():
        plain = entry.compress_type == zipfile.ZIP_STORED
        if entry.header_offset + entry.compress_size > size or (
            plain and entry.file_size != entry.compress_size
        ):
            raise SchemaError(
                f"{name} is damaged: its directory claims {entry.compress_size:,} bytes for the "
                f"member {entry.filename[:100]!r}, and the whole archive has {size:,}"
            )


def check_chunks(claimed: int, stored: int, what: str) -> None:
    """Refuse an array nearly all of whose chunks are absent: to go through them would take days.

    Parameters
    ----------
    claimed, stored
        Number of chunks by the array's shape, and of those that are there (or at most are).
    what
        For the message.

    Raises
    ------
    SchemaError
        There are more than 10,000, and a hundred times as many as are stored.
    """
    if claimed > max(_USUAL_CHUNKS, LARGEST_EXPANSION * stored):
        raise SchemaError(
            f"{what} claims {claimed:,} chunks, more than a hundred times as many as are stored: "
            "it is damaged, or was hardly begun to be written"
        )
