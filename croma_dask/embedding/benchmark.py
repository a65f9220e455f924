"""The embedding benchmark: any metrics of one or many embeddings, as one labelled result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from croma_dask.approximate import Approximation
from croma_dask.build import index_at
from croma_dask.cluster import active_client
from croma_dask.embedding.evaluate import evaluate_embedding
from croma_dask.embedding.jobs import Job, check_jobs, jobs_of, open_job
from croma_dask.embedding.label import Evaluated, label_scores
from croma_dask.embedding.request import Request
from croma_dask.embedding.rows import read_text
from croma_dask.options import Options, merged
from croma_dask.robustness.arguments import check_index

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["embedding_benchmark", "result_attrs"]


def embedding_benchmark(
    cohort: Any,
    manifest: Any = None,
    *,
    label: str = "cell_type",
    batch: str | None = None,
    metrics: str | Sequence[str] | None = None,
    clustering: Literal["leiden", "kmeans"] = "leiden",
    dataset: str | Sequence[str] | None = None,
    method: str | Sequence[str] | None = None,
    sample_id: str = "sample_id",
    batch_max_cells: int = 0,
    selection: Literal["match_n_labels", "best_nmi"] = "match_n_labels",
    asw: Literal["exact", "interval"] = "exact",
    gc_components: Literal["strong", "weak"] = "strong",
    cilisi_average: Literal["samples", "labels"] = "samples",
    bras_other: Literal["pooled", "batches"] = "pooled",
    kbet_expected: Literal["label", "dataset"] = "label",
    kbet_components: Literal["carried", "independent"] = "carried",
    missing_batches: Literal["batch_metrics", "all_metrics"] = "batch_metrics",
    lisi_compat: Literal["scib-metrics"] | None = None,
    index: Any = "exact",
    recall: float = 0.98,
    probes: int | None = None,
    calibration: int = 1000,
    seed: int = 0,
    samples: bool = True,
    memory: int | str | None = None,
    threads: int | None = None,
    scratch: str | None = None,
    resume: bool | None = None,
    keep_scratch: bool | None = None,
    quiet: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Any = None,
) -> xr.Dataset:
    """Score embeddings by up to thirteen metrics: biology kept, batches mixed.

    ARI, NMI, HOM, COM and FMI compare clusters of the embedding with the labels; ASW, cLISI,
    Acc@kNN and GC look at the labels of near rows; kBET, BRAS, iLISI and CiLISI at their batches.
    Of all of them higher is better. Rows without label are left out, with a warning.

    Parameters
    ----------
    cohort
        Place of a store or a cohort (:func:`croma_dask.open_cohort`), an array (N, D) with a
        `manifest`; or a list of these, or a mapping of (dataset, method) to each.
    manifest
        One row a sample, for an array.
    label, batch
        Columns. Without a batch column the metrics of labels alone are computed.
    metrics
        Names, or ``"bio"``, ``"batch"``, ``"all"``. Default: all that the columns allow.
    clustering
        ``leiden``: resolutions 0.1 to 3 (up to 6), of which the one whose number of clusters is
        nearest to that of the labels; ``kmeans``: as many clusters as labels, in memory.
    dataset, method
        Names, one for all or one each. Default: of a store its file and its folder.
    sample_id
        Column of the ids; rows are numbered where there is none.
    batch_max_cells
        Draw a stratified sample of so many rows for the metrics of batches; 0 takes all.
    selection, asw, gc_components, cilisi_average, bras_other, kbet_expected, kbet_components
        Readings, see :class:`croma_dask.embedding.request.Readings`: the first of each is what
        scfoundry and scib-metrics compute.
    missing_batches, lisi_compat
        Readings, too. By default the metrics of labels count rows without batch, and LISI is never
        below 1.
    index, recall, probes, calibration, seed
        Of an approximate search for the lists of any label, as in :func:`croma_dask.score`. ASW,
        BRAS and the lists of CiLISI are always exact.
    samples
        Whether the values of single rows are part of the result.
    memory, threads, scratch, resume, keep_scratch, quiet, client
        As in :func:`croma_dask.score`.
    storage_options
        Options of the fsspec file system of places that are URLs: of `cohort` and `index`.

    Returns
    -------
    xarray.Dataset
        Dims (dataset, method, metric): `value`, `note`, `status`, `n_cells`, `n_labels`,
        `n_batches`; along `sample`, embedding behind embedding: `silhouette`, `clisi`,
        `knn_correct`, `kbet`, `bras`, `ilisi`, `cilisi` and the coordinate `cluster`. See
        :mod:`croma_dask.schema_benchmark`.

    Raises
    ------
    SchemaError
        A column, metric or reading is not known, no row has a label, two embeddings have one name,
        or an approximate index is asked for where rows are left out.
    MemoryLimitError
        The search does not fit the allowed memory. (What else does not fit fails by itself.)
    StoreError, OSError
        Rows cannot be read.

    Warns
    -----
    InputWarning
        Rows are left out because their label or batch is missing.

    Notes
    -----
    One exact search serves all metrics that look at neighbours: neighbours are the nearest other
    rows by Euclidean distance, of equal ones the first. A metric that fails says why in `status`,
    and leaves the others alone. Memory: :func:`croma_dask.plan_embedding_benchmark` tells.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import croma_dask as cd
    >>> rng = np.random.default_rng(0)
    >>> kind, batch = np.repeat(["a", "b"], 40), np.tile(["x", "y"], 40)
    >>> x = rng.normal(size=(80, 5)) + 4.0 * (kind == "b")[:, None]
    >>> found = cd.embedding_benchmark(
    ...     x, pd.DataFrame({"cell_type": kind, "batch_id": batch}), batch="batch_id",
    ...     metrics=["ASW", "BRAS"],
    ... )
    >>> found.value.dims, round(float(found.value.sel(metric="ASW").item()), 2)
    (('dataset', 'method', 'metric'), 0.67)
    """
    request = Request.of(
        metrics, label, batch, sample_id, batch_max_cells, clustering=clustering,
        selection=selection, asw=asw, gc_components=gc_components, cilisi_average=cilisi_average,
        bras_other=bras_other, kbet_expected=kbet_expected, kbet_components=kbet_components,
        missing_batches=missing_batches, lisi_compat=lisi_compat,
    )  # fmt: skip
    how = check_index(
        index_at(index, storage_options), recall=recall, probes=probes, calibration=calibration,
        seed=seed, start_k=200, k_growth_factor=2.0,
    )  # fmt: skip
    options = merged(
        memory=memory, threads=threads, scratch=scratch, resume=resume, keep_scratch=keep_scratch,
        quiet=quiet,
    )  # fmt: skip
    client = client if client is not None else active_client()
    jobs = jobs_of(cohort, manifest, dataset, method, storage_options)
    check_jobs(jobs, request)
    found = [_evaluate_job(job, request, how, options, client) for job in jobs]
    return label_scores(found, result_attrs(request, how), samples=samples)


def result_attrs(request: Request, how: Approximation | None) -> dict[str, Any]:
    """Say what was asked for, in the attributes of a result."""
    readings = {name: value or "none" for name, value in asdict(request.how).items()}
    return {
        "label_column": request.label,
        **({} if request.batch is None else {"batch_column": request.batch}),
        "distance": "euclidean",
        "index": "exact" if how is None else str(how.index),
        "batch_max_cells": request.batch_max_cells,
        "readings": json.dumps(readings),
    }


def _evaluate_job(
    job: Job, request: Request, how: Approximation | None, options: Options, client: Any
) -> Evaluated:
    """Score one embedding, and name its rows."""
    embedding, frame, rows = open_job(job, request)
    # First: what cannot be read as text is refused before anything is computed.
    texts = read_text(frame, request.sample_id), read_text(frame, request.label, told=True)
    batch = None if request.batch is None else read_text(frame, request.batch, told=True)
    scores = evaluate_embedding(
        embedding, rows, request, dataset=job.dataset, method=job.method, options=options,
        client=client, how=how,
    )  # fmt: skip
    return Evaluated(scores, rows.n_rows, *texts, batch, rows.id_length)
