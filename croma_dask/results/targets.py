"""Where a result is to go: looked at before anything long is run, and before it is written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from croma_dask.cohort.location import Location
from croma_dask.cohort.uploads import check_writable, is_unfinished, refuse_read_only
from croma_dask.errors import SchemaError
from croma_dask.schema import METRICS

__all__ = ["FORMATS", "attrs_of_folder", "check_place", "check_target", "is_ours", "is_result"]

FORMATS = (".zarr", ".nc", ".csv", ".json")


def check_target(
    path: str | os.PathLike[str] | Location,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Location:
    """Check where a result is to go, before it is computed.

    Parameters
    ----------
    path
        Path or fsspec URL. Into the folder of a URL a few bytes are written, and deleted.
    overwrite
        Whether a result that is there may be replaced.
    storage_options
        Options of the fsspec file system of a URL.

    Raises
    ------
    SchemaError
        The ending is none of :data:`FORMATS`, the folder is not there, or something is there
        already that may not be overwritten: only results ever are.
    StoreError
        There is no such bucket, or nothing may be written into it.
    """
    location = Location.of(path, storage_options)
    check_place(location, overwrite=overwrite)
    if not location.is_local:
        check_writable(location)
    return location


def check_place(location: Location, *, overwrite: bool) -> None:
    """Check what lies where a result is to go, as :func:`check_target` does."""
    shown = repr(location.url)
    suffix = Path(location.name).suffix
    if suffix not in FORMATS:
        raise SchemaError(
            f"result {shown} ends in {suffix!r}; expected one of {', '.join(FORMATS)}"
        )
    if location.is_local:
        found = _found_here(Path(location.url), shown)
    else:
        refuse_read_only(location)
        about = None if suffix == ".zarr" and is_unfinished(location) else location.about()
        found = None if about is None else about["type"] == "directory"
    if found is None:
        return
    if not overwrite:
        raise SchemaError(f"{shown} exists already; remove it or pass overwrite=True (--overwrite)")
    if found != (suffix == ".zarr") or (found and not is_result(location)):
        raise SchemaError(
            f"{shown} exists and is no result of croma-dask: it is not overwritten; choose "
            "another name or remove it yourself"
        )


def _found_here(target: Path, shown: str) -> bool | None:
    """Whether a folder is there; None where nothing is."""
    if not target.parent.is_dir():
        raise SchemaError(f"the folder of {shown} does not exist; make it first")
    if not os.access(target.parent, os.W_OK):
        raise SchemaError(f"nothing may be written into the folder of {shown}")
    return target.is_dir() if target.exists() else None


def is_ours(attrs: Mapping[Any, Any]) -> bool:
    """Whether these are the attributes of a result of this library.

    Its stores (cohorts, indexes, kept neighbours) say of which format they are, and results none.
    """
    return "croma_dask_version" in attrs and "format" not in attrs


def attrs_of_folder(folder: Path | Location) -> dict[str, Any] | None:
    """Attributes of a Zarr group; None where there is none."""
    try:
        content = Location.of(folder).read_bytes("zarr.json")
        about = json.loads(content or b"null")
        attrs = about.get("attributes", {})
        return attrs if about["node_type"] == "group" and isinstance(attrs, dict) else None
    except (OSError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None


def is_result(folder: Path | Location) -> bool:
    """Whether a folder is a result that this library wrote."""
    # A tree that somebody put together has the attributes at its metrics.
    root = Location.of(folder)
    places = [root, *(root.joined(name) for name in METRICS)]
    return any(is_ours(attrs_of_folder(place) or {}) for place in places)
