"""A benchmark of files and folders: tables as they go, and from where an earlier run stopped."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from croma_dask import __version__
from croma_dask.embedding.evaluate import evaluate_embedding
from croma_dask.embedding.input_data import InputData, naming, open_input
from croma_dask.embedding.inputs import EmbeddingInput
from croma_dask.embedding.label import Evaluated, Texts
from croma_dask.embedding.outcome import BIO_METRICS, Scores
from croma_dask.embedding.request import Request
from croma_dask.embedding.rows import Rows, choose_rows, read_text
from croma_dask.embedding.table_files import write_combined
from croma_dask.embedding.table_record import read_sample, write_sample
from croma_dask.embedding.tables import Group
from croma_dask.errors import warn
from croma_dask.fingerprint import text_digest
from croma_dask.options import Options

__all__ = ["READINGS_OF", "failed_metrics", "run_inputs"]

log = logging.getLogger("croma_dask")

_GROUP_OF: dict[str, Group] = {
    **dict.fromkeys(("silhouette", "clisi", "knn_correct"), "bio_conservation"),
    **dict.fromkeys(("kbet", "bras", "ilisi", "cilisi"), "batch_mixing"),
}
"""Group of metrics that each value of a row belongs to."""

READINGS_OF: dict[Group, tuple[str, ...]] = {
    "bio_conservation": (
        "clustering", "selection", "asw", "gc_components", "missing_batches", "lisi_compat",
    ),
    "batch_mixing": (
        "cilisi_average", "bras_other", "kbet_expected", "kbet_components", "lisi_compat",
    ),
}  # fmt: skip
"""Readings that the metrics of a group depend on."""


def run_inputs(
    inputs: Sequence[EmbeddingInput], request: Request, outdir: str | os.PathLike[str],
    options: Options, client: Any = None, *, key: str | None = None, force: bool = False,
    samples: bool = True, storage_options: Mapping[str, Any] | None = None,
) -> Iterator[Evaluated]:  # fmt: skip
    """Score inputs one after the other, and write the tables of each when it is done.

    Parameters
    ----------
    inputs, request
        What to score, and for what; checked by
        :func:`croma_dask.embedding.input_checks.check_inputs`.
    outdir
        Folder of the tables.
    options, client
        As of :func:`croma_dask.embedding_benchmark`.
    key
        Which array of an h5ad file is the embedding, as of
        :func:`croma_dask.embedding.input_data.open_h5ad`.
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
        with open_input(one, request, options, key=key, storage_options=storage_options) as data:
            with naming(_name(one)):
                found = _run_one(one, data, request, outdir, options, client, force=force)
            small = replace(found.scores, sample_values={}, predictions=None)
            done.append(small)
            # The store of an h5ad file is gone when the next one comes.
            found = _in_memory(found) if samples else replace(found, scores=small)
        yield found
    for method in dict.fromkeys(scores.method for scores in done):
        of_method = [scores for scores in done if scores.method == method]
        write_combined(outdir, method, of_method, clustering=request.how.clustering)


def failed_metrics(scores: Scores) -> dict[str, str]:
    """Metrics that raised, and what."""
    failed = "failed: "
    return {
        name: outcome.status.removeprefix(failed)
        for name, outcome in scores.outcomes.items()
        if outcome.status.startswith(failed)
    }


def _name(one: EmbeddingInput) -> str:
    return f"{one.sample} by {one.method}"


def _run_one(
    one: EmbeddingInput, data: InputData, request: Request, outdir: str | os.PathLike[str],
    options: Options, client: Any, *, force: bool,
) -> Evaluated:  # fmt: skip
    keys = _keys(data, request)
    clustering = request.how.clustering
    label = read_text(data.manifest, request.label)
    batch = None if request.batch is None else read_text(data.manifest, request.batch)
    kept = None
    if not force:
        kept = read_sample(
            outdir, one.sample, one.method, clustering=clustering, metrics=request.metrics,
            keys=keys,
        )  # fmt: skip
    missing = tuple(m for m in request.metrics if kept is None or m not in kept.outcomes)
    if missing and _rows_by_batch(request) and any(name in BIO_METRICS for name in missing):
        # Metrics of labels alone would not leave the rows without batch out.
        kept, missing = None, request.metrics
    if kept is not None:
        log.warning("%s: %s of an earlier run used again (--force scores them anew)", _name(one),
                    "tables" if not missing else f"{', '.join(kept.outcomes)}")  # fmt: skip
    if kept is not None and not missing:
        scores = kept
    else:
        part = replace(request, metrics=missing)
        scores = evaluate_embedding(
            data.embedding, _choose_rows(one, data, part), part, dataset=one.sample,
            method=one.method, options=options, client=client,
        )  # fmt: skip
        write_sample(
            outdir, scores, clustering=clustering, keys=keys, ids=data.sample_id, labels=label,
            groups_of=_GROUP_OF,
        )  # fmt: skip
        scores = scores if kept is None else _joined(kept, scores, request)
    return Evaluated(scores, data.n_rows, data.sample_id, label, batch)


def _choose_rows(one: EmbeddingInput, data: InputData, request: Request) -> Rows:
    """Choose the rows; what is said of them says of which input they are."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = choose_rows(
            data.manifest, request.label, request.batch, bio=request.bio, mixing=request.mixing,
            missing_batches=request.how.missing_batches, batch_max_cells=request.batch_max_cells,
        )  # fmt: skip
    for said in caught:
        warn(f"{_name(one)}: {said.message}", said.category)
    return rows


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


def _rows_by_batch(request: Request) -> bool:
    """Whether the metrics of labels leave rows out that have no batch."""
    return request.batch is not None and request.how.missing_batches == "all_metrics"


def _keys(data: InputData, request: Request) -> dict[Group, str]:
    """Name, for each group of metrics, all that its tables depend on, and nothing else."""
    shared = {
        "versions": _versions(), "embedding": data.digest(), "label": request.label,
        "labels": data.digest_of(request.label),
    }  # fmt: skip
    batches = {} if request.batch is None else {
        "batch": request.batch, "batches": data.digest_of(request.batch)
    }  # fmt: skip
    own: dict[Group, dict[str, Any]] = {
        # The predictions name the rows.
        "bio_conservation": {
            "ids": data.digest_of_ids(), **(batches if _rows_by_batch(request) else {})
        },
        "batch_mixing": {"batch_max_cells": request.batch_max_cells, **batches},
    }  # fmt: skip
    readings = asdict(request.how)
    return {
        group: text_digest(
            json.dumps(
                [shared, what, {name: readings[name] for name in READINGS_OF[group]}],
                sort_keys=True,
            )
        )
        for group, what in own.items()
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
