"""Which row of the embedding belongs to which row of the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.open import column_array_name, store_of
from croma_dask.cohort.store import StoredCohort
from croma_dask.cohort.text import as_frame, match_keys, to_text
from croma_dask.errors import SchemaError, name_items

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Embedding", "check_embedding", "expand_features_to_manifest", "resolve"]


@dataclass(frozen=True)
class Embedding:
    """The rows that a manifest refers to, read when needed.

    Attributes
    ----------
    data
        A :class:`StoredCohort`, or anything of shape (tiles, features) that slices: numpy,
        memmap, dask, zarr.
    tile_of_row
        (n_rows,) tile of each manifest row; None where row i is tile i.
    fingerprint
        Content fingerprint where it is known already, else empty.
    """

    data: Any
    tile_of_row: NDArray[np.int64] | None
    fingerprint: str = ""

    @property
    def stored(self) -> bool:
        """Whether the tiles lie in a cohort store."""
        return isinstance(self.data, StoredCohort)

    @property
    def n_tiles(self) -> int:
        """Number of stored rows."""
        return int(self.data.n_tiles if self.stored else self.data.shape[0])

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return int(self.data.n_features if self.stored else self.data.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Stored dtype."""
        dtype: np.dtype[Any] = np.dtype(self.data.dtype)
        return dtype


def check_embedding(features: Any) -> Any:
    """Return features as something of shape (rows, features) of real numbers that slices.

    Raises
    ------
    SchemaError
        Wrong number of dimensions, or a dtype that is no real number.
    """
    values = features
    if isinstance(values, pd.DataFrame):
        values = values.to_numpy()
    elif hasattr(values, "toarray") and hasattr(values, "nnz"):
        values = values.toarray()
    elif hasattr(values, "dims") and hasattr(values, "data"):
        # The names that a cohort has are read as names, whatever their order.
        if set(values.dims) == {"sample", "feature"}:
            values = values.transpose("sample", "feature")
        values = values.data
    if isinstance(values, np.ma.MaskedArray):
        # A masked cell has no value: as NaN it is refused with its rows named.
        values = np.ma.filled(values.astype(float), np.nan) if values.mask.any() else values.data
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if not hasattr(values, "shape") or not hasattr(values, "dtype"):
        values = np.asarray(values)
    shape = tuple(int(s) for s in values.shape)
    if len(shape) != 2:
        hint = f"; drop the first axis of length 1, as features[0] does, to get {shape[1:]}"
        raise SchemaError(
            f"the embedding has shape {shape}; expected two dimensions (rows, features)"
            + (hint if len(shape) == 3 and shape[0] == 1 else "")
        )
    kind = np.dtype(values.dtype).kind
    if kind not in "fiub":
        raise SchemaError(
            f"the embedding has dtype {values.dtype}; expected real numbers"
            + ("; convert it with .astype(float)" if kind == "O" else "")
        )
    if shape[1] == 0:
        raise SchemaError(f"the embedding has shape {shape}: rows without features")
    return values


def resolve(features: Any, manifest: Any, columns: tuple[str, ...]) -> tuple[Embedding, Any]:
    """Bring what the caller has into an embedding and something that holds its columns.

    Parameters
    ----------
    features
        Array of any kind, a cohort as :func:`open_cohort` returns it, a :class:`StoredCohort`.
    manifest
        One row a sample, in the order of the rows of `features`; None with a cohort.
    columns
        Columns that will be read.

    Returns
    -------
    embedding, manifest
        The second is a frame, a mapping or the :class:`StoredCohort` itself.

    Raises
    ------
    SchemaError
        Both or neither of the two say what the samples are, their ids or lengths differ.

    Notes
    -----
    Where both sides carry sample ids (a DataArray with that coordinate, a data frame with an index
    of text) rows are matched by id, and results are in the order of the manifest.
    """
    if isinstance(features, StoredCohort):
        if manifest is not None:
            raise SchemaError("a cohort brings its manifest with it: leave `manifest` out")
        tiles = features.tile_of_sample()
        return Embedding(features, tiles, features.embedding_fingerprint), features
    if hasattr(features, "data_vars"):
        if manifest is not None:
            raise SchemaError("a cohort brings its manifest with it: leave `manifest` out")
        return _from_dataset(features, columns)
    if manifest is None:
        raise SchemaError("an array needs a manifest: pass a data frame with one row a sample")
    values = check_embedding(features)
    frame = as_frame(manifest)
    ids = _ids_of(features)
    if ids is not None and "sample_id" in frame.columns:
        return Embedding(values, _rows_by_id(ids, frame)), frame
    if len(frame) != values.shape[0]:
        raise SchemaError(
            f"the embedding has {values.shape[0]} rows and the manifest {len(frame)}; row i of the "
            "one must belong to row i of the other"
        )
    return Embedding(values, None), frame


def _ids_of(features: Any) -> NDArray[np.object_] | None:
    """Sample ids that an array brings with it; None where it has rows and nothing else.

    A DataArray has them as its coordinate `sample_id`, a data frame as an index of text: an index
    of numbers is what selecting rows leaves behind.
    """
    if isinstance(features, pd.DataFrame):
        index = features.index
        named = pd.api.types.is_string_dtype(index.dtype) and not index.empty
        return to_text(index, "the index of the features") if named else None
    coords = getattr(features, "coords", None)
    if coords is not None and "sample_id" in coords:
        return to_text(np.asarray(coords["sample_id"].values), "sample_id")
    return None


def _rows_by_id(ids: NDArray[np.object_], frame: pd.DataFrame) -> NDArray[np.int64] | None:
    """Embedding row of each manifest row, matched by id; None where row i is row i.

    Raises
    ------
    SchemaError
        Ids of the embedding repeat, or the two sets differ (counts and the first five each way).
    """
    have = pd.Index(np.array(match_keys(ids), dtype=object))
    if not have.is_unique:
        repeated = list(have[have.duplicated()].unique())
        raise SchemaError(
            f"the embedding repeats {len(repeated)} sample ids: {name_items(repeated)}"
        )
    want = pd.Index(np.array(match_keys(to_text(frame["sample_id"], "sample_id")), dtype=object))
    row = have.get_indexer(want).astype(np.int64)
    no_row, no_sample = want[row < 0].unique(), have.difference(want, sort=False)
    if len(no_row) or len(no_sample):
        raise SchemaError(
            f"embedding and manifest name different samples: {len(no_row)} only in the manifest"
            + (f" ({name_items(list(no_row))})" if len(no_row) else "")
            + f", {len(no_sample)} only in the embedding"
            + (f" ({name_items(list(no_sample))})" if len(no_sample) else "")
            + "; select the same ones on both sides, or pass bare arrays to match by position"
        )
    return None if np.array_equal(row, np.arange(len(ids))) else row


def _from_dataset(cohort: xr.Dataset, columns: tuple[str, ...]) -> tuple[Embedding, Any]:
    """Take a cohort dataset apart; one that is as it was opened is read from its store directly."""
    if "embedding" not in cohort:
        raise SchemaError(
            "this Dataset is no cohort: it has no variable 'embedding' (sample, feature)"
        )
    store = store_of(cohort)
    present = [column for column in columns if column in cohort.variables]
    if store is not None and all(
        getattr(cohort[column].data, "name", None) == column_array_name(store.fingerprint, column)
        for column in present
    ):
        return Embedding(store, store.tile_of_sample(), store.embedding_fingerprint), store
    values = check_embedding(cohort["embedding"].transpose("sample", "feature"))
    keep = [*present, *({"dataset"} & set(cohort.variables))]
    frame = {c: np.asarray(cohort[c].values) for c in keep}
    return Embedding(values, None), as_frame(frame)


def expand_features_to_manifest(*, features: Any, manifest: Any, embedding_manifest: Any) -> Any:
    """Repeat embedding rows so that row i belongs to row i of a paired manifest.

    Parameters
    ----------
    features
        (tiles, features): numpy, memmap or dask. Each tile once.
    manifest
        The paired manifest, in which a tile occurs once a subset.
    embedding_manifest
        One row a tile, in the order of `features`.

    Returns
    -------
    array
        (len(manifest), features). Lazy (dask) where `features` is a dask array, else numpy.

    Raises
    ------
    SchemaError
        A column is not there, tiles repeat in `embedding_manifest`, or manifest rows have no tile
        (counts and the first five).

    Notes
    -----
    Rows are matched by `sample_id`, and by `image_path` too where both manifests have it. Memory:
    the result, for numpy input; nothing for dask. To score without ever repeating rows, ingest a
    store: it keeps each tile once.
    """
    wide, tiles = as_frame(manifest), as_frame(embedding_manifest)
    for name, frame in (("manifest", wide), ("embedding_manifest", tiles)):
        if "sample_id" not in frame.columns:
            raise SchemaError(f"{name} has no column 'sample_id'")
    keys = ["sample_id"]
    if "image_path" in wide.columns and "image_path" in tiles.columns:
        keys.append("image_path")
    values = check_embedding(features)
    if values.shape[0] != len(tiles):
        raise SchemaError(
            f"features have {values.shape[0]} rows and embedding_manifest {len(tiles)}; row i of "
            "the one must belong to row i of the other"
        )
    have = _keys(tiles, keys)
    repeated = have[have.duplicated()]
    if len(repeated):
        raise SchemaError(
            f"embedding_manifest repeats {len(repeated)} tiles by {' and '.join(keys)}: "
            f"{name_items(list(repeated.unique()))}"
        )
    want = _keys(wide, keys)
    tile = pd.Index(have).get_indexer(pd.Index(want)).astype(np.int64)
    absent = want[tile < 0]
    if len(absent):
        raise SchemaError(
            f"{len(absent)} of {len(wide)} manifest rows have no tile by {' and '.join(keys)}: "
            f"{name_items(list(absent.unique()))}"
        )
    return values[tile]


def _keys(frame: pd.DataFrame, columns: list[str]) -> pd.Series[Any]:
    """One hashable key a row."""
    parts = [match_keys(to_text(frame[c], c)) for c in columns]
    if len(parts) == 1:
        return pd.Series(parts[0], dtype=object)
    return pd.Series(list(zip(*parts, strict=True)), dtype=object)
