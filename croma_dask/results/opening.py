"""Open a result that was saved, whatever it is of."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import formats
from croma_dask.cohort.claims import check_netcdf, check_zarr
from croma_dask.cohort.location import Location
from croma_dask.cohort.outside import check_links
from croma_dask.cohort.readers.hdf5_vetting import vet
from croma_dask.cohort.transfer import fetched
from croma_dask.cohort.uploads import is_unfinished
from croma_dask.errors import SchemaError, StoreError
from croma_dask.results.netcdf_texts import LazyText, texts_along_sample
from croma_dask.results.seals import check_file, check_folder, is_sealed
from croma_dask.results.targets import attrs_of_folder, is_ours, is_result
from croma_dask.schema import COORDINATES, METRICS, variables_of
from croma_dask.schema_panel import FACTS, RANKS

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["open_result"]

TABLES = (".csv", ".json")


def open_result(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> xr.DataTree | xr.Dataset:
    """Open a result that :func:`croma_dask.results.save` or ``--out`` has written.

    Parameters
    ----------
    path
        A ``.zarr`` folder or a ``.nc`` file, as a path or an fsspec URL. What lies at a URL is
        copied into a private folder under the temporary one, and read from there; the copy goes
        when the result is closed, or with this process.
    storage_options
        Options of the fsspec file system of a URL.

    Returns
    -------
    xarray.DataTree or xarray.Dataset
        As it was saved: a tree with a node a metric of :func:`croma_dask.score`, of one model or
        several, and of what is made of that; a Dataset of one metric, a probe sweep, a benchmark.
        Variables along `sample` are dask arrays and read when they are asked for; everything else
        is read at once. Texts are Python strings. Close it, or use it as a context manager, before
        the file is replaced.

    Raises
    ------
    StoreError
        There is nothing, or it is no result: a cohort store, an index, kept neighbours, a table
        (``.csv``, ``.json``: these hold numbers only), or somebody else's file. Says which. Or a
        newer release wrote it, in a version of the format that this one cannot read.

    Notes
    -----
    Memory: what has no dim `sample`; of ten million samples and 12 models a few kilobytes. Nothing
    is unpickled.
    """
    location = Location.of(path, storage_options)
    if location.is_local:
        result, close = _open_here(Path(location.url), str(path))
        result.set_close(close)
        return result  # type: ignore[no-any-return]
    with contextlib.ExitStack() as keep:
        _check_remote(location)
        result, close = _open_here(keep.enter_context(fetched(location)), location.url)
        keep.callback(close)
        opened = keep.pop_all()
    result.set_close(opened.close)
    # Nobody has to close a result, and its parts outlive it.
    atexit.register(opened.close)
    opened.callback(atexit.unregister, opened.close)
    return result  # type: ignore[no-any-return]


def _check_remote(location: Location) -> None:
    """Refuse what is no result before it is copied: a cohort may be large."""
    about = location.about()
    if about is None:
        raise StoreError(f"there is no result at {location.url!r}")
    if about["type"] == "directory":
        if is_unfinished(location):
            raise StoreError(
                f"the result at {location.url!r} was not written to its end; write it again"
            )
        _check_folder(location, location.url)
    elif Path(location.name).suffix in TABLES:
        raise _table(location.url)


def _open_here(place: Path, name: str) -> tuple[Any, Callable[[], None]]:
    """Open a result on this machine, which messages call by a name; and what closes it."""
    import xarray as xr

    source: Any
    if not place.exists():
        raise StoreError(f"there is no result at {name!r}")
    if place.is_dir():
        engine = "zarr"
        check_links(Location.of(place))
        _check_folder(place, name)
        check_zarr(Location.of(place), repr(name))
        source = _checked_store(place, name)
    else:
        engine = "h5netcdf"
        _vet(place)
        check_file(place, name)
        _check_file(place, name)
        check_netcdf(place, repr(name))
        source = place
    try:
        texts = texts_along_sample(place) if engine == "h5netcdf" else {}
        # Dask arrays in the pieces that the file has: xarray's own lazy arrays are read whole by
        # the first thing that looks at them.
        tree = xr.open_datatree(
            source, engine=engine, chunks={}, cache=False,
            drop_variables=sorted({key for found in texts.values() for key in found}),
        )  # fmt: skip
        opened = {
            node.path: _readable(
                _with_texts(node.to_dataset(inherit=False), texts.get(node.path, {}))
            )
            for node in tree.subtree
        }
        # Files give the nodes by the alphabet.
        order = {f"/{metric}": at for at, metric in enumerate(METRICS)}
        opened = dict(sorted(opened.items(), key=lambda item: order.get(item[0], -1)))
        result: Any = opened["/"] if len(opened) == 1 else xr.DataTree.from_dict(opened)
    except (StoreError, PermissionError):
        raise
    # There is no telling what libraries raise on files that their authors did not foresee.
    except Exception as err:
        raise StoreError(f"{name!r} is damaged, or no result of croma-dask: {err}") from err
    return result, tree.close


def _checked_store(place: Path, name: str) -> Any:
    """Return what zarr reads a folder through, once its seal was looked at."""
    from croma_dask.cohort.checked_store import CheckedStore

    check_folder(place, name)
    mend = "compute it again, or take a copy"
    # Whoever writes the version writes every chunk, too: a seal may be lost on the way.
    whole = is_sealed(place) or formats.ATTR in (attrs_of_folder(Location.of(place)) or {})
    return CheckedStore(place, mend=mend, complete=whole)


def _check_folder(given: Path | Location, name: str) -> None:
    place = Location.of(given)
    attrs = attrs_of_folder(place)
    if attrs is None:
        if "zarr.json" in place.names():
            raise _foreign(name, "its metadata (zarr.json) are damaged, or are of no group")
        raise _foreign(name, "it is a folder without a Zarr group")
    form = attrs.get("format")
    if form is None:
        if not is_result(place):
            raise _foreign(name, "it is a Zarr group of something else")
        for node in (place, *(place.joined(metric) for metric in METRICS)):
            formats.check_result(attrs_of_folder(node) or {}, repr(name))
        return
    what = {
        "croma-dask cohort": "a cohort store: score it first (croma-dask score)",
        "croma-dask index": "an index: croma-dask score --index uses it",
        "croma-dask neighbors": "kept neighbours: croma_dask.open_neighbors opens them",
    }.get(str(form), f"of the format {form!r}")
    raise StoreError(f"expected a saved result at {name!r}; found {what}")


def _vet(place: Path) -> None:
    """Refuse what would bring this process down."""
    try:
        vet([os.fspath(place)])
    except SchemaError as err:
        raise StoreError(str(err)) from err


def _check_file(place: Path, name: str) -> None:
    import h5py

    if place.suffix in TABLES:
        raise _table(name)
    # Looked at before xarray does: its messages and warnings about other files are of other things.
    try:
        with h5py.File(place) as file:
            # Links, which lead anywhere, are no groups of ours.
            own = [m for m in METRICS if isinstance(file.get(m, getlink=True), h5py.HardLink)]
            attrs = [dict(file.attrs), *(dict(file[m].attrs) for m in own)]
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as err:
        with place.open("rb") as plain:
            if plain.read(8) == b"\x89HDF\r\n\x1a\n":
                raise StoreError(f"{name!r} is damaged: {err}") from err
        raise _foreign(name, "it is no netCDF 4 file") from err
    if not any(map(is_ours, attrs)):
        raise _foreign(name, "it is an HDF5 file of something else")
    for node in attrs:
        formats.check_result(node, repr(name))


def _table(name: str) -> StoreError:
    return StoreError(
        f"{name!r} holds a result's numbers only, and cannot be opened as a result: save it as "
        ".zarr or .nc (--out)"
    )


def _foreign(name: str, found: str) -> StoreError:
    return StoreError(
        f"{name!r} is no result of croma-dask" + (f": {found}" if found else "")
        + "; expected what --out or croma_dask.results.save has written as .zarr or .nc"
    )  # fmt: skip


def _with_texts(dataset: xr.Dataset, texts: Mapping[str, LazyText]) -> xr.Dataset:
    """Put the texts along `sample` back that xarray was not to look at."""
    found = dataset.assign({name: text.variable for name, text in texts.items()})
    return found.set_coords([name for name, text in texts.items() if text.is_coordinate])


def _readable(dataset: xr.Dataset) -> xr.Dataset:
    """Read what is small, and make texts Python strings, whose length nothing limits."""
    import xarray as xr

    small = [key for key, variable in dataset.variables.items() if "sample" not in variable.dims]
    # All of them at once: one by one each would be a graph of its own.
    read = dataset.reset_coords()[small].load().variables
    found: dict[str, xr.Variable] = {}
    for key, variable in dataset.variables.items():
        variable = read.get(key, variable)
        if variable.dtype.kind in "UT":
            data = variable.data if "sample" in variable.dims else np.asarray(variable.values)
            variable = xr.Variable(variable.dims, data.astype(object), variable.attrs)
        found[str(key)] = variable
    for variable in found.values():
        variable.attrs = _plain(variable.attrs)
    coords = {str(key): found.pop(str(key)) for key in dataset.coords}
    # Files give variables by the alphabet, too: first those that are declared, as declared.
    metric = dataset.attrs.get("metric")
    if metric in METRICS:
        found = _ordered(found, (*variables_of(metric, approximate=True), *RANKS))
        # Of a panel `k` is along the models, as its facts are.
        first = ("model", "k", *FACTS) if "model" in coords else ()
        coords = _ordered(coords, (*first, *COORDINATES))
    # What the file says of itself is not the result's.
    attrs = {name: value for name, value in dataset.attrs.items() if name != formats.ATTR}
    return xr.Dataset(found, coords, _plain(attrs))


def _ordered(variables: Mapping[str, xr.Variable], first: Sequence[str]) -> dict[str, xr.Variable]:
    return {name: variables[name] for name in (*first, *variables) if name in variables}


def _plain(attrs: Mapping[Any, Any]) -> dict[Any, Any]:
    """Attributes as they were before they were written: netCDF has arrays and numpy's numbers."""
    return {name: _plain_value(value) for name, value in attrs.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    # Texts of a fixed length, as other programs write them, and those that are no UTF-8.
    if isinstance(value, str) and not value.isascii():
        value = value.encode("utf-8", "surrogateescape")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
