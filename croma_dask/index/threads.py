"""BLAS on one thread while our own threads run, whoever else is in the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

__all__ = ["one_blas_thread"]

_lock = threading.Lock()
_inside = 0
_limits: Any = None
_controller: ThreadPoolExecutor | None = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, from the first task that enters to the last that leaves.

    The limit belongs to the process, not to a thread: were each task to set and restore it, one
    that ends would lift it for those that still run. It is always set and restored by one thread
    of its own: threadpoolctl (from 3.8 on) lets only the thread that set a limit first change it,
    as long as it lives, and ignores the others without a word; so it ends with the limit.
    """
    global _inside, _limits, _controller
    from threadpoolctl import threadpool_limits

    with _lock:
        if _inside == 0:
            _controller = ThreadPoolExecutor(1, "croma-blas")
            _limits = _controller.submit(threadpool_limits, limits=1, user_api="blas").result()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _controller is not None:
                _controller.submit(_limits.restore_original_limits).result()
                _controller.shutdown()
                _limits = _controller = None
