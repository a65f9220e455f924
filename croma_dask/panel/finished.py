"""Results of the models that are done, kept in scratch until the whole panel is."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import __version__, fingerprint, schema
from croma_dask.approximate import Approximation
from croma_dask.build import find_built
from croma_dask.cohort.align import resolve
from croma_dask.index.recipe import KINDS
from croma_dask.index.scratch import Scratch
from croma_dask.index.stored import StoredIndex
from croma_dask.options import Options
from croma_dask.resume import take_folder
from croma_dask.schema import text_array

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Finished", "builds_of"]

log = logging.getLogger("croma_dask")

FORMAT = 2
"""Raised when what a panel keeps in scratch changes."""


@dataclass(frozen=True)
class Finished:
    """Folder of the finished models of a panel; none where no scratch folder was named.

    Attributes
    ----------
    scratch
        The folder. It is of one request: with other arguments, or another version of this library,
        it is another folder. Its files are named by the fingerprints of the cohorts.
    """

    scratch: Scratch | None

    @classmethod
    def of(cls, options: Options, request: str, keep: contextlib.ExitStack) -> Finished:
        """Take the folder of a request.

        Parameters
        ----------
        options
            Whether and where there is scratch, and what becomes of it.
        request
            All that results depend on beside the cohort.
        keep
            Settles what becomes of the folder when the caller is done.
        """
        if options.scratch is None:
            return cls(None)
        key = fingerprint.text_digest(f"panel {FORMAT} {__version__}", request)
        return cls(take_folder(options, key, keep, _holds))

    def take(
        self, cohort: str, builds: Callable[[], Mapping[str, str]]
    ) -> tuple[dict[str, xr.Dataset], list[list[str]]] | None:  # fmt: skip
        """Take a result that an earlier run has left.

        Parameters
        ----------
        cohort
            Fingerprint of the cohort; "" where it has none.
        builds
            Says which indexes there are now, as :func:`builds_of`. A result that another one gave
            is not taken.

        Returns
        -------
        results, warnings or None
            Without coordinates along `sample`; and what that run was told of it. None where there
            is nothing.
        """
        if self.scratch is None or not cohort:
            return None
        arrays = self.scratch.find(_file(cohort))
        if arrays is None:
            return None
        try:
            return self._taken(arrays, builds)
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as err:
            log.warning("what was found of a model cannot be used (%s); scoring it again", err)
            return None

    def _taken(
        self, arrays: Mapping[str, Any], builds: Callable[[], Mapping[str, str]]
    ) -> tuple[dict[str, xr.Dataset], list[list[str]]] | None:
        about = json.loads(str(arrays["about"]))
        found = {attrs["index"] for attrs, _ in about["metrics"].values()} - {"exact"}
        there = builds() if found else {}
        if any(not there.get(kind) or there[kind] != about["builds"].get(kind) for kind in found):
            return None
        results = {}
        for metric, (attrs, texts) in about["metrics"].items():
            own = {
                key.removeprefix(f"{metric}."): array
                for key, array in arrays.items()
                if key.startswith(f"{metric}.")
            }
            own |= {name: text_array(text) for name, text in texts.items()}
            coords: dict[str, Any] = {
                name: (declared.dims if own[name].ndim else (), own.pop(name))
                for name, declared in schema.COORDINATES.items()
                if name in own
            }
            results[metric] = schema.build_dataset(metric, own, coords, attrs)
        return results, about["warnings"]

    def put(
        self, cohort: str, results: Mapping[str, xr.Dataset], warnings: list[tuple[str, str]],
        builds: Callable[[], Mapping[str, str]],
    ) -> None:  # fmt: skip
        """Keep a result; without its coordinates along `sample`, which the manifest has.

        The arguments are those of :meth:`take`, and what it returns.
        """
        if self.scratch is None or not cohort:
            return
        arrays: dict[str, Any] = {}
        metrics: dict[str, Any] = {}
        for metric, dataset in results.items():
            texts = {}
            for name, variable in dataset.variables.items():
                if name in dataset.coords and "sample" in variable.dims:
                    continue
                if variable.dtype.kind == "O":
                    texts[str(name)] = variable.values.tolist()
                else:
                    arrays[f"{metric}.{name}"] = variable.values
            metrics[metric] = (dataset.attrs, texts)
        about = json.dumps(
            {"metrics": metrics, "warnings": warnings, "builds": dict(builds())}
        )  # fmt: skip
        self.scratch.write(_file(cohort), {**arrays, "about": np.array(about)})


def builds_of(cohort: Any, how: Approximation | None) -> dict[str, str]:
    """Name the indexes that a request may search through: another build gives another result.

    Parameters
    ----------
    cohort
        Stored cohort.
    how
        The index that was asked for; None searches exactly.

    Returns
    -------
    dict
        Kind to the name of the build that lies there, as far as there are any.
    """
    if how is None:
        return {}
    if how.index == "auto" or how.index in KINDS:
        embedding = resolve(cohort, None, ())[0]
        found = [find_built(embedding, kind) for kind in KINDS]
    else:
        found = [how.index if isinstance(how.index, StoredIndex) else StoredIndex(how.index)]
    return {index.kind: index.build_id for index in found if index is not None}


def _file(cohort: str) -> str:
    return f"model-{cohort[:32]}.npz"


def _holds(scratch: Scratch) -> bool:
    return any(Path(scratch.path).glob("model-*.npz"))
