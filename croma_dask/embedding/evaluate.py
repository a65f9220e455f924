"""All metrics of one embedding: its rows are looked at, searched once, and summed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

from croma_dask.approximate import Approximation
from croma_dask.cohort.align import Embedding
from croma_dask.embedding.bras import bras
from croma_dask.embedding.budget import Budget
from croma_dask.embedding.clustering import by_kmeans
from croma_dask.embedding.lisi import lisi_definition
from croma_dask.embedding.needs import Needs
from croma_dask.embedding.neighbor_metrics import NeighborMetrics
from croma_dask.embedding.opened import Opened, open_embedding
from croma_dask.embedding.outcome import BATCH_METRICS, BIO_METRICS, Counts, Outcome, Scores
from croma_dask.embedding.recorder import Recorder
from croma_dask.embedding.request import CLUSTERED, Request
from croma_dask.embedding.rows import GroupRows, Rows
from croma_dask.embedding.silhouette import asw, silhouette
from croma_dask.embedding.silhouette_bounds import asw_interval
from croma_dask.errors import SchemaError
from croma_dask.options import Options

__all__ = ["evaluate_embedding"]


def evaluate_embedding(
    embedding: Embedding, rows: Rows, request: Request, *, dataset: str, method: str,
    options: Options, client: Any = None, how: Approximation | None = None,
) -> Scores:  # fmt: skip
    """Compute the metrics of one embedding.

    Parameters
    ----------
    embedding, rows
        Rows that the manifest refers to, and which of them each group of metrics is of.
    request
        Metrics and readings.
    dataset, method
        What the embedding is called.
    options, client
        Memory, threads, scratch, progress; cluster or None.
    how
        An approximate index for the lists of any label; None for exact ones.

    Returns
    -------
    Scores
        An outcome for every metric that was asked for. One that raises has the status ``failed``
        and takes no other down.

    Raises
    ------
    SchemaError
        An approximate index is asked for, and rows are left out.
    MemoryLimitError
        The search does not fit the allowed memory.
    StoreError, OSError
        Rows cannot be read, or the cluster is gone: no metric would be right.
    """
    if how is not None and how.index != "auto":
        _check_served(rows, request, how)
    recorder = Recorder(request, Scores(dataset, method, {}), rows.n_rows)
    with contextlib.ExitStack() as keep:
        opened = open_embedding(embedding, options, client, keep)
        _Run(opened, rows, request, how, keep, recorder).all_metrics()
    scores = recorder.scores
    attrs: dict[str, str | int | float] = {
        "embedding_fingerprint": str(opened.embedding.fingerprint),
        "index": "exact" if how is None else str(how.index),
        **{f"lisi_{name}": value for name, value in lisi_definition().items()},
        **recorder.said,
    }
    in_order = {name: scores.outcomes[name] for name in request.metrics}
    return replace(scores, outcomes=in_order, attrs=attrs)


def _check_served(rows: Rows, request: Request, how: Approximation) -> None:
    """Refuse an index where the lists are not of all rows: it knows no others."""
    for group, bio in ((rows.bio, True), (rows.batch, False)):
        if group is None or group.rows is None:
            continue
        if Needs.of(request, bio=bio, mixing=not bio).spec.n_global:
            whose = "labels" if bio else "batches"
            why = "they are no part of the sample" if group.note else "a label or batch is missing"
            raise SchemaError(
                f"index={how.index!r} is of all rows, and {rows.n_rows - group.n_rows} of "
                f"{rows.n_rows} are left out of the metrics of {whose} ({why}): use index='exact', "
                "or take these rows out of the cohort"
            )


@dataclass(frozen=True)
class _Run:
    """Steps that fill the scores of one embedding."""

    opened: Opened
    manifest: Rows
    request: Request
    how: Approximation | None
    keep: contextlib.ExitStack
    recorder: Recorder

    def all_metrics(self) -> None:
        bio, mixing = self._usable_labels(), self._usable_batches()
        if bio is not None and mixing is not None and bio.same_rows(mixing):
            # The same rows: one search, whose lists serve both.
            self._of_lists(mixing, bio=True, mixing=True)
        else:
            self._of_lists(bio, bio=True, mixing=False)
            self._of_lists(mixing, bio=False, mixing=True)
        if bio is not None:
            self._of_labels(bio)
        if mixing is not None and self.request.wants("BRAS"):
            self.recorder.attempt(["BRAS"], mixing, lambda: self._bras(mixing))

    def _usable_labels(self) -> GroupRows | None:
        group = self.manifest.bio
        if group is None:
            return None
        n_dims = self.opened.embedding.n_features
        self.recorder.scores.bio = Counts(group.n_rows, n_dims, len(group.label.names))
        if not group.n_rows:
            reason = "no row has a label and a batch"
            self.recorder.undefined(BIO_METRICS, group, reason, "insufficient_cells")
            return None
        return self._finite(group, BIO_METRICS)

    def _usable_batches(self) -> GroupRows | None:
        group = self.manifest.batch
        if group is None:
            return None
        assert group.batch is not None
        n_batches, n_dims = len(group.batch.names), self.opened.embedding.n_features
        self.recorder.scores.batch = Counts(group.n_rows, n_dims, len(group.label.names), n_batches)
        if group.n_rows < 2:
            reason, note = "fewer than two cells", "insufficient_cells"
        elif n_batches < 2:
            reason = "one batch"
            note = "insufficient_batches" + ("_after_subsample" if group.note else "")
        else:
            return self._finite(group, BATCH_METRICS)
        self.recorder.undefined(BATCH_METRICS, group, reason, note)
        return None

    def _finite(self, group: GroupRows, metrics: tuple[str, ...]) -> GroupRows | None:
        bad = self.opened.n_bad(group)
        if not bad:
            return group
        reason = f"{bad} rows of the embedding have NaN or inf"
        self.recorder.undefined(metrics, group, reason, f"nonfinite_rows={bad}")
        return None

    def _of_lists(self, group: GroupRows | None, *, bio: bool, mixing: bool) -> None:
        needs = Needs.of(self.request, bio=bio, mixing=mixing)
        if group is not None and needs.any:
            NeighborMetrics(
                self.opened, group, needs, self.request.how, self.how, self.keep, self.recorder
            ).all()

    def _of_labels(self, group: GroupRows) -> None:
        if self.request.clustered and self.request.how.clustering == "kmeans":
            self.recorder.attempt(CLUSTERED, group, lambda: self._kmeans(group))
        if self.request.wants("ASW"):
            self.recorder.attempt(["ASW"], group, lambda: self._asw(group))

    def _held(self, group: GroupRows) -> int:
        """Bytes that the driver holds beside the work on a group of rows."""
        return Budget.of(self.manifest).search(group.n_rows)

    def _kmeans(self, group: GroupRows) -> dict[str, Outcome]:
        held = self._held(group)
        found = by_kmeans(self.opened, group, held=held)
        self.recorder.keep_clusters(group, found.clusters)
        return found.outcomes

    def _asw(self, group: GroupRows) -> dict[str, Outcome]:
        opened, codes = self.opened, group.label.codes
        source, n_labels = opened.rows(group), len(group.label.names)
        if self.request.how.asw == "interval":
            return {
                "ASW": asw_interval(
                    source, codes, n_labels, options=opened.options, client=opened.client,
                    n_tasks=opened.n_tasks, fixed=self._held(group),
                )
            }  # fmt: skip
        values = silhouette(
            source, codes, n_labels, options=opened.options, client=opened.client,
            n_tasks=opened.n_tasks, key=opened.key("silhouette", group),
            fixed=self._held(group),
        )  # fmt: skip
        self.recorder.keep("silhouette", group, values)
        return {"ASW": asw(values, codes)}

    def _bras(self, group: GroupRows) -> dict[str, Outcome]:
        assert group.batch is not None
        opened = self.opened
        outcome, values = bras(
            opened.rows(group), group.label.codes, group.batch.codes,
            other=self.request.how.bras_other, options=opened.options, client=opened.client,
            n_tasks=opened.n_tasks, fixed=self._held(group),
        )  # fmt: skip
        self.recorder.keep("bras", group, values)
        return {"BRAS": outcome}
