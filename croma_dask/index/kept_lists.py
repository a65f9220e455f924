"""Reading kept neighbours: all scopes of a folder, the lists of one, and lists of two origins."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import StoreError
from croma_dask.index.kept import ARRAYS, NOT_WRITTEN, Key, Part, foreign, standing
from croma_dask.index.neighbors import Lists
from croma_dask.index.profile import Profile
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.typing import F64, I32

if TYPE_CHECKING:
    import zarr

__all__ = ["JoinedLists", "Kept", "KeptLists", "find_kept"]

log = logging.getLogger("croma_dask")

_TRIES, _PAUSE = 4, 0.1
"""Times a chunk is asked for, and seconds in between, while another run puts a folder in place."""


class Kept:
    """Finished neighbours of all scopes, one scope after the other.

    Parameters
    ----------
    path
        Folder of the group.
    attrs
        Its attributes, as :func:`standing` returned them.

    Notes
    -----
    Another run may put other neighbours in the place of these while they are read. Each part has
    an id; after each chunk the place is looked at again, and a chunk counts only while the part has
    the id that it had. Memory: one chunk an array (2 MiB).
    """

    def __init__(self, path: Path, attrs: dict[str, Any]) -> None:
        self.path, self.attrs = path, attrs
        self.key = Key.of(attrs)
        self.n_rows = int(attrs["n_rows"])
        self.n_global, self.n_typed = int(attrs["k"]), int(attrs["m"])
        self.typed_key = str(attrs["typed_fingerprint"])
        # Of the folder in which each part was last seen to be the one that was opened.
        self._marks: dict[Part, tuple[int, int]] = {}
        self._rows: dict[str, _Rows] = {}

    @cached_property
    def root(self) -> zarr.Group:
        """The group, for reading."""
        import zarr
        from zarr.storage import LocalStore

        store = LocalStore(self.path, read_only=True)
        return zarr.open_group(store, mode="r", zarr_format=3)

    def array(self, name: str) -> zarr.Array[Any]:
        """One of the arrays.

        Raises
        ------
        StoreError
            It is not there, or has another shape.
        """
        try:
            array = self.root[name]
        except (KeyError, FileNotFoundError) as err:
            raise self.damaged(f"its array {name!r} is missing") from err
        if name != "unit_sum" and array.shape[0] != self.n_rows:  # type: ignore[union-attr]
            raise self.damaged(f"its array {name!r} has another length")
        return array  # type: ignore[return-value]

    @cached_property
    def profile(self) -> Profile:
        """What the first pass over the embedding has seen."""
        unit_sum = np.asarray(self.array("unit_sum")[:], np.float64)
        if np.isnan(unit_sum).any():
            raise self.damaged("the sum of its unit vectors is missing")
        return Profile(
            int(self.attrs["n_tiles"]), int(self.attrs["n_zero_rows"]), 0, 0,
            [int(row) for row in self.attrs["first_zero_rows"]], [], unit_sum,
            np.zeros_like(unit_sum), float(self.attrs["spread"]),
        )  # fmt: skip

    def holds(self, part: Part) -> bool | None:
        """Whether the place still has this part; None while a folder is being put there."""
        try:
            mark = _mark(self.path)
            if mark != self._marks.get(part):
                attrs = json.loads((self.path / "zarr.json").read_bytes())["attributes"]
                if attrs.get(f"{part}_id") != self.attrs[f"{part}_id"]:
                    return False
                self._marks[part] = mark
        except (FileNotFoundError, ValueError):
            return None
        return True

    def read(self, name: str, part: Part, lo: int, hi: int, width: int) -> Any:
        """(hi - lo, width) first entries of rows of an array."""
        if name not in self._rows:
            self._rows[name] = _Rows(self, name, part)
        return self._rows[name].read(lo, hi, width)

    def damaged(self, what: str) -> StoreError:
        """Return the error for a folder that is not as it was written."""
        return StoreError(f"{self.path} is damaged: {what}; remove the folder and score again")


def _mark(path: Path) -> tuple[int, int]:
    about = os.stat(path / "zarr.json")
    return about.st_ino, about.st_mtime_ns


class _Rows:
    """Rows of one array, read a whole chunk at a time; the last one is held.

    Scopes are read in the order in which they lie here, so a chunk that holds hundreds of small
    ones is read once a pass.
    """

    def __init__(self, kept: Kept, name: str, part: Part) -> None:
        self._kept, self._name, self._part = kept, name, part
        self._array = kept.array(name)
        self._step = int(self._array.chunks[0])
        self._missing = NOT_WRITTEN[self._array.dtype.kind]
        self._number, self._held = -1, np.empty((0, 0))

    def read(self, lo: int, hi: int, width: int) -> Any:
        out = np.empty((hi - lo, width), self._array.dtype)
        at = lo
        while at < hi:
            number = at // self._step
            first, stop = number * self._step, min(hi, (number + 1) * self._step)
            out[at - lo : stop - lo] = self._chunk(number)[at - first : stop - first, :width]
            at = stop
        return out

    def _chunk(self, number: int) -> Any:
        if number == self._number:
            return self._held
        lo = number * self._step
        for attempt in range(_TRIES):
            time.sleep(_PAUSE if attempt else 0.0)
            try:
                rows = np.asarray(self._array[lo : lo + self._step])
            except (OSError, ValueError):
                rows = np.full((1, 1), self._missing)
            there = self._kept.holds(self._part)
            if there is False:
                raise StoreError(
                    f"another run has replaced the neighbours in {self._kept.path} while they were "
                    "read; start this one again"
                )
            if there and not (rows == self._missing).any():
                self._number, self._held = number, rows
                return rows
        raise self._kept.damaged(f"part of {self._name!r} (from row {lo}) is missing")


@dataclass(frozen=True)
class KeptLists:
    """Kept lists of one scope.

    Attributes
    ----------
    kept
        All of them.
    start
        Where the scope begins.
    spec
        Lengths to deliver: at most those that are kept.
    """

    kept: Kept
    start: int
    spec: ListSpec

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        index, distance = self._read("global", lo, hi, self.spec.n_global)
        return index, distance

    def read_typed(self, lo: int, hi: int) -> F64:
        return np.concatenate(self._read("typed", lo, hi, self.spec.n_typed), axis=1)

    def _read(self, part: Part, lo: int, hi: int, width: int) -> list[Any]:
        a, b = self.start + lo, self.start + hi
        return [self.kept.read(name, part, a, b, width) for name in ARRAYS[part]]


@dataclass(frozen=True)
class JoinedLists:
    """Lists of any type from one place, typed lists from another."""

    of_any: Lists
    typed: Lists

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        return self.of_any.read(lo, hi)

    def read_typed(self, lo: int, hi: int) -> F64:
        return self.typed.read_typed(lo, hi)


def find_kept(path: Path) -> Kept | None:
    """Kept neighbours of a place, where it has any that can be read.

    Raises
    ------
    StoreError
        Something else is there.
    """
    status, attrs = standing(path)
    if status == "foreign":
        raise foreign(path)
    if status == "complete":
        return Kept(path, attrs)
    if status != "nothing":
        why = "were not finished" if status == "unfinished" else "have another layout version"
        log.warning("the neighbours in %s %s: searching anew, and replacing them", path, why)
    return None
