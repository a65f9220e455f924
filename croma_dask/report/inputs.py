"""What a report is made of: results of a score, of probe sweeps, of embedding benchmarks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.errors import SchemaError, name_items
from croma_dask.kinds import KINDS, kind_of
from croma_dask.panel.models import as_panel, datasets_of, is_panel, tree_of
from croma_dask.panel.names import result_name
from croma_dask.results.whole import told_if_incomplete

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Material", "gather"]

_EXPECTED = "a report is made of results of score(), of probe sweeps and of embedding benchmarks"

_FEW = 4_000_000
"""Margins, of all models and m, that are read at once: 32 MB."""


@dataclass
class Material:
    """Results by kind.

    Attributes
    ----------
    panel
        Of one model or several, as :func:`croma_dask.panel.models.as_panel` gives it; None where
        no scored cohort is among the results.
    named
        Whether the models have names that somebody chose.
    sweeps, benchmarks
        By name.
    given
        All of them, as they were given.
    """

    panel: xr.DataTree | None = None
    named: bool = False
    sweeps: dict[str, xr.Dataset] = field(default_factory=dict)
    benchmarks: dict[str, xr.Dataset] = field(default_factory=dict)
    given: list[Any] = field(default_factory=list)

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Say which of them lacks what, where something fails within the block because of that."""
        with contextlib.ExitStack() as all_of_them:
            for result in self.given:
                all_of_them.enter_context(told_if_incomplete(result))
            yield


def gather(results: Any, storage_options: Mapping[str, Any] | None = None) -> Material:
    """Open results, tell their kinds apart, and put those of one cohort together.

    Parameters
    ----------
    results
        One result or its place, a sequence of them, or a mapping of names to them.
    storage_options
        Options of the fsspec file system of places that are URLs.

    Raises
    ------
    SchemaError
        There is none; one is of another kind; scored results are not of the same rows.
    StoreError
        A file is no result.
    """
    from croma_dask.panel.combine import combine_results

    material = Material()
    scored: dict[str, Any] = {}
    for name, result in _named(results, storage_options):
        kind = _checked(result, name)
        material.given.append(result)
        if kind == "sweep":
            material.sweeps[_free(name or "probe sweep", material.sweeps)] = result
        elif kind == "benchmark":
            material.benchmarks[_free(name or "embedding benchmark", material.benchmarks)] = result
        else:
            scored[_free(name or "embedding", scored)] = result
            material.named |= name is not None
    with material.told():
        if len(scored) == 1:
            ((name, result),) = scored.items()
            material.named |= is_panel(result)
            material.panel = _with_texts(as_panel(result, name))
        elif scored:
            material.panel, material.named = _with_texts(as_panel(combine_results(scored))), True
    return material


def _with_texts(panel: xr.DataTree) -> xr.DataTree:
    """Read once what is asked for often: what the samples are, and what is not of samples.

    So are margins while all of them are few; more are read model by model. Ids stay where they are.
    Equal texts become one object: 8 bytes a sample and column.
    """
    import pandas as pd

    nodes = datasets_of(panel)
    first = next(iter(nodes.values()))
    read = {}
    for name in ("label", "confounder", "group_id", "sample_subset"):
        variable = first.variables[name]
        if variable.chunks is not None:
            codes, levels = pd.factorize(np.asarray(variable.values, dtype=object))
            read[name] = (variable.dims, np.asarray(levels, dtype=object)[codes], variable.attrs)
    found = {}
    for metric, node in nodes.items():
        small = {"undefined_type", *(["sample_values"] if metric == "CRoMa" else [])}
        # As variables: what is asked of a Dataset brings its ids with it.
        loaded = {
            name: variable.compute()
            for name, variable in node.variables.items()
            if variable.chunks is not None
            and ("sample" not in variable.dims or (name in small and variable.size <= _FEW))
        }
        found[metric] = node.assign_coords(read).assign(loaded)
    return tree_of(
        found,
        {str(name): value for name, value in panel.attrs.items()},
    )


def _named(
    results: Any, storage_options: Mapping[str, Any] | None
) -> list[tuple[str | None, Any]]:  # fmt: skip
    """Name (None: nobody gave one) and opened result."""
    import xarray as xr

    if isinstance(results, xr.Dataset | xr.DataTree | str | os.PathLike):
        results = [results]
    if isinstance(results, Mapping):
        pairs: list[tuple[str | None, Any]] = [(str(k), v) for k, v in results.items()]
    elif isinstance(results, Sequence):
        pairs = [(result_name(r) if isinstance(r, str | os.PathLike) else None, r) for r in results]
    else:
        raise SchemaError(f"{_EXPECTED}; found {type(results).__name__}")
    if not pairs:
        raise SchemaError(f"{_EXPECTED}; found none")
    return [(name, _opened(result, storage_options)) for name, result in pairs]


def _opened(result: Any, storage_options: Mapping[str, Any] | None) -> Any:
    if not isinstance(result, str | os.PathLike):
        return result
    from croma_dask.results import open_result

    return open_result(result, storage_options=storage_options)


def _checked(result: Any, name: str | None) -> str:
    """Kind of a result that a report can show.

    Raises
    ------
    SchemaError
        It cannot.
    """
    import xarray as xr

    what = "a result" if name is None else f"result {name!r}"
    if not isinstance(result, xr.Dataset | xr.DataTree):
        raise SchemaError(f"{_EXPECTED}; {what} is a {type(result).__name__}")
    kind = kind_of(result)
    if kind not in ("result", "sweep", "benchmark"):
        hint = {
            "bootstrap": ": give the result that it was made of, the report draws for itself",
            "breakdown": ": give the result that it was made of, the report breaks it down itself",
            "explanation": ": give the result that it was made of",
            "ranks": ": give the embedding benchmark that was ranked",
            "cohort": ": score it first",
        }.get(kind, "")
        raise SchemaError(f"{_EXPECTED}; {what} is {KINDS[kind]}{hint}")
    if kind == "result":
        for metric, dataset in datasets_of(result).items():
            missing = {"value", "sample_values"} - set(map(str, dataset.data_vars))
            if missing:
                raise SchemaError(
                    f"{_EXPECTED}; {what} has no {name_items(sorted(missing))} of {metric}"
                )
    return kind


def _free(name: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name} ({number})" in taken:
        number += 1
    return f"{name} ({number})"
