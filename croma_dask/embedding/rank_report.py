"""Ranks and their statistics for people, and as plain tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from croma_dask.outward import cell, visible

__all__ = ["leaderboard", "rank_text", "ranks_as_plain", "with_ranks"]


def with_ranks(ranks: xr.Dataset, statistics: xr.DataTree) -> xr.DataTree:
    """Put ranks and their statistics into one tree, to be saved: the ranks are its node `ranks`."""
    nodes = {name: node.to_dataset() for name, node in statistics.children.items()}
    attrs = statistics.attrs | {"metric": "embedding_ranks_and_statistics"}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), "ranks": ranks, **nodes})


def leaderboard(tree: xr.DataTree) -> pd.DataFrame:
    """One row a method, the best first.

    Parameters
    ----------
    tree
        What :func:`with_ranks` returned.

    Returns
    -------
    pandas.DataFrame
        Columns `position`, `method`, `mean_rank`, `interval_low`, `interval_high`, `p_best`,
        `n_datasets`; a column ``<family>_rank`` a family, the mean of its ranks over data sets; and
        ``p_adjusted_vs_<baseline>`` a baseline. Empty cells are NaN.
    """
    ranks, drawn = tree["ranks"].to_dataset(), tree["bootstrap"].to_dataset()
    columns: dict[str, Any] = {
        "position": ranks["position"], "method": ranks["method"], "mean_rank": ranks["mean_rank"],
        "interval_low": drawn["interval_low"], "interval_high": drawn["interval_high"],
        "p_best": drawn["p_best"], "n_datasets": ranks["n_datasets"],
        **{
            f"{family}_rank": ranks["family_rank"].sel(family=family).mean("dataset")
            for family in ranks["family"].values.tolist()
        },
    }  # fmt: skip
    if "wilcoxon" in tree.children:
        adjusted = tree["wilcoxon"].to_dataset()["p_adjusted"]
        for baseline in adjusted["baseline"].values.tolist():
            columns[f"p_adjusted_vs_{baseline}"] = adjusted.sel(baseline=baseline)
    frame = pd.DataFrame({name: np.asarray(column.values) for name, column in columns.items()})
    return frame.sort_values(["position", "method"], ignore_index=True)


def ranks_as_plain(tree: xr.DataTree) -> dict[str, Any]:
    """Nested plain values of everything in a tree; NaN becomes None, as JSON has none."""
    nodes = {name: _plain(node.to_dataset().to_dict()) for name, node in tree.children.items()}
    return {"attrs": _plain(dict(tree.attrs)), **nodes}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rank_text(tree: xr.DataTree) -> str:
    """Lay a tree of :func:`with_ranks` out for people."""
    ranks = tree["ranks"].to_dataset()
    frame = leaderboard(tree)
    families = ranks["family"].values.tolist()
    letters = [chr(ord("A") + at) if at < 26 else str(at + 1) for at in range(len(families))]
    rows = [["", "method", "mean rank", "95 % interval", "P(best)", "data sets", *letters]]
    for _, row in frame.iterrows():
        low, high = row["interval_low"], row["interval_high"]
        rows.append(
            [
                "-" if math.isnan(row["position"]) else f"{row['position']:g}",
                row["method"],
                _number(row["mean_rank"], 3),
                "-" if math.isnan(low) else f"{low:.3f} to {high:.3f}",
                _number(row["p_best"], 3),
                str(row["n_datasets"]),
                *(_number(row[f"{family}_rank"], 2) for family in families),
            ]
        )
    lines = [*_aligned(rows, left={1}), "", "Mean family ranks:"]
    for letter, family, weight in zip(letters, families, ranks["weight"].values, strict=True):
        lines.append(f"  {letter} {visible(family)} (weight {weight:g})")
    if "order_changed" in ranks.attrs:
        changed = "changes" if ranks.attrs["order_changed"] else "does not change"
        lines.append(f"Rounding to {ranks.attrs['decimals']} decimals {changed} the order.")
    lines += ["", *_friedman(tree), *_left_out(tree)]
    if "wilcoxon" in tree.children:
        lines += _wilcoxon(tree["wilcoxon"].to_dataset(), frame["method"].tolist())
    return "\n".join(lines)


def _friedman(tree: xr.DataTree) -> list[str]:
    test = tree["friedman"].to_dataset()
    if test["reason"].item():
        return [f"Friedman: no p-value: {visible(test['reason'].item())}"]
    return [
        f"Friedman: chi-squared({int(test['dof'])}) = {float(test['statistic']):.4g}, "
        f"p = {float(test['p_value']):.3g}, {int(test['n_blocks'])} data sets, "
        f"Kendall's W = {float(test['kendall_w']):.3f}"
    ]


def _left_out(tree: xr.DataTree) -> list[str]:
    found = tree["leave_one_out"].to_dataset()
    if found["reason"].item():
        return [f"Leaving one data set out: {visible(found['reason'].item())}"]
    n = int((~np.isnan(found["position_without"].values)).any(axis=1).sum())
    most = float(found["max_position_shift"].max())
    said = f"the largest change of a position is {_number(most, 1, 'f')}"
    agreement = ", ".join(
        f"{title} at least {_number(float(found[f'{name}_min']), 3)} (mean "
        f"{_number(float(found[f'{name}_mean']), 3)})"
        for title, name in (("Spearman", "spearman"), ("Kendall", "kendall"))
    )
    first, three = int(found["top1_changes"]), int(found["top3_changes"])
    return [
        f"Leaving one data set out: {agreement};",
        f"  first place changes in {first} of {n}, the first three in {three}; {said}",
    ]


def _wilcoxon(test: xr.Dataset, order: Sequence[str]) -> list[str]:
    lines = []
    for baseline in test["baseline"].values.tolist():
        of = test.sel({"baseline": baseline})
        rows = [["", "method", "data sets", "median difference", "p", "p (Holm)", ""]]
        for method in order:
            if method == baseline:
                continue
            # Not as a keyword: sel's own `method` is the kind of look-up.
            one = of.sel({"method": method})
            rows.append(
                [
                    "",
                    method,
                    str(int(one["n_pairs"])),
                    _number(float(one["median_difference"]), 3),
                    _number(float(one["p_value"]), 3, "g"),
                    _number(float(one["p_adjusted"]), 3, "g"),
                    str(one["reason"].item()),
                ]
            )
        lines += ["", f"Against {visible(baseline)} (Wilcoxon, below 0 the method ranks better):"]
        lines += _aligned(rows, left={1, 6})
    return lines


def _number(value: float, digits: int, kind: str = "f") -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}{kind}}"


def _aligned(rows: Sequence[Sequence[str]], left: set[int]) -> list[str]:
    shown = [[cell(text) for text in row] for row in rows]
    widths = [max(len(row[at]) for row in shown) for at in range(len(shown[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in shown
    ]
