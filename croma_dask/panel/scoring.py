"""Score several cohorts of the same rows, one after the other, into one panel."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from croma_dask import schema
from croma_dask.cohort.design import check_design
from croma_dask.cohort.location import Location
from croma_dask.cohort.manifest import ColumnNames
from croma_dask.errors import SchemaError, collecting
from croma_dask.options import merged
from croma_dask.panel.check import check_models
from croma_dask.panel.combine import embedding_of
from croma_dask.panel.finished import Finished, builds_of
from croma_dask.panel.models import tree_of
from croma_dask.panel.names import file_name
from croma_dask.panel.rows import same_embeddings, warn_same_embeddings
from croma_dask.panel.stack import Stack
from croma_dask.panel.told import Told
from croma_dask.robustness.evaluate import evaluate
from croma_dask.robustness.label import coords_of
from croma_dask.robustness.request import Request, prepare
from croma_dask.schema_panel import TREE

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["score_models"]


def score_models(
    cohorts: Mapping[str, Any], manifest: Any, names: ColumnNames, evaluation_design: str,
    request: Request, *, skip_incomplete: bool = False, client: Any = None,
    keep_neighbors: Location | None = None, **options: Any,
) -> xr.DataTree:  # fmt: skip
    """Score cohorts of the same rows, one after the other.

    Parameters
    ----------
    cohorts
        Model name to a cohort or an array.
    manifest, names, evaluation_design, request, skip_incomplete, client, options
        As of :func:`~croma_dask.robustness.evaluate.evaluate`.
    keep_neighbors
        Place in which each model has a folder of its own. A run that was interrupted goes on from
        these, and takes no results over.

    Returns
    -------
    xarray.DataTree
        The panel. Each model's numbers are those of scoring it alone, bit for bit.

    Raises
    ------
    SchemaError, StoreError, SupportError, MemoryLimitError
        As :func:`check_models` and scoring say; an error names its model.

    Notes
    -----
    Memory: what scoring one model takes, of the model that takes most, and the per-sample values of
    all. Each embedding is read as often as if it were scored alone.
    """
    settings = merged(**options)
    alone = len(cohorts) == 1
    models = check_models(cohorts, manifest, names, evaluation_design, request)
    kept = None if keep_neighbors is None else _folder_of_models(keep_neighbors)
    key = repr((request, names, check_design(evaluation_design), bool(skip_incomplete)))
    told, stack = Told(), Stack(list(cohorts))
    embeddings: dict[str, str] = {}
    with contextlib.ExitStack() as keep:
        # Neighbours that are kept serve as well, and those of each model have to be there.
        finished = Finished.of(settings, key, keep) if kept is None else Finished(None)
        try:
            for at, (name, cohort) in enumerate(cohorts.items()):
                builds = functools.partial(builds_of, cohort, request.how)
                taken = finished.take(models[name].cohort, builds)
                if not settings.quiet and not alone:
                    print(
                        f"model {at + 1} of {len(cohorts)}: {name}"
                        + (" (taken over from the run that was interrupted)" if taken else ""),
                        file=sys.stderr, flush=True,
                    )  # fmt: skip
                if taken is None:
                    folder = None if kept is None else kept.joined(file_name(name))
                    with told.of(name, alone=alone):
                        results = evaluate(
                            cohort, manifest, names, evaluation_design, request,
                            skip_incomplete=skip_incomplete, client=client,
                            keep_neighbors=folder, **options,
                        )  # fmt: skip
                    finished.put(models[name].cohort, results, told.said_of(name), builds)
                else:
                    results, said = taken
                    told.add(name, said)
                    if at == 0:
                        results = _with_samples(
                            results, cohort, manifest, names, evaluation_design, skip_incomplete
                        )
                embeddings[name] = embedding_of(results)
                stack.put(_tree(results))
                del results, taken
        except BaseException:
            told.tell_failed(len(cohorts))
            raise
        panel = stack.panel()
    told.tell(len(cohorts))
    early = same_embeddings({name: one.embedding for name, one in models.items()})
    warn_same_embeddings(group for group in same_embeddings(embeddings) if group not in early)
    return panel


def _tree(results: Mapping[str, xr.Dataset]) -> xr.DataTree:
    first = next(iter(results.values()))
    return tree_of(results, {name: first.attrs[name] for name in TREE})


def _folder_of_models(place: Location) -> Location:
    """Make the folder in which each model has its folder of kept neighbours."""
    if place.read_bytes("zarr.json") is not None:
        raise SchemaError(
            f"{str(place)!r} holds something of a single cohort; name another folder as "
            "keep_neighbors= (--keep-neighbors): each model gets a folder of its own in it"
        )
    if place.is_local:
        folder = Path(place.url)
        if not folder.parent.is_dir():
            raise SchemaError(f"the folder of {str(folder)!r} does not exist; make it first")
        folder.mkdir(exist_ok=True)
    return place


def _with_samples(
    results: Mapping[str, xr.Dataset], cohort: Any, manifest: Any, names: ColumnNames,
    evaluation_design: str, skip_incomplete: bool,
) -> dict[str, xr.Dataset]:  # fmt: skip
    """Give a result that was taken over its coordinates along `sample` again."""
    import xarray as xr

    # What there is to warn of was taken over with the result.
    with collecting():
        inputs = prepare(
            cohort, manifest, names, evaluation_design, skip_incomplete=skip_incomplete,
            check_ids=False,
        )  # fmt: skip
    coords = {
        name: xr.Variable(dims, data, schema.COORDINATES[name].attrs())
        for name, (dims, data) in coords_of(inputs).items()
        if "sample" in dims
    }
    coords["confounder"].attrs["column"] = names.confounder
    # First, as in a result that was just made.
    found = {}
    for metric, dataset in results.items():
        # Bare variables: arrays would bring their own coordinates, and those first.
        data, others = (
            {str(name): array.variable for name, array in arrays.items()}
            for arrays in (dataset.data_vars, dataset.coords)
        )
        found[metric] = xr.Dataset(data, {**coords, **others}, dataset.attrs)
    return found
