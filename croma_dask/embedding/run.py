"""A benchmark of files and folders: tables as they go, and from where an earlier run stopped."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from croma_dask import __version__
from croma_dask.cohort.ingestion import ingest
from croma_dask.cohort.readers import open_reader
from croma_dask.cohort.store import StoredCohort
from croma_dask.embedding.benchmark import Job, evaluate_job
from croma_dask.embedding.inputs import EmbeddingInput
from croma_dask.embedding.label import Evaluated, Texts
from croma_dask.embedding.outcome import Scores
from croma_dask.embedding.request import Request
from croma_dask.embedding.rows import read_text
from croma_dask.embedding.table_files import write_combined
from croma_dask.embedding.table_record import read_sample, write_sample
from croma_dask.embedding.tables import Group
from croma_dask.errors import SchemaError, name_items
from croma_dask.fingerprint import text_digest
from croma_dask.options import Options
from croma_dask.resume import own_folder

__all__ = ["check_inputs", "failed_metrics", "run_inputs"]

log = logging.getLogger("croma_dask")

_GROUP_OF: dict[str, Group] = {
    **dict.fromkeys(("silhouette", "clisi", "knn_correct"), "bio_conservation"),
    **dict.fromkeys(("kbet", "bras", "ilisi", "cilisi"), "batch_mixing"),
}
"""Group of metrics that each value of a row belongs to."""


@dataclass(frozen=True)
class _Input:
    """An input as a store."""

    about: EmbeddingInput
    store: StoredCohort


def check_inputs(
    inputs: Sequence[EmbeddingInput], request: Request, *, key: str | None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Refuse inputs that lack a column, before any of them is scored.

    Raises
    ------
    SchemaError
        Columns are missing: of which input, and what there is.
    StoreError
        A store is not whole.
    """
    wanted = [request.label, *([] if request.batch is None else [request.batch])]
    for one in inputs:
        if one.path.endswith(".h5ad"):
            reader = open_reader(one.path, key=key)
            try:
                columns = [] if reader.manifest is None else [str(c) for c in reader.manifest]
            finally:
                reader.close()
        else:
            columns = list(StoredCohort(one.path, storage_options).columns)
        absent = [name for name in wanted if name not in columns]
        if absent:
            raise SchemaError(
                f"{one.path} has no column {name_items(absent)} (it has "
                f"{name_items(columns, limit=20)}): name the columns with --label-key and "
                "--batch-key"
            )


def run_inputs(
    inputs: Sequence[EmbeddingInput], request: Request, outdir: str | os.PathLike[str],
    options: Options, client: Any = None, *, key: str | None = None, force: bool = False,
    samples: bool = True, storage_options: Mapping[str, Any] | None = None,
) -> Iterator[Evaluated]:  # fmt: skip
    """Score inputs one after the other, and write the tables of each when it is done.

    Parameters
    ----------
    inputs, request
        What to score, and for what.
    outdir
        Folder of the tables.
    options, client
        As of :func:`croma_dask.embedding_benchmark`.
    key
        Which array of an h5ad file is the embedding; None for ``X``.
    force
        Score again what an earlier run has left there.
    samples
        Whether what is yielded has the values and names of single rows; without them it is small.
    storage_options
        Options of the file system of a store's URL.

    Yields
    ------
    Evaluated
        Each input as it is done, those of an earlier run among them. When all are, the tables of
        each method are written.
    """
    # What the tables are made of: values of single rows would pile up.
    done: list[Scores] = []
    for one in inputs:
        with contextlib.ExitStack() as keep:
            found = _run_one(
                _as_store(one, key, request, options, keep, storage_options), request, outdir,
                options, client, force=force,
            )  # fmt: skip
            small = replace(found.scores, sample_values={}, predictions=None)
            done.append(small)
            # The store of an h5ad file is gone when the next one comes.
            yield _in_memory(found) if samples else replace(found, scores=small)
    for method in dict.fromkeys(scores.method for scores in done):
        of_method = [scores for scores in done if scores.method == method]
        write_combined(outdir, method, of_method, clustering=request.how.clustering)


def failed_metrics(scores: Scores) -> list[str]:
    """Metrics that raised."""
    return [n for n, outcome in scores.outcomes.items() if outcome.status.startswith("failed")]


def _as_store(
    one: EmbeddingInput, key: str | None, request: Request, options: Options,
    keep: contextlib.ExitStack, storage_options: Mapping[str, Any] | None,
) -> _Input:  # fmt: skip
    """Open a store; an h5ad file becomes one for as long as it is worked on."""
    if not one.path.endswith(".h5ad"):
        return _Input(one, StoredCohort(one.path, storage_options))
    place = Path(own_folder(options, "h5ad-", keep)) / "cohort.zarr"
    ingest(one.path, None, place, key=key or "X", label=request.label)
    return _Input(one, StoredCohort(place))


def _run_one(
    one: _Input, request: Request, outdir: str | os.PathLike[str], options: Options, client: Any,
    *, force: bool,
) -> Evaluated:  # fmt: skip
    about, store = one.about, one.store
    keys = _keys(store, request)
    clustering = request.how.clustering
    batch = None if request.batch is None else read_text(store, request.batch)
    texts = read_text(store, "sample_id"), read_text(store, request.label), batch
    kept = None
    if not force:
        kept = read_sample(
            outdir, about.sample, about.method, clustering=clustering, metrics=request.metrics,
            keys=keys,
        )  # fmt: skip
    missing = [name for name in request.metrics if kept is None or name not in kept.outcomes]
    if kept is not None and not missing:
        log.info("%s of %s is done already: its tables are used", about.sample, about.method)
        return Evaluated(kept, store.n_samples, *texts)
    job = Job(about.sample, about.method, store)
    found = evaluate_job(job, replace(request, metrics=tuple(missing)), None, options, client)
    write_sample(
        outdir, found.scores, clustering=clustering, keys=keys, ids=found.sample_id,
        labels=found.label, groups_of=_GROUP_OF,
    )  # fmt: skip
    if kept is None:
        return found
    return Evaluated(_joined(kept, found.scores, request), store.n_samples, *texts)


def _in_memory(found: Evaluated) -> Evaluated:
    """Read the names of the rows."""
    n = found.n_rows

    def held(texts: Texts) -> Texts:
        read = texts(0, n)
        return lambda lo, hi: read[lo:hi]

    batch = None if found.batch is None else held(found.batch)
    return replace(found, sample_id=held(found.sample_id), label=held(found.label), batch=batch)


def _joined(kept: Scores, found: Scores, request: Request) -> Scores:
    """Put the group of metrics that was kept and the one that was computed together."""
    outcomes = kept.outcomes | found.outcomes
    return Scores(
        found.dataset, found.method, {name: outcomes[name] for name in request.metrics},
        found.bio or kept.bio, found.batch or kept.batch,
        kept.sample_values | found.sample_values,
        kept.predictions if found.predictions is None else found.predictions,
        {**kept.attrs, **found.attrs},
    )  # fmt: skip


def _keys(store: StoredCohort, request: Request) -> dict[Group, str]:
    """Name, for each group of metrics, all that their values depend on."""
    shared: dict[str, Any] = {
        "versions": _versions(), "embedding": store.embedding_fingerprint,
        "manifest": store.fingerprint, "label": request.label, "readings": asdict(request.how),
    }  # fmt: skip
    # Rows without batch may leave the metrics of labels, too.
    batch = {"batch": request.batch, "batch_max_cells": request.batch_max_cells}
    bio = shared
    if request.how.missing_batches == "all_metrics":
        bio = shared | {"batch": request.batch}
    groups: dict[Group, Any] = {"bio_conservation": bio, "batch_mixing": shared | batch}
    return {
        group: text_digest(json.dumps(what, sort_keys=True, default=str))
        for group, what in groups.items()
    }


def _versions() -> dict[str, str]:
    """Versions of what the numbers come from."""
    found = {"croma-dask": __version__}
    for name in ("igraph", "numpy", "scikit-learn", "scipy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
