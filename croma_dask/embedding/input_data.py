"""What lies in an input of a benchmark: its columns, the names of its rows, the rows by reference.

Of an ``.h5ad`` file only the columns that are asked for are looked at: an obs has dozens of others,
and none of them, whatever it is called or holds, is a reason not to score the embedding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.align import Embedding
from croma_dask.cohort.manifest import id_blocks, id_length
from croma_dask.cohort.readers import open_reader
from croma_dask.cohort.readers.base import EmbeddingReader, convert, stored_dtype
from croma_dask.cohort.readers.hdf5 import open_hdf5
from croma_dask.cohort.store import StoredCohort
from croma_dask.cohort.text import factorize_text, to_text
from croma_dask.cohort.transfer import fetched
from croma_dask.cohort.writer import CohortWriter
from croma_dask.embedding.inputs import EmbeddingInput
from croma_dask.embedding.label import Texts
from croma_dask.embedding.request import Request
from croma_dask.embedding.rows import read_text
from croma_dask.errors import CromaDaskError, SchemaError
from croma_dask.fingerprint import text_digest
from croma_dask.options import Options
from croma_dask.progress import Progress
from croma_dask.resume import own_folder

__all__ = ["InputData", "column_codes", "naming", "obs_of", "open_input", "opened_h5ad"]

_BLOCK = 2**16


@dataclass(frozen=True)
class InputData:
    """An input, as it is worked on.

    Attributes
    ----------
    embedding
        Its rows.
    manifest
        Frame or store that holds the columns that are asked for.
    sample_id
        Names of rows lo..hi.
    """

    embedding: Embedding
    manifest: Any
    sample_id: Texts

    @property
    def n_rows(self) -> int:
        """Rows of the manifest."""
        tiles = self.embedding.tile_of_row
        return self.embedding.n_tiles if tiles is None else int(tiles.shape[0])

    def digest(self) -> str:
        """Fingerprint of the rows, each where the manifest has it."""
        tiles = self.embedding.tile_of_row
        return text_digest(self.embedding.fingerprint, b"" if tiles is None else tiles.tobytes())

    def digest_of(self, column: str) -> str:
        """Fingerprint of what a column says, however it is stored."""
        codes, names = column_codes(self.manifest, column)
        return text_digest(np.ascontiguousarray(codes, "<i4").tobytes(), *names)

    def digest_of_ids(self) -> str:
        """Fingerprint of the names of the rows."""
        length = id_length(self.manifest, "sample_id")
        blocks = (self.sample_id(lo, hi) for lo, hi in id_blocks(self.n_rows, length, _BLOCK))
        return text_digest(*(text_digest(*block) for block in blocks))


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Say in an error of which input it is, where it does not say so by itself."""
    try:
        yield
    except CromaDaskError as err:
        said, name = str(err), what.rsplit("/", 1)[-1]
        if what in said:
            raise
        # What reads a file calls it by its name, of which there may be one in every folder.
        rest = said.removeprefix(name) if said.startswith(f"{name} ") else f": {said}"
        raise type(err)(f"{what}{rest}") from err


@contextlib.contextmanager
def opened_h5ad(
    one: EmbeddingInput, key: str | None, storage_options: Mapping[str, Any] | None = None,
    scratch: str | None = None,
) -> Iterator[tuple[EmbeddingReader, Path]]:  # fmt: skip
    """Open a file at the array that is meant; one at a URL is copied here first.

    Parameters
    ----------
    one
        The file.
    key
        Its ``X`` or a key of its obsm. None takes X and, of a file without one, the only entry of
        obsm.
    storage_options, scratch
        Of the file system of a URL, and the folder for its copy.

    Yields
    ------
    EmbeddingReader, pathlib.Path
        And where the file, or its copy, lies as long as the block lasts. What the block raises
        says of which input it is.

    Raises
    ------
    SchemaError
        It cannot be read, or has no such array, or several of which none is asked for.
    StoreError
        There is nothing at the URL, it cannot be read, or there is no room for it here.
    """
    with (
        naming(one.path),
        fetched(one.path, storage_options=storage_options, scratch=scratch) as path,
        contextlib.ExitStack() as keep,
    ):
        with _reading():
            if key is None:
                with open_hdf5(str(path)) as file:
                    key = "X" if "X" in file else None
            reader = open_reader(path, key=key)
        keep.callback(reader.close)
        yield reader, path


@contextlib.contextmanager
def open_input(
    one: EmbeddingInput, request: Request, options: Options, *, key: str | None,
    storage_options: Mapping[str, Any] | None = None, also: Sequence[str] = (),
) -> Iterator[InputData]:  # fmt: skip
    """Open an input; the rows of a file lie in scratch as a store for as long as the block lasts.

    Parameters
    ----------
    one, request, key, storage_options
        As of :func:`croma_dask.embedding.input_checks.check_inputs`.
    options
        Where scratch is, and whether progress is shown.
    also
        Columns that are looked at besides, where there are such.
    """
    if not one.is_h5ad:
        store = StoredCohort(one.path, storage_options)
        embedding = Embedding(store, store.tile_of_sample(), store.embedding_fingerprint)
        yield InputData(embedding, store, read_text(store, "sample_id"))
        return
    with contextlib.ExitStack() as keep:
        place = str(Path(own_folder(options, "h5ad-", keep)) / "rows.zarr")
        columns = [request.label, *([] if request.batch is None else [request.batch])]
        # All of obs is in memory for this moment only.
        with opened_h5ad(one, key, storage_options, options.scratch) as (reader, _):
            obs, ids = obs_of(reader), to_text(reader.ids, "obs names")
            columns += [name for name in also if name in obs and name not in columns]
            manifest = obs[columns].copy()
            del obs
            _write(
                reader,
                place,
                Progress(f"reading {one.sample}", reader.shape[0], quiet=options.quiet),
            )
        del reader
        store = StoredCohort(place)
        embedding = Embedding(store, None, store.embedding_fingerprint)
        yield InputData(embedding, manifest, lambda lo, hi: ids[lo:hi])


def _write(reader: EmbeddingReader, place: str, progress: Progress) -> None:
    """Write the rows of a file as a store without columns.

    Rows that are no numbers are written as they are: the metrics say of them what there is to say.
    """
    import zarr

    target = stored_dtype(reader.dtype, None, str(reader.source["key"]))
    # A chunk of NaN alone would not be written otherwise, and be missed by whoever reads it.
    with zarr.config.set({"array.write_empty_chunks": True}):
        writer = CohortWriter(place, reader.shape, target, {}, source=reader.source)
    with writer, progress:
        for lo in range(0, reader.shape[0], writer.chunk_rows):
            hi = min(lo + writer.chunk_rows, reader.shape[0])
            with _reading():
                rows = reader.read(lo, hi)
            writer.write(convert(rows, target))
            progress.advance(hi - lo)
        writer.finish()


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Turn what HDF5 says about the inside of a file into an error of the file."""
    try:
        yield
    except CromaDaskError:
        raise
    except (OSError, RuntimeError, KeyError) as err:
        raise SchemaError(f"cannot be read as AnnData: {err}") from err


def obs_of(reader: EmbeddingReader) -> pd.DataFrame:
    """Return the columns of a file."""
    return pd.DataFrame() if reader.manifest is None else reader.manifest


def column_codes(manifest: Any, column: str) -> tuple[NDArray[np.int32], list[str]]:
    """Read a column of a frame or store as codes, -1 where it is missing, and names."""
    if isinstance(manifest, StoredCohort):
        return manifest.codes(column)
    return factorize_text(manifest[column], column)
