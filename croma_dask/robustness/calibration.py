"""What an approximate search has cost: recall and error, from a sample that was searched exactly.

The error of a value is estimated from the difference that every sampled row makes to it. A row's
difference is zero wherever its lists are right, so differences are rare and their intervals need
care (sampling.py). Errors of CRoMa are estimated in margin_error.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from croma_dask import schema
from croma_dask.cohort.design import Scope
from croma_dask.errors import RecallWarning, warn
from croma_dask.index.finish import Delivered
from croma_dask.index.spec import ListSpec
from croma_dask.robustness import evidence as ev
from croma_dask.robustness.sampling import Estimate, Share, mean_of

__all__ = [
    "Recall",
    "SampleLists",
    "calibrate_index",
    "label_calibration",
    "recall_of",
    "warn_recall",
]

F64 = NDArray[np.float64]

RECALL_WANTED = 0.95
TYPED_RECALL_WANTED = 0.85
"""Recall below which a result warns: of the lists of any type, and of the typed ones, which are
only averaged over and aim lower (index/tune.py)."""


@dataclass(frozen=True)
class SampleLists:
    """Lists of a sample of rows of a scope.

    Attributes
    ----------
    rows
        (s,) int64 positions in the scope, drawn without replacement.
    index, distance
        (s, k) nearest eligible rows; -1 and NaN behind the last.
    so, os
        (s, m) distances of the nearest SO and OS rows, NaN behind the last.
    """

    rows: NDArray[np.int64]
    index: NDArray[np.int32]
    distance: F64
    so: F64
    os: F64

    @classmethod
    def of_delivered(cls, rows: NDArray[np.int64], found: Delivered, spec: ListSpec) -> SampleLists:
        """Cut the lists of a sample as a search delivers them."""
        k, m = spec.n_global, spec.n_typed
        distance = found.distance
        return cls(
            rows, found.index[:, :k], distance[:, :k], distance[:, k : k + m], distance[:, k + m :]
        )


class Recall(NamedTuple):
    """Share of the exact lists' entries that the approximate lists hold; NaN without entries."""

    recall_global: float
    recall_so: float
    recall_os: float


def recall_of(approx: SampleLists, exact: SampleLists) -> Recall:
    """Compare the lists of a sample.

    Entries of the global list count as found by row. Of typed lists only distances are kept: an
    entry counts as found when the other list holds as many of its distance.
    """
    there = exact.index >= 0
    row = np.arange(exact.index.shape[0], dtype=np.int64)[:, None] << 32
    wanted = (row + exact.index)[there]
    held = (row + approx.index)[approx.index >= 0]
    found = np.isin(wanted, held, assume_unique=True)
    return Recall(
        _share(found.sum(), wanted.size),
        _share(*_equal(approx.so, exact.so)),
        _share(*_equal(approx.os, exact.os)),
    )


def _equal(approx: F64, exact: F64) -> tuple[Any, Any]:
    """Entries of ascending lists that are in both, counting repeats, and entries of the second."""
    rank = np.arange(exact.shape[1])
    before = exact[:, :, None] == exact[:, None, :]
    repeat = (before & (rank[None, :] < rank[:, None])).sum(axis=2)
    held = (exact[:, :, None] == approx[:, None, :]).sum(axis=2)
    return (repeat < held).sum(), (~np.isnan(exact)).sum()


def _share(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else float("nan")


def warn_recall(recall: Recall, argument: str = "recall") -> None:
    """Warn of lists that have missed too many neighbours.

    Parameters
    ----------
    recall
        As measured.
    argument
        What the caller can raise.

    Warns
    -----
    RecallWarning
        Which lists, their recall, and the argument.
    """
    names = ("nearest", "nearest SO", "nearest OS")
    wanted = (RECALL_WANTED, TYPED_RECALL_WANTED, TYPED_RECALL_WANTED)
    low = [
        f"{value:.3f} of the {name} neighbours (wanted: {least:g})"
        for name, value, least in zip(names, recall, wanted, strict=True)
        if value < least
    ]
    if low:
        warn(
            f"the approximate search has found only {' and '.join(low)} of a sample: "
            f"raise {argument}, or use index='exact'",
            RecallWarning,
        )


def calibrate_index(
    scope: Scope, approx: SampleLists, exact: SampleLists, k: int, tau: float | None, value: float,
    share: Share,
) -> Estimate:  # fmt: skip
    """Estimate the error of a pooled RI (`tau` None) or MaRI at the operating k.

    Parameters
    ----------
    scope
        The rows that were searched.
    approx, exact
        Lists of the same sample.
    k, tau
        Of the approximate run, used for both sides.
    value
        Pooled value of the approximate run, over all rows, in which the known ones have their exact
        lists.
    share
        How many rows the sample stands for.

    Notes
    -----
    With A and D the sums of SO and of all evidence, and primes for the exact lists,
    A/D - A'/D' = ((A - A') - value (D - D')) / D', without any approximation: a sum of row
    differences, zero for the known rows, over the exact evidence, which the sample tells. That the
    exact run would have had another tau moves MaRI by less than a thirtieth of the half-width
    (measured at n_s = 1,000), and is left out.
    """
    if share.unknown == 0.0:
        return Estimate.around(0.0, 0.0)
    sides = [(ev.kinds_at(lists.index, scope, lists.rows), lists) for lists in (approx, exact)]
    typed = [(kind[:, :k] == ev.SO) | (kind[:, :k] == ev.OS) for kind, _ in sides]
    n_typed = int(typed[1].sum())
    if not n_typed or np.isnan(value):
        return Estimate.unknown()
    # The scale cancels between numerator and denominator; it keeps the weights from underflow.
    nearest = min(
        float(np.min(lists.distance[:, :k], where=which, initial=np.inf))
        for which, (_, lists) in zip(typed, sides, strict=True)
    )
    (a, a_all), (e, e_all) = (_evidence(kind, lists, k, tau, nearest) for kind, lists in sides)
    difference = (a - e) - value * (a_all - e_all)
    n = exact.rows.shape[0]
    # What one missed typed neighbour is worth, kept from vanishing where one type is rare.
    part = min(max(value, 0.1), 0.9)
    rare = np.full(2, np.sqrt(part * (1.0 - part)) * n / n_typed)
    mean, half = mean_of(difference / e_all.mean(), share, rare)
    return Estimate.around(mean, half).within(value, 0.0, 1.0)


def _evidence(
    kind: NDArray[np.int8], lists: SampleLists, k: int, tau: float | None, nearest: float
) -> tuple[F64, F64]:
    """SO evidence and all evidence of each row."""
    if tau is None:
        numbers = ev.count_kinds(kind, k)
        so = numbers[ev.SO].astype(np.float64)
        return so, so + numbers[ev.OS]
    weights = ev.pooled_weights(kind, lists.distance, k, tau, nearest)
    return weights.so, weights.so + weights.os


def label_calibration(
    metric: str,
    recall: Recall,
    estimates: Mapping[str, Estimate] | Sequence[Mapping[str, Estimate]],
    n_rows: int,
    k_possible: NDArray[np.bool_] | None = None,
) -> dict[str, Any]:
    """Return the variables of :data:`croma_dask.schema.CALIBRATION` for a metric.

    Parameters
    ----------
    metric
        Its name.
    recall
        Of the lists; those that the metric does not use become NaN.
    estimates
        Variable name to estimate; a sequence of them, one an m, gives arrays along m.
    n_rows
        Sampled rows.
    k_possible
        (candidates,) whether each may be the operating k, of metrics that have one.
    """
    typed = metric == "CRoMa"
    nan = float("nan")
    values: dict[str, Any] = {
        "recall_global": nan if typed else recall.recall_global,
        "recall_so": recall.recall_so if typed else nan,
        "recall_os": recall.recall_os if typed else nan,
        "calibration_rows": n_rows,
    }
    if not typed:
        values["k_possible"] = k_possible
    for name in schema.CALIBRATED[metric]:
        for suffix, field in (("", "error"), ("_low", "low"), ("_high", "high")):
            values[f"{name}_error{suffix}"] = (
                getattr(estimates[name], field)
                if isinstance(estimates, Mapping)
                else np.array([getattr(at[name], field) for at in estimates])
            )
    return values
