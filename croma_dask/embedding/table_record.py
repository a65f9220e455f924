"""Writing the tables of one embedding, and finding out whether a later run may go on from them.

A table alone does not say what it was computed from, so beside the tables of every embedding lies
a record: of each group of metrics the key of its run, the digests of its files, and what a table
does not hold (status, attributes). Files are written first and the record last: a run that is
killed in between leaves digests that do not fit, and is computed again.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from croma_dask.embedding.inputs import check_names
from croma_dask.embedding.outcome import Counts, Outcome, Scores
from croma_dask.embedding.table_files import Clustering, Places, Texts, write_predictions
from croma_dask.embedding.tables import GROUPS, Group, counts_of, frame_lines, long_table
from croma_dask.embedding.whole_files import digest_of, write_lines, write_whole

__all__ = ["read_sample", "write_sample"]

log = logging.getLogger("croma_dask")

_FORMAT = 1
_PREDICTIONS = "predictions"


class _Unfit(Exception):
    """What is there does not serve; the text says why."""


def write_sample(
    outdir: str | os.PathLike[str],
    scores: Scores,
    *,
    clustering: Clustering,
    keys: Mapping[Group, str],
    ids: Texts | None = None,
    labels: Texts | None = None,
    arrays: bool = True,
    groups_of: Mapping[str, Group] | None = None,
) -> list[Path]:
    """Write the tables of one embedding, and the record that a later run goes on from.

    Parameters
    ----------
    outdir
        Folder of the results.
    scores
        Metrics of one embedding; a group without any is left as it is.
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

    Returns
    -------
    list of Path
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
    written = []
    kept: dict[str, NDArray[Any]] = {}
    if arrays:
        kept |= scores.sample_values
        if scores.predictions is not None:
            kept[_PREDICTIONS] = scores.predictions
    belongs: dict[str, Group] = {**(groups_of or {}), _PREDICTIONS: "bio_conservation"}
    digests = {name: _write_array(_array(folder, name), array) for name, array in kept.items()}
    sections = _sections(folder)
    for group in GROUPS:
        frame = long_table(scores, group)
        counts = counts_of(scores, group)
        if not len(frame) or counts is None:
            continue
        path = places.metrics(group, scores.method, scores.dataset)
        section: dict[str, Any] = {
            "key": keys[group],
            "metrics": write_lines(path, frame_lines(frame)),
            "predictions": None,
            "arrays": {n: d for n, d in digests.items() if belongs.get(n, group) == group}
            if arrays
            else None,
            "counts": asdict(counts),
            "outcomes": {name: asdict(scores.outcomes[name]) for name in frame["metric"]},
            "attrs": dict(scores.attrs),
        }
        written.append(path)
        if group == "bio_conservation" and ids is not None and labels is not None and clustered:
            path = places.predictions(scores.method, scores.dataset)
            section["predictions"] = write_predictions(
                path, scores, clustering=clustering, ids=ids, labels=labels
            )
            written.append(path)
        sections[group] = section
    # Floats in JSON are written as Python's repr writes them, and so come back bit-equal.
    text = json.dumps({"format": _FORMAT, "groups": sections}, indent=1, default=_plain)
    write_lines(folder / "record.json", [text, "\n"])
    return written


def read_sample(
    outdir: str | os.PathLike[str],
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
    sections = _sections(folder)
    found = Scores(dataset, method, {})
    for group, names in GROUPS.items():
        wanted = [name for name in names if name in metrics]
        if not wanted or group not in sections:
            continue
        files = [("metrics", places.metrics(group, method, dataset)),
                 ("predictions", places.predictions(method, dataset))]  # fmt: skip
        key = keys[group]
        try:
            part = _section(sections[group], wanted, key, files, folder if arrays else None)
        except _Unfit as why:
            log.info("%s of %s: %s is computed again, %s", dataset, method, group, why)
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            log.info("%s of %s: %s is computed again, its record is damaged (%s)",
                     dataset, method, group, err)  # fmt: skip
        else:
            outcomes, counts, values, attrs = part
            found.outcomes |= outcomes
            found.predictions = values.pop(_PREDICTIONS, found.predictions)
            found.sample_values |= values
            found.attrs = {**found.attrs, **attrs}
            if group == "bio_conservation":
                found.bio = counts
            else:
                found.batch = counts
    return found if found.outcomes else None


def _section(
    section: Any, wanted: Sequence[str], key: str, files: Sequence[tuple[str, Path]],
    folder: Path | None,
) -> tuple[dict[str, Outcome], Counts, dict[str, NDArray[Any]], dict[str, Any]]:  # fmt: skip
    """Take what the record holds of a group, if it is of the same run and all is still there.

    `folder` is that of the arrays, None where they are not wanted.
    """
    if section["key"] != key:
        raise _Unfit("it was found with other parameters, versions or data")
    missing = [name for name in wanted if name not in section["outcomes"]]
    if missing:
        raise _Unfit(f"{', '.join(missing)} is missing")
    outcomes = {}
    for name in wanted:
        entry = section["outcomes"][name]
        outcomes[name] = Outcome(float(entry["value"]), str(entry["note"]), str(entry["status"]))
        if outcomes[name].status.startswith("failed"):
            raise _Unfit(f"{name} failed")
    for what, path in files:
        if what == "metrics" or section[what] is not None:
            _check(path, section[what])
    values = {}
    if folder is not None:
        if section["arrays"] is None:
            raise _Unfit("its per-sample values were not kept")
        for name, digest in section["arrays"].items():
            path = _array(folder, name)
            _check(path, digest)
            values[name] = np.load(path, allow_pickle=False)
    return outcomes, Counts(**section["counts"]), values, dict(section["attrs"])


def _check(path: Path, digest: str) -> None:
    try:
        same = digest_of(path) == digest
    except OSError as err:
        raise _Unfit(f"{path.name} cannot be read ({err.strerror})") from err
    if not same:
        raise _Unfit(f"{path.name} was changed")


def _sections(folder: Path) -> dict[str, Any]:
    """Sections of a record by group; none where there is no record that can be read."""
    try:
        record = json.loads((folder / "record.json").read_bytes())
        return dict(record["groups"]) if record["format"] == _FORMAT else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as err:
        log.info("%s cannot be read (%s)", folder / "record.json", err)
        return {}


def _array(folder: Path, name: str) -> Path:
    check_names(array=name)
    return folder / f"{name}.npy"


def _write_array(path: Path, array: NDArray[Any]) -> str:
    return write_whole(path, lambda file: np.save(file, array, allow_pickle=False))


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be kept in a record")
