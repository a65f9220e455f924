"""Graph connectivity: how much of a label hangs together in the graph of nearest neighbours.

Every cell has a directed edge to each of its nearest others, 14 of them where the list has 15
entries with the cell itself. Per label, the largest strongly connected component (all its cells
reach each other) of the edges inside the label is divided by the cells of the label; GC is the
unweighted mean over labels. In (0, 1], higher is better. Weakly connected components are another,
larger number.

The source is scib-metrics 0.5.10. A missing neighbour (-1) is no edge; a neighbour at distance 0
is one. A label with a single cell has 1.

Memory: the edges of the whole scope are held at once, 13 bytes an entry of the list and besides
the list: 0.19 GB for a million cells and 14 neighbours (measured; weak components take twice that).
"""

from __future__ import annotations

import math

import numpy as np

from croma_dask.embedding.outcome import Outcome
from croma_dask.errors import SchemaError
from croma_dask.kernels.typing import F64, I32

__all__ = ["GC_NEIGHBORS", "graph_connectivity", "largest_components"]

GC_NEIGHBORS = 15
"""Length of a list, the cell itself counted; the lists of this library are one column shorter."""

_ROWS = 1 << 16


def largest_components(
    index: I32, codes: I32, n_labels: int, *, strong: bool = True
) -> tuple[float, F64]:
    """Share of every label that its largest component holds, and the mean over labels.

    Parameters
    ----------
    index
        (n, k) nearest others of every row of the scope, -1 where there is none.
    codes
        (n,) labels.
    n_labels
        Number of labels.
    strong
        Components in which all cells reach each other along the directed edges; False: along
        edges in either direction.

    Returns
    -------
    value, fraction
        Mean over the labels that have cells, NaN without any; and (n_labels,) float64 in (0, 1],
        NaN for labels without cells.
    """
    from scipy.sparse import csr_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

    n, k = index.shape
    if len(codes) != n:
        raise SchemaError(f"{len(codes)} labels for {n} lists of neighbours")
    if n == 0:
        return math.nan, np.full(n_labels, np.nan)
    inside = np.empty((n, k), bool)
    for lo in range(0, n, _ROWS):
        rows = slice(lo, lo + _ROWS)
        # Position -1 reads some label, which the first condition forgets.
        inside[rows] = (index[rows] >= 0) & (codes[index[rows]] == codes[rows, None])
    pointer = np.zeros(n + 1, np.int32)
    np.cumsum(inside.sum(axis=1), out=pointer[1:])
    columns = index[inside]
    del inside
    # float64, which csgraph would turn any other type into by a copy.
    graph = csr_array((np.ones(len(columns)), columns, pointer), shape=(n, n))
    # scipy's strong components go round in circles, or miscount, where a list names a row twice.
    graph.sum_duplicates()
    n_components, component = connected_components(
        graph, directed=True, connection="strong" if strong else "weak"
    )
    size = np.bincount(component, minlength=n_components)
    of_label = np.empty(n_components, np.int64)
    of_label[component] = codes
    largest = np.zeros(n_labels, np.int64)
    np.maximum.at(largest, of_label, size)
    cells = np.bincount(codes, minlength=n_labels)
    fraction = np.full(n_labels, np.nan)
    present = cells > 0
    fraction[present] = largest[present] / cells[present]
    # Rounded once: the order of the labels leaves no trace.
    return math.fsum(fraction[present]) / int(present.sum()), fraction


def graph_connectivity(index: I32, codes: I32, n_labels: int, *, strong: bool = True) -> Outcome:
    """Graph connectivity of a scope; undefined with fewer than two cells.

    Parameters as in :func:`largest_components`.
    """
    note = f"components={'strong' if strong else 'weak'};k={index.shape[1] + 1};self_included=true"
    if len(codes) < 2:
        return Outcome.undefined("fewer than two cells", f"insufficient_cells;{note}")
    value, _ = largest_components(index, codes, n_labels, strong=strong)
    return Outcome(value, note)
