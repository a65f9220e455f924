"""The one decorator for compiled kernels, so that the numba policy stands in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` without the GIL and without a cache.

    `nogil` because the threads belong to the scheduler; never `parallel` (two threads inside
    numba's work queue abort the process); no disk cache, since processes of a cluster that share
    a home directory have crashed on one another's cache files. No `fastmath`: the order of every
    float sum is part of the result.
    """
    return cast(F, numba.njit(nogil=True, cache=False)(function))


def inlined(function: F) -> F:
    """Compile a helper that only other kernels call."""
    return cast(F, numba.njit(nogil=True, cache=False)(function))
