"""One policy for everything that is compiled."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from numba.core.caching import NullCache
from numba.core.registry import CPUDispatcher

import croma_dask.kernels


def dispatchers() -> dict[str, CPUDispatcher]:
    found = {}
    for info in pkgutil.iter_modules(croma_dask.kernels.__path__):
        module = importlib.import_module(f"croma_dask.kernels.{info.name}")
        for name, value in vars(module).items():
            if isinstance(value, CPUDispatcher):
                found[f"{value.py_func.__module__}.{name}"] = value
    return found


@pytest.mark.parametrize("name", sorted(dispatchers()))
def test_kernel__is_serial_without_the_gil_and_leaves_no_file(name: str) -> None:
    """parallel=True aborts under Dask's threads; cache files crash processes that share a home."""
    kernel = dispatchers()[name]
    assert kernel.targetoptions.get("nogil") is True
    assert not kernel.targetoptions.get("parallel")
    assert not kernel.targetoptions.get("fastmath"), "the order of every sum is part of the result"
    assert isinstance(kernel._cache, NullCache)


def test_kernels__are_found() -> None:
    assert len(dispatchers()) >= 10
