"""What lies at a URL: the entries of a folder, and the matches of a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator

from croma_dask.cohort.location import Location

__all__ = ["children", "has_magic", "matches"]

_MAGIC = re.compile(r"[*?\[]")

Entry = tuple[Location, bool]
"""A place, and whether it is a file."""


def has_magic(text: str) -> bool:
    """Whether a path is a pattern with ``*``, ``?`` or ``[...]``."""
    return bool(_MAGIC.search(text))


def children(folder: Location) -> Iterator[Entry]:
    """Yield what lies directly in a folder, sorted by name, and whether it is a file."""
    fs, path = folder.filesystem()
    fs.invalidate_cache()
    entries = folder.tried(lambda: fs.ls(path, detail=True))
    found = {str(entry["name"]).rstrip("/"): entry["type"] == "file" for entry in entries}
    # A folder that was made in a console is an empty object with the folder's own name.
    found.pop(path.rstrip("/"), None)
    for name in sorted(found):
        yield folder.joined(name.rsplit("/", 1)[-1]), found[name]


def matches(pattern: Location) -> Iterator[Entry]:
    """Yield what a pattern matches, sorted by name, and whether it is a file."""
    start = _MAGIC.search(pattern.url)
    fixed = pattern.url[: start.start() if start else None].rpartition("/")[0]
    base = Location(fixed, pattern.token)
    fs, path = pattern.filesystem()
    fs.invalidate_cache()
    found = pattern.tried(lambda: fs.glob(path, detail=True))
    _, base_path = base.filesystem()
    for name in sorted(found):
        inside = str(name)[len(base_path) :].strip("/")
        yield base.joined(inside), found[name]["type"] == "file"
