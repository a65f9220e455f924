"""Reading and writing over a network: tried again after what passes, one error after what does not.

Libraries of file systems try requests again by themselves, each in its own way: botocore five times
after 500, 502, 503, 504, 429 and connections that break before the answer; others less. What they
leave is treated here, the same for all: bodies that end in the middle, time-outs, names that are
not resolved, and servers that are busy for longer.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from croma_dask.cohort.secrets import scrub
from croma_dask.errors import CromaDaskError, StoreError

__all__ = ["TRIES", "is_missing", "tried", "tried_async"]

log = logging.getLogger("croma_dask")

T = TypeVar("T")

TRIES = 6
"""How often something is tried, each time with what the file system's library does by itself."""

WAIT = 0.5
"""Seconds before the second try; doubled before each further one, and half of it at random."""

_PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504, 509}
_PASSING_ERRNO = {
    getattr(errno, name)
    for name in (
        "EBUSY", "EREMOTEIO", "EAGAIN", "ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "ECONNABORTED",
        "EPIPE", "ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "ENETRESET",
    )
    if hasattr(errno, name)
}  # fmt: skip
_PASSING_CLASSES = {
    # aiohttp
    "ClientConnectionError", "ClientPayloadError", "ServerTimeoutError",
    # botocore, aiobotocore
    "HTTPClientError", "ConnectionError", "IncompleteReadError", "ResponseStreamingError",
    "ResponseParserError",
    # urllib3, requests, fsspec, http.client
    "ProtocolError", "IncompleteRead", "ChunkedEncodingError", "FSTimeoutError", "Timeout",
    "RemoteDisconnected",
}  # fmt: skip
"""By name: the libraries of file systems need not be there."""

_ABSENT_CODES = {"NoSuchBucket": "there is no such bucket"}
_DENIED_CODES = {
    "ExpiredToken": "the credentials have expired",
    "ExpiredTokenException": "the credentials have expired",
    "TokenRefreshRequired": "the credentials have expired",
    "InvalidAccessKeyId": "the access key is not known there",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key",
    "InvalidToken": "the session token is not valid",
    "AuthorizationHeaderMalformed": "the request is signed for another region",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
}
_NO_CREDENTIALS = {
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError",
    "TokenRetrievalError", "UnauthorizedSSOTokenError", "SSOTokenLoadError", "ProfileNotFound",
    "RefreshError", "DefaultCredentialsError", "ClientAuthenticationError",
}  # fmt: skip


def tried(place: str, what: str, call: Callable[[], T], *, write: bool = False) -> T:
    """Call until it succeeds, at most :data:`TRIES` times.

    Parameters
    ----------
    place, what
        URL, as it may be shown, and which part of it: for the message.
    call
        Something that may be done twice.
    write
        Whether it writes: for the message.

    Raises
    ------
    FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError
        What the file system says is so.
    StoreError
        It failed to the end, or for a reason that does not pass.
    """
    steps = _Steps(place, what, write)
    while True:
        try:
            return call()
        except Exception as err:  # noqa: BLE001
            time.sleep(steps.wait_after(err))


async def tried_async(
    place: str, what: str, call: Callable[[], Awaitable[T]], *, write: bool = False
) -> T:
    """Await until it succeeds, as :func:`tried`."""
    steps = _Steps(place, what, write)
    while True:
        try:
            return await call()
        except Exception as err:  # noqa: BLE001
            await asyncio.sleep(steps.wait_after(err))


class _Steps:
    """Tries of one call."""

    def __init__(self, place: str, what: str, write: bool) -> None:
        self.shown = f"{place}/{what}" if what else place
        self.verb = "written" if write else "read"
        self.count = 0
        self.begun = time.monotonic()

    def wait_after(self, err: Exception) -> float:
        """Seconds to wait before the next try; raises where there is none."""
        if isinstance(err, CromaDaskError | MemoryError) or is_answer(err):
            raise err
        self.count += 1
        passing = _is_passing(err)
        if not passing or self.count >= TRIES:
            often = ""
            if passing:
                seconds = time.monotonic() - self.begun
                often = f" (tried {self.count} times in {seconds:.0f} s)"
            # From None: the library's own message may hold what was sent.
            raise StoreError(f"{self.shown} cannot be {self.verb}{often}: {words(err)}") from None
        wait: float = WAIT * 2 ** (self.count - 1) * random.uniform(0.5, 1.0)
        level = logging.DEBUG if self.count < 3 else logging.WARNING
        log.log(level, "%s: %s; trying again in %.1f s (%d of %d)",
                self.shown, words(err), wait, self.count + 1, TRIES)  # fmt: skip
        return wait


def is_answer(err: BaseException) -> bool:
    """Whether an error says how things are at the place, and not that nobody could tell."""
    if isinstance(err, FileNotFoundError):
        return is_missing(err)
    return isinstance(err, FileExistsError | NotADirectoryError | IsADirectoryError)


def is_missing(err: BaseException) -> bool:
    """Whether an error says that there is no such file.

    Some file systems say so of everything they could not look at (fsspec's for HTTP does, after a
    500), and of a bucket that is not there: these are not missing files.
    """
    if not isinstance(err, FileNotFoundError):
        return False
    for one in _causes(err):
        if _code(one) in _ABSENT_CODES:
            return False
        status = _status(one)
        if status is not None and status not in (404, 410):
            return False
        if one is not err and status is None and _is_broken(one):
            return False
    return True


def _is_passing(err: BaseException) -> bool:
    """Whether it may be otherwise a moment later; the first of its causes that tells decides."""
    for one in _causes(err):
        if _code(one) in _DENIED_CODES or _code(one) in _ABSENT_CODES:
            return False
        status = _status(one)
        if status is not None:
            return status in _PASSING_STATUS
        if _names(one) & _NO_CREDENTIALS:
            return False
        if _is_broken(one):
            return True
    return isinstance(err, OSError) and err.errno in _PASSING_ERRNO


def _is_broken(err: BaseException) -> bool:
    """Whether a connection broke, or nothing came in time."""
    if isinstance(err, TimeoutError | ConnectionError | asyncio.IncompleteReadError):
        return True
    return bool(_names(err) & _PASSING_CLASSES)


def words(err: BaseException) -> str:
    """Say in a few words what went wrong; nothing of what was sent."""
    for one in _causes(err):
        code = _code(one)
        if code in _ABSENT_CODES:
            return _ABSENT_CODES[code]
        if code in _DENIED_CODES:
            return f"{_DENIED_CODES[code]} ({code})"
        if _names(one) & _NO_CREDENTIALS:
            profile = os.environ.get("AWS_PROFILE")
            named = f" (AWS_PROFILE is {profile!r}: is there such a profile?)" if profile else ""
            return (
                f"there are no credentials for it{named}; set the environment of the service (of "
                "S3 AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or give "
                "storage_options; for a public bucket anon=True (--storage-option anon=true)"
            )
        status = _status(one)
        if status in (401, 403):
            return f"access is denied (HTTP {status}): no right to it, or nothing is there"
        if status == 400:
            return "the request is refused (HTTP 400): the credentials may have expired"
        if status is not None:
            return f"HTTP {status}" + (f" {code}" if code and not code.isdigit() else "")
        if _is_broken(one):
            break
    if isinstance(err, PermissionError):
        return "access is denied"
    text = scrub(" ".join(str(err).split()))
    said = f"{type(err).__name__}{': ' if text else ''}{text[:200]}"
    if isinstance(err, TypeError | AttributeError):
        # File systems look at their options late, and no further than Python does.
        return f"its storage options may not be what the file system takes ({said})"
    return said


def _causes(err: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it."""
    seen: set[int] = set()
    while err is not None and id(err) not in seen:
        seen.add(id(err))
        yield err
        err = err.__cause__ or (None if err.__suppress_context__ else err.__context__)


def _names(err: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(err).__mro__}


def _response(err: BaseException) -> dict[str, dict[str, object]]:
    response = getattr(err, "response", None)
    return response if isinstance(response, dict) else {}


def _code(err: BaseException) -> str:
    """Name that S3 gives an error."""
    return str(_response(err).get("Error", {}).get("Code", ""))


def _status(err: BaseException) -> int | None:
    """HTTP status of an error, whichever library raised it."""
    if _names(err) & {"HttpProcessingError", "ClientPayloadError"}:
        return None  # aiohttp says 400 of an answer that ended early
    found = _response(err).get("ResponseMetadata", {}).get("HTTPStatusCode")
    for name in ("status", "status_code", "code"):
        if not isinstance(found, int):
            found = getattr(err, name, None)
    return found if isinstance(found, int) and 400 <= found < 600 else None
