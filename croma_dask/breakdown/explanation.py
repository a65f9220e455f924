"""What the neighbours of one sample make of it, labelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.breakdown.lookup import Place, ids_at
from croma_dask.breakdown.row_lists import RowList, Wanted
from croma_dask.robustness import evidence as ev
from croma_dask.robustness.margin import margins_of
from croma_dask.robustness.request import Inputs
from croma_dask.schema import text_array
from croma_dask.schema_breakdown import EXPLANATION, EXPLANATION_COORDINATES, build_breakdown

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["label_explanation"]

_KINDS = {ev.SO: "SO", ev.OS: "OS", ev.SS: "SS", ev.OO: "OO"}


def label_explanation(
    inputs: Inputs, place: Place, wanted: Wanted, found: RowList, tau: float | None, sources: str
) -> xr.Dataset:
    """Label what was found.

    Parameters
    ----------
    inputs, place, wanted
        The cohort, the sample in it, and how far it was looked.
    found
        Its neighbours.
    tau
        Bandwidth of MaRI; None: no `mari`.
    sources
        Where the neighbours came from.

    Returns
    -------
    xarray.Dataset
        With the variables of :data:`croma_dask.schema_breakdown.EXPLANATION`.
    """
    import xarray as xr

    typed = found.typed_rank
    rank = np.arange(1, len(found.index) + 1)
    shown = np.flatnonzero((rank <= wanted.k) | ((typed > 0) & (typed <= wanted.m)))
    at = found.index[shown]
    scope, manifest = place.scope, inputs.manifest
    rows = at if scope.rows is None else scope.rows[at]
    so, os_ = (found.typed_distances(kind, wanted.m) for kind in (ev.SO, ev.OS))
    margin, _ = margins_of(so[None], os_[None], wanted.m)
    ri, mari = _indices(found, wanted.k, tau)
    along = ("neighbor",)
    values: dict[str, tuple[tuple[str, ...], Any]] = {
        "kind": (along, text_array([_KINDS[int(kind)] for kind in found.kind[shown]])),
        "distance": (along, found.distance[shown]),
        "neighbor_rank": (along, rank[shown]),
        "typed_rank": (along, typed[shown]),
        "manifest_row": (along, rows),
        "d_so": ((), float(np.cumsum(so)[-1] / wanted.m)),
        "d_os": ((), float(np.cumsum(os_)[-1] / wanted.m)),
        "margin": ((), float(margin[0])),
        "ri": ((), ri),
        "mari": ((), mari),
        "n_candidates": ((), wanted.n),
        "n_so": ((), wanted.n_so),
        "n_os": ((), wanted.n_os),
    }
    coords: dict[str, tuple[tuple[str, ...], Any]] = {
        "neighbor_id": (along, ids_at(manifest, rows)),
        "label": (along, text_array([manifest.label.names[c] for c in scope.label[at]])),
        "confounder": (
            along, text_array([manifest.confounder.names[c] for c in scope.confounder[at]])
        ),
        "group_id": (along, text_array([manifest.group.names[c] for c in scope.group[at]])),
        "k": ((), wanted.k),
        "m": ((), wanted.m),
        "tau": ((), float("nan") if tau is None else tau),
    }  # fmt: skip
    labelled = {
        name: xr.Variable(dims, data, EXPLANATION_COORDINATES[name].attrs())
        for name, (dims, data) in coords.items()
    }
    labelled["confounder"].attrs["column"] = manifest.names.confounder
    return build_breakdown(EXPLANATION, values, labelled, _about(inputs, place, sources))


def _indices(found: RowList, k: int, tau: float | None) -> tuple[float, float]:
    """RI and MaRI of the sample, as robustness/index_scores.py makes them."""
    kind, distance = found.kind[None], found.distance[None]
    counts = ev.count_kinds(kind, k)
    so, os_ = int(counts[ev.SO][0]), int(counts[ev.OS][0])
    if not so + os_:
        return float("nan"), float("nan")
    mari = float("nan")
    if tau is not None:
        weights = ev.sample_weights(kind, distance, k, tau)
        mari = float(weights.so[0] / (weights.so[0] + weights.os[0]))
    return so / (so + os_), mari


def _about(inputs: Inputs, place: Place, sources: str) -> dict[str, Any]:
    from croma_dask import __version__

    scope, manifest, at = place.scope, inputs.manifest, place.position
    digest = inputs.embedding.fingerprint
    return {
        "sample_id": place.sample_id,
        "sample_label": manifest.label.names[scope.label[at]],
        "sample_confounder": manifest.confounder.names[scope.confounder[at]],
        "sample_group_id": manifest.group.names[scope.group[at]],
        "sample_subset": scope.name,
        "sample_manifest_row": place.row,
        "neighbors": sources,
        "evaluation_design": inputs.design,
        "label_column": manifest.names.label,
        "confounder_column": manifest.names.confounder,
        "group_column": manifest.names.group,
        "dataset": manifest.dataset,
        "distance": "cosine",
        # An array is not read a second time to be named.
        **({"embedding_fingerprint": digest} if digest else {}),
        "croma_dask_version": __version__,
    }
