"""Score embeddings as single-cell groups do, by what they keep and what they mix, and rank them.

The data ships with scikit-learn: images of handwritten digits stand for cells, the digit for the
cell type. The batch is made up: a second scanner that is brighter on one side. Three embeddings:
the pixels, their first components, and these after the mean of each scanner was taken away.

Run from a clone: python examples/embedding_benchmark.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import croma_dask as cd


def make_embeddings() -> dict[tuple[str, str], tuple[np.ndarray, pd.DataFrame]]:
    """Embed two data sets of 600 images each by three methods."""
    images, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(5)
    found = {}
    for name, rows in (("first", slice(0, 600)), ("second", slice(600, 1200))):
        pixels, digit = images[rows], digits[rows]
        # Odd digits were scanned by B more often: what is taken away with it is not all scanner.
        scanner = np.where(rng.random(600) < np.where(digit % 2, 0.6, 0.4), "B", "A")
        pixels = pixels + np.outer(scanner == "B", np.tile(np.linspace(0.0, 6.0, 8), 8))
        centred = pixels.copy()
        for one in ("A", "B"):
            centred[scanner == one] -= pixels[scanner == one].mean(axis=0)
        manifest = pd.DataFrame({"digit": digit.astype(str), "scanner": scanner})
        found |= {
            (name, "pixels"): (pixels, manifest),
            (name, "components"): (PCA(20, random_state=0).fit_transform(pixels), manifest),
            (name, "centred"): (PCA(20, random_state=0).fit_transform(centred), manifest),
        }
    return found


def main() -> None:
    """Print values by method, where the centred images still lie apart, and ranks."""
    # clustering="leiden", the default, needs igraph: pip install '.[embedding]'
    result = cd.embedding_benchmark(
        make_embeddings(), label="digit", batch="scanner", clustering="kmeans"
    )
    assert (result.status == "ok").all()
    table = result.value.mean("dataset").transpose("metric", "method").to_pandas()
    print(table.round(3).to_string())

    of_centred = result.kbet[result.sample_method.values == "centred"]
    worst = of_centred.groupby("label").mean().to_series().nsmallest(3).round(2)
    print("\nlowest acceptance by kBET, centred: "
          + ", ".join(f"digit {digit} {share:.2f}" for digit, share in worst.items()))  # fmt: skip

    ranks = cd.rank_embeddings(result)
    print("\nrank of each family, mean of both data sets (1 is best), and their weighted mean:")
    by_family = ranks.family_rank.mean("dataset").transpose("family", "method").to_pandas()
    by_family.loc["all families"] = ranks.mean_rank.to_pandas()
    print(by_family.round(2).to_string())


if __name__ == "__main__":
    main()
