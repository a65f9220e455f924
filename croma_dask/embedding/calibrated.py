"""What an approximate search has cost: recall, and errors of values, on rows searched exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.embedding.accuracy import SHORT, folds, vote_block
from croma_dask.embedding.lisi import Compat, lisi_block
from croma_dask.embedding.needs import Needs
from croma_dask.embedding.rows import GroupRows
from croma_dask.errors import RecallWarning, warn
from croma_dask.search import Found

__all__ = ["Calibrated"]

F64 = NDArray[np.float64]

_DRAWS = 400
_LOW = 0.95


@dataclass(frozen=True)
class Calibrated:
    """Recall of an approximate search, and what it did to the values of its sample.

    Attributes
    ----------
    index
        Kind of the index.
    lists
        Names the lists by what they came from: this very build, and how far rows looked.
    recall
        Share of the exact neighbours of the sample that were found, with a 95 % interval.
    n_rows
        Rows of the sample.
    errors
        By metric: approximate minus exact value of the sample, with a 95 % interval.
    """

    index: str
    lists: str
    recall: tuple[float, float, float]
    n_rows: int
    errors: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """Said in the note of every metric that used the lists."""
        value, low, high = self.recall
        return f"index={self.index};recall={value:.4f};recall_low={low:.4f};recall_high={high:.4f}"

    def said(self) -> dict[str, str | int | float]:
        """Return the attributes of a result."""
        names = ("", "_low", "_high")
        found: dict[str, str | int | float] = {"calibration_rows": self.n_rows}
        found |= {f"recall{n}": float(v) for n, v in zip(names, self.recall, strict=True)}
        for metric, error in self.errors.items():
            found |= {f"{metric}_error{n}": float(v) for n, v in zip(names, error, strict=True)}
        return found

    @classmethod
    def of(cls, found: Found, group: GroupRows, needs: Needs, compat: Compat) -> Calibrated:
        """Compare the lists of the sample with the exact ones.

        Warns
        -----
        RecallWarning
            Less than 0.95 of the neighbours were found.
        """
        assert found.sample is not None
        assert found.index is not None
        sample = found.sample
        k = found.neighbors[0].spec.n_global
        exact, approx = sample.exact.index[:, :k], sample.approx.index[:, :k]
        hit = _shares(exact, approx)
        recall = _interval(lambda rows: float(hit[rows].mean()), hit.size)
        if recall[0] < _LOW:
            warn(
                f"the approximate search has found {recall[0]:.3f} of the neighbours of a sample: "
                "ask for more with recall= (--recall) or probes=, or use index='exact'",
                RecallWarning,
            )
        errors: dict[str, tuple[float, float, float]] = {}
        codes = group.label.codes
        for metric, wanted, coded in (
            ("cLISI", needs.clisi, group.label), ("iLISI", needs.ilisi, group.batch),
        ):  # fmt: skip
            if not wanted or coded is None or len(coded.names) < 2:
                continue
            values = [
                lisi_block(
                    np.ascontiguousarray(part.index[:, :k]),
                    np.ascontiguousarray(part.distance[:, :k]), coded.codes, len(coded.names),
                    compat=compat,
                )
                for part in (sample.approx, sample.exact)
            ]  # fmt: skip
            sign = -1.0 if metric == "cLISI" else 1.0
            errors[metric] = _error(values[0], values[1], sign / (len(coded.names) - 1), np.median)
        if needs.votes:
            fold = folds(codes)
            right = [
                _right(np.ascontiguousarray(part), sample.rows, fold, codes)
                for part in (approx, exact)
            ]
            tested = fold[sample.rows] >= 0
            if tested.any():
                errors["Acc@kNN"] = _error(right[0][tested], right[1][tested], 1.0, np.mean)
        lists = f"{found.index.build_id} {sample.tuned.radius}"
        return cls(found.index.kind, lists, recall, hit.size, errors)


def _shares(exact: Any, approx: Any) -> F64:
    """Share of each row's exact neighbours that were found."""
    found = np.empty(exact.shape[0])
    for row, (wanted, got) in enumerate(zip(exact, approx, strict=True)):
        wanted = wanted[wanted >= 0]
        found[row] = np.isin(wanted, got).mean() if wanted.size else 1.0
    return found


def _right(index: Any, rows: Any, fold: Any, codes: Any) -> F64:
    votes = vote_block(index, fold[rows], fold, codes, complete=False)
    return np.where(votes == SHORT, np.nan, (votes == codes[rows]).astype(np.float64))


def _error(
    approx: F64, exact: F64, scale: float, reduce: Callable[..., Any]
) -> tuple[float, float, float]:
    """Approximate minus exact value of the sample, and its bootstrap interval."""
    both = ~(np.isnan(approx) | np.isnan(exact))
    a, e = approx[both], exact[both]
    if not a.size:
        return float("nan"), float("nan"), float("nan")
    return _interval(lambda rows: scale * float(reduce(a[rows]) - reduce(e[rows])), a.size)


def _interval(value: Callable[[Any], float], n: int) -> tuple[float, float, float]:
    """Value over all rows, and the 95 % interval over rows that are drawn again."""
    rng = np.random.default_rng([n, 11])
    drawn = [value(rng.integers(0, n, n)) for _ in range(_DRAWS)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return value(np.arange(n)), float(low), float(high)
