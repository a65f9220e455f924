"""What counts alone tell before any distance is computed: which units CRoMa cannot score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from croma_dask.cohort.design import Scope, supply_of
from croma_dask.cohort.manifest import Manifest
from croma_dask.errors import SupportError, SupportWarning, name_rows, warn
from croma_dask.outward import shortened

__all__ = [
    "Unscoreable",
    "preflight",
    "require_candidates",
    "unscoreable",
    "warn_one_sided",
    "warn_same_split",
]


@dataclass(frozen=True)
class Unscoreable:
    """Units that have fewer than m SO or OS candidates of another group.

    Attributes
    ----------
    m
        The radius.
    n, n_units
        How many there are, of how many.
    no_so, no_os
        Fewer than m SO candidates; fewer than m OS candidates (a unit may be both).
    first
        First five manifest rows.
    cells
        (label, confounder, count) of the cells they lie in, most first.
    """

    m: int
    n: int
    n_units: int
    no_so: int
    no_os: int
    first: tuple[int, ...]
    cells: tuple[tuple[str, str, int], ...]

    def __str__(self) -> str:
        """One sentence, cells included."""
        if not self.n:
            return f"CRoMa at m={self.m}: all {self.n_units} units can be scored"
        cells = ", ".join(f"{shortened(a)} x {shortened(b)}: {n}" for a, b, n in self.cells[:5])
        more = f" and {len(self.cells) - 5} more cells" if len(self.cells) > 5 else ""
        return (
            f"CRoMa at m={self.m}: {self.n} of {self.n_units} units cannot be scored "
            f"({name_rows(self.first, total=self.n)}): {self.no_so} have fewer than {self.m} SO "
            f"and {self.no_os} fewer than {self.m} OS candidates of another group; by label x "
            f"confounder: {cells}{more}"
        )


def unscoreable(
    manifest: Manifest, scopes: Sequence[Scope], m_values: Sequence[int]
) -> list[Unscoreable]:
    """Count the units that cannot be scored at each radius, from label x confounder x group."""
    supplies = [supply_of(scope) for scope in scopes]
    n_units = sum(len(scope) for scope in scopes)
    n_confounders = len(manifest.confounder.names)
    found = []
    for m in m_values:
        rows, no_so, no_os = [], 0, 0
        for scope, supply in zip(scopes, supplies, strict=True):
            few_so, few_os = supply.so < m, supply.os < m
            no_so += int(few_so.sum())
            no_os += int(few_os.sum())
            mine = np.flatnonzero(few_so | few_os)
            rows.append(mine if scope.rows is None else scope.rows[mine])
        bad = np.sort(np.concatenate(rows))
        cell = (
            manifest.label.codes[bad].astype(np.int64) * n_confounders
            + (manifest.confounder.codes[bad])
        )
        codes, counts = np.unique(cell, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        cells = tuple(
            (
                manifest.label.names[int(codes[at]) // n_confounders],
                manifest.confounder.names[int(codes[at]) % n_confounders],
                int(counts[at]),
            )
            for at in order
        )
        first = tuple(int(r) for r in bad[:5])
        found.append(Unscoreable(m, int(bad.size), n_units, no_so, no_os, first, cells))
    return found


def require_candidates(scopes: Sequence[Scope]) -> None:
    """Refuse, before any distance, a cohort in which no row has a candidate of another group.

    Raises
    ------
    SupportError
        Nothing can be scored.
    """
    if not any(np.any(scope.group != scope.group[0]) for scope in scopes):
        raise SupportError(
            "no row has a single neighbour of another group in its scope; nothing can be scored"
        )


def warn_same_split(manifest: Manifest) -> None:
    """Tell when label and confounder are two names of one thing.

    Warns
    -----
    SupportWarning
        Every label has one confounder level, and every level one label.
    """
    label, confounder = manifest.label, manifest.confounder
    if len(confounder.names) != len(label.names):
        return
    # Where a label tells the level, and there are as many of the one as of the other, the level
    # tells the label too.
    level = np.zeros(len(label.names), np.int32)
    level[label.codes] = confounder.codes
    if np.array_equal(level[label.codes], confounder.codes):
        names = manifest.names
        warn(
            f"{names.confounder!r} and the label {names.label!r} split the rows in the same way: "
            "nothing is SO or OS, so nothing can be scored",
            SupportWarning,
        )


def warn_one_sided(scopes: Sequence[Scope]) -> None:
    """Tell when counts alone decide RI and MaRI: there is no SO, or no OS, candidate anywhere.

    Warns
    -----
    SupportWarning
        The value is 1, or 0, whatever the embedding.
    """
    supplies = [supply_of(scope) for scope in scopes]
    any_so = any(bool(supply.so.any()) for supply in supplies)
    any_os = any(bool(supply.os.any()) for supply in supplies)
    if any_so != any_os:
        kind, value = ("OS", 1) if any_so else ("SO", 0)
        warn(
            f"no row has a single {kind} candidate of another group: RI and MaRI are {value} by "
            "the design of the cohort, whatever the embedding",
            SupportWarning,
        )


def preflight(
    manifest: Manifest, scopes: Sequence[Scope], m_values: Sequence[int], *, refuse: bool
) -> None:
    """Tell before the search which units CRoMa will not score.

    Raises
    ------
    SupportError
        With `refuse`, when there are any.

    Warns
    -----
    SupportWarning
        Otherwise: counts, first rows and cells, for each radius.
    """
    for found in unscoreable(manifest, scopes, m_values):
        if not found.n:
            continue
        if refuse:
            raise SupportError(
                f"{found}. Lower m, leave these rows out, or pass on_undefined='report' to have "
                "them reported"
            )
        warn(f"{found}; they are reported as undefined", SupportWarning)
