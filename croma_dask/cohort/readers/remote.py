"""Embeddings in files at a URL: copied here, and read as what they are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.location import Location
from croma_dask.cohort.readers.base import EmbeddingReader, no_signature
from croma_dask.cohort.transfer import fetched

__all__ = ["RemoteReader"]

_VERSIONS = ("ETag", "etag", "LastModified", "last_modified", "updated", "mtime")
"""What file systems call that which changes with the content of an object."""


class RemoteReader:
    """Rows of a file, or of a folder of slides, at a URL.

    Parameters
    ----------
    location
        The URL.
    open_local
        Opens the copy.

    Notes
    -----
    Formats with an index of their own (HDF5, archives, parquet) are read in many small pieces, each
    of which would be a request; so the whole is copied first, into the temporary folder, where it
    stays until the reader is closed. Memory: that of the reader of the copy, and 32 MB.
    """

    def __init__(self, location: Location, open_local: Callable[[str], EmbeddingReader]) -> None:
        with contextlib.ExitStack() as keep:
            version = _version(location)
            local = keep.enter_context(fetched(location))
            self._reader = open_local(os.fspath(local))
            keep.callback(self._reader.close)
            self._keep = keep.pop_all()
        self.shape: tuple[int, int] = self._reader.shape
        self.dtype: np.dtype[Any] = self._reader.dtype
        self.ids: NDArray[np.object_] | None = self._reader.ids
        self.manifest: pd.DataFrame | None = self._reader.manifest
        self.source: dict[str, Any] = self._reader.source
        self.id_separator = getattr(self._reader, "id_separator", None)
        self.slides = getattr(self._reader, "slides", None)
        # Times of a copy say nothing of the original. Without anything that does, a resumed
        # ingest compares rows.
        self.signature: dict[str, Any] = no_signature()
        if version is not None:
            about = {k: v for k, v in self._reader.signature.items() if k not in _OF_THE_COPY}
            self.signature = {**about, "version": version}

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        return self._reader.read(lo, hi)

    def close(self) -> None:
        """Close the copy, and delete it."""
        self._keep.close()


_OF_THE_COPY = ("mtime_ns", "files")


def _version(location: Location) -> list[Any] | None:
    """Say what tells the content of a file, or of the files of a folder, from another one's.

    None where the file system does not know.
    """
    fs, path = location.filesystem()
    about = location.about()
    if about is None:
        return None
    if about["type"] == "file":
        found = {"": about}
    else:
        found = {
            str(name)[len(path) :]: entry
            for name, entry in location.tried(lambda: fs.find(path, detail=True)).items()
        }
    versions = []
    for name in sorted(found):
        said = [str(found[name][key]) for key in _VERSIONS if found[name].get(key) is not None]
        if not said:
            return None
        versions.append([name, found[name].get("size"), *said])
    return versions
