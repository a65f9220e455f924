"""The embeddings that a benchmark is given, in whatever form, and what they are called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from croma_dask.cohort.align import Embedding, resolve
from croma_dask.cohort.open import cohort_of
from croma_dask.cohort.store import StoredCohort
from croma_dask.cohort.text import as_frame
from croma_dask.embedding.inputs import method_label, sample_name
from croma_dask.embedding.request import Request
from croma_dask.embedding.rows import Rows, check_columns, choose_rows
from croma_dask.errors import SchemaError, name_items

__all__ = ["Job", "check_jobs", "jobs_of", "open_job"]


@dataclass(frozen=True)
class Job:
    """One embedding of a benchmark, not opened yet.

    Attributes
    ----------
    dataset, method
        What it is called.
    cohort, manifest
        As of :func:`croma_dask.embedding_benchmark`, one of them.
    """

    dataset: str
    method: str
    cohort: Any
    manifest: Any = None


def jobs_of(
    cohort: Any, manifest: Any, dataset: Any, method: Any,
    storage_options: Mapping[str, Any] | None = None,
) -> list[Job]:  # fmt: skip
    """Bring what a caller gives into embeddings with names, stores by their place among them.

    Raises
    ------
    SchemaError
        Two embeddings have one name, or names are not one for each.
    """
    if isinstance(cohort, Mapping) and not hasattr(cohort, "data_vars"):
        if manifest is not None:
            raise SchemaError(
                "a manifest is for one array: give a mapping to pairs of array and manifest, or to "
                "cohorts"
            )
        if dataset is not None or method is not None:
            raise SchemaError("a mapping of embeddings names them: leave dataset= and method= out")
        jobs = [_named(key, one) for key, one in cohort.items()]
    else:
        many = isinstance(cohort, list | tuple) and not _is_array(cohort)
        given = list(cohort) if many else [cohort]
        if many and manifest is not None:
            raise SchemaError("a manifest is for one array: give a list as pairs of array and "
                              "manifest, or as cohorts")  # fmt: skip
        datasets, methods = _names(dataset, "dataset", given), _names(method, "method", given)
        jobs = []
        for at, one in enumerate(given):
            mine, frame = one if many and isinstance(one, tuple) else (one, manifest)
            names = _own_names(mine, at if many else None)
            jobs.append(Job(datasets[at] or names[0], methods[at] or names[1], mine, frame))
    if not jobs:
        raise SchemaError("no embedding is given")
    seen: set[tuple[str, str]] = set()
    for job in jobs:
        if (job.dataset, job.method) in seen:
            raise SchemaError(
                f"two embeddings are called dataset {job.dataset!r}, method {job.method!r}: name "
                "them apart with dataset= and method=, or give a mapping of (dataset, method)"
            )
        seen.add((job.dataset, job.method))
    return [replace(job, cohort=cohort_of(job.cohort, storage_options)) for job in jobs]


def check_jobs(jobs: Sequence[Job], request: Request) -> None:
    """Refuse embeddings whose manifests lack a column, before any of them is scored.

    Raises
    ------
    SchemaError
        Of which embedding, where there are several.
    StoreError
        There is no store where one is named.
    """
    for job in jobs:
        cohort, manifest = job.cohort, job.manifest
        if isinstance(cohort, StoredCohort):
            columns: Any = cohort.columns
        elif hasattr(cohort, "data_vars"):
            columns = cohort.variables
        elif manifest is not None:
            columns = as_frame(manifest).columns
        else:
            raise SchemaError("an array needs a manifest: pass a data frame with one row a sample")
        whose = f"{job.dataset} by {job.method}: " if len(jobs) > 1 else ""
        check_columns(columns, request.label, request.batch, whose)


def _named(key: Any, one: Any) -> Job:
    if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(k, str) for k in key)):
        raise SchemaError(f"a mapping of embeddings has keys (dataset, method), found {key!r}")
    cohort, manifest = one if isinstance(one, tuple) else (one, None)
    return Job(key[0], key[1], cohort, manifest)


def _is_array(cohort: Any) -> bool:
    """Whether a list is rows of numbers and not a list of cohorts."""
    first: Any = cohort[0] if len(cohort) else ""
    return isinstance(first, list) or (isinstance(first, np.ndarray) and first.ndim == 1)


def _names(given: Any, what: str, cohorts: Sequence[Any]) -> list[str | None]:
    if given is None or isinstance(given, str):
        return [given] * len(cohorts)
    names = list(given)
    if len(names) != len(cohorts):
        raise SchemaError(
            f"{what} has {len(names)} names ({name_items(names)}) for {len(cohorts)} embeddings"
        )
    return names


def _own_names(cohort: Any, at: int | None) -> tuple[str, str]:
    """Names of an embedding that the caller has not named."""
    place = cohort.url if isinstance(cohort, StoredCohort) else cohort
    if hasattr(cohort, "data_vars"):
        place = cohort.attrs.get("croma_store")
    if isinstance(place, str | os.PathLike):
        return sample_name(place), method_label(PurePath(os.path.abspath(place)).parent.name)
    return "dataset", "embedding" if at is None else f"embedding-{at}"


def open_job(job: Job, request: Request) -> tuple[Embedding, Any, Rows]:
    """Resolve an embedding, its manifest, and the rows of each group of metrics."""
    columns = [request.label, request.sample_id]
    columns += [] if request.batch is None else [request.batch]
    embedding, frame = resolve(job.cohort, job.manifest, tuple(columns))
    frame = _with_ids(frame, job.manifest, request.sample_id)
    rows = choose_rows(
        frame, request.label, request.batch, bio=request.bio, mixing=request.mixing,
        missing_batches=request.how.missing_batches, batch_max_cells=request.batch_max_cells,
    )  # fmt: skip
    return embedding, frame, rows


def _with_ids(frame: Any, manifest: Any, column: str) -> Any:
    """Take the names of a data frame's rows as ids, where it has no column of them.

    An AnnData's obs has its barcodes there. An index of numbers is what selecting rows leaves.
    """
    if not isinstance(manifest, pd.DataFrame) or column in manifest.columns:
        return frame
    index = manifest.index
    if not pd.api.types.is_string_dtype(index.dtype) or index.empty:
        return frame
    return frame.assign(**{column: np.asarray(index, object)})
