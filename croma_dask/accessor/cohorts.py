"""What `.croma` has for cohorts: it forwards, and does nothing itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import xarray as xr

from croma_dask.accessor.base import Accessor

if TYPE_CHECKING:
    from croma_dask.embedding.plan import BenchmarkPlan
    from croma_dask.plan import Plan
    from croma_dask.probe.layout import SweepLayout

__all__ = ["CohortAccessor"]


class CohortAccessor(Accessor):
    """Score, plan or explain a cohort, which is a Dataset."""

    def score(
        self,
        *,
        confounder: str,
        design: str = "all",
        metrics: Sequence[str] | str = ("RI", "MaRI", "CRoMa"),
        k_candidates: Sequence[int] = (5, 11, 21, 51),
        m: int | Sequence[int] = 5,
        alpha: float = 0.1,
        tau: float | None = None,
        warn_tau: bool = True,
        on_undefined: str = "report",
        skip_incomplete: bool = False,
        label: str = "label",
        group: str = "group_id",
        sample_id: str = "sample_id",
        subset: str = "subset",
        index: Any = "exact",
        recall: float = 0.98,
        probes: int | None = None,
        calibration: int = 1000,
        seed: int = 0,
        start_k: int = 200,
        k_growth_factor: float = 2.0,
        keep_neighbors: str | os.PathLike[str] | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        scratch: str | None = None,
        resume: bool | None = None,
        keep_scratch: bool | None = None,
        quiet: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        client: Any = None,
    ) -> xr.DataTree:
        """Score this cohort: see :func:`croma_dask.score`."""
        from croma_dask.score import score

        return score(
            self._of("score"), confounder=confounder, design=design, metrics=metrics,
            k_candidates=k_candidates, m=m, alpha=alpha, tau=tau, warn_tau=warn_tau,
            on_undefined=on_undefined, skip_incomplete=skip_incomplete, label=label, group=group,
            sample_id=sample_id, subset=subset, index=index, recall=recall, probes=probes,
            calibration=calibration, seed=seed, start_k=start_k,
            k_growth_factor=k_growth_factor, keep_neighbors=keep_neighbors, memory=memory,
            threads=threads, scratch=scratch, resume=resume, keep_scratch=keep_scratch,
            quiet=quiet, storage_options=storage_options, client=client,
        )  # fmt: skip

    def plan(
        self,
        *,
        confounder: str,
        design: str = "all",
        metrics: Sequence[str] | str = ("RI", "MaRI", "CRoMa"),
        k_candidates: Sequence[int] = (5, 11, 21, 51),
        m: int | Sequence[int] = 5,
        skip_incomplete: bool = False,
        label: str = "label",
        group: str = "group_id",
        sample_id: str = "sample_id",
        subset: str = "subset",
        index: Any = "exact",
        memory: int | str | None = None,
        threads: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        client: Any = None,
    ) -> Plan:
        """Tell what scoring this cohort will cost: see :func:`croma_dask.plan`."""
        from croma_dask.plan import plan

        # One cohort, one plan: panels are planned by the function.
        found = plan(
            self._of("plan"), confounder=confounder, design=design, metrics=metrics,
            k_candidates=k_candidates, m=m, skip_incomplete=skip_incomplete, label=label,
            group=group, sample_id=sample_id, subset=subset, index=index, memory=memory,
            threads=threads, storage_options=storage_options, client=client,
        )  # fmt: skip
        return cast("Plan", found)

    def probe_sweep(
        self,
        *,
        confounder: str,
        label: str = "label",
        schedule: str | Sequence[Any],
        rows_per_slide: int | None = None,
        slide: str | None = None,
        confounder_order: Sequence[str] | None = None,
        label_order: Sequence[str] | None = None,
        test_sets: Mapping[str, Any] | None = None,
        iterations: int = 20,
        seed: int = 1000,
        validation_fraction: float | None = None,
        arrange_slides: Any = None,
        client: Any = None,
        **options: Any,
    ) -> xr.Dataset:
        """Tell what confounding costs: see :func:`croma_dask.probe.cohorts.sweep_cohort`."""
        from croma_dask.probe.cohorts import sweep_cohort

        return sweep_cohort(
            self._of("probe_sweep"), confounder=confounder, label=label, schedule=schedule,
            rows_per_slide=rows_per_slide, slide=slide, confounder_order=confounder_order,
            label_order=label_order, test_sets=test_sets, iterations=iterations, seed=seed,
            validation_fraction=validation_fraction, arrange_slides=arrange_slides,
            client=client, **options,
        )  # fmt: skip

    def plan_probe_sweep(self, *, client: Any = None, **arguments: Any) -> SweepLayout:
        """Tell what that costs: see :func:`croma_dask.probe.cohorts.plan_probe_sweep`."""
        from croma_dask.probe.cohorts import plan_probe_sweep

        return plan_probe_sweep(self._of("plan_probe_sweep"), client=client, **arguments)

    def embedding_benchmark(
        self, *, label: str = "cell_type", batch: str | None = None, **arguments: Any
    ) -> xr.Dataset:
        """Score this cohort as an embedding: see :func:`croma_dask.embedding_benchmark`."""
        from croma_dask.embedding.benchmark import embedding_benchmark

        return embedding_benchmark(
            self._of("embedding_benchmark"), label=label, batch=batch, **arguments
        )

    def plan_embedding_benchmark(
        self, *, label: str = "cell_type", batch: str | None = None, **arguments: Any
    ) -> BenchmarkPlan:
        """Tell what that costs: see :func:`croma_dask.plan_embedding_benchmark`."""
        from croma_dask.embedding.plan import plan_embedding_benchmark

        return plan_embedding_benchmark(
            self._of("plan_embedding_benchmark"), label=label, batch=batch, **arguments
        )

    def explain(
        self,
        sample_id: str,
        *,
        neighbors: str | os.PathLike[str] | None = None,
        confounder: str | None = None,
        subset: str | None = None,
        k: int | None = None,
        m: int | None = None,
        tau: float | None = None,
        design: str | None = None,
        skip_incomplete: bool = False,
        label: str | None = None,
        group: str | None = None,
        id_column: str = "sample_id",
        subset_column: str = "subset",
        storage_options: Mapping[str, Any] | None = None,
    ) -> xr.Dataset:
        """Show the neighbours of one sample: see :func:`croma_dask.explain`."""
        from croma_dask.breakdown import explain

        return explain(
            self._of("explain"), sample_id, neighbors=neighbors, confounder=confounder,
            subset=subset, k=k, m=m, tau=tau, design=design, skip_incomplete=skip_incomplete,
            label=label, group=group, id_column=id_column, subset_column=subset_column,
            storage_options=storage_options,
        )  # fmt: skip
