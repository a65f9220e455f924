"""What the tables of an embedding are made of: all that they depend on, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from croma_dask import __version__
from croma_dask.approximate import Approximation
from croma_dask.embedding.input_data import InputData
from croma_dask.embedding.request import Request
from croma_dask.embedding.tables import GROUPS, Group
from croma_dask.errors import CromaDaskError
from croma_dask.fingerprint import text_digest

__all__ = ["READINGS_OF", "columns_of", "key_of", "rows_by_batch", "sources_of"]

READINGS_OF: dict[Group, tuple[str, ...]] = {
    "bio_conservation": (
        "clustering", "selection", "asw", "gc_components", "missing_batches", "lisi_compat",
    ),
    "batch_mixing": (
        "cilisi_average", "bras_other", "kbet_expected", "kbet_components", "lisi_compat",
    ),
}  # fmt: skip
"""Readings that the metrics of a group depend on."""


def sources_of(
    data: InputData, request: Request, how: Approximation | None,
    recorded: Mapping[Group, Mapping[str, Any]],
) -> dict[Group, dict[str, Any]]:  # fmt: skip
    """Say what the tables of each group would be made of if they were made now.

    Parameters
    ----------
    data, request, how
        The input, and what is asked for.
    recorded
        What the tables that are there were made of. Of a group that is not asked for now, the
        request does not say the batches and readings: those of its tables are taken.

    Returns
    -------
    dict
        By group: what JSON can hold, and holds unchanged. A group that is not asked for and has no
        tables is not there.
    """
    shared = {
        "versions": _versions(), "embedding": data.digest(),
        "label": [request.label, _digest(data, request.label)],
    }  # fmt: skip
    found: dict[Group, dict[str, Any]] = {}
    for group in GROUPS:
        if request.bio if group == "bio_conservation" else request.mixing:
            found[group] = {**shared, **_asked(data, request, how, group)}
        elif group in recorded:
            found[group] = {**recorded[group], **shared, **_again(data, recorded[group])}
    return found


def key_of(sources: Mapping[str, Any]) -> str:
    """Name what tables are made of."""
    return text_digest(json.dumps(sources, sort_keys=True))


def columns_of(recorded: Mapping[Group, Mapping[str, Any]]) -> list[str]:
    """Columns of batches that tables were made of."""
    names = [_column(sources) for sources in recorded.values()]
    return [name for name in names if name is not None]


def rows_by_batch(request: Request) -> bool:
    """Whether the metrics of labels leave rows out that have no batch."""
    return request.batch is not None and request.how.missing_batches == "all_metrics"


def _asked(
    data: InputData, request: Request, how: Approximation | None, group: Group
) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if group == "bio_conservation":
        # The predictions name the rows.
        own["ids"] = data.digest_of_ids()
    else:
        own["batch_max_cells"] = request.batch_max_cells
    if request.batch is not None and (group == "batch_mixing" or rows_by_batch(request)):
        own["batch"] = [request.batch, _digest(data, request.batch)]
    if how is not None:
        own["search"] = {**asdict(how), "index": str(how.index)}
    readings = asdict(request.how)
    return {**own, "readings": {name: readings[name] for name in READINGS_OF[group]}}


def _again(data: InputData, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Look again at what tables were made of."""
    own: dict[str, Any] = {}
    if "ids" in recorded:
        own["ids"] = data.digest_of_ids()
    column = _column(recorded)
    if column is not None:
        own["batch"] = [column, _digest(data, column)]
    return own


def _column(sources: Mapping[str, Any]) -> str | None:
    batch = sources.get("batch")
    return batch[0] if isinstance(batch, list) and batch and isinstance(batch[0], str) else None


def _digest(data: InputData, column: str) -> str | None:
    """Fingerprint of a column; None where there is none that can be read."""
    if column not in list(data.manifest.columns):
        return None
    try:
        return data.digest_of(column)
    except CromaDaskError:
        return None


def _versions() -> dict[str, str]:
    """Versions of what the numbers come from."""
    found = {"croma-dask": __version__}
    for name in ("igraph", "numpy", "scikit-learn", "scipy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
