"""Results as files: written beside their place first, so that they are there whole or not."""

from __future__ import annotations

import errno
import json
import os
import uuid
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import formats
from croma_dask.cohort.transfer import published
from croma_dask.embedding.tables import frame_lines
from croma_dask.errors import StoreError
from croma_dask.memory import format_bytes
from croma_dask.results.seals import add_checksums, seal_file, seal_folder
from croma_dask.results.tables import as_json, to_frame
from croma_dask.results.targets import check_place, check_target, is_ours

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["save"]


def save(
    result: xr.Dataset | xr.DataTree,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a result, whole or not at all.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` returned (of one model or of several), or anything made of
        it; a probe sweep; an embedding benchmark; ranks.
    path
        Path or fsspec URL. ``.zarr`` or ``.nc``: everything, labelled; ``.csv``:
        :func:`~croma_dask.results.to_frame`; ``.json``: the same by metric.
    overwrite
        Replace what is there.
    storage_options
        Options of the fsspec file system of a URL. What goes there is written into a private
        folder under the temporary one first.
    """
    location = check_target(path, overwrite=overwrite, storage_options=storage_options)

    def again() -> None:
        # Somebody else may have put something there meanwhile.
        check_place(location, overwrite=overwrite)

    with published(location, overwrite=overwrite, check=again) as target:
        if target.suffix == ".zarr":
            _write_zarr(result, target)
        elif target.suffix == ".nc":
            written = _writable(result, lazy=False)
            add_checksums(written, netcdf=True)
            _check_room(written, target)
            written.to_netcdf(target, engine="h5netcdf")
            seal_file(target)
        elif target.suffix == ".csv":
            text = "".join(frame_lines(to_frame(result)))
            target.write_text(text, encoding="utf-8", newline="")
        else:
            text = json.dumps(as_json(result), indent=1, allow_nan=False, ensure_ascii=False)
            target.write_text(text + "\n", encoding="utf-8")


def _write_zarr(result: Any, place: Path) -> None:
    with warnings.catch_warnings():
        # Consolidated, so that plain xarray opens it: zarr warns that version 3 of the format does
        # not describe that yet. This one warning, and no other.
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently")
        written = _writable(result, lazy=True)
        add_checksums(written, netcdf=False)
        # With those of nothing but fill values: one that is missing is damage then.
        written.to_zarr(place, mode="w", consolidated=True, write_empty_chunks=True)
    seal_folder(place)


def _check_room(result: Any, target: Path) -> None:
    """Refuse a netCDF file that the disk has no room for.

    The HDF5 library says so itself, and brings the process down when it ends.
    """
    needed = 1 << 16
    for node in getattr(result, "subtree", [result]):
        for variable in node.variables.values():
            needed += variable.nbytes
            if variable.dtype.kind == "O":
                needed += sum(len(str(text)) + 16 for text in variable.values.ravel())
    room = target.with_name(f"{uuid.uuid4().hex}.room")
    try:
        with open(room, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, needed)
    except OSError as err:
        if err.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return  # a file system on which nothing can be reserved
        raise StoreError(
            f"the disk of {target.name} has no room for it: about {format_bytes(needed)} are "
            "needed; make room, or name another place"
        ) from err
    finally:
        room.unlink(missing_ok=True)


def _writable(result: Any, *, lazy: bool) -> Any:
    """Return a result as it can be written, whatever it was read from, with its format's version.

    How long texts were and how they were cut up in another file is forgotten: netCDF would write
    longer ones cut to that length, without a word. Texts that are lazy stay so where a file can
    take them piece by piece.
    """
    written = result.copy()
    for node in getattr(written, "subtree", [written]):
        if is_ours(node.attrs) or node is written:
            node.attrs = {**node.attrs, formats.ATTR: formats.VERSIONS["result"]}
        for name, variable in node.variables.items():
            if variable.dtype.kind in "OUT":
                variable.encoding = {}
            for key in ("chunks", "preferred_chunks", "shards"):
                variable.encoding.pop(key, None)
            is_lazy = hasattr(variable.data, "dask")
            if variable.dtype.kind not in "OUT" or not (is_lazy or variable.dtype.kind == "U"):
                continue
            if name in node.indexes:
                continue
            if is_lazy and lazy:
                variable.data = variable.data.astype(np.dtypes.StringDType())
            else:
                variable.data = np.asarray(variable.data).astype(object)
    return written
