"""The accessor `.croma` of Datasets and DataTrees: it forwards, and does nothing itself."""

from __future__ import annotations

from typing import Any

import xarray as xr

from croma_dask.accessor.base import APPLIES_TO
from croma_dask.accessor.cohorts import CohortAccessor
from croma_dask.accessor.results import ResultAccessor

__all__ = ["CromaDatasetAccessor", "CromaTreeAccessor"]


@xr.register_dataset_accessor("croma")
class CromaDatasetAccessor(CohortAccessor, ResultAccessor):
    """Score, plan or explain a cohort; read, draw and save a result of one metric."""


@xr.register_datatree_accessor("croma")
class CromaTreeAccessor(ResultAccessor):
    """Read, draw, take apart and save a result of several metrics."""

    def __getattr__(self, name: str) -> Any:
        """Say of what is for cohorts, which are Datasets, that it is not for this."""
        from croma_dask.errors import SchemaError

        if name in APPLIES_TO:
            try:
                self._of(name)
            except SchemaError as error:
                raise AttributeError(str(error)) from None
        raise AttributeError(f"a DataTree's .croma has no attribute {name!r}")
