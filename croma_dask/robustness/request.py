"""What is asked for, and of what: arguments and input, checked before anything long runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from croma_dask import schema
from croma_dask.approximate import Approximation
from croma_dask.cohort.align import Embedding, resolve
from croma_dask.cohort.design import Design, Scope, check_design, scopes_of
from croma_dask.cohort.manifest import ColumnNames, Manifest, read_manifest
from croma_dask.errors import SchemaError
from croma_dask.index.spec import ListSpec
from croma_dask.robustness.arguments import (
    check_alpha,
    check_index,
    check_k,
    check_m,
    check_radius,
)
from croma_dask.robustness.tau import check_tau

__all__ = ["Inputs", "Request", "prepare"]


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
    how
        Index to search through; None searches exactly.
    """

    metrics: tuple[str, ...]
    k_candidates: tuple[int, ...] = ()
    m: tuple[int, ...] = ()
    single_m: bool = True
    alpha: float = 0.1
    tau: float | None = None
    warn_tau: bool = True
    on_undefined: str = "report"
    how: Approximation | None = None

    @classmethod
    def of(
        cls, metrics: Sequence[str] | str, *, k_candidates: Any = None, m: Any = None,
        alpha: Any = 0.1, tau: Any = None, warn_tau: bool = True, on_undefined: str = "report",
        start_k: Any = 200, k_growth_factor: Any = 2.0, index: Any = "exact", recall: Any = 0.98,
        probes: Any = None, calibration: Any = 1000, seed: Any = 0,
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
        how = check_index(
            index, recall=recall, probes=probes, calibration=calibration, seed=seed,
            start_k=start_k, k_growth_factor=k_growth_factor,
        )  # fmt: skip
        indexed = any(name != "CRoMa" for name in chosen)
        radii, single = check_m(m) if "CRoMa" in chosen else ((), True)
        return cls(
            tuple(dict.fromkeys(chosen)),
            check_k(k_candidates) if indexed else (),
            radii, single, check_alpha(alpha), check_tau(tau), bool(warn_tau), on_undefined,
            how,
        )  # fmt: skip

    @property
    def n_scores(self) -> int:
        """Per-sample values that the metrics hold, each with its cause.

        RI and MaRI have the evidence of either type besides, and MaRI the distance that it is
        relative to.
        """
        return sum({"RI": 3, "MaRI": 4}.get(name, 0) for name in self.metrics) + 2 * len(self.m)

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
