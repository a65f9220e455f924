"""Metrics that failed: of an embedding that cannot be scored at all, and how they are told."""

from __future__ import annotations

from dataclasses import replace

from croma_dask.embedding.outcome import BATCH_METRICS, BIO_METRICS, Counts, Outcome, Scores
from croma_dask.embedding.recorder import Recorder
from croma_dask.embedding.request import Request
from croma_dask.embedding.rows import Rows
from croma_dask.errors import CromaDaskError

__all__ = ["failed_metrics", "failed_scores", "told_failures"]


def failed_scores(
    dataset: str, method: str, n_dims: int, rows: Rows, request: Request, error: CromaDaskError
) -> Scores:
    """Make the scores of an embedding of which every metric has failed for one reason."""
    scores = Scores(dataset, method, {})
    recorder = Recorder(request, scores, rows.n_rows)

    def fail() -> dict[str, Outcome]:
        raise error

    if rows.bio is not None:
        scores.bio = Counts(rows.bio.n_rows, n_dims, len(rows.bio.label.names))
        recorder.attempt(BIO_METRICS, rows.bio, fail)
    if rows.batch is not None and rows.batch.batch is not None:
        n_labels, n_batches = len(rows.batch.label.names), len(rows.batch.batch.names)
        scores.batch = Counts(rows.batch.n_rows, n_dims, n_labels, n_batches)
        recorder.attempt(BATCH_METRICS, rows.batch, fail)
    return replace(scores, outcomes={name: scores.outcomes[name] for name in request.metrics})


def failed_metrics(scores: Scores) -> dict[str, str]:
    """Metrics that raised, and what."""
    failed = "failed: "
    return {
        name: outcome.status.removeprefix(failed)
        for name, outcome in scores.outcomes.items()
        if outcome.status.startswith(failed)
    }


def told_failures(scores: Scores) -> str:
    """Say in one line which metrics of an embedding failed, and why; nothing where none did."""
    metrics: dict[str, list[str]] = {}
    for name, why in failed_metrics(scores).items():
        metrics.setdefault(" ".join(why.split()), []).append(name)
    every = len(scores.outcomes)
    told = (
        f"{'all metrics' if len(names) == every > 1 else ', '.join(names)}: {why}"
        for why, names in metrics.items()
    )
    return "; ".join(told)
