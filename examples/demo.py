"""Score the two demo stores and print one table (this is what ``make demo`` runs).

The stores hold the same handwritten digits, taken with two scanners, under two embeddings: raw
pixels, and pixels normalised image by image. See stores/make_demo.py for how they were made.

    python examples/demo.py [FOLDER FOR THE RESULTS]
"""

from __future__ import annotations

import shutil
import sys
import warnings
from pathlib import Path

import xarray as xr

import croma_dask as cd

ROOT = Path(__file__).resolve().parents[1]
EMBEDDINGS = ("digits_raw", "digits_normalised")

# Metric, variable in its result, format, what to read in it.
ROWS = [
    ("RI", "value", "{:.2f}", "same digit, other scanner among the nearest; neutral 0.5"),
    ("RI", "support", "{:.0%}", "images for which RI could be said at all"),
    ("RI", "k", "{:d}", "neighbours looked at"),
    ("MaRI", "value", "{:.2f}", "RI with near neighbours counting more; neutral 0.5"),
    ("CRoMa", "value", "{:+.2f}", "the typical image's margin; digit wins above 0"),
    ("CRoMa", "ltm_alpha", "{:+.2f}", "lower-tail mean: the worst tenth of the images"),
    ("CRoMa", "f0", "{:.0%}", "F(0): images at which the scanner wins"),
    ("CRoMa", "support", "{:.0%}", "images that CRoMa could score"),
]
NAMES = {"value": "", "ltm_alpha": " lower tail", "f0": " F(0)"}


def table(results: dict[str, xr.DataTree]) -> str:
    """Lay the headline numbers of several results side by side."""
    width = max(len(name) for name in results) + 2
    lines = [" " * 18 + "".join(f"{name:>{width}}" for name in results)]
    for metric, variable, form, meaning in ROWS:
        title = metric + NAMES.get(variable, f" {variable}")
        cells = [form.format(tree[metric][variable].item()) for tree in results.values()]
        lines.append(
            f"{title:<18}" + "".join(f"{cell:>{width}}" for cell in cells) + "   " + meaning
        )
    return "\n".join(lines)


def main(out: Path) -> None:
    """Score both stores, write the results below ``out``, print the table."""
    # Support below 1 is a warning to whoever scores one cohort; here it is a row of the table.
    warnings.filterwarnings("ignore", category=cd.SupportWarning)
    results = {}
    for name in EMBEDDINGS:
        cohort = cd.open_cohort(str(ROOT / "stores" / f"{name}.zarr"))
        results[name] = cd.score(cohort, confounder="scanner")
        path = out / f"{name}.zarr"
        shutil.rmtree(path, ignore_errors=True)
        results[name].to_zarr(path, consolidated=False)
    images = results[EMBEDDINGS[0]]["CRoMa"].sizes["sample"]
    print(f"{images} handwritten digits, two scanners: which decides, the digit or the scanner?\n")
    print(table(results))
    print(f"\nResults: {', '.join(str(out / f'{name}.zarr') for name in EMBEDDINGS)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "demo")
