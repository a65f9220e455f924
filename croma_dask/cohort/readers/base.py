"""What every reader of embeddings offers, and the rules of shape and dtype that they share."""

from __future__ import annotations

import bisect
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.text import to_text
from croma_dask.errors import SchemaError, name_items

__all__ = [
    "ID_KEYS",
    "BlockSource",
    "EmbeddingReader",
    "RowEdges",
    "block_edges",
    "check_finite_cast",
    "check_shape",
    "choose_key",
    "convert",
    "file_signature",
    "find_ids",
    "no_signature",
    "stored_dtype",
]

# What files call the vector beside the features that names their rows.
ID_KEYS = ("sample_id", "sample_ids")

# A row is the least that is read: one of 32 MiB, which is also the largest chunk.
MOST_FEATURES = 2**22

BFLOAT16 = "bfloat16"
_CASTS = ("float16", "float32", "float64")


@runtime_checkable
class EmbeddingReader(Protocol):
    """A source of embedding rows that is never in memory as a whole.

    Attributes
    ----------
    shape
        (rows, features).
    dtype
        dtype of what :meth:`read` returns.
    ids
        Sample id of each row, or None where the source has none (a bare array).
    manifest
        Columns that the source carries beside the features, one row each; None without.
    source
        Plain description for the store's attributes; no paths.
    signature
        What identifies the files: sizes and times.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    ids: NDArray[np.object_] | None
    manifest: pd.DataFrame | None
    source: dict[str, Any]
    signature: dict[str, Any]

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi; cheap when ranges are asked for in increasing order."""
        ...

    def close(self) -> None:
        """Close files."""
        ...


def find_ids(
    n_rows: int, found: Callable[[str], Any], load: Callable[[Any], Any], name: str
) -> NDArray[np.object_] | None:
    """Return the ids that lie beside an embedding, as text; None where there are none.

    Parameters
    ----------
    n_rows
        Rows of the embedding; a vector of another length does not name them.
    found
        Returns what goes by a name, with ``shape`` and ``dtype``, or None.
    load
        Reads it.
    name
        The file, for messages.
    """
    for key in ID_KEYS:
        item = found(key)
        shape, dtype = getattr(item, "shape", None), getattr(item, "dtype", None)
        # text, whole numbers, and Python objects or variable-length text as HDF5 and Zarr give it
        if shape == (n_rows,) and dtype is not None and dtype.kind in "USTOiu":
            return to_text(load(item), f"{key} of {name}")
    return None


def check_shape(shape: Sequence[int], what: str) -> tuple[int, int]:
    """Return a two-dimensional shape, or raise with a hint.

    Raises
    ------
    SchemaError
        Not (rows, features), no features, or more than any embedding has.
    """
    if len(shape) != 2:
        hint = ""
        if len(shape) == 3 and shape[0] == 1:
            hint = f"; take the first axis off (array[0], of shape {tuple(shape[1:])})"
        elif len(shape) == 1:
            hint = "; a single row is array[None, :]"
        raise SchemaError(
            f"{what} has shape {tuple(int(size) for size in shape)}; expected (rows, features)"
            + hint
        )
    if shape[1] < 1:
        raise SchemaError(f"{what} has no features (shape {tuple(int(size) for size in shape)})")
    if shape[1] > MOST_FEATURES:
        raise SchemaError(
            f"{what} has {int(shape[1]):,} features; expected at most {MOST_FEATURES:,} (are rows "
            "and features the other way round?)"
        )
    return int(shape[0]), int(shape[1])


def stored_dtype(dtype: np.dtype[Any], wanted: str | None, what: str) -> np.dtype[Any]:
    """Return the dtype in which rows of `dtype` are stored.

    Floats stay as they are. Integers and booleans become the smallest of float32 and float64 that
    holds them (64-bit integers: float64, checked value by value).

    Parameters
    ----------
    dtype
        What the source has.
    wanted
        ``"float16"``, ``"float32"`` or ``"float64"`` to cast, ``"bfloat16"`` to read two-byte void
        values as such (they are stored as float32), None for the above.
    what
        The source, for messages.

    Raises
    ------
    SchemaError
        The source holds no real numbers, or `wanted` is none of the above.
    """
    if wanted is not None and wanted not in (*_CASTS, BFLOAT16):
        raise SchemaError(f"dtype {wanted!r}; expected {', '.join(_CASTS)} or {BFLOAT16}")
    is_bfloat16 = dtype.name == BFLOAT16 or (dtype.kind == "V" and wanted == BFLOAT16)
    if wanted == BFLOAT16 and (not is_bfloat16 or dtype.itemsize != 2):
        raise SchemaError(f"{what} has dtype {dtype}, so it cannot be read as bfloat16")
    if is_bfloat16:
        return np.dtype(np.float32 if wanted in (None, BFLOAT16) else wanted)
    if dtype.kind == "V":
        raise SchemaError(
            f"{what} has void dtype {dtype.str}; if it holds bfloat16 numbers pass "
            "dtype='bfloat16' (--dtype bfloat16)"
        )
    if dtype.kind == "c":
        raise SchemaError(f"{what} is complex ({dtype}); expected real numbers")
    if dtype.kind not in "fiub":
        raise SchemaError(f"{what} has embedding dtype {dtype}; convert to float")
    if dtype.kind == "f" and dtype.itemsize > 8:
        raise SchemaError(f"{what} has dtype {dtype}; convert to float64")
    if wanted is not None:
        return np.dtype(wanted)
    if dtype.kind == "f":
        return dtype.newbyteorder("=")
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def convert(rows: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert rows to the stored dtype: native, C-contiguous, no copy where none is needed.

    Raises
    ------
    SchemaError
        An integer is too large for a float64.
    """
    if rows.dtype.kind == "V" or rows.dtype.name == BFLOAT16:
        # a bfloat16 is the upper half of a float32
        halves = np.ascontiguousarray(rows).view(np.uint16).astype(np.uint32)
        rows = (halves << np.uint32(16)).view(np.float32)
    if rows.dtype.kind in "iu" and rows.dtype.itemsize > 4 and len(rows):
        limit = 2**53
        if rows.max() > limit or (rows.dtype.kind == "i" and rows.min() < -limit):
            raise SchemaError("the embedding holds integers beyond 2**53; convert to float")
    with np.errstate(over="ignore", invalid="ignore"):
        # what overflows becomes infinite, and is reported with its row
        return np.ascontiguousarray(rows, dtype=dtype)


def check_finite_cast(dtype: np.dtype[Any], stored: np.dtype[Any]) -> str:
    """Explain in a message that a cast may be what made values infinite."""
    narrower = dtype.kind == "f" and stored.itemsize < dtype.itemsize
    return f" (after the cast from {dtype} to {stored})" if narrower else ""


def file_signature(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return size and time of a local file, which identify its content for a resumed run."""
    stat = os.stat(path)
    return {"name": os.path.basename(path), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def no_signature() -> dict[str, Any]:
    """Return a signature that no other run has, so that a resumed run compares rows."""
    return {"run": uuid.uuid4().hex}


class BlockSource:
    """Read any range of rows from a source that comes in blocks of its own.

    The block that was read last is kept, so that a pass over all rows loads each block once.

    Parameters
    ----------
    edges
        First row of each block, and the number of rows at the end.
    load
        Gives block i, of shape (edges[i + 1] - edges[i], features).
    """

    def __init__(self, edges: Sequence[int], load: Callable[[int], NDArray[Any]]) -> None:
        self.edges = edges
        self._load = load
        self._index = -1
        self._block: NDArray[Any] | None = None

    def block(self, index: int) -> NDArray[Any]:
        """Return a block, from memory when it is the last one read."""
        if self._block is None or index != self._index:
            self._block = None  # two blocks need not be in memory at once
            self._block = self._load(index)
            self._index = index
        return self._block

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        parts = []
        index = bisect.bisect_right(self.edges, lo) - 1
        while lo < hi:
            start, stop = int(self.edges[index]), int(self.edges[index + 1])
            if stop > lo:
                parts.append(self.block(index)[lo - start : min(hi, stop) - start])
                lo = min(hi, stop)
            index += 1
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class RowEdges(Sequence[int]):
    """First row of each block of a size, and the end: ``[*range(0, n_rows, step), n_rows]``.

    It is not kept as a list: a header may claim any number of rows.
    """

    def __init__(self, n_rows: int, step: int) -> None:
        self.n_rows, self.step = n_rows, step

    def __len__(self) -> int:
        return -(-self.n_rows // self.step) + 1

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return min(index * self.step, self.n_rows)


def block_edges(
    shape: Sequence[int], itemsize: int, chunk_rows: int | None, limit: int = 256 * 2**20
) -> RowEdges:
    """Return where blocks of rows begin, and the end, so that chunks are read once.

    Blocks are whole chunks, several where chunks are small; chunks of more than `limit` bytes are
    read in part after all, since a block is held in memory.
    """
    n_rows = int(shape[0])
    row_bytes = max(1, int(shape[1]) * itemsize if len(shape) > 1 else itemsize)
    rows = max(1, min(4096, limit // row_bytes))
    if chunk_rows:
        if chunk_rows >= rows:
            rows = chunk_rows if chunk_rows * row_bytes <= limit else rows
        else:
            rows -= rows % chunk_rows
    return RowEdges(n_rows, rows)


def choose_key(
    name: str,
    kind: str,
    key: str | None,
    *,
    known: Iterable[str],
    candidates: Iterable[str],
) -> str:
    """Return the key that was asked for, or the only one there is.

    Raises
    ------
    SchemaError
        The key is not there, nothing fits, or several do; the message lists them.
    """
    known, candidates = list(known), list(candidates)
    if key is not None:
        if key in known:
            return key
        raise SchemaError(f"{name} has no {kind} {key!r}; it has {name_items(known, limit=20)}")
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        found = f"; it has {name_items(known, limit=20)}" if known else ""
        raise SchemaError(f"{name} has no {kind} that is two-dimensional{found}")
    raise SchemaError(
        f"{name} has several candidates: {name_items(candidates, limit=20)}; choose the {kind} "
        "with key= (--key)"
    )
