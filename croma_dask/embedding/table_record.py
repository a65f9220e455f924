"""Writing the tables of one embedding, and finding out whether a later run may go on from them.

A table alone does not say what it was computed from, so beside the tables of every embedding lies
a record: of each group of metrics the key of its run, the digests of its files, and what a table
does not hold (status, attributes). Files are written first and the record last: a run that is
killed in between leaves digests that do not fit, and is computed again. Metrics that were found
under one key are kept together, in however many runs they were asked for; what was found under
another one is not left beside them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.embedding.outcome import Scores
from croma_dask.embedding.table_files import (
    AnyPath,
    Clustering,
    Outdir,
    Places,
    Texts,
    write_predictions,
)
from croma_dask.embedding.table_sections import (
    Section,
    Unfit,
    add_section,
    array_path,
    check_arrays,
    delete_unused_arrays,
    files_of,
    read_section,
    read_sections,
    write_sections,
)
from croma_dask.embedding.tables import GROUPS, Group, counts_of, frame_lines, long_table
from croma_dask.whole_files import write_lines, write_whole

__all__ = ["read_sample", "write_sample"]

log = logging.getLogger("croma_dask")

_PREDICTIONS = "predictions"


def write_sample(
    outdir: Outdir,
    scores: Scores,
    *,
    clustering: Clustering,
    keys: Mapping[Group, str],
    ids: Texts | None = None,
    labels: Texts | None = None,
    arrays: bool = True,
    groups_of: Mapping[str, Group] | None = None,
    sources: Mapping[Group, Mapping[str, Any]] | None = None,
) -> list[AnyPath]:
    """Write the tables of one embedding, and the record that a later run goes on from.

    Parameters
    ----------
    outdir
        Folder of the results.
    scores
        Metrics of one embedding; a group without any is left as it is. Of a group that has some,
        others that the record holds under the same key stay in its table; under another key they
        go, and the table of clusters with them.
    clustering
        What the clusters were made by.
    keys
        By group, what its metrics were computed from: anything that is another text whenever
        parameters, versions, embedding or manifest are other ones.
    ids, labels
        Barcode and label of every row of the manifest, as of
        :func:`~croma_dask.embedding.table_files.write_predictions`; needed where there are
        predictions.
    arrays
        Whether the record keeps `sample_values` and `predictions` too, 8 and 4 bytes a row each.
    groups_of
        The group that each of `sample_values` belongs to. One that is not named belongs to every
        group, and has to be as it was for any of them to be used again.
    sources
        By group, what its key is made of, for :func:`read_sources`.

    Returns
    -------
    list of Path or RemotePath
        The tables that were written.

    Raises
    ------
    SchemaError
        A name cannot be part of a file name.
    """
    places = Places(outdir, clustering)
    folder = places.record(scores.method, scores.dataset)
    clustered = scores.predictions is not None
    if clustered and (ids is None or labels is None):
        raise ValueError("predictions are written with the ids and labels of their rows")
    written: list[AnyPath] = []
    kept: dict[str, NDArray[Any]] = {}
    if arrays:
        kept |= scores.sample_values
        if scores.predictions is not None:
            kept[_PREDICTIONS] = scores.predictions
    belongs: dict[str, Group] = {**(groups_of or {}), _PREDICTIONS: "bio_conservation"}
    sections = read_sections(folder)
    # Looked at before any of the files that it names is written anew.
    earlier = {
        group: _earlier(places, scores, group, sections[group], keys[group], arrays)
        for group in GROUPS
        if group in sections and counts_of(scores, group) is not None
    }
    digests = {name: _write_array(array_path(folder, name), array) for name, array in kept.items()}
    for group in GROUPS:
        before = earlier.get(group)
        if before is None:
            _tell_replaced(scores, group, sections)
        merged = scores if before is None else _with_earlier(scores, before)
        frame = long_table(merged, group)
        counts = counts_of(scores, group)
        if not len(long_table(scores, group)) or counts is None:
            continue
        path = places.metrics(group, scores.method, scores.dataset)
        mine = {n: d for n, d in digests.items() if belongs.get(n, group) == group}
        section: dict[str, Any] = {
            "key": keys[group],
            "sources": dict((sources or {}).get(group, {})),
            "metrics": write_lines(path, frame_lines(frame)),
            "predictions": None if before is None else before.predictions,
            "arrays": {**((before and before.arrays) or {}), **mine} if arrays else None,
            "counts": asdict(counts),
            "outcomes": {name: asdict(merged.outcomes[name]) for name in frame["metric"]},
            "attrs": dict(merged.attrs),
        }
        written.append(path)
        if group == "bio_conservation":
            path = places.predictions(scores.method, scores.dataset)
            if clustered and ids is not None and labels is not None:
                section["predictions"] = write_predictions(
                    path, scores, clustering=clustering, ids=ids, labels=labels
                )
                written.append(path)
            elif section["predictions"] is None:
                # Clusters of other rows, or by other parameters.
                path.unlink(missing_ok=True)
        sections[group] = section
    write_sections(folder, sections)
    delete_unused_arrays(folder, sections)
    return written


def _earlier(
    places: Places, scores: Scores, group: Group, section: Any, key: str, arrays: bool
) -> Section | None:
    """Take what an earlier run has found of a group under the same key, if all of it is there."""
    files = files_of(places, group, scores.method, scores.dataset)
    try:
        found = read_section(section, key, files)
        if arrays:
            check_arrays(found, places.record(scores.method, scores.dataset))
        elif found.arrays is not None:
            return None
    except Unfit:
        return None
    return found


def _with_earlier(scores: Scores, before: Section) -> Scores:
    return replace(
        scores, outcomes={**before.outcomes, **scores.outcomes},
        attrs={**before.attrs, **scores.attrs},
    )  # fmt: skip


def _tell_replaced(scores: Scores, group: Group, sections: Mapping[str, Any]) -> None:
    """Tell of values that go because they were computed on other rows or in another way."""
    held = sections.get(group)
    there = held.get("outcomes") if isinstance(held, dict) else None
    gone = [name for name in there or () if name not in scores.outcomes]
    if gone and any(name in scores.outcomes for name in GROUPS[group]):
        log.warning(
            "%s by %s: %s of an earlier run go, which were computed on other data, with another "
            "batch column or in another way", scores.dataset, scores.method, ", ".join(gone),
        )  # fmt: skip


def read_sample(
    outdir: Outdir,
    dataset: str,
    method: str,
    *,
    clustering: Clustering,
    metrics: Sequence[str],
    keys: Mapping[Group, str],
    arrays: bool = True,
) -> Scores | None:
    """Read what an earlier run has found of one embedding, as far as it serves this one.

    Parameters
    ----------
    outdir, dataset, method, clustering
        As :func:`write_sample` had them.
    metrics
        What is wanted.
    keys
        As of :func:`write_sample`: what is there counts only if it was written under the same one.
    arrays
        Whether per-sample arrays are wanted too.

    Returns
    -------
    Scores or None
        The wanted metrics of each group that serves: its key is the same, all wanted metrics are
        there and none failed, its tables and arrays are as they were written. What is missing from
        `outcomes` has to be computed. None where no group serves.
    """
    places = Places(outdir, clustering)
    folder = places.record(method, dataset)
    sections = read_sections(folder)
    found = Scores(dataset, method, {})
    for group, names in GROUPS.items():
        wanted = [name for name in names if name in metrics]
        if not wanted or group not in sections:
            continue
        files = files_of(places, group, method, dataset)
        try:
            section = read_section(sections[group], keys[group], files, wanted)
            values = _load(section, folder) if arrays else {}
        except Unfit as why:
            log.info("%s of %s: %s is computed again, %s", dataset, method, group, why)
            continue
        found.predictions = values.pop(_PREDICTIONS, found.predictions)
        found.sample_values |= values
        add_section(found, group, section)
    return found if found.outcomes else None


def _load(section: Section, folder: AnyPath) -> dict[str, NDArray[Any]]:
    paths = check_arrays(section, folder)
    try:
        return {name: _load_array(path) for name, path in paths.items()}
    except ValueError as err:
        raise Unfit(f"its record is damaged ({err})") from err


def _load_array(path: AnyPath) -> NDArray[Any]:
    with path.open("rb") as file:
        array: NDArray[Any] = np.load(file, allow_pickle=False)
    return array


def _write_array(path: AnyPath, array: NDArray[Any]) -> str:
    return write_whole(path, lambda file: np.save(file, array, allow_pickle=False))
