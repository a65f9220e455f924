"""A finished cohort store, seen through a small handle that can be sent to any worker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort import layout
from croma_dask.cohort.checksums import check_layout
from croma_dask.cohort.chunks import ChunkReader
from croma_dask.cohort.location import Location, open_root
from croma_dask.cohort.outside import check_links
from croma_dask.cohort.store_checks import check_embedding, check_manifest, parse_root
from croma_dask.cohort.text import factorize_text
from croma_dask.errors import StoreError
from croma_dask.fingerprint import BlockHasher

if TYPE_CHECKING:
    import zarr

__all__ = ["StoredCohort"]


class StoredCohort:
    """A cohort store, opened when first used.

    The handle carries the place only, so it pickles to a few hundred bytes; arrays are opened in
    the process that reads. Reading is safe from many threads.

    Parameters
    ----------
    url
        Path or fsspec URL of a finished store.
    storage_options
        Options of the fsspec file system.

    Raises
    ------
    StoreError
        On first use: there is no store, or it is unfinished, foreign or of another version.

    Notes
    -----
    Memory: nothing of size rows x features is held. :meth:`read_tiles` needs its result, and one
    chunk more where the store is remote or compressed.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Location,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.location = Location.of(url, storage_options)
        self._root: zarr.Group | None = None
        self._embedding: ChunkReader | None = None
        self._refs: dict[str, layout.ColumnRef] = {}
        self._tiles: zarr.Array[Any] | None = None
        self._levels: dict[str, list[str]] = {}
        self._manifest_whole = False

    def __repr__(self) -> str:
        """Name the place."""
        return f"StoredCohort({self.url!r})"

    def __getstate__(self) -> Location:
        """Keep the place only."""
        return self.location

    def __setstate__(self, state: Location) -> None:
        """Start over from the place."""
        self.__init__(state)  # type: ignore[misc]

    def _open(self) -> zarr.Group:
        """Open the group and its arrays once; threads that race do the same work twice."""
        if self._root is not None:
            return self._root
        check_links(self.location)
        check_layout(self.location, "cohort", layout.FORMAT, "ingest the cohort again")
        root = open_root(self.location)
        attrs = dict(root.attrs)
        problem = layout.describe_mismatch(attrs, self.url)
        if problem is not None:
            raise problem
        refs = parse_root(attrs, self.url)
        try:
            embedding: Any = root[layout.EMBEDDING]
        except KeyError as err:
            raise StoreError(f"{self.url} is damaged: its embedding array is missing") from err
        check_embedding(embedding, self.location)
        check_manifest(root, list(refs.values()), int(embedding.shape[0]), self.location)
        self._refs = refs
        self._embedding = ChunkReader(embedding, self.location)
        self._tiles = root.get(layout.TILE)  # type: ignore[assignment]
        self._root = root
        return root

    @property
    def _chunks(self) -> ChunkReader:
        if self._embedding is None:
            self._open()
        assert self._embedding is not None
        return self._embedding

    @property
    def url(self) -> str:
        """Path or URL of the store."""
        return self.location.url

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """Options of the fsspec file system."""
        return self.location.storage_options

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the store's root."""
        return dict(self._open().attrs)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of embedding and manifest together."""
        return str(self._open().attrs["fingerprint"])

    @property
    def embedding_fingerprint(self) -> str:
        """Fingerprint of the embedding's rows, as :mod:`croma_dask.fingerprint` computes it."""
        return str(self._open().attrs["embedding_fingerprint"])

    @property
    def n_tiles(self) -> int:
        """Number of stored embedding rows."""
        return self._chunks.shape[0]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self._chunks.shape[1]

    @property
    def n_samples(self) -> int:
        """Number of manifest rows; more than tiles where the manifest repeats tiles."""
        self._open()
        return self.n_tiles if self._tiles is None else int(self._tiles.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floating dtype of the embedding, in native byte order."""
        return self._chunks.dtype

    @property
    def chunk_rows(self) -> int:
        """Rows of one chunk."""
        return self._chunks.chunk_rows

    @property
    def columns(self) -> list[str]:
        """Names of the manifest's columns."""
        self._open()
        return list(self._refs)

    def _ref(self, column: str) -> layout.ColumnRef:
        self._open()
        try:
            return self._refs[column]
        except KeyError:
            raise KeyError(
                f"no column {column!r} in {self.url}; it has {', '.join(self._refs)}"
            ) from None

    def kind(self, column: str) -> layout.Kind:
        """Return how a column is stored: ``"category"`` or ``"text"``."""
        return self._ref(column).kind

    def array_of(self, column: str) -> str:
        """Name of the array that holds a column; columns of one array have the same values."""
        return self._ref(column).array

    def codes(self, column: str) -> tuple[NDArray[np.int32], list[str]]:
        """Read a column as codes.

        Returns
        -------
        codes : ndarray of int32, shape (n_samples,)
            -1 where the cell is missing.
        names : list of str
            Observed levels in code point order.
        """
        ref = self._ref(column)
        if ref.kind == "text":
            return factorize_text(self.text(column), column)
        return self._read_codes(ref), self.levels(column)

    def levels(self, column: str) -> list[str]:
        """Names of the observed levels of a column, in code point order."""
        ref = self._ref(column)
        if ref.kind == "text":
            return self.codes(column)[1]
        if column not in self._levels:
            stored = self._stored(ref.names_array, 0, None).astype(object)
            if (stored == "").any():
                raise self._damaged(f"names of column {column!r} are missing")
            self._levels[column] = stored.tolist()
        return list(self._levels[column])

    def text(self, column: str, lo: int = 0, hi: int | None = None) -> NDArray[np.object_]:
        """Read rows `lo` to `hi` of a column as text.

        Returns
        -------
        ndarray of str objects, shape (hi - lo,)
            Missing cells are ``""``.
        """
        ref = self._ref(column)
        if ref.kind == "category":
            names = np.array([*self.levels(column), ""], dtype=object)
            return names[self._read_codes(ref, lo, hi)]
        return self._read_column(ref.array, "", lo, hi).astype(object)

    def _read_codes(
        self, ref: layout.ColumnRef, lo: int = 0, hi: int | None = None
    ) -> NDArray[np.int32]:
        """Read part of a coded column, each of whose codes has a name."""
        codes = self._read_column(ref.array, -1, lo, hi).astype(np.int32, copy=False)
        n_levels = self._length(ref.names_array)
        if len(codes) and not -1 <= codes.min() <= codes.max() < n_levels:
            raise self._damaged(f"column {ref.name!r} has codes that none of its names is of")
        return codes

    def _damaged(self, what: str) -> StoreError:
        return StoreError(f"{self.url} is damaged: {what}; ingest the cohort again")

    def _stored(self, array: str, lo: int, hi: int | None) -> NDArray[Any]:
        """Read part of an array of the manifest as it lies in the store."""
        try:
            return np.asarray(self._open()[array][lo:hi])  # type: ignore[index]
        except KeyError as err:
            raise self._damaged(f"its array {array} is missing") from err
        except StoreError:  # says itself what it is
            raise
        except (ValueError, TypeError, RuntimeError, MemoryError) as err:  # what codecs raise
            raise self._damaged(f"{self._where(array, lo, hi)} cannot be read ({err})") from err

    def _where(self, array: str, lo: int, hi: int | None) -> str:
        """Name the first chunk of an array that cannot be read, with its rows."""
        stored: Any = self._open()[array]
        n, size = int(stored.shape[0]), int(stored.chunks[0])
        names = [ref.name for ref in self._refs.values() if array in (ref.array, ref.names_array)]
        what = f"{array} (column {names[0]!r})" if names else array
        for at in range(lo // size, -(-(n if hi is None else min(hi, n)) // size)):
            try:
                stored[at * size : (at + 1) * size]
            except (ValueError, TypeError, RuntimeError, MemoryError):
                rows = f"rows {at * size} to {min(n, (at + 1) * size) - 1}"
                return f"chunk {at} of {what} ({rows})"
        return what

    def _read_column(
        self, array: str, missing: int | str, lo: int = 0, hi: int | None = None
    ) -> NDArray[Any]:
        """Read part of a column, and make sure that missing cells are not a chunk that was lost.

        A chunk of nothing but missing cells is never written, so that none is there proves
        nothing: the fingerprint tells.
        """
        values = self._stored(array, lo, hi)
        if self._manifest_whole or not len(values):
            return values
        size = int(self._open()[array].chunks[0])  # type: ignore[union-attr]
        for index in range(lo // size, (lo + len(values) - 1) // size + 1):
            part = values[max(0, index * size - lo) : (index + 1) * size - lo]
            if part[0] == missing and (part == missing).all() and not self._has(array, index):
                if not self._manifest_matches():
                    raise self._damaged(f"chunk {index} of {array}, a manifest column, is missing")
                self._manifest_whole = True
                break
        return values

    def _length(self, array: str) -> int:
        return int(self._open()[array].shape[0])  # type: ignore[union-attr]

    def _has(self, array: str, index: int) -> bool:
        """Whether a chunk of a one-dimensional array is in the store, as ingest writes it."""
        fs, path = self.location.filesystem()
        return bool(fs.exists(f"{path}/{array}/c/{index}"))

    def _manifest_matches(self) -> bool:
        """Whether all columns, as they are now, are those that were written."""
        columns = []
        for name, ref in self._refs.items():
            stored = self._stored(ref.array, 0, None)
            if ref.kind == "text":
                codes, levels = factorize_text(stored.astype(object), name)
            else:
                codes, levels = stored.astype(np.int32, copy=False), self.levels(name)
            columns.append(layout.Column(name, ref.kind, codes, levels))
        manifest = layout.manifest_fingerprint(columns, self.tile_of_sample())
        expected = layout.cohort_fingerprint(self.embedding_fingerprint, manifest)
        return expected == self.fingerprint

    def tile_of_sample(self, lo: int = 0, hi: int | None = None) -> NDArray[np.int64] | None:
        """Return the stored row of each sample, int64; None where sample i is row i."""
        self._open()
        if self._tiles is None:
            return None
        tiles = self._stored(layout.TILE, lo, hi).astype(np.int64, copy=False)
        if (tiles < 0).any():
            raise self._damaged("part of the map of samples to rows is missing")
        return tiles

    def read_tiles(self, lo: int, hi: int) -> NDArray[Any]:
        """Read embedding rows `lo` to `hi`.

        Returns
        -------
        ndarray, shape (hi - lo, n_features)
            In the stored dtype, native byte order, C-contiguous.

        Raises
        ------
        StoreError
            A chunk is missing or has the wrong size.
        """
        if not 0 <= lo <= hi <= self.n_tiles:
            raise IndexError(f"rows {lo} to {hi} of a store with {self.n_tiles} rows")
        return self._chunks.read(lo, hi)

    def read_samples(self, lo: int, hi: int) -> NDArray[Any]:
        """Read the embedding rows of samples `lo` to `hi`, repeated tiles expanded.

        Returns
        -------
        ndarray, shape (hi - lo, n_features)
        """
        tiles = self.tile_of_sample(lo, hi)
        return self.read_tiles(lo, hi) if tiles is None else self.take_tiles(tiles)

    def take_tiles(self, tiles: NDArray[np.int64]) -> NDArray[Any]:
        """Read embedding rows in any order, repeats allowed; each chunk is visited once."""
        wanted, inverse = np.unique(tiles, return_inverse=True)
        rows = np.empty((len(wanted), self.n_features), dtype=self.dtype)
        edges = np.flatnonzero(np.diff(wanted // self.chunk_rows, prepend=-1, append=-1))
        for start, stop in zip(edges[:-1], edges[1:], strict=True):
            first = int(wanted[start])
            block = self.read_tiles(first, int(wanted[stop - 1]) + 1)
            rows[start:stop] = block[wanted[start:stop] - first]
        return rows if np.array_equal(inverse, np.arange(len(tiles))) else rows[inverse]

    def verify(self) -> None:
        """Read everything and compare it with the fingerprints that the store carries.

        Raises
        ------
        StoreError
            Rows or columns are not those that were written, or metadata in some folder.
        """
        check_layout(self.location, "cohort", layout.FORMAT, "ingest the cohort again", deep=True)
        hasher = BlockHasher()
        for lo in range(0, self.n_tiles, self.chunk_rows):
            hasher.update(self.read_tiles(lo, min(lo + self.chunk_rows, self.n_tiles)))
        if hasher.finish((self.n_tiles, self.n_features), self.dtype) != self.embedding_fingerprint:
            raise StoreError(f"{self.url} is damaged: its embedding does not match its fingerprint")
        if not self._manifest_matches():
            raise StoreError(f"{self.url} is damaged: its manifest does not match its fingerprint")
