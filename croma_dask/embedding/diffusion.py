"""Diffusion coordinates of a weighted graph, in which kBET looks for neighbours.

A random walk goes along the edges of the graph, which is first freed of its density: with W the
symmetric weights and q their sums, K = W / (q q'), z the square root of the sums of K, and
T = K / (z z'). T is symmetric and has the eigenvalues of the walk, from -1 to 1. Of the m pairs of
largest magnitude each vector is a coordinate, stretched by lambda / (1 - lambda), which adds up
walks of any number of steps; a vector of lambda 1, constant along a component but for z, stays as
it is.

A graph in C components has the eigenvalue 1 C times. A Krylov method finds an eigenvalue once, and
its repetitions only by way of rounding errors. And if the 1 is rounded to the next float32, its
vector is stretched ten million times and outweighs all others, although it says nothing but how
dense a place is: so it can happen to scib-metrics, by the last bits of the distances, mostly in
labels of few rows. Here each component is solved for itself, its largest eigenvalue is set to the 1
that it is, and the m largest of all are taken. Nothing is drawn at random.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import scipy.linalg  # type: ignore[import-untyped]
from scipy.sparse.linalg import eigsh  # type: ignore[import-untyped]

from croma_dask.kernels.typing import F32, F64, I32

__all__ = [
    "NoCoordinatesError",
    "diffusion_bytes",
    "diffusion_coordinates",
    "transitions",
]

DENSE_ROWS = 512
"""Rows up to which all eigenpairs of a component are computed, which is as fast and never fails."""

_EPSILON = np.float32(1e-8)

# Where ARPACK has to start anew it draws a vector; older releases of scipy let nobody seed that.
_SEED: dict[str, int] = {"rng": 0} if "rng" in signature(eigsh).parameters else {}


class NoCoordinatesError(ValueError):
    """The graph has no diffusion coordinates: some would not be finite."""


def transitions(graph: Any) -> Any:
    """Walk along the edges of a graph, as a symmetric matrix.

    Parameters
    ----------
    graph
        scipy.sparse.csr_matrix, (n, n) symmetric and not negative, every row with an entry.

    Returns
    -------
    scipy.sparse.csr_matrix
        float64, symmetric bit for bit where `graph` is.
    """
    walk = graph.astype(np.float64)
    lengths = np.diff(walk.indptr)
    for root in (False, True):
        sums = np.asarray(walk.sum(axis=0)).ravel()
        scale = np.sqrt(sums) if root else sums
        # One division by the product, which is that of the other direction, too.
        walk.data /= np.repeat(scale, lengths) * scale[walk.indices]
    return walk


def diffusion_coordinates(graph: Any, part: I32, n_components: int) -> F32:
    """Coordinates of the rows of a graph, between which Euclidean distance is diffusion distance.

    Parameters
    ----------
    graph
        scipy.sparse.csr_matrix, (n, n) symmetric weights.
    part
        (n,) number of the connected component of each row, from 0.
    n_components
        m, how many coordinates; below n.

    Returns
    -------
    ndarray
        (n, m) float32, columns by descending eigenvalue. Signs, and the axes of a repeated
        eigenvalue, are arbitrary but always the same.

    Raises
    ------
    NoCoordinatesError
        A coordinate is not finite.
    scipy.sparse.linalg.ArpackNoConvergence
        The eigensolver gave up.

    Notes
    -----
    Memory: :func:`diffusion_bytes`. Call it with BLAS on one thread for results that do not depend
    on the number of threads.
    """
    n = graph.shape[0]
    walk = transitions(graph)
    if not np.isfinite(walk.data).all():
        raise NoCoordinatesError("weights are too small for a walk along them")
    values, vectors, owner = [], [], []
    members = [np.flatnonzero(part == p) for p in range(int(part.max()) + 1)]
    for p, rows in enumerate(members):
        block = walk if len(members) == 1 else walk[rows][:, rows]
        found, vector = _pairs(block, min(n_components, rows.size))
        found[np.argmax(found)] = 1.0
        values.append(found)
        vectors.append(vector.astype(np.float32))
        owner += [(p, column) for column in range(found.size)]
    value = np.concatenate(values)
    taken = np.argsort(-np.abs(value), kind="stable")[:n_components]
    taken = taken[np.argsort(-value[taken], kind="stable")]
    factor = _factors(value[taken])
    x = np.zeros((n, taken.size), np.float32)
    for column, pair in enumerate(taken):
        p, own = owner[pair]
        x[members[p], column] = vectors[p][:, own] * factor[column]
    if not np.isfinite(x).all():
        raise NoCoordinatesError("diffusion coordinates are not finite")
    return x


def _pairs(walk: Any, m: int) -> tuple[F64, F64]:
    """Eigenpairs of largest magnitude of a component, m of them or all if it is small."""
    n = walk.shape[0]
    if n <= DENSE_ROWS:
        return scipy.linalg.eigh(walk.toarray(), overwrite_a=True, check_finite=False)  # type: ignore[no-any-return]
    start = np.random.default_rng(0).uniform(-1.0, 1.0, n)
    value, vector = eigsh(walk, k=m, which="LM", v0=start, **_SEED)
    return value, vector


def _factors(value: F64) -> F32:
    """Stretch of each vector, in the float32 steps in which the reference has it."""
    rounded = value.astype(np.float32) + _EPSILON
    one = rounded == 1.0
    return (rounded / np.where(one, 1.0, 1.0 - rounded)).astype(np.float32)


def diffusion_bytes(n_rows: int, n_components: int, entries: int) -> int:
    """Bytes that :func:`diffusion_coordinates` takes beside its graph, at most.

    Parameters
    ----------
    n_rows, n_components
        Rows, coordinates.
    entries
        Stored entries of a row of the graph.
    """
    walk = 2 * 12 * n_rows * entries
    dense = 4 * 8 * min(n_rows, DENSE_ROWS) ** 2
    # ARPACK's basis, the vectors taken out of it and a copy of them; then float32 twice.
    basis = 8 * n_rows * (2 * n_components + 1 + 2 * n_components + 8)
    return walk + max(dense, basis) + 8 * n_rows * n_components
