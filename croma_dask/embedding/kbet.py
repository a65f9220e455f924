"""kBET: how often the batches around a row are those that chance would put there.

Label by label. The reading that is the default is scib-metrics 0.5.10's, as scfoundry calls it: the
fuzzy graph of 50-lists (each row itself counted) is restricted to the label, its rows get diffusion
coordinates, and a row's nearest others there, with the row itself, are tested against the batches
of the label by Pearson's chi-square at 5 %. The score of a label is the fraction accepted, and the
value the mean over labels; higher is better.

Labels of fewer than 10 rows or of a single batch have no score. A label whose graph has several
components counts only rows of those with 3 k0 rows, and scores 0 where these are less than three
quarters of it. k0, neighbours without the row itself, is a quarter of the mean size of the
label's batches, at least 10 and at most 70.

Readings (specification, P3 and P4)
    ``components="carried"``: a label with n rows in use has at most n - 1 diffusion coordinates,
    and so have, as in the reference, all labels behind it. ``"independent"``: every label may have
    100. ``expected="dataset"``: what the text of scfoundry says, 50-lists in the embedding itself
    against the batches of all rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from croma_dask.embedding.kbet_edges import Block, gather_edges
from croma_dask.embedding.kbet_label import (
    KBetJob,
    LabelPlan,
    LabelScore,
    accepts,
    score_label,
)
from croma_dask.embedding.kbet_plan import (
    MIN_LABEL_ROWS,
    N_COMPONENTS,
    Components,
    eligible_labels,
    plan_labels,
)
from croma_dask.embedding.outcome import Outcome
from croma_dask.errors import SchemaError
from croma_dask.kernels.typing import F64, I32, Bool
from croma_dask.progress import Progress
from croma_dask.tasks import run_graph

__all__ = ["ALPHA", "K_GRAPH", "KBet", "kbet"]

Expected: TypeAlias = Literal["label", "dataset"]

K_GRAPH = 50
"""Length of the lists, the row itself counted; the lists of this library are one column shorter."""

ALPHA = 0.05
"""Level of the test: what is rejected where all is chance."""


@dataclass(frozen=True)
class KBet:
    """kBET of an embedding.

    Attributes
    ----------
    outcome
        Mean over labels.
    label_score
        (L,) of each label; NaN where it has none.
    accepted
        (n,) 1 where the neighbourhood of a row was accepted, 0 where not, NaN where it was not
        tested.
    """

    outcome: Outcome
    label_score: F64
    accepted: F64


def kbet(
    lists: Iterable[Block], labels: I32, batches: I32, *, components: Components = "carried",
    expected: Expected = "label", n_components: int = N_COMPONENTS, alpha: float = ALPHA,
    folder: str | None = None, client: Any = None, n_threads: int = 1, quiet: bool = True,
) -> KBet:  # fmt: skip
    """Score how well batches are mixed within labels.

    Parameters
    ----------
    lists
        Blocks (first row, index, distance) of all rows in their order, without the row itself, 49
        columns wide or as wide as the scope allows.
    labels, batches
        (n,) codes of all rows; labels by code point, which decides what is carried over.
    components, expected
        Readings, see above.
    n_components, alpha
        Diffusion coordinates, level of the test.
    folder
        Where edges are kept, and scores of labels: a run that died goes on from them. It belongs
        to these lists, codes and arguments. None keeps edges in memory.
    client, n_threads
        Cluster, which needs a folder that its workers see; or threads of this process, each with a
        label of its own (:func:`labels_at_once`). No bit depends on them.
    quiet
        Show no progress.

    Raises
    ------
    SchemaError
        An argument is not one of the readings, blocks are not in order, or there is no folder for
        a cluster.
    scipy.sparse.linalg.ArpackNoConvergence
        The eigensolver gave up on a label.

    Notes
    -----
    Memory: 8 bytes for each neighbour within a label (at most 49 a row), in `folder` or here; the
    tasks :func:`label_bytes` each, of which the eigensolver's basis is 201 x 8 bytes a row.
    """
    for name, value, known in (
        ("components", components, ("carried", "independent")),
        ("expected", expected, ("label", "dataset")),
    ):
        if value not in known:
            raise SchemaError(f"{name} is {' or '.join(map(repr, known))}, found {value!r}")
    if client is not None and folder is None:
        raise SchemaError("kBET on a cluster keeps its edges in a folder: name one")
    eligible = eligible_labels(labels, batches)
    if expected == "dataset":
        return _of_dataset(lists, labels, batches, eligible, alpha)
    widths: set[int] = set()
    edges = gather_edges(_watched(lists, widths), labels, batches, eligible, folder=folder)
    plans = plan_labels(edges, labels, batches, eligible, components, n_components)
    inner = max(1, n_threads // max(1, len(plans)))
    job = KBetJob(edges, alpha, inner if client is None else 1)
    scores = _run(job, plans, client, n_threads, quiet)
    edges.delete()
    label_score = np.full(eligible.size, np.nan)
    accepted = np.full(labels.size, np.nan)
    for plan, score in zip(plans, scores, strict=True):
        label_score[plan.label] = score.score
        verdict = score.accepted.astype(np.float64)
        accepted[labels == plan.label] = np.where(verdict < 0, np.nan, verdict)
    note = _note(components, max(widths, default=0) + 1, alpha, eligible, plans, scores)
    return KBet(_mean(label_score, note), label_score, accepted)


def _watched(lists: Iterable[Block], widths: set[int]) -> Iterable[Block]:
    for block in lists:
        widths.add(block[1].shape[1])
        yield block


def _run(
    job: KBetJob, plans: Sequence[LabelPlan], client: Any, n_threads: int, quiet: bool
) -> list[LabelScore]:
    token = uuid.uuid4().hex
    shared = f"croma-kbet-{token}"
    # The largest labels first, as they would be waited for in the end: of tasks that are alike,
    # Dask begins with the last name.
    order = sorted(range(len(plans)), key=lambda i: plans[i].n_rows)
    keys = {i: f"croma-kbet-{token}-{rank:06d}" for rank, i in enumerate(order)}
    graph: dict[str, Any] = {shared: job}
    graph |= {keys[i]: (score_label, shared, plans[i]) for i in order}
    work = {keys[i]: plan.n_rows for i, plan in enumerate(plans)}
    with Progress("kBET", sum(work.values()), "rows", quiet) as progress:
        return run_graph(
            graph, [keys[i] for i in range(len(plans))], client=client, n_threads=n_threads,
            on_done=lambda key, _: progress.advance(work.get(key, 0)),
        )  # fmt: skip


def _of_dataset(
    lists: Iterable[Block], labels: I32, batches: I32, eligible: Bool, alpha: float
) -> KBet:
    """Test the lists themselves against the batches of all rows."""
    size = np.bincount(batches)
    code = (np.cumsum(size > 0) - 1).astype(np.int32)[batches]
    frequency = size[size > 0] / max(labels.size, 1)
    accepted = np.full(labels.size, np.nan)
    width = 0
    for lo, index, _ in lists:
        hi = lo + index.shape[0]
        width = max(width, index.shape[1])
        if frequency.size > 1:
            accepted[lo:hi] = accepts(index, code[lo:hi], code, frequency, alpha)
    accepted[~eligible[labels]] = np.nan
    label_score = np.full(eligible.size, np.nan)
    for c in np.flatnonzero(eligible):
        label_score[c] = accepted[labels == c].mean()
    parts = ["expected=dataset", f"k={width + 1}", f"alpha={alpha}", *_counted(eligible)]
    return KBet(_mean(label_score, ";".join(parts)), label_score, accepted)


def _mean(label_score: F64, note: str) -> Outcome:
    scored = label_score[~np.isnan(label_score)]
    if scored.size:
        return Outcome(float(np.mean(scored)), note)
    reason = f"no label with {MIN_LABEL_ROWS} cells and two batches"
    return Outcome.undefined(reason, f"insufficient_labels;{note}")


def _note(
    components: Components, k_graph: int, alpha: float, eligible: Bool,
    plans: Sequence[LabelPlan], scores: Sequence[LabelScore],
) -> str:  # fmt: skip
    parts = ["expected=label", f"components={components}", f"k_graph={k_graph}"]
    for name, numbers in (
        ("k_diffusion", [s.k + 1 for s in scores if s.k]),
        ("n_components", [s.n_components for s in scores if s.n_components]),
    ):
        if numbers:
            lo, hi = min(numbers), max(numbers)
            parts.append(f"{name}={lo}" if lo == hi else f"{name}={lo}-{hi}")
    parts.append(f"alpha={alpha}")
    parts += _counted(eligible)
    for name, count in (
        ("disconnected_labels", sum(s.how == "disconnected" for s in scores)),
        ("rejected_labels", sum(s.how in ("one batch", "no coordinates") for s in scores)),
        ("capped_labels", sum(plan.capped for plan in plans)),
    ):
        if count:
            parts.append(f"{name}={count}")
    return ";".join(parts)


def _counted(eligible: Bool) -> list[str]:
    scored = int(np.count_nonzero(eligible))
    return [f"scored_labels={scored}", f"skipped_labels={eligible.size - scored}"]
