"""Storage options of this process for the workers of its cluster, apart from any graph."""

from __future__ import annotations

import logging
import pickle
import weakref
from collections.abc import Mapping
from typing import Any

from croma_dask.cohort import secrets

__all__ = ["share"]

log = logging.getLogger("croma_dask")

_NAME = "croma-dask storage options"
_SHARED: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
"""What the workers of a client know already."""


def share(client: Any) -> None:
    """Give the workers of a cluster, and those that join it later, what opens this process's URLs.

    Parameters
    ----------
    client
        A `distributed.Client`; with None nothing is done. So it is in a task, whose client is its
        worker's, and for a client that is awaited.
    """
    if client is None or client.asynchronous:
        return
    known = secrets.exported()
    names = set(known)
    if names <= _SHARED.get(client, set()) or _in_task():
        return
    try:
        client.register_plugin(_plugin(known), name=_NAME)
    except (TypeError, AttributeError, pickle.PicklingError) as err:
        log.warning(
            "storage options cannot be sent to the workers (%s): give plain values, or set the "
            "environment of the workers",
            type(err).__name__,
        )
        return
    _SHARED[client] = names


def _in_task() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def _plugin(known: Mapping[str, Any]) -> Any:
    from distributed import WorkerPlugin

    class StorageOptions(WorkerPlugin):
        """Tells a worker the options when it starts, and when they are new."""

        known: Mapping[str, Any]

        def setup(self, worker: Any) -> None:
            secrets.learn(self.known)

    plugin = StorageOptions()
    plugin.known = known
    return plugin
