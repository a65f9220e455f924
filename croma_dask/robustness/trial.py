"""What a sample tells of an approximate search, as the results state it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.closer import CloserLook
from croma_dask.index.tune import Tuned
from croma_dask.robustness.calibration import Recall, SampleLists, recall_of, warn_recall
from croma_dask.robustness.request import Request
from croma_dask.robustness.sampling import Share
from croma_dask.search import Found

__all__ = ["Trial", "try_out"]


@dataclass(frozen=True)
class Trial:
    """What a sample tells of an approximate search.

    Attributes
    ----------
    tuned
        The radius.
    exact, approx
        Lists of the sample from the exact search, and from the approximate one.
    known
        (n,) bool: rows that have their exact lists.
    share
        How many rows the sample stands for.
    closer
        How more rows get their exact lists.
    recall
        Share of the former that the latter hold.
    attrs
        What every result says of the search.
    """

    tuned: Tuned
    exact: SampleLists
    approx: SampleLists
    recall: Recall
    known: NDArray[np.bool_]
    share: Share
    closer: CloserLook
    attrs: dict[str, Any]

    def without(self, rows: NDArray[np.int64], alike: NDArray[np.float64]) -> Trial:
        """Trial in which some more rows are known.

        Parameters
        ----------
        rows
            Those.
        alike
            (s,) share of the rows like each of the sample that were among them.
        """
        known = self.known.copy()
        known[rows] = True
        share = replace(
            self.share, weight=self.share.weight * (1.0 - alike),
            unknown=0.0 if known.all() else self.share.unknown,
        )  # fmt: skip
        return replace(self, known=known, share=share)


def try_out(found: Found, request: Request) -> Trial | None:
    """Compare the lists of the sample; None of an exact search.

    Warns
    -----
    RecallWarning
        The search has missed too much.
    """
    how = request.how
    if found.index is None or found.sample is None or how is None:
        return None
    sample, neighbors = found.sample, found.neighbors[0]
    tuned = sample.tuned
    exact, approx = (
        SampleLists.of_delivered(sample.rows, lists, neighbors.spec)
        for lists in (sample.exact, sample.approx)
    )
    recall = recall_of(approx, exact)
    warn_recall(recall, "recall" if how.probes is None else "probes")
    # A sample of rows without any SO and OS row tells nothing.
    typed = [value for value in recall if value == value]
    searched = recall.recall_global if neighbors.spec.n_global else min(typed, default=float("nan"))
    attrs = {
        "index": found.index.kind,
        "index_parameters": json.dumps(found.index.parameters, sort_keys=True),
        "recall": searched,
        "recall_wanted": how.recall,
        "probes": tuned.radius.probes,
        "n_clusters": found.index.partition.n_clusters,
        "so_radius": tuned.radius.so,
        "os_radius": tuned.radius.os,
        "calibration_seed": how.seed,
    }
    n = sample.known.shape[0]
    share = Share(sample.rows.shape[0] / n, float((~sample.known).sum() / n))
    return Trial(tuned, exact, approx, recall, sample.known, share, sample.closer, attrs)
