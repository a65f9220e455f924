"""Reading kept neighbours: all scopes of a folder, the lists of one, and lists of two origins."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.cohort.location import Location
from croma_dask.cohort.store_checks import check_claim
from croma_dask.cohort.transfer import fetched
from croma_dask.errors import StoreError
from croma_dask.index.kept import ARRAYS, NOT_WRITTEN, Key, Part, check_kept, refuse, standing
from croma_dask.index.neighbors import Lists
from croma_dask.index.profile import Profile
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.typing import F64, I32

if TYPE_CHECKING:
    import zarr

__all__ = ["JoinedLists", "Kept", "KeptLists", "find_kept"]

log = logging.getLogger("croma_dask")

_DTYPES = {"neighbor_index": np.int32}
"""Of the arrays that are not float64."""

_TRIES, _PAUSE = 4, 0.1
"""Times a chunk is asked for, and seconds in between, while another run puts a folder in place."""


class Kept:
    """Finished neighbours of all scopes, one scope after the other.

    Parameters
    ----------
    place
        Folder or URL of the group.
    attrs
        Its attributes, as :func:`standing` returned them.
    copied_from
        The place of which this is a copy, for messages.

    Notes
    -----
    Another run may put other neighbours in the place of these while they are read. Each part has
    an id; after each chunk the place is looked at again, and a chunk counts only while the part has
    the id that it had. Memory: one chunk an array (2 MiB).
    """

    def __init__(
        self, place: Location, attrs: dict[str, Any], copied_from: Location | None = None
    ) -> None:
        self.place, self.attrs = place, attrs
        self.shown = str(copied_from or place)
        self.key = Key.of(attrs)
        self.n_rows = int(attrs["n_rows"])
        self.n_global, self.n_typed = int(attrs["k"]), int(attrs["m"])
        self.typed_key = str(attrs["typed_fingerprint"])
        # Of the folder in which each part was last seen to be the one that was opened.
        self._marks: dict[Part, tuple[int, int] | None] = {}
        self._rows: dict[str, _Rows] = {}

    @cached_property
    def root(self) -> zarr.Group:
        """The group, for reading."""
        import zarr

        return zarr.open_group(self.place.zarr_store(read_only=True), mode="r", zarr_format=3)

    def nearby(self, keep: contextlib.ExitStack) -> Kept:
        """Return these neighbours where they can be read quickly: copied here, from a URL.

        Parameters
        ----------
        keep
            Deletes the copy when the caller is done.

        Raises
        ------
        StoreError
            Another run has replaced them meanwhile.
        """
        if self.place.is_local:
            return self
        local = keep.enter_context(fetched(self.place))
        # Whoever replaces them removes the root first and writes it last: as long as it says the
        # same, nothing was exchanged while the rest was copied.
        if not all(self.holds(part) for part in ARRAYS if self.attrs[f"{part}_id"]):
            raise self.replaced()
        copy = Location.of(local)
        check_kept(copy)
        return Kept(copy, self.attrs, self.place)

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
        # There is no telling what zarr raises on metadata that its authors did not foresee.
        except Exception as err:
            raise self.damaged(f"its array {name!r} cannot be opened ({err})") from err
        shape, dtype = getattr(array, "shape", ()), getattr(array, "dtype", None)
        if dtype is None or any(size < 1 for size in array.chunks):  # type: ignore[union-attr]
            raise self.damaged(f"its {name!r} is no array")
        width = {"global": self.n_global, "typed": self.n_typed}
        expected = {of: (self.n_rows, width[part]) for part in ARRAYS for of in ARRAYS[part]}
        if shape != expected.get(name, shape) or len(shape) != (2 if name in expected else 1):
            raise self.damaged(f"its array {name!r} has shape {shape}")
        if dtype != _DTYPES.get(name, np.float64):
            raise self.damaged(f"its array {name!r} has dtype {dtype}")
        check_claim(array, name, self.place)  # type: ignore[arg-type]
        return array  # type: ignore[return-value]

    @cached_property
    def profile(self) -> Profile:
        """What the first pass over the embedding has seen."""
        try:
            unit_sum = np.asarray(self.array("unit_sum")[:], np.float64)
        except StoreError:
            raise
        except (ValueError, TypeError, RuntimeError, MemoryError) as err:
            raise self.damaged(f"the sum of its unit vectors cannot be read ({err})") from err
        if np.isnan(unit_sum).any():
            raise self.damaged("the sum of its unit vectors is missing")
        try:
            return Profile(
                self.attrs["n_tiles"], self.attrs["n_zero_rows"], 0, 0,
                [int(row) for row in self.attrs["first_zero_rows"]], [], unit_sum,
                np.zeros_like(unit_sum), float(self.attrs["spread"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as err:
            raise self.damaged(f"its attributes lack what the first pass saw ({err})") from err

    def holds(self, part: Part) -> bool | None:
        """Whether the place still has this part; None while a folder is being put there."""
        try:
            mark = _mark(self.place)
            if mark is None or mark != self._marks.get(part):
                raw = self.place.read_bytes("zarr.json")
                if raw is None:
                    return None
                if json.loads(raw)["attributes"].get(f"{part}_id") != self.attrs[f"{part}_id"]:
                    return False
                self._marks[part] = mark
        except (FileNotFoundError, ValueError) as err:
            if isinstance(err, StoreError):
                raise
            return None
        return True

    def read(self, name: str, part: Part, lo: int, hi: int, width: int) -> Any:
        """(hi - lo, width) first entries of rows of an array."""
        if name not in self._rows:
            self._rows[name] = _Rows(self, name, part)
        return self._rows[name].read(lo, hi, width)

    def damaged(self, what: str) -> StoreError:
        """Return the error for a folder that is not as it was written."""
        return StoreError(f"{self.shown} is damaged: {what}; remove the folder and score again")

    def replaced(self) -> StoreError:
        """Return the error for a folder that is another run's now."""
        return StoreError(
            f"another run has replaced the neighbours in {self.shown} while they were read; start "
            "this one again"
        )


def _mark(place: Location) -> tuple[int, int] | None:
    """Return what tells the metadata of a local folder from those of another; None of a URL."""
    if not place.is_local:
        return None
    about = os.stat(os.path.join(place.url, "zarr.json"))
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
        lo, problem = number * self._step, "is missing"
        for attempt in range(_TRIES):
            time.sleep(_PAUSE if attempt else 0.0)
            try:
                rows = np.asarray(self._array[lo : lo + self._step])
            except StoreError:
                raise
            except (OSError, ValueError, TypeError, RuntimeError, MemoryError) as err:  # of codecs
                problem = f"cannot be read ({err})"
                rows = np.full((1, 1), self._missing)
            there = self._kept.holds(self._part)
            if there is False:
                raise self._kept.replaced()
            if there and not (rows == self._missing).any():
                self._number, self._held = number, rows
                return rows
        last = min(lo + self._step, self._kept.n_rows) - 1
        raise self._kept.damaged(
            f"chunk {number} of {self._name!r} (rows {lo} to {last}) {problem}"
        )


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
    n
        Rows of the scope; all that are kept where it is None.
    """

    kept: Kept
    start: int
    spec: ListSpec
    n: int | None = None

    def read(self, lo: int, hi: int) -> tuple[I32, F64]:
        index, distance = self._read("global", lo, hi, self.spec.n_global)
        n = self.kept.n_rows if self.n is None else self.n
        # Compiled kernels that use them check no bounds.
        if index.size and not -1 <= index.min() <= index.max() < n:
            raise self.kept.damaged(f"neighbours of rows {lo} to {hi - 1} are none of {n} rows")
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


def find_kept(place: Location) -> Kept | None:
    """Kept neighbours of a place, where it has any that can be read.

    Raises
    ------
    StoreError
        Something else is there, or what a newer release has kept.
    """
    refuse(place)
    status, attrs = standing(place)
    if status == "complete":
        check_kept(place)
        return Kept(place, attrs)
    if status != "nothing":
        log.warning(
            "the neighbours in %s were not finished: searching anew, and replacing them", place
        )
    return None
