"""Neighbours that a search has left on disk: what they depend on, where they lie, opening them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from croma_dask import formats
from croma_dask.cohort.checksums import ATTR, check_layout
from croma_dask.cohort.location import Location
from croma_dask.cohort.outside import check_links
from croma_dask.cohort.uploads import is_unfinished
from croma_dask.errors import StoreError, name_items

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "ARRAYS",
    "FORMAT",
    "FORMAT_VERSION",
    "NOT_WRITTEN",
    "Key",
    "Part",
    "check_kept",
    "open_neighbors",
    "refuse",
    "standing",
]

FORMAT = "croma-dask neighbors"
FORMAT_VERSION = formats.VERSIONS["neighbors"]
WRITING, COMPLETE = "writing", "complete"
MEND = "remove the folder and score again"
_COUNTS = ("n_rows", "k", "m", "n_tiles", "n_zero_rows")
_TEXTS = ("global_id", "typed_id", "typed_fingerprint")
_KEPT = ("complete", "unfinished", "version")
"""What :func:`standing` says of a folder of kept neighbours, whatever became of it."""

Part = Literal["global", "typed"]
ARRAYS: dict[Part, tuple[str, str]] = {
    "global": ("neighbor_index", "neighbor_distance"),
    "typed": ("so_distance", "os_distance"),
}

NOT_WRITTEN = {"i": -2, "f": -1.0}
"""Fill values by kind: nothing that a list holds, so that a chunk that is lost cannot be missed."""


@dataclass(frozen=True)
class Key:
    """What the lists of a search depend on, label and confounder apart.

    Attributes
    ----------
    embedding
        Content fingerprint of the embedding.
    groups
        Digest of the rows of each scope and of their groups.
    design
        Evaluation design.
    release
        Release of this library, as long as no release promises the bits of another.
    index, index_parameters
        Kind of the index, and its parameters as text.
    """

    embedding: str
    groups: str
    design: str
    release: str
    index: str = "exact"
    index_parameters: str = ""

    def differences(self, other: Key) -> list[str]:
        """Say in words what another key has instead; empty where they are the same."""
        told = {
            "embedding": "of another embedding",
            "groups": "of other rows or groups",
            "design": f"of the design {other.design!r}",
            "release": f"found by {other.release}",
            "index": f"found by the index {other.index!r}",
            "index_parameters": f"found with the index parameters {other.index_parameters!r}",
        }
        return [
            told[f.name] for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)
        ]

    def attrs(self) -> dict[str, str]:
        """As attributes of the group."""
        return {_ATTRS[name]: value for name, value in asdict(self).items()}

    @classmethod
    def of(cls, attrs: dict[str, Any]) -> Key:
        """From the attributes of a group."""
        return cls(**{name: str(attrs.get(attr, "")) for name, attr in _ATTRS.items()})


_ATTRS = {
    "embedding": "embedding_fingerprint",
    "groups": "groups_fingerprint",
    "design": "evaluation_design",
    "release": "created_by",
    "index": "index",
    "index_parameters": "index_parameters",
}


def standing(place: Location) -> tuple[str, dict[str, Any]]:
    """Look at what lies at a place.

    Returns
    -------
    status, attrs
        ``nothing``, ``foreign``, ``version`` (none that this release reads), ``unfinished``,
        ``complete``.
    """
    try:
        # What a link leads to is not this place's own, whoever named the place.
        if place.is_local and os.path.islink(os.path.join(place.url, "zarr.json")):
            return "foreign", {}
        raw = place.read_bytes("zarr.json")
        if raw is None and is_unfinished(place):
            return "unfinished", {}
        if raw is None:
            return ("foreign" if place.is_file() or place.names() else "nothing"), {}
        attrs = json.loads(raw).get("attributes", {})
    except (OSError, ValueError, AttributeError, RecursionError) as err:
        if isinstance(err, StoreError):
            raise
        return "foreign", {}
    if not isinstance(attrs, dict) or attrs.get("format") != FORMAT:
        return "foreign", {}
    if not formats.is_read("neighbors", attrs.get("format_version")):
        return "version", attrs
    return ("complete" if attrs.get("status") == COMPLETE else "unfinished"), attrs


def refuse(place: Location) -> None:
    """Refuse a place that holds something else, or what a newer release has kept.

    Raises
    ------
    StoreError
        Says what is there.
    """
    status, attrs = standing(place)
    if status == "foreign":
        raise _foreign(place)
    if status == "version":
        formats.check("neighbors", attrs.get("format_version"), str(place))


def check_kept(place: Location) -> None:
    """Check that the metadata of finished neighbours are those that were written.

    Raises
    ------
    StoreError
        They are damaged.
    """
    check_links(place)
    check_layout(place, "neighbors", FORMAT, MEND, deep=place.is_local)
    attrs = place.node_attributes()
    bad = [name for name in _COUNTS if not _is_count(attrs.get(name))]
    bad += [name for name in _TEXTS if not isinstance(attrs.get(name), str)]
    if bad:
        raise StoreError(
            f"{place} is damaged: its attribute {bad[0]!r} is {attrs.get(bad[0])!r:.60}; {MEND}"
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _foreign(place: Location) -> StoreError:
    models = _models_in(place)
    if models:
        return StoreError(f"{place} {models}, or another place")
    return StoreError(
        f"{place} exists and holds no neighbours that croma-dask has kept, so it is left alone; "
        "name another place"
    )


def _models_in(place: Location) -> str:
    """Say whose neighbours a folder of a panel holds, and how one's are named; "" of any other.

    Only metadata of the folders in it is read.
    """
    try:
        names = place.names()
        if "zarr.json" in names:
            return ""
        folders = [place.joined(name) for name in names]
        there = sorted(
            one.name
            for one in folders
            if not (one.is_local and os.path.islink(one.url)) and standing(one)[0] in _KEPT
        )
    except OSError:
        return ""
    if not there:
        return ""
    named = name_items([unquote(name) for name in there])
    return f"holds the neighbours of {named}, a folder each: name one, as {place.joined(there[0])}"


def open_neighbors(
    path: str | os.PathLike[str] | Location, *, storage_options: Mapping[str, Any] | None = None
) -> xr.Dataset:
    """Open the neighbours that ``score(..., keep_neighbors=path)`` has left, lazily.

    Parameters
    ----------
    path
        Folder or URL.
    storage_options
        Options of the fsspec file system of a URL.

    Returns
    -------
    xarray.Dataset
        ``neighbor_index``, ``neighbor_distance (sample, neighbor)``: nearest rows of another
        group, int32 positions within the subset (under the design ``all``: manifest rows), -1
        behind the last, and their cosine distances, float64 in [0, 2], NaN behind the last.
        ``so_distance``, ``os_distance (sample, nearest)``: the same for the nearest SO and OS rows
        with regard to the confounder in ``attrs["confounder_column"]``. Either pair is there if it
        was needed. Under ``paired_2x2`` the occurrences of a subset begin at ``first_row
        (subset)``, and ``manifest_row (sample)`` says which rows they are. ``attrs``: fingerprints,
        design, k, m, index and its recall.

    Raises
    ------
    StoreError
        There are no kept neighbours, or they are unfinished or of a newer version; or the
        folder is that of several models, each of which has a folder in it.

    Notes
    -----
    Memory: metadata only, until values are asked for. Close the Dataset, or read what you need,
    before the same place is scored into again.
    """
    import xarray as xr

    place = Location.of(path, storage_options)
    status, attrs = standing(place)
    if status == "version":
        formats.check("neighbors", attrs.get("format_version"), str(place))
    problem = {
        "nothing": "there is nothing here",
        "foreign": "this holds no neighbours that croma-dask has kept",
        "unfinished": "these neighbours were not finished",
    }.get(status)
    models = _models_in(place) if status == "foreign" else ""
    if models:
        raise StoreError(f"{place} {models}")
    if problem is not None:
        raise StoreError(f"{place}: {problem}; score with keep_neighbors= (--keep-neighbors) first")
    check_kept(place)
    store: Any = place.zarr_store(read_only=True)
    if place.is_local:
        from croma_dask.cohort.checked_store import CheckedStore

        lists = [name for pair in ARRAYS.values() for name in pair]
        store = CheckedStore(place.url, mend=MEND, complete=lists)
    try:
        found = xr.open_dataset(
            store, engine="zarr", chunks=None, zarr_format=3, consolidated=not place.is_local
        )
        # It is of the folder, not of what it holds.
        found.attrs.pop(ATTR, None)
        return found
    except (StoreError, PermissionError):
        raise
    # There is no telling what zarr and xarray raise on metadata that nobody foresaw.
    except Exception as err:
        raise StoreError(f"{place} is damaged: {err}; {MEND}") from err
