"""Evaluation designs: which rows are searched among one another, and what they can find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.manifest import Manifest
from croma_dask.errors import SchemaError, SupportError, SupportWarning, name_items, warn
from croma_dask.outward import shortened

__all__ = ["Design", "Scope", "Supply", "block_rows", "check_design", "scopes_of", "supply_of"]

Design: TypeAlias = Literal["all", "paired_2x2"]


@dataclass(frozen=True)
class Scope:
    """Rows that are searched among one another.

    Attributes
    ----------
    name
        Subset name; ``dataset`` under the design ``all``.
    rows
        Manifest rows, ascending; None for all of them.
    label, confounder, group
        (n,) int32 codes of these rows.
    n_labels
        Number of label codes (of the whole manifest).
    """

    name: str
    rows: NDArray[np.int64] | None
    label: NDArray[np.int32]
    confounder: NDArray[np.int32]
    group: NDArray[np.int32]
    n_labels: int

    def __len__(self) -> int:
        return int(self.label.shape[0])


@dataclass(frozen=True)
class Supply:
    """How many candidates each row of a scope has, from counts alone.

    Attributes
    ----------
    so, os
        (n,) int64 candidates of another group: of the same label and another confounder, and of
        another label and the same confounder.
    """

    so: NDArray[np.int64]
    os: NDArray[np.int64]


def check_design(design: str) -> Design:
    """Normalise the name of a design: blanks and case do not matter."""
    text = str(design).strip().lower()
    if text == "all":
        return "all"
    if text == "paired_2x2":
        return "paired_2x2"
    raise SchemaError(f"evaluation design {design!r} is not known; it is 'all' or 'paired_2x2'")


def scopes_of(manifest: Manifest, design: Design, *, skip_incomplete: bool = False) -> list[Scope]:
    """Cut a manifest into the scopes of a design.

    Parameters
    ----------
    manifest
        Checked manifest (with subsets under ``paired_2x2``).
    design
        ``all``: one scope. ``paired_2x2``: one a subset, in sorted order of the subsets.
    skip_incomplete
        Leave subsets that are no complete 2x2 out, with a warning, instead of raising.

    Raises
    ------
    SchemaError
        A subset is no complete 2x2, or none is left.
    SupportError
        All rows are of one group, so that nothing is a neighbour of anything.
    """
    n_labels = len(manifest.label.names)
    if len(manifest.group.names) < 2:
        raise SupportError(
            f"every row has the group {name_items(manifest.group.names)} (column "
            f"{manifest.names.group!r}): rows of one group are never neighbours, so no row has a "
            "candidate. Where every sample stands for itself name the sample ids as groups"
        )
    if design == "all" or manifest.subset is None:
        return [
            Scope(
                "dataset", None, manifest.label.codes, manifest.confounder.codes,
                manifest.group.codes, n_labels,
            )
        ]  # fmt: skip
    order = np.argsort(manifest.subset.codes, kind="stable")
    edges = np.searchsorted(manifest.subset.codes[order], np.arange(len(manifest.subset.names) + 1))
    scopes, incomplete = [], []
    for code, name in enumerate(manifest.subset.names):
        rows = order[edges[code] : edges[code + 1]].astype(np.int64)
        label, confounder = manifest.label.codes[rows], manifest.confounder.codes[rows]
        problem = _not_2x2(manifest, label, confounder)
        if problem:
            incomplete.append(f"{name_items([name])} ({problem})")
            continue
        scopes.append(Scope(name, rows, label, confounder, manifest.group.codes[rows], n_labels))
    if incomplete:
        listed = "; ".join(incomplete[:5]) + (
            f" and {len(incomplete) - 5} more" if len(incomplete) > 5 else ""
        )
        found = f"{len(incomplete)} of {len(edges) - 1} subsets are no complete 2x2: {listed}"
        if not skip_incomplete:
            raise SchemaError(
                f"{found}. Complete them, leave them out, or pass skip_incomplete=True"
            )
        if not scopes:
            raise SchemaError(f"{found}; none is left to score")
        warn(f"{found}; skipped", SupportWarning)
    return scopes


def _not_2x2(manifest: Manifest, label: NDArray[np.int32], confounder: NDArray[np.int32]) -> str:
    """Say why a subset is no complete 2x2; empty when it is one."""
    labels, confounders = np.unique(label), np.unique(confounder)
    if len(labels) != 2 or len(confounders) != 2:
        return (
            f"{len(labels)} label{'s' * (len(labels) != 1)} and {len(confounders)} "
            f"confounder level{'s' * (len(confounders) != 1)}"
        )
    empty = [
        f"{shortened(manifest.label.names[a])} x {shortened(manifest.confounder.names[b])}"
        for a in labels
        for b in confounders
        if not np.any((label == a) & (confounder == b))
    ]
    return f"no row in {name_items([*empty])}" if empty else ""


def block_rows(scope: Scope, lo: int, hi: int) -> slice | NDArray[np.int64]:
    """Manifest rows of the rows lo..hi of a scope."""
    return slice(lo, hi) if scope.rows is None else scope.rows[lo:hi]


def supply_of(scope: Scope) -> Supply:
    """Count the candidates of every row from label x confounder x group alone.

    Notes
    -----
    Needs no distance: who shares the label is counted, less who shares the confounder too, less
    those of either kind in the row's own group.
    """
    label, confounder, group = (
        a.astype(np.int64) for a in (scope.label, scope.confounder, scope.group)
    )
    n_confounders = int(confounder.max(initial=0)) + 1
    n_groups = int(group.max(initial=0)) + 1
    cell = label * n_confounders + confounder
    by_label, by_confounder, by_cell = _count(label), _count(confounder), _count(cell)
    own_label = _count(label * n_groups + group)
    own_confounder = _count(confounder * n_groups + group)
    own_cell = _count(cell * n_groups + group)
    return Supply(
        so=(by_label - by_cell) - (own_label - own_cell),
        os=(by_confounder - by_cell) - (own_confounder - own_cell),
    )


def _count(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often the key of each row occurs."""
    # Counting into a table is ten times faster than sorting, while the table is not much larger
    # than the rows (of a small subset it would be: codes run over the whole cohort).
    if key.size and int(key.max()) < 4 * key.size:
        return np.bincount(key)[key]
    _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    found: NDArray[np.int64] = counts[inverse].astype(np.int64)
    return found
