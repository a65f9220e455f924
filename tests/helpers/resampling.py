"""The bootstrap without a shortcut: rows of the drawn groups are really put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr


def drawn_rows(group: np.ndarray, scored: np.ndarray, n_draws: int, seed: int) -> list[np.ndarray]:
    """Positions of the rows of each draw, a row as often as its group was drawn."""
    names = sorted(set(group[scored]))
    rows = [np.flatnonzero((group == name) & scored) for name in names]
    draws = np.random.default_rng(seed).integers(len(names), size=(n_draws, len(names)))
    return [np.concatenate([rows[g] for g in drawn]) for drawn in draws]


def pooled(so: np.ndarray, os: np.ndarray, draws: list[np.ndarray]) -> np.ndarray:
    out = []
    for rows in draws:
        total = so[rows].sum() + os[rows].sum()
        out.append(so[rows].sum() / total if total > 0 else np.nan)
    return np.array(out)


def pooled_mari(node: xr.Dataset, draws: list[np.ndarray]) -> np.ndarray:
    """MaRI of rows that are put together, on the scale of the nearest of them."""
    so, os = node["so_evidence"].values, node["os_evidence"].values
    distance = np.where(so + os > 0, node["evidence_distance"].values, np.inf)
    out = []
    for rows in draws:
        rows = rows[np.isfinite(distance[rows])]
        if not rows.size:
            out.append(np.nan)
            continue
        weight = np.exp(-(distance[rows] - distance[rows].min()) / node["tau"].item())
        top = (so[rows] * weight).sum()
        out.append(top / (top + (os[rows] * weight).sum()))
    return np.array(out)


def margins(
    values: np.ndarray, subset: np.ndarray, alpha: float, draws: list[np.ndarray]
) -> dict[str, np.ndarray]:
    found: dict[str, list[float]] = {"value": [], "ltm_alpha": [], "f0": []}
    for rows in draws:
        rows = rows[~np.isnan(values[rows])]
        if not rows.size:
            for column in found.values():
                column.append(np.nan)
            continue
        mine = values[rows]
        medians = [np.median(mine[subset[rows] == s]) for s in sorted(set(subset[rows]))]
        found["value"].append(float(np.median(medians)))
        found["ltm_alpha"].append(float(mine[mine <= np.quantile(mine, alpha)].mean()))
        found["f0"].append(float(np.mean(mine <= 0)))
    return {name: np.array(column) for name, column in found.items()}


def statistics(node: xr.Dataset, n_draws: int, seed: int) -> dict[str, np.ndarray]:
    """Statistics of every draw, of one model and one radius."""
    group = node["group_id"].values.astype(str)
    draws = drawn_rows(group, node["undefined_type"].values >= 0, n_draws, seed)
    if "evidence_distance" in node:
        return {"value": pooled_mari(node, draws)}
    if "so_evidence" in node:
        return {"value": pooled(node["so_evidence"].values, node["os_evidence"].values, draws)}
    subset = node["sample_subset"].values.astype(str)
    return margins(node["sample_values"].values, subset, node.attrs["alpha"], draws)


def ranks(values: list[float], *, higher: bool) -> list[float]:
    """1 + how many are better + half of the others that are equal; NaN for NaN."""
    sign = 1.0 if higher else -1.0
    out = []
    for v in values:
        better = sum(sign * w > sign * v for w in values)
        equal = sum(w == v for w in values) - 1
        out.append(float("nan") if v != v else 1.0 + better + 0.5 * equal)
    return out


def interval(draws: Any, level: float, method: str = "linear") -> tuple[float, float]:
    known = np.asarray(draws)[~np.isnan(draws)]
    if not known.size:
        return float("nan"), float("nan")
    low, high = np.percentile(known, [50 * (1 - level), 50 * (1 + level)], method=method)
    return float(low), float(high)
