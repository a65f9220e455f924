"""Files and folders between this machine and a URL: there whole, or not at all.

An object store has no rename. A file is one object, and an object appears when it is whole. A
folder is many: the one that makes it readable, the root's ``zarr.json``, goes first and comes last.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from croma_dask.cohort.location import Location
from croma_dask.errors import SchemaError, StoreError
from croma_dask.memory import format_bytes
from croma_dask.temporary import private_root
from croma_dask.whole_folders import beside, put, temporary

__all__ = [
    "UPLOADING", "check_right", "check_writable", "fetched", "is_unfinished", "published", "upload",
]  # fmt: skip

UPLOADING = "croma-dask-upload.json"
"""Lies in a folder at a URL while it is written: names the run that does."""

ROOT = "zarr.json"
PIECE = 32 << 20
"""Bytes that are read at once of a large file."""

_SIDE_BY_SIDE = 8

log = logging.getLogger("croma_dask")

Place = str | os.PathLike[str] | Location


@contextlib.contextmanager
def published(
    place: Place,
    *,
    storage_options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    check: Callable[[], None] | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> Iterator[Path]:
    """Write a file or a folder on this machine, and put it in its place at the end.

    Parameters
    ----------
    place
        Path or URL. Whether it becomes a file or a folder is what the block makes.
    storage_options
        Of the file system of a URL.
    overwrite
        Replace what is there. Whether that may be replaced is for the caller to find out.
    check
        Called when the block has ended, before anything is replaced; raises where it must not be.
    scratch
        Folder for what goes to a URL, by default a private one under the temporary folder.

    Yields
    ------
    pathlib.Path
        Where to write; nothing is there yet. It has the name of the place. A block that fails
        leaves the place as it was.

    Raises
    ------
    SchemaError
        Something is there, and `overwrite` is not set.
    StoreError
        It could not be written to the URL, after several tries. What is there then does not open,
        and the same call writes it again.

    Notes
    -----
    Memory: 50 MB for each large file that is uploaded. A folder at a URL is written in this order:
    a mark (:data:`UPLOADING`); the root's ``zarr.json`` and all else that was there goes; all
    objects; the root's ``zarr.json``; the mark goes. Sizes are compared before the root is written.
    """
    location = Location.of(place, storage_options)
    if location.is_local:
        with _renamed(Path(location.url), overwrite, check) as path:
            yield path
        return
    check_writable(location)
    if not overwrite and _holds(location):
        raise _exists(location)
    with _private(scratch) as folder:
        path = folder / location.name
        yield path
        if check is not None:
            check()
        upload(path, location)


def upload(path: Path, location: Location) -> None:
    """Put a file or a folder of this machine in its place at a URL; it stays here, too.

    Raises
    ------
    StoreError
        As :func:`published`.
    """
    check_writable(location)
    if path.is_dir():
        _upload_folder(path, location)
    else:
        _upload_file(path, location)


@contextlib.contextmanager
def fetched(
    place: Place,
    *,
    storage_options: Mapping[str, Any] | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> Iterator[Path]:
    """Bring a file or a folder to this machine.

    Parameters
    ----------
    place
        Path or URL.
    storage_options
        Of the file system of a URL.
    scratch
        Folder for the copy, by default a private one under the temporary folder.

    Yields
    ------
    pathlib.Path
        Of a local place itself, there or not. Of a URL a copy with the same name, which goes when
        the block ends.

    Raises
    ------
    StoreError
        There is nothing at the URL, it cannot be read after several tries, it changed while it was
        read, or the disk has no room for it.
    """
    location = Location.of(place, storage_options)
    if location.is_local:
        yield Path(location.url)
        return
    with _private(scratch) as folder:
        path = folder / (location.file_name or "data")
        about = location.about()
        if about is None:
            raise StoreError(f"there is nothing at {location.url}")
        if about["type"] == "directory":
            _download_folder(location, path)
        else:
            _check_room(about.get("size") or 0, folder, location)
            _download_file(location, path, about)
        yield path


def is_unfinished(location: Location) -> bool:
    """Whether a folder at a URL is what a run that was interrupted has left: it may be replaced."""
    if location.is_local:
        return False
    return location.read_bytes(UPLOADING) is not None and location.read_bytes(ROOT) is None


def _holds(location: Location) -> bool:
    return location.about() is not None and not is_unfinished(location)


def _exists(location: Location) -> SchemaError:
    return SchemaError(
        f"{location.url!r} exists already; remove it or pass overwrite=True (--overwrite)"
    )


def check_writable(location: Location) -> None:
    """Refuse places that are only read.

    Raises
    ------
    SchemaError
        It is a URL of HTTP.
    """
    if location.url.startswith(("http://", "https://")):
        raise SchemaError(
            f"{location.url} can be read only: nothing is written over HTTP; name a folder, or the "
            "URL of an object store"
        )


def check_right(location: Location) -> None:
    """Write something beside a place at a URL, and delete it: later would be too late to learn.

    Raises
    ------
    StoreError
        There is no such bucket, or nothing may be written into it.
    """
    beside = location.parent.joined(f".croma-dask-check-{uuid.uuid4().hex[:12]}")
    beside.parent.write_bytes(beside.name, b"may be deleted")
    try:
        beside.unlink(missing_ok=True)
    except StoreError as err:
        log.warning("%s: what was written there to try it stays (%s)", location.parent, err)


@contextlib.contextmanager
def _renamed(target: Path, overwrite: bool, may: Callable[[], None] | None) -> Iterator[Path]:
    """Write beside a local place, and rename."""

    def check(place: Path) -> None:
        if not overwrite:
            raise _exists(Location.of(place))
        if may is not None:
            may()

    if os.path.lexists(target):
        check(target)
    with beside(target) as folder:
        path = folder / target.name
        yield path
        if path.is_dir():
            put(path, target, check=check)
        elif overwrite:
            if may is not None:
                may()
            os.replace(path, target)
        else:
            _placed(path, target, check)


def _placed(path: Path, target: Path, check: Any) -> None:
    """Put a file where nothing may be."""
    try:
        os.link(path, target)
    except FileExistsError:
        check(target)
    except OSError:
        # File systems without links: a moment in which somebody else's file would be replaced.
        if os.path.lexists(target):
            check(target)
        os.replace(path, target)


def _private(scratch: str | os.PathLike[str] | None) -> contextlib.AbstractContextManager[Path]:
    """Make a folder for what is on its way; it goes at the end."""
    return temporary(Path(scratch or private_root()), "transfer-")


def _upload_file(path: Path, location: Location) -> None:
    """Write one object, and look whether it has the size of the file."""
    fs, target = location.filesystem()
    location.tried(lambda: fs.put_file(str(path), target), write=True)
    about = location.about()
    found = None if about is None else about.get("size")
    if found != path.stat().st_size:
        raise StoreError(
            f"{location.url} was written, and has {found} bytes in place of {path.stat().st_size}: "
            "somebody else writes to the same place; run it again"
        )


def _upload_folder(path: Path, location: Location) -> None:
    """Write the objects of a folder, the one that makes it readable last."""
    files = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
    if ROOT not in files:
        raise StoreError(f"{path.name} has no {ROOT}: it is not written to {location.url}")
    files.remove(ROOT)
    run = json.dumps({"format": "croma-dask upload", "run": uuid.uuid4().hex}).encode()
    # From now on what is there is this run's, and opens for nobody.
    location.write_bytes(UPLOADING, run)
    location.joined(ROOT).unlink(missing_ok=True)
    for name in location.names():
        if name not in (UPLOADING, ROOT):
            location.remove_below(name)

    def put_mine(name: str) -> None:
        # Nothing goes into a folder that another run has begun, or ended, meanwhile.
        if location.read_bytes(UPLOADING) != run:
            raise _shared(location, "")
        _put(path / name, location.joined(name))

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        list(pool.map(put_mine, files))
    _check_uploaded(path, files, location, run)
    _put(path / ROOT, location.joined(ROOT))
    location.joined(UPLOADING).unlink(missing_ok=True)


def _put(path: Path, location: Location) -> None:
    fs, target = location.filesystem()
    location.tried(lambda: fs.put_file(str(path), target), write=True)


def _check_uploaded(path: Path, files: list[str], location: Location, run: bytes) -> None:
    """Look whether all objects are there in their size, and no other run has begun here."""
    sizes = {name: about.get("size") for name, about in location.entries().items()}
    sizes.pop(UPLOADING, None)
    expected = {name: (path / name).stat().st_size for name in files}
    if sizes != expected or location.read_bytes(UPLOADING) != run:
        wrong = [name for name in {*sizes, *expected} if sizes.get(name) != expected.get(name)]
        raise _shared(location, f" ({len(wrong)} objects are not as written)" if wrong else "")


def _shared(location: Location, about: str) -> StoreError:
    return StoreError(
        f"another run writes to {location.url} at the same time{about}: this one stops; let one of "
        "them finish, or name another place"
    )


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
