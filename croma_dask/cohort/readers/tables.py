"""Manifests in files: CSV and TSV, parquet, the obs of an h5ad. Every cell is read as text."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import pandas as pd

from croma_dask.cohort.readers.parquet import check_claims
from croma_dask.cohort.readers.trust import check_expansion, parsing
from croma_dask.cohort.text import as_frame, check_columns, frame_from_arrow
from croma_dask.cohort.transfer import fetched
from croma_dask.errors import SchemaError

__all__ = ["read_manifest", "read_text_table"]

_BOM = "\ufeff"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# Each takes 0.1 ms and more: a row of a million delimiters would take minutes.
MOST_COLUMNS = 20_000
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def read_manifest(
    manifest: Any, *, comment: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Read a manifest from a path, URL, data frame or mapping of columns.

    Parameters
    ----------
    manifest
        ``.csv``, ``.tsv`` or ``.txt`` (also compressed), ``.parquet`` or ``.h5ad`` (its obs), or
        a table in memory.
    comment
        Lines before the header of a text file that start with this are skipped.
    storage_options
        Options of the fsspec file system of a URL; what is there is copied here first.

    Returns
    -------
    pandas.DataFrame
        One row a sample; column names are stripped and unique.

    Raises
    ------
    SchemaError
        There is no such file, or it cannot be read as a table; the message says what to change.
    StoreError
        There is nothing at a URL, or it cannot be read.
    """
    if not isinstance(manifest, str | os.PathLike):
        return as_frame(manifest)
    try:
        with fetched(manifest, storage_options=storage_options) as path:
            if not path.exists():
                raise FileNotFoundError(path)
            return _read_file(str(path), comment)
    except FileNotFoundError as err:
        raise SchemaError(f"there is no {os.fspath(manifest)}") from err


def _read_file(path: str, comment: str | None) -> pd.DataFrame:
    stem = path.lower()
    for suffix in _COMPRESSED:
        stem = stem.removesuffix(suffix)
    if stem.endswith((".parquet", ".pq")):
        return as_frame(_read_parquet(path))
    if stem.endswith(".h5ad"):
        from croma_dask.cohort.readers.h5ad import read_obs

        return as_frame(read_obs(path))
    if stem.endswith((".csv", ".tsv", ".txt", ".tab")):
        name = os.path.basename(path)
        with parsing(name), open(path, "rb") as stored, _unpacked(stored, name) as raw:
            return read_text_table(raw, name, comment=comment)
    raise SchemaError(
        f"manifest {os.path.basename(path)!r}: unknown kind of file; expected .csv, .tsv, .parquet "
        "or .h5ad"
    )


def _read_parquet(path: str) -> pd.DataFrame:
    import pyarrow.parquet as pq

    name = os.path.basename(path)
    with parsing(name, "parquet file"):
        file = pq.ParquetFile(path)
    with file, parsing(name):
        check_claims(file, os.path.getsize(path), file.schema_arrow.names, name)
        return frame_from_arrow(file.read())


@contextlib.contextmanager
def _unpacked(stored: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Undo the compression that a name tells of, and watch how much comes out of it."""
    from fsspec.compression import compr
    from fsspec.utils import infer_compression

    kind = infer_compression(name)
    if kind is None:
        yield stored
        return
    size = stored.seek(0, io.SEEK_END)
    stored.seek(0)
    with compr[kind](stored, mode="rb") as plain:
        yield io.BufferedReader(_Watched(plain, size, name), 1 << 20)


class _Watched(io.RawIOBase):
    """A stream that is being unpacked, which ends with an error where it grows out of measure."""

    def __init__(self, plain: BinaryIO, stored: int, name: str) -> None:
        self._plain, self._stored, self._name = plain, stored, name
        self._count = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._count = self._plain.seek(offset, whence)
        return self._count

    def tell(self) -> int:
        return self._count

    def readinto(self, buffer: Any) -> int:
        data = self._plain.read(len(buffer))
        buffer[: len(data)] = data
        self._count += len(data)
        # as cells it takes about four times its own size
        check_expansion(self._stored, 4 * self._count, self._name)
        return len(data)


def read_text_table(raw: BinaryIO, name: str, *, comment: str | None = None) -> pd.DataFrame:
    """Read delimited text in UTF-8, with or without byte order mark, any line ends.

    Cells are text; only an empty cell is missing, so ``NA`` and ``None`` stay what they are.
    """
    head = raw.read(2)
    if head in _UTF16:
        raise SchemaError(f"{name} is UTF-16; save it as UTF-8 (in a spreadsheet: 'CSV UTF-8')")
    raw.seek(0)
    _refuse_nul(raw, name)
    stream = io.TextIOWrapper(raw, encoding="utf-8", newline="")
    columns: list[str] = []
    try:
        lines = _lines_from_header(stream.readline, name, comment)
        first = next(lines)
        delimiter = _delimiter(first, name)
        header = next(csv.reader(_prepend(first, lines), delimiter=delimiter))
        columns = [column.strip().strip(_BOM) for column in header]
        columns = [column or f"unnamed_{i}" for i, column in enumerate(columns)]
        if len(columns) > MOST_COLUMNS:
            raise SchemaError(
                f"{name} has {len(columns):,} columns; expected at most {MOST_COLUMNS:,}: is this "
                "the table of the features?"
            )
        check_columns(columns)
        _check_width(stream, len(columns), delimiter)
        frame = _parse_body(stream, columns, delimiter)
    except UnicodeDecodeError as err:
        raise SchemaError(f"{name} is not UTF-8 ({err.reason} in byte {err.start})") from err
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as err:
        raise SchemaError(
            f"{name} is not a table with {len(columns)} columns (lines counted below the header): "
            f"{str(err).strip()}"
        ) from err
    finally:
        stream.detach()  # the caller closes the file
    return frame


def _refuse_nul(raw: BinaryIO, name: str) -> None:
    """Refuse text with a NUL byte, at which pandas would end the cell without a word.

    Leaves the stream at its start.
    """
    line = 1
    while block := raw.read(1 << 20):
        at = block.find(b"\0")
        if at >= 0:
            line += block.count(b"\n", 0, at)
            raise SchemaError(
                f"{name} has a NUL byte in line {line}: it is no plain text; save it as UTF-8, and "
                "take the byte out"
            )
        line += block.count(b"\n")
    raw.seek(0)


def _check_width(stream: io.TextIOWrapper, expected: int, delimiter: str) -> None:
    """Refuse a first row of more cells than there are columns, and leave the stream before it.

    pandas does so, too, but after it has made a column of each.
    """
    start = stream.tell()
    # lines of blanks are none to pandas
    while (line := stream.readline()) and not line.strip():
        start = stream.tell()
    try:
        rest = iter(stream.readline, "")
        count = len(next(csv.reader(_prepend(line, rest), delimiter=delimiter), []))
    except csv.Error:
        # a cell longer than this parser takes; pandas takes it, so cells are only counted roughly
        count = 1 + re.sub(r'"[^"]*("|$)', "", line).count(delimiter)
        count = count if count > MOST_COLUMNS else 0
    stream.seek(start)
    if count > expected:
        raise csv.Error(f"row 0 has {count:,} cells")


def _lines_from_header(
    readline: Callable[[], str], name: str, comment: str | None
) -> Iterator[str]:
    """Yield the header and what follows, without comments and empty lines before it."""
    line = readline().lstrip(_BOM)
    skipped = 0
    while line and (not line.strip() or (comment and line.startswith(comment))):
        skipped += 1
        line = readline()
    if not line:
        raise SchemaError(f"{name} has no header")
    if line.startswith("#") and not comment:
        count = 0
        while line.startswith("#"):
            count += 1
            line = readline()
        begins = "line starts" if count == 1 else f"{count} lines start"
        raise SchemaError(
            f"{name}: the first {begins} with '#'; if these are comments pass comment='#' "
            "(--comment '#'), otherwise rename the column"
        )
    yield line
    while line := readline():
        yield line


def _prepend(first: str, rest: Iterator[str]) -> Iterator[str]:
    """Yield a line that was looked at before the ones that follow it."""
    yield first
    yield from rest


def _delimiter(header: str, name: str) -> str:
    """Choose the delimiter by the file's name, or by its header where that one has none."""
    expected = "\t" if ".tsv" in name.lower() or ".tab" in name.lower() else ","
    if expected in header:
        return expected
    return next((mark for mark in ("\t", ";", ",") if mark in header), expected)


def _parse_body(stream: io.TextIOWrapper, columns: list[str], delimiter: str) -> pd.DataFrame:
    with warnings.catch_warnings():
        # pandas only warns when it drops the cells of rows that are too long
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            return pd.read_csv(
                stream,
                header=None,
                names=columns,
                index_col=False,
                sep=delimiter,
                dtype="string[pyarrow]",
                keep_default_na=False,
                na_values=[""],
            )
        except pd.errors.EmptyDataError:
            return pd.DataFrame({column: pd.Series(dtype="string[pyarrow]") for column in columns})
