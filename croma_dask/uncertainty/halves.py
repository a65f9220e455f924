"""How sure a result is with its neighbours: random halves of the groups, scored by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.errors import SchemaError, SupportError, collecting, name_items
from croma_dask.panel.models import as_panel, datasets_of, is_panel, names_of
from croma_dask.schema_uncertainty import RESAMPLED
from croma_dask.uncertainty.compare import compare_spread, spread
from croma_dask.uncertainty.groups import Groups
from croma_dask.uncertainty.label import (
    check_level,
    check_nodes,
    check_whole,
    describe,
    tree_of_draws,
)

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["half_samples"]

F64 = NDArray[np.float64]


def half_samples(
    result: xr.Dataset | xr.DataTree,
    cohort: Any,
    manifest: Any = None,
    *,
    n_pairs: int = 10,
    seed: int = 0,
    level: float = 0.95,
    keep_draws: bool = False,
    **options: Any,
) -> xr.DataTree:
    """Tell how sure a result is, its neighbours included: score random halves of the groups.

    :func:`croma_dask.bootstrap` holds the neighbours of a row fixed, and so leaves out that another
    cohort would have had other neighbours: its intervals are too narrow for statements about
    cohorts to come. Here the groups are split at random, and each half is scored by itself, with
    neighbours of that half. Half of the groups, drawn without replacement, vary among one another
    as whole cohorts do. That takes `n_pairs` times half of the search of the whole.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` returned for the cohort, of one model or a panel.
    cohort, manifest
        As they were scored; for a panel a mapping of its models to their cohorts.
    n_pairs
        Random splits; each gives two halves.
    seed
        Split s takes the groups ``numpy.random.default_rng([seed, s]).permutation(G)`` of the G
        groups in ascending order, the first half and the rest.
    level
        Of the intervals, in (0, 1).
    keep_draws
        Keep the statistics of all halves, as ``<statistic>_draws``, moved so that their mean is the
        value of the whole cohort.
    **options
        Further arguments of ``score``. The columns, the design, the metrics, k, m, alpha and a
        pinned tau are those of the result; an index, and names of the columns ``sample_id`` and
        ``subset`` have to be given again.

    Returns
    -------
    xarray.DataTree
        The variables of :func:`croma_dask.bootstrap`. Intervals are the value and so many standard
        errors to both sides (Student's t); `_better` is the probability that goes with that.

    Raises
    ------
    SchemaError
        The cohort is not that of the result, or an argument is out of its range.
    SupportError
        Half of the groups cannot be scored by themselves: there are too few.

    Notes
    -----
    Only the spread of the halves is used: what they are on average differs a little from the whole
    cohort, whose neighbours are nearer. Memory and scratch are those of ``score``.
    """
    from croma_dask.score import score

    check_whole(n_pairs=(n_pairs, 2), seed=(seed, 0))
    check_level(level)
    nodes = datasets_of(as_panel(result))
    check_nodes(nodes)
    groups = Groups.of(nodes)
    request = _request(nodes) | options
    parts = _of_models(result, cohort)
    drawn: dict[str, dict[str, list[F64]]] = {
        metric: {statistic: [] for statistic in RESAMPLED[metric]} for metric in nodes
    }
    for chosen in _halves(groups, n_pairs, seed):
        rows = np.flatnonzero(chosen)
        half = {name: _rows(part, manifest, rows, groups) for name, part in parts.items()}
        # What there is to warn of was told of the whole cohort.
        with collecting():
            try:
                found = {name: score(*part, **request) for name, part in half.items()}
            except (SupportError, SchemaError) as err:
                raise SupportError(
                    f"half of the {groups.count} groups cannot be scored by themselves: {err}. "
                    "Where groups are few, a half may lack a label or a confounder level"
                ) from err
        for metric, statistics in drawn.items():
            for statistic, values in statistics.items():
                values.append(
                    np.stack([np.atleast_1d(tree[metric][statistic]) for tree in found.values()])
                )
    moved = {
        metric: {
            statistic: _moved(np.array(values, np.float64), nodes[metric][statistic].values)
            for statistic, values in statistics.items()
        }
        for metric, statistics in drawn.items()
    }
    about = describe(
        nodes, n_draws=2 * n_pairs, seed=seed, level=level, n_groups=groups.count,
        interval="half samples, Student's t", neighbors="of each half",
    )  # fmt: skip
    return tree_of_draws(result, nodes, moved, about, spread, compare_spread, keep_draws=keep_draws)


def _moved(draws: F64, values: NDArray[Any]) -> F64:
    """Move the halves so that their mean is the value of the whole; NaN stays."""
    known = ~np.isnan(draws)
    mean = np.where(known, draws, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    moved: F64 = draws - mean + values.reshape(draws.shape[1:])
    return moved


def _halves(groups: Groups, n_pairs: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Yield which rows are in each half."""
    for at in range(n_pairs):
        order = np.random.default_rng([seed, at]).permutation(groups.count)
        first = np.zeros(groups.count + 1, np.bool_)
        first[order[: groups.count // 2]] = True
        # The last one is that of code -1: rows that were not scored are in no half.
        rest = ~first
        rest[-1] = False
        yield first[groups.code]
        yield rest[groups.code]


def _of_models(result: Any, cohort: Any) -> dict[str, Any]:
    """Cohort of each model."""
    if not is_panel(result):
        return {"": cohort}
    names = names_of(result)
    if not isinstance(cohort, Mapping) or hasattr(cohort, "data_vars"):
        raise SchemaError(
            f"the result is a panel: give a mapping of its models ({name_items(names)}) to their "
            f"cohorts; found a {type(cohort).__name__}"
        )
    missing = [name for name in names if name not in cohort]
    if missing:
        raise SchemaError(f"there is no cohort of the model {name_items(missing)}")
    return {name: cohort[name] for name in names}


def _rows(cohort: Any, manifest: Any, rows: NDArray[Any], groups: Groups) -> tuple[Any, Any]:
    """Rows of a cohort, as `score` takes them."""
    from croma_dask.cohort.open import cohort_of, open_cohort

    n = groups.code.shape[0]
    if isinstance(manifest, type(None)):
        opened = cohort if hasattr(cohort, "data_vars") else open_cohort(cohort)
        _check_length(opened.sizes.get("sample", -1), n)
        return opened.isel(sample=rows), None
    array = cohort_of(cohort)
    _check_length(array.shape[0], n)
    _check_length(len(manifest), n)
    return array[rows], manifest.iloc[rows].reset_index(drop=True)


def _check_length(found: int, expected: int) -> None:
    if found != expected:
        raise SchemaError(
            f"the cohort has {found} rows and the result {expected}: give the cohort that was "
            "scored"
        )


def _request(nodes: Mapping[str, xr.Dataset]) -> dict[str, Any]:
    """Read the arguments of `score` from a result."""
    first = next(iter(nodes.values()))
    found: dict[str, Any] = {
        "confounder": first.attrs["confounder_column"],
        "label": first.attrs["label_column"],
        "group": first.attrs["group_column"],
        "design": first.attrs["evaluation_design"],
        "metrics": list(nodes),
        "skip_incomplete": first.attrs["evaluation_design"] != "all",
    }
    for metric, dataset in nodes.items():
        if metric != "CRoMa":
            found["k_candidates"] = dataset["k_candidate"].values.tolist()
            if dataset.attrs.get("tau_choice") == "pinned":
                # Of a panel it is the same for all models.
                found["tau"] = float(dataset["tau"].values.flat[0])
            continue
        m = dataset["m"].values
        found |= {"m": m.tolist() if m.ndim else int(m), "alpha": dataset.attrs["alpha"]}
    return found
