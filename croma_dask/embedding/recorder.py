"""Where metrics put what they find: outcomes, values of rows, and reasons where there are none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from croma_dask.embedding.bras import BRAS_DEFINITION
from croma_dask.embedding.outcome import Outcome, Scores
from croma_dask.embedding.request import Request
from croma_dask.embedding.rows import GroupRows
from croma_dask.errors import CromaDaskError, StoreError

__all__ = ["Recorder"]

log = logging.getLogger("croma_dask")


@dataclass(frozen=True)
class Recorder:
    """Collects the scores of one embedding.

    Attributes
    ----------
    request
        What is asked for; nothing else is recorded.
    scores
        What has been found so far.
    n_rows
        Rows of the manifest.
    said
        What the search says of itself.
    """

    request: Request
    scores: Scores
    n_rows: int
    said: dict[str, str | int | float] = field(default_factory=dict)

    def attempt(
        self, names: Sequence[str], group: GroupRows, compute: Callable[[], dict[str, Outcome]],
        *, more: str = "",
    ) -> None:  # fmt: skip
        """Compute metrics; one that raises says so in its own place, and in no other.

        Parameters
        ----------
        names
            Metrics that come out of it.
        group
            Rows that they are of.
        compute
            Gives their outcomes.
        more
            Said at the end of their notes.

        Raises
        ------
        StoreError, OSError
            The rows or the cluster are gone: every other metric would fail for it as well.
        """
        wanted = [name for name in names if self.request.wants(name)]
        try:
            found = compute()
        except (OSError, StoreError):
            raise
        except Exception as err:  # noqa: BLE001 - whatever a metric raises is its outcome
            # What is raised on purpose says why; of anything else it matters where it comes from.
            level = log.warning if isinstance(err, CromaDaskError) else log.exception
            where = f"{self.scores.dataset} by {self.scores.method}"
            level("%s of %s failed: %s", ", ".join(wanted), where, err)
            found = {name: Outcome.failed(err) for name in wanted}
        for name in wanted:
            self._put(name, group, found[name], more)

    def undefined(self, names: Sequence[str], group: GroupRows, reason: str, note: str) -> None:
        """Record that metrics have no value, and why."""
        for name in names:
            if self.request.wants(name):
                self._put(name, group, Outcome.undefined(reason, note), "")

    def _put(self, name: str, group: GroupRows, outcome: Outcome, more: str) -> None:
        """Record an outcome; what is said of the rows comes first."""
        parts = [group.note, outcome.note, more]
        if name == "BRAS" and BRAS_DEFINITION not in outcome.note:
            parts.append(BRAS_DEFINITION)
        note = ";".join(part for part in parts if part)
        self.scores.outcomes[name] = replace(outcome, note=note)

    def keep(self, name: str, group: GroupRows, values: Any) -> None:
        """Put values of the rows of a group in their places along the manifest."""
        everywhere = np.full(self.n_rows, np.nan)
        everywhere[slice(None) if group.rows is None else group.rows] = values
        self.scores.sample_values[name] = everywhere

    def keep_clusters(self, group: GroupRows, clusters: Any) -> None:
        """Put the clusters of the rows of a group in their places along the manifest."""
        everywhere = np.full(self.n_rows, -1, np.int32)
        everywhere[slice(None) if group.rows is None else group.rows] = clusters
        self.scores.predictions = everywhere
