"""Where a store lies: one small value that holds a path or an fsspec URL, and can be sent about."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from croma_dask.errors import StoreError

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

__all__ = ["Location", "open_root"]

# What an interrupted atomic write of zarr may leave beside the keys of a store.
_PARTIAL_SUFFIX = ".partial"


@dataclass(frozen=True)
class Location:
    """A path or URL with the options that open it.

    Attributes
    ----------
    url
        Absolute path for local files (so that workers with another working directory find it),
        otherwise the URL as given.
    storage_options
        Options of the fsspec file system; empty for local files.
    """

    url: str
    storage_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str] | Location,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Location:
        """Normalise what a user gave as the place of a store."""
        if isinstance(path, Location):
            return path
        text = os.fspath(path)
        if text.startswith("file://"):
            from fsspec.core import strip_protocol

            text = strip_protocol(text)
        if "://" in text or "::" in text:
            return cls(text.rstrip("/"), dict(storage_options or {}))
        return cls(os.path.abspath(os.path.expanduser(text)))

    @property
    def is_local(self) -> bool:
        """Whether the files can be opened by the operating system."""
        return "://" not in self.url and "::" not in self.url

    @property
    def name(self) -> str:
        """Last part of the path, as a person would name it."""
        return self.url.rsplit("/", 1)[-1]

    def filesystem(self) -> tuple[Any, str]:
        """Return the fsspec file system and the path inside it."""
        from fsspec.core import url_to_fs

        fs, path = url_to_fs(self.url, **self.storage_options)
        return fs, path

    def zarr_store(self, *, read_only: bool) -> Store:
        """Return a zarr store of this place; local files get the one that writes atomically."""
        from zarr.storage import FsspecStore, LocalStore

        if self.is_local:
            return LocalStore(self.url, read_only=read_only)
        return FsspecStore.from_url(
            self.url, storage_options=dict(self.storage_options), read_only=read_only
        )

    def names(self) -> list[str]:
        """Return the names of what lies directly here; empty where there is nothing."""
        fs, path = self.filesystem()
        fs.invalidate_cache()
        try:
            entries = fs.ls(path, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = [str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in entries]
        return [name for name in names if not name.endswith(_PARTIAL_SUFFIX)]

    def is_file(self) -> bool:
        """Whether this is a single file."""
        fs, path = self.filesystem()
        return bool(fs.isfile(path))

    def read_bytes(self, name: str) -> bytes | None:
        """Return the content of one file here, or None where there is no such file."""
        fs, path = self.filesystem()
        try:
            content: bytes = fs.cat_file(f"{path}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return content

    def remove(self, last: str) -> None:
        """Delete everything here, the file `last` after everything else."""
        fs, path = self.filesystem()
        fs.invalidate_cache()
        for entry in fs.ls(path, detail=False):
            if str(entry).rstrip("/").rsplit("/", 1)[-1] != last:
                fs.rm(entry, recursive=True)
        fs.rm_file(f"{path}/{last}")
        fs.invalidate_cache()
        if fs.exists(path):
            fs.rm(path, recursive=True)


def open_root(
    location: Location, what: str = "a cohort store", mend: str = "ingest it first"
) -> zarr.Group:
    """Open the root group of a store for reading.

    `what` is expected there, and `mend` says how to get one.

    Raises
    ------
    StoreError
        There is nothing there, or it is no Zarr v3 group.
    """
    import zarr

    try:
        return zarr.open_group(location.zarr_store(read_only=True), mode="r", zarr_format=3)
    except (FileNotFoundError, NotADirectoryError, KeyError, ValueError) as err:
        raise StoreError(f"{location.url}: {_what_is_there(location, what)}; {mend}") from err


def _what_is_there(location: Location, what: str) -> str:
    """Describe a place that holds no Zarr v3 group."""
    if location.is_file():
        return f"this is a file, not {what}"
    names = location.names()
    if not names:
        return "there is no store here"
    if ".zgroup" in names or ".zattrs" in names or ".zarray" in names:
        return f"this is Zarr version 2, {what} is version 3"
    if "zarr.json" in names:
        return f"this is a Zarr array or a damaged group, not {what}"
    return f"this folder is not {what}"
