"""What the models of a panel are called, and which cohorts they are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from croma_dask.cohort.location import Location
from croma_dask.cohort.store import StoredCohort
from croma_dask.errors import SchemaError, name_items
from croma_dask.fingerprint import text_digest

__all__ = [
    "by_name", "file_name", "is_several", "named_cohorts", "result_name", "result_names",
]  # fmt: skip

_LONGEST = 120
"""Bytes of a file's name that are a model's: file systems allow 255."""


def is_several(cohort: Any) -> bool:
    """Whether an argument is several cohorts, by list or by name, and not one of its own.

    A list of rows of numbers is one embedding, as it is for numpy.
    """
    if hasattr(cohort, "data_vars") or hasattr(cohort, "shape"):
        return False
    if isinstance(cohort, Mapping):
        return True
    return isinstance(cohort, list | tuple) and (
        not cohort or any(_is_cohort(one) or getattr(one, "ndim", 0) == 2 for one in cohort)
    )


def named_cohorts(cohorts: Any) -> dict[str, Any]:
    """Name the cohorts of a panel.

    Parameters
    ----------
    cohorts
        Mapping of names to cohorts, or a list of them: stores are called as their place is,
        without ``.zarr``.

    Returns
    -------
    dict
        Name to cohort, in order; the cohorts as they were given.

    Raises
    ------
    SchemaError
        There are none; two would have the same name, or one has none: the message shows how to
        name them.
    """
    if not len(cohorts):
        raise SchemaError("there are no cohorts to score: the list is empty")
    advice = "name them yourself: {'name': cohort, ...} (--name, once for each store)"
    if isinstance(cohorts, Mapping):
        return by_name(cohorts)
    named: dict[str, Any] = {}
    for at, cohort in enumerate(cohorts):
        name = _own_name(cohort)
        if not name:
            raise SchemaError(
                f"cohort {at + 1} of {len(cohorts)} has no name of its own (it is "
                f"a {type(cohort).__name__}); {advice}"
            )
        if name in named:
            raise SchemaError(
                f"two cohorts are called {name!r} ({_place(named[name])} and {_place(cohort)}); "
                + advice
            )
        named[name] = cohort
    return by_name(named)


def by_name(models: Mapping[Any, Any]) -> dict[str, Any]:
    """Check the names of models, and make them text without blanks around it.

    Raises
    ------
    SchemaError
        Two are the same as such, or one is empty or has characters that do not print: files and
        tables would not give it back.
    """
    named = {str(name).strip(): model for name, model in models.items()}
    if len(named) < len(models):
        raise SchemaError(f"two models have the same name: {name_items(map(str, models))}")
    bad = [name for name in named if not name or not name.isprintable()]
    if bad:
        raise SchemaError(
            f"{name_items(bad)} is no name of a model: it is empty, or has characters that do not "
            "print"
        )
    return named


def result_name(place: str | os.PathLike[str]) -> str:
    """Name of a model whose result is a file: the file's, without its ending."""
    name = Path(place).name
    return name.removesuffix(Path(place).suffix)


def result_names(places: Sequence[str | os.PathLike[str]], names: Sequence[str] = ()) -> list[str]:
    """Name the models of results that are files: as the caller says, or as the files are called.

    Raises
    ------
    SchemaError
        There are more or fewer names than files, or two are the same.
    """
    if names and len(names) != len(places):
        raise SchemaError(
            f"--name is given {len(names)} times for {len(places)} results; give it once for each"
        )
    found = list(names) or [result_name(place) for place in places]
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise SchemaError(
            f"two results are called {twice[0]!r}; name them: --name NAME, once for each RESULT"
        )
    return found


def file_name(model: str) -> str:
    """Name of a file or folder of a model, which may be called anything.

    Letters, digits, ``-`` and ``_`` stay; whatever else a file system may not like is quoted.
    """
    quoted = quote(model, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(quoted) <= _LONGEST:
        return quoted
    return f"{quoted[:_LONGEST]}-{text_digest(model)[:16]}"


def _is_cohort(value: Any) -> bool:
    return isinstance(value, str | os.PathLike | StoredCohort) or hasattr(value, "data_vars")


def _place(cohort: Any) -> str:
    """Path or URL of a cohort; "" of one that has none."""
    if isinstance(cohort, StoredCohort):
        return cohort.url
    if isinstance(cohort, str | os.PathLike):
        return Location.of(cohort).url
    if hasattr(cohort, "data_vars"):
        return str(cohort.attrs.get("croma_store") or cohort.encoding.get("source", ""))
    return ""


def _own_name(cohort: Any) -> str:
    name = _place(cohort).rstrip("/").rsplit("/", 1)[-1]
    return name.removesuffix(".zarr")
