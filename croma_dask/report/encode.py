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

__all__ = ["Blocks", "for_script", "margins32", "plain"]

_LEVEL = 6
"""Of deflate: higher ones take several times as long and save less than 1 % of a float32 array."""

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
        """Add a vector of float32, uint16 or uint32.

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


def margins32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round margins to float32 so that none changes sides of zero.

    A positive one stays positive: F(0), the share of those at or below 0, is what it was.
    """
    with np.errstate(under="ignore"):
        single = values.astype(np.float32)
    lost = (values > 0) & (single <= 0)
    single[lost] = np.nextafter(np.float32(0), np.float32(1))
    return single


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


def for_script(value: Any) -> str:
    """JSON that may stand inside a script element: no text in it can end that, or open another."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate, which no UTF-8 has, becomes its JSON escape.
    text = re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)
    for sign, escape in _ESCAPES.items():
        text = text.replace(sign, escape)
    return text
