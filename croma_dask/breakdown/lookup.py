"""Where a sample is in a cohort, by its id; and the ids of rows."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.cohort.design import Scope
from croma_dask.cohort.manifest import Manifest
from croma_dask.errors import SchemaError, name_items, name_rows
from croma_dask.robustness.request import Inputs
from croma_dask.schema import text_array

__all__ = ["Place", "find_sample", "ids_at"]

_BLOCK = 1 << 18
"""Ids that are read at once."""

_ALIKE = 20_000
"""Ids that are compared with an unknown one, to name those that are like it."""


@dataclass(frozen=True)
class Place:
    """One unit of a cohort.

    Attributes
    ----------
    sample_id, row
        Its id, and its manifest row.
    scope, position, start
        Where it is searched, its position there, and where this scope begins when all follow one
        another.
    """

    sample_id: str
    row: int
    scope: Scope
    position: int
    start: int


def find_sample(inputs: Inputs, sample_id: Any, subset: str | None = None) -> Place:
    """Find a sample.

    Parameters
    ----------
    inputs
        The cohort.
    sample_id
        Id; blanks around it do not count.
    subset
        Which of its occurrences, under ``paired_2x2``.

    Raises
    ------
    SchemaError
        There is no such id (with ids that are like it), it is in several rows, not in that subset,
        or its subset was skipped.

    Notes
    -----
    Ids are read once, in blocks: nothing is indexed for one look-up.
    """
    wanted = str(sample_id).strip()
    manifest = inputs.manifest
    rows = [
        lo + int(at) for lo, ids in _blocks(manifest) for at in np.flatnonzero(ids == wanted)
    ]  # fmt: skip
    if not rows:
        raise _unknown(wanted, manifest)
    row = _occurrence(wanted, rows, subset, manifest)
    start = 0
    for scope in inputs.scopes:
        if scope.rows is None:
            return Place(wanted, row, scope, row, 0)
        position = int(np.searchsorted(scope.rows, row))
        if position < len(scope) and int(scope.rows[position]) == row:
            return Place(wanted, row, scope, position, start)
        start += len(scope)
    assert manifest.subset is not None
    name = manifest.subset.names[manifest.subset.codes[row]]
    raise SchemaError(
        f"sample {wanted!r} is in the subset {name!r}, which is no complete 2x2 and was skipped: "
        "it has no neighbours"
    )


def _occurrence(wanted: str, rows: Sequence[int], subset: str | None, manifest: Manifest) -> int:
    """Row that is meant."""
    if manifest.subset is None:
        if subset is not None:
            raise SchemaError(
                f"subset={subset!r} was named, but the design 'all' has none; leave it out, or "
                "pass design='paired_2x2' (--design paired_2x2)"
            )
        if len(rows) > 1:
            raise SchemaError(
                f"sample {wanted!r} is in {name_rows(rows)}: under the design 'all' a sample is "
                "one row (did you mean design='paired_2x2'?)"
            )
        return rows[0]
    names = [manifest.subset.names[manifest.subset.codes[row]] for row in rows]
    if subset is None:
        if len(rows) > 1:
            raise SchemaError(
                f"sample {wanted!r} occurs in {len(rows)} subsets ({name_items(names)}): name one "
                "as subset= (--subset)"
            )
        return rows[0]
    if str(subset).strip() not in names:
        raise SchemaError(
            f"sample {wanted!r} does not occur in the subset {subset!r}, but in {name_items(names)}"
        )
    return rows[names.index(str(subset).strip())]


def _blocks(manifest: Manifest) -> Iterator[tuple[int, NDArray[np.object_]]]:
    for lo in range(0, manifest.n_rows, _BLOCK):
        yield lo, manifest.sample_id(lo, min(manifest.n_rows, lo + _BLOCK))


def _unknown(wanted: str, manifest: Manifest) -> SchemaError:
    """Name ids like the one that is not there: those with the same beginning or end come first."""
    alike: list[str] = []
    rest: list[str] = []
    head, tail = wanted[:3], wanted[-3:]
    for _, ids in _blocks(manifest):
        for name in ids.tolist():
            near = name.startswith(head) or name.endswith(tail)
            if len(alike) < _ALIKE and near:
                alike.append(name)
            elif len(rest) < _ALIKE:
                rest.append(name)
    close = difflib.get_close_matches(wanted, dict.fromkeys([*alike, *rest][:_ALIKE]), n=3)
    hint = f"did you mean {name_items(close)}?" if close else (
        f"the first are {name_items(manifest.sample_id(0, min(manifest.n_rows, 3)).tolist())}"
    )  # fmt: skip
    return SchemaError(
        f"no sample {wanted!r} in this cohort of {manifest.n_rows:,} rows (column "
        f"{manifest.names.sample_id!r}); {hint}"
    )


def ids_at(manifest: Manifest, rows: NDArray[np.int64]) -> NDArray[np.object_]:
    """Ids of some rows, read in blocks of rows that lie together."""
    found: NDArray[np.object_] = text_array([""] * len(rows))
    order = np.argsort(rows, kind="stable")
    edges = np.flatnonzero(np.diff(rows[order] // _BLOCK)) + 1
    for some in np.split(order, edges):
        if some.size:
            lo, hi = int(rows[some[0]]), int(rows[some[-1]]) + 1
            found[some] = manifest.sample_id(lo, hi)[rows[some] - lo]
    return found
