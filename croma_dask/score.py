"""Any set of robustness metrics of a cohort, in one search; or of several embeddings of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from croma_dask.build import index_at
from croma_dask.cohort.location import Location
from croma_dask.cohort.manifest import ColumnNames
from croma_dask.cohort.open import cohort_of
from croma_dask.panel.models import tree_of
from croma_dask.panel.names import is_several, named_cohorts
from croma_dask.panel.scoring import score_models
from croma_dask.robustness.evaluate import evaluate
from croma_dask.robustness.request import Request
from croma_dask.schema_panel import TREE

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["DEFAULT_K", "DEFAULT_METRICS", "score"]

DEFAULT_METRICS = ("RI", "MaRI", "CRoMa")
DEFAULT_K = (5, 11, 21, 51)


def score(
    cohort: Any,
    manifest: Any = None,
    *,
    confounder: str,
    design: str = "all",
    metrics: Sequence[str] | str = DEFAULT_METRICS,
    k_candidates: Sequence[int] = DEFAULT_K,
    m: int | Sequence[int] = 5,
    alpha: float = 0.1,
    tau: float | None = None,
    warn_tau: bool = True,
    on_undefined: str = "report",
    skip_incomplete: bool = False,
    label: str = "label",
    group: str = "group_id",
    sample_id: str = "sample_id",
    subset: str = "subset",
    index: Any = "exact",
    recall: float = 0.98,
    probes: int | None = None,
    calibration: int = 1000,
    seed: int = 0,
    start_k: int = 200,
    k_growth_factor: float = 2.0,
    keep_neighbors: str | os.PathLike[str] | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    scratch: str | None = None,
    resume: bool | None = None,
    keep_scratch: bool | None = None,
    quiet: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Any = None,
) -> xr.DataTree:
    """Score a cohort: all metrics from one search of its neighbours. Or several, as a panel.

    Parameters
    ----------
    cohort
        Path or URL of a store, a cohort as :func:`croma_dask.open_cohort` returns it, or an array
        of shape (N, D) with a `manifest`. Several embeddings of the same rows: a list of stores,
        which are called as their places are (without ``.zarr``), or a mapping of names to cohorts
        (``{"name": cohort}``), of arrays with the one `manifest` of all.
    manifest
        One row a sample, for an array or for several.
    confounder
        Name of the confounder column.
    design
        ``all`` or ``paired_2x2``.
    metrics
        Any of ``RI``, ``MaRI``, ``CRoMa``.
    k_candidates
        Candidates for the operating k of RI and MaRI; those not below the number of rows are left
        out of the choice.
    m
        How many nearest SO and nearest OS neighbours CRoMa looks at, or several such numbers.
    alpha
        Tail of CRoMa's `q_alpha` and `ltm_alpha`.
    tau, warn_tau
        Bandwidth of MaRI (None: recommended), and whether to warn when a pinned one is far off.
    on_undefined
        ``report`` or ``raise`` for units that CRoMa cannot score.
    skip_incomplete
        Leave subsets that are no complete 2x2 out, with a warning.
    label, group, sample_id, subset
        Names of the other key columns.
    index
        ``exact``; ``ivf`` or ``pynndescent`` for the approximate index of that kind beside the
        store (built where there is none); ``auto`` for the one that a cost model prefers
        (:func:`croma_dask.plan` tells which, and why); or the place of an index, or what
        :func:`croma_dask.build_index` returns. Approximate ones serve the design ``all``.
    recall
        Of an approximate search: share of a sample's neighbours of any type that it has to reach,
        in (0, 1]; it looks as far as that takes. Typed lists may miss four times as many.
    probes
        Clusters that a row looks into, in place of what `recall` leads to.
    calibration, seed
        Of an approximate search: queries that are searched exactly as well, to tell what it has
        cost, and the seed that draws them.
    start_k, k_growth_factor
        Of an approximate search: typed candidates that a row meets at least, and the factor in
        whose steps that is counted up to the least number that reaches the recall (`retries`).
        Rows that the graph of a ``pynndescent`` index cannot serve ask it for `start_k`
        neighbours, and then for so many times more.
    keep_neighbors
        Folder or URL at which the neighbours are kept, and from which they are taken where an
        earlier call has left them for the same embedding, groups and design: RI and MaRI for
        another confounder column, or for smaller k, then compute no distance. See
        :func:`croma_dask.open_neighbors`; the attribute `neighbors_reused` of a result says what
        was taken over. Of several models each has a folder of its own in it.
    memory, threads, scratch, resume, keep_scratch, quiet
        Override :func:`croma_dask.set_options` for this call: memory that the run may take above
        the bare process; threads; folder for the lists of a streamed run, whether to go on from
        what the same run has left there (otherwise that is deleted first), and whether to leave
        them for the same call when this one ends well; no progress.
    storage_options
        Options of the fsspec file system of places that are URLs: of `cohort`, of `index` and of
        `keep_neighbors`.
    client
        `distributed.Client` to run on; by default the active one, or else threads.

    Returns
    -------
    xarray.DataTree
        One node a metric, e.g. ``tree["CRoMa"].value``; see :data:`croma_dask.schema.METRICS`. Of
        several models (a list of one, too) every variable that depends on the embedding has the
        dim `model` first, what is said of a model alone is along `model`, and CRoMa has ranks: see
        :mod:`croma_dask.schema_panel`. Numbers are those of scoring each alone, bit for bit.

    Raises
    ------
    SchemaError, StoreError, SupportError, MemoryLimitError
        As the metrics' own ``compute``; before anything long is run. Several cohorts are not of
        the same rows in the same order: says which column differs, where, and in how many rows.

    Warns
    -----
    SupportWarning, InputWarning, RuntimeWarning
        As the metrics' own ``compute``.
    RecallWarning
        An approximate search has found less than 0.95 of a sample's neighbours, or less than 0.85
        of its SO or OS neighbours.
    InputWarning
        Two models have the same embedding.

    Notes
    -----
    Memory: :func:`croma_dask.plan` with the same arguments tells it, and the time. A run that was
    interrupted resumes from its scratch folder when it is called again with the same arguments.
    Several models are scored one after the other: memory is that of the one that takes most, and
    the per-sample values of all. Where `scratch` is named, the results of models that are done wait
    there, and a run that failed or was interrupted takes them over.
    """
    index = index_at(index, storage_options)
    request = Request.of(
        metrics, k_candidates=k_candidates, m=m, alpha=alpha, tau=tau, warn_tau=warn_tau,
        on_undefined=on_undefined, index=index, recall=recall, probes=probes,
        calibration=calibration, seed=seed, start_k=start_k, k_growth_factor=k_growth_factor,
    )  # fmt: skip
    kept = None if keep_neighbors is None else Location.of(keep_neighbors, storage_options)
    names = ColumnNames(confounder, label, group, sample_id, subset)
    run: dict[str, Any] = {
        "skip_incomplete": skip_incomplete, "client": client, "keep_neighbors": kept,
        "memory": memory, "threads": threads, "scratch": scratch, "resume": resume,
        "keep_scratch": keep_scratch, "quiet": quiet,
    }  # fmt: skip
    if is_several(cohort):
        cohorts = {
            name: cohort_of(one, storage_options) for name, one in named_cohorts(cohort).items()
        }
        return score_models(cohorts, manifest, names, design, request, **run)
    one = cohort_of(cohort, storage_options)
    results = evaluate(one, manifest, names, design, request, **run)
    first = next(iter(results.values()))
    return tree_of(results, {name: first.attrs[name] for name in TREE})
