"""Content fingerprints: what a result was computed from, in 64 hexadecimal digits.

The rows of an embedding are hashed in blocks of a fixed grid of 4,096 rows, and the block digests
are hashed again together with shape and dtype. So a fingerprint depends on values alone: not on
chunks, byte order, memory layout, nor on whether the rows came from a file, an array or a store.
The hash is SHA-256, which processors accelerate and every language has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["BLOCK_ROWS", "BlockHasher", "block_digest", "combine", "text_digest"]

BLOCK_ROWS = 4096
"""Rows of one block of the grid that fingerprints are computed on."""


def _canonical(rows: NDArray[Any]) -> NDArray[Any]:
    """Return C-contiguous little-endian rows, without copying where they already are."""
    return np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("<"))


def block_digest(rows: NDArray[Any]) -> bytes:
    """Digest the rows of one block of the 4,096-row grid.

    Parameters
    ----------
    rows
        Array of shape (at most 4,096, n_features); any order and endianness.

    Returns
    -------
    bytes
        SHA-256 of the rows as C-ordered little-endian bytes, 32 bytes.
    """
    # a flat byte view: hashlib takes any dtype's bytes that way, float16 and datetime64 included
    return hashlib.sha256(_canonical(rows).reshape(-1).view(np.uint8).data).digest()


def combine(digests: Iterable[bytes], shape: Sequence[int], dtype: DTypeLike) -> str:
    """Combine block digests, in grid order, into the fingerprint of an embedding.

    Parameters
    ----------
    digests
        What :func:`block_digest` returned for each block, first block first.
    shape
        Shape of the whole embedding, (n_rows, n_features).
    dtype
        Its dtype; byte order does not matter.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    kind = np.dtype(dtype).newbyteorder("<").str
    head = f"croma-dask embedding 1 {tuple(int(size) for size in shape)} {kind}"
    total = hashlib.sha256(head.encode())
    for digest in digests:
        total.update(digest)
    return total.hexdigest()


def text_digest(*parts: str | bytes) -> str:
    """Fingerprint a sequence of texts or byte strings, each framed by its length.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        total.update(len(raw).to_bytes(8, "little"))
        total.update(raw)
    return total.hexdigest()


class BlockHasher:
    """Digest consecutive rows on the fixed grid, in whatever portions they arrive."""

    def __init__(self) -> None:
        self.digests: list[bytes] = []
        self._open = hashlib.sha256()
        self._open_rows = 0

    @property
    def rows(self) -> int:
        """Number of rows seen."""
        return len(self.digests) * BLOCK_ROWS + self._open_rows

    def update(self, rows: NDArray[Any]) -> None:
        """Take the next rows, an array of shape (any number, n_features)."""
        data = _canonical(rows)
        start = 0
        while start < len(data):
            stop = min(len(data), start + BLOCK_ROWS - self._open_rows)
            self._open.update(data[start:stop].reshape(-1).view(np.uint8).data)
            self._open_rows += stop - start
            start = stop
            if self._open_rows == BLOCK_ROWS:
                self._close_block()

    def snapshot(self) -> list[str]:
        """Return the digests so far in hexadecimal, that of an unfinished block last."""
        digests = [digest.hex() for digest in self.digests]
        return digests + ([self._open.copy().hexdigest()] if self._open_rows else [])

    def _close_block(self) -> None:
        self.digests.append(self._open.digest())
        self._open = hashlib.sha256()
        self._open_rows = 0

    def finish(self, shape: Sequence[int], dtype: DTypeLike) -> str:
        """Close the last block and return the fingerprint, as :func:`combine` does."""
        if self._open_rows:
            self._close_block()
        return combine(self.digests, shape, dtype)
