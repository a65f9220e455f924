"""Where a streamed run keeps its lists: plain files, each written whole or not at all.

A range's lists are written anew after each task that changed them, as a new generation that names
the partners met so far; two generations are kept. A run that was killed goes on from the newest
ones, and because lists are merged by (distance, row) it ends with the same bits.
"""

from __future__ import annotations

import fcntl
import logging
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from croma_dask.errors import StoreError
from croma_dask.index.array_files import read_arrays, read_rows, write_arrays, write_rows
from croma_dask.index.source import Codes
from croma_dask.kernels.typing import F64, I32, I64

__all__ = ["Scratch"]

log = logging.getLogger("croma_dask")

_LOCK = "lock"
_FINAL = "final.npz"
_LISTS = ("index", "distance", "typed")
"""Names of the delivered lists of a range."""


@dataclass(frozen=True)
class Scratch:
    """Files of one run under one folder, which all workers see.

    Attributes
    ----------
    path
        Folder of the run.
    """

    path: str

    def lock(self) -> IO[str] | None:
        """Take the folder for one run; None when another one has it.

        The lock is the kernel's, on an open file: it goes with the process that holds it, however
        that ends. Close the file to give the folder free.
        """
        while True:
            folder = Path(self.path)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                about = folder.lstat()
                if folder.is_symlink() or about.st_uid != os.getuid():
                    raise StoreError(
                        f"the scratch folder {self.path!r} belongs to somebody else; name another "
                        "one as scratch= (--scratch)"
                    )
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
                held = os.fdopen(os.open(folder / _LOCK, flags, 0o600), "r+")
            except FileNotFoundError:
                continue  # its owner was just done with it and removed it
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.close()
                return None
            except OSError as err:
                log.warning(
                    "%s knows no locks (%s): never start the same run twice at once", self.path, err
                )
                return held
            try:
                same = os.path.samestat(os.fstat(held.fileno()), os.stat(folder / _LOCK))
            except FileNotFoundError:
                same = False
            if same:
                return held
            held.close()

    def remove(self) -> None:
        """Delete everything the run has written."""
        import shutil

        # A worker that was given up may wake and write a last file meanwhile.
        for _ in range(3):
            shutil.rmtree(self.path, ignore_errors=True)
            if not os.path.exists(self.path):
                break

    def empty(self) -> None:
        """Delete everything the run has written, and keep its lock."""
        import shutil

        for path in Path(self.path).iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK:
                path.unlink()

    def write(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Write arrays to a file of the run, whole or not at all."""
        target = Path(self.path) / name
        target.parent.mkdir(exist_ok=True)
        # A name of its own: two workers may race for one file.
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        with open(temporary, "wb") as f:
            write_arrays(f, arrays)
        os.replace(temporary, target)

    def delete(self, name: str) -> None:
        """Delete a file of the run that is not needed any more."""
        (Path(self.path) / name).unlink(missing_ok=True)

    def read(self, name: str, keys: tuple[str, ...] | None = None) -> dict[str, Any]:
        """Read arrays from a file of the run.

        Raises
        ------
        FileNotFoundError
            There is none.
        StoreError
            It is damaged.
        """
        try:
            return read_arrays(Path(self.path) / name, keys)
        except StoreError as err:
            raise self._dropped(name, err) from err

    def _dropped(self, name: str, err: StoreError) -> StoreError:
        """Drop a damaged file, so that the same call makes it again, and return what to say."""
        place = Path(self.path) / name
        place.unlink(missing_ok=True)
        if place.parent != Path(self.path):
            # Whatever it is of a range, that is not finished then.
            (place.parent / _FINAL).unlink(missing_ok=True)
        return StoreError(f"{err}; start the same run again, it goes on from what is whole")

    def find(self, name: str) -> dict[str, Any] | None:
        """Read a file that may not be there, or cannot be read since the machine went down."""
        try:
            return self.read(name)
        except FileNotFoundError:
            return None
        except StoreError as err:
            log.warning("%s cannot be read (%s); making it again", name, err)
            return None

    def write_codes(self, number: int, codes: Codes, tiles: I64 | None) -> None:
        """Keep the codes of a range's rows (and their tiles) where its tasks find them."""
        arrays: dict[str, Any] = {
            "label": codes.label, "confounder": codes.confounder, "group": codes.group,
        }  # fmt: skip
        if tiles is not None:
            arrays["tile"] = tiles
        self.write(f"range-{number:05d}/codes.npz", arrays)

    def read_codes(self, number: int) -> tuple[Codes, I64 | None]:
        """Codes of a range's rows, and their tiles where they are mapped."""
        arrays = self.read(f"range-{number:05d}/codes.npz")
        return (
            Codes(arrays["label"], arrays["confounder"], arrays["group"]),
            arrays.get("tile"),
        )

    def _generations(self, number: int) -> list[int]:
        folder = Path(self.path) / f"range-{number:05d}"
        return sorted(int(p.stem.split("-")[1]) for p in folder.glob("lists-*.npz"))

    def write_lists(self, number: int, packed: Mapping[str, Any]) -> None:
        """Write a new generation of a range's lists; the one before the last goes."""
        generation = int(packed["met"].sum())
        self.write(f"range-{number:05d}/lists-{generation:05d}.npz", packed)
        for old in self._generations(number)[:-2]:
            (Path(self.path) / f"range-{number:05d}" / f"lists-{old:05d}.npz").unlink(
                missing_ok=True
            )

    def read_lists(self, number: int) -> dict[str, Any] | None:
        """Newest generation of a range's lists; None before the first task."""
        return self._newest(number, None)

    def met(self, number: int, n_ranges: int) -> Any:
        """(n_ranges,) which partners the newest lists of a range have met."""
        packed = self._newest(number, ("met",))
        return np.zeros(n_ranges, bool) if packed is None else packed["met"]

    def _newest(self, number: int, keys: tuple[str, ...] | None) -> dict[str, Any] | None:
        """Arrays of the newest generation that can be read.

        A file that cannot (the machine went down while it was written) is dropped, and the
        generation before it counts: the pairs that it lacks are met again.
        """
        for generation in reversed(self._generations(number)):
            name = f"range-{number:05d}/lists-{generation:05d}.npz"
            try:
                return read_arrays(Path(self.path) / name, keys)
            except FileNotFoundError:
                continue
            except StoreError as err:
                log.warning("%s cannot be read (%s); going on from the one before", name, err)
                (Path(self.path) / name).unlink(missing_ok=True)
        return None

    def write_final(self, number: int, index: I32, distance: F64, n_failing: int) -> None:
        """Keep the delivered lists of a range, rows in the order of the scope.

        Parameters
        ----------
        index
            (n, k) positions of the nearest neighbours of any type.
        distance
            (n, k + 2 m) their distances, then those of the nearest SO and OS rows.
        """
        k = index.shape[1]
        folder = Path(self.path) / f"range-{number:05d}"
        parts = (index, distance[:, :k], distance[:, k:])
        for name, array in zip(_LISTS, parts, strict=True):
            temporary = folder / f".{name}.{uuid.uuid4().hex}"
            write_rows(temporary, array)
            os.replace(temporary, folder / f"{name}.bin")
        self.write(f"range-{number:05d}/{_FINAL}", {"n_failing": np.array(n_failing)})

    def n_failing(self, number: int) -> int | None:
        """How many rows of a finished range needed a second look; None where it is not finished."""
        folder = Path(self.path) / f"range-{number:05d}"
        # A run that is killed while it deletes its folder may leave the marker without the lists.
        if not all((folder / f"{name}.bin").exists() for name in _LISTS):
            return None
        found = self.find(f"range-{number:05d}/{_FINAL}")
        count = None if found is None else found.get("n_failing")
        if not isinstance(count, np.ndarray) or count.ndim or count.dtype.kind not in "iu":
            return None
        return int(count)

    def read_final(self, number: int, lo: int, hi: int, k: int) -> tuple[I32, F64]:
        """Read the lists of any type of rows lo..hi of a range (counted within it)."""
        return (
            self._read_rows(number, "index", np.int32, lo, hi, k),
            self._read_rows(number, "distance", np.float64, lo, hi, k),
        )

    def read_typed(self, number: int, lo: int, hi: int, width: int) -> F64:
        """Read the distances of the typed lists of rows lo..hi of a range."""
        typed: F64 = self._read_rows(number, "typed", np.float64, lo, hi, width)
        return typed

    def _read_rows(self, number: int, name: str, dtype: Any, lo: int, hi: int, width: int) -> Any:
        file = f"range-{number:05d}/{name}.bin"
        try:
            return read_rows(Path(self.path) / file, dtype, lo, hi, width)
        except StoreError as err:
            raise self._dropped(file, err) from err
