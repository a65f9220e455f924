"""What a report carries, read back as its own scripts do."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np


class Page:
    """A report that was written.

    Attributes
    ----------
    text
        The file.
    payload
        Its plain values.
    """

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        found = re.search(r'<script type="application/json" id="payload">(.*?)</script>', self.text)
        assert found is not None
        self.payload: dict[str, Any] = json.loads(found[1])
        self._blocks = re.findall(
            r'<script type="text/plain" id="block-(\d+)">(.*?)</script>', self.text
        )
        assert [int(number) for number, _ in self._blocks] == list(range(len(self._blocks)))

    def block(self, where: dict[str, Any]) -> Any:
        """Array or list of texts."""
        raw = zlib.decompress(base64.b64decode(self._blocks[where["block"]][1], validate=True))
        if where["dtype"] == "text":
            texts = json.loads(raw)
            assert len(texts) == where["length"]
            return texts
        dtype = np.dtype(where["dtype"]).newbyteorder("<")
        bytes_of = np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, where["length"])
        return np.ascontiguousarray(bytes_of.T).view(dtype).ravel()

    def decoded(self, name: str) -> list[str]:
        """Texts of a coded column of the explorer."""
        column = self.payload["explorer"][name]
        return [column["names"][code] for code in self.block(column["codes"])]

    def table(self, spec: dict[str, Any]) -> dict[str, list[Any]]:
        """Columns of a table by title."""
        titles = [column["title"] for column in spec["columns"]]
        assert len(set(titles)) == len(titles)
        return {t: [row[i] for row in spec["rows"]] for i, t in enumerate(titles)}
