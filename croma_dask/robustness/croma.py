"""CRoMa, the cross-confounder robustness margin, under the name and arguments of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from croma_dask.cohort.manifest import ColumnNames
from croma_dask.robustness.evaluate import evaluate
from croma_dask.robustness.request import Request

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["CRoMa"]


class CRoMa:
    """Cross-confounder robustness margin: how much nearer biology is than the confounder.

    For a sample, d_SO and d_OS are the mean distances of its m nearest neighbours of the same label
    and another confounder, and of another label and the same confounder, however far they are. The
    margin is (d_OS - d_SO) / (d_OS + d_SO); CRoMa is its median.
    """

    @staticmethod
    def compute(
        features: Any,
        manifest: Any = None,
        *,
        confounder_column: str,
        evaluation_design: str = "all",
        m: int | Sequence[int] = 5,
        alpha: float = 0.1,
        start_k: int = 200,
        k_growth_factor: float = 2.0,
        on_undefined: str = "report",
        skip_incomplete: bool = False,
        index: Any = "exact",
    ) -> xr.Dataset:
        """Score a cohort.

        Parameters
        ----------
        features, manifest, confounder_column, evaluation_design, skip_incomplete
            As in :meth:`RI.compute`.
        m
            Neighbours of each type that a distance is averaged over; a list is swept in one search.
        alpha
            Tail for `q_alpha` and `ltm_alpha`, in [0, 1].
        start_k, k_growth_factor
            Radius of an approximate search; an exact one needs none.
        on_undefined
            ``report``: units without m candidates of a type are NaN, counted in `undefined_frac`
            and left out. ``raise``: they raise, before any distance is computed.
        index
            ``exact``, ``ivf``, ``pynndescent``, ``auto``, or an index: as in
            :func:`croma_dask.score`, which has the arguments that tune it.

        Returns
        -------
        xarray.Dataset
            `value`, `sample_values (sample)`, `f0`, ... in [-1, 1], neutral at 0; with a list of
            radii everything has the dimension `m` first, with an int `m` is a scalar coordinate.

        Raises
        ------
        SchemaError, SupportError, MemoryLimitError
            As :meth:`RI.compute`; SupportError also with ``on_undefined="raise"``.
        """
        request = Request.of(
            "CRoMa", m=m, alpha=alpha, start_k=start_k, k_growth_factor=k_growth_factor,
            on_undefined=on_undefined, index=index,
        )  # fmt: skip
        return evaluate(
            features, manifest, ColumnNames(confounder_column), evaluation_design, request,
            skip_incomplete=skip_incomplete,
        )["CRoMa"]  # fmt: skip
