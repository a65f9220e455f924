"""Score the two demo stores: a table, a report and a picture (``make demo`` runs this).

The stores hold the same handwritten digits, taken with two scanners, under two embeddings: raw
pixels, and pixels normalised image by image. See stores/make_demo.py for how they were made.

    python examples/demo.py [FOLDER FOR THE RESULTS]

The picture is drawn with matplotlib: ``pip install -e '.[plot]'``. The one that the README shows,
docs/images/demo.png, is a copy of what this script has written.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import xarray as xr

import croma_dask as cd
from croma_dask import plotting

ROOT = Path(__file__).resolve().parents[1]
EMBEDDINGS = {"raw pixels": "digits_raw", "normalised": "digits_normalised"}

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


def table(panel: xr.DataTree) -> str:
    """Lay the headline numbers of the models side by side."""
    lines = [" " * 14 + "".join(f"{name:>12}" for name in EMBEDDINGS)]
    for title, metric, variable, form, meaning in ROWS:
        values = [panel[metric][variable].sel(model=name).item() for name in EMBEDDINGS]
        cells = "".join(f"{value:{form}}".rjust(12) for value in values)
        lines.append(f"{title:<14}{cells}   {meaning}")
    return "\n".join(lines)


def caption(panel: xr.DataTree) -> str:
    """Say in words what the picture shows; it is kept in the picture."""
    croma = panel["CRoMa"].to_dataset()
    said = [
        f"{name}: median {float(one.median_value):+.3f}, LTM {float(one.ltm_alpha):+.3f}, "
        f"F(0) {float(one.f0):.3f}"
        for name, one in ((name, croma.sel(model=name)) for name in EMBEDDINGS)
    ]
    return "CRoMa margins of the demo stores. " + "; ".join(said)


def draw(panel: xr.DataTree, path: Path) -> None:
    """Draw how margins are distributed, and which cells of the better embedding are weak."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.3), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1.0))
    plotting.margins(panel, ax=left)
    left.set_xlabel("margin of each image: above 0 its digit is nearer, below 0 its scanner")
    right.set_ylabel("digit")
    plotting.cells(panel, model="normalised", ax=right)
    figure.savefig(path, dpi=110, metadata={"Software": None, "Description": caption(panel)})


def main(out: Path) -> None:
    """Score both stores, print the table, write result, report and picture below ``out``."""
    # Support below 1 is a warning to whoever scores one cohort; here it is a row of the table.
    warnings.filterwarnings("ignore", category=cd.SupportWarning)
    cohorts = {
        name: cd.open_cohort(str(ROOT / "stores" / f"{store}.zarr"))
        for name, store in EMBEDDINGS.items()
    }
    panel = cd.score(cohorts, confounder="scanner")
    out.mkdir(parents=True, exist_ok=True)
    panel.to_zarr(out / "result.zarr", mode="w", consolidated=False)
    print(f"{panel['CRoMa'].sizes['sample']:,} images of handwritten digits, from two scanners.")
    print("What decides which images lie close together: the digit, or the scanner?\n")
    print(table(panel))
    files = [out / "result.zarr", out / "report.html", out / "demo.png"]
    cd.report(panel, files[1], title="Handwritten digits, two scanners", overwrite=True)
    try:
        draw(panel, files[2])
    except ImportError:
        files.pop()
        print("\nNo picture: matplotlib is not installed, pip install -e '.[plot]'")
    print("\nThe README says how to read this. Image by image, as a page and as a picture it is in")
    print("\n".join(f"  {path}" for path in files))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "demo")
