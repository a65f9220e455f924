"""RI, MaRI and CRoMa under the names and arguments of the reference, on arrays and cohorts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import schema
from croma_dask.cohort.manifest import ColumnNames
from croma_dask.index.spec import ListSpec
from croma_dask.options import merged
from croma_dask.robustness import index_scores
from croma_dask.robustness.arguments import check_k
from croma_dask.robustness.evaluate import (
    Request,
    active_client,
    evaluate,
    prepare,
    searched,
)
from croma_dask.robustness.tau import check_tau, resolve_tau, typed_median

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["RI", "CRoMa", "MaRI"]


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

        Returns
        -------
        xarray.Dataset
            `value`, `pair_values (subset)`, `sample_values (sample)`, `curve (k_candidate)`, ... as
            :data:`croma_dask.schema.METRICS` declares them, in [0, 1], neutral at 0.5; the
            operating k is the scalar coordinate `k`. `std` is a method of Dataset: read ``result["std"]``.

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
        request = Request.of("RI", k_candidates=k_candidates)
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
        return _curve(
            "RI", features, manifest, confounder_column, k_values, evaluation_design,
            skip_incomplete, None,
        )  # fmt: skip


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
        request = Request.of("MaRI", k_candidates=k_candidates, tau=tau, warn_tau=warn_tau)
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
        return _curve(
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
            found = searched(inputs, ListSpec(k, 0), merged(), active_client(), keep)
            return typed_median(inputs.scopes, found.neighbors, k)


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
            on_undefined=on_undefined,
        )  # fmt: skip
        return evaluate(
            features, manifest, ColumnNames(confounder_column), evaluation_design, request,
            skip_incomplete=skip_incomplete,
        )["CRoMa"]  # fmt: skip


def _curve(
    name: str, features: Any, manifest: Any, confounder_column: str, k_values: Sequence[int],
    evaluation_design: str, skip_incomplete: bool, tau: float | None,
) -> xr.Dataset:  # fmt: skip
    import xarray as xr

    ks = check_k(k_values, "k_values")
    inputs = prepare(
        features, manifest, ColumnNames(confounder_column), evaluation_design,
        skip_incomplete=skip_incomplete,
    )  # fmt: skip
    with contextlib.ExitStack() as keep:
        found = searched(inputs, ListSpec(max(ks), 0), merged(), active_client(), keep)
        counts = [
            index_scores.count_neighbors(scope, neighbors, ks)
            for scope, neighbors in zip(inputs.scopes, found.neighbors, strict=True)
        ]
        k = ks[0]
        if name == "MaRI" and tau is None:
            k = index_scores.choose(counts, ks, paired=inputs.design == "paired_2x2").k
            median = typed_median(inputs.scopes, found.neighbors, k)
            tau = resolve_tau(None, median, warn=False)
        score = index_scores.score_index(
            inputs.scopes, found.neighbors, counts, k, ks, inputs.manifest.n_rows, tau
        )
    data: dict[str, Any] = {"value": (("k",), score.curve, schema.CURVE.attrs())}
    if tau is not None:
        data["tau"] = ((), tau, schema.METRICS["MaRI"]["tau"].attrs())
    attrs = {
        "metric": name,
        "evaluation_design": inputs.design,
        "dataset": inputs.manifest.dataset,
        "embedding_fingerprint": found.fingerprint,
    }
    k_attrs = {"long_name": "number of neighbours", "units": "1"}
    coords = {"k": (("k",), np.asarray(ks, np.int64), k_attrs)}
    return xr.Dataset(data, coords, attrs)
