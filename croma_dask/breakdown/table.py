"""A metric by label, confounder, subset, group, or the cells of several of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import schema
from croma_dask.breakdown.cells import Cells, axes_of, cells_of
from croma_dask.breakdown.segments import summarise
from croma_dask.errors import SchemaError, name_items
from croma_dask.panel.models import as_panel, datasets_of, drop_model
from croma_dask.robustness.pooling import Evidence
from croma_dask.schema_breakdown import AXES, BREAKDOWN, build_breakdown

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["breakdown", "metric_of", "tabulate"]


def breakdown(
    result: xr.Dataset | xr.DataTree, by: str | Sequence[str] = "label", *, metric: str = "CRoMa"
) -> xr.Dataset:
    """Tell a metric of every part of a cohort.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` returned, of one model or of a panel; opened results are read
        as far as needed.
    by
        ``label``, ``confounder``, ``subset`` or ``group``, or the name of the column that one of
        them came from (``center``); several of them give their cells, e.g.
        ``("label", "confounder")``. Where a column has a name of the first kind, that counts.
    metric
        ``CRoMa``, ``RI`` or ``MaRI``.

    Returns
    -------
    xarray.Dataset
        Dims: `model` and `m` where the result has them, then one for each name in `by`, whose
        coordinate holds the levels that occur among the scored units, sorted as text. Variables:
        `n_samples`, `n_defined`, `support`, `median_value`, `q_alpha`, `ltm_alpha`; of CRoMa `f0`;
        of RI and MaRI `value`, pooled over the cell. alpha is that of the result. A cell without
        samples has counts of 0 and NaN elsewhere. See
        :data:`croma_dask.schema_breakdown.BREAKDOWN`.

    Raises
    ------
    SchemaError
        `by` or `metric` is not in the result, or it is no result; or RI or MaRI was scored by a
        release that kept no evidence of the samples: score again.
    SupportError
        No sample was scored.
    MemoryLimitError
        The dense table would have more than 8 million numbers a variable.

    Notes
    -----
    By subset, `median_value` of CRoMa and `value` of RI are `pair_values`, but that a subset
    without typed neighbours is NaN here and 0.5 there; so is `value` of MaRI, but for rounding.

    Memory: about 100 bytes a sample beside the result, and 64 a cell, model and m. Time: one sort
    of the samples for each model and m (measured: 1,000,000 samples in 10,000 groups in 0.4 s).

    Examples
    --------
    >>> import numpy as np
    >>> import croma_dask as cd
    >>> rng = np.random.default_rng(0)
    >>> at = np.arange(80)
    >>> label, center = at % 2, at // 2 % 2
    >>> x = rng.normal(size=(80, 4)) + np.eye(4)[label] + np.eye(4)[2 + center]
    >>> manifest = {
    ...     "sample_id": at.astype(str), "group_id": at.astype(str),
    ...     "label": np.array(["normal", "tumour"])[label],
    ...     "center": np.array(["A", "B"])[center],
    ... }
    >>> result = cd.score(x, manifest, confounder="center", metrics="CRoMa")
    >>> cells = cd.breakdown(result, ("label", "center"))
    >>> cells.median_value.dims, cells.n_samples.values.tolist()
    (('label', 'confounder'), [[20, 20], [20, 20]])
    """
    whole = metric_of(result, metric)
    panel = as_panel(whole)[metric].to_dataset()
    cells = cells_of(panel, axes_of(by, _attrs_of(result, whole)))
    table = tabulate(panel, metric, cells)
    return table if "model" in whole.dims else drop_model(table)


def metric_of(result: xr.Dataset | xr.DataTree, metric: str) -> xr.Dataset:
    """Take one metric out of a result.

    Raises
    ------
    SchemaError
        It has none of that name, or it is no result, or one without its samples.
    """
    found = datasets_of(result)
    if metric not in schema.METRICS:
        raise SchemaError(f"metric {metric!r} is not known; there are {', '.join(schema.METRICS)}")
    if metric not in found:
        raise SchemaError(
            f"this result holds {name_items(list(found))} and no {metric!r}: name one of them as "
            "metric= (--metric), or score it"
        )
    lacking = [name for name in ("sample_values", "undefined_type") if name not in found[metric]]
    if lacking:
        raise SchemaError(
            f"expected a result with the values of its samples, as score() returns it; this one of "
            f"{metric} has no {name_items(lacking)}: was it made of a result (a breakdown, a "
            "bootstrap)? Give the result itself"
        )
    return found[metric]


def tabulate(panel: xr.Dataset, metric: str, cells: Cells) -> xr.Dataset:
    """Compute every variable of a breakdown, and label it.

    Parameters
    ----------
    panel
        One metric, with the dim `model`.
    metric
        Its name.
    cells
        What to break down by.

    Returns
    -------
    xarray.Dataset
        As :func:`breakdown` says; one model and m is read and sorted at a time.

    Raises
    ------
    SchemaError
        RI or MaRI without the evidence of its samples.
    """
    outer = tuple(dim for dim in ("model", "m") if dim in panel["sample_values"].dims)
    lengths = tuple(panel.sizes[dim] for dim in outer)
    alpha = float(panel.attrs["alpha"])
    names = [name for name in BREAKDOWN[metric] if name != "n_samples"]
    found = {name: np.empty((*lengths, cells.size)) for name in names}
    n_samples = np.bincount(cells.code, minlength=cells.size)
    with np.errstate(invalid="ignore"):
        for at in np.ndindex(lengths):
            one = panel.isel(dict(zip(outer, at, strict=True)))
            values = cells.of_units(np.asarray(one["sample_values"].values, np.float64))
            told = summarise(cells.code, cells.size, values, alpha)
            found["n_defined"][at] = told.n_defined
            found["support"][at] = told.n_defined / n_samples
            found["median_value"][at] = told.median
            found["q_alpha"][at] = told.q_alpha
            found["ltm_alpha"][at] = told.ltm_alpha
            if metric == "CRoMa":
                found["f0"][at] = told.f0
            else:
                evidence = Evidence.of(one, metric).rows(cells.unit)
                found["value"][at] = evidence.by_part(cells.code, cells.size).value()
    dims = (*outer, *cells.dims)
    shaped: dict[str, tuple[tuple[str, ...], Any]] = {
        name: (dims, array.reshape(*lengths, *cells.shape)) for name, array in found.items()
    }
    return build_breakdown(
        BREAKDOWN[metric], {"n_samples": (cells.dims, n_samples.reshape(cells.shape)), **shaped},
        {**_kept(panel), **_levels(panel, cells)},
        {**panel.attrs, "broken_down_by": ",".join(cells.dims)},
    )  # fmt: skip


def _attrs_of(result: xr.Dataset | xr.DataTree, dataset: xr.Dataset) -> dict[str, Any]:
    return {**result.attrs, **dataset.attrs}


def _kept(panel: xr.Dataset) -> dict[str, xr.Variable]:
    """Coordinates of a result that a breakdown keeps: those of models and radii."""
    return {
        str(name): array.variable
        for name, array in panel.coords.items()
        if set(array.dims) <= {"model", "m"}
    }


def _levels(panel: xr.Dataset, cells: Cells) -> dict[str, xr.Variable]:
    import xarray as xr

    found = {}
    for axis in cells.axes:
        attrs = AXES[axis.name].attrs()
        column = panel.attrs.get(f"{axis.name}_column")
        if column is not None:
            attrs["column"] = column
        found[axis.name] = xr.Variable((axis.name,), axis.levels, attrs)
    return found
