"""Results that rest on one group: what they would be without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.breakdown.cells import Cells, cells_of
from croma_dask.panel.models import as_panel
from croma_dask.robustness.pooling import Evidence
from croma_dask.robustness.statistics import tail_of

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Leaning", "leaning_groups"]

MOVED = {"RI": 0.1, "MaRI": 0.1, "CRoMa": 0.05}
"""Change of a value without the group from which on it is told."""

TAIL_SHARE, TIMES_ITS_SHARE = 0.2, 3.0
"""Share of the tail, and how many times its share of the samples, from which a group is told of."""

FEWEST_GROUPS = 5
"""Of fewer groups each matters, and nothing is told."""


@dataclass(frozen=True)
class Leaning:
    """One value that rests on one group.

    Attributes
    ----------
    metric, model, m
        Of the value; `m` is None for RI and MaRI.
    statistic
        ``value`` of RI and MaRI, ``ltm_alpha`` of CRoMa.
    group
        Name of the group.
    share
        Of all scored samples, those in the group.
    part
        What the group brings: of RI and MaRI its share of the SO or of the OS evidence, the larger;
        of CRoMa its share of the samples at or below `q_alpha`.
    part_of
        ``SO evidence``, ``OS evidence`` or ``lower tail``.
    value, without
        The value, and what it is when the group's samples are left out (they stay the neighbours
        of others); NaN where nothing is left.
    """

    metric: str
    model: str
    m: int | None
    statistic: str
    group: str
    share: float
    part: float
    part_of: str
    value: float
    without: float

    def __str__(self) -> str:
        """Say it in a sentence."""
        name = self.metric if self.statistic == "value" else f"{self.metric}'s lower-tail mean"
        at = "" if self.m is None else f" at m = {self.m}"
        rest = (
            "without it nothing is left"
            if np.isnan(self.without)
            else f"without its samples it is {self.without:.3f} instead of {self.value:.3f}"
        )
        return (
            f"{name}{at} rests on one group: {self.group!r}, {self.share:.1%} of the samples, "
            f"brings {self.part:.1%} of the {self.part_of}; {rest}"
        )


def leaning_groups(result: xr.Dataset | xr.DataTree, name: str = "") -> list[Leaning]:
    """Find the values that one group decides.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` returned, of one model or a panel.
    name
        What the model of the former is called.

    Returns
    -------
    list of Leaning
        At most one for each metric, model and m, in their order: the group without which the value
        changes most, if it changes by 0.1 or more (RI, MaRI); and the group that holds most of the
        tail, if that is a fifth or more, three times its share of the samples, and without it the
        lower-tail mean changes by 0.05 or more (CRoMa). Nothing of fewer than five groups.

    Notes
    -----
    Memory: about 50 bytes a sample.
    """
    panel = as_panel(result, name)
    found: list[Leaning] = []
    for metric, node in panel.children.items():
        dataset = node.to_dataset()
        cells = cells_of(dataset, ["group"])
        if cells.size < FEWEST_GROUPS:
            continue
        of = _of_margins if metric == "CRoMa" else _of_evidence
        for at, model in enumerate(dataset["model"].values):
            found += of(metric, str(model), dataset.isel(model=at), cells)
    return found


def _of_evidence(metric: str, model: str, one: xr.Dataset, cells: Cells) -> Iterator[Leaning]:
    parts = Evidence.of(one, metric).rows(cells.unit).by_part(cells.code, cells.size)
    if not np.isfinite(parts.nearest).any():
        return
    so, os = parts.scaled_to(float(parts.nearest.min()))
    # Sums of the others, and not the whole less the group: that would lose what they are small by.
    rest_so, rest_os = _without(so), _without(os)
    total = so.sum() + os.sum()
    value = float(so.sum() / total)
    rest = np.divide(
        rest_so, rest_so + rest_os, out=np.full(so.size, np.nan), where=rest_so + rest_os > 0.0
    )
    moved = np.where(np.isnan(rest), 1.0, np.abs(rest - value))
    worst = int(np.argmax(moved))
    if moved[worst] < MOVED[metric]:
        return
    shares = {"SO evidence": _share(so, worst), "OS evidence": _share(os, worst)}
    part_of = max(shares, key=lambda kind: shares[kind])
    yield Leaning(
        metric, model, None, "value", str(cells.axes[0].levels[worst]),
        _share(_counts(cells), worst), shares[part_of], part_of, value, float(rest[worst]),
    )  # fmt: skip


def _of_margins(metric: str, model: str, one: xr.Dataset, cells: Cells) -> Iterator[Leaning]:
    alpha = float(one.attrs["alpha"])
    counts = _counts(cells)
    for m in np.atleast_1d(one["m"].values).tolist():
        at = one.sel(m=m) if "m" in one.dims else one
        margins = np.asarray(cells.of_units(at["sample_values"].values), np.float64)
        tail = np.bincount(
            cells.code[margins <= float(at["q_alpha"])], minlength=cells.size
        ).astype(np.float64)
        if not tail.any():
            continue
        worst = int(np.argmax(tail))
        part, share = _share(tail, worst), _share(counts, worst)
        if part < TAIL_SHARE or part < TIMES_ITS_SHARE * share:
            continue
        value = float(at["ltm_alpha"])
        rest = tail_of(margins[cells.code != worst], alpha).ltm_alpha
        if abs(rest - value) >= MOVED[metric]:
            yield Leaning(
                metric, model, int(m), "ltm_alpha", str(cells.axes[0].levels[worst]), share, part,
                "lower tail", value, rest,
            )  # fmt: skip


def _without(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) sum of all others."""
    before = np.concatenate([[0.0], np.cumsum(sums)[:-1]])
    behind = np.concatenate([np.cumsum(sums[::-1])[:-1][::-1], [0.0]])
    rest: NDArray[np.float64] = before + behind
    return rest


def _counts(cells: Cells) -> NDArray[np.float64]:
    return np.bincount(cells.code, minlength=cells.size).astype(np.float64)


def _share(values: NDArray[Any], at: int) -> float:
    total = float(values.sum())
    return float(values[at]) / total if total else 0.0
