"""A store's folder holds all that is its own: symbolic links in it are not followed."""

from __future__ import annotations

import os
from pathlib import Path

from croma_dask.cohort.location import Location
from croma_dask.errors import StoreError, name_items

__all__ = ["check_links"]


def check_links(place: Location) -> None:
    """Refuse a local folder with a symbolic link in it.

    What a link points to would be read as the store's own: a store from somebody else could show
    its reader's files in results that are handed on, or lead in a circle. The folder itself may be
    a link.

    Parameters
    ----------
    place
        Of a store. URLs have no links.

    Raises
    ------
    StoreError
        There is a link.

    Notes
    -----
    Looks at names alone: 50 ms for the 2,442 chunks of ten million rows (measured, on a busy core).
    """
    if not place.is_local:
        return
    root = os.path.realpath(place.url)
    links = _links(root)
    if links:
        shown = name_items(sorted(str(Path(link).relative_to(root)) for link in links))
        raise StoreError(
            f"{place.url}: there are symbolic links in this folder ({shown}), which are not "
            "followed; put copies in their place if what they lead to belongs there"
        )


def _links(folder: str) -> list[str]:
    found, folders = [], [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        found.append(entry.path)
                    elif entry.is_dir():
                        folders.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            # Another run is just replacing it; whoever opens it says what is there.
            continue
    return found
