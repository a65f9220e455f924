"""What opens a file system and must not be seen: kept in this process, named by a token elsewhere.

A Dask graph, a result's attributes and a message carry a URL without its password and a token. The
options themselves are looked up where a file system is opened. Other processes are given them by
:func:`exported` and :func:`learn`, and by nothing else.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Any

from croma_dask.errors import StoreError

__all__ = ["exported", "keep", "learn", "options_of", "redact", "url_of"]

_SALT = secrets.token_bytes(16)
_OPTIONS: dict[str, dict[str, Any]] = {}
"""Options by token."""

_URLS: dict[str, str] = {}
"""Starts of URLs (scheme and authority) with their password, and whole URLs with their query, by
what is shown of them."""

_HIDDEN = "***"
_USER = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*://)(?P<user>[^/?#@\s:]*):(?P<secret>[^/?#\s]*)@")
_QUERY = re.compile(
    r"(?P<name>[?&][^=&#\s]*(?:sig|signature|token|key|secret|credential|pass|pw|auth|policy|jwt|code|session)"
    r"[^=&#\s]*=)[^&#\s]+",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Hide passwords and signatures of the URLs in a text.

    Parameters
    ----------
    text
        A URL, or a message that may hold some.

    Returns
    -------
    str
        ``https://me:***@host/a.zarr?X-Amz-Signature=***``.
    """
    hidden = _USER.sub(rf"\g<scheme>\g<user>:{_HIDDEN}@", text)
    return _QUERY.sub(rf"\g<name>{_HIDDEN}", hidden)


def keep(url: str, options: Mapping[str, Any] | None) -> tuple[str, str]:
    """Keep what opens a URL in this process.

    Parameters
    ----------
    url
        As a user gave it.
    options
        Of its file system.

    Returns
    -------
    shown, token
        The URL without its secrets, and a name for the options; ``""`` where there are none.
        Equal options have one token, and that of another process is another one: it tells nothing
        about them.
    """
    shown = redact(url)
    if shown != url:
        _URLS[shown] = url
        start = _USER.match(url)
        if start:
            _URLS[redact(start.group())] = start.group()
    if not options:
        return shown, ""
    found = dict(options)
    about = repr(sorted(found.items(), key=str))
    token = hashlib.sha256(_SALT + about.encode()).hexdigest()[:16]
    _OPTIONS[token] = found
    return shown, token


def options_of(shown: str, token: str) -> dict[str, Any]:
    """Return the options that a token names.

    Raises
    ------
    StoreError
        This process was not given them.
    """
    if not token:
        return {}
    try:
        return dict(_OPTIONS[token])
    except KeyError:
        raise _unknown(shown) from None


def url_of(shown: str) -> str:
    """Return the URL as it was given.

    Raises
    ------
    StoreError
        It has a password or a signature, and this process was not given that.
    """
    if _HIDDEN not in shown or redact(shown) != shown:
        return shown
    if shown in _URLS:
        return _URLS[shown]
    start = _USER.match(shown)
    if start and start.group() in _URLS and not _QUERY.search(shown):
        return _URLS[start.group()] + shown[start.end() :]
    if start or _QUERY.search(shown):
        raise _unknown(shown)
    return shown


def exported() -> dict[str, Any]:
    """Return all that is kept, for a process that works for this one, and for nobody else.

    Its texts pickle to bytes in which they cannot be read by chance, in a log of messages say.
    """
    return {"options": _hide(_OPTIONS), "urls": _hide(_URLS)}


def learn(known: Mapping[str, Any]) -> None:
    """Keep what another process has exported."""
    _OPTIONS.update(known["options"])
    _URLS.update(known["urls"])


class _Hidden(str):
    """A text that is not seen in its pickle."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        data = self.encode()
        pad = secrets.token_bytes(len(data))
        return _seen, (pad, _mixed(data, pad))


def _seen(pad: bytes, mixed: bytes) -> str:
    return _mixed(mixed, pad).decode()


def _mixed(data: bytes, pad: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(data, pad, strict=True))


def _hide(value: Any) -> Any:
    if isinstance(value, str):
        return _Hidden(value)
    if isinstance(value, Mapping):
        return {key: _hide(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_hide, value))
    return value


def _unknown(shown: str) -> StoreError:
    return StoreError(
        f"{shown}: this process does not know the storage options that open it; they do not travel "
        "with a graph or a pickle. Connect the cluster by croma_dask.connect, hand client= to the "
        "function, or open the store again here with storage_options="
    )
