"""The Dask cluster that this process is connected to, if any."""

from __future__ import annotations

import logging
import sys
from typing import Any

__all__ = ["active_client"]

log = logging.getLogger("croma_dask")


def active_client() -> Any:
    """Return the `distributed.Client` of this process, if one is active."""
    # A client can only be active where distributed was imported; importing it costs a second.
    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        client = get_client()
    except ValueError:
        return None
    if client.status != "running":
        # One whose scheduler never answered stays registered, too.
        log.warning("the client that is active has no connection to its scheduler: not using it")
        return None
    return client
