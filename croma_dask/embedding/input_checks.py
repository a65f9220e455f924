"""Inputs of a benchmark that cannot be scored are refused before any of them is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from croma_dask.cohort.readers.base import EmbeddingReader, stored_dtype
from croma_dask.cohort.readers.hdf5 import open_hdf5
from croma_dask.cohort.store import StoredCohort
from croma_dask.cohort.text import to_text
from croma_dask.embedding.input_data import column_codes, naming, obs_of, opened_h5ad
from croma_dask.embedding.inputs import EmbeddingInput
from croma_dask.embedding.request import Request
from croma_dask.errors import InputWarning, SchemaError, name_items, warn

__all__ = ["check_inputs"]

_WIDE = 1000
"""Columns of an X that is rather a matrix of genes than an embedding."""


def check_inputs(
    inputs: Sequence[EmbeddingInput], request: Request, *, key: str | None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Refuse inputs that cannot be scored, before any of them is.

    Parameters
    ----------
    inputs, request
        What is to be scored, and for what.
    key
        As of :func:`croma_dask.embedding.input_data.opened_h5ad`.
    storage_options
        Options of the file system of URLs. A file at one is copied here, and copied again when it
        is scored: files may be many.

    Raises
    ------
    SchemaError
        Of which input: a column is missing, or has no value, or rows have no names of their own.
    StoreError
        A store is not whole.

    Warns
    -----
    InputWarning
        What is taken for the embedding looks like something else.
    """
    if request.label == request.batch:
        raise SchemaError(
            f"label and batch are both column {request.label!r}: they have to be two columns "
            "(--label-key and --batch-key)"
        )
    absent: dict[str, str] = {}
    for one in inputs:
        with naming(one.path):
            if not one.is_h5ad:
                store = StoredCohort(one.path, storage_options)
                lacks = _lacking(store.columns, request)
                if not lacks:
                    _check_column(store, request.label)
            else:
                with opened_h5ad(one, key, storage_options) as (reader, copy):
                    lacks = _lacking(obs_of(reader).columns, request)
                    if not lacks:
                        _check_file(reader, request)
                    if key is None:
                        _warn_of_counts(one.path, copy, reader.shape[1])
        if lacks:
            absent[one.path] = lacks
    if absent:
        path, lacks = next(iter(absent.items()))
        more = f"; so do {len(absent) - 1} more of {len(inputs)} inputs" if len(absent) > 1 else ""
        raise SchemaError(
            f"{path} lacks {lacks}{more}: name the columns with --label-key and --batch-key"
        )


def _lacking(columns: Any, request: Request) -> str:
    """Name the columns that are asked for and not there; nothing where all are."""
    names = [str(column) for column in columns]
    wanted = [request.label, *([] if request.batch is None else [request.batch])]
    missing = [name for name in wanted if name not in names]
    if not missing:
        return ""
    has = name_items(names, limit=20) if names else "none"
    return f"column {name_items(missing)} (its columns: {has})"


def _check_file(reader: EmbeddingReader, request: Request) -> None:
    stored_dtype(reader.dtype, None, str(reader.source["key"]))
    obs = obs_of(reader)
    _check_column(obs, request.label)
    if request.batch is not None:
        column_codes(obs, request.batch)
    ids = pd.Index(to_text(reader.ids, "obs names"), dtype=object)
    if not ids.is_unique:
        twice = ids[ids.duplicated()].unique()
        raise SchemaError(
            f"{len(twice)} obs names occur more than once ({name_items(twice)}), and rows of the "
            "predictions go by them: make them unique, with adata.obs_names_make_unique() for "
            "example"
        )


def _warn_of_counts(name: str, path: Path, n_features: int) -> None:
    """Warn where X is most likely the expression of genes, and the embedding lies elsewhere."""
    if n_features <= _WIDE:
        return
    with open_hdf5(str(path)) as file:
        others = [str(name) for name in file.get("obsm", ())] if "X" in file else []
    if others:
        warn(
            f"{name}: X, of {n_features:,} columns, is taken for the embedding; if it is one of "
            f"obsm ({name_items(others)}), say so with --key",
            InputWarning,
        )


def _check_column(manifest: Any, label: str) -> None:
    codes, _ = column_codes(manifest, label)
    if not (codes >= 0).any():
        raise SchemaError(f"column {label!r} (--label-key) is missing or blank in every row")
