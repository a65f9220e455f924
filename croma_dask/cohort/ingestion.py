"""From files or arrays to a cohort store: read, match, check and write, a chunk at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort import layout
from croma_dask.cohort.location import Location
from croma_dask.cohort.manifest_columns import ManifestNames, prepare_manifest
from croma_dask.cohort.readers import open_reader
from croma_dask.cohort.readers.arrays import ArrayReader
from croma_dask.cohort.readers.base import (
    EmbeddingReader,
    check_finite_cast,
    convert,
    stored_dtype,
)
from croma_dask.cohort.readers.tables import read_manifest
from croma_dask.cohort.rows import RowPlan, check_unique, plan_rows
from croma_dask.cohort.writer import CohortWriter
from croma_dask.errors import SchemaError, name_items, name_rows
from croma_dask.progress import Progress

__all__ = ["ingest", "write_cohort"]


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
        folder with one ``.h5``, ``.npy`` or ``.npz`` file a slide.
    manifest
        CSV, TSV, parquet or h5ad file, a data frame or a mapping of columns; one row a sample. May
        be left out where `features` carries columns (h5ad, parquet, a folder of slides).
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
        `out` exists, or was started from something else.

    Notes
    -----
    Where the embedding carries ids (h5ad, parquet with a ``sample_id`` column, slides, PathoROB's
    npz) rows are matched by id, otherwise by position. Rows stay in the order of the file and the
    manifest is permuted to it. Memory: a few chunks, the manifest, and what the reader states.
    """
    if out is None:
        raise SchemaError("ingest needs the place of the store to write (out=)")
    reader = open_reader(features, key=key, storage_options=storage_options)
    try:
        frame = None
        if manifest is not None:
            frame = read_manifest(manifest, comment=comment, storage_options=storage_options)
            if isinstance(manifest, str | os.PathLike):
                reader.source["manifest"] = os.path.basename(os.fspath(manifest))
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
        DataArray. A DataArray with a ``sample_id`` coordinate is matched by id, everything else
        by position.
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
        `path` exists, or was started from something else.
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
    repeats = check_unique(prepared.ids, prepared.subset, list(prepared.frame.columns))
    plan = plan_rows(
        reader.shape[0],
        prepared.file_ids,
        prepared.match_ids,
        prepared.image_paths if repeats else None,
    )
    columns = layout.build_columns(prepared.frame, prepared.aliases)
    if plan.order is not None:
        columns = {name: column.take(plan.order) for name, column in columns.items()}
    writer = CohortWriter(
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
    )
    with writer:
        try:
            _stream(reader, writer, plan, target, progress)
        except SchemaError:
            # the rows themselves are wrong: nothing of this store can be used again
            writer.discard()
            raise
        return writer.finish()


def _stream(
    reader: EmbeddingReader,
    writer: CohortWriter,
    plan: RowPlan,
    target: np.dtype[Any],
    progress: bool,
) -> None:
    """Move all rows from the reader to the writer, checking each."""
    n_rows = reader.shape[0]
    start = writer.position
    if plan.file_tile is not None or not writer.same_source:
        writer.replay()
        start = 0
    repeats = _RepeatCheck(plan)
    with Progress("ingest", n_rows, quiet=not progress) as bar:
        bar.skip(start)
        for lo in range(start, n_rows, writer.chunk_rows):
            hi = min(lo + writer.chunk_rows, n_rows)
            rows = convert(reader.read(lo, hi), target)
            if not np.isfinite(rows).all():
                _raise_not_finite(reader, lo, target, writer.chunk_rows)
            writer.write(repeats.new_rows(lo, rows))
            bar.advance(hi - lo)


def _raise_not_finite(
    reader: EmbeddingReader, start: int, target: np.dtype[Any], step: int
) -> None:
    """Count the rows that are not finite, from the first one found to the end, and raise."""
    found: dict[str, list[NDArray[np.int64]]] = {"NaN": [], "infinity": []}
    for lo in _starts(start, reader.shape[0], step):
        rows = convert(reader.read(lo, min(lo + step, reader.shape[0])), target)
        for kind, mask in (("NaN", np.isnan(rows)), ("infinity", np.isinf(rows))):
            found[kind].append(np.flatnonzero(mask.any(axis=1)) + lo)
    parts = []
    for kind, pieces in found.items():
        where = np.concatenate(pieces)
        if len(where):
            count = f"{len(where):,} row" + ("s" if len(where) > 1 else "")
            parts.append(f"{kind} in {count} ({_name_rows(where, reader.ids)})")
    raise SchemaError(
        f"the embedding has {' and '.join(parts)}{check_finite_cast(reader.dtype, target)}; leave "
        "these rows out or repair them"
    )


def _starts(start: int, stop: int, step: int) -> Iterator[int]:
    yield from range(start, stop, step)


def _name_rows(rows: NDArray[np.int64], ids: NDArray[np.object_] | None) -> str:
    text = name_rows(rows)
    if ids is not None:
        text += f", ids {name_items([str(ids[row]) for row in rows[:5]], total=len(rows))}"
    return text


class _RepeatCheck:
    """Keep the first row of each tile, and require that the others are equal to it."""

    def __init__(self, plan: RowPlan) -> None:
        self.tiles = plan.file_tile
        self._next = 0
        if self.tiles is not None:
            counts = np.bincount(self.tiles, minlength=plan.n_tiles)
            self._slot = np.where(counts > 1, np.cumsum(counts > 1) - 1, -1)
            self._digests = np.zeros((int((counts > 1).sum()), 16), dtype=np.uint8)

    def new_rows(self, lo: int, rows: NDArray[Any]) -> NDArray[Any]:
        """Return those of the rows, which start at row `lo` of the file, that are new tiles."""
        if self.tiles is None:
            return rows
        tiles = self.tiles[lo : lo + len(rows)]
        keep = np.zeros(len(rows), dtype=bool)
        for i, tile in enumerate(tiles):
            slot = self._slot[tile]
            new = tile == self._next
            if slot >= 0:
                # adding zero makes -0.0 and 0.0 the same bytes
                digest = hashlib.blake2b((rows[i] + 0).tobytes(), digest_size=16).digest()
                stored = np.frombuffer(digest, dtype=np.uint8)
                if new:
                    self._digests[slot] = stored
                elif not np.array_equal(self._digests[slot], stored):
                    self._raise(int(tile), lo + i)
            if new:
                keep[i] = True
                self._next += 1
        return rows[keep]

    def _raise(self, tile: int, row: int) -> None:
        assert self.tiles is not None
        first = int(np.flatnonzero(self.tiles == tile)[0])
        raise SchemaError(
            f"rows {first} and {row} of the embedding belong to the same tile but have different "
            "features; a tile that is repeated in several subsets must have one embedding"
        )
