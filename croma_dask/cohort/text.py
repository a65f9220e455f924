"""Any column that people keep labels and ids in, as text: codes with their names, or strings.

One rule for every source (a data frame, a CSV, parquet, HDF5): values become text, blanks around
them go, whole numbers lose their ``.0``, and only a truly empty cell is missing. ``"NA"`` is a
class, ``"007"`` keeps its zeros.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.errors import InputWarning, SchemaError, name_items, name_rows

__all__ = [
    "as_frame",
    "check_columns",
    "check_no_missing",
    "decode",
    "factorize_text",
    "frame_from_arrow",
    "match_keys",
    "to_text",
]

# Python objects that may stand together in one column, as pandas calls the mixture.
_TEXT_KINDS = {"string", "empty", "bytes"}
_NUMBER_KINDS = {"integer", "floating", "mixed-integer-float", "decimal"}
_OTHER_KINDS = {"boolean", "date", "datetime", "datetime64", "period", "time", "timedelta"}
_EXACT_FLOAT = 2**53


def factorize_text(values: Any, name: str) -> tuple[NDArray[np.int32], list[str]]:
    """Turn a column into codes and the sorted text of the values that occur.

    Parameters
    ----------
    values
        One-dimensional: numpy (any dtype), pandas (categorical, nullable, arrow-backed), a list.
        An index that a series carries is ignored.
    name
        Column name, for messages.

    Returns
    -------
    codes : ndarray of int32, shape (n,)
        Position in `names`; -1 where the cell is missing (None, NaN, NA, NaT, empty or blank).
    names : list of str
        Observed values in code point order; unused categories are left out.

    Raises
    ------
    SchemaError
        The column mixes text with numbers, or holds values that are no text (lists, complex).

    Warns
    -----
    InputWarning
        Distinct values became one when the blanks around them were taken off.
    """
    raw_codes, raw = _factorize_raw(values, name)
    texts = _texts_of(raw, name)
    used = np.zeros(len(texts), dtype=bool)
    used[raw_codes[raw_codes >= 0]] = True
    observed = [text for text, keep in zip(texts, used, strict=True) if keep and text]
    names = sorted(set(observed))
    if len(names) < len(observed):
        _warn_merged(name, observed)
    position = {text: code for code, text in enumerate(names)}
    # one slot more, at the end, for the code -1 of what was missing to begin with
    table = np.array([position.get(text, -1) for text in texts] + [-1], dtype=np.int32)
    return table[raw_codes], names


def to_text(values: Any, name: str) -> NDArray[np.object_]:
    """Turn a column into an object array of `str`; missing cells become ``""``.

    Same rules, errors and warnings as :func:`factorize_text`.
    """
    codes, names = factorize_text(values, name)
    return decode(codes, names)


def decode(codes: NDArray[np.integer[Any]], names: Sequence[str]) -> NDArray[np.object_]:
    """Look names up by code; the code -1 gives ``""``."""
    table = np.empty(len(names) + 1, dtype=object)
    table[:-1] = names
    table[-1] = ""
    found: NDArray[np.object_] = table[codes]
    return found


def match_keys(texts: Iterable[str]) -> list[str]:
    """Normalise ids for comparison only: composed and decomposed accents are the same id."""
    return [t if t.isascii() else unicodedata.normalize("NFC", t) for t in texts]


def as_frame(manifest: Any) -> pd.DataFrame:
    """Return a manifest as a data frame with unique text column names and a plain index.

    Parameters
    ----------
    manifest
        A pandas data frame, an arrow table, anything that exports arrow (polars), or a mapping
        of column names to arrays of one length. It is not modified.

    Raises
    ------
    SchemaError
        It is none of these, two columns have the same name, or lengths differ.
    """
    if isinstance(manifest, pd.DataFrame):
        frame = manifest.copy(deep=False)
    elif hasattr(manifest, "__arrow_c_stream__"):
        import pyarrow as pa

        frame = frame_from_arrow(pa.table(manifest))
    elif hasattr(manifest, "keys") and hasattr(manifest, "__getitem__"):
        columns = {str(key): _plain_array(manifest[key]) for key in manifest}
        try:
            frame = pd.DataFrame(columns)
        except ValueError as err:
            raise SchemaError(f"the manifest's columns differ in length: {err}") from err
    else:
        raise SchemaError(
            f"the manifest is a {type(manifest).__name__}; expected a data frame or a mapping of "
            "columns"
        )
    frame.columns = pd.Index([str(column).strip() for column in frame.columns], dtype=object)
    check_columns(list(frame.columns))
    frame.index = pd.RangeIndex(len(frame))
    return frame


def check_columns(columns: Sequence[str]) -> None:
    """Refuse a header in which two columns have the same name."""
    repeated = sorted(column for column, count in Counter(columns).items() if count > 1)
    if repeated:
        raise SchemaError(
            f"the manifest has more than one column named {name_items(repeated)}; rename or "
            "drop one"
        )


def frame_from_arrow(table: Any) -> pd.DataFrame:
    """Convert an arrow table without turning integers with gaps into floats.

    Nested columns (lists, structs) are left out: no label or id is one.

    Raises
    ------
    SchemaError
        The table's buffers contradict each other: they come from a damaged file.
    """
    import pyarrow as pa

    try:
        table.validate(full=True)
    except pa.ArrowInvalid as err:
        raise SchemaError(f"the table is damaged: {err}") from err
    flat = [f.name for f in table.schema if not pa.types.is_nested(f.type)]

    def mapper(kind: Any) -> Any:
        return None if pa.types.is_dictionary(kind) else pd.ArrowDtype(kind)

    frame: pd.DataFrame = table.select(flat).to_pandas(types_mapper=mapper, ignore_metadata=True)
    return frame


def _plain_array(values: Any) -> Any:
    """Take the values of a series without its index, so that pandas does not align by it."""
    return values.array if isinstance(values, pd.Series) else values


def _factorize_raw(values: Any, name: str) -> tuple[NDArray[np.intp], Any]:
    """Return codes (-1 where missing) and the distinct values, still in their own type."""
    array = values.array if isinstance(values, pd.Series | pd.Index) else values
    if isinstance(array, pd.arrays.NumpyExtensionArray):
        array = array.to_numpy()
    if not isinstance(array, pd.api.extensions.ExtensionArray):
        array = _numpy_column(array, name)
    if isinstance(array, pd.Categorical):
        return array.codes.astype(np.intp), array.categories
    if isinstance(array, np.ndarray) and array.dtype == object:
        _check_mixture(array, name)
    codes, uniques = pd.factorize(array, use_na_sentinel=True)  # type: ignore[arg-type]
    return codes, uniques


def _numpy_column(values: Any, name: str) -> NDArray[Any]:
    """Bring a list or a numpy column into a dtype that pandas can factorise."""
    if isinstance(values, list | tuple):
        # through object: numpy would turn [1, "a"] into text and [True, 2] into numbers
        array = np.empty(len(values), dtype=object)
        array[:] = values
    else:
        array = np.asarray(values)
    if array.ndim != 1:
        raise SchemaError(f"column {name!r} has {array.ndim} dimensions; expected one")
    if array.dtype.kind in "cV":
        raise SchemaError(f"column {name!r} has dtype {array.dtype}; expected text or numbers")
    if array.dtype.kind in "UST":
        return array.astype(object)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_mixture(array: NDArray[np.object_], name: str) -> None:
    """Refuse an object column whose values are of several kinds."""
    present = array[~pd.isna(array)]
    kind = pd.api.types.infer_dtype(present, skipna=False)
    if kind in _TEXT_KINDS | _NUMBER_KINDS | _OTHER_KINDS:
        return
    types = sorted({type(value).__name__ for value in present})
    if kind in {"mixed", "mixed-integer"} and len(types) > 1:
        raise SchemaError(
            f"column {name!r} mixes values of type {', '.join(types)}: is 1 the same as '1'? "
            "Convert the column to text first"
        )
    raise SchemaError(f"column {name!r} holds values of type {', '.join(types)}; expected text")


def _texts_of(uniques: Any, name: str) -> list[str]:
    """Return the stripped text of each distinct value; ``""`` for a blank one."""
    try:
        texts = [_one_text(value, name) for value in uniques]
    # times beyond the year 9999, bytes called text: arrow keeps them, Python has no such value
    except (OverflowError, UnicodeDecodeError, ArithmeticError) as err:
        raise SchemaError(f"column {name!r} holds a value that cannot be read: {err}") from err
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as err:
        raise SchemaError(f"column {name!r} holds text that is not valid Unicode: {err}") from err
    return texts


def _one_text(value: object, name: str) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8").strip()
        except UnicodeDecodeError as err:
            raise SchemaError(f"column {name!r} holds bytes that are not UTF-8: {value!r}") from err
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating):
        # beyond 2**53 a float has lost digits anyway, so it keeps its exponent
        if float(value).is_integer() and abs(float(value)) < _EXACT_FLOAT:
            return str(int(value))
        return str(value)
    return str(value).strip()


def _warn_merged(name: str, observed: list[str]) -> None:
    merged = sorted(text for text, count in Counter(observed).items() if count > 1)
    warnings.warn(
        f"column {name!r}: values that differ only by blanks around them are one: "
        f"{name_items(merged)}",
        InputWarning,
        stacklevel=4,
    )


def check_no_missing(texts: NDArray[np.object_], name: str) -> None:
    """Raise where a column that must be complete has empty cells."""
    missing = np.flatnonzero(texts == "")
    if len(missing):
        raise SchemaError(f"column {name!r} is empty in {name_rows(missing)}")
