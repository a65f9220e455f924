"""What `.croma` has for results: it forwards, and does nothing itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

from croma_dask.accessor.base import Accessor

if TYPE_CHECKING:
    import pandas as pd

    from croma_dask.plotting.accessor import PlotAccessor

__all__ = ["ResultAccessor"]


class ResultAccessor(Accessor):
    """What Datasets and DataTrees have in common: all that is for results."""

    @property
    def plot(self) -> PlotAccessor:
        """Draw this result: see :mod:`croma_dask.plotting`."""
        from croma_dask.errors import SchemaError
        from croma_dask.plotting.accessor import PlotAccessor

        try:
            return PlotAccessor(self._of("plot"))
        except SchemaError as error:
            # What a property raises must not break hasattr().
            raise AttributeError(str(error)) from None

    def summary(self) -> str:
        """Headline numbers as a table for people: see :func:`croma_dask.results.summary`."""
        from croma_dask.results import summary

        return summary(self._of("summary"))

    def to_frame(self) -> pd.DataFrame:
        """Tidy frame of this result: see :func:`croma_dask.results.to_frame`."""
        from croma_dask.results import to_frame

        return to_frame(self._of("to_frame"))

    def save(
        self, path: str | os.PathLike[str], *, overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write this result, whole or not at all: see :func:`croma_dask.results.save`."""
        from croma_dask.results import save

        save(self._of("save"), path, overwrite=overwrite, storage_options=storage_options)

    def bootstrap(
        self,
        *,
        n_draws: int = 2000,
        seed: int = 0,
        level: float = 0.95,
        keep_draws: bool = False,
        threads: int | None = None,
    ) -> xr.DataTree:
        """Tell how sure these values are: see :func:`croma_dask.bootstrap`."""
        from croma_dask.uncertainty import bootstrap

        return bootstrap(
            self._of("bootstrap"), n_draws=n_draws, seed=seed, level=level,
            keep_draws=keep_draws, threads=threads,
        )  # fmt: skip

    def breakdown(self, by: str | Sequence[str] = "label", *, metric: str = "CRoMa") -> xr.Dataset:
        """Take this result apart by label, confounder, ...: see :func:`croma_dask.breakdown`."""
        from croma_dask.breakdown import breakdown

        return breakdown(self._of("breakdown"), by, metric=metric)

    def worst_groups(
        self,
        n: int | None = 10,
        *,
        metric: str = "CRoMa",
        order: str | None = None,
        min_defined: int = 1,
        model: str | None = None,
        m: int | None = None,
    ) -> xr.Dataset:
        """Name the groups that fare worst: see :func:`croma_dask.worst_groups`."""
        from croma_dask.breakdown import worst_groups

        return worst_groups(
            self._of("worst_groups"), n, metric=metric, order=order, min_defined=min_defined,
            model=model, m=m,
        )  # fmt: skip

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        n_draws: int = 2000,
        seed: int = 0,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Path | str:
        """Write this result as a page that opens offline: see :func:`croma_dask.report`."""
        from croma_dask.report import report

        return report(
            self._of("report"), path, title=title, n_draws=n_draws, seed=seed,
            overwrite=overwrite, storage_options=storage_options,
        )  # fmt: skip
