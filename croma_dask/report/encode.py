"""Arrays and texts as blocks of a page: little-endian bytes, deflated, in base64."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Blocks", "for_script", "packed_margins", "plain", "printable"]

_LEVEL = 6
"""Of deflate: higher ones take several times as long and save less than 1 % of a float32 array."""

_MOVED = 5e-7
"""How far a margin may be moved so that float32 tells it from the others."""

_TOO_NEAR = 1e-15
"""Difference of two margins between which there are hardly any numbers."""

_ESCAPES = {sign: f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


class Blocks:
    """What a page carries in bulk; the page unpacks a block when it is needed.

    Attributes
    ----------
    content
        Base64 of each block: letters, digits, ``+/=`` alone.
    """

    def __init__(self) -> None:
        self.content: list[str] = []

    def array(self, values: NDArray[Any]) -> dict[str, Any]:
        """Add a vector of float32, float64, uint16 or uint32.

        Returns
        -------
        dict
            How the page finds it: `block`, `dtype`, `length`.
        """
        native = np.ascontiguousarray(values)
        little = native.astype(native.dtype.newbyteorder("<"), copy=False)
        # Bytes of one significance together: deflate finds more to save among them.
        shuffled = little.view(np.uint8).reshape(-1, little.dtype.itemsize).T
        return self._add(shuffled.tobytes(), native.dtype.name, native.size)

    def codes(self, values: NDArray[Any], n_levels: int) -> dict[str, Any]:
        """Add a vector of codes, in the shortest type that has `n_levels` values."""
        return self.array(values.astype(np.uint16 if n_levels <= 1 << 16 else np.uint32))

    def texts(self, values: Sequence[str]) -> dict[str, Any]:
        """Add a list of texts, as JSON: they may hold anything."""
        return self._add(json.dumps(list(values)).encode("ascii"), "text", len(values))

    def size_of(self, where: dict[str, Any]) -> int:
        """Bytes that a block takes in the file."""
        return len(self.content[where["block"]])

    def drop_last(self) -> None:
        """Take the last block back."""
        self.content.pop()

    def _add(self, raw: bytes, dtype: str, length: int) -> dict[str, Any]:
        packed = zlib.compress(raw, _LEVEL)
        self.content.append(base64.b64encode(packed).decode("ascii"))
        return {"block": len(self.content) - 1, "dtype": dtype, "length": length}


def packed_margins(values: NDArray[np.float64]) -> NDArray[Any]:
    """Shorten margins so that no number of the page says something else than the library.

    Parameters
    ----------
    values
        (n,) float64 margins, NaN where there is none.

    Returns
    -------
    numpy.ndarray
        (n,) float32 with the order and the ties of `values`, on the same side of zero, each within
        5e-7: equal ones stay equal, and different ones different. Where that cannot be had, or two
        margins are so near to each other that a quantile between them is one of them, float64.

    Notes
    -----
    What lies in the lower tail is told by comparing with a quantile: were two margins one when
    shortened, both would be in the tail where one is.

    Memory: some 60 bytes a margin.
    """
    there = ~np.isnan(values)
    distinct, place = np.unique(values[there], return_inverse=True)
    if distinct.size > 1 and np.diff(distinct).min() < _TOO_NEAR:
        return values
    n_below, n_up_to = np.searchsorted(distinct, 0, "left"), np.searchsorted(distinct, 0, "right")
    short = np.zeros(distinct.size, np.float32)
    short[n_up_to:] = _rising(distinct[n_up_to:])
    short[:n_below] = -_rising(-distinct[:n_below][::-1])[::-1]
    if np.abs(short - distinct).max(initial=0) > _MOVED:
        return values
    found = np.full(values.shape, np.nan, np.float32)
    found[there] = short[place]
    return found


def _rising(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round ascending values above 0 to float32 that ascend too, and stay above 0.

    The bits of such numbers, read as integers, are in their order and without gaps.
    """
    with np.errstate(under="ignore"):
        bits = values.astype(np.float32).view(np.int32).astype(np.int64)
    at = np.arange(bits.size)
    # Each at least one above the one before it, and the first above 0.
    bits = np.maximum.accumulate(np.maximum(bits, 1) - at) + at
    # A margin is never above 1.
    bits = np.minimum(bits, int(np.float32(1).view(np.int32)) - at[::-1])
    return bits.astype(np.int32).view(np.float32)


def plain(value: Any) -> Any:
    """Turn numpy's values into what JSON has; NaN becomes None, floats keep nine digits."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value


def printable(text: str) -> str:
    """Put the sign for what has no sign where UTF-8 has none: lone surrogates."""
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text)


def for_script(value: Any) -> str:
    """JSON that may stand inside a script element: no text in it can end that, or open another."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate, which no UTF-8 has, becomes its JSON escape.
    text = re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)
    for sign, escape in _ESCAPES.items():
        text = text.replace(sign, escape)
    return text
