"""The cohort: its manifest, its store on disk, and the readers that fill it.

Names are imported when first used, so that importing this package loads neither zarr nor dask.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from croma_dask.cohort.ingestion import ingest, write_cohort
    from croma_dask.cohort.open import open_cohort, store_of
    from croma_dask.cohort.store import StoredCohort
    from croma_dask.cohort.writer import CohortWriter

__all__ = ["CohortWriter", "StoredCohort", "ingest", "open_cohort", "store_of", "write_cohort"]

_HOME = {
    "CohortWriter": "writer",
    "StoredCohort": "store",
    "ingest": "ingestion",
    "open_cohort": "open",
    "store_of": "open",
    "write_cohort": "ingestion",
}


def __getattr__(name: str) -> object:
    """Import the module of a public name when the name is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
