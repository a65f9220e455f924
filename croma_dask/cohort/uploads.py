"""To a URL: an object appears when it is whole, a folder with its root, which comes last."""

from __future__ import annotations

import json
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from croma_dask.cohort.location import Location
from croma_dask.errors import SchemaError, StoreError

__all__ = [
    "ROOT", "UPLOADING", "check_writable", "is_unfinished", "refuse_read_only", "shared", "upload",
]  # fmt: skip

UPLOADING = "croma-dask-upload.json"
"""Lies in a folder at a URL while it is written: names the run that does."""

ROOT = "zarr.json"

_SIDE_BY_SIDE = 8

log = logging.getLogger("croma_dask")


def upload(path: Path, location: Location) -> None:
    """Put a file or a folder of this machine in its place at a URL; it stays here, too.

    Raises
    ------
    StoreError
        As :func:`published`.
    """
    refuse_read_only(location)
    if path.is_dir():
        _upload_folder(path, location)
    else:
        _upload_file(path, location)


def is_unfinished(location: Location) -> bool:
    """Whether a folder at a URL is what a run that was interrupted has left: it may be replaced."""
    if location.is_local:
        return False
    return location.read_bytes(UPLOADING) is not None and location.read_bytes(ROOT) is None


def check_writable(location: Location) -> None:
    """Write something beside a place at a URL, and delete it: later would be too late to learn.

    Raises
    ------
    SchemaError
        It is a URL of HTTP.
    StoreError
        There is no such bucket, or nothing may be written into it.
    """
    refuse_read_only(location)
    # A bucket lies in nothing.
    folder = location.parent if location.parent.url.rstrip("/").count("/") > 1 else location
    trial = folder.joined(f".croma-dask-check-{uuid.uuid4().hex[:12]}")
    try:
        folder.write_bytes(trial.name, b"May be deleted: croma-dask tried whether it can write.\n")
    except StoreError as err:
        raise StoreError(str(err).replace(trial.url, location.url)) from None
    try:
        trial.unlink(missing_ok=True)
    except StoreError as err:
        log.warning("%s: what was written there to try it stays (%s)", folder, err)


def refuse_read_only(location: Location) -> None:
    """Refuse places that are only read, whoever asks.

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
            raise shared(location)
        _put(path / name, location.joined(name))

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        list(pool.map(put_mine, files))
    _check_uploaded(path, files, location, run)
    _put(path / ROOT, location.joined(ROOT))
    if location.read_bytes(UPLOADING) != run:
        # Another run began between the look and the root, whose chunks may not be ours.
        location.joined(ROOT).unlink(missing_ok=True)
        raise shared(location)
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
        if ROOT in sizes:
            # That of a run whose chunks these are not all: neither opens.
            location.joined(ROOT).unlink(missing_ok=True)
        raise shared(location, f" ({len(wrong)} objects are not as written)" if wrong else "")


def shared(location: Location, about: str = "") -> StoreError:
    """Say that another run writes to the same place; `about` tells by what that shows."""
    return StoreError(
        f"another run writes to {location.url} at the same time{about}: this one stops; let one of "
        "them finish, or name another place"
    )
