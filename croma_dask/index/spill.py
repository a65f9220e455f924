"""Lists of many small scopes on disk, one behind the other, when memory is for something else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.index.finish import Delivered
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.typing import F64, I32

__all__ = ["Spill", "SpilledLists"]


@dataclass(frozen=True)
class SpilledLists:
    """Lists of one scope in the files of a :class:`Spill`.

    Attributes
    ----------
    folder
        Where the files lie.
    spec
        Lengths of the lists.
    index_at, typed_at
        Where the scope starts in the files, in entries.
    """

    folder: str
    spec: ListSpec
    index_at: int
    typed_at: int

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        k = self.spec.indexed
        return (
            self._rows("index", np.int32, self.index_at, lo, hi, k),
            self._rows("distance", np.float64, self.index_at, lo, hi, k),
        )

    def read_typed(self, lo: int, hi: int) -> F64:
        width = self.spec.delivered - self.spec.indexed
        typed: F64 = self._rows("typed", np.float64, self.typed_at, lo, hi, width)
        return typed

    def _rows(self, name: str, dtype: Any, start: int, lo: int, hi: int, width: int) -> Any:
        offset = np.dtype(dtype).itemsize * (start + lo * width)
        rows = np.fromfile(
            Path(self.folder) / f"{name}.bin", dtype, (hi - lo) * width, offset=offset
        )
        return rows.reshape(hi - lo, width)


class Spill:
    """Appends the lists of scopes to three files; for one thread to write.

    Parameters
    ----------
    folder
        An empty folder that lasts as long as the lists are read.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._at = {"index": 0, "typed": 0}

    def put(self, found: Delivered, spec: ListSpec) -> SpilledLists:
        """Append the lists of a scope and return where they can be read."""
        k = spec.indexed
        placed = SpilledLists(self.folder, spec, self._at["index"], self._at["typed"])
        parts: dict[str, NDArray[Any]] = {
            "index": found.index[:, :k],
            "distance": found.distance[:, :k],
            "typed": found.distance[:, k:],
        }
        for name, array in parts.items():
            with open(Path(self.folder) / f"{name}.bin", "ab") as f:
                f.write(np.ascontiguousarray(array).tobytes())
        self._at["index"] += parts["index"].size
        self._at["typed"] += parts["typed"].size
        return placed
