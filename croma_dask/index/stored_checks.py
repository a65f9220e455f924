"""What is looked at before an index is believed: what it claims, before memory is taken for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.cohort.location import Location
from croma_dask.cohort.store_checks import check_claim
from croma_dask.errors import StoreError

if TYPE_CHECKING:
    import zarr

__all__ = ["check_attrs", "check_partition_claims"]

_TEXTS = ("build_id", "embedding_fingerprint", "croma_dask_version", "parameters", "dtype")
_COUNTS = ("n_rows", "n_features")
_DTYPES = "fiub"
"""Kinds of what rows may be: an index may be built over plain arrays of any numbers."""


def check_attrs(attrs: Mapping[str, Any], url: str, mend: str) -> None:
    """Check that the attributes of a finished index are of the types that they should be.

    Raises
    ------
    StoreError
        One is not; says which.
    """

    def damaged(name: str) -> StoreError:
        return StoreError(
            f"{url} is damaged: its attribute {name!r} is {attrs.get(name)!r:.60}; {mend}"
        )

    for name in _TEXTS:
        if not isinstance(attrs.get(name), str):
            raise damaged(name)
    for name in _COUNTS:
        value = attrs.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise damaged(name)
    try:
        kind = np.dtype(str(attrs["dtype"])).kind
    except (TypeError, ValueError, SyntaxError):
        kind = "V"
    if kind not in _DTYPES:
        raise damaged("dtype")
    try:
        parameters = json.loads(str(attrs["parameters"]))
    except (ValueError, RecursionError):
        parameters = None
    if not isinstance(parameters, dict):
        raise damaged("parameters")
    scale = attrs.get("scale", 1.0)
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise damaged("scale")


def check_partition_claims(
    root: zarr.Group, n_rows: int, n_features: int, location: Location, mend: str
) -> None:
    """Check the shapes of the arrays of the partition, before they are read whole.

    Parameters
    ----------
    root
        The index.
    n_rows, n_features
        Of the rows that it holds, as its attributes say.
    location
        Where it is.
    mend
        What to do about a damaged one.

    Raises
    ------
    StoreError
        One is larger than an index of so many rows has, or than its files. One that is missing is
        left to whoever reads it.
    """
    most = {
        "order": (n_rows,), "cluster_edges": (n_rows + 1,), "shard_edges": (n_rows + 1,),
        "centres": (n_rows, n_features), "mean": (n_features,), "basis": (n_features, n_features),
    }  # fmt: skip
    for name, largest in most.items():
        array: Any = root.get(name)
        if array is None:
            continue
        shape, chunks = getattr(array, "shape", ()), getattr(array, "chunks", ())
        fits = len(shape) == len(largest) and all(
            0 <= size <= bound for size, bound in zip(shape, largest, strict=True)
        )
        if not fits or any(size < 1 for size in chunks):
            raise StoreError(
                f"{location.url} is damaged: {name} has shape {shape}, chunks {chunks}; {mend}"
            )
        check_claim(array, name, location)
