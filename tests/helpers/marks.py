"""Which tests the default run leaves to continuous integration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

CI = (pytest.mark.slow, pytest.mark.ci)
"""Slow, and run by continuous integration in a step of its own."""


def first(n: int, cases: Iterable[Any]) -> list[Any]:
    """Cases of a parametrised test, of which the default run has the first `n`.

    A case of several arguments is a tuple.
    """
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*value, marks=CI if at >= n else ()) for at, value in enumerate(values)]
