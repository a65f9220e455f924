"""What lies where a store shall be written: nothing, a store to go on with, or a reason to stop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import formats
from croma_dask.cohort import layout
from croma_dask.cohort.chunks import ChunkReader
from croma_dask.cohort.location import Location
from croma_dask.errors import StoreError
from croma_dask.fingerprint import BlockHasher

if TYPE_CHECKING:
    import zarr

__all__ = ["START_OVER", "check_same_target", "find_unfinished", "hash_written", "remove_store"]

START_OVER = "pass overwrite=True (--overwrite) to start over"


def find_unfinished(location: Location, *, overwrite: bool, resume: bool) -> dict[str, Any] | None:
    """Return the attributes of the unfinished store to go on with, or None to start a new one.

    A store that may be replaced is removed.

    Raises
    ------
    StoreError
        Something is there that may not be replaced.
    """
    url = location.url
    if location.is_file():
        raise StoreError(f"{url} is a file; name another place for the store")
    if not location.names():
        # For zarr there would be something: what the very first write of a killed run has left.
        location.remove_partial()
        return None
    attrs = _attributes(location)
    if attrs is None or attrs.get("format") != layout.FORMAT:
        raise StoreError(
            f"{url} exists and is not a cohort store, so it is left alone; name another place"
        )
    status = attrs.get("status")
    if not overwrite and status == layout.STATUS_COMPLETE:
        raise StoreError(f"{url} exists; pass overwrite=True (--overwrite) to replace it")
    if not overwrite and not resume and status != layout.STATUS_REMOVING:
        raise StoreError(f"{url} was started and not finished; resume it, or {START_OVER}")
    # one without progress died before its first row, or while it was removed
    if overwrite or "progress" not in attrs:
        remove_store(location)
        return None
    return attrs


def remove_store(location: Location) -> None:
    """Delete a store so that, if this is cut short, what is left still says what it is."""
    import zarr

    root = zarr.open_group(location.zarr_store(read_only=False), mode="r+")
    root.attrs.put({"format": layout.FORMAT, "status": layout.STATUS_REMOVING})
    location.remove(last="zarr.json")


def _attributes(location: Location) -> dict[str, Any] | None:
    """Return the attributes of a Zarr v3 node; None where there is none."""
    raw = location.read_bytes("zarr.json")
    if raw is None:
        return None
    try:
        return dict(json.loads(raw).get("attributes", {}))
    except ValueError:
        return None


def check_same_target(
    url: str,
    attrs: Mapping[str, Any],
    embedding: zarr.Array[Any],
    *,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    manifest_fingerprint: str,
    chunk_rows: int | None,
) -> None:
    """Check that an unfinished store was to become what is to be written now.

    Raises
    ------
    StoreError
        Version, shape, dtype, manifest or chunks differ.
    """
    formats.check("cohort", attrs.get("format_version"), url)
    if attrs["format_version"] != layout.FORMAT_VERSION:
        raise StoreError(f"{url} was started by an older release and not finished; {START_OVER}")
    found = (tuple(embedding.shape), np.dtype(embedding.dtype))
    if found != (shape, dtype):
        raise StoreError(
            f"{url} was started with an embedding {found[0]} {found[1]} and not finished; "
            f"{START_OVER}"
        )
    if attrs.get("manifest_fingerprint") != manifest_fingerprint:
        raise StoreError(f"{url} was started with another manifest and not finished; {START_OVER}")
    if chunk_rows is not None and chunk_rows != embedding.chunks[0]:
        raise StoreError(
            f"{url} was started with chunk_rows={embedding.chunks[0]}; leave the argument out to "
            f"resume it, or {START_OVER}"
        )


def hash_written(
    location: Location, attrs: Mapping[str, Any], embedding: zarr.Array[Any]
) -> BlockHasher:
    """Hash the rows that an earlier run wrote, and compare with what it noted.

    Raises
    ------
    StoreError
        The rows are not those that were written.
    """
    try:
        progress = json.loads(str(attrs["progress"]))
        n_rows, digests = int(progress["rows"]), list(progress["digests"])
    except (ValueError, TypeError, KeyError) as err:
        raise StoreError(
            f"{location.url} is damaged: how far it came cannot be read; {START_OVER}"
        ) from err
    chunks = ChunkReader(embedding, location, mend=START_OVER)
    hasher = BlockHasher()
    for lo in range(0, min(n_rows, chunks.shape[0]), chunks.chunk_rows):
        hasher.update(chunks.read(lo, min(lo + chunks.chunk_rows, n_rows)))
    if hasher.rows != n_rows or hasher.snapshot() != digests:
        raise StoreError(
            f"{location.url} is damaged: its first {n_rows} rows are not those that were written; "
            f"{START_OVER}"
        )
    return hasher
