"""From files or arrays to a cohort store: read, match, check and write, a chunk at a time."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from croma_dask.cohort import layout
from croma_dask.cohort.location import Location
from croma_dask.cohort.manifest_columns import ManifestNames, prepare_manifest
from croma_dask.cohort.readers import open_reader
from croma_dask.cohort.readers.arrays import ArrayReader
from croma_dask.cohort.readers.base import EmbeddingReader, stored_dtype
from croma_dask.cohort.readers.tables import read_manifest
from croma_dask.cohort.remarks import absent_roles, warn_alike
from croma_dask.cohort.rows import check_unique, plan_rows
from croma_dask.cohort.streaming import stream
from croma_dask.cohort.writer import CohortWriter
from croma_dask.errors import SchemaError
from croma_dask.one_writer import one_writer

__all__ = ["ingest", "write_cohort"]

logger = logging.getLogger("croma_dask")


def ingest(
    features: str | os.PathLike[str],
    manifest: Any = None,
    out: str | os.PathLike[str] | None = None,
    *,
    key: str | None = None,
    label: str = "label",
    group: str = "group_id",
    sample_id: str = "sample_id",
    subset: str = "subset",
    image_path: str = "image_path",
    id_columns: Sequence[str] | None = None,
    dtype: str | None = None,
    comment: str | None = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    resume: bool = True,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Turn a file of embeddings and a manifest into a cohort store, streamed.

    Parameters
    ----------
    features
        ``.npy``, ``.npz``, ``.h5ad``, ``.parquet``, ``.h5``/``.hdf5``, a Zarr array or group, or a
        folder with one ``.h5``, ``.npy`` or ``.npz`` file a slide; or the URL of one. At a URL a
        Zarr array is read where it is; everything else is copied into the temporary folder first.
    manifest
        CSV, TSV, parquet or h5ad file or its URL, a data frame or a mapping of columns; one row a
        sample. May be left out where `features` carries columns (h5ad, parquet, folder of slides).
    out
        Path or fsspec URL of the store to write.
    key
        Which array to read: an obsm key or ``"X"`` (h5ad), a member (npz), a dataset (HDF5), a
        list column (parquet), an array of a Zarr group.
    label, group, sample_id, subset, image_path
        Manifest columns that play these roles. A column of another name is stored under its own
        name and under the canonical one (``label``, ``group_id``, ...). ``group="sample_id"``
        says that every sample is its own group.
    id_columns
        Columns that identify a sample together; their texts joined by ``/`` become its id.
    dtype
        ``"bfloat16"`` to read two-byte void values, ``"float16"``, ``"float32"`` or ``"float64"``
        to cast; by default floats stay as they are.
    comment
        Lines before the header of a text manifest that start with this are skipped.
    chunk_rows
        Rows of one chunk; by default 4,096, or as many as fit 32 MiB.
    overwrite
        Replace a cohort store that is there; it is removed before the first row is read.
    resume
        Go on with an unfinished store that is there.
    progress
        Show progress on standard error.
    storage_options
        Options of the fsspec file system of `out` (and of `features` and `manifest` URLs).

    Returns
    -------
    str
        The place of the store.

    Raises
    ------
    SchemaError
        The files are not what they have to be. Messages name rows by position, from 0, the header
        not counted. NaN or infinity in any row is an error; a row of zeros is not.
    StoreError
        `out` exists, or was started from something else, or another process writes there.

    Warns
    -----
    InputWarning
        Levels of a column differ only in case or blanks.

    Notes
    -----
    Where the embedding carries ids rows are matched by id, otherwise by position. Ids are carried
    by h5ad, a parquet column ``sample_id``, a vector ``sample_id`` or ``sample_ids`` beside the
    array of an HDF5 file, npz archive or Zarr group, a cohort store, slides and PathoROB's npz.
    Rows stay in the order of the file and the manifest is permuted to it. Memory: a few chunks, the
    manifest, and what the reader states.
    """
    if out is None:
        raise SchemaError("ingest needs the place of the store to write (out=)")
    reader = open_reader(features, key=key, storage_options=storage_options)
    try:
        frame = None
        if manifest is not None:
            frame = read_manifest(manifest, comment=comment, storage_options=storage_options)
            if isinstance(manifest, str | os.PathLike):
                reader.source["manifest"] = Location.of(manifest).file_name
        names = ManifestNames(label, group, sample_id, subset, image_path, tuple(id_columns or ()))
        return _write(
            reader,
            frame,
            Location.of(out, storage_options),
            names,
            dtype=dtype,
            chunk_rows=chunk_rows,
            overwrite=overwrite,
            resume=resume,
            progress=bool(progress),
        )
    finally:
        reader.close()


def write_cohort(
    path: str | os.PathLike[str],
    features: Any,
    manifest: Any,
    *,
    label: str = "label",
    group: str = "group_id",
    sample_id: str = "sample_id",
    subset: str = "subset",
    image_path: str = "image_path",
    id_columns: Sequence[str] | None = None,
    dtype: str | None = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    resume: bool = True,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Write an array and its manifest as a cohort store, streamed.

    Parameters
    ----------
    path
        Path or fsspec URL of the store to write.
    features
        (rows, features): numpy array, memory map, dask array, zarr array, h5py dataset or xarray
        DataArray, pandas DataFrame. A DataArray with a ``sample_id`` coordinate and a DataFrame
        with an index of text are matched by id, everything else by position.
    manifest
        Data frame, arrow table, polars frame or mapping of columns; one row a sample. Its index is
        ignored.
    label, group, sample_id, subset, image_path, id_columns, dtype, chunk_rows, overwrite, resume
        As for :func:`ingest`.
    progress, storage_options
        As for :func:`ingest`.

    Returns
    -------
    str
        The place of the store.

    Raises
    ------
    SchemaError
        Array or manifest are not what they have to be.
    StoreError
        `path` exists, or was started from something else, or another process writes there.

    Warns
    -----
    InputWarning
        Levels of a column differ only in case or blanks.
    """
    names = ManifestNames(label, group, sample_id, subset, image_path, tuple(id_columns or ()))
    return _write(
        ArrayReader(features),
        read_manifest(manifest),
        Location.of(path, storage_options),
        names,
        dtype=dtype,
        chunk_rows=chunk_rows,
        overwrite=overwrite,
        resume=resume,
        progress=bool(progress),
    )


def _write(
    reader: EmbeddingReader,
    frame: pd.DataFrame | None,
    out: Location,
    names: ManifestNames,
    *,
    dtype: str | None,
    chunk_rows: int | None,
    overwrite: bool,
    resume: bool,
    progress: bool,
) -> str:
    target = stored_dtype(reader.dtype, dtype, str(reader.source.get("features", "features")))
    prepared = prepare_manifest(frame, reader, names)
    if frame is not None:
        reader.source["rows"] = "by position" if prepared.file_ids is None else "by id"
    keys = names.id_columns or (names.sample_id,)
    repeats = check_unique(prepared.ids, prepared.subset, prepared.frame, keys)
    plan = plan_rows(
        reader.shape[0],
        prepared.file_ids,
        prepared.match_ids,
        prepared.image_paths if repeats else None,
    )
    columns = layout.build_columns(prepared.frame, prepared.aliases)
    warn_alike(columns.values(), skip=names.id_columns)
    if absent := absent_roles(columns):
        logger.info("%s", absent)
    if plan.order is not None:
        columns = {name: column.take(plan.order) for name, column in columns.items()}
    # At a URL nothing can be locked: there one process writes, as the documentation says.
    alone = one_writer(Path(out.url)) if out.is_local else contextlib.nullcontext()
    with (
        alone,
        CohortWriter(
            out,
            (plan.n_tiles, reader.shape[1]),
            target,
            columns,
            tile_of_sample=plan.sample_tile,
            chunk_rows=chunk_rows,
            source=reader.source,
            signature=reader.signature,
            overwrite=overwrite,
            resume=resume,
        ) as writer,
    ):
        try:
            stream(reader, writer, plan, target, progress)
        except SchemaError:
            # the rows themselves are wrong: nothing of this store can be used again
            writer.discard()
            raise
        return writer.finish()
