"""Reader of a folder with one file a slide, the usual output of pathology feature extractors."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import file_signature
from croma_dask.cohort.readers.hdf5 import Hdf5Reader
from croma_dask.cohort.readers.hdf5_vetting import vet
from croma_dask.cohort.readers.npy import NpyReader
from croma_dask.cohort.readers.npz import VectorsReader, open_npz
from croma_dask.cohort.readers.trust import parsing
from croma_dask.errors import InputWarning, SchemaError, name_items, warn

__all__ = ["FolderReader", "open_folder"]

_KINDS = {".h5": "HDF5", ".hdf5": "HDF5", ".npy": "npy", ".npz": "npz"}


class _Part(Protocol):
    """What one file of the folder offers."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def read(self, lo: int, hi: int) -> NDArray[Any]: ...

    def close(self) -> None: ...


class FolderReader:
    """Rows of all files of a folder, files in the order of their names.

    Each file is a slide, called by its name without the suffix. Row r of slide ``s`` has the sample
    id ``s/r`` and the group ``s``; where the file has pixel coordinates its image path is
    ``s/x_y``. In a folder of PathoROB's archives (one vector a tile) the members name the rows
    instead, and there are no groups.

    Parameters
    ----------
    path
        Local folder; files directly in it, hidden ones left out.
    key
        Dataset of HDF5 files or member of ``.npz`` files; the readers of single files say what is
        read without it.

    Notes
    -----
    Files are opened one after the other, first all of them for their shapes. Memory: the rows asked
    for, one chunk of a dataset, and the ids of all rows.
    """

    def __init__(self, path: str, key: str | None = None) -> None:
        name = os.path.basename(os.path.abspath(path))
        self._key = key
        self._files = _list_files(path, name)
        self._open_index = -1
        self._part: _Part | None = None
        self.id_separator: str | None = None
        if os.path.splitext(self._files[0])[1].lower() in {".h5", ".hdf5"}:
            with parsing(name):
                vet(self._files)
        shapes, dtypes, ids, coords = [], [], [], []
        for index in range(len(self._files)):
            part = self._open(index)
            shapes.append(part.shape)
            dtypes.append(part.dtype)
            ids.append(part.ids if isinstance(part, VectorsReader) else None)
            coords.append(part.coordinates() if isinstance(part, Hdf5Reader) else None)
        self._check_widths(name, [shape[1] for shape in shapes])
        self._edges = np.cumsum([0] + [shape[0] for shape in shapes], dtype=np.int64)
        self.shape = (int(self._edges[-1]), shapes[0][1])
        self.dtype = _common_dtype(name, self._files, dtypes)
        self.ids: NDArray[np.object_] | None
        self.manifest: pd.DataFrame | None = None
        self.slides: list[str] | None = None
        named = [part_ids for part_ids in ids if part_ids is not None]
        if len(named) == len(self._files):
            self.id_separator = VectorsReader.id_separator
            self.ids = np.concatenate(named)
        elif named:
            raise SchemaError(f"{name}: some files have one vector a tile and others do not")
        else:
            self.slides = [os.path.splitext(os.path.basename(file))[0] for file in self._files]
            self.manifest = self._tiles(self.slides, coords)
            self.ids = self.manifest["sample_id"].to_numpy()
        self.source: dict[str, Any] = {
            "features": name,
            "reader": "folder",
            "files": len(self._files),
            "key": key or "",
        }
        self.signature: dict[str, Any] = {
            "files": [file_signature(file) for file in self._files],
            "key": key or "",
        }

    def _open(self, index: int) -> _Part:
        """Return the reader of a file; the one before it is closed."""
        if index == self._open_index and self._part is not None:
            return self._part
        self.close()
        file = self._files[index]
        suffix = os.path.splitext(file)[1].lower()
        part: _Part
        if suffix == ".npy":
            part = NpyReader(file)
        elif suffix == ".npz":
            part = open_npz(file, self._key)
        else:
            part = Hdf5Reader(file, self._key)
        self._part, self._open_index = part, index
        return part

    def _check_widths(self, name: str, widths: list[int]) -> None:
        for file, width in zip(self._files, widths, strict=True):
            if width != widths[0]:
                raise SchemaError(
                    f"{name}: {os.path.basename(self._files[0])} has {widths[0]} features and "
                    f"{os.path.basename(file)} {width}; all slides need the same"
                )

    def _tiles(self, slides: list[str], coords: list[NDArray[Any] | None]) -> pd.DataFrame:
        """Return the columns that the folder itself tells about each tile."""
        counts = np.diff(self._edges)
        sample_ids = [
            f"{slide}/{row}"
            for slide, count in zip(slides, counts, strict=True)
            for row in range(count)
        ]
        codes = np.repeat(np.arange(len(slides)), counts)
        columns: dict[str, Any] = {
            "sample_id": np.array(sample_ids, dtype=object),
            "group_id": pd.Categorical.from_codes(codes, categories=pd.Index(slides, dtype=object)),
        }
        if all(places is not None for places in coords):
            columns["image_path"] = np.array(
                [
                    f"{slide}/{place[0]}_{place[1]}"
                    for slide, places in zip(slides, coords, strict=True)
                    if places is not None
                    for place in places.tolist()
                ],
                dtype=object,
            )
        return pd.DataFrame(columns)

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        parts = []
        index = int(np.searchsorted(self._edges, lo, side="right")) - 1
        while lo < hi:
            start, stop = int(self._edges[index]), int(self._edges[index + 1])
            end = min(hi, stop)
            if end > lo:
                rows = self._open(index).read(lo - start, end - start)
                parts.append(rows.astype(self.dtype, copy=False))
                lo = end
            index += 1
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def close(self) -> None:
        """Close the file that is open."""
        if self._part is not None:
            self._part.close()
        self._part, self._open_index = None, -1


def open_folder(path: str, key: str | None = None) -> FolderReader:
    """Open a folder of slides."""
    return FolderReader(path, key)


def _list_files(path: str, name: str) -> list[str]:
    """Return the feature files of a folder, of one kind, sorted by name."""
    entries = sorted(entry for entry in os.listdir(path) if not entry.startswith("."))
    files = [entry for entry in entries if os.path.splitext(entry)[1].lower() in _KINDS]
    kinds = {_KINDS[os.path.splitext(file)[1].lower()] for file in files}
    if not files:
        raise SchemaError(
            f"folder {name} holds no .h5, .npy or .npz file; it has {name_items(entries)}"
            if entries
            else f"folder {name} is empty"
        )
    if len(kinds) > 1:
        raise SchemaError(
            f"folder {name} holds files of several kinds ({', '.join(sorted(kinds))}); keep one "
            "kind, one file a slide"
        )
    root = os.path.realpath(path)
    linked = [
        file
        for file in files
        if os.path.islink(os.path.join(path, file))
        and os.path.commonpath([root, os.path.realpath(os.path.join(path, file))]) != root
    ]
    if linked:
        # folders of links are how people choose slides; in one that came from elsewhere a link may
        # lead to what its maker had no right to read
        warn(
            f"folder {name}: {name_items(linked)} of {len(files)} files are links that lead out of "
            "it; what they lead to is read",
            InputWarning,
        )
    stems = Counter(os.path.splitext(file)[0] for file in files)
    twice = [stem for stem, count in stems.items() if count > 1]
    if twice:
        raise SchemaError(f"folder {name} holds two files for slide {name_items(twice)}")
    return [os.path.join(path, file) for file in files]


def _common_dtype(name: str, files: list[str], dtypes: list[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype that holds the values of all files exactly."""
    first = dtypes[0]
    if all(dtype == first for dtype in dtypes):
        return first
    if any(dtype.kind != "f" for dtype in dtypes):
        other = next(i for i, dtype in enumerate(dtypes) if dtype != first)
        raise SchemaError(
            f"{name}: {os.path.basename(files[0])} has dtype {first} and "
            f"{os.path.basename(files[other])} {dtypes[other]}; all slides need the same"
        )
    return np.result_type(*dtypes)
