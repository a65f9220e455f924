"""Where a store lies: one small value that holds a path or an fsspec URL, and can be sent about."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from croma_dask.cohort import secrets
from croma_dask.cohort.retrying import tried
from croma_dask.errors import StoreError

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

__all__ = ["Location", "open_root"]

T = TypeVar("T")

# What an interrupted atomic write of zarr may leave beside the keys of a store.
_PARTIAL_SUFFIX = ".partial"
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")
_GONE = (FileNotFoundError, NotADirectoryError)
_S3 = ("s3://", "s3a://")


@dataclass(frozen=True)
class Location:
    """A path or URL with the options that open it; make it by :meth:`of`.

    Attributes
    ----------
    url
        Absolute path for local files (so that workers with another working directory find it),
        otherwise the URL as given, but for passwords and signatures: these are ``***``.
    token
        Names the options of the fsspec file system; ``""`` where there are none. The options stay
        in this process (:mod:`croma_dask.cohort.secrets`), so that a location may be shown,
        pickled and sent.
    """

    url: str
    token: str = ""

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
            return cls(*secrets.keep(text.rstrip("/"), storage_options))
        return cls(os.path.abspath(os.path.expanduser(text)))

    def __str__(self) -> str:
        """Show the place, as a message may."""
        return self.url

    @property
    def is_local(self) -> bool:
        """Whether the files can be opened by the operating system."""
        return "://" not in self.url and "::" not in self.url

    @property
    def name(self) -> str:
        """Last part of the path, as a person would name it."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def file_name(self) -> str:
        """Last part of the path without a query, so that its ending tells the format."""
        return self.name if self.is_local else self.name.partition("?")[0]

    @property
    def storage_options(self) -> dict[str, Any]:
        """Options of the fsspec file system; empty for local files.

        Raises
        ------
        StoreError
            This process was not given them.
        """
        return secrets.options_of(self.url, self.token)

    @property
    def opening_url(self) -> str:
        """The URL with what may not be shown."""
        return secrets.url_of(self.url, self.token)

    def opening_options(self) -> dict[str, Any]:
        """Options with which the file system is made."""
        options = self.storage_options
        if self.is_local or "::" in self.url:
            return options
        # A listing that is remembered is wrong as soon as another process writes.
        options.setdefault("use_listings_cache", False)
        if self.url.startswith(_S3):
            # One request an object: more would first ask for its size, and hold 50 MB each. What is
            # read and written side by side are chunks.
            options.setdefault("max_concurrency", 1)
        return options

    def tune(self, fs: Any) -> None:
        """Leave what tries again within s3fs to :mod:`~croma_dask.cohort.retrying`.

        botocore's own tries, which users set up, stay.
        """
        if self.url.startswith(_S3):
            fs.retries = 1

    @property
    def parent(self) -> Location:
        """The place that this lies in."""
        path, query = self._parts
        return Location(path.rpartition("/")[0] + query, self.token)

    def joined(self, name: str) -> Location:
        """Return a place inside of this one."""
        path, query = self._parts
        return Location(f"{path}/{name}{query}", self.token)

    def renamed(self, url: str) -> Location:
        """Return another place that the same secrets and options open."""
        return Location(url, self.token)

    @property
    def _parts(self) -> tuple[str, str]:
        """The URL up to its query, and that, where a server takes a query."""
        if not self.url.startswith(("http://", "https://")):
            return self.url, ""
        path, mark, query = self.url.partition("?")
        return path, mark + query

    def filesystem(self) -> tuple[Any, str]:
        """Return the fsspec file system and the path inside it.

        Raises
        ------
        StoreError
            There is no such file system here, or its options are not what it takes.
        """
        from fsspec.core import url_to_fs

        try:
            fs, path = url_to_fs(self.opening_url, **self.opening_options())
        except (ImportError, ValueError, TypeError) as err:
            if isinstance(err, StoreError):
                raise
            raise StoreError(f"{self.url} cannot be opened: {secrets.scrub(str(err))}") from None
        self.tune(fs)
        return fs, path

    def zarr_store(self, *, read_only: bool) -> Store:
        """Return a zarr store of this place; local files get the one that writes atomically."""
        from zarr.storage import LocalStore

        if self.is_local:
            return LocalStore(self.url, read_only=read_only)
        from croma_dask.cohort.remote_store import RemoteStore

        self.filesystem()  # says what is wrong with it
        return RemoteStore(self, read_only=read_only)

    def tried(self, call: Callable[[], T], name: str = "", *, write: bool = False) -> T:
        """Call something of the file system, again after what passes (local files: once).

        Raises
        ------
        FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError
            As the file system says.
        StoreError
            It failed, for a reason that does not pass or to the end.
        """
        return call() if self.is_local else tried(self.url, name, call, write=write)

    def about(self) -> dict[str, Any] | None:
        """Return what the file system says of this place; None where nothing is.

        Returns
        -------
        dict
            ``type`` (``"file"`` or ``"directory"``), ``size`` (bytes; None where unknown), more.
        """
        fs, path = self.filesystem()
        try:
            return dict(self.tried(lambda: fs.info(path)))
        except _GONE:
            return None

    def names(self) -> list[str]:
        """Return the names of what lies directly here; empty where there is nothing."""
        fs, path = self.filesystem()
        fs.invalidate_cache()
        try:
            entries = self.tried(lambda: fs.ls(path, detail=False))
        except _GONE:
            return []
        names = [str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in entries]
        return [name for name in names if not name.endswith(_PARTIAL_SUFFIX)]

    def is_file(self) -> bool:
        """Whether this is a single file."""
        about = self.about()
        return about is not None and about["type"] == "file"

    def read_bytes(self, name: str) -> bytes | None:
        """Return the content of one file here, or None where there is no such file."""
        fs, path = self.filesystem()
        try:
            return bytes(self.tried(lambda: fs.cat_file(f"{path}/{name}"), name))
        except (*_GONE, IsADirectoryError):
            return None

    def node_attributes(self, name: str = "zarr.json") -> dict[str, Any]:
        """Return the attributes of a Zarr v3 node; none where its metadata cannot be read.

        Nor where a local file of metadata is a link, which may lead to any file.
        """
        if self.is_local and os.path.islink(os.path.join(self.url, name)):
            return {}
        raw = self.read_bytes(name)
        try:
            attrs = json.loads(raw)["attributes"] if raw else {}
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}
        return attrs if isinstance(attrs, dict) else {}

    def read_start(self, size: int) -> bytes:
        """Return the first bytes of this file, at most `size`."""
        fs, path = self.filesystem()
        return bytes(self.tried(lambda: fs.cat_file(path, start=0, end=size)))[:size]

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write one file here, whole or not at all."""
        fs, path = self.filesystem()
        self.tried(lambda: fs.pipe_file(f"{path}/{name}", content), name, write=True)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete this file.

        Raises
        ------
        FileNotFoundError
            There is none, unless `missing_ok`.
        """
        fs, path = self.filesystem()
        if not missing_ok and self.about() is None:
            raise FileNotFoundError(2, "No such file", self.url)
        try:
            # A try whose answer was lost has deleted it, too.
            self.tried(lambda: fs.rm_file(path), write=True)
        except FileNotFoundError:
            pass

    def remove(self, last: str) -> None:
        """Delete everything here, the file `last` after everything else."""
        fs, path = self.filesystem()
        for name in self.names():
            if name != last:
                self._delete(fs, f"{path}/{name}")
        self._delete(fs, f"{path}/{last}")
        if self.about() is not None:
            self._delete(fs, path)

    def remove_partial(self) -> None:
        """Delete what killed runs have left of files directly here; it is no name of anything."""
        fs, path = self.filesystem()
        try:
            entries = self.tried(lambda: fs.ls(path, detail=False))
        except _GONE:
            return
        for entry in map(str, entries):
            if _PARTIAL.search(entry):
                self._delete(fs, entry)

    def remove_below(self, name: str) -> None:
        """Delete one file or folder here."""
        fs, path = self.filesystem()
        self._delete(fs, f"{path}/{name}")

    def sizes(self) -> dict[str, int]:
        """Bytes of all files here and in the folders below, by their path from here."""
        return {name: int(about["size"]) for name, about in self.entries().items()}

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return what is said of all files here and in the folders below, by their path from here.

        One request for a thousand of them. ``size`` is in bytes.
        """
        fs, path = self.filesystem()
        fs.invalidate_cache()
        found = self.tried(lambda: fs.find(path, detail=True))
        return {
            str(name)[len(path) :].lstrip("/"): about
            for name, about in found.items()
            # A folder that was made in a console is an empty object with the folder's own name.
            if about["type"] == "file" and not str(name).endswith("/")
        }

    def _delete(self, fs: Any, path: str) -> None:
        fs.invalidate_cache()
        try:
            self.tried(lambda: fs.rm(path, recursive=True), write=True)
        except FileNotFoundError:
            pass


def open_root(
    location: Location, what: str = "a cohort store", mend: str = "ingest it first"
) -> zarr.Group:
    """Open the root group of a store for reading.

    `what` is expected there, and `mend` says how to get one.

    Raises
    ------
    StoreError
        There is nothing there, or it is no Zarr v3 group; or it cannot be read.
    """
    import zarr

    try:
        return zarr.open_group(location.zarr_store(read_only=True), mode="r", zarr_format=3)
    except StoreError:
        raise
    except PermissionError:
        raise
    # There is no telling what zarr raises on metadata that its authors did not foresee.
    except Exception as err:
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
        return f"its metadata (zarr.json) are damaged, or this is a Zarr array and not {what}"
    return f"this folder is not {what}"
