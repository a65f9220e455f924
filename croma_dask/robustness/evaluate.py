"""One search for any set of metrics: from input to labelled results."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from croma_dask.approximate import Approximation
from croma_dask.cluster import active_client
from croma_dask.cohort.location import Location
from croma_dask.cohort.manifest import ColumnNames
from croma_dask.errors import SchemaError
from croma_dask.index.profile import Profile
from croma_dask.index.spec import ListSpec
from croma_dask.options import Options, merged
from croma_dask.robustness.label import Shared, index_results, margin_result
from croma_dask.robustness.near_ties import settle_k
from croma_dask.robustness.preflight import (
    preflight,
    require_candidates,
    warn_one_sided,
    warn_same_split,
)
from croma_dask.robustness.request import Inputs, Request, prepare
from croma_dask.robustness.reuse import reuse_or_search
from croma_dask.search import Found, search

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["evaluate", "searched"]


def searched(
    inputs: Inputs,
    spec: ListSpec,
    n_scores: int,
    options: Options,
    client: Any,
    keep: contextlib.ExitStack,
    seen: Profile | None = None,
    how: Approximation | None = None,
) -> Found:
    """Find the neighbours that a request needs; the arguments are those of the search."""
    fixed = inputs.manifest.held_bytes(n_scores)
    return search(
        inputs.embedding, inputs.scopes, spec, options, client=client, fixed=fixed, keep=keep,
        seen=seen, how=how,
    )  # fmt: skip


def evaluate(
    features: Any, manifest: Any, names: ColumnNames, evaluation_design: str, request: Request,
    *, skip_incomplete: bool = False, client: Any = None,
    keep_neighbors: Location | None = None, **options: Any,
) -> dict[str, xr.Dataset]:  # fmt: skip
    """Score a cohort: one search, any set of metrics.

    Returns
    -------
    dict
        Metric name to Dataset, in the order of the request.
    """
    settings = merged(**options)
    if keep_neighbors is not None and request.how is not None:
        raise SchemaError(
            "keep_neighbors= keeps exact neighbours: use index='exact' (--index exact), or leave "
            "keep_neighbors out; an approximate index is itself kept, and serves every confounder"
        )
    inputs = prepare(features, manifest, names, evaluation_design, skip_incomplete=skip_incomplete)
    require_candidates(inputs.scopes)
    warn_same_split(inputs.manifest)
    if request.k_candidates:
        warn_one_sided(inputs.scopes)
    if "CRoMa" in request.metrics:
        preflight(inputs.manifest, inputs.scopes, request.m, refuse=request.on_undefined == "raise")
    if client is None:
        client = active_client()
    with contextlib.ExitStack() as keep:

        def find(inputs: Inputs, spec: ListSpec, seen: Profile | None = None) -> Found:
            return searched(
                inputs, spec, request.n_scores, settings, client, keep, seen, request.how
            )

        if keep_neighbors is None:
            found = find(inputs, request.spec)
        else:
            found = reuse_or_search(inputs, request, keep_neighbors, find, keep)
        shared = Shared.of(inputs, found, request)
        results: dict[str, xr.Dataset] = {}
        if request.k_candidates:
            settled = settle_k(
                inputs.scopes, found.neighbors, request.k_candidates, shared.trial,
                paired=inputs.design == "paired_2x2",
            )  # fmt: skip
            shared = replace(shared, trial=settled.trial)
            results |= index_results(inputs, found.neighbors, request, shared, settled)
        if request.m:
            results["CRoMa"] = margin_result(inputs, found.neighbors, request, shared)
    return {name: results[name] for name in request.metrics}
