"""From the accuracies of a sweep to one number: apd, nipd, and apd over several cohorts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from croma_dask.errors import SchemaError, name_items
from croma_dask.probe.slides import IN_DOMAIN

__all__ = ["Aggregate", "aggregate_drops", "apd", "nipd"]

F64 = NDArray[np.float64]
Accuracies = ArrayLike | xr.DataArray | xr.Dataset


class Aggregate(NamedTuple):
    """Performance drop over several cohorts.

    Attributes
    ----------
    mean
        Mean drop over all replicates of all cohorts.
    half_width
        Half the width of its 95 % interval.
    n_scores
        Number of replicates in all.
    """

    mean: float
    half_width: float
    n_scores: int


def apd(accuracies: Accuracies) -> float:
    """Average performance drop: how much accuracy a confounded split loses, relative to none.

    The mean over replicates of the mean over splits s > 0 of ``accuracies[s] / accuracies[0]``,
    minus 1. It is 0 where nothing is lost, and -1 where all is.

    Parameters
    ----------
    accuracies
        (n_splits, n_iterations) balanced accuracies, the balanced split first; a DataArray with
        the dims split and iteration in any order; or a sweep's Dataset, of which ``in_domain``
        is taken.

    Returns
    -------
    float
        The drop.

    Raises
    ------
    SchemaError
        There are fewer than two splits or no replicate, a value is not finite, or an accuracy of
        the balanced split is not above 0.

    References
    ----------
    PathoROB, https://doi.org/10.48550/arXiv.2507.17845

    Examples
    --------
    >>> from croma_dask.probe.reduce import apd
    >>> apd([[1.0, 0.5], [0.75, 0.25], [0.5, 0.25]])
    -0.4375
    """
    return float(np.mean(_drops(_matrix(accuracies, "accuracies"), "accuracies")))


def nipd(
    accuracies: Accuracies, cramers_v: ArrayLike | None = None, chance: float | None = None
) -> float:
    """Normalised integrated performance degradation over Cramer's V.

    With the accuracies' mean over replicates, g(V) = (mean(V) - mean(0)) / (mean(0) - chance) is
    the share of the balanced split's skill that is lost at V; the value is its integral from 0 to
    1 by the trapezoid rule. A straight fall from the balanced split's accuracy to chance is -0.5.

    Parameters
    ----------
    accuracies
        As of :func:`apd`.
    cramers_v
        (n_splits,) V of every split; of a labelled result, its coordinate ``cramers_v`` unless
        given.
    chance
        Balanced accuracy of guessing: 1 / number of classes, which a labelled result brings as the
        attribute ``n_classes``, unless given.

    Returns
    -------
    float
        The area.

    Raises
    ------
    SchemaError
        `accuracies` as of :func:`apd`; V is not finite, not strictly increasing from 0 to 1, or not
        one a split; chance is outside [0, 1), or not below the mean of the balanced split;
        a plain array comes without V or chance.

    Examples
    --------
    >>> from croma_dask.probe.reduce import nipd
    >>> nipd([[0.9, 0.9], [0.7, 0.7], [0.5, 0.5]], [0, 0.5, 1], 0.5)
    -0.5
    """
    matrix = _matrix(accuracies, "accuracies")
    v = _coordinate(accuracies, cramers_v, matrix.shape[0])
    floor = _chance(accuracies, chance)
    mean = matrix.mean(axis=1)
    if mean[0] <= floor:
        raise SchemaError(
            f"the balanced split has a mean accuracy of {mean[0]:.6g}, not above chance "
            f"({floor:.6g}): there is no skill that could be lost"
        )
    return float(np.trapezoid((mean - mean[0]) / (mean[0] - floor), v))


def aggregate_drops(accuracies: Mapping[str, Accuracies] | Sequence[Accuracies]) -> Aggregate:
    """Mean performance drop over several cohorts, with an interval.

    Drops are those of :func:`apd`, one a replicate. Cohorts differ in how far they drop, and that
    is no uncertainty of the mean over these cohorts: the mean of each cohort is taken off its drops
    and the mean of all is put back, before their standard error is taken (Masson and Loftus).

    Parameters
    ----------
    accuracies
        Accuracies of each cohort, as of :func:`apd`: a mapping by name, or a sequence.

    Returns
    -------
    Aggregate
        The mean drop, t(0.975) standard errors, and the number n of drops. As in PathoROB's
        summaries, t has n degrees of freedom.

    Raises
    ------
    SchemaError
        There is no cohort or only one drop in all, or accuracies of a cohort are not what
        :func:`apd` takes.

    References
    ----------
    Masson and Loftus, https://doi.org/10.1037/h0087426

    Examples
    --------
    >>> from croma_dask.probe.reduce import aggregate_drops
    >>> found = aggregate_drops({"a": [[0.8, 0.8], [0.6, 0.4]], "b": [[1.0, 1.0], [1.0, 0.9]]})
    >>> round(found.mean, 4), round(found.half_width, 4), found.n_scores
    (-0.2125, 0.1526, 4)
    """
    if not isinstance(accuracies, Mapping | Sequence | np.ndarray):
        raise SchemaError(
            "aggregate_drops takes a mapping or a sequence of accuracies, one entry a cohort, "
            f"found {type(accuracies).__name__}"
        )
    named = (
        accuracies
        if isinstance(accuracies, Mapping)
        else {f"cohort {at}": entry for at, entry in enumerate(accuracies)}
    )
    if isinstance(accuracies, xr.Dataset) or not len(named):
        raise SchemaError(
            f"aggregate_drops takes one entry a cohort, found {type(accuracies).__name__} with "
            f"{len(named)} entries; pass a list or a mapping of sweeps"
        )
    drops = [_drops(_matrix(entry, str(name)), str(name)) for name, entry in named.items()]
    every = np.concatenate(drops)
    n = every.size
    if n < 2:
        raise SchemaError("one drop has no interval; expected two replicates or more in all")
    mean = every.mean()
    within = np.concatenate([drop - drop.mean() for drop in drops]) + mean
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    half_width = stdtrit(n, 0.975) * within.std(ddof=1) / np.sqrt(n)
    return Aggregate(float(within.mean()), float(half_width), int(n))


def _drops(matrix: F64, name: str) -> F64:
    """(n_iterations,) relative loss of each replicate."""
    if (matrix[0] <= 0.0).any():
        raise SchemaError(
            f"{name}: the balanced split has an accuracy of {matrix[0].min():.6g} in replicate "
            f"{int(matrix[0].argmin())}; a relative drop needs one above 0 in every replicate"
        )
    drops: F64 = (matrix[1:] / matrix[0]).mean(axis=0) - 1.0
    return drops


def _labelled(accuracies: Any) -> xr.DataArray | None:
    """Return the labelled variable; None of a plain array."""
    if isinstance(accuracies, xr.Dataset):
        if IN_DOMAIN not in accuracies:
            raise SchemaError(
                f"the Dataset has no variable {IN_DOMAIN!r}; it has "
                f"{', '.join(map(repr, accuracies.data_vars)) or 'none'}: pass one of them"
            )
        return accuracies[IN_DOMAIN]
    return accuracies if isinstance(accuracies, xr.DataArray) else None


def _matrix(accuracies: Accuracies, name: str) -> F64:
    """(n_splits, n_iterations) accuracies."""
    labelled = _labelled(accuracies)
    values: Any = accuracies
    if labelled is not None:
        if set(labelled.dims) != {"split", "iteration"}:
            raise SchemaError(
                f"{name}: expected the dims split and iteration, found {name_items(labelled.dims)}"
            )
        values = labelled.transpose("split", "iteration").values
    try:
        matrix = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as err:
        raise SchemaError(f"{name}: not a matrix of numbers: {err}") from err
    if matrix.ndim != 2 or matrix.shape[0] < 2 or matrix.shape[1] < 1:
        raise SchemaError(
            f"{name}: expected (splits, iterations) with two splits or more and one iteration or "
            f"more, found shape {matrix.shape}"
        )
    bad = np.argwhere(~np.isfinite(matrix))
    if len(bad):
        s, r = map(int, bad[0])
        raise SchemaError(
            f"{name}: {len(bad)} of {matrix.size} accuracies are not finite, the first in split "
            f"{s}, iteration {r}"
        )
    return matrix


def _coordinate(accuracies: Accuracies, given: ArrayLike | None, n_splits: int) -> F64:
    """(n_splits,) V of every split."""
    values: Any = given
    if values is None:
        labelled = _labelled(accuracies)
        if labelled is None or "cramers_v" not in labelled.coords:
            raise SchemaError(
                "accuracies bring no cramers_v; pass cramers_v, one value a split "
                "(schedule_cramers_v gives it for a schedule)"
            )
        values = labelled.coords["cramers_v"].values
    try:
        v = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as err:
        raise SchemaError(f"cramers_v: not numbers: {err}") from err
    if v.shape != (n_splits,):
        raise SchemaError(
            f"cramers_v must be one value a split ({n_splits}), found shape {v.shape}"
        )
    rising = bool(np.isfinite(v).all()) and bool((np.diff(v) > 0.0).all())
    if not rising or not np.isclose(v[0], 0.0) or not np.isclose(v[-1], 1.0):
        raise SchemaError(
            "cramers_v must be finite and strictly increasing from 0 to 1, found "
            f"{np.array2string(v, precision=6, threshold=10, separator=', ')}"
        )
    return v


def _chance(accuracies: Accuracies, given: float | None) -> float:
    """Balanced accuracy of guessing."""
    value: Any = given
    if value is None:
        labelled = _labelled(accuracies)
        n_classes = None if labelled is None else labelled.attrs.get("n_classes")
        if n_classes is None:
            raise SchemaError(
                "accuracies bring no number of classes; pass chance, 1 / number of classes"
            )
        value = 1.0 / n_classes
    try:
        chance = float(value)
    except (TypeError, ValueError) as err:
        raise SchemaError(f"chance must be a number in [0, 1), found {value!r}") from err
    if not 0.0 <= chance < 1.0:
        raise SchemaError(f"chance must be in [0, 1), found {chance}")
    return chance
