"""One search for any set of metrics: from input to labelled results."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import memory, schema
from croma_dask.cohort.align import Embedding, resolve
from croma_dask.cohort.design import Design, Scope, check_design, scopes_of
from croma_dask.cohort.manifest import ColumnNames, Manifest, read_manifest
from croma_dask.errors import SchemaError, SupportWarning
from croma_dask.index.neighbors import Neighbors
from croma_dask.index.spec import ListSpec
from croma_dask.options import Options, merged
from croma_dask.robustness import index_scores
from croma_dask.robustness.arguments import check_alpha, check_k, check_m, check_radius
from croma_dask.robustness.margin import score_margin
from croma_dask.robustness.preflight import preflight
from croma_dask.robustness.statistics import population_std, tail_of
from croma_dask.robustness.tau import check_tau, resolve_tau, typed_median
from croma_dask.search import Found, search

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Inputs", "Request", "evaluate", "prepare", "searched"]

INDEX_ALPHA = 0.1
"""alpha of RI and MaRI, which the reference fixes."""

METRIC_VERSION = "1"
_LAZY_IDS = 2_000_000


@dataclass(frozen=True)
class Request:
    """What to score, checked.

    Attributes
    ----------
    metrics
        Any of RI, MaRI, CRoMa.
    k_candidates
        Candidates for the operating k.
    m, single_m
        Radii of CRoMa; whether one int was asked for.
    alpha
        Tail of CRoMa.
    tau, warn_tau
        Pinned bandwidth of MaRI, and whether to warn when it is far off.
    on_undefined
        ``report`` or ``raise`` for units that CRoMa cannot score.
    """

    metrics: tuple[str, ...]
    k_candidates: tuple[int, ...] = ()
    m: tuple[int, ...] = ()
    single_m: bool = True
    alpha: float = 0.1
    tau: float | None = None
    warn_tau: bool = True
    on_undefined: str = "report"

    @classmethod
    def of(
        cls, metrics: Sequence[str] | str, *, k_candidates: Any = None, m: Any = None,
        alpha: Any = 0.1, tau: Any = None, warn_tau: bool = True, on_undefined: str = "report",
        start_k: Any = 200, k_growth_factor: Any = 2.0,
    ) -> Request:  # fmt: skip
        """Check what the caller asked for."""
        names = [metrics] if isinstance(metrics, str) else list(metrics)
        known = {name.lower(): name for name in schema.METRICS}
        chosen = []
        for name in names:
            if str(name).lower() not in known:
                raise SchemaError(
                    f"metric {name!r} is not known; there are {', '.join(schema.METRICS)}"
                )
            chosen.append(known[str(name).lower()])
        if not chosen:
            raise SchemaError("no metric was asked for")
        if on_undefined not in ("report", "raise"):
            raise SchemaError(f"on_undefined is 'report' or 'raise', found {on_undefined!r}")
        check_radius(start_k, k_growth_factor)
        indexed = any(name != "CRoMa" for name in chosen)
        radii, single = check_m(m) if "CRoMa" in chosen else ((), True)
        return cls(
            tuple(dict.fromkeys(chosen)),
            check_k(k_candidates) if indexed else (),
            radii, single, check_alpha(alpha), check_tau(tau), bool(warn_tau), on_undefined,
        )  # fmt: skip

    @property
    def spec(self) -> ListSpec:
        """Lists that the metrics need together."""
        return ListSpec(max(self.k_candidates, default=0), max(self.m, default=0))


@dataclass(frozen=True)
class Inputs:
    """A cohort that has passed the contract.

    Attributes
    ----------
    embedding, manifest, design, scopes
        Rows, their columns, the design and what it searches among itself.
    """

    embedding: Embedding
    manifest: Manifest
    design: Design
    scopes: list[Scope]

    @property
    def n_units(self) -> int:
        """Units that are scored: rows of all scopes."""
        return sum(len(scope) for scope in self.scopes)


def prepare(
    features: Any, manifest: Any, names: ColumnNames, evaluation_design: str,
    *, skip_incomplete: bool = False, check_ids: bool = True,
) -> Inputs:  # fmt: skip
    """Check input and cut it into scopes; reads codes and ids, no embedding.

    Raises
    ------
    SchemaError, SupportError
        As :func:`~croma_dask.cohort.manifest.read_manifest` and
        :func:`~croma_dask.cohort.design.scopes_of` say.
    """
    design = check_design(evaluation_design)
    columns = (names.sample_id, names.label, names.group, names.confounder, names.subset)
    embedding, frame = resolve(features, manifest, tuple(dict.fromkeys(columns)))
    checked = read_manifest(frame, names, paired=design == "paired_2x2", check_ids=check_ids)
    scopes = scopes_of(checked, design, skip_incomplete=skip_incomplete)
    return Inputs(embedding, checked, design, scopes)


def searched(
    inputs: Inputs, spec: ListSpec, options: Options, client: Any, keep: contextlib.ExitStack
) -> Found:
    """Find the neighbours that a request needs."""
    fixed = memory.manifest_bytes(inputs.manifest.n_rows, n_scores=6)
    return search(
        inputs.embedding, inputs.scopes, spec, options, client=client, fixed=fixed, keep=keep
    )


def evaluate(
    features: Any, manifest: Any, names: ColumnNames, evaluation_design: str, request: Request,
    *, skip_incomplete: bool = False, client: Any = None, **options: Any,
) -> dict[str, xr.Dataset]:  # fmt: skip
    """Score a cohort: one search, any set of metrics.

    Returns
    -------
    dict
        Metric name to Dataset, in the order of the request.
    """
    settings = merged(**options)
    inputs = prepare(features, manifest, names, evaluation_design, skip_incomplete=skip_incomplete)
    if "CRoMa" in request.metrics:
        preflight(inputs.manifest, inputs.scopes, request.m, refuse=request.on_undefined == "raise")
    if client is None:
        client = active_client()
    with contextlib.ExitStack() as keep:
        found = searched(inputs, request.spec, settings, client, keep)
        about = _about(inputs, found)
        results: dict[str, xr.Dataset] = {}
        if request.k_candidates:
            results |= _index_results(inputs, found.neighbors, request, about)
        if request.m:
            results["CRoMa"] = _margin_result(inputs, found.neighbors, request, about)
    return {name: results[name] for name in request.metrics}


def active_client() -> Any:
    """Return the `distributed.Client` of this process, if one is active."""
    import sys

    # A client can only be active where distributed was imported; importing it costs a second.
    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        client = get_client()
    except ValueError:
        return None
    return client


def _index_results(
    inputs: Inputs, neighbors: list[Neighbors], request: Request, about: dict[str, Any]
) -> dict[str, xr.Dataset]:
    candidates = request.k_candidates
    counts = [
        index_scores.count_neighbors(scope, found, candidates)
        for scope, found in zip(inputs.scopes, neighbors, strict=True)
    ]
    paired = inputs.design == "paired_2x2"
    choice = index_scores.choose(counts, candidates, paired=paired)
    _warn_empty_scopes(inputs, [c.votes.any_neighbor for c in counts])
    results: dict[str, xr.Dataset] = {}
    for name in ("RI", "MaRI"):
        if name not in request.metrics:
            continue
        tau = None
        if name == "MaRI":
            tau = request.tau
            if tau is None or request.warn_tau:
                median = typed_median(inputs.scopes, neighbors, choice.k)
                tau = resolve_tau(tau, median, warn=request.warn_tau)
        score = index_scores.score_index(
            inputs.scopes, neighbors, counts, choice.k, candidates, inputs.manifest.n_rows, tau
        )
        index_scores.warn_support(name, score.undefined_type, stacklevel=5)
        tail = tail_of(score.sample_values, INDEX_ALPHA)
        causes = [float((score.undefined_type == c).sum() / inputs.n_units) for c in (1, 2, 3)]
        undefined = float((score.undefined_type > 0).sum() / inputs.n_units)
        values = {
            "value": score.value,
            "std": population_std(score.pair_values),
            "n_pairs": len(inputs.scopes),
            "pair_values": score.pair_values,
            "sample_values": score.sample_values,
            "defined": score.undefined_type == 0,
            "undefined_type": score.undefined_type,
            "undefined_frac": undefined,
            "support": 1.0 - undefined,
            "ss_dominated_undefined_frac": causes[0],
            "oo_dominated_undefined_frac": causes[1],
            "mixed_undefined_frac": causes[2],
            "median_value": tail.median,
            "q_alpha": tail.q_alpha,
            "ltm_alpha": tail.ltm_alpha,
            "tau": float("nan") if tau is None else tau,
            "curve": score.curve,
            "balanced_accuracy": choice.balanced_accuracy,
        }
        coords = {
            **_coords(inputs),
            "k_candidate": (("k_candidate",), np.asarray(candidates, np.int64)),
            "k": ((), choice.k),
        }
        attrs = {"metric": name, **about, "alpha": INDEX_ALPHA}
        results[name] = _labelled(name, values, coords, attrs, inputs)
    return results


def _margin_result(
    inputs: Inputs, neighbors: list[Neighbors], request: Request, about: dict[str, Any]
) -> xr.Dataset:
    scores = score_margin(inputs.scopes, neighbors, request.m, inputs.manifest.n_rows)
    rows = []
    for m, score in zip(request.m, scores, strict=True):
        tail = tail_of(score.sample_values, request.alpha)
        missing = int((score.undefined_type > 0).sum())
        zero = int((score.undefined_type == 4).sum())
        if zero:
            # Too few candidates were told before the search; this only distances can tell.
            warnings.warn(
                f"CRoMa: {zero} of {inputs.n_units} units are undefined at m={m} because their "
                f"{m} nearest SO and OS rows all coincide with them (distance 0)",
                SupportWarning,
                stacklevel=4,
            )
        fraction = [
            float(np.isin(score.undefined_type, causes).sum() / inputs.n_units)
            for causes in ((1, 3), (2, 3), (4,))
        ]
        rows.append(
            {
                "value": score.value,
                "std": population_std(score.pair_values),
                "pair_values": score.pair_values,
                "sample_values": score.sample_values,
                "defined": score.undefined_type == 0,
                "undefined_type": score.undefined_type,
                "undefined_frac": missing / inputs.n_units,
                "support": 1.0 - missing / inputs.n_units,
                "median_value": tail.median,
                "q_alpha": tail.q_alpha,
                "ltm_alpha": tail.ltm_alpha,
                "no_so_undefined_frac": fraction[0],
                "no_os_undefined_frac": fraction[1],
                "zero_distance_undefined_frac": fraction[2],
                "f0": score.f0,
            }
        )
    radius = max(len(scope) for scope in inputs.scopes) - 1
    values: dict[str, Any] = {
        name: rows[0][name] if request.single_m else np.stack([row[name] for row in rows])
        for name in rows[0]
    }
    # An exhaustive search has no radius to widen.
    values |= {"n_pairs": len(inputs.scopes), "k_start": radius, "k_final": radius, "retries": 0}
    radii = np.asarray(request.m, np.int64)
    coords: dict[str, Any] = {
        **_coords(inputs),
        "m": ((), int(radii[0])) if request.single_m else (("m",), radii),
    }
    attrs = {"metric": "CRoMa", **about, "alpha": request.alpha}
    return _labelled("CRoMa", values, coords, attrs, inputs)


def _warn_empty_scopes(inputs: Inputs, any_neighbor: list[bool]) -> None:
    empty = [s.name for s, some in zip(inputs.scopes, any_neighbor, strict=True) if not some]
    if empty:
        from croma_dask.errors import name_items

        warnings.warn(
            f"{len(empty)} of {len(inputs.scopes)} subsets have no neighbour at all "
            f"({name_items(empty)}): left out of the choice of k, and 0.5 in pair_values",
            SupportWarning,
            stacklevel=5,
        )


def _about(inputs: Inputs, found: Found) -> dict[str, Any]:
    """Return what every result says of itself."""
    from croma_dask import __version__

    return {
        "metric_version": METRIC_VERSION,
        "dataset": inputs.manifest.dataset,
        "evaluation_design": inputs.design,
        "evaluation_unit": "sample" if inputs.design == "all" else "occurrence",
        "distance": "cosine",
        "index": "exact",
        "recall": 1.0,
        "n_rows": inputs.manifest.n_rows,
        "n_rows_used": inputs.n_units,
        "n_tiles": inputs.embedding.n_tiles,
        "n_features": inputs.embedding.n_features,
        "dtype": str(inputs.embedding.dtype.newbyteorder("=")),
        "n_zero_rows": found.profile.n_zero,
        "embedding_fingerprint": found.fingerprint,
        "croma_dask_version": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _coords(inputs: Inputs) -> dict[str, tuple[tuple[str, ...], Any]]:
    manifest = inputs.manifest
    n = manifest.n_rows
    subset = np.full(n, "dataset", dtype=object)
    if manifest.subset is not None:
        subset = manifest.subset.text()
    names = np.empty(len(inputs.scopes), dtype=object)
    names[:] = [scope.name for scope in inputs.scopes]
    return {
        "sample_id": (("sample",), _ids(manifest)),
        "sample_subset": (("sample",), subset),
        "label": (("sample",), manifest.label.text()),
        "confounder": (("sample",), manifest.confounder.text()),
        "group_id": (("sample",), manifest.group.text()),
        "subset": (("subset",), names),
    }


def _ids(manifest: Manifest) -> Any:
    """Sample ids as text; of a very large cohort they stay where they are until asked for."""
    n = manifest.n_rows
    if n <= _LAZY_IDS:
        return manifest.sample_id(0, n)
    import dask.array as da
    from dask.delayed import delayed

    step = 1 << 18
    read = delayed(manifest.sample_id, pure=True)
    return da.concatenate(
        [
            da.from_delayed(read(lo, min(n, lo + step)), (min(n, lo + step) - lo,), dtype=object)
            for lo in range(0, n, step)
        ]
    )


def _labelled(
    name: str, values: dict[str, Any], coords: dict[str, Any], attrs: dict[str, Any],
    inputs: Inputs,
) -> xr.Dataset:  # fmt: skip
    result = schema.build_dataset(name, values, coords, attrs)
    result["confounder"].attrs["column"] = inputs.manifest.names.confounder
    return result
