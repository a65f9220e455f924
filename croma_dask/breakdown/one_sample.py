"""Why one sample has the value that it has: its neighbours, by id, type and distance."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.breakdown.explanation import label_explanation
from croma_dask.breakdown.kept_row import check_kept, kept_row
from croma_dask.breakdown.lookup import Place, find_sample
from croma_dask.breakdown.row_lists import RowList, Wanted, search_row
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.design import Scope
from croma_dask.cohort.location import Location
from croma_dask.cohort.manifest import ColumnNames
from croma_dask.cohort.open import cohort_of
from croma_dask.errors import SchemaError, StoreError
from croma_dask.first_pass import open_source
from croma_dask.index.kept import open_neighbors, standing
from croma_dask.index.kept_lists import Kept
from croma_dask.index.source import RowSource, TakenRows
from croma_dask.options import current
from croma_dask.robustness.arguments import check_k, check_m
from croma_dask.robustness.request import Inputs, prepare
from croma_dask.robustness.reuse import fingerprint_of, key_of, typed_key_of
from croma_dask.robustness.tau import check_tau

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["explain"]

_K, _M = 51, 5
"""How far to look where neither the caller nor kept neighbours say."""


def explain(
    cohort: Any,
    sample_id: str,
    *,
    neighbors: str | os.PathLike[str] | None = None,
    confounder: str | None = None,
    subset: str | None = None,
    k: int | None = None,
    m: int | None = None,
    tau: float | None = None,
    manifest: Any = None,
    design: str | None = None,
    skip_incomplete: bool = False,
    label: str | None = None,
    group: str | None = None,
    id_column: str = "sample_id",
    subset_column: str = "subset",
    storage_options: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """List the neighbours of one sample, and what they make of it.

    Parameters
    ----------
    cohort, manifest
        As in :func:`croma_dask.score`: the place of a store, an opened cohort, or an array with
        its manifest.
    sample_id
        The sample.
    neighbors
        Place that ``score(..., keep_neighbors=)`` has filled, where its lists are read. Without
        it, or where its lists do not reach far enough, the embedding is read once.
    confounder
        Column of the confounder. By default the one that `neighbors` were kept for.
    subset
        Under ``paired_2x2``: which occurrence, where the sample is in several subsets.
    k
        Neighbours of any type to list, and what RI and MaRI look at: ``int(result["RI"].k)`` for
        the values of a result. By default as many as are kept, or 51.
    m
        SO and OS neighbours to list, each, and m of the margin. By default as many as are
        kept, or 5.
    tau
        Bandwidth of MaRI: ``float(result["MaRI"].tau)``. Without it there is no `mari`.
    design, skip_incomplete, label, group
        As in :func:`croma_dask.score`; by default as `neighbors` were kept, else ``all``
        (``paired_2x2`` with a `subset`), ``label``, ``group_id``.
    id_column, subset_column
        Columns of the ids and of the subsets.
    storage_options
        Options of the fsspec file system of `cohort` and of `neighbors`, where they are URLs.

    Returns
    -------
    xarray.Dataset
        Dim `neighbor`, by (distance, row): the k nearest candidates of another group, and of those
        behind them the SO and OS ones that are among the m nearest of their type. `neighbor_id`,
        `label`, `confounder`, `group_id`, `kind`, `distance`, `neighbor_rank`, `typed_rank`,
        `manifest_row`; and of the sample `d_so`, `d_os`, `margin`, `ri`, `mari`, `n_candidates`,
        `n_so`, `n_os`. ``attrs`` say who the sample is, and whether the lists were kept or
        searched. See :data:`croma_dask.schema_breakdown.EXPLANATION`.

    Raises
    ------
    SchemaError
        There is no such sample (and which ids are like it), or it is in several subsets and none
        is named, or the input is not what :func:`croma_dask.score` takes.
    StoreError
        `neighbors` holds none, or those of another embedding, other groups, design or release; or
        what is kept is not what the embedding gives.

    Notes
    -----
    Memory: the codes of the manifest. Where the embedding is read: a chunk of it, and 40 bytes a
    row. Distances have the same bits as those that scores are made of, and so has `margin`.

    Examples
    --------
    >>> import numpy as np
    >>> import croma_dask as cd
    >>> x = np.array([[1, 0], [0.9, 0.1], [0.8, 0.4], [0.1, 1]])
    >>> manifest = {
    ...     "sample_id": ["a", "b", "c", "d"], "group_id": ["1", "2", "3", "4"],
    ...     "label": ["x", "x", "y", "y"], "center": ["A", "B", "A", "B"],
    ... }
    >>> told = cd.explain(x, "a", manifest=manifest, confounder="center", m=1)
    >>> told.neighbor_id.values.tolist(), told.kind.values.tolist()
    (['b', 'c', 'd'], ['SO', 'OS', 'OO'])
    >>> round(float(told.margin), 3)
    0.89
    """
    kept = None if neighbors is None else _open(Location.of(neighbors, storage_options))
    about = {} if kept is None else kept.attrs
    confounder = confounder or about.get("confounder_column") or None
    if confounder is None:
        raise SchemaError(
            "confounder= (--confounder) has to be named"
            + (": only neighbours of all types are kept, for any confounder" if kept else "")
        )
    names = ColumnNames(
        confounder, label or about.get("label_column") or "label",
        group or about.get("group_column") or "group_id", id_column, subset_column,
    )  # fmt: skip
    design = design or about.get("evaluation_design") or ("paired_2x2" if subset else "all")
    inputs = prepare(
        cohort_of(cohort, storage_options), manifest, names, design,
        skip_incomplete=skip_incomplete, check_ids=False,
    )  # fmt: skip
    if kept is not None:
        inputs = _matched(inputs, kept)
    place = find_sample(inputs, sample_id, subset)
    if k is None:
        k = (kept.n_global if kept is not None else 0) or _K
    if m is None:
        m = (kept.n_typed if kept is not None else 0) or _M
    wanted = Wanted.of(place.scope, place.position, check_k(k, "k")[0], check_m(m)[0][0])
    found, sources = _neighbors(inputs, place, wanted, kept)
    return label_explanation(inputs, place, wanted, found, check_tau(tau), ", ".join(sources))


def _open(place: Location) -> Kept:
    """Open kept neighbours; what is no such folder is refused as :func:`open_neighbors` does."""
    open_neighbors(place).close()
    return Kept(place, standing(place)[1])


def _matched(inputs: Inputs, kept: Kept) -> Inputs:
    """Make sure that kept neighbours are those of this cohort, whose fingerprint is then known."""
    digest = inputs.embedding.fingerprint or fingerprint_of(inputs.embedding)
    index = (kept.key.index, kept.key.index_parameters)
    other = key_of(inputs, digest, index).differences(kept.key)
    if other:
        raise StoreError(
            f"the neighbours in {kept.shown} are {' and '.join(other)}: they say nothing of this "
            "cohort; name those of this one, score it with keep_neighbors= (--keep-neighbors), or "
            "leave neighbors= out"
        )
    return replace(inputs, embedding=replace(inputs.embedding, fingerprint=digest))


def _neighbors(
    inputs: Inputs, place: Place, wanted: Wanted, kept: Kept | None
) -> tuple[RowList, list[str]]:
    """List of the sample as far as it is needed, and where it came from."""
    if kept is None:
        return _searched(inputs, wanted), ["searched"]
    stored = kept_row(kept, place.start, wanted)
    reached = wanted.reached(stored)
    found = stored if reached else _searched(inputs, wanted)
    typed = bool(kept.n_typed) and kept.typed_key == typed_key_of(inputs)
    check_kept(kept, place.start, wanted, found, stored, typed=typed)
    return found, ["kept"] if reached else ["kept", "searched"]


def _searched(inputs: Inputs, wanted: Wanted) -> RowList:
    with contextlib.ExitStack() as keep:
        source = open_source(inputs.embedding, current(), keep, streamed=False, workers=False)
        return search_row(_rows_of(source, inputs.embedding, wanted.scope), wanted)


def _rows_of(source: RowSource, embedding: Embedding, scope: Scope) -> RowSource:
    """Rows of a scope, in its order."""
    tiles = embedding.tile_of_row
    if scope.rows is not None:
        tiles = scope.rows if tiles is None else tiles[scope.rows]
    return source if tiles is None else TakenRows(source, np.asarray(tiles, np.int64))
