"""The roles of a manifest's columns at ingest: ids, label, group, subset, image path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.readers.base import EmbeddingReader
from croma_dask.cohort.rows import composite_ids
from croma_dask.cohort.slides import with_slides
from croma_dask.cohort.text import check_columns, check_no_missing, to_text
from croma_dask.errors import SchemaError, name_items

__all__ = ["ManifestNames", "PreparedManifest", "prepare_manifest"]


class ManifestNames(NamedTuple):
    """Which columns play which role, as the caller says."""

    label: str = "label"
    group: str = "group_id"
    sample_id: str = "sample_id"
    subset: str = "subset"
    image_path: str = "image_path"
    id_columns: tuple[str, ...] = ()

    def aliases(self) -> dict[str, str]:
        """Map each canonical name to the caller's."""
        return {
            "label": self.label,
            "group_id": self.group,
            "sample_id": self.sample_id,
            "subset": self.subset,
            "image_path": self.image_path,
        }


@dataclass(frozen=True)
class PreparedManifest:
    """A manifest whose ids are known.

    Attributes
    ----------
    frame
        The manifest's own columns, and ``sample_id``.
    aliases
        Canonical name -> column, for the roles whose column has another name.
    ids, subset, image_paths
        Text of these roles, shape (n,); None where the manifest has no such column.
    match_ids, file_ids
        What manifest and embedding are matched by; `file_ids` is None to match by position.
    """

    frame: pd.DataFrame
    aliases: dict[str, str]
    ids: NDArray[np.object_]
    subset: NDArray[np.object_] | None
    image_paths: NDArray[np.object_] | None
    match_ids: NDArray[np.object_]
    file_ids: NDArray[np.object_] | None


def prepare_manifest(
    frame: pd.DataFrame | None, reader: EmbeddingReader, names: ManifestNames
) -> PreparedManifest:
    """Find ids and roles in the manifest that was given, or in the one the embedding carries.

    Raises
    ------
    SchemaError
        There is no manifest, a named column is missing, or ids are missing or incomplete.
    """
    separator = getattr(reader, "id_separator", None)
    if frame is None:
        if reader.manifest is None:
            raise SchemaError(
                f"{reader.source.get('features')} carries no manifest; give one (CSV, TSV, parquet)"
            )
        frame, own_ids, file_ids = reader.manifest, reader.ids, None
    else:
        own_ids = None
        slides = getattr(reader, "slides", None)
        if slides is not None and reader.manifest is not None:
            frame, key = with_slides(frame, reader.manifest, slides, names.group, names.sample_id)
            if key == names.sample_id:
                names = names._replace(sample_id="sample_id")
        file_ids = _file_ids(reader, names)
    _check_names([str(column) for column in frame.columns], names, has_ids=own_ids is not None)
    ids = _sample_ids(frame, names, own_ids)
    match_ids = ids
    if names.id_columns and separator:
        match_ids = _composite(frame, names.id_columns, separator)
    if names.id_columns or names.sample_id not in frame.columns:
        frame = frame.rename(columns={"sample_id": "original_sample_id"})
        frame.insert(0, "sample_id", ids)
        check_columns(list(frame.columns))
        names = names._replace(sample_id="sample_id")
    return PreparedManifest(
        frame=frame,
        aliases={
            role: name
            for role, name in names.aliases().items()
            if role != name and name in frame.columns
        },
        ids=ids,
        subset=_optional(frame, names.subset),
        image_paths=_optional(frame, names.image_path),
        match_ids=match_ids,
        file_ids=file_ids,
    )


def _optional(frame: pd.DataFrame, name: str) -> NDArray[np.object_] | None:
    return to_text(frame[name], name) if name in frame.columns else None


def _file_ids(reader: EmbeddingReader, names: ManifestNames) -> NDArray[np.object_] | None:
    """Return the ids of the embedding's rows, from the columns that the manifest's come from."""
    own = reader.manifest
    if own is not None:
        if names.id_columns and set(names.id_columns) <= set(own.columns):
            return _composite(own, names.id_columns)
        if not names.id_columns and names.sample_id in own.columns:
            ids = to_text(own[names.sample_id], f"{names.sample_id} of the embedding")
            check_no_missing(ids, f"{names.sample_id} of the embedding")
            return ids
    return None if reader.ids is None else to_text(reader.ids, "ids of the embedding")


def _composite(
    frame: pd.DataFrame, columns: Sequence[str], separator: str = "/"
) -> NDArray[np.object_]:
    return composite_ids([to_text(frame[name], name) for name in columns], columns, separator)


def _check_names(columns: Sequence[str], names: ManifestNames, *, has_ids: bool) -> None:
    """Refuse a role that names a column which is not there, and croma's old column name."""
    listed = name_items(columns, limit=20)
    for name in names.id_columns:
        if name not in columns:
            raise SchemaError(f"id column {name!r} is not in the manifest; it has {listed}")
    for role, name in names.aliases().items():
        own_group = role == "group_id" and name == "sample_id"
        if name not in columns and name != role and not own_group:
            raise SchemaError(f"{role} column {name!r} is not in the manifest; it has {listed}")
    if names.group == "group_id" and "group_id" not in columns and "slide_id" in columns:
        raise SchemaError(
            "the manifest has no group_id but a slide_id: rename the column to group_id, or say "
            "that it is the group with group='slide_id' (--group slide_id)"
        )
    if names.sample_id not in columns and not names.id_columns and not has_ids:
        raise SchemaError(
            f"the manifest has no column {names.sample_id!r} that names the samples; it has "
            f"{listed}. Name one with sample_id= (--sample-id), or several that identify a sample "
            "together with id_columns= (--id-columns)"
        )


def _sample_ids(
    frame: pd.DataFrame, names: ManifestNames, own_ids: NDArray[np.object_] | None
) -> NDArray[np.object_]:
    if names.id_columns:
        return _composite(frame, names.id_columns)
    if names.sample_id in frame.columns:
        ids = to_text(frame[names.sample_id], names.sample_id)
    else:
        ids = to_text(own_ids, "ids of the embedding")
    check_no_missing(ids, names.sample_id)
    return ids
