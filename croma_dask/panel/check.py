"""Whether several cohorts can be a panel, found out before anything is searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from croma_dask.cohort.align import Embedding, resolve
from croma_dask.cohort.design import check_design
from croma_dask.cohort.manifest import ColumnNames, read_manifest
from croma_dask.cohort.store import StoredCohort
from croma_dask.errors import SchemaError
from croma_dask.index.recipe import KINDS
from croma_dask.panel.rows import (
    Rows,
    check_same_rows,
    rows_of_manifest,
    same_embeddings,
    warn_same_embeddings,
)
from croma_dask.panel.told import Told
from croma_dask.robustness.request import Request

__all__ = ["Model", "check_models"]


@dataclass(frozen=True)
class Model:
    """A cohort of a panel, as it was found before anything is searched.

    Attributes
    ----------
    embedding, cohort
        Fingerprints; "" where they are not known yet.
    """

    embedding: str
    cohort: str


def check_models(
    cohorts: Mapping[str, Any], manifest: Any, names: ColumnNames, evaluation_design: str,
    request: Request,
) -> dict[str, Model]:  # fmt: skip
    """Check that cohorts are of the same rows in the same order; reads no embedding.

    Parameters
    ----------
    cohorts
        Model name to a cohort, or to an array with the `manifest` of all.
    manifest, names, evaluation_design, request
        As of :func:`~croma_dask.robustness.evaluate.evaluate`.

    Raises
    ------
    SchemaError
        One breaks the contract of scoring, or its rows are not those of the first: says which, and
        what differs (see :func:`croma_dask.panel.rows.check_same_rows`). Or an index is named that
        can be of one of them only.

    Warns
    -----
    InputWarning
        Several stores have the same embedding.

    Notes
    -----
    Memory: the codes of the key columns of two cohorts.
    """
    placed = request.how is not None and request.how.index not in ("auto", *KINDS)
    if placed and len(cohorts) > 1:
        raise SchemaError(
            "an index belongs to one embedding, and there are several: name its kind "
            f"({', '.join(map(repr, KINDS))} or 'auto'), and each model's own is used or built"
        )
    paired = check_design(evaluation_design) == "paired_2x2"
    keys = (names.sample_id, names.label, names.group, names.confounder, names.subset)
    columns = tuple(dict.fromkeys(keys))
    # What is warned of here is warned of again when it is scored: it is not told twice.
    told, found = Told(), {}
    first: Rows | None = None
    for name, cohort in cohorts.items():
        with told.of(name, alone=len(cohorts) == 1):
            embedding, frame = resolve(cohort, manifest, columns)
            rows = None
            # Arrays of one manifest are of the same rows, whatever it says.
            if first is None or manifest is None:
                checked = read_manifest(frame, names, paired=paired, check_ids=False)
                rows = rows_of_manifest(name, checked, _manifest_of(frame))
        found[name] = Model(embedding.fingerprint, _cohort_of(embedding, frame))
        if first is None:
            first = rows
        elif rows is not None:
            check_same_rows(first, rows)
    warn_same_embeddings(same_embeddings({name: one.embedding for name, one in found.items()}))
    return found


def _manifest_of(frame: Any) -> str:
    """Fingerprint of all columns of a manifest, where it has one."""
    if not isinstance(frame, StoredCohort):
        return ""
    return str(frame.attrs.get("manifest_fingerprint", ""))


def _cohort_of(embedding: Embedding, frame: Any) -> str:
    """Fingerprint of embedding and manifest together: of a store as it was ingested."""
    same = embedding.stored and isinstance(frame, StoredCohort)
    return str(frame.fingerprint) if same else ""
