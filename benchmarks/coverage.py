"""How often the intervals that an approximate run tells hold the error that it really has."""

from __future__ import annotations

import math
import sys
import tempfile
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import cohorts, timing
from benchmarks.extrapolated import POOLED, at_candidates

if TYPE_CHECKING:
    import xarray as xr

_ROUNDING = 1e-12
SAME_K = " at the same k"


@dataclass
class Tally:
    """What became of one value over many cohorts."""

    covered: int = 0
    told: int = 0
    half: list[float] = field(default_factory=list)
    error: list[float] = field(default_factory=list)

    def add(self, error: float, low: float, high: float) -> None:
        """Count a true error (approximate less exact value) and the interval that was told."""
        self.error.append(abs(error))
        if math.isnan(low) or math.isnan(high):
            return
        self.told += 1
        self.covered += low - _ROUNDING <= error <= high + _ROUNDING
        self.half.append((high - low) / 2)

    def row(self) -> tuple[str, ...]:
        """Cells of a table."""
        n = len(self.error)
        close = sum(error <= 0.003 for error in self.error)
        return (
            f"{self.covered} of {n}" + (f" ({n - self.told} not told)" if n > self.told else ""),
            f"{self.covered / n:.1%}", f"{median(self.half):.5f}" if self.half else "",
            f"{median(self.error):.5f}", f"{max(self.error):.5f}", f"{close} of {n}",
        )  # fmt: skip


def cohort(seed: int) -> cohorts.Clustered:
    """A cohort of a strength of its own."""
    rng = np.random.default_rng([seed, 5])
    label, confounder, group = rng.uniform([0.25, 0.2, 0.2], [0.7, 0.6, 0.6])
    return cohorts.Clustered(
        seed=1000 + seed, label_part=label, confounder_part=confounder, group_part=group
    )


def both(seed: int, n: int, d: int, cluster_rows: int | None) -> tuple[xr.DataTree, xr.DataTree]:
    """Score one cohort exactly and through an index."""
    import croma_dask as cd

    source = cohort(seed)
    frame, x = source.manifest(n), source.embedding(n, d)
    found: list[xr.DataTree] = []

    def score() -> None:
        found.append(cd.score(x, frame, confounder="center"))
        with tempfile.TemporaryDirectory() as folder:
            index = cd.build_index(x, "ivf", path=f"{folder}/ivf.zarr", cluster_rows=cluster_rows)
            found.append(cd.score(x, frame, confounder="center", index=index, seed=seed))

    timing.timed(score)
    return found[0], found[1]


def compare(exact: xr.DataTree, near: xr.DataTree, tallies: dict[str, Tally]) -> bool:
    """Count every value; return whether both chose the same k."""
    k = str(int(near["RI"]["k"]))
    curves = at_candidates(exact)
    for metric, name in POOLED:
        value = f"{metric} {name}"
        found = float(near[metric][name])
        low, high = (float(near[metric][f"{name}_error_{end}"]) for end in ("low", "high"))
        tallies.setdefault(value, Tally()).add(found - float(exact[metric][name]), low, high)
        if metric == "RI":
            # MaRI's bandwidth goes with its k: its exact curve cannot be read at another one.
            same = tallies.setdefault(value + SAME_K, Tally())
            same.add(found - curves[value][k], low, high)
    return int(near["RI"]["k"]) == int(exact["RI"]["k"])


def _many(count: int, n: int, d: int, cluster_rows: int | None) -> None:
    tallies: dict[str, Tally] = {}
    recall: list[float] = []
    probes: list[int] = []
    same = clusters = 0
    for seed in range(count):
        exact, near = both(seed, n, d, cluster_rows)
        same += compare(exact, near, tallies)
        attrs = near["RI"].attrs
        recall.append(attrs["recall"])
        clusters = attrs["n_clusters"]
        probes.append(attrs["probes"])
        done = ", ".join(f"{value} {t.covered}" for value, t in tallies.items())
        print(f"{n:,} x {d}: {seed + 1} of {count}; {done}", file=sys.stderr, flush=True)
    timing.table(
        [f"{count} cohorts of {n:,} x {d:,}", "error within its interval", "", "median half-width",
         "median error", "largest error", "error at most 0.003"],
        [(value, *tally.row()) for value, tally in tallies.items()],
    )  # fmt: skip
    print(
        f"\n{clusters} clusters, of which {min(probes)} to {max(probes)} are probed; recall@51 "
        f"{min(recall):.4f} to {max(recall):.4f}; the operating k is that of the exact run in "
        f"{same} of {count}.\n"
    )


def main(
    n_cohorts: int = 20, n: int = 50_000, d: int = 512, n_small: int = 200,
    small_rows: int = 5_000, small_d: int = 64, small_cluster_rows: int = 64,
) -> None:  # fmt: skip
    """Run both sizes, each cohort exactly and through an index.

    The small cohorts get clusters of `small_cluster_rows` rows on average in place of 512: with ten
    clusters their search would be as good as exact.
    """
    timing.warm_up("ivf")
    if n_cohorts:
        _many(n_cohorts, n, d, None)
    if n_small:
        _many(n_small, small_rows, small_d, small_cluster_rows)
