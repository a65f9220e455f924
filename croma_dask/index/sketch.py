"""A sketch of the rows: their main directions, enough to tell who is a candidate.

The screening distance of two centred unit vectors, h_a + h_b - <a, b>, needs the product in all
features. Where the spectrum of the embedding falls off, the first principal directions carry nearly
all of it, and h_a + h_b minus the product in these alone is an estimate that errs by the product of
two small, nearly orthogonal rests. So candidates are screened by a product of some hundred features
instead of all, twice as many are kept, and the exact distance decides among those.
"""

from __future__ import annotations

import numpy as np

from croma_dask.kernels.typing import F32

__all__ = ["SHORTEST", "find_basis"]

SHORTEST = 64
_LENGTHS = (SHORTEST, 96, 128, 192, 256, 384, 512)
_QUERIES = 256
_NEAREST = 50
_KEPT = 1.5
"""A sketch will do when the nearest of a query are among this many times as many by the sketch.
The search keeps twice as many: its rows lie denser than a sample's."""

_ENOUGH = 0.998
_MOST_FEATURES = 4096
"""Beyond this the eigenvectors take too long."""


def find_basis(sample: F32, seed: int) -> F32:
    """Find the shortest basis whose sketch finds the neighbours within a sample.

    Parameters
    ----------
    sample
        (n, D) centred unit vectors.
    seed
        Of the queries that it is tried on.

    Returns
    -------
    basis
        (D, r) float32 with orthonormal columns; (D, 0) where no sketch pays.
    """
    n, d = sample.shape
    none = np.empty((d, 0), np.float32)
    lengths = [r for r in _LENGTHS if 2 * r <= d]
    if not lengths or d > _MOST_FEATURES or n < 40 * _NEAREST:
        return none
    _, vectors = np.linalg.eigh(sample.T @ sample)
    basis = np.ascontiguousarray(vectors[:, ::-1], np.float32)
    half = 0.5 * np.einsum("ij,ij->i", sample, sample)
    rng = np.random.default_rng([seed, 2])
    queries = np.sort(rng.choice(n, min(n, _QUERIES), replace=False))
    nearest = _nearest(half - sample[queries] @ sample.T, queries, _NEAREST)
    for r in lengths:
        sketch = sample @ basis[:, :r]
        found = _nearest(half - sketch[queries] @ sketch.T, queries, int(_KEPT * _NEAREST))
        hit = np.mean([np.isin(a, b).mean() for a, b in zip(nearest, found, strict=True)])
        if hit >= _ENOUGH:
            return np.ascontiguousarray(basis[:, :r])
    return none


def _nearest(distance: F32, queries: np.ndarray, k: int) -> np.ndarray:
    distance[np.arange(queries.size), queries] = np.inf
    return np.argpartition(distance, k - 1, axis=1)[:, :k]
