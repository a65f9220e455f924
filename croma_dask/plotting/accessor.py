"""``result.croma.plot``: the plots that suit a result, found by tab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from croma_dask.errors import SchemaError
from croma_dask.kinds import KINDS, kind_of
from croma_dask.plotting import inputs
from croma_dask.probe.slides import IN_DOMAIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PlotAccessor"]

_NEEDS = {
    "margins": (("result",), "a result of score()"),
    "m_sweep": (("result",), "a result of score() with CRoMa at several m"),
    "k_curve": (("result",), "a result of score() with RI or MaRI"),
    "cells": (("result",), "a result of score()"),
    "pareto": (("result",), "a panel with CRoMa: score() of several models"),
    "intervals": (("bootstrap",), "a result of bootstrap() or half_samples()"),
    "degradation_curve": (("sweep",), "a result of a probe sweep"),
    "metric_table": (
        ("benchmark", "ranks"), "a result of embedding_benchmark() or rank_embeddings()"
    ),
}  # fmt: skip
"""Plot -> kinds of result that it suits, and how they are told."""


class PlotAccessor:
    """Plots of one result; what matplotlib draws into is returned.

    Parameters
    ----------
    result
        Result of any kind. ``dir()`` and tab completion list the plots that suit it; any other
        one says, when it is called, what kind of result it needs.
    """

    def __init__(self, result: Any) -> None:
        self._result = result

    def __repr__(self) -> str:
        return f"<plots of this result: {', '.join(self._suited()) or 'none'}>"

    def __dir__(self) -> list[str]:
        suited = self._suited()
        return [name for name in super().__dir__() if name not in _NEEDS or name in suited]

    def _suited(self) -> list[str]:
        """Names of the plots that suit the result."""
        kind = kind_of(self._result)
        found = [name for name, (kinds, _) in _NEEDS.items() if kind in kinds]
        if kind != "result":
            return found
        nodes = inputs.nodes_of(self._result)
        croma = nodes.get("CRoMa")
        unfit = {
            "m_sweep": croma is None or croma.sizes.get("m", 1) < 2,
            "pareto": croma is None or "model" not in croma.dims,
            "k_curve": not nodes.keys() & {"RI", "MaRI"},
        }
        return [name for name in found if not unfit.get(name, False)]

    def _of(self, name: str) -> Any:
        """Return the result, if it is of a kind that the plot is drawn of."""
        kinds, needed = _NEEDS[name]
        found = kind_of(self._result)
        if found not in kinds:
            suited = ", ".join(self._suited())
            there = f"these plots: {suited}" if suited else "no plots"
            raise SchemaError(
                f"{name} is drawn of {needed}; this is {KINDS[found]}, of which there are {there}"
            )
        return self._result

    def margins(
        self,
        *,
        metric: str = "CRoMa",
        m: int | None = None,
        model: str | Sequence[str] | None = None,
        by: str | None = None,
        bins: int | Sequence[float] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the distribution of sample values: see :func:`croma_dask.plotting.margins`."""
        from croma_dask.plotting.distributions import margins

        return margins(
            self._of("margins"), metric=metric, m=m, model=model, by=by, bins=bins, ax=ax
        )

    def m_sweep(
        self,
        variable: str = "value",
        *,
        model: str | Sequence[str] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw CRoMa against m: see :func:`croma_dask.plotting.m_sweep`."""
        from croma_dask.plotting.curves import m_sweep

        return m_sweep(self._of("m_sweep"), variable, model=model, ax=ax)

    def k_curve(
        self,
        metrics: Sequence[str] | str = ("RI", "MaRI"),
        *,
        balanced_accuracy: bool = False,
        model: str | Sequence[str] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw RI and MaRI against the candidate k: see :func:`croma_dask.plotting.k_curve`."""
        from croma_dask.plotting.curves import k_curve

        return k_curve(
            self._of("k_curve"), metrics, balanced_accuracy=balanced_accuracy, model=model, ax=ax
        )

    def cells(
        self,
        variable: str = "median_value",
        *,
        metric: str = "CRoMa",
        m: int | None = None,
        model: str | None = None,
        numbers: bool = True,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw a heat map of label x confounder: see :func:`croma_dask.plotting.cells`."""
        from croma_dask.plotting.cell_map import cells

        return cells(
            self._of("cells"), variable, metric=metric, m=m, model=model, numbers=numbers, ax=ax
        )

    def pareto(
        self,
        *,
        m: int | None = None,
        model: str | Sequence[str] | None = None,
        bootstrap: Any = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw value against lower tail: see :func:`croma_dask.plotting.pareto`."""
        from croma_dask.plotting.front import pareto

        return pareto(self._of("pareto"), m=m, model=model, bootstrap=bootstrap, ax=ax)

    def intervals(
        self,
        statistic: str = "value",
        *,
        metric: str = "CRoMa",
        m: int | None = None,
        model: str | Sequence[str] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the intervals of a bootstrap: see :func:`croma_dask.plotting.intervals`."""
        from croma_dask.plotting.forest import intervals

        return intervals(self._of("intervals"), statistic, metric=metric, m=m, model=model, ax=ax)

    def degradation_curve(
        self,
        *,
        test_set: str = IN_DOMAIN,
        ax: Axes | None = None,
        band: bool = True,
        label: str | None = None,
    ) -> Axes:
        """Draw a probe sweep: see :func:`croma_dask.plotting.degradation_curve`."""
        from croma_dask.plotting.degradation import degradation_curve

        return degradation_curve(
            self._of("degradation_curve"), test_set=test_set, ax=ax, band=band, label=label
        )

    def metric_table(
        self, dataset: str | None = None, *, ranks: bool = True, ax: Axes | None = None
    ) -> Axes:
        """Draw a table of methods by metrics: see :func:`croma_dask.plotting.metric_table`."""
        from croma_dask.plotting.heat_table import metric_table

        return metric_table(self._of("metric_table"), dataset, ranks=ranks, ax=ax)
