"""Compare two embeddings of one cohort, sample by sample, from their stores.

python examples/compare_stores.py STORE_A STORE_B --confounder NAME
python examples/compare_stores.py       # the two demo stores
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import xarray as xr

import croma_dask as cd

STORES = Path(__file__).resolve().parents[1] / "stores"


def margins(store: str, confounder: str) -> xr.DataArray:
    """Return CRoMa's margin of every sample of a store."""
    result = cd.score(cd.open_cohort(store), confounder=confounder, metrics=["CRoMa"])
    return result["CRoMa"]["sample_values"]


def main() -> None:
    """Print what changes from the first store to the second, for all samples and by label."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", nargs="?", default=str(STORES / "digits_raw.zarr"))
    parser.add_argument("second", nargs="?", default=str(STORES / "digits_normalised.zarr"))
    parser.add_argument("--confounder", default="scanner")
    arguments = parser.parse_args()

    first = margins(arguments.first, arguments.confounder)
    second = margins(arguments.second, arguments.confounder)
    if not np.array_equal(first["sample_id"], second["sample_id"]):
        raise SystemExit("the stores hold different samples, or the same in another order")

    change = second - first
    both = change.notnull()
    better = (change > 0).where(both).mean()
    print(f"{int(both.sum())} samples scored in both, {float(better):.0%} with a higher margin")
    by_label = xr.Dataset({"first": first, "second": second, "change": change}).groupby("label")
    print("median margin by label:")
    print(by_label.median().drop_vars("m").to_dataframe().round(3).to_string())


if __name__ == "__main__":
    main()
