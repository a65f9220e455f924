"""Where an index is built: in its place, or for a URL in scratch, from where it is uploaded."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from croma_dask import formats
from croma_dask.cohort.location import Location
from croma_dask.cohort.uploads import check_writable, is_unfinished, upload
from croma_dask.errors import MemoryLimitError, StoreError
from croma_dask.fingerprint import text_digest
from croma_dask.index.recipe import Recipe
from croma_dask.index.source import RowSource
from croma_dask.index.stored import COMPLETE, FORMAT, FORMAT_VERSION, WRITING, read_attrs
from croma_dask.memory import format_bytes
from croma_dask.one_writer import one_writer
from croma_dask.temporary import own_place, private_root

__all__ = ["build_place", "look"]

Found = Literal["nothing", "whole", "begun", "replaced"]


@contextlib.contextmanager
def build_place(
    location: Location, key: Mapping[str, Any], source: RowSource, recipe: Recipe, *,
    scratch: str | None, overwrite: bool, resume: bool,
) -> Iterator[Location | None]:  # fmt: skip
    """Yield where to build an index, and have it in its place when the block ends.

    Parameters
    ----------
    location
        Its place.
    key, source, recipe
        What it is of.
    scratch
        Folder in which one for a URL is built; all workers see it.
    overwrite, resume
        Whether a finished index that differs is replaced, and whether one that was started is
        gone on with.

    Yields
    ------
    Location or None
        The place itself, or a local folder; None where the very index is at the URL already. Only
        this process builds there meanwhile.

    Raises
    ------
    StoreError
        Something else lies at the place, or another process builds there, or the upload failed:
        what was built then stays in scratch for the next try.
    MemoryLimitError
        Scratch has no room for it.
    """
    if location.is_local:
        with one_writer(Path(location.url)):
            yield location
        return
    if look(location, key, overwrite=overwrite) == "whole":
        yield None
        return
    check_writable(location)
    name = text_digest("index", location.url, json.dumps(dict(key), sort_keys=True))[:32]
    folder = Path(scratch or private_root()) / f"build-{name}"
    local = Location.of(folder / (location.name or "index.zarr"))
    own_place(folder)
    with one_writer(Path(local.url)):
        if not resume:
            shutil.rmtree(local.url, ignore_errors=True)
        if not Path(local.url).exists():
            _check_room(folder, source, recipe)
        yield local
        # Hours later: what came to lie there meanwhile is not ours to delete.
        if look(location, key, overwrite=overwrite) != "whole":
            upload(Path(local.url), location)
        shutil.rmtree(local.url, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _check_room(folder: Path, source: RowSource, recipe: Recipe) -> None:
    needed = source.n_rows * source.n_features * source.dtype.itemsize
    if recipe.kind == "pynndescent":
        needed += 8 * source.n_rows * recipe.n_neighbors
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise MemoryLimitError(
            f"the index takes {format_bytes(needed)} on disk until it is uploaded, and "
            f"{str(folder.parent)!r} has {format_bytes(free)} free: name a folder with more room "
            "as scratch= (--scratch)"
        )


def look(location: Location, key: Mapping[str, Any], *, overwrite: bool) -> Found:
    """Look at what lies where an index shall be written.

    Returns
    -------
    str
        ``nothing``; ``whole``, the very one that is wanted; ``begun``, a part of it; ``replaced``,
        what may be.

    Raises
    ------
    StoreError
        Something that may not be replaced.
    """
    if location.is_file():
        raise StoreError(f"{location.url} is a file; name another place for the index")
    if not location.names():
        return "nothing"
    if is_unfinished(location):
        return "replaced"
    attrs = read_attrs(location)
    if attrs.get("format") != FORMAT:
        raise StoreError(
            f"{location.url} exists and is no index, so it is left alone; name another place"
        )
    if overwrite:
        return "replaced"
    formats.check("index", attrs.get("format_version"), location.url)
    # One that is older than the choice of a distance is of cosine ones.
    attrs = {"distance": "cosine", **attrs}
    differ = [name for name, value in key.items() if attrs.get(name) != value]
    # Whichever release built it: what is in it is what the version of its format says.
    elsewhere = "croma_dask_version" in differ
    differ = [name for name in differ if name != "croma_dask_version"]
    if differ:
        raise StoreError(
            f"{location.url} is another index ({', '.join(differ)} differ"
            f"{'s' * (len(differ) == 1)}: {attrs.get(differ[0])!r} there, {key[differ[0]]!r} "
            "asked for); pass overwrite=True (--overwrite) to replace it"
        )
    if attrs["format_version"] != FORMAT_VERSION:
        raise StoreError(
            f"{location.url} is an index of an older format version; pass overwrite=True "
            "(--overwrite) to replace it"
        )
    status = attrs.get("status")
    if status == COMPLETE:
        return "whole"
    # No release goes on from where another one stopped: it may build in another way.
    return "begun" if status == WRITING and not elsewhere else "replaced"
