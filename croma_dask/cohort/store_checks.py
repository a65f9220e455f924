"""What is looked at before a cohort store is believed: it may be damaged, or made to do harm.

Nothing here reads values. What the metadata claim is held against what is stored before any memory
is taken for it, so that a store of a few kilobytes cannot ask for terabytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from croma_dask.cohort import layout
from croma_dask.cohort.location import Location
from croma_dask.cohort.readers.trust import UNCHECKED_BYTES, check_expansion, claimed_bytes
from croma_dask.errors import SchemaError, StoreError

if TYPE_CHECKING:
    import zarr

__all__ = ["check_claim", "check_embedding", "check_manifest", "parse_root", "parse_source"]

_TEXTS = ("columns", "embedding_fingerprint", "fingerprint", "created_at", "created_by", "source")
_KINDS = {"category", "text"}
# One segment of a path: an array of the store itself, and nothing above or below it.
_ARRAY = re.compile(r"\w[\w.-]*")
_MANY_ROWS = 2**24
_LARGEST_CHUNK = 2**22
"""Entries of a chunk of a column, whatever the number of rows: four times what is written."""


def parse_root(attrs: Mapping[str, Any], url: str) -> dict[str, layout.ColumnRef]:
    """Check the attributes of a finished store, and find its columns.

    Parameters
    ----------
    attrs
        Of the root; format, version and status are looked at elsewhere.
    url
        For messages.

    Returns
    -------
    dict
        Column name to where it is.

    Raises
    ------
    StoreError
        One is missing, or not what it should be.
    """
    for name in _TEXTS:
        if not isinstance(attrs.get(name), str):
            raise _damaged(url, f"its attribute {name!r} is {attrs.get(name)!r:.60}, expected text")
    parse_source(str(attrs["source"]), url)
    refs: dict[str, layout.ColumnRef] = {}
    try:
        found = layout.parse_columns(str(attrs["columns"]))
    except (ValueError, TypeError, KeyError, RecursionError) as err:
        raise _damaged(url, f"its attribute 'columns' is no list of columns ({err})") from err
    for ref in found:
        texts = all(isinstance(part, str) for part in (ref.name, ref.kind, ref.array))
        if not texts or ref.kind not in _KINDS:
            raise _damaged(url, f"its attribute 'columns' holds {ref!r:.200}")
        if not _ARRAY.fullmatch(ref.array):
            raise _damaged(url, f"column {ref.name!r} names the array {ref.array!r:.200}")
        if ref.name in refs:
            raise _damaged(url, f"it has two columns {ref.name!r}")
        refs[ref.name] = ref
    # Rows alone, without any column, are what the benchmark makes of a file in scratch.
    if refs and "sample_id" not in refs:
        raise _damaged(url, "it has no column 'sample_id'")
    return refs


def parse_source(text: str, url: str) -> dict[str, Any]:
    """Read the attribute ``source``.

    Raises
    ------
    StoreError
        It is no JSON object.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise _damaged(url, f"its attribute 'source' is no JSON ({err})") from err
    if not isinstance(found, dict):
        raise _damaged(url, f"its attribute 'source' is a {type(found).__name__}")
    return found


def check_embedding(array: Any, location: Location) -> None:
    """Check shape, dtype and chunks of the embedding.

    Raises
    ------
    StoreError
        It is no matrix of floats in whole rows, or claims more than is stored.
    """
    import zarr

    url = location.url
    if not isinstance(array, zarr.Array):
        raise _damaged(url, "its embedding is no array")
    if array.ndim != 2 or array.dtype.name not in layout.EMBEDDING_DTYPES:
        raise _damaged(url, f"its embedding has shape {array.shape}, dtype {array.dtype}")
    _check_chunks(array, layout.EMBEDDING, url)
    check_claim(array, layout.EMBEDDING, location)


def check_claim(array: zarr.Array[Any], name: str, location: Location) -> None:
    """Hold what a large array claims against the files that it has.

    Parameters
    ----------
    array
        All of whose chunks are written.
    name
        Its path in the store.
    location
        The store; its files are listed only where the array or one of its chunks is large.

    Raises
    ------
    StoreError
        It would be more than a hundred times as large as its files.
    """
    plain = claimed_bytes(array.shape, array.dtype)
    chunk = claimed_bytes(array.shards or array.chunks, array.dtype)
    # What is taken at once: a chunk's rows in their whole length.
    rows = claimed_bytes((array.chunks[0], *array.shape[1:]), array.dtype)
    if max(chunk, rows) <= UNCHECKED_BYTES and array.shape[0] <= _MANY_ROWS:
        return
    sizes = location.joined(name).sizes()
    try:
        check_expansion(sum(sizes.values()), plain, f"{location.url}, array {name!r},")
        check_expansion(max(sizes.values(), default=0), chunk, f"a chunk of {location.url}")
    except SchemaError as err:
        raise StoreError(str(err)) from err


def check_manifest(
    root: zarr.Group, refs: Sequence[layout.ColumnRef], n_tiles: int, location: Location
) -> None:
    """Check shape and dtype of all columns, and of the map of samples to rows.

    Parameters
    ----------
    root
        The store.
    refs
        Its columns.
    n_tiles
        Rows of the embedding.
    location
        Where it is.

    Raises
    ------
    StoreError
        An array is missing or of another kind, or differs in length.
    """
    url, n_samples = location.url, n_tiles
    if layout.TILE in root:
        tiles: Any = root[layout.TILE]
        _check_vector(tiles, layout.TILE, "i", None, url)
        check_claim(tiles, layout.TILE, location)
        n_samples = int(tiles.shape[0])
    for ref in refs:
        array = _array(root, ref.array, url)
        _check_vector(array, ref.array, "i" if ref.kind == "category" else "OUT", n_samples, url)
        if ref.kind == "category":
            names = _array(root, ref.names_array, url)
            _check_vector(names, ref.names_array, "OUT", None, url)
            if names.shape[0] > n_samples:
                raise _damaged(
                    url, f"{ref.names_array} names {names.shape[0]} levels of {n_samples} rows"
                )


def _array(root: zarr.Group, name: str, url: str) -> Any:
    try:
        return root[name]
    except KeyError as err:
        raise _damaged(url, f"its array {name} is missing") from err


def _check_vector(array: Any, name: str, kinds: str, length: int | None, url: str) -> None:
    import zarr

    if not isinstance(array, zarr.Array):
        raise _damaged(url, f"{name} is no array")
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise _damaged(url, f"{name} has shape {array.shape}, dtype {array.dtype}")
    if length is not None and array.shape[0] != length:
        raise _damaged(url, f"{name} has {array.shape[0]} entries, expected {length}")
    _check_chunks(array, name, url)
    if max(array.shards or array.chunks) > max(array.shape[0], _LARGEST_CHUNK):
        raise _damaged(url, f"{name} has chunks of {array.chunks}")


def _check_chunks(array: Any, name: str, url: str) -> None:
    if any(size < 1 for size in (*array.chunks, *(array.shards or ()))):
        raise _damaged(url, f"{name} has chunks of {array.chunks}")


def _damaged(url: str, what: str) -> StoreError:
    return StoreError(f"{url} is damaged: {what}; ingest the cohort again")
