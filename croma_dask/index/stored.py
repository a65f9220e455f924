"""An index on disk: the rows of a cohort in the order of clusters, in shards, as plain Zarr.

Beside the cohort store lies one Zarr v3 group (``stores/README.md`` describes it for readers in
other languages): the partition (`order`, `cluster_edges`, `centres`, `mean`, `shard_edges`) and one
group a shard with its `rows` and what its kind of search needs. A shard is marked when it is
finished, the root when all are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from croma_dask import formats
from croma_dask.cohort.checksums import check_layout, codecs
from croma_dask.cohort.chunks import ChunkReader
from croma_dask.cohort.layout import chunk_rows_for
from croma_dask.cohort.location import Location, open_root
from croma_dask.cohort.outside import check_links
from croma_dask.cohort.store_checks import check_claim
from croma_dask.errors import StoreError
from croma_dask.index.partition import half_norms
from croma_dask.index.recipe import KINDS, library_of
from croma_dask.index.stored_checks import check_attrs, check_partition_claims
from croma_dask.kernels.frame import Distance, Frame
from croma_dask.kernels.typing import F32, F64, I64

if TYPE_CHECKING:
    import zarr

__all__ = ["FORMAT", "FORMAT_VERSION", "Partition", "StoredIndex", "beside", "shard_name"]

FORMAT = "croma-dask index"
FORMAT_VERSION = formats.VERSIONS["index"]
COMPLETE, WRITING = "complete", "writing"
ROWS, DESCENT = "rows", "descent"
_PARTITION = ("order", "cluster_edges", "centres", "mean", "shard_edges", "basis")
_ABOUT = (
    "kind", "embedding_fingerprint", "croma_dask_version", "parameters", "n_rows", "n_features",
    "dtype",
)  # fmt: skip
_MEND = "build it again with overwrite=True (croma-dask index --overwrite)"


@dataclass(frozen=True)
class Partition:
    """How the rows of a cohort are clustered.

    Attributes
    ----------
    order
        (N,) int64, tile at each place of the index.
    cluster_edges
        (C + 1,) int64, places where clusters start.
    centres
        (C, r) float32, in the space of the sketch, or (C, D) without one.
    mean
        (D,) float64, mean of the unit vectors; of the rows, for Euclidean distances.
    shard_edges
        (S + 1,) int64, places where shards start; each is a cluster edge too.
    basis
        (D, r) float32, directions of the sketch; (D, 0) where rows are screened whole.
    """

    order: I64
    cluster_edges: I64
    centres: F32
    mean: F64
    shard_edges: I64
    basis: F32

    @cached_property
    def sketches(self) -> tuple[F32, F32]:
        """Centres as rows are compared with them, and their half-norms."""
        return self.centres, half_norms(self.centres)

    def sketch(self, centred: F32) -> F32:
        """Sketch centred unit vectors; returns them as they are where there is no basis."""
        return np.asarray(centred @ self.basis) if self.basis.shape[1] else centred

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return int(self.centres.shape[0])

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return int(self.shard_edges.shape[0]) - 1

    def check(self, n_rows: int, n_features: int) -> str:
        """Say what is wrong with it; empty where nothing is."""
        for name, edges in (("cluster", self.cluster_edges), ("shard", self.shard_edges)):
            if (
                edges.ndim != 1 or edges.size < 2 or edges[0] != 0 or edges[-1] != n_rows
                or (np.diff(edges) <= 0).any()
            ):  # fmt: skip
                return f"{name}_edges do not run from 0 to {n_rows}"
        if not np.isin(self.shard_edges, self.cluster_edges).all():
            return "shard_edges are no cluster edges"
        width = (self.basis.shape[1] if self.basis.ndim == 2 else 0) or n_features
        if self.centres.shape != (self.cluster_edges.size - 1, width):
            return f"centres have shape {self.centres.shape}"
        if self.basis.ndim != 2 or self.basis.shape[0] != n_features:
            return f"basis has shape {self.basis.shape}"
        if not np.isfinite(self.basis).all():
            return "basis is not finite"
        if self.mean.shape != (n_features,):
            return f"mean has shape {self.mean.shape}"
        if not np.isfinite(self.centres).all() or not np.isfinite(self.mean).all():
            return "centres or mean are not finite"
        if self.order.shape != (n_rows,):
            return f"order has shape {self.order.shape}"
        seen = np.zeros(n_rows, bool)
        inside = (self.order >= 0) & (self.order < n_rows)
        seen[self.order[inside]] = True
        return "" if seen.all() else "order names not every row once"


def beside(url: str, kind: str, distance: Distance = "cosine") -> str:
    """Place of the index of a kind beside a cohort store."""
    stem = url.removesuffix("/").removesuffix(".zarr")
    return f"{stem}.{kind}.zarr" if distance == "cosine" else f"{stem}.{distance}.{kind}.zarr"


def shard_name(number: int) -> str:
    """Name of the group of a shard."""
    return f"shard-{number:05d}"


class StoredIndex:
    """An index, seen through a small handle that can be sent to any worker.

    It is a source of rows, too (:class:`~croma_dask.index.source.RowSource`): row i is the row at
    place i of the index.

    Parameters
    ----------
    url
        Path or fsspec URL.
    storage_options
        Options of the fsspec file system.

    Raises
    ------
    StoreError
        On first use: there is no index, or it is unfinished, foreign, of another version, or
        contradicts itself.
    """

    def __init__(
        self, url: str | Location, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self.location = Location.of(url, storage_options)
        self._root: zarr.Group | None = None
        self._partition: Partition | None = None
        self._shards: dict[int, ChunkReader] = {}

    def __repr__(self) -> str:
        """Name the place."""
        return f"StoredIndex({self.url!r})"

    def __getstate__(self) -> Location:
        """Keep the place only."""
        return self.location

    def __setstate__(self, state: Location) -> None:
        """Start over from the place."""
        self.__init__(state)  # type: ignore[misc]

    @property
    def url(self) -> str:
        """Path or URL."""
        return self.location.url

    @property
    def root(self) -> zarr.Group:
        """The Zarr group."""
        if self._root is None:
            check_links(self.location)
            check_layout(self.location, "index", FORMAT, _MEND)
            root = open_root(self.location, "an index", "build one with build_index")
            self._check(dict(root.attrs))
            self._root = root
        return self._root

    def _check(self, attrs: Mapping[str, Any]) -> None:
        if attrs.get("format") != FORMAT:
            raise StoreError(f"{self.url} is no index of croma-dask; build one with build_index")
        formats.check("index", attrs.get("format_version"), self.url)
        if attrs.get("status") != COMPLETE:
            raise StoreError(
                f"{self.url} was started and not finished; the same build_index (croma-dask index) "
                "goes on with it"
            )
        missing = [name for name in _ABOUT if name not in attrs]
        if missing:
            raise StoreError(
                f"{self.url} is damaged: its attributes lack {', '.join(missing)}; {_MEND}"
            )
        check_attrs(attrs, self.url, _MEND)
        if attrs["kind"] not in KINDS:
            raise StoreError(
                f"{self.url} is an index of the kind {attrs['kind']!r}, this release knows "
                f"{', '.join(KINDS)}; {_MEND}"
            )
        check_frame(attrs, self.url)

    @property
    def attrs(self) -> dict[str, Any]:
        """What the index says of itself."""
        return dict(self.root.attrs)

    @property
    def kind(self) -> str:
        """``ivf`` or ``pynndescent``."""
        return str(self.attrs["kind"])

    @property
    def build_id(self) -> str:
        """Names this very build: another one of the same rows has other clusters."""
        return str(self.attrs["build_id"])

    @property
    def distance(self) -> Distance:
        """``cosine`` or ``euclidean``."""
        return distance_of(self.attrs)

    @property
    def frame(self) -> Frame:
        """Distance, and origin of the screening."""
        return Frame(self.partition.mean, self.distance, float(self.attrs.get("scale", 1.0)))

    @property
    def parameters(self) -> dict[str, Any]:
        """With what it was built."""
        return dict(json.loads(str(self.attrs["parameters"])))

    @property
    def embedding_fingerprint(self) -> str:
        """Fingerprint of the rows that it holds."""
        return str(self.attrs["embedding_fingerprint"])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.attrs["n_rows"])

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return int(self.attrs["n_features"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the rows."""
        return np.dtype(str(self.attrs["dtype"]))

    @property
    def step(self) -> int:
        """Rows of a chunk."""
        return chunk_rows_for(self.n_features, self.dtype.itemsize)

    @property
    def partition(self) -> Partition:
        """The partition, checked, read once."""
        if self._partition is None:
            check_partition_claims(self.root, self.n_rows, self.n_features, self.location, _MEND)
            found = read_partition(self.root, self.url)
            problem = found.check(self.n_rows, self.n_features)
            if problem:
                raise StoreError(f"{self.url} is damaged: {problem}; {_MEND}")
            self._partition = found
        return self._partition

    def _shard(self, number: int) -> ChunkReader:
        if number not in self._shards:
            name = f"{shard_name(number)}/{ROWS}"
            try:
                self._check_shard(number)
                array: Any = self.root[name]
            except KeyError as err:
                raise StoreError(f"{self.url} is damaged: {name} is missing; {_MEND}") from err
            edges = self.partition.shard_edges
            expected = (int(edges[number + 1] - edges[number]), self.n_features)
            shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
            if shape != expected or dtype != self.dtype or any(size < 1 for size in array.chunks):
                raise StoreError(
                    f"{self.url} is damaged: {name} is {shape} {dtype}, expected {expected} "
                    f"{self.dtype}; {_MEND}"
                )
            check_claim(array, name, self.location)
            self._shards[number] = ChunkReader(array, self.location, name, _MEND)
        return self._shards[number]

    def _check_shard(self, number: int) -> None:
        """Refuse a shard of another build than the partition that this handle has read."""
        mine: Any = self.root[shard_name(number)]
        # Read anew: a handle may have been opened before somebody built the index again.
        found = self.location.node_attributes(f"{shard_name(number)}/zarr.json") or mine.attrs
        if found.get("build_id") != self.build_id:
            raise StoreError(
                f"{self.url} was built again since it was opened, or {shard_name(number)} is of "
                "another build; open it again with open_index, or build it again with "
                "overwrite=True (croma-dask index --overwrite)"
            )

    def descent(self, number: int) -> tuple[Any, dict[str, Any]]:
        """Return the pynndescent arrays of a shard, a Zarr group, and their parameters."""
        name = f"{shard_name(number)}/{DESCENT}"
        try:
            self._check_shard(number)
            group: Any = self.root[name]
            return group, dict(json.loads(str(group.attrs["parameters"])))
        except (KeyError, ValueError, TypeError, RecursionError) as err:
            raise StoreError(f"{self.url} is damaged: {name} is missing; {_MEND}") from err

    def read(self, lo: int, hi: int) -> np.ndarray[Any, Any]:
        """Rows at places lo..hi."""
        out = np.empty((hi - lo, self.n_features), self.dtype)
        for where, rows in self.pieces(lo, hi):
            out[where] = rows
        return out

    def pieces(self, lo: int, hi: int) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
        """Rows at places lo..hi, chunk by chunk: where they belong, and the rows."""
        edges = self.partition.shard_edges
        at = lo
        while at < hi:
            number = int(np.searchsorted(edges, at, side="right")) - 1
            shard, start = self._shard(number), int(edges[number])
            chunk = (at - start) // shard.chunk_rows + 1
            stop = min(hi, int(edges[number + 1]), start + chunk * shard.chunk_rows)
            yield slice(at - lo, stop - lo), shard.read(at - start, stop - start)
            at = stop

    def is_finished(self) -> bool:
        """Whether there is a whole index here; False where there is none, or one not finished."""
        attrs = read_attrs(self.location)
        return attrs.get("format") == FORMAT and attrs.get("status") == COMPLETE

    def matches(self, fingerprint: str, distance: Distance = "cosine") -> None:
        """Refuse an index of other rows, of another distance, or of graphs of another library.

        One that another release has built serves: what is in it is what its format's version says.

        Raises
        ------
        StoreError
            The index is stale.
        """
        library = str(self.attrs.get("library", ""))
        if library and library != library_of(self.kind):
            raise StoreError(
                f"{self.url} holds graphs of {library}, here is {library_of(self.kind)}; {_MEND}"
            )
        if self.distance != distance:
            raise StoreError(
                f"{self.url} is an index of {self.distance} distances, and {distance} ones are "
                "asked for: build another one beside it"
            )
        if self.embedding_fingerprint != fingerprint:
            raise StoreError(
                f"{self.url} is stale: it was built over rows with the fingerprint "
                f"{self.embedding_fingerprint[:12]}, the cohort has {fingerprint[:12]}; {_MEND}"
            )


def read_attrs(location: Location) -> dict[str, Any]:
    """Read the attributes of a group without opening it; none where it cannot be read."""
    return location.node_attributes()


def check_frame(attrs: Mapping[str, Any], url: str) -> None:
    """Check what the attributes of an index say of its screening.

    Raises
    ------
    StoreError
        They name no distance that there is, or not how its rows are scaled.
    """
    # Those of an index that is older than the choice of a distance name neither.
    if "distance" not in attrs and "scale" in attrs:
        raise StoreError(f"{url} is damaged: its attributes lack distance; {_MEND}")
    distance, scale = distance_of(attrs), attrs.get("scale")
    if distance not in get_args(Distance):
        raise StoreError(
            f"{url} is an index of {distance!r} distances, this release knows "
            f"{', '.join(get_args(Distance))}; {_MEND}"
        )
    is_power = isinstance(scale, float | int) and np.frexp(float(scale))[0] == 0.5
    if distance != "cosine" and not is_power:
        raise StoreError(f"{url} is damaged: its rows are scaled by {scale!r}; {_MEND}")


def distance_of(attrs: Mapping[str, Any]) -> Distance:
    """Return the distance that the attributes of an index name; cosine where they name none."""
    found: Distance = attrs.get("distance", "cosine")
    return found


def read_frame(root: zarr.Group, url: str) -> Frame:
    """Read the frame of an index that is being built.

    Raises
    ------
    StoreError
        It is damaged.
    """
    attrs: dict[str, Any] = dict(root.attrs)
    check_frame(attrs, url)
    mean = np.asarray(root["mean"][...])  # type: ignore[index]
    return Frame(mean, distance_of(attrs), float(attrs.get("scale", 1.0)))


def read_partition(root: zarr.Group, url: str) -> Partition:
    """Read the arrays of the partition.

    Raises
    ------
    StoreError
        One is missing, cannot be read, or is of another kind.
    """
    found: dict[str, Any] = {}
    for name, dtype in zip(
        _PARTITION, (np.int64, np.int64, np.float32, np.float64, np.int64, np.float32), strict=True
    ):
        try:
            found[name] = np.asarray(root[name][...])  # type: ignore[index]
        except KeyError as err:
            raise StoreError(f"{url} is damaged: {name} is missing; {_MEND}") from err
        except StoreError:
            raise
        except (ValueError, TypeError, RuntimeError, MemoryError) as err:
            # A chunk that is cut short, or is not what its checksum says.
            raise StoreError(f"{url} is damaged: {name} cannot be read ({err}); {_MEND}") from err
        if found[name].dtype != dtype:
            raise StoreError(
                f"{url} is damaged: {name} is {found[name].dtype}, expected {np.dtype(dtype)}; "
                f"{_MEND}"
            )
    return Partition(**found)


def write_partition(root: zarr.Group, partition: Partition) -> None:
    """Write the arrays of the partition."""
    for name in _PARTITION:
        value = getattr(partition, name)
        array = root.create_array(
            name, shape=value.shape, dtype=value.dtype, overwrite=True,
            compressors=codecs(compress=False),
            chunks=(min(value.shape[0], 1 << 20), *(max(1, s) for s in value.shape[1:])),
            # A chunk that is missing is read as this, which no whole index holds.
            fill_value=np.nan if value.dtype.kind == "f" else -1,
        )  # fmt: skip
        array[...] = value
