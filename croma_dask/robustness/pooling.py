"""Pooled values of parts of a cohort, from the evidence that a result keeps of every sample.

Evidence of MaRI is relative to the sample's own nearest typed neighbour, whose distance is kept
beside it. What is pooled together is first brought to one scale: that of the nearest of all that
are pooled, so that one of them weighs at least 1, however small tau is and however far the others
of the cohort lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from croma_dask import schema
from croma_dask.errors import SchemaError, name_items
from croma_dask.kernels.exponential import exp

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Evidence"]

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """Evidence of samples, or of parts of a cohort that were pooled of samples.

    Attributes
    ----------
    so, os
        (n,) weight of the SO and the OS neighbours, at least 0, on the scale of `nearest`: where
        there is any, both together are at least 1.
    nearest
        (n,) distance at which a neighbour weighs 1; inf where there is no evidence. Of RI, whose
        evidence is counts, 0.
    tau
        Bandwidth; inf of RI.
    """

    so: F64
    os: F64
    nearest: F64
    tau: float

    @classmethod
    def of(cls, dataset: xr.Dataset, metric: str) -> Evidence:
        """Read the evidence of every sample.

        Parameters
        ----------
        dataset
            RI or MaRI of one model.
        metric
            Which of them.

        Raises
        ------
        SchemaError
            The result has none: an earlier release has made it.
        """
        missing = [name for name in schema.EVIDENCE[metric] if name not in dataset]
        if missing:
            raise SchemaError(
                f"this result of {metric} has no {name_items(missing)}: it was scored by an "
                f"earlier release ({dataset.attrs.get('croma_dask_version', 'unknown')}), and the "
                "pooled value of a part of the cohort cannot be told from it; score again "
                "(croma-dask score), with keep_neighbors= where neighbours were kept"
            )
        so, os = (np.asarray(dataset[f"{kind}_evidence"], np.float64) for kind in ("so", "os"))
        nearest: Any = 0.0
        tau = np.inf
        if metric == "MaRI":
            nearest = np.asarray(dataset["evidence_distance"], np.float64)
            tau = float(dataset["tau"])
        return cls(so, os, np.where(so + os > 0.0, nearest, np.inf), tau)

    def rows(self, at: Any) -> Evidence:
        """Take some of the samples; all where `at` is None."""
        if at is None:
            return self
        return replace(self, so=self.so[at], os=self.os[at], nearest=self.nearest[at])

    def scaled_to(self, nearest: F64 | float) -> tuple[F64, F64]:
        """Weights with the neighbours at distance `nearest` weighing 1: SO and OS, (n,) each.

        Nothing may be nearer than that by so much that its weight overflows.
        """
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            factor = exp(-(self.nearest - nearest) / self.tau)
        # Without evidence it is inf - inf.
        factor = np.where(np.isfinite(self.nearest), factor, 0.0)
        return self.so * factor, self.os * factor

    def by_part(self, part: NDArray[Any], n_parts: int) -> Evidence:
        """Pool the samples of every part.

        Parameters
        ----------
        part
            (n,) part of each sample, 0 to n_parts - 1.
        n_parts
            Number of parts, some of them perhaps empty.

        Notes
        -----
        Samples are added pairwise within a part, as np.sum does. Memory: about 50 bytes a sample.
        """
        so, os = np.zeros(n_parts), np.zeros(n_parts)
        nearest = np.full(n_parts, np.inf)
        order = np.argsort(part, kind="stable")
        count = np.bincount(part, minlength=n_parts)
        some = np.flatnonzero(count)
        if some.size:
            first = np.cumsum(count[some]) - count[some]
            nearest[some] = np.minimum.reduceat(self.nearest[order], first)
            of_so, of_os = self.scaled_to(nearest[part])
            so[some] = np.add.reduceat(of_so[order], first)
            os[some] = np.add.reduceat(of_os[order], first)
        return replace(self, so=so, os=os, nearest=nearest)

    def value(self) -> F64:
        """(n,) share of SO in the evidence; NaN where there is none."""
        total = self.so + self.os
        value = np.full(total.shape, np.nan)
        np.divide(self.so, total, out=value, where=total > 0.0)
        return value
