"""Versions of what this library writes, and the one message for those that it cannot read.

Everything that is written to stay says which version of its format it is of: cohort stores,
indexes and kept neighbours as the attribute ``format_version``, results as the same attribute
where they are files, the record of a benchmark as ``format``. A number is raised only when an
older release would misread what a newer one writes; what an older reader may ignore is added
without. Newer releases read all older versions (docs/compatibility.md).

Scratch is not meant to stay, and no release goes on from what another one left: the name of its
folder is a digest of the release and of a number, ``FORMAT``, in the module that fills it.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Literal

from croma_dask.errors import StoreError

__all__ = ["ATTR", "UPGRADE", "VERSIONS", "Kind", "check", "check_result", "is_read"]

Kind = Literal["cohort", "index", "neighbors", "result", "record"]

VERSIONS: dict[Kind, int] = {
    "cohort": 1,
    "index": 1,
    "neighbors": 1,
    "result": 1,
    "record": 1,
}
"""The version that this release writes, and the highest that it reads."""

ATTR = "format_version"
"""Where stores and results say their version."""

UPGRADE = "pip install --upgrade croma-dask"

_CALLED: dict[Kind, str] = {
    "cohort": "a cohort store",
    "index": "an index",
    "neighbors": "kept neighbours",
    "result": "a result",
    "record": "a benchmark's record",
}


def is_read(kind: Kind, found: object) -> bool:
    """Whether this is a version that this release reads."""
    number = _number(found)
    return number is not None and 1 <= number <= VERSIONS[kind]


def check(kind: Kind, found: object, url: str) -> None:
    """Check that this release can read a version of a format.

    Parameters
    ----------
    kind
        What it is a version of.
    found
        What is said where the version has to stand; an integer from 1.
    url
        Names the thing in the error.

    Raises
    ------
    StoreError
        A newer version: names both, and the command that upgrades. Or no version at all.
    """
    if is_read(kind, found):
        return
    number = _number(found)
    if number is not None and number > 1:
        raise StoreError(
            f"{url} is {_CALLED[kind]} of format version {found}, which a newer release of "
            f"croma-dask wrote; this release reads versions up to {VERSIONS[kind]}: {UPGRADE}"
        )
    raise StoreError(
        f"{url} is damaged, or was not written by croma-dask: {_CALLED[kind]} says its format "
        f"version, an integer from 1, and this has {_shown(found)}"
    )


def check_result(attrs: Mapping[Any, Any], url: str) -> None:
    """Check that this release can read the file of a result, or a node of it.

    Parameters
    ----------
    attrs
        Of the file or the node; those of somebody else's file are let pass.
    url
        Names the file in the error.

    Raises
    ------
    StoreError
        As :func:`check`. Without a version it is of version 1: 0.1.0 wrote none.
    """
    if "croma_dask_version" not in attrs:
        return
    found = attrs.get(ATTR, 1)
    if hasattr(found, "tolist"):  # netCDF has arrays of one number
        found = found.tolist()
        found = found[0] if isinstance(found, list) and len(found) == 1 else found
    check("result", found, url)


def _number(found: object) -> int | None:
    return int(found) if isinstance(found, Integral) and not isinstance(found, bool) else None


def _shown(found: object) -> str:
    text = "none" if found is None else repr(found)
    return text if len(text) <= 40 else text[:37] + "..."
