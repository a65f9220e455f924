"""What a sample tells of an approximate search, as the results state it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from croma_dask.index.tune import Tuned
from croma_dask.robustness.calibration import Recall, SampleLists, recall_of, warn_recall
from croma_dask.robustness.request import Request
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
    recall
        Share of the former that the latter hold.
    attrs
        What every result says of the search.
    """

    tuned: Tuned
    exact: SampleLists
    approx: SampleLists
    recall: Recall
    attrs: dict[str, Any]


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
    tuned, neighbors = found.sample.tuned, found.neighbors[0]
    exact = SampleLists.of_delivered(found.sample.rows, found.sample.exact, neighbors.spec)
    approx = SampleLists.of_neighbors(found.sample.rows, neighbors)
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
    return Trial(tuned, exact, approx, recall, attrs)
