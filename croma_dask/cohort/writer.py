"""Write a cohort store: whole chunks, one after the other, resumable, the marker last."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from croma_dask.cohort import layout
from croma_dask.cohort.checksums import codecs, seal
from croma_dask.cohort.column_writer import write_columns
from croma_dask.cohort.existing import (
    START_OVER,
    check_same_target,
    find_unfinished,
    hash_written,
    remove_store,
)
from croma_dask.cohort.location import Location
from croma_dask.cohort.uploads import shared
from croma_dask.errors import ChunkError, SchemaError, StoreError, name_items
from croma_dask.fingerprint import BlockHasher

if TYPE_CHECKING:
    from croma_dask.cohort.layout import Column

__all__ = ["CohortWriter"]

logger = logging.getLogger("croma_dask")

# How much work a killed process may lose.
PROGRESS_SECONDS = 1.0


class CohortWriter:
    """Write a store from consecutive rows.

    Use it as a context manager: leaving it without :meth:`finish` records how far it came, so that
    the next writer with the same arguments and ``resume=True`` goes on at :attr:`position`.

    Parameters
    ----------
    path
        Path or fsspec URL of the store.
    shape
        (number of stored rows, number of features).
    dtype
        float16, float32 or float64.
    columns
        The manifest, as :func:`croma_dask.cohort.layout.build_columns` makes it.
    tile_of_sample
        Stored row of each manifest row, where the manifest repeats rows; int64, (n_samples,).
    chunk_rows
        Rows of one chunk; by default 4,096, or as many as fit 32 MiB. At most all rows.
    source
        Where the data came from: plain names, no paths of this machine.
    signature
        Identifies the source's files (sizes, times); when it is the recorded one, a resumed run
        may trust that the rows are the same (:attr:`same_source`), otherwise it has to
        :meth:`replay` them.
    overwrite
        Replace a cohort store that is there. Nothing else is ever deleted.
    resume
        Go on with an unfinished store that is there.
    storage_options
        Options of the fsspec file system.

    Raises
    ------
    StoreError
        Something is there that may not be replaced, or was started from something else.

    Notes
    -----
    Memory: one chunk, and zarr's copy of it while it is written. The order of what reaches the
    disk: root with status ``writing``, columns, chunks of the embedding, fingerprints and the
    status ``complete``. A reader refuses any other status.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Location,
        shape: tuple[int, int],
        dtype: DTypeLike,
        columns: Mapping[str, Column],
        *,
        tile_of_sample: NDArray[np.int64] | None = None,
        chunk_rows: int | None = None,
        source: Mapping[str, Any] | None = None,
        signature: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        resume: bool = True,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.location = Location.of(path, storage_options)
        self.shape = (int(shape[0]), int(shape[1]))
        self.dtype = np.dtype(dtype).newbyteorder("=")
        self.columns = dict(columns)
        self.tile_of_sample = tile_of_sample
        self._check_arguments(chunk_rows)
        self.source = dict(source or {})
        self._signature = json.dumps(dict(signature or {}), sort_keys=True)
        self._run = uuid.uuid4().hex
        self._hasher = BlockHasher()
        self._filled = 0
        self._last_record = time.monotonic()
        self._finished = False
        self._lost = False
        self._between_chunks = True
        self._replay: BlockHasher | None = None
        self.same_source = True
        self.manifest_fingerprint = layout.manifest_fingerprint(
            self.columns.values(), tile_of_sample
        )
        default = layout.chunk_rows_for(self.shape[1], self.dtype.itemsize)
        # the last chunk is stored at full size too: a small cohort shall not fill up 4,096 rows
        self.chunk_rows = max(1, min(chunk_rows or default, self.shape[0]))
        found = find_unfinished(self.location, overwrite=overwrite, resume=resume)
        if found is None:
            self._start()
        else:
            self._continue(found, self.chunk_rows if chunk_rows else None)
        self._buffer = np.empty((self.chunk_rows, self.shape[1]), dtype=self.dtype)

    def _check_arguments(self, chunk_rows: int | None) -> None:
        n_rows, n_features = self.shape
        if self.dtype not in (np.float16, np.float32, np.float64):
            raise SchemaError(f"embedding dtype {self.dtype}; expected float16, float32 or float64")
        if n_features < 1:
            raise SchemaError("the embedding has no features")
        if chunk_rows is not None and chunk_rows < 1:
            raise ChunkError(f"chunk_rows is {chunk_rows}; expected at least 1")
        tiles = self.tile_of_sample
        n_samples = n_rows if tiles is None else len(tiles)
        for column in self.columns.values():
            if len(column.codes) != n_samples:
                raise SchemaError(
                    f"column {column.name!r} has {len(column.codes)} rows, expected {n_samples}"
                )
        if tiles is not None and len(tiles) and not 0 <= tiles.min() <= tiles.max() < n_rows:
            raise SchemaError("tile_of_sample points outside of the embedding")

    def _start(self) -> None:
        import zarr

        from croma_dask import __version__

        try:
            self._root = zarr.open_group(
                self.location.zarr_store(read_only=False),
                mode="w-",
                zarr_format=3,
                attributes={
                    "format": layout.FORMAT,
                    "format_version": layout.FORMAT_VERSION,
                    "status": layout.STATUS_WRITING,
                    "run": self._run,
                    "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
                    "created_by": f"croma-dask {__version__}",
                    "source": json.dumps(self.source, ensure_ascii=False, sort_keys=True),
                },
            )
        except FileExistsError as err:
            if self.location.is_local:
                found = name_items(sorted(os.listdir(self.location.url)))
                raise StoreError(
                    f"{self.location.url} holds {found} already, which is no store: name another "
                    "place, or remove it"
                ) from err
            raise shared(self.location) from err
        columns = self._write_columns()
        dims = layout.SAMPLE_DIM if self.tile_of_sample is None else layout.TILE_DIM
        self._embedding = self._root.create_array(
            layout.EMBEDDING,
            shape=self.shape,
            chunks=(self.chunk_rows, self.shape[1]),
            dtype=self.dtype,
            compressors=codecs(compress=False),
            fill_value=np.nan,
            dimension_names=(dims, layout.FEATURE_DIM),
            attributes={"long_name": "embedding"},
        )
        self._root.attrs.update({**columns, "signature": self._signature})
        self._record()

    def _write_columns(self) -> dict[str, str]:
        """Write the manifest and return what the root says of it."""
        refs = write_columns(self._root, self.columns.values(), self.tile_of_sample)
        return {
            "columns": layout.dump_columns(refs),
            "manifest_fingerprint": self.manifest_fingerprint,
        }

    def _continue(self, attrs: Mapping[str, Any], chunk_rows: int | None) -> None:
        import zarr

        try:
            self._root = zarr.open_group(self.location.zarr_store(read_only=False), mode="r+")
            self._embedding = self._root[layout.EMBEDDING]  # type: ignore[assignment]
        except (KeyError, ValueError, TypeError, AttributeError) as err:
            raise StoreError(
                f"{self.location.url} was not finished and is damaged ({err}); {START_OVER}"
            ) from err
        check_same_target(
            self.location.url,
            attrs,
            self._embedding,
            shape=self.shape,
            dtype=self.dtype,
            manifest_fingerprint=self.manifest_fingerprint,
            chunk_rows=chunk_rows,
        )
        self.chunk_rows = int(self._embedding.chunks[0])
        self._hasher = hash_written(self.location, attrs, self._embedding)
        # Nothing has vouched for them since: they are sealed as they are now known to be.
        self._root.attrs.update({**self._write_columns(), "run": self._run})
        self.same_source = attrs.get("signature") == self._signature
        logger.info("resuming %s at row %d of %d", self.location.url, self.position, self.shape[0])

    # rows

    @property
    def position(self) -> int:
        """Number of rows taken so far, those of an earlier run included."""
        return self._hasher.rows + self._filled

    def replay(self) -> None:
        """Expect the rows from the first one again, and compare instead of writing them.

        The next :meth:`write` starts at row 0. Where the rows that an earlier run wrote end, they
        are compared with the store by their fingerprints.
        """
        if self.position:
            self._replay = BlockHasher()

    def write(self, rows: NDArray[Any]) -> None:
        """Take the next rows: any number, already in the stored dtype.

        Raises
        ------
        SchemaError
            Shape or dtype differ from what was announced, or these are too many rows.
        StoreError
            After :meth:`replay`: an earlier run wrote other rows.
        """
        if rows.ndim != 2 or rows.shape[1] != self.shape[1] or rows.dtype != self.dtype:
            raise SchemaError(
                f"rows of shape {rows.shape} {rows.dtype}; expected (n, {self.shape[1]}) "
                f"{self.dtype}"
            )
        if self._replay is not None:
            rows = self._compare(self._replay, rows)
        if self.position + len(rows) > self.shape[0]:
            raise SchemaError(f"more rows than the {self.shape[0]} that were announced")
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + self.chunk_rows - self._filled)
            if stop - start == self.chunk_rows:
                self._flush(rows[start:stop])
            else:
                end = self._filled + stop - start
                self._buffer[self._filled : end] = rows[start:stop]
                self._filled = end
                if end == self.chunk_rows:
                    self._filled = 0
                    self._flush(self._buffer)
            start = stop

    def _compare(self, replay: BlockHasher, rows: NDArray[Any]) -> NDArray[Any]:
        """Take the rows that an earlier run wrote, and return those that follow them."""
        known = min(len(rows), self.position - replay.rows)
        replay.update(rows[:known])
        if replay.rows == self.position:
            self._replay = None
            if replay.snapshot() != self._hasher.snapshot():
                raise StoreError(
                    f"{self.location.url} was started from other rows and not finished; "
                    f"{START_OVER}"
                )
        return rows[known:]

    def _flush(self, rows: NDArray[Any]) -> None:
        """Write the next chunk."""
        self._check_alone()
        self._between_chunks = False
        start = self._hasher.rows
        self._embedding[start : start + len(rows)] = rows
        self._hasher.update(rows)
        self._between_chunks = True
        if time.monotonic() - self._last_record >= PROGRESS_SECONDS:
            self._record()

    def _check_alone(self) -> None:
        """Refuse to write into a store that another run has begun anew, or gone on with, meanwhile.

        On this machine a lock keeps them apart; a URL has none.
        """
        if self.location.is_local:
            return
        found = json.loads(self.location.read_bytes("zarr.json") or b"{}").get("attributes", {})
        if found.get("run") != self._run:
            self._lost = True
            raise shared(self.location)

    def _record(self) -> None:
        """Note how many rows have reached the store."""
        self._check_alone()
        progress = {"rows": self._hasher.rows, "digests": self._hasher.snapshot()}
        self._root.attrs.update({"progress": json.dumps(progress)})
        self._last_record = time.monotonic()

    def finish(self) -> str:
        """Write what is left, the fingerprints and, last of all, the marker.

        Returns
        -------
        str
            The place of the store.
        """
        if self.position != self.shape[0]:
            raise SchemaError(f"{self.position} rows written of the {self.shape[0]} announced")
        if self._filled:
            rest, self._filled = self._filled, 0
            self._flush(self._buffer[:rest])
        embedding = self._hasher.finish(self.shape, self.dtype)
        attrs = dict(self._root.attrs)
        for key in ("progress", "signature", "run"):
            attrs.pop(key, None)
        attrs["embedding_fingerprint"] = embedding
        attrs["fingerprint"] = layout.cohort_fingerprint(embedding, self.manifest_fingerprint)
        attrs["status"] = layout.STATUS_COMPLETE
        self._check_alone()
        seal(self.location, attrs)
        self._finished = True
        return self.location.url

    def discard(self) -> None:
        """Remove the store: what was written can be of no use."""
        remove_store(self.location)
        self._finished = True

    def __enter__(self) -> CohortWriter:
        """Return the writer."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Note how far the store has come, unless it is finished."""
        # an interruption inside a chunk leaves the count in doubt: then the last note stands
        if self._between_chunks and not self._finished and not self._lost:
            self._record()
