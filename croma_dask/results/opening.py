"""Open a result that was saved, whatever it is of."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import StoreError
from croma_dask.results.files import attrs_of_folder, is_ours, is_result
from croma_dask.results.netcdf_texts import LazyText, texts_along_sample
from croma_dask.schema import COORDINATES, METRICS, variables_of
from croma_dask.schema_panel import FACTS, RANKS

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["open_result"]


def open_result(path: str | os.PathLike[str]) -> xr.DataTree | xr.Dataset:
    """Open a result that :func:`croma_dask.results.save` or ``--out`` has written.

    Parameters
    ----------
    path
        A ``.zarr`` folder or a ``.nc`` file on this machine.

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
        (``.csv``, ``.json``: these hold numbers only), or somebody else's file. Says which.

    Notes
    -----
    Memory: what has no dim `sample`; of ten million samples and 12 models a few kilobytes. Nothing
    is unpickled.
    """
    import xarray as xr

    place = Path(path)
    name = str(path)
    if not place.exists():
        raise StoreError(f"there is no result at {name!r}")
    if place.is_dir():
        engine = "zarr"
        _check_folder(place, name)
    else:
        engine = "h5netcdf"
        _check_file(place, name)
    try:
        texts = texts_along_sample(place) if engine == "h5netcdf" else {}
        # Dask arrays in the pieces that the file has: xarray's own lazy arrays are read whole by
        # the first thing that looks at them.
        tree = xr.open_datatree(
            place, engine=engine, chunks={}, cache=False,
            drop_variables=sorted({key for found in texts.values() for key in found}),
        )  # fmt: skip
    except Exception as err:
        raise StoreError(f"{name!r} is damaged, or no result of croma-dask: {err}") from err
    opened = {
        node.path: _readable(_with_texts(node.to_dataset(inherit=False), texts.get(node.path, {})))
        for node in tree.subtree
    }
    # Files give the nodes by the alphabet.
    order = {f"/{metric}": at for at, metric in enumerate(METRICS)}
    opened = dict(sorted(opened.items(), key=lambda item: order.get(item[0], -1)))
    if len(opened) == 1:
        result: Any = opened["/"]
    else:
        result = xr.DataTree.from_dict(opened)
    result.set_close(tree.close)
    return result  # type: ignore[no-any-return]


def _check_folder(place: Path, name: str) -> None:
    attrs = attrs_of_folder(place)
    if attrs is None:
        raise _foreign(name, "it is a folder without a Zarr group")
    form = attrs.get("format")
    if form is None:
        if not is_result(place):
            raise _foreign(name, "it is a Zarr group of something else")
        return
    what = {
        "croma-dask cohort": "a cohort store: score it first (croma-dask score)",
        "croma-dask index": "an index: croma-dask score --index uses it",
        "croma-dask neighbors": "kept neighbours: croma_dask.open_neighbors opens them",
    }.get(str(form), f"of the format {form!r}")
    raise StoreError(f"expected a saved result at {name!r}; found {what}")


def _check_file(place: Path, name: str) -> None:
    import h5py

    if place.suffix in (".csv", ".json"):
        raise StoreError(
            f"{name!r} holds a result's numbers only, and cannot be opened as a result: save it as "
            ".zarr or .nc (--out)"
        )
    # Looked at before xarray does: its messages and warnings about other files are of other things.
    try:
        with h5py.File(place) as file:
            attrs = [dict(file.attrs), *(dict(file[m].attrs) for m in METRICS if m in file)]
    except (OSError, RuntimeError) as err:
        with place.open("rb") as plain:
            if plain.read(8) == b"\x89HDF\r\n\x1a\n":
                raise StoreError(f"{name!r} is damaged: {err}") from err
        raise _foreign(name, "it is no netCDF 4 file") from err
    if not any(map(is_ours, attrs)):
        raise _foreign(name, "it is an HDF5 file of something else")


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
    return xr.Dataset(found, coords, _plain(dataset.attrs))


def _ordered(variables: Mapping[str, xr.Variable], first: Sequence[str]) -> dict[str, xr.Variable]:
    return {name: variables[name] for name in (*first, *variables) if name in variables}


def _plain(attrs: Mapping[Any, Any]) -> dict[Any, Any]:
    """Attributes as they were before they were written: netCDF has arrays and numpy's numbers."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in attrs.items()
    }
