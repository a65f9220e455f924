"""Score an embedding that is in memory, as with croma: a (N, D) array and its manifest."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd

import croma_dask as cd


def make_cohort() -> tuple[np.ndarray, pd.DataFrame]:
    """Make 600 tiles of three tissues from two centres; the centre shifts them a little."""
    rng = np.random.default_rng(7)
    tissue = rng.integers(0, 3, 600)
    centre = rng.integers(0, 2, 600)
    directions = rng.normal(size=(5, 32))
    features = directions[tissue] + 0.6 * directions[3 + centre] + rng.normal(size=(600, 32))
    manifest = pd.DataFrame(
        {
            "sample_id": [f"tile-{i}" for i in range(600)],
            "label": np.array(["tumour", "stroma", "normal"])[tissue],
            "center": np.array(["north", "south"])[centre],
            # A slide comes from one centre; ten tiles each.
            "group_id": [f"slide-{c}-{i // 20}" for i, c in enumerate(centre)],
        }
    )
    return features, manifest


def main() -> None:
    """Compute the three metrics one by one, and look into CRoMa's margins by label."""
    # How many tiles a value rests on is printed below, so there is no need for the warning.
    warnings.simplefilter("ignore", cd.SupportWarning)
    features, manifest = make_cohort()
    ri = cd.RI.compute(features, manifest, confounder_column="center", k_candidates=[5, 11, 21])
    mari = cd.MaRI.compute(features, manifest, confounder_column="center", k_candidates=[5, 11, 21])
    croma = cd.CRoMa.compute(features, manifest, confounder_column="center", m=[1, 5, 10])

    print(f"RI    {float(ri.value):.3f}  (k = {int(ri.k)}, support {float(ri.support):.0%})")
    print(f"MaRI  {float(mari.value):.3f}  (tau = {float(mari.tau):.3f})")
    for m in croma.m.values:
        at_m = croma.sel(m=m)
        print(f"CRoMa {float(at_m.value):+.3f}  (m = {m}, lower tail {float(at_m.ltm_alpha):+.3f})")
    print("\nmedian margin by label, m = 5:")
    print(croma.sample_values.sel(m=5).groupby("label").median().to_pandas().round(3).to_string())


if __name__ == "__main__":
    main()
