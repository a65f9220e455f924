"""Replacing a folder: the new one is made beside it and renamed, so that neither is ever half."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["beside", "hidden", "put", "temporary"]

_OLD = "old-"
_LONGEST = 220
"""Bytes of a name to which something is added: file systems take 255."""

_HERE, _RENAME_EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux."""


def hidden(place: Path, purpose: str) -> Path:
    """Return a hidden name beside a place, which a file system takes however long that of it is."""
    name = place.name
    if len(os.fsencode(name)) > _LONGEST:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return place.with_name(f".{name}.{purpose}")


@contextlib.contextmanager
def beside(place: Path) -> Iterator[Path]:
    """Make a folder beside a place; it is gone at the end unless it was moved.

    It is locked by an open handle, so that what a killed run has left can be told from what is
    being written, and goes with the next run.
    """
    if place.exists():
        old = re.compile(re.escape(hidden(place, _OLD).name) + "[0-9a-f]{12}")
        for left in filter(old.fullmatch, os.listdir(place.parent)):
            shutil.rmtree(place.parent / left, ignore_errors=True)
    with _own(place.parent, hidden(place, "partial-").name, 0o777) as folder:
        yield folder


@contextlib.contextmanager
def temporary(root: Path, prefix: str) -> Iterator[Path]:
    """Make a folder that is gone at the end; if its process is killed, with the next of its prefix.

    Parameters
    ----------
    root
        Where; it is made.
    prefix
        Of its name. Nothing else there may begin so.
    """
    root.mkdir(parents=True, exist_ok=True)
    with _own(root, prefix, 0o700) as folder:
        yield folder


@contextlib.contextmanager
def _own(root: Path, prefix: str, mode: int) -> Iterator[Path]:
    """Make a folder that this process has locked, once those that nobody has are gone."""
    for left in root.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError), _locked(left) as mine:
            if mine:
                shutil.rmtree(left, ignore_errors=True)
    while True:
        folder = root / f"{prefix}{_unique()}"
        folder.mkdir(mode=mode)
        try:
            with _locked(folder) as mine:
                if mine is False or not folder.exists():
                    continue  # taken for a leftover by somebody else before it was locked
                yield folder
                return
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            # That opens a folder before it deletes it, which may be what failed.
            with contextlib.suppress(OSError):
                folder.rmdir()


def _unique() -> str:
    return uuid.uuid4().hex[:12]


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool | None]:
    """Hold the lock of a folder; says whether it could be had, None where there are no locks.

    Raises
    ------
    OSError
        The folder cannot be opened, and is there.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        mine: bool | None = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            mine = False
        except OSError:
            mine = None
        yield mine
    finally:
        os.close(handle)


def put(partial: Path, place: Path, *, check: Callable[[Path], None]) -> None:
    """Put a finished folder in its place, whatever is there, and whoever else does the same.

    Parameters
    ----------
    partial, place
        The folder, and where it goes: beside it.
    check
        Raises where what lies at the place may not be replaced.
    """
    aside: list[Path] = []
    try:
        while True:
            try:
                os.rename(partial, place)
                break
            except OSError as err:
                if err.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
            check(place)
            if _exchange(partial, place):
                # What was there goes: at no moment is nothing there, whenever this is killed.
                shutil.rmtree(partial, ignore_errors=True)
                break
            old = hidden(place, f"{_OLD}{_unique()}")
            with contextlib.suppress(FileNotFoundError):
                os.rename(place, old)
                aside.append(old)
    except BaseException:
        # What was there goes back, unless somebody else has filled the place.
        if aside and not place.exists():
            os.rename(aside.pop(), place)
        raise
    finally:
        for old in aside:
            shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step; says whether the system could."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(renameat2(_HERE, names[0], _HERE, names[1], _RENAME_EXCHANGE) == 0)
