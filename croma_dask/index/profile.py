"""The first pass: is every row a number, which are zero, where is the centre, what is hashed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from croma_dask.errors import InputWarning, SchemaError, name_rows, warn
from croma_dask.fingerprint import BLOCK_ROWS, block_digest
from croma_dask.index.source import RowSource
from croma_dask.kernels import screen
from croma_dask.kernels.frame import Distance, Frame
from croma_dask.kernels.typing import F64

__all__ = ["Profile", "check_profile", "combine_profiles", "profile_rows", "warn_zero_rows"]

_FIRST = 5

_COLLAPSED = 5e-15
"""Squared chord from the first row below which all cosine distances count as 0 (1e-14)."""


_LARGEST = 1e300
"""Squared length of a row beyond which its distances are refused."""


@dataclass
class Profile:
    """What one pass over some rows has seen.

    Attributes
    ----------
    n_rows, n_zero, n_bad, n_inf
        Rows; zero rows; rows with NaN or inf; those of them with inf.
    first_zero, first_bad
        Positions of the first few.
    unit_sum
        (D,) sum of the unit vectors.
    first_unit
        (D,) unit vector of the first row.
    spread
        Largest squared distance of a unit vector from the first one.
    row_sum, largest
        (D,) sum of the rows as they are, and the largest `<x, x>`; looked at for Euclidean
        distances only.
    digests
        One a block of the fixed grid, when asked for.
    """

    n_rows: int
    n_zero: int
    n_bad: int
    n_inf: int
    first_zero: list[int]
    first_bad: list[int]
    unit_sum: F64
    first_unit: F64
    spread: float
    digests: list[bytes] = field(default_factory=list)
    row_sum: F64 = field(default_factory=lambda: np.zeros(0))
    largest: float = 0.0

    @property
    def mean(self) -> F64:
        """(D,) mean of the unit vectors."""
        mean: F64 = self.unit_sum / max(self.n_rows, 1)
        return mean

    def frame(self, distance: Distance) -> Frame:
        """Where the screening of a distance has its origin."""
        if distance == "euclidean":
            return Frame.euclidean(self.row_sum / max(self.n_rows, 1), float(np.sqrt(self.largest)))
        return Frame(self.mean)


def profile_rows(
    source: RowSource, lo: int, hi: int, *, digest: bool, distance: Distance = "cosine"
) -> Profile:
    """Look at rows lo..hi once, in blocks of the fixed grid (`lo` lies on it)."""
    d = source.n_features
    seen = Profile(hi - lo, 0, 0, 0, [], [], np.zeros(d), np.zeros(d), 0.0, row_sum=np.zeros(d))
    for at in range(lo, hi, BLOCK_ROWS):
        stop = min(hi, at + BLOCK_ROWS)
        raw = source.read(at, stop)
        if digest:
            seen.digests.append(block_digest(raw))
        # Pieces that stay in the cache: a float64 copy of a whole block would not.
        for a in range(0, raw.shape[0], 512):
            _look(screen.native(raw[a : a + 512]), at + a, seen)
            if distance == "euclidean":
                _measure(raw[a : a + 512], seen)
    return seen


def _look(x: Any, at: int, seen: Profile) -> None:
    finite = np.isfinite(x).all(axis=1)
    if not finite.all():
        bad = np.flatnonzero(~finite)
        seen.n_bad += int(bad.size)
        seen.n_inf += int(np.isinf(x[bad]).any(axis=1).sum())
        seen.first_bad += [int(at + b) for b in bad[: _FIRST - len(seen.first_bad)]]
        return
    wide = x.astype(np.float64, copy=False)
    norm = np.einsum("ij,ij->i", wide, wide)
    zero = np.flatnonzero(norm == 0.0)
    seen.n_zero += int(zero.size)
    seen.first_zero += [int(at + z) for z in zero[: _FIRST - len(seen.first_zero)]]
    unit = wide * screen.inverse_length(norm)[:, None]
    if not seen.first_unit.any():
        seen.first_unit = unit[0].copy()
    seen.unit_sum += unit.sum(axis=0)
    if seen.spread < _COLLAPSED:
        apart = unit - seen.first_unit
        seen.spread = max(seen.spread, float(np.einsum("ij,ij->i", apart, apart).max()))


def _measure(raw: Any, seen: Profile) -> None:
    """Add what Euclidean distances need to know of the rows that are numbers."""
    wide = raw.astype(np.float64)
    finite = np.isfinite(wide).all(axis=1)
    wide = wide if finite.all() else wide[finite]
    with np.errstate(over="ignore", invalid="ignore"):
        seen.row_sum += wide.sum(axis=0)
        seen.largest = max(seen.largest, float(np.einsum("ij,ij->i", wide, wide).max(initial=0.0)))


def combine_profiles(parts: Iterable[Profile]) -> Profile:
    """Put the profiles of consecutive spans together, in their order."""
    parts = list(parts)
    whole = parts[0]
    for part in parts[1:]:
        whole.n_rows += part.n_rows
        whole.n_zero += part.n_zero
        whole.n_bad += part.n_bad
        whole.n_inf += part.n_inf
        whole.first_zero = (whole.first_zero + part.first_zero)[:_FIRST]
        whole.first_bad = (whole.first_bad + part.first_bad)[:_FIRST]
        whole.unit_sum = whole.unit_sum + part.unit_sum
        whole.row_sum = whole.row_sum + part.row_sum
        whole.largest = max(whole.largest, part.largest)
        apart = whole.first_unit - part.first_unit
        whole.spread = max(whole.spread, part.spread, float(apart @ apart))
        whole.digests = whole.digests + part.digests
    return whole


def check_profile(seen: Profile, distance: Distance = "cosine") -> None:
    """Refuse rows that are no numbers, and an embedding whose rows are all the same.

    Rows that are all the same have Euclidean distances, if only zeros.

    Raises
    ------
    SchemaError
        NaN or inf in any row (count and the first five), all rows have one direction, or values
        whose squares no float64 holds.
    """
    if seen.n_bad:
        what = "NaN" if not seen.n_inf else "inf" if seen.n_inf == seen.n_bad else "NaN or inf"
        raise SchemaError(
            f"the embedding has {what} in {name_rows(seen.first_bad, total=seen.n_bad)} "
            f"({seen.n_bad} of {seen.n_rows}); leave these rows out or embed them again"
        )
    if distance == "euclidean":
        if not seen.largest < _LARGEST:
            raise SchemaError(
                "the embedding has rows longer than 1e150: their Euclidean distances cannot be "
                "computed; divide it by a constant"
            )
        return
    if seen.spread < _COLLAPSED and seen.n_zero in (0, seen.n_rows):
        raise SchemaError(
            f"all {seen.n_rows} rows of the embedding are identical up to their length: a "
            "collapsed embedding has no neighbours to score"
        )


def warn_zero_rows(seen: Profile) -> None:
    """Tell of rows without a direction.

    Warns
    -----
    InputWarning
        Zero rows: how many, and the first five.
    """
    if seen.n_zero:
        warn(
            f"{seen.n_zero} of {seen.n_rows} embedding rows are zero "
            f"({name_rows(seen.first_zero, total=seen.n_zero)}): a zero row is at distance 1 "
            "from every other one",
            InputWarning,
        )
