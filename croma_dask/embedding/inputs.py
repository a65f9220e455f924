"""Which embeddings a path means, and what they and their method are called in the tables."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from croma_dask.cohort.layout import FORMAT
from croma_dask.cohort.listing import children, has_magic, matches
from croma_dask.cohort.location import Location
from croma_dask.embedding.tables import CONTROLS
from croma_dask.errors import SchemaError, name_items

__all__ = ["EmbeddingInput", "check_names", "expand_paths", "method_label", "sample_name"]

_SUFFIXES = (".h5ad", ".zarr")
_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")
_OUTSIDE = re.compile(r"[^A-Za-z0-9_.-]+")
# Bytes: with what the tables add, file names stay within the 255 that file systems allow.
_LONGEST = 200


@dataclass(frozen=True)
class EmbeddingInput:
    """One embedding to be scored.

    Attributes
    ----------
    path
        Absolute path or URL of an ``.h5ad`` file or of a cohort store.
    method
        What made it: cleaned as :func:`method_label` does.
    sample
        What was embedded: its name without ``.h5ad`` or ``.zarr``.
    """

    path: str
    method: str
    sample: str

    @property
    def is_h5ad(self) -> bool:
        """Whether it is a file, and not a store."""
        return Location.of(self.path).file_name.endswith(".h5ad")


def method_label(name: str) -> str:
    """Clean the name of a method, so that it can be part of a file name.

    Every run of characters outside of ``A-Z a-z 0-9 _ . -`` becomes one ``-``; ``-`` and ``.`` at
    the ends go. Of a path it is the name of the folder that holds the embedding that counts:
    :func:`expand_paths` takes that.

    Returns
    -------
    str
        ``run`` where nothing is left.

    Examples
    --------
    >>> from croma_dask.embedding.inputs import method_label
    >>> method_label("org/model v2 (large)")
    'org-model-v2-large'
    """
    return _OUTSIDE.sub("-", name).strip("-.") or "run"


def sample_name(path: str | os.PathLike[str]) -> str:
    """Name what was embedded: the file's name as it is, without ``.h5ad`` or ``.zarr``.

    It is not cleaned: it has to be the ``sample_id`` that other tools give to the same file.

    Raises
    ------
    SchemaError
        The name cannot be part of a file name, see :func:`check_names`.
    """
    name = Location.of(os.fspath(path).rstrip("/")).file_name
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            name = name.removesuffix(suffix)
            break
    check_names(sample=name)
    return name


def check_names(**names: str) -> None:
    """Refuse names that cannot be a part of a file name, or would break the lines of a table.

    Parameters
    ----------
    names
        Names by what they are (``sample=``, ``method=``), that are to be in one file name.

    Raises
    ------
    SchemaError
        One is empty, ``.`` or ``..``, holds ``/``, a control character or something that is not
        Unicode (of a file whose name is not UTF-8), or together they are too long.
    """
    total = 0
    for what, name in names.items():
        if name in {"", ".", ".."} or "/" in name or CONTROLS.search(name):
            raise SchemaError(
                f"the {what} name {name!r} cannot be part of a file name: expected some text "
                "without '/' and control characters"
            )
        try:
            total += len(name.encode())
        except UnicodeEncodeError as err:
            raise SchemaError(f"the {what} name {name!r} is not valid Unicode; rename it") from err
    if total > _LONGEST:
        raise SchemaError(
            f"{name_items(names.values())} are {total} bytes long: names of sample and method are "
            f"in one file name and may have {_LONGEST} bytes together"
        )


def expand_paths(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, method: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[EmbeddingInput]:  # fmt: skip
    """Find the embeddings that paths mean.

    Parameters
    ----------
    paths
        Each an ``.h5ad`` file, a cohort store, a folder of these (other files and stores in it, and
        hidden ones, are passed over), or a pattern with ``*``, ``?`` or ``[...]`` (``**`` for
        folders at any depth); or the URL of any of these.
    method
        Name of the method of all of them. Without it each has the name of the folder that holds it
        (links are not followed for that).
    storage_options
        Options of the fsspec file system of URLs.

    Returns
    -------
    list of EmbeddingInput
        Sorted by path, each once.

    Raises
    ------
    SchemaError
        There is nothing at a path, or two embeddings would go by the same names.
    StoreError
        A URL cannot be looked into.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise SchemaError("no embeddings given; expected .h5ad files, cohort stores or folders")
    found = {path for one in given for path in _expanded(os.fspath(one), storage_options)}
    inputs: dict[tuple[str, str], EmbeddingInput] = {}
    for path in sorted(found, key=lambda path: PurePath(path).parts):
        holder = PurePath(path).parent.name
        one = EmbeddingInput(
            path, method_label(holder if method is None else method), sample_name(path)
        )
        check_names(sample=one.sample, method=one.method)
        other = inputs.setdefault((one.method, one.sample), one)
        if other is not one:
            raise SchemaError(
                f"{other.path!r} and {path!r} would both be sample {one.sample!r} of method "
                f"{one.method!r}: leave one out, rename one, or score them in runs of their "
                "own, each under another --method (method=)"
            )
    return list(inputs.values())


def _expanded(text: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Absolute paths or URLs of the embeddings that one path means, at least one."""
    location = Location.of(text, storage_options)
    if not location.is_local:
        return _expanded_url(location)
    path = location.url
    # Looked for as it is first: a file may be called a[1].h5ad.
    if not os.path.lexists(path) and has_magic(text):
        matched = [os.path.abspath(match) for match in glob.glob(path, recursive=True)]
        return _found(text, [one for match in matched for one in _of_match(match)], len(matched))
    if os.path.isdir(path) and not _is_zarr(path):
        return _in_named(text, _in_folder(path))
    if not os.path.exists(path):
        raise SchemaError(f"there is no {text}")
    if os.path.isfile(path) and not path.endswith(".h5ad"):
        raise SchemaError(f"{text}: expected an .h5ad file, a cohort store, or a folder of these")
    return [path]


def _found(text: str, found: list[str], n_matches: int) -> list[str]:
    """Return what a pattern has led to, which is something."""
    if not found:
        what = f"none of {n_matches} matches is" if n_matches else "nothing matches; expected"
        raise SchemaError(f"{text}: {what} an .h5ad file or a cohort store")
    return found


def _in_named(text: str, found: Iterable[str]) -> list[str]:
    """Return what a folder that was named holds, which is something."""
    inside = list(found)
    if not inside:
        raise SchemaError(f"{text}: no .h5ad file and no cohort store (*.zarr) in this folder")
    return inside


def _expanded_url(location: Location) -> list[str]:
    """URLs of the embeddings that one URL means, at least one.

    Object stores know no folders: what is no file is one if anything lies below it.
    """
    said = str(location)
    if location.file_name.endswith(_SUFFIXES) and not has_magic(location.url):
        # Whoever opens it says so where there is none: a request less for each.
        return [location.url]
    if has_magic(location.url) and location.about() is None:
        matched = list(matches(location))
        found = [one for match, is_file in matched for one in _of_url(match, is_file)]
        return _found(said, found, len(matched))
    if location.is_file():
        raise SchemaError(f"{said}: expected an .h5ad file, a cohort store, or a folder of these")
    names = location.names()
    if not names:
        raise SchemaError(f"there is no {said}")
    if any(mark in names for mark in _ZARR_MARKS):
        return [location.url]
    return _in_named(said, _in_url(location))


def _of_url(location: Location, is_file: bool) -> Iterator[str]:
    """Yield what a match of a pattern means, as :func:`_of_match` does."""
    if is_file:
        if location.file_name.endswith(".h5ad"):
            yield location.url
    elif _says_cohort(location.read_bytes("zarr.json")):
        yield location.url
    elif not any(mark in _ZARR_MARKS for mark in location.names()):
        yield from _in_url(location)


def _in_url(folder: Location) -> Iterator[str]:
    """Yield what a folder holds, as :func:`_in_folder` does."""
    for one, is_file in children(folder):
        if one.name.startswith("."):
            continue
        if one.name.endswith(".h5ad") and is_file:
            yield one.url
        elif one.name.endswith(".zarr") and _says_cohort(one.read_bytes("zarr.json")):
            yield one.url


def _of_match(path: str) -> Iterator[str]:
    """Yield what a match of a pattern means: itself, or what the folder holds; no other kinds."""
    if not os.path.isdir(path):
        if path.endswith(".h5ad"):
            yield path
    elif _is_cohort(path):
        yield path
    elif not _is_zarr(path):
        yield from _in_folder(path)


def _in_folder(folder: str) -> Iterator[str]:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        # Hidden: files half written, and what macOS leaves beside others.
        if name.startswith("."):
            continue
        # A link that leads nowhere stays in: that it cannot be opened should be said.
        if name.endswith(".h5ad") and not os.path.isdir(path):
            yield path
        elif name.endswith(".zarr") and _is_cohort(path):
            yield path


def _is_zarr(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, mark)) for mark in _ZARR_MARKS)


def _is_cohort(path: str) -> bool:
    """Whether a folder is a cohort store, finished or not, rather than a result or another array.

    An unfinished one counts: whoever opens it says so, where passing over it would hide it.
    """
    try:
        return _says_cohort(Path(path, "zarr.json").read_bytes())
    except OSError:
        return False


def _says_cohort(about: bytes | None) -> bool:
    """Whether the metadata of a group are those of a cohort store."""
    try:
        return about is not None and bool(json.loads(about)["attributes"]["format"] == FORMAT)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
