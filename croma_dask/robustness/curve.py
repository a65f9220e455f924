"""Pooled RI and MaRI at every k, from one search at the largest."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import schema
from croma_dask.cluster import active_client
from croma_dask.cohort.manifest import ColumnNames
from croma_dask.index.spec import ListSpec
from croma_dask.options import merged
from croma_dask.robustness import index_scores
from croma_dask.robustness.arguments import check_k
from croma_dask.robustness.evaluate import searched
from croma_dask.robustness.operating_k import require_neighbors
from croma_dask.robustness.request import prepare
from croma_dask.robustness.tau import resolve_tau, typed_median

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["curve_of"]


def curve_of(
    name: str, features: Any, manifest: Any, confounder_column: str, k_values: Sequence[int],
    evaluation_design: str, skip_incomplete: bool, tau: float | None,
) -> xr.Dataset:  # fmt: skip
    """Take the curve of RI (`tau` None) or MaRI; see :meth:`RI.compute_curve`."""
    import xarray as xr

    ks = check_k(k_values, "k_values")
    inputs = prepare(
        features, manifest, ColumnNames(confounder_column), evaluation_design,
        skip_incomplete=skip_incomplete,
    )  # fmt: skip
    with contextlib.ExitStack() as keep:
        found = searched(inputs, ListSpec(max(ks), 0), 4, merged(), active_client(), keep)
        counts = [
            index_scores.count_neighbors(scope, neighbors, ks)
            for scope, neighbors in zip(inputs.scopes, found.neighbors, strict=True)
        ]
        require_neighbors([c.votes for c in counts])
        k = ks[0]
        if name == "MaRI" and tau is None:
            k = index_scores.choose(counts, ks, paired=inputs.design == "paired_2x2").k
            median = typed_median(inputs.scopes, found.neighbors, k)
            tau = resolve_tau(None, median, check=False)
        score = index_scores.score_index(
            inputs.scopes, found.neighbors, counts, k, ks, inputs.manifest.n_rows, tau
        )
    data: dict[str, Any] = {"value": (("k",), score.curve, schema.CURVE.attrs())}
    if tau is not None:
        data["tau"] = ((), tau, schema.METRICS["MaRI"]["tau"].attrs())
    attrs = {
        "metric": name,
        "evaluation_design": inputs.design,
        "dataset": inputs.manifest.dataset,
        "embedding_fingerprint": found.fingerprint,
    }
    k_attrs = {"long_name": "number of neighbours", "units": "1"}
    coords = {"k": (("k",), np.asarray(ks, np.int64), k_attrs)}
    return xr.Dataset(data, coords, attrs)
