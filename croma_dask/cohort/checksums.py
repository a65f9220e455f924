"""Checksums of what is stored: of every chunk, and of the metadata that say how to read chunks.

Each array ends its codecs with Zarr's `crc32c`, so that a chunk in which a bit has flipped is an
error. The root's attribute ``layout_checksum`` does the same for `zarr.json`: a digest over its
attributes and over the metadata of all arrays (``stores/README.md`` says how to compute it). Stores
that carry neither are read as before.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask import formats
from croma_dask.cohort.location import Location
from croma_dask.errors import StoreError

if TYPE_CHECKING:
    from zarr.abc.codec import BytesBytesCodec

__all__ = ["ATTR", "CRC_BYTES", "check_layout", "codecs", "crc32c", "layout_checksum", "seal"]

ATTR = "layout_checksum"
CRC_BYTES = 4
"""Bytes that the codec puts behind a chunk."""


def codecs(*, compress: bool) -> tuple[BytesBytesCodec, ...]:
    """Return the codecs that follow the one that makes bytes, for `create_array(compressors=...)`.

    Parameters
    ----------
    compress
        Whether chunks are compressed, as zarr does it by default.
    """
    from zarr.codecs import Crc32cCodec, ZstdCodec

    return (ZstdCodec(), Crc32cCodec()) if compress else (Crc32cCodec(),)


def crc32c(part: NDArray[np.uint8], before: int = 0) -> int:
    """CRC-32C of bytes, or of `before`'s bytes and these.

    Parameters
    ----------
    part
        (n,) uint8, contiguous.
    before
        What was returned for the bytes that precede these.
    """
    import google_crc32c

    found: int = google_crc32c.extend(before, part)
    return found


def layout_checksum(document: Mapping[str, Any]) -> str:
    """Digest what a root's `zarr.json` says: its attributes and the metadata of what is inside.

    Parameters
    ----------
    document
        Content of the file, with consolidated metadata.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    attrs = {name: value for name, value in document["attributes"].items() if name != ATTR}
    covered = {"attributes": attrs, "metadata": document["consolidated_metadata"]["metadata"]}
    return hashlib.sha256(_canonical(covered)).hexdigest()


def _canonical(value: Any) -> bytes:
    """JSON in one way of several: sorted keys, no blanks, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def check_layout(
    location: Location, kind: formats.Kind, name: str, mend: str, *, deep: bool = False
) -> None:
    """Compare the metadata of a store with their checksum, if it carries one.

    Whether this is a store, of which version, and whether it can be opened, is not asked here.

    Parameters
    ----------
    location
        The store.
    kind, name
        What it should be, and what such stores have in their attribute ``format``. Others are left
        to whoever opens them.
    mend
        What to do about a damaged one.
    deep
        Whether the metadata in the folders of the arrays are compared with those in the root, too:
        for readers that look there.

    Raises
    ------
    StoreError
        The metadata are not those that were written.
    """
    document = _root_document(location)
    attrs = document.get("attributes")
    if not isinstance(attrs, dict) or attrs.get("format") != name or ATTR not in attrs:
        return
    # A newer version may compute it otherwise, and is refused for being newer.
    if not formats.is_read(kind, attrs.get(formats.ATTR)):
        return
    if not _holds(document):
        raise StoreError(
            f"{location.url} is damaged: its metadata (zarr.json) are not those that were written, "
            f"as {ATTR} shows; {mend}"
        )
    if not deep or "consolidated_metadata" not in document:
        return
    for path, expected in document["consolidated_metadata"]["metadata"].items():
        found = _document(location, f"{path}/zarr.json")
        # An array has no consolidated metadata of its own, and a group below the root need not.
        found.pop("consolidated_metadata", None)
        expected = {k: v for k, v in expected.items() if k != "consolidated_metadata"}
        if _canonical(found) == _canonical(expected):
            continue
        if _root_document(location) != document:
            # Another process has just put a new store here.
            check_layout(location, kind, name, mend, deep=deep)
            return
        is_there = location.read_bytes(f"{path}/zarr.json") is not None
        problem = "is not what was written" if is_there else "is missing"
        raise StoreError(f"{location.url} is damaged: {path}/zarr.json {problem}; {mend}")


def seal(location: Location, attrs: Mapping[str, Any]) -> None:
    """Consolidate the metadata of a group and give its root its final attributes, in one write.

    Parameters
    ----------
    location
        The group; its arrays are written.
    attrs
        All attributes of the root; the checksum is added.

    Raises
    ------
    StoreError
        What lies there afterwards is something else: the disk or another process changed it.
    """
    import zarr

    store = location.zarr_store(read_only=False)
    with warnings.catch_warnings():
        # Zarr v3 has no specification of consolidated metadata yet; a reader without it opens
        # the store all the same, one with it saves a request for each array
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        zarr.consolidate_metadata(store)
    document = _root_document(location)
    if "consolidated_metadata" not in document:
        raise StoreError(f"the metadata of {location.url} cannot be read back; write it again")
    # As they come back from JSON: a tuple is a list there.
    plain = json.loads(json.dumps({k: v for k, v in attrs.items() if k != ATTR}))
    checksum = layout_checksum({**document, "attributes": plain})
    root = zarr.open_group(store, mode="r+", use_consolidated=True)
    root.attrs.put({**plain, ATTR: checksum})
    if not _holds(_root_document(location)):
        raise StoreError(
            f"{location.url}: its metadata (zarr.json) are not what was just written; is another "
            "process writing there?"
        )


def _holds(document: Mapping[str, Any]) -> bool:
    """Whether metadata fit the checksum in them, which is of consolidated ones."""
    inside = document.get("consolidated_metadata")
    if not isinstance(inside, dict) or "metadata" not in inside:
        return False
    return bool(layout_checksum(document) == document["attributes"].get(ATTR))


def _root_document(location: Location) -> dict[str, Any]:
    return _document(location, "zarr.json")


def _document(location: Location, name: str) -> dict[str, Any]:
    """Content of a file; empty where there is none that is a JSON object."""
    raw = location.read_bytes(name)
    try:
        document = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
