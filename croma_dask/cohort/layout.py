"""The layout of a cohort store, in one place: names of arrays, attributes and what they hold.

``stores/README.md`` describes the same for people who write a reader in another language. Change
both together, and raise the version in ``formats`` when an older reader would misread the result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask import formats
from croma_dask.cohort.text import decode, factorize_text
from croma_dask.errors import SchemaError, StoreError, name_items
from croma_dask.fingerprint import text_digest

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "Column",
    "ColumnRef",
    "build_columns",
    "chunk_rows_for",
    "cohort_fingerprint",
    "describe_mismatch",
    "dump_columns",
    "manifest_fingerprint",
    "parse_columns",
]

FORMAT = "croma-dask cohort"
FORMAT_VERSION = formats.VERSIONS["cohort"]
EMBEDDING = "embedding"
EMBEDDING_DTYPES = ("float16", "float32", "float64")
TILE = "tile_of_sample"
SAMPLE_DIM, TILE_DIM, FEATURE_DIM = "sample", "tile", "feature"

STATUS_COMPLETE = "complete"
STATUS_WRITING = "writing"
STATUS_REMOVING = "removing"

CHUNK_ROWS = 4096
CHUNK_BYTES = 32 * 2**20
CODE_CHUNK = 2**20
TEXT_CHUNK = 2**16
# Characters of a chunk of text: it is decoded whole, whichever of its rows are asked for.
TEXT_CHUNK_LENGTH = 2**23

# Columns that name single rows: they stay on disk as text until somebody asks.
TEXT_COLUMNS = ("sample_id", "image_path")
# Columns that are searched by value: always codes, however many levels they have.
CODE_COLUMNS = ("label", "group_id", "subset")
# A column of up to this many levels is coded whatever the number of rows.
FEW_LEVELS = 256
# Names that would clash with the variables and dimensions of an opened cohort.
RESERVED = (EMBEDDING, FEATURE_DIM)

Kind = Literal["category", "text"]


@dataclass(frozen=True)
class Column:
    """One manifest column: codes with the names of the levels.

    Attributes
    ----------
    name
        Column name.
    kind
        ``"category"`` is stored as codes and names, ``"text"`` as one string a row.
    codes
        int32, shape (n_samples,); -1 is a missing cell.
    levels
        Text of each code, sorted, without unused ones.
    alias_of
        Name of the column of which this is a second name; it has the same values.
    """

    name: str
    kind: Kind
    codes: NDArray[np.int32]
    levels: list[str]
    alias_of: str | None = None

    def text(self) -> NDArray[np.object_]:
        """Return the column as text; missing cells are ``""``."""
        return decode(self.codes, self.levels)

    def take(self, order: NDArray[np.int64]) -> Column:
        """Return the column with its rows in another order (a permutation)."""
        return Column(self.name, self.kind, self.codes[order], self.levels, self.alias_of)


@dataclass(frozen=True)
class ColumnRef:
    """Where a store keeps a column: an entry of the root attribute ``columns``."""

    name: str
    kind: Kind
    array: str

    @property
    def names_array(self) -> str:
        """Name of the array that holds the names of the levels."""
        return f"{self.array}_name"


def build_columns(
    frame: pd.DataFrame, aliases: Mapping[str, str] | None = None
) -> dict[str, Column]:
    """Turn a manifest into columns.

    Parameters
    ----------
    frame
        Manifest with unique text column names.
    aliases
        Second names: canonical name -> column of `frame`. A column of `frame` that already has
        the canonical name is kept under ``original_<name>``.

    Raises
    ------
    SchemaError
        A column cannot be read as text, or its name clashes with the layout.
    """
    aliases = {new: old for new, old in (aliases or {}).items() if new != old}
    columns: dict[str, Column] = {}
    for name in frame.columns:
        kept = f"original_{name}" if name in aliases else str(name)
        if kept in RESERVED or kept in columns:
            raise SchemaError(f"manifest column {kept!r}: this name is taken; rename the column")
        codes, levels = factorize_text(frame[name], kept)
        roles = {kept, *(new for new, old in aliases.items() if old == name)}
        columns[kept] = Column(kept, _kind_of(roles, len(levels), len(codes)), codes, levels)
    for new, old in aliases.items():
        source = columns[f"original_{old}" if old in aliases else old]
        columns[new] = Column(new, source.kind, source.codes, source.levels, source.name)
    return columns


def _kind_of(roles: set[str], n_levels: int, n_rows: int) -> Kind:
    """Choose how a column is stored that goes by these names."""
    if roles & set(TEXT_COLUMNS):
        return "text"
    if roles & set(CODE_COLUMNS) or n_levels <= max(FEW_LEVELS, n_rows // 4):
        return "category"
    return "text"


def chunk_rows_for(n_features: int, itemsize: int) -> int:
    """Rows of one chunk: 4,096, or as many as fit 32 MiB."""
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, n_features * itemsize)))


def manifest_fingerprint(columns: Iterable[Column], tiles: NDArray[np.int64] | None) -> str:
    """Fingerprint the manifest's content: names, values and the map of rows to tiles.

    It depends neither on the order of the columns nor on how they are stored.
    """
    parts: list[str | bytes] = ["croma-dask manifest 1"]
    for column in sorted(columns, key=lambda c: c.name):
        parts += [
            column.name,
            column.codes.astype("<i4", copy=False).tobytes(),
            text_digest(*column.levels),
        ]
    if tiles is not None:
        parts += ["tiles", tiles.astype("<i8", copy=False).tobytes()]
    return text_digest(*parts)


def dump_columns(refs: Sequence[ColumnRef]) -> str:
    """Write the root attribute ``columns``."""
    return json.dumps(
        [{"name": ref.name, "kind": ref.kind, "array": ref.array} for ref in refs],
        ensure_ascii=False,
    )


def parse_columns(text: str) -> list[ColumnRef]:
    """Read the root attribute ``columns``."""
    return [ColumnRef(entry["name"], entry["kind"], entry["array"]) for entry in json.loads(text)]


_OTHERS = {
    "": "a result (croma-dask report, breakdown and rank take it)",
    "croma-dask index": "an index (croma-dask score COHORT --index takes it)",
    "croma-dask neighbors": "kept neighbours (croma-dask score COHORT --keep-neighbors takes them)",
}
"""What else this library writes, by its format."""


def describe_mismatch(attrs: Mapping[str, Any], url: str) -> StoreError | None:
    """Say why a Zarr group with these attributes is not a cohort that can be read."""
    if attrs.get("format") != FORMAT:
        form = str(attrs.get("format", ""))
        if form in _OTHERS if form else "croma_dask_version" in attrs:
            return StoreError(f"{url} is {_OTHERS[form]}, and here a cohort store is wanted")
        found = name_items(sorted(attrs)) if attrs else "no attributes"
        return StoreError(
            f"{url} is a Zarr group but not a cohort store (its root has {found}); make one with "
            "`croma-dask ingest FEATURES MANIFEST OUT`"
        )
    if attrs.get("status") != STATUS_REMOVING:
        try:
            formats.check("cohort", attrs.get("format_version"), url)
        except StoreError as err:
            return err
    if attrs.get("status") != STATUS_COMPLETE:
        return StoreError(
            f"{url} was not finished (status {attrs.get('status')!r}); run the same ingest again "
            "to resume it, or with overwrite=True to start over"
        )
    return None


def cohort_fingerprint(embedding: str, manifest: str) -> str:
    """Combine the fingerprints of embedding and manifest."""
    return text_digest(embedding, manifest)
