"""What the record of an embedding holds of earlier runs: what is right today, and what is not.

A run may ask for a few metrics only. The combined tables say all that is known of the same data,
and tables of another embedding by the same name are not left beside new ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from croma_dask.embedding.outcome import Scores
from croma_dask.embedding.table_files import Clustering, Outdir, Places
from croma_dask.embedding.table_sections import (
    Unfit,
    add_section,
    delete_unused_arrays,
    files_of,
    read_section,
    read_sections,
    write_sections,
)
from croma_dask.embedding.tables import GROUPS, Group

__all__ = ["drop_stale", "read_all", "read_sources"]

log = logging.getLogger("croma_dask")


def read_all(
    outdir: Outdir, dataset: str, method: str, *, clustering: Clustering,
    keys: Mapping[Group, str],
) -> Scores:  # fmt: skip
    """Read every metric of one embedding that the record holds under today's keys.

    Parameters
    ----------
    outdir, dataset, method, clustering, keys
        As of :func:`read_sample`.

    Returns
    -------
    Scores
        Failed metrics are among them; no values of rows. Nothing of a group whose table is not as
        it was written.
    """
    places = Places(outdir, clustering)
    found = Scores(dataset, method, {})
    for group, section in read_sections(places.record(method, dataset)).items():
        if group in GROUPS:
            files = {"metrics": places.metrics(group, method, dataset)}
            try:
                add_section(found, group, read_section(section, keys[group], files))
            except Unfit as why:
                log.info("%s of %s: %s is left out, %s", dataset, method, group, why)
    return found


def read_sources(
    outdir: Outdir, dataset: str, method: str, *, clustering: Clustering
) -> dict[Group, dict[str, Any]]:
    """Read what each group that the record holds was computed from.

    Returns
    -------
    dict
        As :func:`write_sample` had `sources`; empty for a group whose section does not say it.
    """
    sections = read_sections(Places(outdir, clustering).record(method, dataset))
    found: dict[Group, dict[str, Any]] = {}
    for group in GROUPS:
        if group in sections:
            section = sections[group]
            said = section.get("sources") if isinstance(section, dict) else None
            found[group] = said if isinstance(said, dict) else {}
    return found


def drop_stale(
    outdir: Outdir, dataset: str, method: str, *, clustering: Clustering,
    keys: Mapping[Group, str], groups: Sequence[Group],
) -> list[Group]:  # fmt: skip
    """Delete the tables of groups of metrics that are not of what they would be of today.

    Parameters
    ----------
    outdir, dataset, method, clustering
        As of :func:`read_sample`.
    keys
        Of today.
    groups
        Groups that are looked at.

    Returns
    -------
    list of Group
        Those of which the tables of this embedding were deleted, and of the method the combined
        tables, as they had a row of it. Tables that no record is of are left alone.
    """
    places = Places(outdir, clustering)
    folder = places.record(method, dataset)
    sections = read_sections(folder)
    stale = []
    for group in groups:
        if group not in sections:
            continue
        section = sections[group]
        if isinstance(section, dict) and section.get("key") == keys[group]:
            continue
        combined = [places.combined(group, method, shape) for shape in ("long", "wide")]
        for path in (*combined, *files_of(places, group, method, dataset).values()):
            path.unlink(missing_ok=True)
        del sections[group]
        stale.append(group)
    if stale:
        write_sections(folder, sections)
        delete_unused_arrays(folder, sections)
    return stale
