"""Ranks of methods: by metric, by family, and over families and data sets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.embedding.outcome import METRIC_NAMES
from croma_dask.embedding.rank_arrays import all_ranks
from croma_dask.embedding.rank_families import Families, check_families
from croma_dask.embedding.rank_schema import RANKS, labelled
from croma_dask.embedding.rank_tables import ScoreTable, read_scores
from croma_dask.errors import InputWarning, SchemaError, SupportWarning, name_items, warn

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["rank_embeddings"]

_MAX_DECIMALS = 15


def rank_embeddings(
    table: Any, *, families: Mapping[str, Sequence[str]] | None = None,
    weights: Mapping[str, float] | None = None, decimals: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> xr.Dataset:  # fmt: skip
    """Rank methods by their metrics on one or several data sets.

    In each data set and by each metric, methods are ranked by value, the highest first; ties share
    the average rank, and a method without a value has no rank and is not counted. A family's rank
    is the mean of a method's ranks by the family's metrics, of those that it has. The aggregate
    rank is the mean of the family ranks weighted by `weights`, renormalised over the families that
    the method has in that data set. The mean rank is its mean over data sets; lower is better.

    All methods are ranked together: one more or one less changes the ranks of the others.

    Parameters
    ----------
    table
        A benchmark's Dataset, a data frame, paths of tables, or a sequence of these; see
        :func:`croma_dask.embedding.rank_tables.read_scores`.
    families
        Family -> names of its metrics; default :data:`croma_dask.embedding.rank_families.FAMILIES`,
        in which iLISI has no place.
    weights
        Family -> weight; of any sum. A family that is not named keeps its default weight.
    decimals
        Round values to so many decimals before they are ranked. Values that differ by less than
        what anybody would call a difference then tie; the attribute `order_changed` says whether
        that changes the final order.
    storage_options
        Options of the fsspec file system of tables at URLs.

    Returns
    -------
    xarray.Dataset
        Variables as declared in :data:`croma_dask.embedding.rank_schema.RANKS`, with the dims
        dataset, method, metric and family.

    Raises
    ------
    SchemaError
        A table, the families, the weights or `decimals` are not what they have to be.

    Warns
    -----
    InputWarning
        Columns, metrics or rows are ignored; a metric of `families` is nowhere.
    SupportWarning
        A data set has one method only, which is first whatever its values are.

    Examples
    --------
    >>> import pandas as pd
    >>> from croma_dask.embedding.ranks import rank_embeddings
    >>> table = pd.DataFrame({"sample_id": ["lung"] * 3, "method": ["PCA", "scVI", "UCE"],
    ...                       "ARI": [0.4, 0.6, 0.6], "ASW": [0.1, 0.2, None]})
    >>> ranks = rank_embeddings(table)
    >>> ranks.mean_rank.round(3).to_series().to_dict()
    {'PCA': 2.765, 'UCE': 1.5, 'scVI': 1.382}
    """
    how = check_families(families, weights)
    how_fine = _checked_decimals(decimals)
    scores = read_scores(table, how.metrics, storage_options)
    _warn_thin(scores, how)
    found = all_ranks(scores.value, how)
    attrs: dict[str, str | int | float] = {}
    if how_fine is not None:
        unrounded = found["position"]
        found = all_ranks(np.round(scores.value, how_fine), how)
        shift = np.nan_to_num(np.abs(found["position"] - unrounded))
        attrs = {
            "decimals": how_fine,
            "order_changed": int(shift.any()),
            "largest_position_change": float(shift.max()),
        }
    return _label(found, scores, how, attrs)


def _checked_decimals(decimals: Any) -> int | None:
    if decimals is None:
        return None
    whole = isinstance(decimals, int | np.integer) and not isinstance(decimals, bool)
    if not whole or not 0 <= decimals <= _MAX_DECIMALS:
        raise SchemaError(
            f"decimals must be a whole number from 0 to {_MAX_DECIMALS}, found {decimals!r}"
        )
    return int(decimals)


def _warn_thin(scores: ScoreTable, how: Families) -> None:
    there = ~np.isnan(scores.value)
    nowhere = [
        metric
        for at, metric in enumerate(how.metrics)
        # Files lose what is NaN throughout; a name that no benchmark has may be a slip.
        if not there[:, :, at].any() and metric not in METRIC_NAMES
    ]
    if nowhere:
        warn(f"metrics of the families that have no value: {name_items(nowhere)}", InputWarning)
    single = np.flatnonzero(there.any(axis=2).sum(axis=1) == 1)
    if single.size:
        warn(
            f"data sets with one method only, whose rank is 1 whatever its values are: "
            f"{name_items([scores.datasets[at] for at in single])}",
            SupportWarning,
        )


def _label(
    found: dict[str, Any], scores: ScoreTable, how: Families, attrs: dict[str, str | int | float]
) -> xr.Dataset:
    from croma_dask import __version__

    coords = {
        "dataset": scores.datasets,
        "method": scores.methods,
        "metric": how.metrics,
        "metric_family": how.family_of,
        "family": how.names,
        "weight": how.weights,
    }
    about = {
        "metric": "embedding_ranks",
        **attrs,
        "croma_dask_version": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return labelled(RANKS, found, coords, about)
