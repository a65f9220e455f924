"""From scores to labelled results: fields, coordinates and what a result says of itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import fingerprint, memory, schema
from croma_dask.cohort.manifest import Manifest
from croma_dask.errors import RecallWarning, SupportWarning, name_items, warn
from croma_dask.index.neighbors import Neighbors
from croma_dask.robustness import index_scores
from croma_dask.robustness.calibration import calibrate_index, label_calibration
from croma_dask.robustness.margin import score_margin
from croma_dask.robustness.margin_error import calibrate_margin
from croma_dask.robustness.near_ties import Settled
from croma_dask.robustness.request import Inputs, Request
from croma_dask.robustness.sampling import Estimate
from croma_dask.robustness.statistics import population_std, tail_of
from croma_dask.robustness.tau import resolve_tau, typed_median
from croma_dask.robustness.trial import Trial, try_out
from croma_dask.search import Found

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Shared", "index_results", "margin_result"]

INDEX_ALPHA = 0.1
"""alpha of RI and MaRI, which the reference fixes."""

METRIC_VERSION = "1"
"""Raised when a definition changes; see docs/adr."""


def index_results(
    inputs: Inputs, neighbors: list[Neighbors], request: Request, shared: Shared, settled: Settled
) -> dict[str, xr.Dataset]:
    """Score RI and MaRI from the lists and label what comes out.

    Warns
    -----
    RecallWarning
        The exact search may have chosen another operating k.
    """
    candidates = request.k_candidates
    counts, choice = settled.counts, settled.choice
    if len(settled.possible) > 1:
        _warn_possible(candidates, settled)
    _warn_empty_scopes(inputs, [c.votes.any_neighbor for c in counts])
    results: dict[str, xr.Dataset] = {}
    for name in ("RI", "MaRI"):
        if name not in request.metrics:
            continue

        def score_at(k: int, *, check: bool) -> tuple[float | None, index_scores.IndexScore]:
            tau = _tau_at(inputs, neighbors, request, k, check=check) if name == "MaRI" else None  # noqa: B023
            return tau, index_scores.score_index(
                inputs.scopes, neighbors, counts, k, candidates, inputs.manifest.n_rows, tau
            )

        tau, score = score_at(choice.k, check=request.warn_tau)
        index_scores.warn_support(name, score.undefined_type)
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
            "so_evidence": score.so_evidence,
            "os_evidence": score.os_evidence,
            "median_value": tail.median,
            "q_alpha": tail.q_alpha,
            "ltm_alpha": tail.ltm_alpha,
            "tau": float("nan") if tau is None else tau,
            "curve": score.curve,
            "balanced_accuracy": choice.balanced_accuracy,
        }
        if name == "MaRI":
            values["evidence_distance"] = score.evidence_distance
        if shared.trial is not None:
            error = _error(inputs, shared.trial, choice.k, tau, score.value)
            for k in settled.possible:
                if k == choice.k:
                    continue
                other_tau, value = None, float(score.curve[candidates.index(k)])
                if name == "MaRI":
                    # Its bandwidth goes with its k, and the curve is at that of the operating k.
                    other_tau, other = score_at(k, check=False)
                    value = other.value
                there = _error(inputs, shared.trial, k, other_tau, value)
                error = error.or_else(there, score.value - value)
            values |= label_calibration(
                name, shared.trial.recall, {"value": error}, shared.trial.exact.rows.size,
                np.isin(candidates, settled.possible),
            )  # fmt: skip
        coords = {
            **shared.coords,
            "k_candidate": (("k_candidate",), np.asarray(candidates, np.int64)),
            "k": ((), choice.k),
        }
        attrs = {"metric": name, **shared.attrs, "alpha": INDEX_ALPHA}
        if name == "MaRI":
            attrs["tau_choice"] = "recommended" if request.tau is None else "pinned"
        results[name] = _labelled(name, values, coords, attrs, inputs)
    return results


def _tau_at(
    inputs: Inputs, neighbors: list[Neighbors], request: Request, k: int, *, check: bool
) -> float | None:
    """Bandwidth of MaRI at some k: the caller's, or the recommended one."""
    if request.tau is not None and not check:
        return request.tau
    return resolve_tau(request.tau, typed_median(inputs.scopes, neighbors, k), check=check)


def _error(inputs: Inputs, trial: Trial, k: int, tau: float | None, value: float) -> Estimate:
    scope = inputs.scopes[0]
    return calibrate_index(scope, trial.approx, trial.exact, k, tau, value, trial.share)


def _warn_possible(candidates: Sequence[int], settled: Settled) -> None:
    accuracy = dict(zip(candidates, settled.choice.balanced_accuracy, strict=True))
    each = ", ".join(f"{accuracy[k]:.5f} at k = {k}" for k in settled.possible)
    warn(
        f"the exact search may choose another operating k than {settled.choice.k}: the balanced "
        f"accuracies ({each}) are nearer to each other than the approximate search can tell; the "
        "intervals of RI and MaRI cover all of them. Raise recall= or calibration=, name one "
        "candidate as k_candidates= (--k), or use index='exact'",
        RecallWarning,
    )


def margin_result(
    inputs: Inputs, neighbors: list[Neighbors], request: Request, shared: Shared
) -> xr.Dataset:
    """Score CRoMa at every m from the lists and label what comes out."""
    scores = score_margin(inputs.scopes, neighbors, request.m, inputs.manifest.n_rows)
    rows = []
    for m, score in zip(request.m, scores, strict=True):
        tail = tail_of(score.sample_values, request.alpha)
        missing = int((score.undefined_type > 0).sum())
        zero = int((score.undefined_type == 4).sum())
        if zero:
            # Too few candidates were told before the search; this only distances can tell.
            warn(
                f"CRoMa: {zero} of {inputs.n_units} units are undefined at m={m} because their "
                f"{m} nearest SO and OS rows all coincide with them (distance 0)",
                SupportWarning,
            )
        left_out = [s.name for s, v in zip(inputs.scopes, score.pair_values, strict=True) if v != v]
        if left_out and len(left_out) < len(inputs.scopes):
            warn(
                f"CRoMa: no unit of {len(left_out)} of {len(inputs.scopes)} subsets can be scored "
                f"at m={m} ({name_items(left_out)}): left out of value and std, NaN in pair_values",
                SupportWarning,
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
    if shared.trial is not None:
        tuned = shared.trial.tuned
        values |= {
            "k_start": request.how.start_k if request.how is not None else radius,
            "k_final": max(tuned.radius.so, tuned.radius.os), "retries": tuned.steps,
        }  # fmt: skip
        errors = [
            calibrate_margin(
                shared.trial.approx,
                shared.trial.exact,
                m,
                request.alpha,
                score.sample_values,
                shared.trial.share,
            )
            for m, score in zip(request.m, scores, strict=True)
        ]
        values |= label_calibration(
            "CRoMa", shared.trial.recall, errors[0] if request.single_m else errors,
            shared.trial.exact.rows.size,
        )  # fmt: skip
    radii = np.asarray(request.m, np.int64)
    coords: dict[str, Any] = {
        **shared.coords,
        "m": ((), int(radii[0])) if request.single_m else (("m",), radii),
    }
    attrs = {"metric": "CRoMa", **shared.attrs, "alpha": request.alpha}
    return _labelled("CRoMa", values, coords, attrs, inputs)


def _warn_empty_scopes(inputs: Inputs, any_neighbor: list[bool]) -> None:
    empty = [s.name for s, some in zip(inputs.scopes, any_neighbor, strict=True) if not some]
    if empty:
        warn(
            f"{len(empty)} of {len(inputs.scopes)} subsets have no neighbour at all "
            f"({name_items(empty)}): left out of the choice of k, and 0.5 in pair_values",
            SupportWarning,
        )


@dataclass(frozen=True)
class Shared:
    """What the results of one search have in common: it is made once, and not copied.

    Attributes
    ----------
    attrs
        What every result says of itself.
    coords
        Coordinates along `sample` and `subset`.
    trial
        Of an approximate search, the sample that tells what it has cost.
    """

    attrs: dict[str, Any]
    coords: dict[str, tuple[tuple[str, ...], Any]]
    trial: Trial | None = None

    @classmethod
    def of(cls, inputs: Inputs, found: Found, request: Request) -> Shared:
        """Describe a search.

        Warns
        -----
        RecallWarning
            An approximate search has missed too much.
        """
        attrs, trial = about(inputs, found), try_out(found, request)
        if trial is not None:
            attrs |= trial.attrs
        return cls(attrs, coords_of(inputs), trial)


def about(inputs: Inputs, found: Found) -> dict[str, Any]:
    """Return what every result says of itself."""
    from croma_dask import __version__

    return {
        "metric_version": METRIC_VERSION,
        "dataset": inputs.manifest.dataset,
        "confounder_column": inputs.manifest.names.confounder,
        "label_column": inputs.manifest.names.label,
        "group_column": inputs.manifest.names.group,
        "evaluation_design": inputs.design,
        "evaluation_unit": "sample" if inputs.design == "all" else "occurrence",
        "distance": "cosine",
        "index": "exact",
        "recall": 1.0,
        "neighbors_reused": found.reused,
        "n_rows": inputs.manifest.n_rows,
        "n_rows_used": inputs.n_units,
        "n_tiles": inputs.embedding.n_tiles,
        "n_features": inputs.embedding.n_features,
        "dtype": str(inputs.embedding.dtype.newbyteorder("=")),
        "n_zero_rows": found.profile.n_zero,
        "embedding_fingerprint": found.fingerprint,
        "manifest_fingerprint": _manifest_fingerprint(inputs),
        "croma_dask_version": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def coords_of(inputs: Inputs) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Build the coordinates of the samples and subsets."""
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


def _manifest_fingerprint(inputs: Inputs) -> str:
    """Hash the columns that scoring has used, and which rows it has scored."""
    manifest = inputs.manifest
    parts: list[str | bytes] = []
    for column in (manifest.label, manifest.confounder, manifest.group, manifest.subset):
        if column is not None:
            parts += [column.codes.astype("<i4").tobytes(), "\0".join(column.names)]
    for scope in inputs.scopes:
        parts += [scope.name, b"" if scope.rows is None else scope.rows.astype("<i8").tobytes()]
    return fingerprint.text_digest(*parts)


def _ids(manifest: Manifest) -> Any:
    """Sample ids as text; of a very large cohort they stay where they are until asked for."""
    n = manifest.n_rows
    if memory.holds_ids(n, manifest.id_length):
        return np.concatenate([manifest.sample_id(lo, hi) for lo, hi in manifest.id_blocks()])
    import dask.array as da
    from dask.delayed import delayed

    read = delayed(manifest.sample_id, pure=True)
    return da.concatenate(
        [da.from_delayed(read(lo, hi), (hi - lo,), dtype=object) for lo, hi in manifest.id_blocks()]
    )


def _labelled(
    name: str, values: dict[str, Any], coords: dict[str, Any], attrs: dict[str, Any],
    inputs: Inputs,
) -> xr.Dataset:  # fmt: skip
    result = schema.build_dataset(name, values, coords, attrs)
    result["confounder"].attrs["column"] = inputs.manifest.names.confounder
    return result
