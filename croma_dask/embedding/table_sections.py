"""The record beside the tables of one embedding: of each group of metrics a section, checked."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from croma_dask.embedding.inputs import check_names
from croma_dask.embedding.outcome import Counts, Outcome, Scores
from croma_dask.embedding.table_files import Places
from croma_dask.embedding.tables import Group
from croma_dask.whole_files import digest_of, write_lines

__all__ = [
    "Section", "Unfit", "add_section", "array_path", "check_arrays", "delete_unused_arrays",
    "files_of", "read_section", "read_sections", "write_sections",
]  # fmt: skip

log = logging.getLogger("croma_dask")

_FORMAT = 1


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
    section: Any, key: str, files: Mapping[str, Path], wanted: Sequence[str] | None = None
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
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise Unfit(f"its record is damaged ({err})") from err


def check_arrays(section: Section, folder: Path) -> dict[str, Path]:
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


def _check(path: Path, digest: str) -> None:
    try:
        same = digest_of(path) == digest
    except OSError as err:
        raise Unfit(f"{path.name} cannot be read ({err.strerror})") from err
    if not same:
        raise Unfit(f"{path.name} was changed")


def array_path(folder: Path, name: str) -> Path:
    """Path of the values of rows of a name."""
    check_names(array=name)
    return folder / f"{name}.npy"


def files_of(places: Places, group: Group, method: str, dataset: str) -> dict[str, Path]:
    """Tables of a group of metrics, by what the record calls them."""
    files = {"metrics": places.metrics(group, method, dataset)}
    if group == "bio_conservation":
        files["predictions"] = places.predictions(method, dataset)
    return files


def read_sections(folder: Path) -> dict[str, Any]:
    """Sections of a record by group; none where there is no record that can be read."""
    try:
        record = json.loads((folder / "record.json").read_bytes())
        return dict(record["groups"]) if record["format"] == _FORMAT else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as err:
        log.info("%s cannot be read (%s)", folder / "record.json", err)
        return {}


def add_section(found: Scores, group: Group, section: Section) -> None:
    """Put what a section holds of a group into scores."""
    found.outcomes |= section.outcomes
    found.attrs = {**found.attrs, **section.attrs}
    if group == "bio_conservation":
        found.bio = section.counts
    else:
        found.batch = section.counts


def write_sections(folder: Path, sections: Mapping[str, Any]) -> None:
    """Write the record of all groups."""
    # Floats in JSON are written as Python's repr writes them, and so come back bit-equal.
    text = json.dumps({"format": _FORMAT, "groups": sections}, indent=1, default=_plain)
    write_lines(folder / "record.json", [text, "\n"])


def delete_unused_arrays(folder: Path, sections: Mapping[str, Any]) -> None:
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
