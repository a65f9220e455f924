"""The degradation curve of a probe sweep: accuracy against how confounded the training rows are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from croma_dask import schema
from croma_dask.errors import SchemaError, name_items
from croma_dask.plotting import theme
from croma_dask.probe.slides import IN_DOMAIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["degradation_curve"]

F64 = NDArray[np.float64]

_BAND = (0.025, 0.975)


def degradation_curve(
    result: xr.Dataset | xr.DataArray,
    *,
    test_set: str = IN_DOMAIN,
    ax: Axes | None = None,
    band: bool = True,
    label: str | None = None,
) -> Axes:
    """Draw the accuracy of a probe sweep against Cramer's V of what its splits were trained on.

    The line is the mean balanced accuracy over the replicates of each split, in order of V. A
    dashed line marks chance, which is 1 / number of classes.

    Parameters
    ----------
    result
        What :func:`croma_dask.downstream.probe_sweep_over_test_sets` returns, or one of its
        variables, such as :func:`croma_dask.downstream.probe_sweep` returns.
    test_set
        Variable of a Dataset to draw; a DataArray is drawn whatever it is called.
    ax
        Axes to draw into, on top of what is there: call it again for another sweep or test set to
        compare the two. None: those of a new figure.
    band
        Shade what lies between the 2.5 % and the 97.5 % quantile over the replicates of a split
        (linear interpolation): how much single replicates differ, not how well the mean is known,
        which a larger number of replicates makes better and the band no narrower. Not drawn of a
        single replicate.
    label
        Name of the line in the legend; by default that of the test set.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn into.

    Raises
    ------
    SchemaError
        (a ValueError) `result` is no result of a sweep, or has no such test set; an accuracy is
        not finite; V of a split is NaN, because it trains on one confounder level or one class
        only.
    ImportError
        matplotlib is not installed.
    """
    v, accuracies, n_classes, name = _checked(result, test_set)
    if ax is None:
        ax = theme.new_axes()
    (line,) = ax.plot(
        v, accuracies.mean(axis=1), marker="o", label=name if label is None else label
    )
    if band and accuracies.shape[1] > 1:
        low, high = np.quantile(accuracies, _BAND, axis=1)
        ax.fill_between(v, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    _draw_chance(ax, n_classes)
    theme.write_labels(
        ax, x=theme.axis_label(schema.SWEEP["cramers_v"].attrs()),
        y=theme.axis_label(schema.ACCURACY.attrs()),
    )  # fmt: skip
    ax.legend(frameon=False)
    return ax


def _checked(result: Any, test_set: str) -> tuple[F64, F64, int, str | None]:
    """V in ascending order, (splits, iterations) accuracies, number of classes, name."""
    if isinstance(result, xr.Dataset):
        if test_set not in result.data_vars:
            raise SchemaError(
                f"the result has no test set {test_set!r}; it has "
                f"{name_items(list(result.data_vars)) or 'none'}"
            )
        result = result[test_set]
    expected = "expected what probe_sweep or probe_sweep_over_test_sets returns"
    if not isinstance(result, xr.DataArray):
        raise SchemaError(f"no result of a probe sweep: {expected}, found {type(result).__name__}")
    missing = [
        what
        for what, there in (
            ("the dims split and iteration", set(result.dims) == set(schema.ACCURACY.dims)),
            ("the coordinate cramers_v of each split", _has_v(result)),
            ("the attribute n_classes", "n_classes" in result.attrs),
        )
        if not there
    ]
    if missing or not result.size:
        raise SchemaError(
            f"no result of a probe sweep: {expected}, found dims {dict(result.sizes)} without "
            f"{' and '.join(missing) or 'values'}"
        )
    accuracies = result.transpose(*schema.ACCURACY.dims).values.astype(np.float64)
    if not np.isfinite(accuracies).all():
        raise SchemaError(
            f"{int((~np.isfinite(accuracies)).sum())} of {accuracies.size} accuracies are not "
            "finite; leave these splits or replicates out"
        )
    v = result["cramers_v"].values.astype(np.float64)
    undefined = np.flatnonzero(np.isnan(v))
    if undefined.size:
        raise SchemaError(
            f"cramers_v is NaN in split {name_items(result['split'].values[undefined].tolist())}, "
            "which trains on one confounder level or one class only and so has no place on the "
            "axis; leave it out, as result.isel(split=...) does"
        )
    order = np.argsort(v, kind="stable")
    name = result.attrs.get("test_set", result.name)
    named = None if name is None else str(name)
    return v[order], accuracies[order], int(result.attrs["n_classes"]), named


def _has_v(result: xr.DataArray) -> bool:
    return "cramers_v" in result.coords and result["cramers_v"].dims == ("split",)


def _draw_chance(ax: Axes, n_classes: int) -> None:
    """Draw the line of chance, once for each number of classes on the axes."""
    mark = f"chance-{n_classes}"
    if not any(line.get_gid() == mark for line in ax.lines):
        ax.axhline(
            1 / n_classes, color="0.5", linestyle="--", linewidth=1.0, zorder=1.0, gid=mark,
            label=f"chance (1/{n_classes})",
        )  # fmt: skip
