"""The accessor `.croma` of Datasets and DataTrees: it forwards, and does nothing itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import xarray as xr

from croma_dask.kinds import KINDS, Kind, kind_of

if TYPE_CHECKING:
    import pandas as pd

    from croma_dask.embedding.plan import BenchmarkPlan
    from croma_dask.plan import Plan
    from croma_dask.plotting.accessor import PlotAccessor
    from croma_dask.probe.layout import SweepLayout

__all__ = ["CromaDatasetAccessor", "CromaTreeAccessor"]

_COHORT: tuple[Kind, ...] = ("cohort",)
_RESULT: tuple[Kind, ...] = ("result",)
_SUMMARISED: tuple[Kind, ...] = ("result", "sweep", "benchmark")
_DRAWN: tuple[Kind, ...] = (*_SUMMARISED, "bootstrap", "ranks")
_SAVED: tuple[Kind, ...] = (*_DRAWN, "breakdown", "explanation")

_FOR: dict[str, tuple[Kind, ...]] = {
    "score": _COHORT,
    "plan": _COHORT,
    "probe_sweep": _COHORT,
    "plan_probe_sweep": _COHORT,
    "embedding_benchmark": _COHORT,
    "plan_embedding_benchmark": _COHORT,
    "explain": _COHORT,
    "summary": _SUMMARISED,
    "to_frame": (*_SUMMARISED, "bootstrap"),
    "save": _SAVED,
    "plot": _DRAWN,
    "bootstrap": _RESULT,
    "breakdown": _RESULT,
    "worst_groups": _RESULT,
    "report": _RESULT,
}
"""Method -> kinds of object that it is for, as :func:`croma_dask.kinds.kind_of` tells them."""


class _Accessor:
    """What Datasets and DataTrees have in common: all that is for results."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def _of(self, name: str) -> Any:
        """Return the object, if `name` is for such as it is."""
        from croma_dask.errors import SchemaError

        kind = kind_of(self._data)
        # What is not known is left to the function, which says what it misses.
        if kind == "unknown" or kind in _FOR[name]:
            return self._data
        meant = " or ".join(KINDS[other] for other in _FOR[name])
        here = ", ".join(other for other in dir(self) if other in _FOR)
        raise SchemaError(
            f"this is {KINDS[kind]}; .croma.{name} is for {meant}. What it has here: {here}"
        )

    def __dir__(self) -> list[str]:
        """Name what there is for such an object, and nothing else of this class."""
        kind = kind_of(self._data)
        return [
            name
            for name in super().__dir__()
            if name not in _FOR or kind == "unknown" or kind in _FOR[name]
        ]

    def __repr__(self) -> str:
        """Show the object at a glance: a table of a result, shape and counts of a cohort."""
        from croma_dask.notebook import describe_text

        return describe_text(self._data)

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        from croma_dask.notebook import describe_html

        return describe_html(self._data)

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

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write this result, whole or not at all: see :func:`croma_dask.results.save`."""
        from croma_dask.results import save

        save(self._of("save"), path, overwrite=overwrite)

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
    ) -> Path:
        """Write this result as a page that opens offline: see :func:`croma_dask.report`."""
        from croma_dask.report import report

        return report(
            self._of("report"), path, title=title, n_draws=n_draws, seed=seed,
            overwrite=overwrite,
        )  # fmt: skip


@xr.register_dataset_accessor("croma")
class CromaDatasetAccessor(_Accessor):
    """Score, plan or explain a cohort; read, draw and save a result of one metric."""

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
            quiet=quiet, client=client,
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
        client: Any = None,
    ) -> Plan:
        """Tell what scoring this cohort will cost: see :func:`croma_dask.plan`."""
        from croma_dask.plan import plan

        # One cohort, one plan: panels are planned by the function.
        found = plan(
            self._of("plan"), confounder=confounder, design=design, metrics=metrics,
            k_candidates=k_candidates, m=m, skip_incomplete=skip_incomplete, label=label,
            group=group, sample_id=sample_id, subset=subset, index=index, memory=memory,
            threads=threads, client=client,
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
    ) -> xr.Dataset:
        """Show the neighbours of one sample: see :func:`croma_dask.explain`."""
        from croma_dask.breakdown import explain

        return explain(
            self._of("explain"), sample_id, neighbors=neighbors, confounder=confounder,
            subset=subset, k=k, m=m, tau=tau, design=design, skip_incomplete=skip_incomplete,
            label=label, group=group, id_column=id_column, subset_column=subset_column,
        )  # fmt: skip


@xr.register_datatree_accessor("croma")
class CromaTreeAccessor(_Accessor):
    """Read, draw, take apart and save a result of several metrics."""

    def __getattr__(self, name: str) -> Any:
        """Say of what is for cohorts, which are Datasets, that it is not for this."""
        from croma_dask.errors import SchemaError

        if name in _FOR:
            try:
                self._of(name)
            except SchemaError as error:
                raise AttributeError(str(error)) from None
        raise AttributeError(f"a DataTree's .croma has no attribute {name!r}")
