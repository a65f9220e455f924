"""Keeping the neighbours of a search: written beside the place, then put there in one go."""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import memory, schema
from croma_dask.cohort.checksums import codecs, seal
from croma_dask.cohort.design import Scope
from croma_dask.cohort.location import Location
from croma_dask.cohort.uploads import check_writable
from croma_dask.errors import MemoryLimitError, SchemaError
from croma_dask.index import kept as layout
from croma_dask.index.kept_lists import Kept
from croma_dask.index.neighbors import Neighbors, grid_rows
from croma_dask.index.profile import Profile
from croma_dask.index.spec import ListSpec
from croma_dask.temporary import private_root
from croma_dask.whole_folders import beside, put

if TYPE_CHECKING:
    import zarr

__all__ = ["check_place", "keep_neighbors"]


def check_place(location: Location, n_rows: int, spec: ListSpec) -> None:
    """Check, before anything long runs, that neighbours can be kept at a place.

    Raises
    ------
    StoreError
        Something else is there, or what a newer release has kept.
    SchemaError
        Its folder is not there, or nothing may be written into it.
    MemoryLimitError
        The disk has no room for the lists.
    """
    layout.refuse(location)
    if location.is_local:
        folder = Path(location.url).parent
        _check_folder(location)
        advice = "name another place as keep_neighbors= (--keep-neighbors)"
    else:
        # They are written here first, and uploaded as a whole.
        folder = Path(private_root())
        check_writable(location)
        advice = "set TMPDIR to a folder with more room"
    needed = n_rows * (12 * spec.n_global + 16 * spec.n_typed)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise MemoryLimitError(
            f"the neighbours to keep take {memory.format_bytes(needed)} on disk, and "
            f"{str(folder)!r} has {memory.format_bytes(free)} free: {advice}"
        )


def _check_folder(place: Location) -> None:
    parent = Path(place.url).parent
    if not parent.is_dir():
        raise SchemaError(f"the folder of {place.url!r} does not exist; make it first")
    if not os.access(parent, os.W_OK):
        raise SchemaError(f"nothing may be written into the folder of {place.url!r}")


def keep_neighbors(
    place: Path, key: layout.Key, scopes: Sequence[Scope], found: Sequence[Neighbors],
    spec: ListSpec, profile: Profile, about: Mapping[str, Any], *, typed_key: str,
    old: Kept | None,
) -> bool:  # fmt: skip
    """Keep the lists of a search, in the place of those that are there.

    Parameters
    ----------
    place
        Local folder.
    key, typed_key
        What the lists depend on; label and confounder of the typed ones.
    scopes, found
        Scopes, and the neighbours that were searched, one a scope.
    spec
        Lengths of the lists that were searched; what has none is taken over from `old`.
    profile
        What the first pass has seen.
    about
        Further attributes, the names of the columns of label and confounder among them.
    old
        Kept neighbours with the same key.

    Returns
    -------
    bool
        Whether they were put there: not where another run has meanwhile replaced what would have
        been taken over.

    Notes
    -----
    Memory: a chunk an array (2 MiB). What is taken over is linked, not copied, where the file
    system can. A reader sees the old neighbours or the new ones; see :class:`Kept` for one that is
    in the middle of it.
    """
    n_rows = sum(len(scope) for scope in scopes)
    attrs = {
        "format": layout.FORMAT, "format_version": layout.FORMAT_VERSION, "status": layout.WRITING,
        **key.attrs(), **about, "n_rows": n_rows, "k": 0, "m": 0, "typed_fingerprint": "",
        "n_tiles": profile.n_rows, "n_zero_rows": profile.n_zero, "spread": profile.spread,
        "first_zero_rows": list(profile.first_zero), "global_id": "", "typed_id": "",
        **dict.fromkeys(_COLUMNS, ""),
    }  # fmt: skip
    fresh: dict[layout.Part, int] = {"global": spec.n_global, "typed": spec.n_typed}
    with beside(place) as partial:
        root = _group(partial, attrs)
        _write_scopes(root, scopes, profile)
        for part, width in fresh.items():
            if width:
                _write_part(root, part, scopes, found, n_rows, width)
                attrs[f"{part}_id"] = uuid.uuid4().hex
                attrs["k" if part == "global" else "m"] = width
                if part == "typed":
                    attrs |= {"typed_fingerprint": typed_key, **{n: about[n] for n in _COLUMNS}}
            elif old is not None and old.attrs[f"{part}_id"]:
                if not _take_over(old, part, partial):
                    return False
                names = ["k"] if part == "global" else ["m", "typed_fingerprint", *_COLUMNS]
                attrs |= {name: old.attrs[name] for name in (*names, f"{part}_id")}
        attrs["created"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        seal(Location.of(partial), attrs | {"status": layout.COMPLETE})
        put(partial, place, check=lambda there: layout.refuse(Location.of(there)))
    return True


_COLUMNS = ("label_column", "confounder_column")
"""What the typed lists were searched for; empty where there are none."""


def _take_over(old: Kept, part: layout.Part, partial: Path) -> bool:
    """Link the arrays of a part; says whether they are still those that were opened."""
    try:
        for name in layout.ARRAYS[part]:
            shutil.copytree(Path(old.place.url, name), partial / name, copy_function=_link)
    except OSError as err:
        if old.holds(part):
            raise old.damaged(f"its {part} lists cannot be read ({err})") from err
        return False
    return bool(old.holds(part))


def _group(partial: Path, attrs: dict[str, Any]) -> zarr.Group:
    import zarr
    from zarr.storage import LocalStore

    return zarr.open_group(LocalStore(partial), mode="a", zarr_format=3, attributes=attrs)


def _write_scopes(root: zarr.Group, scopes: Sequence[Scope], profile: Profile) -> None:
    """Write what says which rows these are, and where the embedding has its centre."""
    starts = np.cumsum([0, *(len(scope) for scope in scopes)])[:-1].astype(np.int64)
    _vector(root, "first_row", starts)
    _vector(root, "unit_sum", profile.unit_sum)
    if all(scope.rows is not None for scope in scopes):
        _vector(root, "manifest_row", np.concatenate([scope.rows for scope in scopes]))
    names = root.create_array(
        "subset", shape=(len(scopes),), dtype="string", chunks=(len(scopes),), fill_value="",
        compressors=codecs(compress=True), dimension_names=("subset",),
        attributes={"long_name": "subset"},
    )  # fmt: skip
    names[:] = np.array([scope.name for scope in scopes], dtype=object)


def _vector(root: zarr.Group, name: str, values: Any) -> None:
    declared = schema.NEIGHBORS[name]
    stored = root.create_array(
        name, shape=values.shape, chunks=(max(1, min(values.size, 1 << 20)),), dtype=values.dtype,
        compressors=codecs(compress=True), fill_value=np.nan if values.dtype.kind == "f" else -1,
        dimension_names=declared.dims, attributes=declared.attrs(),
    )  # fmt: skip
    stored[:] = values


def _write_part(
    root: zarr.Group, part: layout.Part, scopes: Sequence[Scope], found: Sequence[Neighbors],
    n_rows: int, width: int,
) -> None:  # fmt: skip
    names = layout.ARRAYS[part]
    arrays = []
    for name in names:
        declared = schema.NEIGHBORS[name]
        dtype = np.dtype(np.int32 if declared.kind == "i" else np.float64)
        arrays.append(
            root.create_array(
                name, shape=(n_rows, width), chunks=(max(1, min(n_rows, grid_rows(width))), width),
                dtype=dtype, fill_value=layout.NOT_WRITTEN[dtype.kind],
                compressors=codecs(compress=False),
                dimension_names=declared.dims, attributes=declared.attrs(),
            )
        )  # fmt: skip
    buffers = [np.empty(array.chunks, array.dtype) for array in arrays]
    at = 0
    for rows in _rows_of(part, found):
        start = 0
        while start < rows[0].shape[0]:
            offset = at % buffers[0].shape[0]
            stop = min(rows[0].shape[0], start + buffers[0].shape[0] - offset)
            end = offset + stop - start
            for buffer, values in zip(buffers, rows, strict=True):
                # A scope too small for lists of this length has none of what lies behind.
                buffer[offset:end] = -1 if buffer.dtype.kind == "i" else np.nan
                buffer[offset:end, : values.shape[1]] = values[start:stop]
            at += stop - start
            start = stop
            if end == buffers[0].shape[0] or at == n_rows:
                for array, buffer in zip(arrays, buffers, strict=True):
                    array[at - end : at] = buffer[:end]


def _rows_of(part: layout.Part, found: Iterable[Neighbors]) -> Iterator[tuple[Any, Any]]:
    """Rows of both arrays of a part, a block at a time."""
    for neighbors in found:
        if part == "global":
            yield from ((block.index, block.distance) for block in neighbors.blocks())
        else:
            yield from ((block.so, block.os) for block in neighbors.typed_blocks())


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError as err:
        if err.errno == errno.ENOENT:
            raise
        shutil.copyfile(source, target)  # no links here, or none from there
