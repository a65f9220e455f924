"""MaRI, the margin-aware robustness index, under the name and arguments of the reference."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from croma_dask.cluster import active_client
from croma_dask.cohort.manifest import ColumnNames
from croma_dask.index.spec import ListSpec
from croma_dask.options import merged
from croma_dask.robustness.arguments import check_k
from croma_dask.robustness.curve import curve_of
from croma_dask.robustness.evaluate import evaluate, searched
from croma_dask.robustness.request import Request, prepare
from croma_dask.robustness.tau import check_tau, typed_median

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["MaRI"]


class MaRI:
    """Margin-aware robustness index: RI with neighbours weighed by exp(-distance / tau)."""

    @staticmethod
    def compute(
        features: Any,
        manifest: Any = None,
        *,
        confounder_column: str,
        k_candidates: Sequence[int],
        tau: float | None = None,
        evaluation_design: str = "all",
        warn_tau: bool = True,
        skip_incomplete: bool = False,
        index: Any = "exact",
    ) -> xr.Dataset:
        """Score a cohort.

        Parameters
        ----------
        features, manifest, confounder_column, k_candidates, evaluation_design, skip_incomplete
            As in :meth:`RI.compute`.
        tau
            Bandwidth, a cosine distance above 0. None: the median distance of the typed neighbours
            within the operating k.
        warn_tau
            Warn when a pinned tau is more than a factor of 4 from that median.
        index
            ``exact``, ``ivf``, ``pynndescent``, ``auto``, or an index: as in
            :func:`croma_dask.score`, which has the arguments that tune it.

        Returns
        -------
        xarray.Dataset
            As :meth:`RI.compute`, with `tau`.

        Raises
        ------
        SchemaError, SupportError, MemoryLimitError
            As :meth:`RI.compute`; also a tau that is not above 0.

        Warns
        -----
        RuntimeWarning
            tau falls back to 0.2 (no typed neighbour, or a median of 0), or is far off.
        """
        request = Request.of(
            "MaRI", k_candidates=k_candidates, tau=tau, warn_tau=warn_tau, index=index
        )
        return evaluate(
            features, manifest, ColumnNames(confounder_column), evaluation_design, request,
            skip_incomplete=skip_incomplete,
        )["MaRI"]  # fmt: skip

    @staticmethod
    def compute_curve(
        features: Any,
        manifest: Any = None,
        *,
        confounder_column: str,
        k_values: Sequence[int],
        tau: float | None = None,
        evaluation_design: str = "all",
        skip_incomplete: bool = False,
    ) -> xr.Dataset:
        """Pooled MaRI at every k, with one tau throughout.

        Parameters
        ----------
        features, manifest, confounder_column, k_values, evaluation_design, skip_incomplete
            As in :meth:`RI.compute_curve`.
        tau
            Bandwidth; None takes the median at the operating k chosen among `k_values`.

        Returns
        -------
        xarray.Dataset
            `value (k)` in [0, 1] and the scalar `tau`.
        """
        return curve_of(
            "MaRI", features, manifest, confounder_column, k_values, evaluation_design,
            skip_incomplete, check_tau(tau),
        )  # fmt: skip

    @staticmethod
    def recommend_tau(
        features: Any,
        manifest: Any = None,
        *,
        confounder_column: str,
        k: int,
        evaluation_design: str = "all",
        skip_incomplete: bool = False,
    ) -> float:
        """Median cosine distance of all typed neighbours within k.

        Returns
        -------
        float
            In [0, 2]; NaN without a typed neighbour, 0.0 where the median is 0.
        """
        (k,) = check_k([k], "k")
        inputs = prepare(
            features, manifest, ColumnNames(confounder_column), evaluation_design,
            skip_incomplete=skip_incomplete,
        )  # fmt: skip
        with contextlib.ExitStack() as keep:
            found = searched(inputs, ListSpec(k, 0), 0, merged(), active_client(), keep)
            return typed_median(inputs.scopes, found.neighbors, k)
