"""Typed evidence within the first k neighbours: what RI and MaRI count and weigh.

All functions work on one block of the fixed grid, in plain numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.design import Scope
from croma_dask.index.neighbors import Block
from croma_dask.kernels.exponential import exp

__all__ = [
    "NONE",
    "OO",
    "OS",
    "SO",
    "SS",
    "kinds_at",
    "kinds_of",
    "pooled_weights",
    "sample_weights",
]

NONE, SO, OS, SS, OO = 0, 1, 2, 3, 4

F64 = NDArray[np.float64]


def kinds_of(block: Block, scope: Scope) -> NDArray[np.int8]:
    """(n, k) type of every neighbour: NONE, SO, OS, SS or OO."""
    return kinds_at(block.index, scope, slice(block.lo, block.hi))


def kinds_at(
    index: NDArray[np.int32], scope: Scope, rows: slice | NDArray[np.int64]
) -> NDArray[np.int8]:
    """(n, k) type of every neighbour of some rows of a scope."""
    there = index >= 0
    at = np.where(there, index, 0)
    same_label = scope.label[at] == scope.label[rows, None]
    same_confounder = scope.confounder[at] == scope.confounder[rows, None]
    kind = np.where(
        same_label,
        np.where(same_confounder, SS, SO),
        np.where(same_confounder, OS, OO),
    )
    return np.where(there, kind, NONE).astype(np.int8)


@dataclass(frozen=True)
class Weights:
    """Evidence of the rows of a block at one k.

    Attributes
    ----------
    so, os
        (n,) weight of the SO and the OS neighbours, up to one factor common to both.
    nearest
        Distance at which a typed neighbour weighs 1: (n,) of each row, or of all.
    """

    so: F64
    os: F64
    nearest: F64 | float


def sample_weights(kind: NDArray[np.int8], distance: F64, k: int, tau: float) -> Weights:
    """Weights of each row, scaled so that its nearest typed neighbour weighs 1 (inf: none).

    The scale cancels in SO / (SO + OS); without it a small tau would underflow to 0 / 0.
    """
    typed, d = _typed(kind, distance, k)
    nearest = np.min(np.where(typed, d, np.inf), axis=1, initial=np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        weight = exp(-(d - nearest[:, None]) / tau)
    return _split(kind[:, :k], np.where(typed, weight, 0.0), nearest)


def pooled_weights(
    kind: NDArray[np.int8], distance: F64, k: int, tau: float, nearest: float
) -> Weights:
    """Weights of each row, scaled so that a typed neighbour at distance `nearest` weighs 1."""
    typed, d = _typed(kind, distance, k)
    with np.errstate(under="ignore", over="ignore"):
        weight = exp(-(d - nearest) / tau)
    return _split(kind[:, :k], np.where(typed, weight, 0.0), nearest)


def _typed(kind: NDArray[np.int8], distance: F64, k: int) -> tuple[NDArray[np.bool_], F64]:
    typed = (kind[:, :k] == SO) | (kind[:, :k] == OS)
    return typed, np.where(typed, distance[:, :k], np.inf)


def _split(kind: NDArray[np.int8], weight: F64, nearest: F64 | float) -> Weights:
    # A sum along the neighbours of a row alone: the same bits whatever other rows are there.
    return Weights(
        np.where(kind == SO, weight, 0.0).sum(axis=1),
        np.where(kind == OS, weight, 0.0).sum(axis=1),
        nearest,
    )


def count_kinds(kind: NDArray[np.int8], k: int) -> dict[int, NDArray[Any]]:
    """(n,) number of neighbours of each type within the first k."""
    return {which: (kind[:, :k] == which).sum(axis=1) for which in (SO, OS, SS, OO)}
