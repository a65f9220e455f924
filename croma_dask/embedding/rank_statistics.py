"""Statistics of ranks over data sets: how sure an order of methods is."""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from croma_dask.embedding.rank_hypotheses import friedman, signed_rank
from croma_dask.embedding.rank_resampling import INTERVAL, bootstrap, leave_one_out
from croma_dask.embedding.rank_schema import (
    BOOTSTRAP,
    FRIEDMAN,
    LEAVE_ONE_OUT,
    WILCOXON,
    labelled,
)
from croma_dask.embedding.ranks import rank_embeddings
from croma_dask.errors import SchemaError, name_items

__all__ = ["rank_statistics"]


def rank_statistics(
    ranks: Any, *, n_draws: int = 10_000, seed: int = 0, baselines: Sequence[str] = ()
) -> xr.DataTree:
    """Tell how sure an order of methods is, from their aggregate ranks in each data set.

    `bootstrap`: data sets are drawn with replacement, the same for all methods, and mean ranks are
    taken again. `friedman`: whether methods differ at all; blocks are the data sets that rank
    every method. `wilcoxon`: each method against each baseline, paired by data set, with Holm's
    correction over the methods. `leave_one_out`: the order without each data set. Tests are
    scipy's. With fewer than 6 data sets in common, or fewer than 3 methods, there is a reason
    instead of a p-value.

    Parameters
    ----------
    ranks
        What :func:`croma_dask.embedding.ranks.rank_embeddings` returned, or what it takes: that is
        ranked with its defaults first.
    n_draws, seed
        Of the bootstrap; the seed is recorded in the result.
    baselines
        Names of methods; without any there is no node `wilcoxon`.

    Returns
    -------
    xarray.DataTree
        A node each, with the variables that :mod:`croma_dask.embedding.rank_schema` declares.
        A method that some data sets lack has the mean over those that it is in, and their number.

    Raises
    ------
    SchemaError
        A baseline is not among the methods or named twice, `n_draws` is below 1 or the seed
        below 0, or there is nothing to rank.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from croma_dask.embedding.rank_statistics import rank_statistics
    >>> value = np.random.default_rng(0).random(24) + np.tile([0.0, 0.4, 0.5], 8)
    >>> table = pd.DataFrame({"sample_id": np.repeat(list("ABCDEFGH"), 3),
    ...                       "method": ["PCA", "scVI", "UCE"] * 8, "ASW": value})
    >>> found = rank_statistics(table, baselines=["PCA"])
    >>> found["bootstrap"].mean_rank.to_series().to_dict()
    {'PCA': 2.625, 'UCE': 1.875, 'scVI': 1.5}
    >>> round(float(found["friedman"].p_value), 3)
    0.072
    """
    if not isinstance(ranks, xr.Dataset) or "aggregate_rank" not in ranks:
        ranks = rank_embeddings(ranks)
    aggregate = ranks["aggregate_rank"].transpose("dataset", "method").values
    datasets = ranks["dataset"].values.tolist()
    methods = ranks["method"].values.tolist()
    draws, start = _whole(n_draws, "n_draws", 1), _whole(seed, "seed", 0)
    chosen = _baselines(baselines, methods)
    every = {"dataset": datasets, "method": methods}
    of_methods = {
        "method": methods,
        "final_position": np.arange(1, len(methods) + 1),
    }
    # Files hold 64 bits.
    kept_seed = start if start < 2**63 else str(start)
    nodes = {
        "bootstrap": labelled(
            BOOTSTRAP, bootstrap(aggregate, n_draws=draws, seed=start), of_methods,
            {"n_draws": draws, "seed": kept_seed, "interval": INTERVAL, "generator": "PCG64"},
        ),
        "friedman": labelled(
            FRIEDMAN, friedman(aggregate), {"dataset": datasets},
            {"test": "scipy.stats.friedmanchisquare"},
        ),
        "leave_one_out": labelled(LEAVE_ONE_OUT, leave_one_out(aggregate), every, {}),
    }  # fmt: skip
    if chosen:
        names = [methods[at] for at in chosen]
        nodes["wilcoxon"] = labelled(
            WILCOXON, signed_rank(aggregate, chosen), {"baseline": names, "method": methods},
            {"test": "scipy.stats.wilcoxon", "correction": "holm"},
        )  # fmt: skip
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=_about()), **nodes})


def _about() -> dict[str, str]:
    import scipy  # type: ignore[import-untyped]

    from croma_dask import __version__

    return {
        "metric": "embedding_rank_statistics",
        "scipy_version": scipy.__version__,
        "numpy_version": np.__version__,
        "croma_dask_version": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _baselines(baselines: Sequence[str], methods: list[str]) -> list[int]:
    named = [baselines] if isinstance(baselines, str) else list(baselines)
    unknown = [name for name in named if name not in methods]
    if unknown:
        raise SchemaError(
            f"baselines: no method {name_items(unknown)}; the methods are "
            f"{name_items(methods, limit=30)}"
        )
    if len(set(named)) < len(named):
        raise SchemaError(f"baselines: a method is named twice in {name_items(named)}")
    return [methods.index(name) for name in named]


def _whole(value: Any, name: str, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError as err:
        raise SchemaError(f"{name} must be a whole number, found {value!r}") from err
    if number < least or isinstance(value, bool):
        raise SchemaError(f"{name} must be at least {least}, found {value!r}")
    return number
