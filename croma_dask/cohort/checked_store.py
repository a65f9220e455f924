"""A local Zarr store that says which chunk of which array is damaged, and notices missing ones."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.storage import LocalStore

from croma_dask.cohort.checksums import CRC_BYTES, crc32c
from croma_dask.errors import StoreError

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

__all__ = ["CheckedStore"]

_CHUNK = re.compile(r"(?:(?P<array>.+)/)?c(?P<index>(/\d+)*)")


class CheckedStore(LocalStore):
    """A folder, for reading by whoever reads it lazily, long after it was opened.

    Parameters
    ----------
    root
        The folder.
    mend
        What to do when it is damaged.
    complete
        Arrays of which every chunk was written: one that is missing is damage then, not fill
        values. True says so of all.

    Notes
    -----
    Zarr compares a chunk with its checksum as well, but does not say where it stands.
    """

    def __init__(
        self, root: Path | str, *, mend: str, complete: Collection[str] | bool = False
    ) -> None:
        super().__init__(root, read_only=True)
        self._mend, self._complete = mend, complete
        version = self._version_now()
        if version is None:
            raise FileNotFoundError(2, "No such file", str(Path(root) / "zarr.json"))
        self._version = version
        self._metadata: dict[str, dict[str, Any]] = {}

    def _version_now(self) -> tuple[int, int] | None:
        try:
            about = (Path(self.root) / "zarr.json").stat()
        except OSError:
            return None
        return about.st_ino, about.st_mtime_ns

    def __dask_tokenize__(self) -> Any:
        """Name what is read: the folder as it was when it was opened."""
        return "croma-dask", str(self.root), self._version

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Read a key; None where there is none.

        Raises
        ------
        StoreError
            It is a chunk that does not match its checksum, or should be there and is not.
        """
        found = await super().get(key, prototype, byte_range)
        return self._checked(key, found, byte_range)

    def get_sync(
        self,
        key: str,
        *,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Do the same without an event loop, as newer releases of zarr ask for it."""
        found = super().get_sync(key, prototype=prototype, byte_range=byte_range)
        return self._checked(key, found, byte_range)

    def _checked(
        self, key: str, found: Buffer | None, byte_range: ByteRequest | None
    ) -> Buffer | None:
        match = _CHUNK.fullmatch(key)
        if match is None:
            return found
        # Chunks of what lies here now, or of nothing, are no part of what was opened.
        version = self._version_now()
        if version != self._version:
            what = "is gone" if version is None else "was replaced"
            raise StoreError(f"{self.root} {what} since it was opened: open it again")
        if byte_range is not None:
            return found
        array = match["array"] or ""
        metadata = self._metadata_of(array)
        if found is None:
            if self._is_complete(array):
                raise self._damaged(array, match["index"], metadata, "is missing")
            return None
        codecs = metadata.get("codecs")
        last = codecs[-1] if isinstance(codecs, list) and codecs else None
        if not isinstance(last, dict) or last.get("name") != "crc32c":
            return found
        raw = np.asarray(found.as_numpy_array()).view(np.uint8)
        stored = int.from_bytes(raw[-CRC_BYTES:].tobytes(), "little")
        if len(raw) < CRC_BYTES or crc32c(raw[:-CRC_BYTES]) != stored:
            raise self._damaged(array, match["index"], metadata, "does not match its checksum")
        return found

    def _is_complete(self, array: str) -> bool:
        return self._complete if isinstance(self._complete, bool) else array in self._complete

    def _metadata_of(self, array: str) -> dict[str, Any]:
        """Return what is stored of an array; empty where it cannot be read, which zarr tells."""
        if array not in self._metadata:
            try:
                found = json.loads((Path(self.root) / array / "zarr.json").read_bytes())
            except (OSError, ValueError):
                found = {}
            self._metadata[array] = found if isinstance(found, dict) else {}
        return self._metadata[array]

    def _damaged(
        self, array: str, index: str, metadata: dict[str, Any], problem: str
    ) -> StoreError:
        where = [int(part) for part in index.split("/")[1:]]
        rows = ""
        if where and metadata:
            size = int(metadata["chunk_grid"]["configuration"]["chunk_shape"][0])
            last = min((where[0] + 1) * size, int(metadata["shape"][0])) - 1
            rows = f" (rows {where[0] * size} to {last})"
        number = ", ".join(map(str, where)) or "0"
        return StoreError(
            f"{self.root} is damaged: chunk {number} of {array!r}{rows} {problem}; {self._mend}"
        )
