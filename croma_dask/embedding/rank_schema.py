"""Every name that ranks and their statistics carry, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.schema import Variable, check_declared

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "BOOTSTRAP",
    "FRIEDMAN",
    "LEAVE_ONE_OUT",
    "RANKS",
    "RANK_COORDINATES",
    "WILCOXON",
    "labelled",
]

_NO_RANK = "1 is the best; ties share the average; NaN where there is nothing to rank."
_REASON = "Empty where the numbers are there."

RANK_COORDINATES: dict[str, Variable] = {
    "dataset": Variable(("dataset",), "O", "data set that was embedded"),
    "method": Variable(("method",), "O", "method that made the embedding"),
    "metric": Variable(("metric",), "O", "metric of an embedding"),
    "family": Variable(("family",), "O", "family of metrics"),
    "metric_family": Variable(("metric",), "O", "family that a metric belongs to"),
    "weight": Variable(
        ("family",), "f", "weight of a family", "As given, before it is renormalised.", 0.0
    ),
    "baseline": Variable(("baseline",), "O", "method that the others are compared with"),
    "final_position": Variable(
        ("final_position",), "i", "position among the methods", "1 is the best.", 1
    ),
}  # fmt: skip
"""Coordinates."""

RANKS: dict[str, Variable] = {
    "metric_rank": Variable(
        ("dataset", "method", "metric"), "f", "rank of a method by one metric",
        f"Within the data set; {_NO_RANK}", 1.0,
    ),
    "n_ranked": Variable(
        ("dataset", "metric"), "i", "methods that a metric ranks",
        "Those that have a value; ranks over few say less.", 0,
    ),
    "family_rank": Variable(
        ("dataset", "method", "family"), "f", "rank of a method by one family",
        "Mean of its ranks by the family's metrics, of those that it has; NaN where it has none.",
        1.0,
    ),
    "n_metrics": Variable(
        ("dataset", "method", "family"), "i", "metrics that a family rank is the mean of", "", 0
    ),
    "family_weight": Variable(
        ("dataset", "method", "family"), "f", "share of a family in the aggregate rank",
        "Weights renormalised over the families that the method has in the data set.", 0.0, 1.0,
    ),
    "aggregate_rank": Variable(
        ("dataset", "method"), "f", "rank of a method in one data set",
        "Mean of its family ranks, weighted by family_weight; lower is better.", 1.0,
    ),
    "mean_rank": Variable(
        ("method",), "f", "rank of a method over all data sets",
        "Mean of aggregate_rank over the data sets in which the method has one; lower is better.",
        1.0,
    ),
    "n_datasets": Variable(
        ("method",), "i", "data sets in which a method has an aggregate rank", "", 0
    ),
    "position": Variable(
        ("method",), "f", "position of a method", f"Order of mean_rank; {_NO_RANK}", 1.0
    ),
}  # fmt: skip
"""What :func:`croma_dask.embedding.ranks.rank_embeddings` returns."""

BOOTSTRAP: dict[str, Variable] = {
    "mean_rank": RANKS["mean_rank"],
    "interval_low": Variable(
        ("method",), "f", "lower end of the 95 % interval of the mean rank",
        "2.5 % percentile over the draws.", 1.0,
    ),
    "interval_high": Variable(
        ("method",), "f", "upper end of the 95 % interval of the mean rank",
        "97.5 % percentile over the draws.", 1.0,
    ),
    "p_best": Variable(
        ("method",), "f", "share of draws in which a method is first",
        "A draw in which several are is shared among them.", 0.0, 1.0,
    ),
    "position_probability": Variable(
        ("method", "final_position"), "f", "share of draws in which a method ends at a position",
        "Methods that tie in a draw share their positions equally.", 0.0, 1.0,
    ),
    "n_datasets": RANKS["n_datasets"],
    "n_draws_ranked": Variable(
        ("method",), "i", "draws in which a method has a mean rank",
        "Fewer than all where a draw may hold only data sets that the method lacks.", 0,
    ),
    "reason": Variable((), "O", "why there is no interval", _REASON),
}  # fmt: skip
"""Node `bootstrap`."""

FRIEDMAN: dict[str, Variable] = {
    "statistic": Variable((), "f", "Friedman's chi-squared, corrected for ties", "", 0.0),
    "dof": Variable((), "i", "degrees of freedom", "Number of methods less 1.", 0),
    "p_value": Variable((), "f", "p-value of the Friedman test", "", 0.0, 1.0),
    "kendall_w": Variable(
        (), "f", "Kendall's W",
        "Agreement of the data sets: statistic / (n_blocks dof); 0 none, 1 the same order in all.",
        0.0, 1.0,
    ),
    "n_blocks": Variable((), "i", "data sets that the test uses", "", 0),
    "is_block": Variable(
        ("dataset",), "b", "whether the test uses a data set", "Those that rank every method."
    ),
    "reason": Variable((), "O", "why there is no p-value", _REASON),
}  # fmt: skip
"""Node `friedman`."""

WILCOXON: dict[str, Variable] = {
    "n_pairs": Variable(
        ("baseline", "method"), "i", "data sets that rank both the method and the baseline", "", 0
    ),
    "n_nonzero": Variable(
        ("baseline", "method"), "i", "pairs that differ", "The others are dropped.", 0
    ),
    "median_difference": Variable(
        ("baseline", "method"), "f", "median of method minus baseline",
        "Over all pairs of aggregate ranks; below 0 the method is better.",
    ),
    "statistic": Variable(
        ("baseline", "method"), "f", "Wilcoxon's signed-rank statistic",
        "The smaller of the two rank sums.", 0.0,
    ),
    "p_value": Variable(
        ("baseline", "method"), "f", "two-sided p-value of the signed-rank test", "", 0.0, 1.0
    ),
    "p_adjusted": Variable(
        ("baseline", "method"), "f", "p-value after Holm",
        "Over the comparisons with one baseline that have a p-value.", 0.0, 1.0,
    ),
    "exact": Variable(
        ("baseline", "method"), "b", "whether the p-value is exact",
        "Else by the normal approximation: differences tie, or there are more than 50.",
    ),
    "reason": Variable(("baseline", "method"), "O", "why there is no p-value", _REASON),
}  # fmt: skip
"""Node `wilcoxon`."""

LEAVE_ONE_OUT: dict[str, Variable] = {
    "spearman": Variable(
        ("dataset",), "f", "Spearman correlation with the full order",
        "Of the mean ranks without one data set; NaN where either order is all ties.", -1.0, 1.0,
    ),
    "kendall": Variable(
        ("dataset",), "f", "Kendall's tau-b with the full order",
        "Of the mean ranks without one data set; NaN where either order is all ties.", -1.0, 1.0,
    ),
    "position_without": Variable(
        ("dataset", "method"), "f", "position of a method without one data set", _NO_RANK, 1.0
    ),
    "max_position_shift": Variable(
        ("method",), "f", "largest change of a method's position", "Over the data sets left out.",
        0.0,
    ),
    "top1_changed": Variable(
        ("dataset",), "b", "whether the first method is another without one data set",
        "Several methods where they tie.",
    ),
    "top3_changed": Variable(
        ("dataset",), "b", "whether the first three methods are others without one data set",
        "As a set; more than three where they tie.",
    ),
    "spearman_min": Variable((), "f", "least of spearman", "", -1.0, 1.0),
    "spearman_mean": Variable((), "f", "mean of spearman", "", -1.0, 1.0),
    "kendall_min": Variable((), "f", "least of kendall", "", -1.0, 1.0),
    "kendall_mean": Variable((), "f", "mean of kendall", "", -1.0, 1.0),
    "top1_changes": Variable((), "i", "how often the first method is another", "", 0),
    "top3_changes": Variable((), "i", "how often the first three methods are others", "", 0),
    "reason": Variable((), "O", "why there is nothing to leave out", _REASON),
}  # fmt: skip
"""Node `leave_one_out`."""


def labelled(
    declared: Mapping[str, Variable], values: Mapping[str, Any], coords: Mapping[str, Any],
    attrs: Mapping[str, str | int | float],
) -> xr.Dataset:  # fmt: skip
    """Label numbers as declared.

    Parameters
    ----------
    declared
        One of the dicts of this module.
    values
        One array or number for each of its variables.
    coords
        Coordinates of :data:`RANK_COORDINATES`, those that the variables need.
    attrs
        What the result says of itself.

    Raises
    ------
    KeyError
        A declared variable is missing or an undeclared one is given: a defect of the caller.
    """
    import xarray as xr

    check_declared(declared, values)
    return xr.Dataset(
        {name: _variable(about, values[name]) for name, about in declared.items()},
        {name: _variable(RANK_COORDINATES[name], array) for name, array in coords.items()},
        dict(attrs),
    )


def _variable(about: Variable, value: Any) -> xr.Variable:
    import xarray as xr

    if about.kind == "O":
        array = np.array(value, dtype=object)
    else:
        array = np.asarray(value, {"f": np.float64, "i": np.int64, "b": np.bool_}[about.kind])
    return xr.Variable(about.dims, array, about.attrs())
