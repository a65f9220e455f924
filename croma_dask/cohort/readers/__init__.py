"""Readers of embeddings, one module a format, all streamed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from croma_dask.cohort.readers.base import EmbeddingReader
from croma_dask.errors import SchemaError

__all__ = ["open_reader"]


def open_reader(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> EmbeddingReader:
    """Open a file or folder of embeddings by its kind.

    Parameters
    ----------
    path
        Local path, or the URL of a Zarr array.
    key
        Which array to read, where the file holds several.
    storage_options
        Options of the fsspec file system.

    Raises
    ------
    FileNotFoundError
        There is nothing at `path`.
    SchemaError
        Its kind is unknown, or its content is not (rows, features).
    """
    text = os.fspath(path)
    if text.lower().endswith(".npy"):
        from croma_dask.cohort.readers.npy import NpyReader

        return NpyReader(text)
    raise SchemaError(f"{os.path.basename(text)!r}: unknown kind of file")
