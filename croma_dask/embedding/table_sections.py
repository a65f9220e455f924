"""The record beside the tables of one embedding: of each group of metrics a section, checked."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from croma_dask import formats
from croma_dask.embedding.inputs import check_names
from croma_dask.embedding.outcome import Counts, Outcome, Scores
from croma_dask.embedding.table_files import AnyPath, Places
from croma_dask.embedding.tables import Group
from croma_dask.errors import StoreError
from croma_dask.fingerprint import text_digest
from croma_dask.whole_files import digest_of, write_lines

__all__ = [
    "Section", "Unfit", "add_section", "array_path", "check_arrays", "delete_unused_arrays",
    "files_of", "read_section", "read_sections", "write_sections",
]  # fmt: skip

log = logging.getLogger("croma_dask")


class Unfit(Exception):
    """What is there does not serve; the text says why."""


@dataclass(frozen=True)
class Section:
    """What the record holds of a group of metrics, checked.

    Attributes
    ----------
    outcomes
        Metrics that were asked of it.
    counts
        Rows that they are of.
    arrays
        Digests of the values of rows by name; None where they were not kept.
    predictions
        Digest of the table of clusters, if there is one.
    attrs
        What was used.
    """

    outcomes: dict[str, Outcome]
    counts: Counts
    arrays: dict[str, str] | None
    predictions: str | None
    attrs: dict[str, Any]


def read_section(
    section: Any, key: str, files: Mapping[str, AnyPath], wanted: Sequence[str] | None = None
) -> Section:
    """Take what the record holds of a group, if it is of the same run and its tables are there.

    Parameters
    ----------
    section
        As the record has it.
    key
        Under which it has to have been written.
    files
        Tables that have to be as they were written, by the name that they have in the section.
    wanted
        Metrics that have to be there, none of them failed. None takes all that there are, failed
        ones too.

    Raises
    ------
    Unfit
        It does not serve, or is damaged.
    """
    try:
        if section["key"] != key:
            raise Unfit("it was found with other parameters, versions or data")
        there: dict[str, Any] = section["outcomes"]
        missing = [name for name in wanted or () if name not in there]
        if missing:
            raise Unfit(f"{', '.join(missing)} is missing")
        outcomes = {}
        for name in there if wanted is None else wanted:
            entry = there[name]
            outcomes[name] = Outcome(
                float(entry["value"]), str(entry["note"]), str(entry["status"])
            )
            if wanted is not None and outcomes[name].status.startswith("failed"):
                raise Unfit(f"{name} failed")
        for what, path in files.items():
            if what == "metrics" or section[what] is not None:
                _check(path, section[what])
        arrays = section["arrays"]
        return Section(
            outcomes, Counts(**section["counts"]), None if arrays is None else dict(arrays),
            section["predictions"], dict(section["attrs"]),
        )  # fmt: skip
    except StoreError:
        # It cannot be told what is there: what is would be computed again, and replaced.
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise Unfit(f"its record is damaged ({err})") from err


def check_arrays(section: Section, folder: AnyPath) -> dict[str, AnyPath]:
    """Paths of the values of rows that a section has, which are as they were written.

    Raises
    ------
    Unfit
        They are not, or were not kept.
    """
    if section.arrays is None:
        raise Unfit("its per-sample values were not kept")
    paths = {}
    for name, digest in section.arrays.items():
        try:
            paths[name] = array_path(folder, name)
        except ValueError as err:
            raise Unfit(f"its record is damaged ({err})") from err
        _check(paths[name], digest)
    return paths


def _check(path: AnyPath, digest: str) -> None:
    try:
        same = digest_of(path) == digest
    except OSError as err:
        raise Unfit(f"{path.name} cannot be read ({err.strerror})") from err
    if not same:
        raise Unfit(f"{path.name} was changed")


def array_path(folder: AnyPath, name: str) -> AnyPath:
    """Path of the values of rows of a name."""
    check_names(array=name)
    return folder / f"{name}.npy"


def files_of(places: Places, group: Group, method: str, dataset: str) -> dict[str, AnyPath]:
    """Tables of a group of metrics, by what the record calls them."""
    files = {"metrics": places.metrics(group, method, dataset)}
    if group == "bio_conservation":
        files["predictions"] = places.predictions(method, dataset)
    return files


def read_sections(folder: AnyPath) -> dict[str, Any]:
    """Sections of a record by group; none where there is no record that can be read.

    Raises
    ------
    StoreError
        A newer release wrote it, or nobody can tell what is at its URL.
    """
    path = folder / "record.json"
    try:
        record = json.loads(path.read_bytes())
        version, groups = record["format"], dict(record["groups"])
    except FileNotFoundError:
        return {}
    except StoreError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as err:
        log.info("%s cannot be read (%s)", path, err)
        return {}
    formats.check("record", version, str(path))
    return {group: _whole(section, path) for group, section in groups.items()}


def _whole(section: Any, path: AnyPath) -> Any:
    """Section of a record, or an empty one where it is not what was written.

    Its values and notes are in no other file that has a digest. Those that earlier releases wrote
    have none either.
    """
    if not isinstance(section, dict) or "digest" not in section:
        return section
    content = {name: value for name, value in section.items() if name != "digest"}
    if section["digest"] == _digest(content):
        return section
    log.info("%s: a section does not match its digest", path)
    return {}


def add_section(found: Scores, group: Group, section: Section) -> None:
    """Put what a section holds of a group into scores."""
    found.outcomes |= section.outcomes
    found.attrs = {**found.attrs, **section.attrs}
    if group == "bio_conservation":
        found.bio = section.counts
    else:
        found.batch = section.counts


def write_sections(folder: AnyPath, sections: Mapping[str, Any]) -> None:
    """Write the record of all groups."""
    # Floats in JSON are written as Python's repr writes them, and so come back bit-equal.
    groups = json.loads(json.dumps(sections, default=_plain))
    for section in groups.values():
        if isinstance(section, dict):
            section.pop("digest", None)
            section["digest"] = _digest(section)
    text = json.dumps({"format": formats.VERSIONS["record"], "groups": groups}, indent=1)
    write_lines(folder / "record.json", [text, "\n"])


def _digest(section: Mapping[str, Any]) -> str:
    return text_digest(json.dumps(section, sort_keys=True))


def delete_unused_arrays(folder: AnyPath, sections: Mapping[str, Any]) -> None:
    """Delete values of rows that no section names any more."""
    used: set[str] = set()
    for section in sections.values():
        if not isinstance(section, dict) or not isinstance(section.get("arrays"), dict | None):
            return
        used |= set(section.get("arrays") or ())
    for path in folder.glob("*.npy"):
        if path.stem not in used:
            path.unlink(missing_ok=True)


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be kept in a record")
