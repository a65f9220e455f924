"""What kBET does with each label, decided before any of them is scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from croma_dask.embedding.diffusion import diffusion_bytes
from croma_dask.embedding.fuzzy import symmetric
from croma_dask.embedding.kbet_edges import LabelEdges
from croma_dask.embedding.kbet_label import LabelPlan, kept_rows
from croma_dask.index.spec import ListSpec
from croma_dask.kernels.typing import I32, I64, Bool
from croma_dask.memory import LIBRARIES, RangeCost, direct_bytes

__all__ = [
    "MIN_LABEL_ROWS",
    "N_COMPONENTS",
    "Components",
    "eligible_labels",
    "label_bytes",
    "labels_at_once",
    "plan_labels",
]

Components: TypeAlias = Literal["carried", "independent"]

MIN_LABEL_ROWS = 10
N_COMPONENTS = 100

_LEAST_K0, _MOST_K0 = 10, 70

_SMALL_SEARCH = 96 << 20
"""Bytes that numpy's search takes for 70 neighbours in 100 dimensions, of few rows (measured)."""


def eligible_labels(labels: I32, batches: I32) -> Bool:
    """(L,) labels that can have a score: 10 rows or more, of two batches or more."""
    sizes, n_batches = _sizes(labels, batches)
    eligible: Bool = (sizes >= MIN_LABEL_ROWS) & (n_batches > 1)
    return eligible


def _sizes(labels: I32, batches: I32) -> tuple[I64, I64]:
    """(L,) rows of each label, and batches among them."""
    sizes = np.bincount(labels)
    wide = int(batches.max(initial=0)) + 1
    pairs = np.unique(labels.astype(np.int64) * wide + batches)
    return sizes, np.bincount(pairs // wide, minlength=sizes.size)


def plan_labels(
    edges: LabelEdges, labels: I32, batches: I32, eligible: Bool, components: Components,
    n_components: int = N_COMPONENTS,
) -> list[LabelPlan]:  # fmt: skip
    """Decide what each label that has a score is scored with, in the order of the labels.

    What is carried over is settled here, so that the labels do not wait for each other. Only
    labels that may have fewer rows in use than coordinates are looked at, which are small.
    """
    sizes, n_batches = _sizes(labels, batches)
    plans = []
    current = n_components
    for c in np.flatnonzero(eligible):
        n, b = int(sizes[c]), int(n_batches[c])
        k0 = min(max(n // (4 * b), _LEAST_K0), _MOST_K0)
        plans.append(LabelPlan(int(c), n, b, k0, current))
        # A label that is not scored 0 has three quarters of its rows in use.
        if components == "carried" and 3 * n < 4 * (current + 1):
            found = edges.read(int(c))
            rows, _, _ = kept_rows(symmetric(found.index, found.weight, n), k0)
            if rows is not None:
                current = min(current, rows.size - 1)
    return plans


def labels_at_once(sizes: Sequence[int], allowed: int, n_threads: int) -> int:
    """How many labels fit `allowed` bytes side by side, the largest ones; at least one."""
    fits = np.cumsum([label_bytes(n) for n in sorted(sizes, reverse=True)][:n_threads]) <= allowed
    return max(1, int(fits.sum()))


def label_bytes(n_rows: int, *, k_graph: int = 50, n_components: int = N_COMPONENTS) -> int:
    """Bytes that a task takes for a label of so many rows, at its worst moment.

    Either lists are joined into the graph (64 bytes an entry), or the eigenvectors are computed
    (the graph, and :func:`diffusion_bytes`), or neighbours are searched.
    """
    entries = n_rows * (k_graph - 1)
    graph = 2 * 12 * entries
    joining = 64 * entries
    solving = graph + diffusion_bytes(n_rows, min(n_components, n_rows), 2 * (k_graph - 1))
    spec = ListSpec(_MOST_K0, 0).clipped(n_rows)
    cost = RangeCost(n_components, 4, spec.screened, 4096 * 4 * n_components)
    searching = direct_bytes(cost, n_rows, 1, 0) - LIBRARIES + 4 * n_components * n_rows
    return max(joining, solving, searching, _SMALL_SEARCH)
