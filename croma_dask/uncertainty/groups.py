"""The groups of a result's rows, as codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from croma_dask.errors import SchemaError, SupportError, SupportWarning, name_items, warn

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["FEW_GROUPS", "Groups"]

FEW_GROUPS = 10
"""Groups below which an interval is told to be unreliable."""


@dataclass(frozen=True)
class Groups:
    """Which group each row of a result is in.

    Attributes
    ----------
    code
        (rows,) int32 position among the names of the groups in ascending order, whatever the order
        of the rows; -1 for rows that were not scored.
    count
        Number of groups with a scored row.
    """

    code: NDArray[np.int32]
    count: int

    @classmethod
    def of(cls, nodes: Mapping[str, xr.Dataset]) -> Groups:
        """Read the groups of a panel.

        Parameters
        ----------
        nodes
            Metric name to Dataset with the dim `model`, all of the same rows.

        Raises
        ------
        SchemaError
            The metrics are of different rows.
        SupportError
            Fewer than two groups.

        Warns
        -----
        SupportWarning
            Fewer than `FEW_GROUPS` groups.
        """
        import pandas as pd

        first = next(iter(nodes.values()))
        _check_rows(nodes)
        why = first["undefined_type"].isel(model=0)
        scored = np.asarray(why.isel(m=0) if "m" in why.dims else why) >= 0
        names = np.asarray(first["group_id"].values, dtype=object)
        codes = np.full(names.shape, -1, np.int32)
        codes[scored], found = pd.factorize(names[scored], sort=True)
        column = first.attrs.get("group_column", "group_id")
        if len(found) < 2:
            raise SupportError(
                f"intervals need at least 2 groups: they come from drawing groups again, and all "
                f"scored rows have the same {column} ({name_items(found.tolist())}). Rows of one "
                "group are no independent evidence: name a column of independent units (slides, "
                "patients) as group= when scoring (--group)"
            )
        if len(found) < FEW_GROUPS:
            warn(
                f"only {len(found)} groups ({column}): intervals from so few are unreliable, and "
                f"mostly too narrow; they should be {FEW_GROUPS} or more",
                SupportWarning,
            )
        return cls(codes, len(found))


def _check_rows(nodes: Mapping[str, xr.Dataset]) -> None:
    rows = {
        name: (dataset.sizes["sample"], dataset.attrs.get("manifest_fingerprint"))
        for name, dataset in nodes.items()
    }
    if len(set(rows.values())) > 1:
        found = ", ".join(f"{name}: {n} rows" for name, (n, _) in rows.items())
        raise SchemaError(
            f"the metrics of this result are of different rows ({found}, by their "
            "manifest_fingerprint): all of them have to come from one score"
        )
