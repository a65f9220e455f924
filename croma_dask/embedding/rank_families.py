"""Families of metrics, each of which speaks for one thing, and how much each of them counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from croma_dask.errors import SchemaError, name_items

__all__ = ["FAMILIES", "WEIGHTS", "Families", "check_families"]

FAMILIES: dict[str, tuple[str, ...]] = {
    "cluster_label_concordance": ("ARI", "NMI", "HOM", "COM", "FMI"),
    "continuous_cell_type_separation": ("ASW",),
    "local_cell_type_neighborhood_structure": ("Acc@kNN", "cLISI", "GC"),
    "batch_mixing": ("kBET", "BRAS", "CiLISI"),
}
"""Family -> its metrics. iLISI is in none: it is computed and kept, and not ranked."""

WEIGHTS: dict[str, float] = {
    "cluster_label_concordance": 0.325,
    "continuous_cell_type_separation": 0.10,
    "local_cell_type_neighborhood_structure": 0.325,
    "batch_mixing": 0.25,
}
"""Family -> weight of its rank."""


@dataclass(frozen=True)
class Families:
    """Families that have been checked.

    Attributes
    ----------
    names
        Of the families, in the order given.
    metrics
        All metrics that have a family, family by family.
    members
        Positions along `metrics` of each family's.
    weights
        One a family; not all 0, and of any sum: they are renormalised.
    """

    names: tuple[str, ...]
    metrics: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]

    @property
    def family_of(self) -> list[str]:
        """Family of each metric."""
        found = [""] * len(self.metrics)
        for name, members in zip(self.names, self.members, strict=True):
            for at in members:
                found[at] = name
        return found


def check_families(
    families: Mapping[str, Sequence[str]] | None, weights: Mapping[str, float] | None
) -> Families:
    """Check families and weights, and fill in the defaults.

    Parameters
    ----------
    families
        Family -> names of its metrics; default :data:`FAMILIES`.
    weights
        Family -> weight. A family that it does not name keeps its weight of :data:`WEIGHTS`.

    Raises
    ------
    SchemaError
        A family has no metric, a metric is named twice, a weight is no finite number of at least
        0, all are 0, or a family has none.
    """
    chosen: Any = FAMILIES if families is None else families
    if not isinstance(chosen, Mapping) or not chosen:
        raise SchemaError(f"families: expected a mapping of name to metrics, found {chosen!r}")
    metrics: list[str] = []
    members = []
    for name, named in chosen.items():
        if not isinstance(name, str) or not name:
            raise SchemaError(f"family {name!r}: a name is a text that is not empty")
        listed = [named] if isinstance(named, str) else list(named)
        if not listed:
            raise SchemaError(f"family {name!r} has no metric")
        for metric in listed:
            if not isinstance(metric, str) or not metric:
                raise SchemaError(f"family {name!r}: {metric!r} is no name of a metric")
            if metric in metrics:
                raise SchemaError(f"metric {metric!r} is named twice; a metric has one family")
            metrics.append(metric)
        members.append(tuple(range(len(metrics) - len(listed), len(metrics))))
    return Families(
        tuple(chosen), tuple(metrics), tuple(members), _weights(list(chosen), weights or {})
    )


def _weights(names: list[str], given: Mapping[str, float]) -> tuple[float, ...]:
    unknown = [name for name in given if name not in names]
    if unknown:
        raise SchemaError(
            f"weights: no family {name_items(unknown)}; the families are {name_items(names)}"
        )
    bare = [name for name in names if name not in given and name not in WEIGHTS]
    if bare:
        raise SchemaError(f"weights: no weight for {name_items(bare)}, which has no default one")
    found = []
    for name in names:
        weight = given.get(name, WEIGHTS.get(name))
        try:
            number = float(weight)  # type: ignore[arg-type]
        except (TypeError, ValueError) as err:
            raise SchemaError(f"weight of {name!r}: {weight!r} is no number") from err
        if not math.isfinite(number) or number < 0.0:
            raise SchemaError(f"weight of {name!r} must be finite and at least 0, found {number}")
        found.append(number)
    if not any(found):
        raise SchemaError("weights: at least one must be above 0")
    return tuple(found)
