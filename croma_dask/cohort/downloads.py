"""From a URL to this machine, and the copy is of one moment."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from croma_dask.cohort.location import Location
from croma_dask.cohort.uploads import ROOT
from croma_dask.errors import StoreError
from croma_dask.memory import format_bytes

__all__ = ["PIECE", "download"]

PIECE = 32 << 20
"""Bytes that are read at once of a large file."""

_SIDE_BY_SIDE = 8


def download(location: Location, path: Path) -> None:
    """Copy a file or a folder from a URL.

    Raises
    ------
    StoreError
        There is nothing, it cannot be read after several tries, it changed while it was read, or
        the disk has no room for it.
    """
    about = location.about()
    if about is None:
        raise StoreError(f"there is nothing at {location.url}")
    if about["type"] == "directory":
        _download_folder(location, path)
    else:
        _check_room(about.get("size") or 0, path.parent, location)
        _download_file(location, path, about)


def _check_room(needed: int, folder: Path, location: Location) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StoreError(
            f"{location.url} takes {format_bytes(needed)}, and {str(folder.parent)!r} has "
            f"{format_bytes(free)} free: set TMPDIR to a folder with more room"
        )


def _download_folder(location: Location, path: Path) -> None:
    entries = location.entries()
    _check_room(sum(about.get("size") or 0 for about in entries.values()), path.parent, location)
    root = location.read_bytes(ROOT)
    for name in entries:
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise StoreError(f"{location.url} holds an object called {name!r}: it is not copied")
        (path / name).parent.mkdir(parents=True, exist_ok=True)

    def fetch(name: str) -> None:
        _copy(location.joined(name), path / name, entries[name].get("size"))

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        list(pool.map(fetch, entries))
    # A folder that is replaced loses its root first, and gets it back last.
    now = {name: _version(about) for name, about in location.entries().items()}
    before = {name: _version(about) for name, about in entries.items()}
    if now != before or location.read_bytes(ROOT) != root:
        raise _changed(location)


def _download_file(location: Location, path: Path, about: Mapping[str, Any]) -> None:
    """Copy one object."""
    size = about.get("size")
    _copy(location, path, size)
    if size and size > PIECE and _version(location.about()) != _version(about):
        raise _changed(location)


def _copy(location: Location, path: Path, size: int | None) -> None:
    """Copy one object, in pieces where it is large."""
    fs, source = location.filesystem()
    with open(path, "wb") as file:
        if not size or size <= PIECE:
            file.write(location.tried(lambda: fs.cat_file(source)))
        else:
            for lo in range(0, size, PIECE):
                file.write(_piece(location, lo, min(size, lo + PIECE)))
    if size is not None and path.stat().st_size != size:
        raise _changed(location)


def _piece(location: Location, lo: int, hi: int) -> bytes:
    fs, source = location.filesystem()
    found = bytes(location.tried(lambda: fs.cat_file(source, start=lo, end=hi)))
    if len(found) == hi - lo:
        return found
    if len(found) >= hi:
        return found[lo:hi]  # a server that does not know of parts sends everything
    raise _changed(location)


def _version(about: Mapping[str, Any] | None) -> Any:
    """Return what tells one content of an object from another, where the file system says."""
    if about is None:
        return None
    return [str(about.get(key)) for key in ("size", "ETag", "etag", "LastModified", "mtime")]


def _changed(location: Location) -> StoreError:
    return StoreError(f"{location.url} changed while it was read: read it again")
