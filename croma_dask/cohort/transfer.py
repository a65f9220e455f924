"""Files and folders between this machine and a URL: there whole, or not at all.

An object store has no rename. A file is one object, and an object appears when it is whole. A
folder is many: the one that makes it readable, the root's ``zarr.json``, goes first and comes last.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from croma_dask.cohort.downloads import download
from croma_dask.cohort.location import Location
from croma_dask.cohort.uploads import is_unfinished, refuse_read_only, upload
from croma_dask.errors import SchemaError
from croma_dask.temporary import private_root
from croma_dask.whole_folders import beside, put, temporary

__all__ = ["fetched", "published"]

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
    a mark (:data:`~croma_dask.cohort.uploads.UPLOADING`); the root's ``zarr.json`` and all else
    that was there goes; all objects; the root's ``zarr.json``; the mark goes. Sizes are compared
    before the root is written.
    """
    location = Location.of(place, storage_options)
    if location.is_local:
        with _renamed(Path(location.url), overwrite, check) as path:
            yield path
        return
    refuse_read_only(location)
    if not overwrite and _holds(location):
        raise _exists(location)
    with _private(scratch) as folder:
        path = folder / location.name
        yield path
        if check is not None:
            check()
        upload(path, location)


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
        download(location, path)
        yield path


def _holds(location: Location) -> bool:
    return location.about() is not None and not is_unfinished(location)


def _exists(location: Location) -> SchemaError:
    return SchemaError(
        f"{location.url!r} exists already; remove it or pass overwrite=True (--overwrite)"
    )


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
