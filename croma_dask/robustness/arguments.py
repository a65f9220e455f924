"""The arguments that the metrics share, each checked in one place."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from croma_dask.errors import SchemaError

__all__ = ["check_alpha", "check_k", "check_m", "check_radius"]


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
    if not growth > 1.0:
        raise SchemaError(f"k_growth_factor must be above 1, found {k_growth_factor!r}")
