"""Score the two demo stores and print one table (this is what ``make demo`` runs).

The stores hold the same handwritten digits, taken with two scanners, under two embeddings: raw
pixels, and pixels normalised image by image. See stores/make_demo.py for how they were made.

    python examples/demo.py [FOLDER FOR THE RESULTS]
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import xarray as xr

import croma_dask as cd

ROOT = Path(__file__).resolve().parents[1]
EMBEDDINGS = {"digits_raw": "raw pixels", "digits_normalised": "normalised"}

# Title, metric, variable of its result, format, what to read in it.
ROWS = [
    ("RI", "RI", "value", ".2f", "share of neighbours that follow the digit; neutral 0.5"),
    ("  support", "RI", "support", ".0%", "images that RI can say something about"),
    ("  k", "RI", "k", "d", "neighbours looked at"),
    ("MaRI", "MaRI", "value", ".2f", "the same, near neighbours counting more"),
    (
        "CRoMa",
        "CRoMa",
        "value",
        "+.2f",
        "typical image: digit wins above 0, scanner below",
    ),
    ("  lower tail", "CRoMa", "ltm_alpha", "+.2f", "the same for the worst tenth of the images"),
    ("  F(0)", "CRoMa", "f0", ".0%", "images at which the scanner wins"),
    ("  support", "CRoMa", "support", ".0%", "images that CRoMa can say something about"),
]


def table(results: dict[str, xr.DataTree]) -> str:
    """Lay the headline numbers of several results side by side."""
    lines = [" " * 14 + "".join(f"{EMBEDDINGS[name]:>12}" for name in results)]
    for title, metric, variable, form, meaning in ROWS:
        values = [tree[metric][variable].item() for tree in results.values()]
        cells = "".join(f"{value:{form}}".rjust(12) for value in values)
        lines.append(f"{title:<14}{cells}   {meaning}")
    return "\n".join(lines)


def main(out: Path) -> None:
    """Score both stores, write the results below ``out``, print the table."""
    # Support below 1 is a warning to whoever scores one cohort; here it is a row of the table.
    warnings.filterwarnings("ignore", category=cd.SupportWarning)
    results = {}
    for name in EMBEDDINGS:
        cohort = cd.open_cohort(str(ROOT / "stores" / f"{name}.zarr"))
        results[name] = cd.score(cohort, confounder="scanner")
        results[name].to_zarr(out / f"{name}.zarr", mode="w", consolidated=False)
    n_images = results["digits_raw"]["CRoMa"].sizes["sample"]
    print(f"{n_images:,} images of handwritten digits, taken with two scanners.")
    print("What decides which images lie close together: the digit, or the scanner?\n")
    print(table(results))
    print("\nThe README says how to read this. The results, image by image, are in")
    print("\n".join(f"  {out / name}.zarr" for name in results))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "demo")
