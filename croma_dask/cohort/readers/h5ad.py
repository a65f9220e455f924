"""Reader of ``.h5ad`` files, of every layout since 2017: one obsm entry or X, and obs.

The file is read through h5py: nothing else of the AnnData is touched, however large it is.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import check_shape, choose_key, file_signature
from croma_dask.cohort.readers.hdf5 import dataset_rows, open_hdf5
from croma_dask.cohort.readers.hdf5_chunks import check_rows, read_rows
from croma_dask.cohort.readers.hdf5_objects import check_dataset, find, read_whole, warn_absent
from croma_dask.cohort.readers.sparse import sparse_layout, sparse_rows
from croma_dask.cohort.readers.trust import parsing
from croma_dask.cohort.text import to_text
from croma_dask.errors import InputWarning, SchemaError

if TYPE_CHECKING:
    import h5py

__all__ = ["H5adReader", "read_obs"]

_INDEX_FIELDS = ("index", "_index")


class H5adReader:
    """Rows of an obsm entry or X; obs is the manifest and its index the ids.

    Parameters
    ----------
    path
        Local path.
    key
        Name of an obsm entry (``"X_pca"``, ``"obsm/X_pca"``), or ``"X"``. Without it: the only obsm
        entry, or X where there is none.

    Notes
    -----
    Memory: obs, the rows asked for, and one chunk; see :mod:`.sparse` for sparse matrices.
    """

    def __init__(self, path: str, key: str | None = None) -> None:
        name = os.path.basename(path)
        self._file = open_hdf5(path)
        self._name = name
        self.ids: NDArray[np.object_] | None
        self.manifest: pd.DataFrame | None
        try:
            with parsing(name):
                self.key = self._choose(name, key)
                self._read, self.shape, self.dtype = self._open(name)
                self.ids, self.manifest = _obs(self._file, name)
                if len(self.ids) != self.shape[0]:
                    raise SchemaError(
                        f"{name}: {self.key} has {self.shape[0]} rows and obs {len(self.ids)}"
                    )
        except BaseException:
            self._file.close()
            raise
        self.source: dict[str, Any] = {"features": name, "reader": "h5ad", "key": self.key}
        self.signature: dict[str, Any] = {**file_signature(path), "key": self.key}

    def _choose(self, name: str, key: str | None) -> str:
        obsm = find(self._file, "obsm")
        fields = getattr(getattr(obsm, "dtype", None), "names", None)
        entries = [] if obsm is None else list(fields or obsm)
        known = [f"obsm/{entry}" for entry in entries] + (["X"] if "X" in self._file else [])
        if key is not None and key not in known and f"obsm/{key}" in known:
            key = f"obsm/{key}"
        candidates = [entry for entry in known if entry != "X"] or known
        return choose_key(name, "obsm entry or X", key, known=known, candidates=candidates)

    def _open(
        self, name: str
    ) -> tuple[Callable[[int, int], NDArray[Any]], tuple[int, int], np.dtype[Any]]:
        """Return a row reader with shape and dtype for whatever container the key names."""
        what = f"{name}, {self.key}"
        group, _, entry = self.key.partition("/")
        item = find(self._file, group)
        if entry and hasattr(item, "dtype"):  # one structured dataset for all of obsm
            field = item.dtype[entry]
            warn_absent(item, what)
            shape = check_shape((len(item), *(field.shape or (1,))), what)
            view = item.fields(entry)

            def read(lo: int, hi: int) -> NDArray[Any]:
                check_rows(item, lo, hi)
                rows: NDArray[Any] = view[lo:hi].reshape(hi - lo, -1)
                return rows

            return read, shape, field.base
        item = find(self._file, self.key)
        if item is None:
            raise SchemaError(f"{what} is a link that leads nowhere")
        if hasattr(item, "dtype"):
            warn_absent(item, what)
            return dataset_rows(item).read, check_shape(item.shape, what), item.dtype
        layout = sparse_layout(item)
        if layout is not None:
            shape = check_shape(layout[1], what)
            return sparse_rows(item, layout[0], shape).read, shape, find(item, "data").dtype
        return _frame_rows(item, what)

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        with parsing(self._name):
            return self._read(lo, hi)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _frame_rows(
    group: Any, what: str
) -> tuple[Callable[[int, int], NDArray[Any]], tuple[int, int], np.dtype[Any]]:
    """Read an obsm entry that is a data frame of numeric columns."""
    if _text(group.attrs.get("encoding-type", "")) != "dataframe":
        kind = _text(group.attrs.get("encoding-type", "unknown"))
        raise SchemaError(f"{what} has encoding {kind!r}; expected an array, sparse or data frame")
    columns = [find(group, column) for column in _column_order(group)]
    # a group is categorical or nullable; in files of 2020 a categorical is a dataset of codes
    dtypes = [
        np.dtype(object) if "categories" in column.attrs else getattr(column, "dtype", object)
        for column in columns
    ]
    if not columns or any(np.dtype(dtype).kind not in "fiub" for dtype in dtypes):
        raise SchemaError(f"{what} is a data frame with columns that are not numbers")
    dtype = np.result_type(*dtypes)
    if any(column.shape != columns[0].shape or column.ndim != 1 for column in columns):
        raise SchemaError(f"{what} is damaged: its columns differ in shape")
    shape = check_shape((columns[0].shape[0], len(columns)), what)
    for column in columns:
        warn_absent(column, what)

    def read(lo: int, hi: int) -> NDArray[Any]:
        rows = np.stack([read_rows(column, lo, hi) for column in columns], axis=1)
        return rows.astype(dtype, copy=False)

    return read, shape, dtype


def read_obs(path: str) -> pd.DataFrame:
    """Read the obs of an h5ad as a manifest; its index is ``sample_id`` unless a column is.

    Parameters
    ----------
    path
        Local path.
    """
    name = os.path.basename(path)
    with open_hdf5(path) as file, parsing(name):
        ids, frame = _obs(file, name)
    if "sample_id" not in frame.columns:
        frame.insert(0, "sample_id", ids)
    return frame


def _obs(file: h5py.File, name: str) -> tuple[NDArray[np.object_], pd.DataFrame]:
    """Return index and columns of obs."""
    obs = find(file, "obs")
    if obs is None:
        raise SchemaError(f"{name} has no obs, so it is no AnnData")
    if hasattr(obs, "dtype"):
        return _structured_obs(file, obs)
    index = _text(obs.attrs.get("_index", "_index"))
    columns = {}
    for column in _column_order(obs):
        item = find(obs, column)
        values = _column(file, item)
        if values is None:
            kind = _text(getattr(item, "attrs", {}).get("encoding-type", "unknown"))
            warnings.warn(
                f"{name}: obs column {column!r} is left out, its encoding {kind!r} is not read",
                InputWarning,
                stacklevel=2,
            )
        else:
            columns[column] = values
    entries = _column(file, find(obs, index))
    if entries is None:
        raise SchemaError(f"{name}: obs has no array {index!r}, which it names as its index")
    ids = to_text(entries, "obs index")
    for column, values in columns.items():
        if len(values) != len(ids):
            raise SchemaError(
                f"{name}: obs column {column!r} has {len(values)} entries, the index {len(ids)}"
            )
    return ids, pd.DataFrame(columns, index=pd.RangeIndex(len(ids)))


def _column_order(group: Any) -> list[str]:
    """Return the names of a data frame's columns, without its index."""
    ordered = [_text(column) for column in group.attrs.get("column-order", ())]
    index = _text(group.attrs.get("_index", "_index"))
    rest = [name for name in group if name not in ordered and not name.startswith("__")]
    return [name for name in [*ordered, *rest] if name != index and name in group]


def _column(file: h5py.File, item: Any) -> Any:
    """Return the values of one column, None where its encoding is unknown."""
    import h5py

    if isinstance(item, h5py.Dataset):
        if item.ndim != 1:
            return None
        values = _plain(item)
        reference = item.attrs.get("categories")
        if reference is None:
            return values
        if not isinstance(reference, h5py.Reference):
            raise SchemaError(f"{item.name} is damaged: its categories are no reference")
        categories = file[reference]
        check_dataset(categories)
        return _categorical(values, _plain(categories))
    if not isinstance(item, h5py.Group):
        return None
    if {"codes", "categories"} <= set(item):
        codes = _plain(find(item, "codes"))
        return _categorical(codes, _column(file, find(item, "categories")))
    if {"values", "mask"} <= set(item):
        nullable = _plain(find(item, "values")).astype(object)
        nullable[_plain(find(item, "mask")).astype(bool)] = None
        return nullable
    return None


def _plain(dataset: Any) -> NDArray[Any]:
    """Read a one-dimensional dataset; text comes as `str`."""
    import h5py

    if not isinstance(dataset, h5py.Dataset):
        raise SchemaError("a column of obs is no dataset")
    text = h5py.check_string_dtype(dataset.dtype) is not None
    return read_whole(dataset, f"dataset {dataset.name!r}", text=text)


def _categorical(codes: Any, categories: Any) -> NDArray[np.object_]:
    """Look categories up; a negative code is a missing value."""
    table = np.empty(len(categories) + 1, dtype=object)
    table[:-1] = to_text(categories, "categories")
    codes = np.asarray(codes)
    if codes.dtype.kind not in "iu":
        raise SchemaError("the codes of a categorical column are no whole numbers")
    if len(codes) and codes.max() >= len(categories):
        raise SchemaError(
            f"a categorical column has the code {codes.max()} and {len(categories)} categories"
        )
    found: NDArray[np.object_] = table[np.maximum(codes.astype(np.int64), -1)]
    return found


def _structured_obs(file: h5py.File, obs: Any) -> tuple[NDArray[np.object_], pd.DataFrame]:
    """Read the obs of a file before 2019: one structured array, categories in uns."""
    table = read_whole(obs, "obs")
    if not table.dtype.names or table.ndim != 1:
        raise SchemaError("obs is neither a group nor a table")
    fields = list(table.dtype.names)
    index = next((field for field in _INDEX_FIELDS if field in fields), fields[0])
    columns = {}
    for field in fields:
        if field == index:
            continue
        categories = find(file, f"uns/{field}_categories")
        values = table[field]
        if categories is not None and values.dtype.kind in "iu":
            values = _categorical(values, _plain(categories))
        columns[field] = values
    ids = to_text(table[index], "obs index")
    return ids, pd.DataFrame(columns, index=pd.RangeIndex(len(ids)))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
