"""A sweep's result as tables: one row a probe and test set, and the headline for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from croma_dask.errors import SchemaError
from croma_dask.outward import visible
from croma_dask.probe.reduce import apd, nipd

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["sweep_frame", "sweep_summary"]

_OF_PROBE = ("C", "validation_score", "lbfgs_iterations", "converged", "fits")


def sweep_frame(result: xr.Dataset) -> pd.DataFrame:
    """Tidy frame of a sweep: one row a test set, split and replicate.

    Returns
    -------
    pandas.DataFrame
        Columns `test_set`, `split`, `iteration`, `accuracy`, `cramers_v`, `replicate_seed`,
        `training_rows`, and of the probe `C`, `validation_score`, `lbfgs_iterations`,
        `converged`, `fits`.
    """
    import pandas as pd

    result = result.transpose("split", "iteration", ...)
    n_splits, iterations = result.sizes["split"], result.sizes["iteration"]
    split, iteration = (at.ravel() for at in np.indices((n_splits, iterations)))
    shared = {
        "split": result["split"].values[split],
        "iteration": result["iteration"].values[iteration],
        "cramers_v": result["cramers_v"].values[split],
        "replicate_seed": result["replicate_seed"].values[iteration],
        "training_rows": result["training_rows"].values[split],
        **{name: result[name].values.ravel() for name in _OF_PROBE},
    }
    parts = [
        pd.DataFrame({"test_set": str(name), **shared, "accuracy": accuracy.values.ravel()})
        for name, accuracy in result.data_vars.items()
    ]
    frame = pd.concat(parts, ignore_index=True)
    first = ["test_set", "split", "iteration", "accuracy"]
    return frame[[*first, *(name for name in frame.columns if name not in first)]]


def sweep_summary(result: xr.Dataset) -> str:
    """Lay a sweep out for people: accuracy at every split, then what confounding costs."""
    names = [str(name) for name in result.data_vars]
    shown = [visible(name) for name in names]
    width = max(12, *(len(name) + 2 for name in shown))
    head = f"{'split':>5}{'V':>8}{'rows':>9}" + "".join(f"{name:>{width}}" for name in shown)
    lines = [head]
    for split in range(result.sizes["split"]):
        at = result.isel(split=split)
        cells = "".join(f"{float(at[name].mean()):>{width}.4f}" for name in names)
        v, rows = float(at["cramers_v"]), int(at["training_rows"])
        lines.append(f"{int(at['split']):>5}{v:>8.3f}{rows:>9,}{cells}")
    for title, reduce in (("APD", apd), ("nIPD", nipd)):
        cells = "".join(f"{_number(reduce, result, name):>{width}}" for name in names)
        lines.append(f"{title:<22}{cells}")
    missed = int((~result["converged"].values).sum())
    n_probes = result["converged"].size
    lines.append(
        f"\nmean balanced accuracy of {result.sizes['iteration']} replicates; {missed} of "
        f"{n_probes} probes stopped before they had converged"
    )
    return "\n".join(lines)


def _number(reduce: object, result: xr.Dataset, name: str) -> str:
    try:
        return f"{reduce(result[name]):.4f}"  # type: ignore[operator]
    except SchemaError:
        # No V from 0 to 1, or no skill to lose: the table says what there is.
        return "-"
