"""Neighbours that a search has left on disk: what they depend on, where they lie, opening them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from croma_dask.errors import SchemaError, StoreError, name_items

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "ARRAYS",
    "FORMAT",
    "FORMAT_VERSION",
    "NOT_WRITTEN",
    "Key",
    "Part",
    "foreign",
    "local_path",
    "open_neighbors",
    "standing",
]

FORMAT = "croma-dask neighbors"
FORMAT_VERSION = 1
WRITING, COMPLETE = "writing", "complete"
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


def standing(path: Path) -> tuple[str, dict[str, Any]]:
    """Look at what lies at a place.

    Returns
    -------
    status, attrs
        ``nothing``, ``foreign``, ``version`` (of another layout), ``unfinished``, ``complete``.
    """
    try:
        if not os.listdir(path):
            return "nothing", {}
        attrs = json.loads((path / "zarr.json").read_bytes()).get("attributes", {})
    except FileNotFoundError:
        return ("foreign" if path.exists() else "nothing"), {}
    except (OSError, ValueError, AttributeError):
        return "foreign", {}
    if attrs.get("format") != FORMAT:
        return "foreign", {}
    if attrs.get("format_version") != FORMAT_VERSION:
        return "version", attrs
    return ("complete" if attrs.get("status") == COMPLETE else "unfinished"), attrs


def foreign(path: Path) -> StoreError:
    """Return the error for a place that holds something else."""
    models = _models_in(path)
    if models:
        return StoreError(f"{path} {models}, or another place")
    return StoreError(
        f"{path} exists and holds no neighbours that croma-dask has kept, so it is left alone; "
        "name another place"
    )


def _models_in(path: Path) -> str:
    """Say whose neighbours a folder of a panel holds, and how one's are named; "" of any other.

    Only metadata of the folders in it is read.
    """
    try:
        if (path / "zarr.json").exists() or not path.is_dir():
            return ""
        there = sorted(one.name for one in path.iterdir() if standing(one)[0] in _KEPT)
    except OSError:
        return ""
    if not there:
        return ""
    named = name_items([unquote(name) for name in there])
    return f"holds the neighbours of {named}, a folder each: name one, as {path / there[0]}"


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return the place of kept neighbours: a local folder, so that it can be replaced at once.

    Raises
    ------
    SchemaError
        A URL.
    """
    text = os.fspath(path)
    if "://" in text:
        raise SchemaError(
            f"neighbours are kept in a local folder, found {text!r}: an object store cannot "
            "replace a folder at once"
        )
    return Path(os.path.abspath(os.path.expanduser(text)))


def open_neighbors(path: str | os.PathLike[str]) -> xr.Dataset:
    """Open the neighbours that ``score(..., keep_neighbors=path)`` has left, lazily.

    Parameters
    ----------
    path
        Local folder.

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
        There are no kept neighbours, or they are unfinished or of another layout version; or the
        folder is that of several models, each of which has a folder in it.

    Notes
    -----
    Memory: metadata only, until values are asked for. Close the Dataset, or read what you need,
    before the same place is scored into again.
    """
    import xarray as xr

    place = local_path(path)
    status, attrs = standing(place)
    problem = {
        "nothing": "there is nothing here",
        "foreign": "this holds no neighbours that croma-dask has kept",
        "unfinished": "these neighbours were not finished",
        "version": f"these neighbours have the layout version {attrs.get('format_version')}, and "
        f"this release reads {FORMAT_VERSION}",
    }.get(status)
    models = _models_in(place) if status == "foreign" else ""
    if models:
        raise StoreError(f"{place} {models}")
    if problem is not None:
        raise StoreError(f"{place}: {problem}; score with keep_neighbors= (--keep-neighbors) first")
    return xr.open_dataset(place, engine="zarr", chunks=None, consolidated=False)
