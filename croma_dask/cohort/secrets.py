"""What opens a file system and must not be seen: kept in this process, named by a token elsewhere.

A Dask graph, a result's attributes and a message carry a URL without its password and a token. The
options themselves are looked up where a file system is opened. Other processes are given them by
:func:`exported` and :func:`learn`, and by nothing else.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from croma_dask.errors import StoreError

__all__ = ["exported", "keep", "learn", "options_of", "redact", "scrub", "url_of"]

_KEPT: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {}
"""What URLs hide, in its order, and the options of their file system, by token."""

_LATEST: dict[str, tuple[str, ...]] = {}
"""What was hidden last behind a URL as it is shown: results and messages have only that."""

_HIDDEN = "***"
_SECRET = re.compile(
    r"(?P<start>[A-Za-z][\w+.-]*://[^/?#\s:]*:)(?P<password>[^/?#\s]*)(?=@)"
    r"|(?P<name>[?&][^=&#\s]*(?:sig|signature|token|key|secret|credential|pass|pw|auth|policy|jwt|code|session)"
    r"[^=&#\s]*=)(?P<value>[^&#\s]+)"
    r"|(?P<stars>\*\*\*)",
    re.IGNORECASE,
)
# A password with a character that ends the host's part of a URL; a port is no password.
_UNQUOTED = re.compile(r"://[^/?#\s]*:(?!\d*[/?#])[^/?#\s:@\]]*[/?#\s][^@]*@")
_SECRET_NAME = re.compile(r"secret|password|passwd|token|credential|key", re.IGNORECASE)
_LOCK = threading.Lock()


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
    return _SECRET.sub(lambda match: (match["start"] or match["name"] or "") + _HIDDEN, text)


def scrub(text: str) -> str:
    """Hide what is kept, and what URLs hide, in the words of another library."""
    with _LOCK:
        known = [one for hidden, options in _KEPT.values() for one in (*hidden, *_secrets(options))]
    # The longest first: one may be a part of another. Short ones are no secrets, and are in words.
    for secret in sorted({one for one in known if len(one) > 3}, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return redact(text)


def _secrets(options: Any, name: str = "") -> Iterator[str]:
    """Yield texts of options, and of those inside them, whose names say that they are secret."""
    if isinstance(options, Mapping):
        for key, value in options.items():
            yield from _secrets(value, str(key))
    elif isinstance(options, str) and _SECRET_NAME.search(name):
        yield options


def _hidden_in(url: str) -> tuple[str, ...]:
    """Return what each ``***`` of the redacted URL stands for."""
    return tuple(
        next(match[name] for name in ("password", "value", "stars") if match[name] is not None)
        for match in _SECRET.finditer(url)
    )


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
        The URL without its secrets, and a name for these and the options; ``""`` where there are
        none. The same secrets and options have one token, which tells nothing about them.

    Raises
    ------
    StoreError
        Its password cannot be told from its path.
    """
    if _UNQUOTED.search(url):
        raise StoreError(
            "a URL (it is not shown) has a password with a blank or one of / ? # in it: write "
            "these as %20, %2F, %3F and %23"
        )
    shown = redact(url)
    with _LOCK:
        return shown, _token(url, shown, _copied(dict(options or {})))


def _token(url: str, shown: str, options: dict[str, Any]) -> str:
    if shown == url:
        hidden = _LATEST.get(shown, ())
    else:
        hidden = _LATEST[shown] = _hidden_in(url)
    if not hidden and not options:
        return ""
    for token, kept in _KEPT.items():
        if kept == (hidden, options):
            return token
    token = secrets.token_hex(8)
    _KEPT[token] = hidden, options
    return token


def _copied(value: Any) -> Any:
    """Return a copy that does not change when its owner changes theirs."""
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


def options_of(shown: str, token: str) -> dict[str, Any]:
    """Return the options that a token names.

    Raises
    ------
    StoreError
        This process was not given them.
    """
    return dict(_copied(_kept(shown, token)[1]))


def url_of(shown: str, token: str) -> str:
    """Return the URL as it was given, or one that was made of it.

    Raises
    ------
    StoreError
        It has a password or a signature, and this process was not given that.
    """
    hidden = list(_kept(shown, token)[0])
    if not hidden:
        if any(_HIDDEN in (m["password"], m["value"]) for m in _SECRET.finditer(shown)):
            raise _unknown(shown)
        return shown
    if list(_hidden_in(shown)) != [_HIDDEN] * len(hidden):
        raise StoreError(f"{shown}: a name cannot be added to a URL with a signature")
    return _SECRET.sub(lambda match: (match["start"] or match["name"] or "") + hidden.pop(0), shown)


def _kept(shown: str, token: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    try:
        return _KEPT[token] if token else ((), {})
    except KeyError:
        raise _unknown(shown) from None


def exported() -> dict[str, Any]:
    """Return all that is kept, for a process that works for this one, and for nobody else.

    Its texts pickle to bytes in which they cannot be read by chance, in a log of messages say.
    """
    with _LOCK:
        return {token: _hide(kept) for token, kept in _KEPT.items()}


def learn(known: Mapping[str, Any]) -> None:
    """Keep what another process has exported."""
    with _LOCK:
        _KEPT.update(known)


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
