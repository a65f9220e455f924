"""RI, the robustness index, under the name and arguments of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from croma_dask.cohort.manifest import ColumnNames
from croma_dask.robustness.curve import curve_of
from croma_dask.robustness.evaluate import evaluate
from croma_dask.robustness.request import Request

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["RI"]


class RI:
    """Robustness index: the share of typed neighbours that share the biology.

    Among the first k neighbours of another group, those of the same label and another confounder
    (SO) speak for biology, those of another label and the same confounder (OS) against it; RI is
    SO / (SO + OS), summed over all samples. 1: only biology; 0.5: neither; 0: only the confounder.
    """

    @staticmethod
    def compute(
        features: Any,
        manifest: Any = None,
        *,
        confounder_column: str,
        k_candidates: Sequence[int],
        evaluation_design: str = "all",
        skip_incomplete: bool = False,
        index: Any = "exact",
    ) -> xr.Dataset:
        """Score a cohort.

        Parameters
        ----------
        features
            (N, D) numpy, memmap, dask or zarr array, DataArray, or a cohort as
            :func:`croma_dask.open_cohort` returns it. Need not be normalised.
        manifest
            One row a sample in the order of `features`, with `sample_id`, `label`, `group_id`, the
            confounder and (paired) `subset`. Left out with a cohort.
        confounder_column
            Name of the confounder column.
        k_candidates
            Candidates for the operating k, which is the one whose neighbours predict the label
            best.
        evaluation_design
            ``all`` or ``paired_2x2``.
        skip_incomplete
            Leave subsets that are no complete 2x2 out, with a warning.
        index
            ``exact``, ``ivf``, ``pynndescent``, ``auto``, or an index: as in
            :func:`croma_dask.score`, which has the arguments that tune it.

        Returns
        -------
        xarray.Dataset
            `value`, `pair_values (subset)`, `sample_values (sample)`, `curve (k_candidate)`, ... as
            :data:`croma_dask.schema.METRICS` declares them, in [0, 1], neutral at 0.5; the
            operating k is the scalar coordinate `k`. `std` is a method of Dataset: read
            ``result["std"]``.

        Raises
        ------
        SchemaError
            Bad input or arguments; says what, which rows, and what to change.
        SupportError
            No row has a neighbour, or every candidate k is too large.
        MemoryLimitError
            The search does not fit the allowed memory.

        Warns
        -----
        SupportWarning
            Some samples have no typed neighbour within k.
        InputWarning
            Zero rows.

        Notes
        -----
        Memory: as :func:`croma_dask.plan` says; set it with ``croma_dask.set_options(memory=)``.

        Examples
        --------
        >>> import numpy as np, pandas as pd
        >>> x = np.random.default_rng(0).normal(size=(60, 8))
        >>> frame = pd.DataFrame({
        ...     "sample_id": np.arange(60), "label": np.arange(60) % 2,
        ...     "group_id": np.arange(60), "center": np.arange(60) // 30,
        ... })
        >>> result = RI.compute(x, frame, confounder_column="center", k_candidates=[5, 11])
        >>> 0 <= float(result.value) <= 1
        True
        """
        request = Request.of("RI", k_candidates=k_candidates, index=index)
        return evaluate(
            features, manifest, ColumnNames(confounder_column), evaluation_design, request,
            skip_incomplete=skip_incomplete,
        )["RI"]  # fmt: skip

    @staticmethod
    def compute_curve(
        features: Any,
        manifest: Any = None,
        *,
        confounder_column: str,
        k_values: Sequence[int],
        evaluation_design: str = "all",
        skip_incomplete: bool = False,
    ) -> xr.Dataset:
        """Pooled RI at every k.

        Parameters
        ----------
        features, manifest, confounder_column, evaluation_design, skip_incomplete
            As in :meth:`compute`.
        k_values
            Where to take the curve. A k beyond the number of rows uses all neighbours.

        Returns
        -------
        xarray.Dataset
            `value (k)`, in [0, 1]. A Dataset, so that ``curve[5]`` raises instead of reading the
            position 5 as the k 5: write ``curve.value.sel(k=5)``.
        """
        return curve_of(
            "RI", features, manifest, confounder_column, k_values, evaluation_design,
            skip_incomplete, None,
        )  # fmt: skip
