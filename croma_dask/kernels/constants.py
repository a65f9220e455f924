"""Constants that numpy and numba kernels share; changing one changes results: write an ADR."""

from __future__ import annotations

from typing import Final

LANES: Final = 64
"""Lanes of the fixed order of summation (a power of two)."""

ZERO_BELOW: Final = 1e-14
"""Distances below this are 0: what is left of `1 - cos` between equal rows."""

U32: Final = 2.0**-24
"""Unit roundoff of float32."""

U64: Final = 2.0**-53
"""Unit roundoff of float64."""

GLOBAL: Final = 0
"""The list of nearest eligible rows of any type."""

SO: Final = 1
"""The list of nearest rows of the same label and another confounder."""

OS: Final = 2
"""The list of nearest rows of another label and the same confounder."""

N_LISTS: Final = 3
