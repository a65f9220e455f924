"""Zarr over a network: every request is tried again, and nothing unread passes for missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from zarr.storage import FsspecStore

from croma_dask.cohort.retrying import is_missing, tried_async
from croma_dask.errors import StoreError

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

    from croma_dask.cohort.location import Location

__all__ = ["RemoteStore"]

T = TypeVar("T")
Keys = list[str]


class RemoteStore(FsspecStore):
    """A store at a URL; it pickles to its place.

    Parameters
    ----------
    location
        The place.
    read_only
        Whether writing is refused.

    Notes
    -----
    A key is missing only where the server says so (404). Everything else is tried again, or raised
    as :class:`~croma_dask.errors.StoreError`: a missing chunk reads as fill values.
    """

    def __init__(self, location: Location, *, read_only: bool) -> None:
        plain = FsspecStore.from_url(
            location.opening_url, storage_options=location.opening_options(), read_only=read_only
        )
        # What the file system calls not found is looked at below, not swallowed.
        super().__init__(fs=plain.fs, path=plain.path, read_only=read_only, allowed_exceptions=())
        location.tune(plain.fs)
        self.location = location

    def __reduce__(self) -> Any:
        """Keep the place only: a graph carries no secrets."""
        return _reopened, (self.location, self.read_only)

    def __repr__(self) -> str:
        """Name the place."""
        return f"RemoteStore({self.location.url!r})"

    def __eq__(self, other: object) -> bool:
        """Compare the places."""
        return (
            isinstance(other, RemoteStore)
            and self.location == other.location
            and self.read_only == other.read_only
        )

    __hash__ = None  # type: ignore[assignment]

    def with_read_only(self, read_only: bool = False) -> RemoteStore:
        """Return a store of the same place."""
        return RemoteStore(self.location, read_only=read_only)

    async def _try(self, key: str, call: Callable[[], Awaitable[T]], *, write: bool = False) -> T:
        return await tried_async(self.location.url, key, call, write=write)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read a key; None where the server says that there is none."""
        get = super().get
        try:
            return await self._try(key, lambda: get(key, prototype, byte_range))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Read parts of keys, each as :meth:`get`."""
        found = (self.get(key, prototype, part) for key, part in key_ranges)
        return list(await asyncio.gather(*found))

    async def set(self, key: str, value: Buffer, byte_range: tuple[int, int] | None = None) -> None:
        """Write a key, whole or not at all."""
        put = super().set
        try:
            await self._try(key, lambda: put(key, value, byte_range), write=True)
        except FileNotFoundError as err:
            raise StoreError(f"{self.location.url}/{key} cannot be written: {err}") from None

    async def delete(self, key: str) -> None:
        """Delete a key that may not be there."""
        delete = super().delete
        await self._try(key, lambda: delete(key), write=True)

    async def delete_dir(self, prefix: str) -> None:
        """Delete all keys of a prefix."""
        delete = super().delete_dir

        async def call() -> None:
            try:
                await delete(prefix)
            except FileNotFoundError as err:
                if not is_missing(err):
                    raise

        await self._try(prefix, call, write=True)

    async def exists(self, key: str) -> bool:
        """Whether there is a key."""
        path = f"{self.path}/{key}" if key else self.path
        try:
            await self._try(key, lambda: self.fs._info(path))
        except FileNotFoundError:
            return False
        return True

    async def getsize(self, key: str) -> int:
        """Bytes of a key."""
        size = super().getsize
        return await self._try(key, lambda: size(key))

    async def list(self) -> AsyncIterator[str]:
        """Yield all keys."""
        every = super().list
        for key in await self._listed("", every):
            yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield what lies directly below a prefix."""
        direct = super().list_dir
        for key in await self._listed(prefix, lambda: direct(prefix)):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys of a prefix."""
        below = super().list_prefix
        for key in await self._listed(prefix, lambda: below(prefix)):
            yield key

    async def _listed(self, prefix: str, keys: Callable[[], AsyncIterator[str]]) -> Keys:
        async def call() -> Keys:
            return [key async for key in keys()]

        try:
            return await self._try(prefix, call)
        except FileNotFoundError:
            return []


def _reopened(location: Location, read_only: bool) -> RemoteStore:
    return RemoteStore(location, read_only=read_only)
