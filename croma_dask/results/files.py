"""Results as files: written beside their place first, so that they are there whole or not."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import SchemaError
from croma_dask.index import swap
from croma_dask.results.tables import as_json, to_frame
from croma_dask.schema import METRICS
from croma_dask.whole_files import replacing

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["FORMATS", "attrs_of_folder", "check_target", "is_ours", "is_result", "save"]

FORMATS = (".zarr", ".nc", ".csv", ".json")


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Check where a result is to go, before it is computed.

    Raises
    ------
    SchemaError
        The ending is none of :data:`FORMATS`, the folder is not there, or something is there
        already that may not be overwritten: only results ever are.
    """
    target = Path(path)
    if target.suffix not in FORMATS:
        raise SchemaError(
            f"result {str(path)!r} ends in {target.suffix!r}; expected one of {', '.join(FORMATS)}"
        )
    if not target.absolute().parent.is_dir():
        raise SchemaError(f"the folder of {str(path)!r} does not exist; make it first")
    if not os.access(target.absolute().parent, os.W_OK):
        raise SchemaError(f"nothing may be written into the folder of {str(path)!r}")
    if not target.exists():
        return target
    if not overwrite:
        raise SchemaError(
            f"{str(path)!r} exists already; remove it or pass overwrite=True (--overwrite)"
        )
    if target.is_dir() != (target.suffix == ".zarr") or (target.is_dir() and not is_result(target)):
        raise SchemaError(
            f"{str(path)!r} exists and is no result of croma-dask: it is not overwritten; choose "
            "another name or remove it yourself"
        )
    return target


def save(
    result: xr.Dataset | xr.DataTree, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Write a result, whole or not at all.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` returned (of one model or of several), or anything made of
        it; a probe sweep; an embedding benchmark; ranks.
    path
        ``.zarr`` or ``.nc``: everything, labelled; ``.csv``: :func:`~croma_dask.results.to_frame`;
        ``.json``: the same by metric.
    overwrite
        Replace what is there.
    """
    target = check_target(path, overwrite=overwrite)
    if target.suffix == ".zarr":
        with swap.beside(target) as folder:
            # Not the folder itself: it is locked, and writing begins with an empty place.
            partial = folder / "result"
            _write_zarr(result, partial)
            # Somebody else may have put something there meanwhile.
            swap.put(partial, target, check=lambda place: _check_again(place, overwrite=overwrite))
        return
    with replacing(target) as file:
        if target.suffix == ".nc":
            _writable(result, lazy=False).to_netcdf(file, engine="h5netcdf")
        elif target.suffix == ".csv":
            to_frame(result).to_csv(file, index=False)
        else:
            text = json.dumps(as_json(result), indent=1, allow_nan=False, ensure_ascii=False)
            file.write_text(text + "\n", encoding="utf-8")


def _write_zarr(result: Any, place: Path) -> None:
    with warnings.catch_warnings():
        # Consolidated, so that plain xarray opens it: zarr warns that version 3 of the format does
        # not describe that yet. This one warning, and no other.
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently")
        _writable(result, lazy=True).to_zarr(place, mode="w", consolidated=True)


def _check_again(place: Path, *, overwrite: bool) -> None:
    check_target(place, overwrite=overwrite)


def is_ours(attrs: Mapping[Any, Any]) -> bool:
    """Whether these are the attributes of a result of this library.

    Its stores (cohorts, indexes, kept neighbours) say of which format they are, and results none.
    """
    return "croma_dask_version" in attrs and "format" not in attrs


def attrs_of_folder(folder: Path) -> dict[str, Any] | None:
    """Attributes of a Zarr group; None where there is none."""
    try:
        about = json.loads((folder / "zarr.json").read_text())
        return dict(about.get("attributes", {})) if about["node_type"] == "group" else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_result(folder: Path) -> bool:
    """Whether a folder is a result that this library wrote."""
    # A tree that somebody put together has the attributes at its metrics.
    places = [folder, *(folder / name for name in METRICS)]
    return any(is_ours(attrs_of_folder(place) or {}) for place in places)


def _writable(result: Any, *, lazy: bool) -> Any:
    """Return a result as it can be written, whatever it was read from.

    How long texts were and how they were cut up in another file is forgotten: netCDF would write
    longer ones cut to that length, without a word. Texts that are lazy stay so where a file can
    take them piece by piece.
    """
    written = result.copy()
    for node in getattr(written, "subtree", [written]):
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
