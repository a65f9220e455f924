"""What a confounder costs a linear probe, on both demo stores.

The probe reads the digit while digit and scanner get entangled in its training images, and is
tested on images in which they are not. Run from a clone: python examples/probe_sweep.py
"""

from __future__ import annotations

from pathlib import Path

import croma_dask as cd
from croma_dask.downstream import linear_schedule

STORES = Path(__file__).resolve().parents[1] / "stores"


def main() -> None:
    """Sweep both stores along one schedule and print accuracy against Cramer's V."""
    schedule = linear_schedule(n_confounders=2, n_classes=10, slides=20, splits=3)
    sweeps = {
        name: cd.open_cohort(STORES / f"digits_{name}.zarr").croma.probe_sweep(
            confounder="scanner", schedule=schedule, validation_fraction=0.1, iterations=3
        )
        for name in ("raw", "normalised")
    }
    print(f"{'V':>6}" + "".join(f"{name:>12}" for name in sweeps))
    for split, v in enumerate(sweeps["raw"].cramers_v.values):
        cells = (float(sweep.in_domain.isel(split=split).mean()) for sweep in sweeps.values())
        print(f"{v:>6.2f}" + "".join(f"{cell:>12.3f}" for cell in cells))
    print(f"{'APD':>6}" + "".join(f"{cd.apd(sweep):>+12.3f}" for sweep in sweeps.values()))


if __name__ == "__main__":
    main()
