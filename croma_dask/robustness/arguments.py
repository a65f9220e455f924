"""The arguments that the metrics share, each checked in one place."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any

from croma_dask.approximate import Approximation
from croma_dask.errors import SchemaError
from croma_dask.index.recipe import KINDS
from croma_dask.index.stored import StoredIndex

__all__ = ["check_alpha", "check_index", "check_k", "check_m", "check_radius"]


_LEAST_SAMPLE = 100
"""Rows of a calibration sample below which its interval is a guess."""


def _is_single(value: Any) -> bool:
    """Whether a value is one number: an int, a numpy number, an array without dimensions."""
    return hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0


def _positive_ints(values: Any, name: str) -> tuple[int, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable) or _is_single(values):
        values = [values]
    found: list[int] = []
    for value in values:
        try:
            number = operator.index(value)
        except TypeError as err:
            raise SchemaError(f"{name} must be whole numbers, found {value!r}") from err
        if isinstance(value, bool) or number < 1:
            raise SchemaError(f"{name} must be 1 or larger, found {value!r}")
        if number not in found:
            found.append(number)
    if not found:
        raise SchemaError(f"{name} is empty; pass at least one number")
    return tuple(found)


def check_k(k_values: Any, name: str = "k_candidates") -> tuple[int, ...]:
    """Return candidates for k as distinct ints >= 1 in the given order."""
    return _positive_ints(k_values, name)


def check_m(m: Any) -> tuple[tuple[int, ...], bool]:
    """Return radii as distinct ints >= 1 in the given order, and whether it was a single int."""
    return _positive_ints(m, "m"), _is_single(m)


def check_alpha(alpha: Any) -> float:
    """Return alpha as a float in [0, 1]."""
    try:
        value = float(alpha)
    except (TypeError, ValueError) as err:
        raise SchemaError(f"alpha must be a number in [0, 1], found {alpha!r}") from err
    if not 0.0 <= value <= 1.0:
        raise SchemaError(f"alpha must be in [0, 1], found {alpha!r}")
    return value


def check_radius(start_k: Any, k_growth_factor: Any) -> None:
    """Check the radius of an approximate search, which an exact one does not need."""
    _positive_ints([start_k], "start_k")
    try:
        growth = float(k_growth_factor)
    except (TypeError, ValueError) as err:
        raise SchemaError(f"k_growth_factor must be a number, found {k_growth_factor!r}") from err
    if not 1.0 < growth < float("inf"):
        raise SchemaError(f"k_growth_factor must be above 1, found {k_growth_factor!r}")


def check_index(
    index: Any, *, recall: Any, probes: Any, calibration: Any, seed: Any, start_k: Any,
    k_growth_factor: Any,
) -> Approximation | None:  # fmt: skip
    """Return how an approximate search shall go; None for the exact one."""
    try:
        wanted = float(recall)
    except (TypeError, ValueError) as err:
        raise SchemaError(f"recall must be a number in (0, 1], found {recall!r}") from err
    if not 0.0 < wanted <= 1.0:
        raise SchemaError(f"recall must be in (0, 1], found {recall!r}")
    if probes is not None:
        (probes,) = _positive_ints([probes], "probes")
    (rows,) = _positive_ints([calibration], "calibration")
    if rows < _LEAST_SAMPLE:
        raise SchemaError(
            f"calibration must be at least {_LEAST_SAMPLE} rows for an interval to mean anything, "
            f"found {calibration!r}"
        )
    try:
        number = operator.index(seed)
    except TypeError as err:
        raise SchemaError(f"seed must be a whole number, found {seed!r}") from err
    if number < 0:
        raise SchemaError(f"seed must be 0 or larger, found {seed!r}")
    if isinstance(index, str) and index.strip().lower() in ("exact", "auto", *KINDS):
        index = index.strip().lower()
    elif isinstance(index, os.PathLike):
        index = os.fspath(index)
    elif not isinstance(index, StoredIndex) and not (
        isinstance(index, str) and ("/" in index or os.path.exists(index))
    ):
        raise SchemaError(
            f"index is 'exact', 'auto', {', '.join(map(repr, KINDS))}, or the place of an index "
            f"that build_index has made, found {index!r}"
        )
    if isinstance(index, str) and index == "exact":
        return None
    return Approximation(index, wanted, probes, int(start_k), float(k_growth_factor), rows, number)
