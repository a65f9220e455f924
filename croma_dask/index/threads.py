"""BLAS on one thread while our own threads run, whoever else is in the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["one_blas_thread"]

_lock = threading.Lock()
_inside = 0
_limits: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, from the first task that enters to the last that leaves.

    The limit belongs to the process, not to a thread: were each task to set and restore it, one
    that ends would lift it for those that still run.
    """
    global _inside, _limits
    from threadpoolctl import threadpool_limits

    with _lock:
        if _inside == 0:
            _limits = threadpool_limits(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limits.restore_original_limits()
                _limits = None
