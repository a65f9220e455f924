"""Reader of ``.parquet`` files: features in columns or in one list column, the rest a manifest."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import check_shape, choose_key, file_signature
from croma_dask.cohort.readers.trust import check_expansion, parsing
from croma_dask.cohort.text import frame_from_arrow
from croma_dask.errors import SchemaError, name_items

__all__ = ["ParquetReader", "check_claims"]

BATCH_ROWS = 4096


class ParquetReader:
    """Rows of a parquet file, streamed through its row groups.

    Parameters
    ----------
    path
        Local path.
    key
        Name of a list column, or a pattern for the columns that are features (``"feat_*"``).
        Without it: the only list column of numbers, or all float columns where their names differ
        by a number alone (``f0, f1, ...``).

    Notes
    -----
    Every other column is the manifest. Memory: the rows asked for, a batch of 4,096 rows, the
    encoded pages of one row group, and the manifest.
    """

    def __init__(self, path: str, key: str | None = None) -> None:
        import pyarrow.parquet as pq

        self._name = os.path.basename(path)
        with parsing(self._name, "parquet file"):
            self._file = pq.ParquetFile(path)
        try:
            with parsing(self._name):
                self._open(key, os.path.getsize(path))
        except BaseException:
            self._file.close()
            raise
        self.source: dict[str, Any] = {
            "features": self._name,
            "reader": "parquet",
            "key": key or "",
        }
        self.signature: dict[str, Any] = {**file_signature(path), "columns": self._columns}

    def _open(self, key: str | None, size: int) -> None:
        """Find the features, and read what lies beside them."""
        schema = self._file.schema_arrow
        self._columns, self._is_list = _feature_columns(schema, self._name, key)
        n_rows = self._file.metadata.num_rows
        self._ends = np.cumsum(
            [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)],
            dtype=np.int64,
        )
        self._batches: Iterator[Any] | None = None
        self._position = 0
        self._rest: NDArray[Any] | None = None
        if self._is_list:
            kind = schema.field(self._columns[0]).type
            self.dtype: np.dtype[Any] = np.dtype(kind.value_type.to_pandas_dtype())
            width = self._list_width(kind, n_rows)
        else:
            kinds = [np.dtype(schema.field(name).type.to_pandas_dtype()) for name in self._columns]
            self.dtype = np.result_type(*kinds)
            width = len(self._columns)
        self.shape = check_shape((n_rows, width), self._name)
        others = [name for name in schema.names if name not in set(self._columns)]
        self.ids: NDArray[np.object_] | None = None
        self.manifest: pd.DataFrame | None = None
        check_claims(self._file, size, others, self._name)
        if others:
            self.manifest = frame_from_arrow(self._file.read(columns=others))
            if len(self.manifest) != n_rows:
                raise SchemaError(
                    f"{self._name} claims {n_rows:,} rows and holds {len(self.manifest):,}"
                )

    def _list_width(self, kind: Any, n_rows: int) -> int:
        """Return the length of the lists, which the schema or else the first row tells."""
        import pyarrow.types as types

        if types.is_fixed_size_list(kind):
            return int(kind.list_size)
        if n_rows == 0:
            raise SchemaError(f"{self._name} has no rows, so the number of features is unknown")
        first = next(self._file.iter_batches(batch_size=1, columns=self._columns))
        value = first.column(0)[0].as_py()
        if value is None:
            raise SchemaError(f"{self._name}: list column {self._columns[0]!r} is empty in row 0")
        return len(value)

    def read(self, lo: int, hi: int) -> NDArray[Any]:
        """Return rows lo to hi."""
        with parsing(self._name):
            return self._read(lo, hi)

    def _read(self, lo: int, hi: int) -> NDArray[Any]:
        if self._batches is None or lo < self._position:
            self._start(lo)
        parts = []
        while self._position < hi:
            rows = self._next()
            skip = min(len(rows), max(0, lo - self._position))
            take = rows[skip : hi - self._position]
            if len(take):
                parts.append(take)
            used = skip + len(take)
            self._rest = rows[used:] if used < len(rows) else None
            self._position += used
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _start(self, row: int) -> None:
        """Begin at the row group that holds a row."""
        group = int(np.searchsorted(self._ends, row, side="right"))
        self._position = int(self._ends[group - 1]) if group else 0
        self._rest = None
        self._batches = self._file.iter_batches(
            batch_size=BATCH_ROWS,
            row_groups=list(range(group, len(self._ends))),
            columns=self._columns,
        )

    def _next(self) -> NDArray[Any]:
        if self._rest is not None:
            return self._rest
        assert self._batches is not None
        batch = next(self._batches, None)
        if batch is None:
            raise SchemaError(f"{self._name} ends at row {self._position}, before its last one")
        if self._is_list:
            return self._list_rows(batch.column(0))
        # by name: a batch has the columns in the order of the file
        columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in self._columns]
        return np.stack(columns, axis=1).astype(self.dtype, copy=False)

    def _list_rows(self, column: Any) -> NDArray[Any]:
        lengths = column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        width = self.shape[1]
        wrong = np.flatnonzero(lengths != width)
        if len(wrong):
            row = self._position + int(wrong[0])
            found = "is empty" if lengths[wrong[0]] < 0 else f"has {lengths[wrong[0]]} values"
            raise SchemaError(
                f"{self._name}: list column {self._columns[0]!r} {found} in row {row}, expected "
                f"{width} values in each row"
            )
        values: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
        return values.reshape(len(column), width).astype(self.dtype, copy=False)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def check_claims(file: Any, size: int, columns: Sequence[str], name: str) -> None:
    """Refuse columns that are to be read as a whole and would fill memory.

    Parameters
    ----------
    file
        ``pyarrow.parquet.ParquetFile``; nothing of it is read.
    size
        Bytes of the file.
    columns
        Names of those that will be read.
    name
        The file, for messages.

    Raises
    ------
    SchemaError
        They claim far more than lies in the file, or its parts claim different numbers of rows.
    """
    # Not by column: pyarrow's metadata of one abort the process where its statistics are damaged.
    metadata = file.metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    if rows != metadata.num_rows or any(group.num_rows < 0 for group in groups):
        raise SchemaError(
            f"{name} is damaged: it claims {metadata.num_rows:,} rows, its row groups {rows:,}"
        )
    # repeated values are stored once, and take their room each
    plain = max(sum(group.total_byte_size for group in groups), 8 * rows * len(columns))
    check_expansion(size, plain, name)


def _feature_columns(schema: Any, name: str, key: str | None) -> tuple[list[str], bool]:
    """Return the feature columns, and whether it is one list column."""
    import pyarrow.types as types

    def is_number(kind: Any) -> bool:
        return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))

    def is_list(kind: Any) -> bool:
        lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return bool(lists) and is_number(kind.value_type)

    lists = [field.name for field in schema if is_list(field.type)]
    numbers = [field.name for field in schema if is_number(field.type)]
    if key is not None:
        if key in lists:
            return [key], True
        matching = [column for column in numbers if fnmatch.fnmatchcase(column, key)]
        if matching:
            return matching, False
        raise SchemaError(
            f"{name} has no list column and no numeric columns that match {key!r}; it has "
            f"{name_items(schema.names, limit=20)}"
        )
    floats = [field.name for field in schema if types.is_floating(field.type)]
    if lists:
        return [choose_key(name, "list column", None, known=lists, candidates=lists)], True
    stems = {re.sub(r"\d+$", "", column) for column in floats}
    if len(stems) == 1 and (len(floats) > 1 or floats[0] not in stems):
        return floats, False
    if not floats:
        raise SchemaError(f"{name} has no list column and no float columns that could be features")
    raise SchemaError(
        f"{name}: which of the float columns {name_items(floats)} are features? Give a pattern "
        "with key= (--key), for example --key 'feat_*'"
    )
