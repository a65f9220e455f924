"""kBET of one label: its graph, diffusion coordinates, neighbours there, and their batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]
from scipy.special import chdtri  # type: ignore[import-untyped]

from croma_dask.embedding.diffusion import NoCoordinatesError, diffusion_coordinates
from croma_dask.embedding.fuzzy import symmetric
from croma_dask.embedding.kbet_edges import LabelEdges, LabelLists
from croma_dask.index.scratch import Scratch
from croma_dask.index.threads import one_blas_thread
from croma_dask.kernels.typing import F64, I32, I64, Bool
from croma_dask.search import nearest_rows

__all__ = ["KBetJob", "LabelPlan", "LabelScore", "accepts", "kept_rows", "score_label"]

I8 = NDArray[np.int8]

How: TypeAlias = Literal["scored", "disconnected", "one batch", "no coordinates"]

_CELLS = 1 << 20
"""Numbers in a block of counts."""


@dataclass(frozen=True)
class LabelPlan:
    """What is known of a label before its graph is looked at.

    Attributes
    ----------
    label
        Code.
    n_rows, n_batches
        Rows, and batches among them.
    k0
        Neighbours in diffusion space that a row should have, without itself.
    n_components
        Diffusion coordinates at most.
    """

    label: int
    n_rows: int
    n_batches: int
    k0: int
    n_components: int

    @property
    def capped(self) -> bool:
        """Whether the label has too few rows for k0 neighbours."""
        return self.n_rows <= self.k0


@dataclass(frozen=True)
class LabelScore:
    """kBET of a label.

    Attributes
    ----------
    score
        Fraction of the tested rows that were accepted, or 0.
    accepted
        (n_c,) 1 where the neighbourhood was accepted, 0 where it was not, -1 where the row was not
        tested.
    how
        ``scored``; or why the score is 0 without a look at neighbourhoods: ``disconnected``, less
        than three quarters are in components that are large enough; ``one batch``, those that are
        kept are of one batch; ``no coordinates``.
    n_parts
        Components of the graph, small ones included.
    n_kept
        Rows in those that were kept; 0 of a disconnected label.
    n_components, k
        Diffusion coordinates and neighbours in use, without the row itself.
    """

    score: float
    accepted: I8
    how: How
    n_parts: int
    n_kept: int = 0
    n_components: int = 0
    k: int = 0


@dataclass(frozen=True)
class KBetJob:
    """Labels as their tasks see them.

    Attributes
    ----------
    edges
        Their lists.
    alpha
        Level of the test.
    n_threads
        Threads of a single task.
    """

    edges: LabelEdges
    alpha: float
    n_threads: int = 1


def score_label(job: KBetJob, plan: LabelPlan) -> LabelScore:
    """Score one label; with files, a score that is there already is read.

    Raises
    ------
    scipy.sparse.linalg.ArpackNoConvergence
        The eigensolver gave up.
    """
    name = f"kbet-{plan.label:06d}.npz"
    scratch = None if job.edges.folder is None else Scratch(job.edges.folder)
    done = scratch.find(name) if scratch else None
    if done is not None:
        return LabelScore(
            float(done["score"]), done["accepted"], str(done["how"]),  # type: ignore[arg-type]
            *(int(v) for v in done["numbers"]),
        )  # fmt: skip
    with one_blas_thread():
        found = _score(job.edges.read(plan.label), plan, job)
    if scratch is not None:
        numbers = np.array([found.n_parts, found.n_kept, found.n_components, found.k])
        scratch.write(
            name, {"score": np.float64(found.score), "accepted": found.accepted,
                   "how": np.str_(found.how), "numbers": numbers},
        )  # fmt: skip
    return found


def _score(lists: LabelLists, plan: LabelPlan, job: KBetJob) -> LabelScore:
    n, batch = lists.batch.size, lists.batch
    graph = symmetric(lists.index, lists.weight, n)
    del lists
    accepted = np.full(n, -1, np.int8)
    rows, part, n_parts = kept_rows(graph, plan.k0)
    if rows is None:
        return LabelScore(0.0, accepted, "disconnected", n_parts)
    if rows.size < n:
        graph = graph[rows][:, rows]
    m = min(plan.n_components, rows.size - 1)
    k = min(plan.k0, rows.size - 1)
    code, size = _present(batch[rows])
    if size.size == 1:
        accepted[rows] = 0
        return LabelScore(0.0, accepted, "one batch", n_parts, rows.size, m, k)
    try:
        x = diffusion_coordinates(graph, part, m)
    except NoCoordinatesError:
        return LabelScore(0.0, accepted, "no coordinates", n_parts, rows.size, m, k)
    del graph
    index, _ = nearest_rows(x, k, n_threads=job.n_threads)
    del x
    verdict = accepts(index, code, code, size / rows.size, job.alpha)
    accepted[rows] = verdict
    score = float(np.count_nonzero(verdict) / rows.size)
    return LabelScore(score, accepted, "scored", n_parts, rows.size, m, k)


def kept_rows(graph: Any, k0: int) -> tuple[I64 | None, I32, int]:
    """Rows of a label that are tested: all, or those of large components.

    Parameters
    ----------
    graph
        scipy.sparse.csr_matrix, symmetric.
    k0
        A component among several is kept if it has at least three times as many rows.

    Returns
    -------
    rows
        Positions, ascending; None where less than three quarters of the label would be kept.
    part
        Component of each of these rows, numbered from 0.
    n_parts
        Components of the whole graph.
    """
    n = graph.shape[0]
    n_parts, part = connected_components(graph, directed=False)
    if n_parts == 1:
        return np.arange(n), part, 1
    large = np.bincount(part) >= 3 * k0
    rows = np.flatnonzero(large[part])
    if 4 * rows.size < 3 * n:
        return None, part, n_parts
    return rows, (np.cumsum(large) - 1).astype(np.int32)[part[rows]], n_parts


def accepts(index: I32, own: I32, codes: I32, frequency: F64, alpha: float) -> Bool:
    """Whether the batches around each row are those that chance would put there.

    A row's list, with the row itself, is compared with the frequencies by Pearson's chi-square,
    with one degree of freedom less than there are batches.

    Parameters
    ----------
    index
        (r, k) neighbours of some rows, without the rows themselves; -1 behind the last.
    own
        (r,) batches of these rows.
    codes
        (n,) batches of all rows, that `index` points at.
    frequency
        (B,) share of each batch; all above 0, and at least two.
    alpha
        Level: that fraction of neighbourhoods is rejected where all is chance.
    """
    n_batches = frequency.size
    limit = chdtri(n_batches - 1, alpha)
    out = np.empty(index.shape[0], bool)
    step = max(1, _CELLS // n_batches)
    for lo in range(0, out.size, step):
        block = index[lo : lo + step]
        there = block >= 0
        r = block.shape[0]
        cell = (np.arange(r) * n_batches)[:, None] + codes[block]
        count = np.bincount(cell[there], minlength=r * n_batches).reshape(r, n_batches)
        count[np.arange(r), own[lo : lo + step]] += 1
        expected = (there.sum(axis=1) + 1)[:, None] * frequency
        out[lo : lo + step] = ((count - expected) ** 2 / expected).sum(axis=1) <= limit
    return out


def _present(batch: I32) -> tuple[I32, I64]:
    """Give the batches that occur numbers from 0; return codes and sizes."""
    size = np.bincount(batch)
    return (np.cumsum(size > 0) - 1).astype(np.int32)[batch], size[size > 0]
