"""One process at a time writes what is filled in its place, where nothing can be renamed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from croma_dask.errors import StoreError
from croma_dask.whole_folders import hidden

__all__ = ["one_writer"]

log = logging.getLogger("croma_dask")


@contextlib.contextmanager
def one_writer(place: Path) -> Iterator[None]:
    """Keep other processes from writing to a place while the block runs.

    The lock is the kernel's, on a hidden file beside the place, and goes with the process however
    that ends: what a killed one has left locks nobody out, and goes with the next.

    Parameters
    ----------
    place
        Local file or folder, there or not; folders above it are made.

    Raises
    ------
    StoreError
        Another process is at it, or it is not there and cannot be made.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise StoreError(
            f"{place} cannot be written: {err.strerror} ({err.filename}); name another place"
        ) from err
    path = hidden(place, "writing")
    handle = _locked(path, place)
    try:
        yield
    finally:
        if handle is not None:
            # While it is held: deleted afterwards it could be somebody else's.
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(handle)


def _locked(path: Path, place: Path) -> int | None:
    """Open and lock a file; None where the file system allows no such file, or knows no locks."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as err:
            if err.errno in (errno.EACCES, errno.EROFS) and not place.exists():
                raise StoreError(
                    f"{place} cannot be written: {err.strerror} in {path.parent}; name another "
                    "place"
                ) from err
            log.warning(
                "%s cannot be locked (%s): never write to it twice at once", place, err.strerror
            )
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            os.close(handle)
            raise StoreError(
                f"{place} is being written by another process; wait for it, or name another place"
            ) from err
        except OSError as err:
            os.close(handle)
            log.warning("%s knows no locks (%s): never write to it twice at once", place, err)
            return None
        try:
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except FileNotFoundError:
            pass
        # Its owner was just done with it and deleted it.
        os.close(handle)
