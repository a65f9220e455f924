"""Open a cohort store as an xarray Dataset in which everything is lazy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.active import active_client
from croma_dask.cohort import layout
from croma_dask.cohort.location import Location
from croma_dask.cohort.sharing import share
from croma_dask.cohort.store import StoredCohort

if TYPE_CHECKING:
    import dask.array as da
    import xarray as xr

__all__ = ["cohort_of", "column_array_name", "embedding_array_name", "open_cohort", "store_of"]

# Options of the stores opened in this process: attrs of a Dataset may end up in a result file, so
# they carry the URL but never what may be a secret.
_OPTIONS: dict[str, Mapping[str, Any]] = {}


def embedding_array_name(fingerprint: str) -> str:
    """Dask name of the embedding of a store, by which an unmodified one is recognised."""
    return f"croma-embedding-{fingerprint}"


def column_array_name(fingerprint: str, column: str) -> str:
    """Dask name of a column of a store, by which an unmodified one is recognised."""
    return f"croma-column-{fingerprint}-{column}"


def open_cohort(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> xr.Dataset:
    """Open a cohort store, reading metadata only.

    Parameters
    ----------
    path
        Path or fsspec URL of a finished store.
    storage_options
        Options of the fsspec file system.

    Returns
    -------
    xarray.Dataset
        ``embedding (sample, feature)``: dask array in the stored dtype, chunked in rows as the
        store is. Tiles that the manifest repeats are expanded when they are computed. Each
        manifest column is a coordinate along ``sample``, a dask array of text (missing cells are
        ``""``) without an index. ``attrs``: fingerprints, layout version, source, and
        ``croma_store``, the place of the store.

    Raises
    ------
    StoreError
        There is no store, or it is unfinished, foreign or of another version. The message says
        what was found and what to do.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from croma_dask import open_cohort, write_cohort
    >>> features = np.eye(4, dtype="float32")
    >>> manifest = {"sample_id": ["a", "b", "c", "d"], "label": ["x", "x", "y", "y"]}
    >>> folder = tempfile.mkdtemp()
    >>> cohort = open_cohort(write_cohort(f"{folder}/cohort.zarr", features, manifest))
    >>> cohort.embedding.shape, cohort.label.values.tolist()
    ((4, 4), ['x', 'x', 'y', 'y'])
    """
    import xarray as xr

    store = StoredCohort(path, storage_options)
    attrs = store.attrs
    _OPTIONS[store.url] = store.storage_options
    # Its arrays may be computed by Dask itself, which knows nothing of options.
    share(active_client())
    coords = {
        column: ((layout.SAMPLE_DIM,), _column(store, column), {"long_name": column})
        for column in store.columns
    }
    data = xr.Variable(
        (layout.SAMPLE_DIM, layout.FEATURE_DIM), _embedding(store), {"long_name": "embedding"}
    )
    dataset = xr.Dataset(
        {layout.EMBEDDING: data},
        # no indexes: even a column named like a dimension stays lazy
        coords=xr.Coordinates(coords, indexes={}),
    )
    kept = ("format", "format_version", "fingerprint", "embedding_fingerprint", "source")
    dataset.attrs = {name: attrs[name] for name in (*kept, "created_at", "created_by")}
    dataset.attrs["croma_store"] = store.url
    return dataset


def store_of(dataset: xr.Dataset) -> StoredCohort | None:
    """Return the store behind a Dataset whose embedding is the one that was opened.

    Returns
    -------
    StoredCohort or None
        None where the Dataset has no store, or its embedding was selected from or computed with.
    """
    url = dataset.attrs.get("croma_store")
    if not isinstance(url, str) or layout.EMBEDDING not in dataset:
        return None
    expected = embedding_array_name(str(dataset.attrs.get("fingerprint")))
    if getattr(dataset[layout.EMBEDDING].data, "name", None) != expected:
        return None
    return StoredCohort(Location.of(url, _OPTIONS.get(url)))


class _LazyRows:
    """The embedding by sample, as an array that reads when sliced."""

    ndim = 2

    def __init__(self, store: StoredCohort) -> None:
        self.store = store
        self.shape = (store.n_samples, store.n_features)
        self.dtype = store.dtype

    def __getitem__(self, key: tuple[slice, slice]) -> NDArray[Any]:
        rows, features = key
        lo, hi, step = rows.indices(self.shape[0])
        block = self.store.read_samples(lo, max(lo, hi))
        return block[::step, features]


class _LazyColumn:
    """A manifest column as text, as an array that reads when sliced."""

    ndim = 1
    dtype = np.dtype(object)

    def __init__(self, store: StoredCohort, column: str) -> None:
        self.store = store
        self.column = column
        self.shape = (store.n_samples,)

    def __getitem__(self, key: tuple[slice]) -> NDArray[np.object_]:
        lo, hi, step = key[0].indices(self.shape[0])
        return self.store.text(self.column, lo, max(lo, hi))[::step]


def _embedding(store: StoredCohort) -> da.Array:
    import dask.array as da

    array: da.Array = da.from_array(
        _LazyRows(store),
        chunks=(_chunk_rows(store), store.n_features),
        name=embedding_array_name(store.fingerprint),
        asarray=False,
        fancy=False,
        meta=np.empty((0, 0), dtype=store.dtype),
    )
    return array


def _column(store: StoredCohort, column: str) -> da.Array:
    import dask.array as da

    array: da.Array = da.from_array(
        _LazyColumn(store, column),
        chunks=(_chunk_rows(store),),
        name=column_array_name(store.fingerprint, column),
        asarray=False,
        fancy=False,
        meta=np.empty((0,), dtype=object),
    )
    return array


def _chunk_rows(store: StoredCohort) -> int:
    return max(1, min(store.chunk_rows, store.n_samples))


def cohort_of(cohort: Any, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Open a cohort that is given by its place; pass everything else through."""
    if isinstance(cohort, str | os.PathLike):
        return StoredCohort(cohort, storage_options)
    return cohort
