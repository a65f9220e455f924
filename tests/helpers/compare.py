"""Comparisons that several test modules make."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

SAMPLE, POOLED = 1e-9, 1e-12


def assert_same_bits(found: xr.Dataset, expected: xr.Dataset) -> None:
    """Every variable and coordinate has the same dtype, dims and bytes; attrs but the time too."""
    assert set(found.variables) == set(expected.variables)
    for name in expected.variables:
        a, b = found[name].variable, expected[name].variable
        assert a.dims == b.dims, name
        assert a.dtype == b.dtype, name
        left, right = np.asarray(a.values), np.asarray(b.values)
        if left.dtype == object:
            assert left.tolist() == right.tolist(), name
        else:
            assert left.tobytes() == right.tobytes(), f"{name} differs"
        assert a.attrs == b.attrs, name
    attrs = [{k: v for k, v in ds.attrs.items() if k != "created"} for ds in (found, expected)]
    assert attrs[0] == attrs[1]


def assert_matches(found: xr.Dataset, expected: dict[str, Any], **tolerance: float) -> None:
    """A result agrees with what an oracle says, pooled and sample by sample."""
    sample = tolerance.get("sample", SAMPLE)
    pooled = tolerance.get("pooled", POOLED)
    for name, value in expected.items():
        atol = pooled if name in ("value", "pair_values", "std") else sample
        np.testing.assert_allclose(
            found[name].values, value, rtol=0, atol=atol, equal_nan=True, err_msg=name
        )
