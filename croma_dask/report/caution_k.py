"""Warning of a report on RI and MaRI that would be others at a k that is as good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from croma_dask.report.pick import number
from croma_dask.report.words import listed, signed

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["k_cautions"]

NEAR_K = 0.005
"""Balanced accuracies that lie this near to each other might as well have chosen the other k."""

MOVED = 0.02
"""Difference of RI or MaRI between two such k that is worth telling."""

MODELS = 3
"""Models that the warning speaks of one by one."""


def k_cautions(nodes: dict[str, xr.Dataset], names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield title and text of one warning for all models and both metrics, or none."""
    # By model and what is said of a k: the metrics, and their values there.
    told: dict[str, dict[str, list[str]]] = {}
    metrics = []
    for i, name in enumerate(names):
        for metric in ("RI", "MaRI"):
            found = _other_k(nodes[metric], i) if "curve" in nodes.get(metric, ()) else None
            if found is not None:
                said, other, value = found
                told.setdefault(name, {}).setdefault(said, []).append(
                    f"{metric} is {signed(other)} instead of {signed(value)}"
                )
                metrics.append(metric)
    if not told:
        return
    which = listed(sorted(set(metrics), reverse=True))
    texts = [
        (f"{name}: " if len(told) > 1 else "")
        + "; ".join(f"{said}, and there {listed(values)}" for said, values in by_k.items())
        + "."
        for name, by_k in list(told.items())[:MODELS]
    ]
    if len(told) > MODELS:
        texts.append("The others are among the curves over k.")
    title = f"the choice of k matters to {which}"
    if len(names) > 1 and len(told) == 1:
        title = f"{next(iter(told))}: {title}"
    elif len(told) > 1:
        title = f"The choice of k matters to {which} of {listed(list(told))}"
    yield title, " ".join(texts)


def _other_k(dataset: xr.Dataset, i: int) -> tuple[str, float, float] | None:
    """Say which k might as well be the operating one, with the value there and here."""
    candidates = [int(k) for k in dataset["k_candidate"].values]
    operating = int(number(dataset, "k", model=i))
    here = candidates.index(operating)

    def at(name: str, j: int) -> float:
        return number(dataset, name, model=i, k_candidate=j)

    best, value = at("balanced_accuracy", here), at("curve", here)
    for j, k in enumerate(candidates):
        as_good = best - at("balanced_accuracy", j) < NEAR_K
        if j == here or not (as_good or at("k_possible", j) == 1):
            continue
        other = at("curve", j)
        if abs(other - value) > MOVED:
            said = (
                f"k = {k} predicts the label about as well as the operating k = {operating}"
                if as_good
                else f"k = {k} might be the operating k of an exact search, instead of "
                f"k = {operating} of this approximate one"
            )
            accuracies = f"balanced accuracy {at('balanced_accuracy', j):.4f} and {best:.4f}"
            return f"{said} ({accuracies})", other, value
    return None
