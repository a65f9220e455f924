"""Shards that a process has loaded: each once, and never more of them than were planned."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["release", "resident"]

T = TypeVar("T")


class _Slot:
    """A loaded shard, or the place of one that is being loaded."""

    def __init__(self) -> None:
        self.value: Any = None
        self.ready = False
        self.users = 1


_changed = threading.Condition()
_slots: OrderedDict[Hashable, _Slot] = OrderedDict()


class _Mine(threading.local):
    held = 0


_mine = _Mine()


@contextmanager
def resident(key: Hashable, loader: Callable[[], T], *, most: int = 1) -> Iterator[T]:
    """Give what `loader` loads, once a process, and keep it until its place is needed.

    At most `most` are held at any time, loading ones included: the one that was not used for the
    longest time goes before another is loaded, and as long as all are in use, who wants another one
    waits. Two threads that want the same one wait for one load.

    Parameters
    ----------
    key
        Names the content: place, shard and fingerprint.
    loader
        Loads it; what it raises reaches the caller, and the next one tries again.
    most
        Number held at once; at least 1.

    Yields
    ------
    object
        What was loaded; it stays for as long as the ``with`` block lasts.

    Raises
    ------
    RuntimeError
        All places are taken, one of them by this very thread, which would wait for itself.
    """
    slot = _enter(key, loader, most)
    _mine.held += 1
    try:
        yield slot.value
    finally:
        _mine.held -= 1
        with _changed:
            slot.users -= 1
            _changed.notify_all()


def release() -> None:
    """Let go of everything that nobody is using; what is in use stays."""
    with _changed:
        for key in [key for key, slot in _slots.items() if slot.users == 0]:
            del _slots[key]
        _changed.notify_all()


def _enter(key: Hashable, loader: Callable[[], Any], most: int) -> _Slot:
    with _changed:
        while True:
            found = _slots.get(key)
            if found is not None and found.ready:
                found.users += 1
                _slots.move_to_end(key)
                return found
            if found is None and _make_room(most):
                slot = _slots[key] = _Slot()
                break
            if found is None and _mine.held:
                raise RuntimeError(f"a thread that holds a shard wants another one of {most}")
            _changed.wait()
    try:
        slot.value = loader()
    except BaseException:
        with _changed:
            del _slots[key]
            _changed.notify_all()
        raise
    with _changed:
        slot.ready = True
        _changed.notify_all()
    return slot


def _make_room(most: int) -> bool:
    """Let the oldest idle ones go until one more may come; say whether it may."""
    for key in [key for key, slot in _slots.items() if slot.users == 0]:
        if len(_slots) < most:
            break
        del _slots[key]
    return len(_slots) < most
