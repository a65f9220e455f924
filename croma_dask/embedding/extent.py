"""The first look of the silhouettes at all rows: are they numbers, and how far apart are they."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from croma_dask.embedding.spans import blocks, over_spans
from croma_dask.errors import SchemaError, name_rows
from croma_dask.fingerprint import block_digest, combine
from croma_dask.index.source import RowSource
from croma_dask.kernels.pairwise import farthest
from croma_dask.kernels.screen_euclidean import native
from croma_dask.kernels.typing import F64, I64
from croma_dask.options import Options

__all__ = ["Extent", "find_bad", "measure", "refuse_bad"]

LARGEST = 1e150
"""Largest number whose square, and a sum of such squares, is one."""

_FIRST = 5


@dataclass
class Extent:
    """What the rows of a source, or a part of them, span.

    Attributes
    ----------
    reach
        Largest distance of a row from the first row.
    n_bad, first_bad
        Rows that are no numbers, or too large ones; the first few.
    digests
        One a block of the fixed grid, where they were asked for.
    """

    reach: float = 0.0
    n_bad: int = 0
    first_bad: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class _Look:
    source: RowSource
    origin: F64
    digest: bool


def find_bad(raw: np.ndarray[Any, Any]) -> I64:
    """Find rows that hold NaN, inf, or values whose squares are too large for a float64."""
    if raw.dtype.kind != "f":
        return np.zeros(0, np.int64)
    fine = np.isfinite(raw)
    if raw.dtype.itemsize > 4:
        fine &= np.abs(raw) <= LARGEST
    return np.flatnonzero(~fine.all(axis=1))


def refuse_bad(first: Iterable[int], n_bad: int, n_rows: int) -> None:
    """Refuse rows that :func:`find_bad` has found.

    Raises
    ------
    SchemaError
        There are any: how many, and the first five.
    """
    if n_bad:
        raise SchemaError(
            f"the embedding has NaN, inf or values beyond {LARGEST:g} in "
            f"{name_rows(first, total=n_bad)} ({n_bad} of {n_rows}); leave these rows out or embed "
            "them again"
        )


def measure(
    source: RowSource, *, digest: bool, options: Options, client: Any = None,
    n_tasks: int | None = None,
) -> tuple[float, str]:  # fmt: skip
    """Look at all rows once.

    Parameters
    ----------
    source
        Rows; by reference, where there is a client.
    digest
        Whether to fingerprint them.
    options, client, n_tasks
        As of :func:`croma_dask.embedding.spans.over_spans`.

    Returns
    -------
    bound, fingerprint
        No two rows are farther apart than the bound, and some are half as far or farther; the
        fingerprint is empty where none was asked for.

    Raises
    ------
    SchemaError
        As :func:`refuse_bad`.
    """
    n = source.n_rows
    origin = source.read(0, 1).astype(np.float64).reshape(-1)
    # If the first row is no number, nothing can be measured from it; it is refused below.
    origin[~np.isfinite(origin)] = 0.0
    look = _Look(source, origin, digest)
    parts = list(
        over_spans(
            _look, look, n, name="look over", options=options, client=client, n_tasks=n_tasks
        )
    )
    refuse_bad(_first(parts), sum(part.n_bad for part in parts), n)
    name = ""
    if digest:
        shape = (n, source.n_features)
        name = combine((d for part in parts for d in part.digests), shape, source.dtype)
    return 2.0 * max(part.reach for part in parts), name


def _first(parts: Sequence[Extent]) -> list[int]:
    return [row for part in parts for row in part.first_bad][:_FIRST]


def _look(look: _Look, lo: int, hi: int) -> Extent:
    seen = Extent()
    for a, b in blocks(lo, hi):
        raw = look.source.read(a, b)
        if look.digest:
            seen.digests.append(block_digest(raw))
        bad = find_bad(raw)
        if bad.size:
            seen.n_bad += int(bad.size)
            seen.first_bad += [a + int(row) for row in bad[: _FIRST - len(seen.first_bad)]]
        else:
            seen.reach = max(seen.reach, farthest(native(raw), look.origin))
    return seen
