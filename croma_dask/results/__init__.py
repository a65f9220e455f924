"""Results as tables and files: written whole or not at all, and opened again lazily."""

from __future__ import annotations

from croma_dask.results.files import save
from croma_dask.results.opening import open_result
from croma_dask.results.tables import summary, to_frame
from croma_dask.results.targets import FORMATS, check_target

__all__ = ["FORMATS", "check_target", "open_result", "save", "summary", "to_frame"]
